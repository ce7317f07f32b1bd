//! Requests of clients: each is refused at once, joins the open block, or joins a round.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use palisade_machine::Command;
use palisade_raft::Role;
use palisade_types::block::{BODY_BYTES_MAX, COMMANDS_MAX};
use palisade_types::limits::{RELEASES_PER_ENTRY, TTL_DEFAULT, TTL_MAX, TTL_MIN};
use palisade_types::reply::NodeStatus;
use palisade_types::time::millis;
use palisade_types::{
    Cause, Class, ConnId, Mutant, Name, OperatorAct, Refusal, Reply, RequestId, SessionId, Ticket, Time,
};
use palisade_wire::{Request, Wait};

use crate::action::Actions;
use crate::pending::Origin;
use crate::rounds::{Item, Read};
use crate::shard::Shard;
use crate::watch::Wish;

/// When a busy server asks to be asked again.
pub(crate) const RETRY_AFTER_MS: u32 = 20;

/// What values leave free of the open block, in bytes: nobody who releases or ends something waits for
/// them.
const VALUES_LEAVE: usize = BODY_BYTES_MAX / 2;

/// What commands that grow the state leave free of it, in bytes and in commands: room for those who
/// release or end something, and for the leader's own expiries and sweeps.
const GROWTH_LEAVES: (usize, u32) = (BODY_BYTES_MAX / 8, COMMANDS_MAX as u32 / 8);

/// How a command competes for room when the server is at its limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It carries a value: refused before all others.
    Carries,
    /// It makes the state or the log grow: refused first.
    Grows,
    /// It frees something: passes when others do not.
    Frees,
}

impl Shard {
    /// Takes a request; every one gets exactly one answer, now or later.
    pub(crate) fn handle_request(
        &mut self,
        now: Time,
        conn: ConnId,
        id: RequestId,
        request: Request,
        out: &mut Actions,
    ) {
        if let Request::Status = request {
            out.replies.push((conn, id, Reply::Status(Box::new(self.status()))));
            return;
        }
        if let Request::Watch { .. } | Request::Unwatch { .. } = request {
            let reply = self.take_watch(now, conn, request);
            out.replies.push((conn, id, reply));
            return;
        }
        let taken = match (request, self.leading) {
            (Request::Read { consistency, query }, _) => {
                self.take_read(now, consistency, Read { conn, id, query }, out)
            }
            (request, Some(_)) => self.take_request(now, conn, id, request),
            (_, None) => Err(Refusal::NotLeader { leader: self.leader_hint() }),
        };
        if let Err(refusal) = taken {
            if matches!(refusal, Refusal::Busy { .. } | Refusal::QuotaExceeded { .. }) {
                self.counters.turned_away += 1;
            }
            out.replies.push((conn, id, Reply::Refused(refusal)));
        }
    }

    /// Watches are served by every node, from what it applies.
    fn take_watch(&mut self, now: Time, conn: ConnId, request: Request) -> Reply {
        match request {
            // Whatever it told could be old for ever.
            Request::Watch { .. } if self.leader().is_none() => {
                Reply::Refused(Refusal::NotLeader { leader: None })
            }
            Request::Watch { watch, selector, present, cursor } => {
                let wish = Wish { watch, selector, present, cursor };
                self.watches.watch(now, self.applied, conn, wish)
            }
            Request::Unwatch { watch } => self.watches.unwatch(conn, watch),
            _ => Reply::Refused(bad("this is no request about a watch")),
        }
    }

    fn take_request(
        &mut self,
        now: Time,
        conn: ConnId,
        id: RequestId,
        request: Request,
    ) -> Result<(), Refusal> {
        let origin = Origin::Client { conn, id, wait_until: None };
        match request {
            Request::OpenSession { token, ttl_ms, owner, incarnation } => {
                let ttl_ms = granted_ttl(ttl_ms)?;
                self.submit(Command::OpenSession { token, ttl_ms, owner, incarnation }, origin, Room::Grows)
            }
            Request::Attach { token, session } => self.join(Item::Attach { conn, id, token, session }),
            Request::Renew { sessions } => self.take_renewal(now, conn, id, &sessions),
            Request::CloseSession { session } => {
                self.must_own(conn, session)?;
                self.admit(Room::Frees)?;
                let release_now = self.releases_of(now, session);
                self.push(&Command::EndSession { session, cause: Cause::Closed, release_now }, origin);
                self.clocks.mark_ending(session);
                Ok(())
            }
            Request::Acquire { session, ticket, key, class, resource, mode, wait, on_death } => {
                self.must_own(conn, session)?;
                if class == Class::Fenced && resource.is_none() {
                    return Err(bad("a fenced acquire names the resource it protects"));
                }
                let (wait, wait_until) = until(now, wait);
                let origin = Origin::Client { conn, id, wait_until };
                let command =
                    Command::Acquire { session, ticket, key, class, resource, mode, wait, on_death };
                self.submit(command, origin, Room::Grows)
            }
            Request::Campaign { session, ticket, key, value, wait } => {
                self.must_own(conn, session)?;
                let (wait, wait_until) = until(now, wait);
                let origin = Origin::Client { conn, id, wait_until };
                self.submit(Command::Campaign { session, ticket, key, value, wait }, origin, Room::Carries)
            }
            Request::Proclaim { session, ticket, leads, value } => {
                self.must_own(conn, session)?;
                self.submit(Command::Proclaim { session, ticket, leads, value }, origin, Room::Carries)
            }
            Request::Downgrade { session, ticket, holds } => {
                self.must_own(conn, session)?;
                self.submit(Command::Downgrade { session, ticket, holds }, origin, Room::Grows)
            }
            Request::Release { session, ticket } => {
                self.must_own(conn, session)?;
                self.submit(Command::Release { session, ticket }, origin, Room::Frees)
            }
            Request::Cancel { session, ticket } => {
                self.must_own(conn, session)?;
                self.submit(Command::Cancel { session, ticket, timeout: false }, origin, Room::Frees)
            }
            Request::Put { session, ticket, key, value } => {
                self.must_own(conn, session)?;
                self.submit(Command::Put { session, ticket, key, value }, origin, Room::Carries)
            }
            Request::Delete { session, ticket, key } => {
                self.must_own(conn, session)?;
                self.submit(Command::Delete { session, ticket, key }, origin, Room::Frees)
            }
            Request::ClaimResource { resource, key } => self.take_claim(conn, id, resource, key),
            Request::Operate { by, reason, act } => {
                let origin = match act {
                    OperatorAct::Transfer { term, to } => Origin::Transfer { conn, id, term, to },
                    _ => origin,
                };
                self.take_order(now, origin, by, reason, act)
            }
            Request::Status | Request::Read { .. } | Request::Watch { .. } | Request::Unwatch { .. } => {
                Err(bad("that is answered by any node"))
            }
        }
    }

    /// An operator's action that frees something, as the state stands, passes when others do not. Any
    /// other only makes the log grow; its answer still comes from the log.
    fn take_order(
        &mut self,
        now: Time,
        origin: Origin,
        by: Name,
        reason: Name,
        act: OperatorAct,
    ) -> Result<(), Refusal> {
        let ends = act.ends();
        if ends.is_some_and(|session| session.shard != self.config.shard) {
            return Err(bad("that session lives in another shard"));
        }
        self.check_transfer(&act)?;
        // A leader that has no room is one to hand over.
        let passes = self.machine.frees(&act) || matches!(act, OperatorAct::Transfer { .. });
        self.admit(if passes { Room::Frees } else { Room::Grows })?;
        let release_now = ends.map_or(0, |session| self.releases_of(now, session));
        self.push(&Command::Operator { by, reason, act, release_now }, origin);
        if let Some(session) = ends {
            self.clocks.mark_ending(session);
        }
        Ok(())
    }

    fn must_own(&self, conn: ConnId, session: SessionId) -> Result<(), Refusal> {
        if session.shard != self.config.shard {
            return Err(bad("that session lives in another shard"));
        }
        if !self.links.owns(conn, session) {
            return Err(Refusal::NotAttached { session });
        }
        Ok(())
    }

    /// Takes from the budget what the end of a session is to release at once: no more than it holds, and
    /// nothing when another end of it is on its way.
    fn releases_of(&mut self, now: Time, session: SessionId) -> u32 {
        if self.clocks.is_ending(session) {
            return 0;
        }
        self.budget.take(now, self.machine.keys_to_free(session).min(RELEASES_PER_ENTRY))
    }

    /// Appends a command to the open block.
    pub(crate) fn submit(&mut self, command: Command, origin: Origin, room: Room) -> Result<(), Refusal> {
        self.admit(room)?;
        self.push(&command, origin);
        Ok(())
    }

    /// Whether a command may join the open block.
    fn admit(&self, room: Room) -> Result<(), Refusal> {
        let in_hand = self.pending.len() + self.open.count() as usize;
        let most = match room {
            Room::Grows | Room::Carries => self.config.in_hand_max,
            Room::Frees => self.config.in_hand_max * 2,
        };
        let bytes = match room {
            Room::Carries => Command::BYTES_MAX + VALUES_LEAVE,
            Room::Grows => Command::PLAIN_BYTES_MAX + GROWTH_LEAVES.0,
            Room::Frees => Command::PLAIN_BYTES_MAX,
        };
        let leaves = if room == Room::Frees { 0 } else { GROWTH_LEAVES.1 };
        let is_full = self.open.count() + leaves >= COMMANDS_MAX as u32 || !self.open.fits(bytes);
        if in_hand >= most || is_full {
            return Err(Refusal::Busy { retry_after_ms: RETRY_AFTER_MS });
        }
        if room != Room::Frees && self.wal.log_bytes() >= self.config.log_bytes_max {
            return Err(Refusal::QuotaExceeded {
                what: String::from("the log"),
                limit: self.config.log_bytes_max,
            });
        }
        Ok(())
    }

    fn push(&mut self, command: &Command, origin: Origin) {
        if self.open.is_empty() {
            self.opened_at = self.seen;
        }
        self.open.push(|bytes| command.encode(bytes));
        self.open_origins.push(origin);
    }

    /// Joins the next confirmation round.
    pub(crate) fn join(&mut self, item: Item) -> Result<(), Refusal> {
        if self.rounds.len() >= self.config.in_hand_max {
            return Err(Refusal::Busy { retry_after_ms: RETRY_AFTER_MS });
        }
        self.rounds.join(item);
        Ok(())
    }

    /// Renewals always pass: they join the next round and cost no entry.
    fn take_renewal(
        &mut self,
        now: Time,
        conn: ConnId,
        id: RequestId,
        sessions: &[SessionId],
    ) -> Result<(), Refusal> {
        let mut accepted = Vec::with_capacity(sessions.len());
        let mut refused = Vec::new();
        for &session in sessions {
            if let Some(cause) = self.machine.ended(session) {
                refused.push(Refusal::SessionEnded { session, cause });
            } else if !self.links.owns(conn, session) {
                refused.push(Refusal::NotAttached { session });
            } else if self.clocks.renewal_arrived(session) {
                accepted.push(session);
            } else {
                // Its end is appended, or its clock has not started: attaching again will tell.
                refused.push(Refusal::NotAttached { session });
            }
        }
        self.rounds.join(Item::Renew { conn, id, sessions: accepted, refused, arrived: now });
        Ok(())
    }

    /// What the leader proposes by itself, when it is due: expiries, ends of waits, sweeps.
    pub(crate) fn act_on_due(&mut self, now: Time, out: &mut Actions) {
        if !self.serving {
            return;
        }
        self.suspect_due(now, out);
        while self.has_room() {
            let Some(&(session, ticket)) = self.waits.take_due(now, 1).first() else { break };
            self.propose_wait_over(session, ticket);
        }
        if self.machine.has_backlog() && !self.sweeping && self.has_room() {
            let releases = self.budget.take(now, RELEASES_PER_ENTRY);
            if releases > 0 || self.machine.backlog_len() == 0 {
                self.sweeping = true;
                self.push(&Command::Sweep { releases }, Origin::Sweep);
            }
        }
    }

    /// Whoever is due is suspected, and no more: what has arrived from it may not have been read.
    fn suspect_due(&mut self, now: Time, out: &mut Actions) {
        let due = self.clocks.take_due(now, self.config.in_hand_max);
        if self.config.mutants.has(Mutant::D1) {
            due.into_iter().for_each(|session| self.rounds.join(Item::Expire(session)));
            return;
        }
        self.drains.suspect(due);
        if let Some(drain) = self.drains.start() {
            out.drain = Some(drain);
        }
    }

    /// The leadership was confirmed after the session fell due.
    pub(crate) fn expire(&mut self, now: Time, session: SessionId) {
        if !self.has_room() {
            self.rounds.join(Item::Expire(session));
            return;
        }
        let Some(silent) = self.clocks.confirm_due(now, session) else { return };
        let release_now = self.releases_of(now, session);
        let cause = Cause::Expired { silent_ms: millis(silent) };
        self.push(&Command::EndSession { session, cause, release_now }, Origin::Expiry);
        self.clocks.mark_ending(session);
        self.counters.expiries += 1;
    }

    fn propose_wait_over(&mut self, session: SessionId, ticket: Ticket) {
        let command = Command::Cancel { session, ticket, timeout: true };
        self.push(&command, Origin::WaitOver { session, ticket });
    }

    fn has_room(&self) -> bool {
        self.open.fits(Command::PLAIN_BYTES_MAX)
    }

    /// What this node says of itself.
    pub fn status(&self) -> NodeStatus {
        let raft = self.raft.status();
        let counts = self.machine.counts();
        NodeStatus {
            node: self.config.node,
            role: String::from(role_name(raft.role)),
            term: raft.term,
            leader: raft.leader,
            last: raft.last,
            durable: raft.durable,
            commit: raft.commit,
            applied: self.applied,
            sessions: counts.sessions,
            keys: counts.keys,
            log_bytes: self.wal.log_bytes(),
            snapshot: self.wal.snapshot().map(|id| id.last).unwrap_or_default(),
            boot: self.config.boot,
            cluster: Some(self.config.watch.cluster),
        }
    }
}

fn granted_ttl(asked_ms: u32) -> Result<u32, Refusal> {
    if asked_ms == 0 {
        return Ok(TTL_DEFAULT.as_millis() as u32);
    }
    if !(TTL_MIN..=TTL_MAX).contains(&Duration::from_millis(u64::from(asked_ms))) {
        return Err(bad("a TTL lies between 500 ms and 1 h"));
    }
    Ok(asked_ms)
}

/// Whether a claim is ready to wait, and until when.
fn until(now: Time, wait: Wait) -> (bool, Option<Time>) {
    match wait {
        Wait::No => (false, None),
        Wait::Forever => (true, None),
        Wait::Millis(ms) => (true, Some(now + Duration::from_millis(u64::from(ms)))),
    }
}

pub(crate) fn bad(reason: &str) -> Refusal {
    Refusal::BadRequest { reason: String::from(reason) }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::PreCandidate => "pre-candidate",
    }
}

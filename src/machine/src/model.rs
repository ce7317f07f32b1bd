//! A second machine, written from the design alone and as plainly as can be: vectors, searched from
//! the front. Tests and the simulator apply the same commands to both and compare what they say.
//! It shares no code with the first but the command's decoder and the types of the answers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use palisade_types::{
    Cause, Class, ClusterLimits, Description, Epoch, Event, Fence, Happened, HolderInfo, Key, LockRow,
    LogIndex, Mode, Name, OnDeath, OperatorAct, OperatorRow, Outcome, Refusal, Reply, ResourceRow, SessionId,
    SessionRow, SessionToken, ShardId, Standing, Ticket, Transition, TransitionKind, Value, ValueRow,
    WaiterInfo,
};

use crate::{Applied, ApplyError, Command, Effect};
use account::len;
use reads::holder;

mod account;
mod convert;
mod news;
mod no_claim;
mod operate;
mod reads;
mod resources;
mod values;

#[derive(Clone, Debug)]
struct Session {
    id: SessionId,
    token: SessionToken,
    ttl_ms: u32,
    owner: Option<Name>,
    incarnation: Option<Name>,
    /// Every ticket ever finished.
    finished: BTreeMap<Ticket, Outcome>,
    /// The same in the order of their finishing.
    order: Vec<Ticket>,
}

#[derive(Clone, Debug, PartialEq)]
struct Claim {
    session: SessionId,
    owner: Option<Name>,
    incarnation: Option<Name>,
    ticket: Ticket,
    resource: Option<Name>,
    mode: Mode,
    wait: bool,
    on_death: OnDeath,
    /// The ticket of the exclusive claim that this one was.
    was: Option<Ticket>,
    /// A campaign's value, and what was proclaimed since.
    value: Option<Value>,
    proclaimed: Option<Value>,
    /// When it was queued or granted.
    since: (LogIndex, u64),
    /// Once granted.
    epoch: u64,
    barrier: u64,
    /// Once its session is dead and it is not yet released: in quarantine, or about to be released.
    standing: Standing,
}

#[derive(Clone, Debug)]
struct Lock {
    class: Class,
    resource: Option<Name>,
    epoch: u64,
    /// In the order of their epochs.
    holders: Vec<Claim>,
    queue: Vec<Claim>,
    /// Of the tenures that ended, those that are kept: of two whose epochs are alike modulo 4 the one
    /// that ended last.
    tenures: Vec<Tenure>,
}

#[derive(Clone, Debug)]
struct Tenure {
    session: SessionId,
    epoch: u64,
    granted: (LogIndex, u64),
    ended: (LogIndex, u64),
    how: TransitionKind,
}

/// A grant that a dead session left behind.
#[derive(Clone, Debug, PartialEq)]
struct Left {
    key: Key,
    epoch: u64,
    cause: Cause,
}

/// The naive machine.
#[derive(Clone, Debug)]
pub struct Model {
    limits: ClusterLimits,
    shard: ShardId,
    sessions: Vec<Session>,
    /// Oldest end first.
    ended: Vec<(SessionId, SessionToken, Cause)>,
    locks: BTreeMap<Key, Lock>,
    /// Free keys, idle for longest first.
    idle: Vec<Key>,
    /// What ended sessions hold, with the cause: first keys with waiters.
    wanted: Vec<Left>,
    unwanted: Vec<Left>,
    /// Keys whose waiters may enter as soon as there is room in an entry.
    due: Vec<Key>,
    /// Waiters that this entry has let in beside other holders.
    shared_grants: u32,
    /// Ended sessions with keys in quarantine, in the order of their ids, and their first cause.
    quarantined: Vec<Session>,
    epoch_floor: u64,
    /// Oldest first; the clock in place of the time since.
    operators: Vec<OperatorRow>,
    values: values::Values,
    /// The index of the last command, and what it changed.
    now: LogIndex,
    news: Vec<Event>,
    /// Which key claims which resource, the claim that was not made again for longest ahead.
    resources: Vec<(Name, Key)>,
}

impl Model {
    /// An empty state.
    pub fn new(limits: ClusterLimits, shard: ShardId) -> Model {
        Model {
            limits,
            shard,
            sessions: Vec::new(),
            ended: Vec::new(),
            locks: BTreeMap::new(),
            idle: Vec::new(),
            wanted: Vec::new(),
            unwanted: Vec::new(),
            due: Vec::new(),
            shared_grants: 0,
            quarantined: Vec::new(),
            epoch_floor: 0,
            operators: Vec::new(),
            values: values::Values::default(),
            now: LogIndex(0),
            news: Vec::new(),
            resources: Vec::new(),
        }
    }

    /// Applies the command at the next index and appends its effects.
    ///
    /// # Errors
    /// When the bytes are no command.
    pub fn apply(
        &mut self,
        at: Applied,
        command: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Result<(), ApplyError> {
        self.now = at.index;
        self.news.clear();
        if command.is_empty() {
            return Ok(());
        }
        self.shared_grants = 0;
        match Command::decode(command).map_err(|error| ApplyError { index: at.index, error })? {
            Command::OpenSession { token, ttl_ms, owner, incarnation } => {
                let id = SessionId { shard: self.shard, opened: at.index };
                let fresh = Session {
                    id,
                    token,
                    ttl_ms: if ttl_ms == 0 { 30_000 } else { ttl_ms },
                    owner,
                    incarnation,
                    finished: BTreeMap::new(),
                    order: Vec::new(),
                };
                self.open(fresh, effects);
            }
            Command::EndSession { session, cause, release_now } => {
                self.end(at, session, cause, release_now, effects);
            }
            Command::Sweep { releases } => self.sweep(at, releases, effects),
            Command::Acquire { session, ticket, key, class, resource, mode, wait, on_death } => {
                let claim = Claim { resource, mode, wait, on_death, ..self.claim(at, session, ticket) };
                let reply = self.acquire(at, key, class, claim);
                effects.push(Effect::Reply(reply));
            }
            Command::Campaign { session, ticket, key, value, wait } => {
                let claim = Claim { value: Some(value), wait, ..self.claim(at, session, ticket) };
                let reply = self.acquire(at, key, Class::Election, claim);
                effects.push(Effect::Reply(reply));
            }
            Command::Release { session, ticket } => {
                if let Some((key, claim)) = self.held_by(session, ticket) {
                    let outcome = Outcome::Released;
                    self.finish(session, ticket, outcome);
                    effects.push(Effect::Reply(Reply::Finished { session, ticket, outcome }));
                    self.free(at, &key, claim.epoch, TransitionKind::Released, effects);
                } else {
                    self.withdraw(at, session, ticket, Outcome::Cancelled, effects);
                }
            }
            Command::Cancel { session, ticket, timeout } => match self.held_by(session, ticket) {
                Some((key, claim)) => {
                    let fence = fence(&key, &claim);
                    effects.push(Effect::Reply(Reply::Granted { session, ticket, fence }));
                }
                None => {
                    let outcome = if timeout { Outcome::TimedOut } else { Outcome::Cancelled };
                    self.withdraw(at, session, ticket, outcome, effects);
                }
            },
            Command::Downgrade { session, ticket, holds } => {
                self.downgrade(at, session, ticket, holds, effects);
            }
            Command::Proclaim { session, ticket, leads, value } => {
                let reply = self.proclaim(session, ticket, leads, value);
                effects.push(Effect::Reply(reply));
            }
            Command::Operator { by, reason, act, release_now } => {
                let place = effects.len();
                let row = OperatorRow { revision: at.index, act, by, reason, ago_ms: at.clock_ms };
                let reply = match self.operate(at, &row.act, release_now, effects) {
                    Ok(action) => {
                        if action == at.index {
                            self.operators.push(row);
                        }
                        Reply::OperatorDone { action }
                    }
                    Err(refusal) => Reply::Refused(refusal),
                };
                effects.insert(place, Effect::Reply(reply));
            }
            Command::Put { session, ticket, key, value } => {
                let reply = self.put(at, session, ticket, key, &value);
                effects.push(Effect::Reply(reply));
            }
            Command::Delete { session, ticket, key } => {
                let reply = self.delete(session, ticket, &key);
                effects.push(Effect::Reply(reply));
            }
            Command::ClaimResource { resource, key } => {
                let reply = self.claim_resource(at.index, &resource, &key);
                effects.push(Effect::Reply(reply));
            }
        }
        Ok(())
    }

    fn open(&mut self, fresh: Session, effects: &mut Vec<Effect>) {
        let (session, ttl_ms) = (fresh.id, fresh.ttl_ms);
        if let Some(s) = self.sessions.iter().find(|s| s.token == fresh.token) {
            let (session, ttl_ms) = (s.id, s.ttl_ms);
            let reply = Reply::Opened { session, ttl_ms, gone_within_ms: 0, short_ttl: false };
            return effects.push(Effect::Reply(reply));
        }
        let refusal = if let Some(&(session, _, cause)) = self.ended.iter().find(|e| e.1 == fresh.token) {
            Some(Refusal::SessionEnded { session, cause })
        } else if !(500..=3_600_000).contains(&ttl_ms) {
            Some(Refusal::BadRequest { reason: "a TTL is between 500 ms and 1 h".to_string() })
        } else if self.sessions.len() >= self.limits.sessions as usize {
            let what = "the number of live sessions".to_string();
            Some(Refusal::QuotaExceeded { what, limit: self.limits.sessions.into() })
        } else {
            self.over_quota(256 + len(&fresh.owner) + len(&fresh.incarnation))
        };
        if let Some(refusal) = refusal {
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        self.tell(None, session, fresh.owner.as_ref(), Happened::SessionOpened { ttl_ms });
        self.sessions.push(fresh);
        effects.push(Effect::Reply(Reply::Opened { session, ttl_ms, gone_within_ms: 0, short_ttl: false }));
        effects.push(Effect::SessionOpened { session, ttl_ms });
    }

    fn live(&self, session: SessionId) -> Option<&Session> {
        self.sessions.iter().find(|s| s.id == session)
    }

    /// Why a session ended, while that is remembered.
    pub fn ended(&self, session: SessionId) -> Option<Cause> {
        self.ended.iter().find(|e| e.0 == session).map(|e| e.2)
    }

    fn gone(&self, session: SessionId) -> Reply {
        Reply::Refused(Refusal::SessionEnded {
            session,
            cause: self.ended(session).unwrap_or(Cause::Forgotten),
        })
    }

    fn claim(&self, at: Applied, session: SessionId, ticket: Ticket) -> Claim {
        let tags = self.live(session).map(|s| (s.owner.clone(), s.incarnation.clone()));
        let (owner, incarnation) = tags.unwrap_or_default();
        Claim {
            session,
            owner,
            incarnation,
            ticket,
            resource: None,
            mode: Mode::Exclusive,
            wait: false,
            on_death: OnDeath::Release,
            was: None,
            value: None,
            proclaimed: None,
            since: (at.index, at.clock_ms),
            epoch: 0,
            barrier: 0,
            standing: Standing::Live,
        }
    }

    fn held_by(&self, session: SessionId, ticket: Ticket) -> Option<(Key, Claim)> {
        self.live(session)?;
        let holds = |c: &&Claim| c.session == session && c.ticket == ticket;
        self.locks.iter().find_map(|(k, l)| Some((k.clone(), l.holders.iter().find(holds)?.clone())))
    }

    fn awaited_by(&self, session: SessionId, ticket: Ticket) -> Option<(Key, usize)> {
        let waits = |c: &Claim| c.session == session && c.ticket == ticket;
        self.locks.iter().find_map(|(k, l)| Some((k.clone(), l.queue.iter().position(waits)?)))
    }

    /// The keys a session holds and awaits, by ticket, with the epochs of its grants.
    fn claims_of(&self, session: SessionId) -> Vec<(Ticket, Key, u64)> {
        let mut all = Vec::new();
        for (key, lock) in &self.locks {
            let claims = lock.holders.iter().chain(&lock.queue).filter(|c| c.session == session);
            all.extend(claims.map(|c| (c.ticket, key.clone(), c.epoch)));
        }
        all.sort();
        all
    }

    /// How many open tickets and ranges of finished ones the session would have with these finished.
    fn ticket_weight(&self, session: &Session, also: Option<Ticket>) -> usize {
        let mut set: Vec<u64> = session.finished.keys().chain(&also).map(|t| t.0).collect();
        set.sort_unstable();
        let ranges = set.iter().enumerate().filter(|&(i, &t)| i == 0 || set[i - 1] + 1 != t).count();
        ranges + self.claims_of(session.id).len()
    }

    fn finish(&mut self, session: SessionId, ticket: Ticket, outcome: Outcome) {
        let s = self.sessions.iter_mut().find(|s| s.id == session).expect("only the living finish tickets");
        s.finished.insert(ticket, outcome);
        s.order.push(ticket);
    }

    fn outcome(session: &Session, ticket: Ticket) -> Option<Outcome> {
        let outcome = *session.finished.get(&ticket)?;
        let kept = session.order.iter().rev().take(256).any(|&t| t == ticket);
        Some(if kept { outcome } else { Outcome::Unknown })
    }

    fn acquire(&mut self, at: Applied, key: Key, class: Class, claim: Claim) -> Reply {
        let (session, ticket) = (claim.session, claim.ticket);
        let Some(s) = self.live(session) else { return self.gone(session) };
        if let Some(reply) = self.old_or_bad_ticket(at, s, &key, class, &claim) {
            return reply;
        }
        if let Some(reply) = self.no_claim(at, s, &key, class, &claim) {
            let denied = matches!(reply, Reply::Denied { .. });
            self.finish(session, ticket, if denied { Outcome::Denied } else { Outcome::Refused });
            return reply;
        }
        let floor = self.epoch_floor;
        let lock = self.locks.entry(key.clone()).or_insert(Lock {
            class,
            resource: None,
            epoch: floor,
            holders: Vec::new(),
            queue: Vec::new(),
            tenures: Vec::new(),
        });
        let enters = may_enter(lock, claim.mode);
        lock.queue.push(claim);
        if enters {
            self.idle.retain(|k| *k != key);
            return Reply::Granted { session, ticket, fence: self.grant(at, &key) };
        }
        let place = lock.queue.len() as u32 - 1;
        self.sort_backlog();
        let holder = holder(&self.locks[&key], at.clock_ms).expect("held");
        Reply::Queued { session, ticket, place, holder: Box::new(holder) }
    }

    /// Makes the first of a key's queue a holder.
    fn grant(&mut self, at: Applied, key: &Key) -> Fence {
        let lock = self.locks.get_mut(key).expect("a key with a queue");
        let mut claim = lock.queue.remove(0);
        lock.epoch += 1;
        lock.resource = claim.resource.clone();
        claim.since = (at.index, at.clock_ms);
        claim.epoch = lock.epoch;
        claim.barrier = lock.holders.first().map_or(lock.epoch, |first| first.epoch);
        let fence = fence(key, &claim);
        lock.holders.push(claim.clone());
        self.tell_grant(key, &claim);
        fence
    }

    /// Ends the grant of a key with this epoch; who is next in line enters.
    fn free(&mut self, at: Applied, key: &Key, epoch: u64, how: TransitionKind, effects: &mut Vec<Effect>) {
        let lock = self.locks.get_mut(key).expect("a held key");
        let place = lock.holders.iter().position(|c| c.epoch == epoch).expect("a grant that holds");
        let old = lock.holders.remove(place);
        let ended = (at.index, at.clock_ms);
        keep(lock, Tenure { session: old.session, epoch, granted: old.since, ended, how });
        self.tell_release(key, &old, how);
        self.admit(at, key, effects);
    }

    /// Lets in whoever may enter from the head of the queue.
    fn admit(&mut self, at: Applied, key: &Key, effects: &mut Vec<Effect>) {
        loop {
            let lock = &self.locks[key];
            let Some(next) = lock.queue.first() else { break };
            let joins = !lock.holders.is_empty();
            if joins && (next.mode, lock.holders[0].mode) != (Mode::Shared, Mode::Shared) {
                break;
            }
            if joins && self.shared_grants == 950 {
                if !self.due.contains(key) {
                    self.due.push(key.clone());
                }
                return;
            }
            self.shared_grants += u32::from(joins);
            let (session, ticket) = (next.session, next.ticket);
            let fence = self.grant(at, key);
            effects.push(Effect::Granted { session, ticket, fence });
        }
        self.due.retain(|k| k != key);
        self.sort_backlog();
        if !self.locks[key].holders.is_empty() {
            return;
        }
        self.idle.push(key.clone());
        if self.idle.len() > self.limits.idle_keys as usize {
            let oldest = self.idle.remove(0);
            let record = self.locks.remove(&oldest).expect("an idle key has a record");
            self.epoch_floor = self.epoch_floor.max(record.epoch);
        }
    }

    /// Gives up a claim that does not hold its key.
    fn withdraw(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        let reply = 'reply: {
            let Some(s) = self.live(session) else { break 'reply self.gone(session) };
            if ticket.0 == 0 || ticket.0 >= 1 << 60 {
                break 'reply bad_ticket();
            }
            if let Some((key, place)) = self.awaited_by(session, ticket) {
                self.locks.get_mut(&key).expect("found").queue.remove(place);
                self.sort_backlog();
                self.finish(session, ticket, outcome);
                effects.push(Effect::Reply(Reply::Finished { session, ticket, outcome }));
                return self.admit(at, &key, effects);
            }
            if let Some(outcome) = Model::outcome(s, ticket) {
                break 'reply Reply::Finished { session, ticket, outcome };
            }
            if self.ticket_weight(s, Some(ticket)) > 2_000 {
                break 'reply tickets_full();
            }
            self.finish(session, ticket, Outcome::Cancelled);
            Reply::Finished { session, ticket, outcome: Outcome::Cancelled }
        };
        effects.push(Effect::Reply(reply));
    }

    /// Keys of the dead that somebody waits for stand before those nobody waits for; what changes sides
    /// goes to the end, of one key in the order of the epochs.
    fn sort_backlog(&mut self) {
        let awaited = |left: &Left| !self.locks[&left.key].queue.is_empty();
        let mut up: Vec<_> = self.unwanted.iter().filter(|l| awaited(l)).cloned().collect();
        let mut down: Vec<_> = self.wanted.iter().filter(|l| !awaited(l)).cloned().collect();
        self.unwanted.retain(|left| !up.contains(left));
        self.wanted.retain(|left| !down.contains(left));
        up.sort_by_key(|left| left.epoch);
        down.sort_by_key(|left| left.epoch);
        self.wanted.extend(up);
        self.unwanted.extend(down);
    }

    fn end(&mut self, at: Applied, session: SessionId, cause: Cause, now: u32, effects: &mut Vec<Effect>) {
        let Some(place) = self.sessions.iter().position(|s| s.id == session) else {
            let closed = self.ended(session) == Some(Cause::Closed);
            let reply = if closed { Reply::SessionClosed { session } } else { self.gone(session) };
            return effects.push(Effect::Reply(reply));
        };
        effects.push(Effect::Reply(Reply::SessionClosed { session }));
        self.bury(at, place, cause, now, effects);
    }

    fn bury(&mut self, at: Applied, place: usize, cause: Cause, now: u32, effects: &mut Vec<Effect>) {
        let session = self.sessions[place].id;
        effects.push(Effect::SessionEnded { session, cause });
        let dead = self.sessions.remove(place);
        self.tell(None, session, dead.owner.as_ref(), Happened::SessionEnded { cause });
        self.ended.push((session, dead.token, cause));
        if self.ended.len() > self.limits.ended_sessions as usize {
            self.ended.remove(0);
        }
        let mut left = Vec::new();
        for (ticket, ..) in self.claims_of(session) {
            if let Some((key, place)) = self.awaited_by(session, ticket) {
                self.locks.get_mut(&key).expect("found").queue.remove(place);
                self.sort_backlog();
                left.push(key);
            }
        }
        for key in left {
            self.admit(at, &key, effects);
        }
        let closes = matches!(cause, Cause::Expired { .. } | Cause::Evicted { .. });
        let mut is_closed = false;
        for claim in self.locks.values_mut().flat_map(|l| &mut l.holders).filter(|c| c.session == session) {
            if closes && claim.on_death == OnDeath::Quarantine {
                claim.standing = Standing::Quarantined;
                is_closed = true;
            }
        }
        if is_closed {
            self.quarantined.push(dead);
            self.quarantined.sort_by_key(|s| s.id);
        }
        let left = self.let_go(at, session, cause, now, effects);
        for row in self.values.end(session, cause, left) {
            self.tell(Some(&row.key), session, row.owner.as_ref(), Happened::Vanished { cause });
        }
    }

    /// Frees what a dead session holds, but what is in quarantine or waits for a sweep already. Returns
    /// how many more it might have freed.
    fn let_go(
        &mut self,
        at: Applied,
        session: SessionId,
        cause: Cause,
        now: u32,
        effects: &mut Vec<Effect>,
    ) -> usize {
        let mut keys = self.claims_of(session);
        keys.retain(|(_, key, epoch)| {
            let mut holders = self.locks[key].holders.iter();
            holders.any(|c| c.epoch == *epoch && c.standing == Standing::Live)
        });
        keys.sort_by_key(|(ticket, key, _)| (self.locks[key].queue.is_empty(), *ticket));
        let left = (now.min(50) as usize).saturating_sub(keys.len());
        for (i, (_, key, epoch)) in keys.into_iter().enumerate() {
            if i < now.min(50) as usize {
                self.free(at, &key, epoch, TransitionKind::SessionEnded(cause), effects);
                continue;
            }
            let lock = self.locks.get_mut(&key).expect("a held key");
            lock.holders.iter_mut().filter(|c| c.epoch == epoch).for_each(|c| c.standing = Standing::Ending);
            let list = if lock.queue.is_empty() { &mut self.unwanted } else { &mut self.wanted };
            list.push(Left { key, epoch, cause });
        }
        left
    }

    fn sweep(&mut self, at: Applied, releases: u32, effects: &mut Vec<Effect>) {
        for key in self.due.clone() {
            self.admit(at, &key, effects);
            if self.due.contains(&key) {
                break;
            }
        }
        for _ in 0..releases.min(50) {
            let list = if self.wanted.is_empty() { &mut self.unwanted } else { &mut self.wanted };
            if list.is_empty() {
                if let Some((row, cause)) = self.values.sweep() {
                    self.tell(Some(&row.key), row.session, row.owner.as_ref(), Happened::Vanished { cause });
                }
                continue;
            }
            let Left { key, epoch, cause } = list.remove(0);
            self.free(at, &key, epoch, TransitionKind::SessionEnded(cause), effects);
        }
    }

    /// Keys of ended sessions still to be released.
    pub fn backlog_len(&self) -> usize {
        self.wanted.len() + self.unwanted.len() + self.values.ending()
    }
}

/// Whether a claim that comes now is granted at once.
fn may_enter(lock: &Lock, mode: Mode) -> bool {
    let joins = lock.queue.is_empty() && mode == Mode::Shared;
    lock.holders.first().is_none_or(|holder| joins && holder.mode == Mode::Shared)
}

fn fence(key: &Key, claim: &Claim) -> Fence {
    Fence::new(key.clone(), Epoch(claim.epoch), Epoch(claim.barrier)).expect("a granted epoch")
}

fn keep(lock: &mut Lock, tenure: Tenure) {
    lock.tenures.retain(|kept| kept.epoch % 4 != tenure.epoch % 4);
    lock.tenures.push(tenure);
}

fn bad_ticket() -> Reply {
    let reason = "tickets count 1, 2, 3 … and stay below 2^60".to_string();
    Reply::Refused(Refusal::BadRequest { reason })
}

fn tickets_full() -> Reply {
    let what = "open tickets and ranges of finished ones".to_string();
    Reply::Refused(Refusal::SessionFull { what, limit: 2_000 })
}

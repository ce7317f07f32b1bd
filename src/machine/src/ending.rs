//! How sessions open and end, and what becomes of the keys of those that ended (DESIGN section 2).

use alloc::string::String;
use alloc::vec::Vec;

use palisade_types::limits::{RELEASES_PER_ENTRY, SESSION_COST, TTL_DEFAULT, TTL_MAX, TTL_MIN};
use palisade_types::{
    Cause, Happened, Mutant, Name, Refusal, Reply, SessionId, SessionToken, Ticket, TransitionKind,
};

use crate::claims::{State, flag};
use crate::ended::EndedSession;
use crate::machine::{Applied, Effect, Machine};
use crate::open::Open;
use crate::session::{Life, Session};
use crate::slab::{NONE, Slot};
use crate::tickets::Tickets;

impl Machine {
    /// Opens a session, or finds the one that this token has opened. `tags`: owner, incarnation.
    pub(crate) fn open_session(
        &mut self,
        at: Applied,
        token: SessionToken,
        ttl_ms: u32,
        tags: [Option<&str>; 2],
        effects: &mut Vec<Effect>,
    ) {
        if let Some(slot) = self.sessions.find_token(token) {
            let known = &self.sessions.records[slot];
            return effects.push(Effect::Reply(opened(self.id(known.opened), known.ttl_ms())));
        }
        if let Some(ended) = self.ended.find_token(token) {
            let refusal = Refusal::SessionEnded { session: self.id(ended.opened), cause: ended.cause };
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        let ttl_ms = if ttl_ms == 0 { TTL_DEFAULT.as_millis() as u32 } else { ttl_ms };
        if !(TTL_MIN.as_millis()..=TTL_MAX.as_millis()).contains(&u128::from(ttl_ms)) {
            let reason = String::from("a TTL is between 500 ms and 1 h");
            return effects.push(Effect::Reply(Reply::Refused(Refusal::BadRequest { reason })));
        }
        if self.sessions.live() >= self.limits.sessions as usize {
            let what = String::from("the number of live sessions");
            let limit = u64::from(self.limits.sessions);
            return effects.push(Effect::Reply(Reply::Refused(Refusal::QuotaExceeded { what, limit })));
        }
        let tag_bytes: usize = tags.iter().flatten().map(|tag| tag.len()).sum();
        if let Some(refusal) = self.over_quota(SESSION_COST + tag_bytes as u64) {
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        let [owner, incarnation] =
            tags.map(|tag| tag.map(|t| Name::new(t).expect("checked when the command was decoded")));
        let slot = self.sessions.insert(Session {
            opened: at.index,
            open: Open::default(),
            tickets: Tickets::default(),
            life: Life::Live { ttl_ms, values: 0 },
            token,
            owner,
            incarnation,
        });
        self.tell_session(slot, Happened::SessionOpened { ttl_ms });
        let session = self.id(at.index);
        effects.push(Effect::Reply(opened(session, ttl_ms)));
        effects.push(Effect::SessionOpened { session, ttl_ms });
    }

    /// Takes a session out of the live set, withdraws its waits, releases up to `release_now` of its
    /// keys (at most 50), those that others wait for first, and puts the rest in the backlog.
    pub(crate) fn end_session(
        &mut self,
        at: Applied,
        session: SessionId,
        cause: Cause,
        release_now: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.find_session(session) else {
            let reply = match self.ended(session) {
                Some(Cause::Closed) => Reply::SessionClosed { session },
                _ => self.not_live(session),
            };
            return effects.push(Effect::Reply(reply));
        };
        effects.push(Effect::Reply(Reply::SessionClosed { session }));
        self.end_live(at, slot, cause, release_now, effects);
    }

    /// Ends a session that lives; the reply is the caller's.
    pub(crate) fn end_live(
        &mut self,
        at: Applied,
        slot: Slot,
        cause: Cause,
        release_now: u32,
        effects: &mut Vec<Effect>,
    ) {
        let session = self.id(self.sessions.records[slot].opened);
        effects.push(Effect::SessionEnded { session, cause });
        self.tell_session(slot, Happened::SessionEnded { cause });
        let token = self.sessions.records[slot].token;
        self.sessions.bury(slot, cause);
        self.ended.push(EndedSession { opened: session.opened, token, cause });
        if !self.mutants.has(Mutant::B22) {
            for lock in self.withdraw_waits(slot) {
                self.admit(at, lock, effects);
            }
        }
        self.quarantine(slot, cause);
        let budget = self.let_go(at, slot, cause, release_now, effects);
        if !self.mutants.has(Mutant::V1) {
            self.drop_values(session.opened, cause, budget);
        }
    }

    /// Takes a dead session out of every queue, before any key is released: one of its own keys
    /// might be what it waits for under another ticket. Returns the keys it waited for.
    fn withdraw_waits(&mut self, slot: Slot) -> Vec<Slot> {
        let mut left = Vec::new();
        let open = core::mem::take(&mut self.sessions.records[slot].open);
        let mut kept = Open::default();
        kept.held = open.held;
        for (ticket, claim) in open.iter() {
            if self.claims.records[claim].state != State::Queued {
                kept.add(ticket, claim);
                continue;
            }
            self.leave_queue(claim);
            left.push(self.remove_claim(claim).lock);
        }
        self.sessions.records[slot].open = kept;
        left
    }

    /// Closes the keys of a dead session that asked for that, until somebody who knows says otherwise.
    fn quarantine(&mut self, slot: Slot, cause: Cause) {
        if !matches!(cause, Cause::Expired { .. } | Cause::Evicted { .. }) || self.mutants.has(Mutant::L3) {
            return;
        }
        let Machine { sessions, claims, .. } = self;
        let mut closed = 0;
        for (_, claim) in sessions.records[slot].open.iter() {
            let claim = &mut claims.records[claim];
            if claim.state == State::Held && claim.flags & flag::QUARANTINE != 0 {
                claim.state = State::Quarantined;
                closed += 1;
            }
        }
        if closed > 0 {
            sessions.quarantine(slot);
        }
    }

    /// Releases what a dead session has in quarantine: it is known to be dead.
    pub(crate) fn release_quarantined(
        &mut self,
        at: Applied,
        slot: Slot,
        cause: Cause,
        release_now: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Machine { sessions, claims, .. } = self;
        let session = &mut sessions.records[slot];
        session.life = Life::Ended(cause);
        let opened = session.opened;
        sessions.end_quarantine(opened);
        for (_, claim) in sessions.records[slot].open.iter() {
            let claim = &mut claims.records[claim];
            if claim.state == State::Quarantined {
                claim.state = State::Held;
            }
        }
        self.let_go(at, slot, cause, release_now, effects);
    }

    /// Releases some of the keys of a session that has ended, at most 50; the rest joins the backlog.
    /// Returns how many more it might have released.
    fn let_go(
        &mut self,
        at: Applied,
        slot: Slot,
        cause: Cause,
        release_now: u32,
        effects: &mut Vec<Effect>,
    ) -> u32 {
        let mut budget = release_now.min(RELEASES_PER_ENTRY);
        let held = |&(_, claim): &(Ticket, Slot)| self.claims.records[claim].state == State::Held;
        let keys: Vec<Slot> = self.sessions.records[slot].open.iter().filter(held).map(|c| c.1).collect();
        if self.sessions.records[slot].open.is_empty() {
            self.sessions.records.remove(slot);
            return budget;
        }
        let is_wanted = |&claim: &Slot| {
            let lock = &self.locks.records[self.claims.records[claim].lock];
            lock.queue.len > 0
        };
        let (wanted, unwanted): (Vec<Slot>, Vec<Slot>) = keys.into_iter().partition(is_wanted);
        for claim in wanted.into_iter().chain(unwanted) {
            if budget > 0 {
                budget -= 1;
                self.vacate(at, claim, TransitionKind::SessionEnded(cause), effects);
            } else {
                self.put_off(claim);
            }
        }
        budget
    }

    /// Goes on where entries had no room: lets in waiters that may share their key, and releases keys
    /// from the backlog, at most 50: those that others wait for first, then the other locks, then
    /// ephemeral keys.
    pub(crate) fn sweep(&mut self, at: Applied, releases: u32, effects: &mut Vec<Effect>) {
        while let Some(&lock) = self.due.front() {
            self.admit(at, lock, effects);
            if self.due.front() == Some(&lock) {
                break;
            }
        }
        for _ in 0..releases.min(RELEASES_PER_ENTRY) {
            let list = if self.wanted.len > 0 { &mut self.wanted } else { &mut self.unwanted };
            let claim = list.head;
            if claim == NONE {
                self.sweep_value();
                continue;
            }
            self.claims.unlink(list, claim);
            let owner = &self.sessions.records[self.claims.records[claim].session];
            let cause = owner.ended().expect("only keys of ended sessions are in the backlog");
            self.vacate(at, claim, TransitionKind::SessionEnded(cause), effects);
        }
    }
}

/// How soon a silent session is gone, and whether that is soon, is for the shard to fill in: it has
/// the clock.
fn opened(session: SessionId, ttl_ms: u32) -> Reply {
    Reply::Opened { session, ttl_ms, gone_within_ms: 0, short_ttl: false }
}

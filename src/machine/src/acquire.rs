//! Acquire: granted, queued, denied or refused, in one step (DESIGN section 3).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use palisade_types::limits::TICKET_RANGES_MAX;
use palisade_types::{Class, HolderInfo, Mutant, Outcome, Refusal, Reply, SessionId, Ticket};

use crate::account::cost_of_new;
use crate::claims::{Claim, State, flag};
use crate::locks::Lock;
use crate::machine::{Applied, Effect, Machine, Wanted, Wish};
use crate::slab::{NONE, Slot};
use crate::tickets::TICKET_MAX;

impl Machine {
    /// Answers an acquire. The order of the questions is part of the replicated behaviour.
    pub(crate) fn acquire(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        wish: Wish,
        effects: &mut Vec<Effect>,
    ) {
        let Some(owner) = self.find_session(session) else {
            return effects.push(Effect::Reply(self.not_live(session)));
        };
        if ticket.0 == 0 || ticket > TICKET_MAX {
            return effects.push(Effect::Reply(bad_ticket()));
        }
        let record = &self.sessions.records[owner];
        if let Some(claim) = record.open.find(ticket) {
            let reply = self.repeat_acquire(at, session, ticket, claim, &wish);
            return effects.push(Effect::Reply(reply));
        }
        if record.tickets.is_finished(ticket) {
            let outcome = record.tickets.outcome(ticket);
            return effects.push(Effect::Reply(Reply::Refused(Refusal::TicketFinished { ticket, outcome })));
        }
        if record.tickets.count() + record.open.len() >= TICKET_RANGES_MAX {
            return effects.push(Effect::Reply(tickets_full()));
        }
        if let Some((outcome, reply)) = self.refusal(at, owner, ticket, &wish) {
            self.sessions.records[owner].tickets.finish(ticket, outcome);
            return effects.push(Effect::Reply(reply));
        }
        effects.push(Effect::Reply(self.claim_key(at, session, owner, ticket, wish)));
    }

    /// An acquire whose ticket is open gets its answer again, if it is the same acquire.
    fn repeat_acquire(
        &self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        claim: Slot,
        wish: &Wish,
    ) -> Reply {
        let record = &self.claims.records[claim];
        let same = matches!(wish.key, Wanted::Known(lock) if lock == record.lock)
            && self.locks.records[record.lock].class == wish.class
            && record.flags == wish.flags
            && record.resource == wish.resource
            && self.campaigns_alike(claim, wish);
        if !same {
            return Reply::Refused(Refusal::TicketMismatch { ticket });
        }
        if record.state != State::Queued {
            return Reply::Granted { session, ticket, fence: self.fence(claim) };
        }
        let place = self.claims.place(claim);
        Reply::Queued { session, ticket, place, holder: self.holder_box(record.lock, at.clock_ms) }
    }

    /// Why a new claim gets neither its key nor a place in the queue, and how that finishes its ticket.
    fn refusal(&self, at: Applied, owner: Slot, ticket: Ticket, wish: &Wish) -> Option<(Outcome, Reply)> {
        let refuse = |refusal| Some((Outcome::Refused, Reply::Refused(refusal)));
        if wish.class == Class::Fenced && wish.resource.is_none() {
            return refuse(Refusal::BadRequest { reason: "a fenced claim names its resource".into() });
        }
        let slot = match &wish.key {
            Wanted::Known(slot) => *slot,
            Wanted::New(key) => {
                let cost = cost_of_new(key, wish.resource.as_ref()) + wish.value_bytes();
                return self.over_limit(owner, None).or_else(|| self.over_quota(cost)).and_then(refuse);
            }
        };
        let lock = &self.locks.records[slot];
        if lock.class != wish.class {
            return refuse(Refusal::ClassMismatch { has: lock.class });
        }
        if self.may_enter(lock, wish.flags) {
            return self.over_limit(owner, None).or_else(|| self.over_value(wish)).and_then(refuse);
        }
        if wish.flags & flag::WAIT != 0 {
            let over_limit = self.over_limit(owner, Some(lock.queue.len));
            return over_limit.or_else(|| self.over_value(wish)).and_then(refuse);
        }
        let session = self.id(self.sessions.records[owner].opened);
        let holder = self.holder_box(slot, at.clock_ms);
        Some((Outcome::Denied, Reply::Denied { session, ticket, waiting: lock.queue.len, holder }))
    }

    /// Whether the value of a campaign exceeds the quota. Other claims of keys with records are never
    /// refused for its sake.
    fn over_value(&self, wish: &Wish) -> Option<Refusal> {
        let more = wish.value_bytes();
        if more == 0 { None } else { self.over_quota(more) }
    }

    /// A new claim that nothing speaks against: it is granted or queued.
    fn claim_key(
        &mut self,
        at: Applied,
        session: SessionId,
        owner: Slot,
        ticket: Ticket,
        wish: Wish,
    ) -> Reply {
        let Wish { key, class, resource, flags, value } = wish;
        let (lock, is_known) = match key {
            Wanted::Known(lock) => (lock, true),
            Wanted::New(key) => (self.locks.create(key, class), false),
        };
        let claim = Claim::new(owner, lock, ticket, flags, resource, at.when());
        let claim = self.claims.insert(claim);
        self.sessions.records[owner].open.add(ticket, claim);
        if let Some(value) = value {
            self.candidates.insert(claim, value);
        }
        if !self.may_enter(&self.locks.records[lock], flags) {
            let place = self.join_queue(lock, claim);
            return Reply::Queued { session, ticket, place, holder: self.holder_box(lock, at.clock_ms) };
        }
        if is_known && self.locks.records[lock].holder == NONE {
            self.locks.wake(lock);
        }
        Reply::Granted { session, ticket, fence: self.grant(at, lock, claim) }
    }

    /// Whether a claim that arrives now would be granted at once: nobody holds the key, or those who do
    /// share it, as it would, and nobody waits ahead of it.
    #[inline]
    fn may_enter(&self, lock: &Lock, flags: u8) -> bool {
        let joins = || {
            let alike = flags & flag::SHARED != 0 && self.claims.records[lock.holder].is_shared();
            alike && (lock.queue.len == 0 || self.mutants.has(Mutant::L4))
        };
        lock.holder == NONE || joins()
    }

    /// Which limit forbids one more claim, if any does; of one that would join a queue, how many wait.
    fn over_limit(&self, owner: Slot, queue: Option<u32>) -> Option<Refusal> {
        let quota = |what: &str, limit: u32| {
            Some(Refusal::QuotaExceeded { what: String::from(what), limit: u64::from(limit) })
        };
        let keys_max = self.limits.keys_per_session;
        if self.sessions.records[owner].keys() >= keys_max as usize {
            let what = String::from(KEYS_OF_A_SESSION);
            return Some(Refusal::SessionFull { what, limit: u64::from(keys_max) });
        }
        if self.claims.records.len() >= self.limits.claims as usize {
            return quota("the number of keys held or awaited", self.limits.claims);
        }
        if queue.is_some_and(|waiting| waiting >= self.limits.waiters_per_key) {
            return quota("the queue of this key", self.limits.waiters_per_key);
        }
        None
    }

    /// Puts a claim at the end of its key's queue and returns its place. A key in the backlog that
    /// somebody waits for goes before those that nobody waits for.
    fn join_queue(&mut self, lock: Slot, claim: Slot) -> u32 {
        let queue = &mut self.locks.records[lock].queue;
        self.claims.enqueue(queue, claim);
        let place = queue.len - 1;
        if place == 0 {
            self.sort_backlog(lock);
        }
        place
    }

    fn holder_box(&self, lock: Slot, clock_ms: u64) -> Box<HolderInfo> {
        Box::new(self.holder_info(lock, clock_ms).expect("the key is held"))
    }
}

/// What a session has so many of that it is full.
pub(crate) const KEYS_OF_A_SESSION: &str = "keys held, awaited or put";

pub(crate) fn bad_ticket() -> Reply {
    Reply::Refused(Refusal::BadRequest { reason: "tickets count 1, 2, 3 … and stay below 2^60".into() })
}

pub(crate) fn tickets_full() -> Reply {
    let what = String::from("open tickets and ranges of finished ones");
    Reply::Refused(Refusal::SessionFull { what, limit: TICKET_RANGES_MAX as u64 })
}

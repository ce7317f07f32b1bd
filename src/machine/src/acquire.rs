//! Acquire: granted, queued, denied or refused, in one step (DESIGN section 3).

use alloc::boxed::Box;
use alloc::string::String;

use palisade_types::limits::TICKET_RANGES_MAX;
use palisade_types::{
    Class, Epoch, HolderInfo, Key, Mutant, Name, Outcome, Refusal, Reply, SessionId, Ticket, TransitionKind,
};

use crate::claims::{Claim, State};
use crate::locks::Happened;
use crate::machine::{Applied, Machine, Wish};
use crate::slab::{NONE, Slot};
use crate::tickets::TICKET_MAX;

const CHECKED: &str = "the name was checked when the command was decoded";

impl Machine {
    /// The answer to an acquire. The order of the questions is part of the replicated behaviour.
    pub(crate) fn acquire(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        wish: Wish<'_>,
    ) -> Reply {
        let Some(owner) = self.find_session(session) else { return self.not_live(session) };
        if ticket.0 == 0 || ticket > TICKET_MAX {
            return bad_ticket();
        }
        let record = &self.sessions.records[owner];
        if let Some(claim) = record.claim(ticket) {
            return self.repeat_acquire(at, session, ticket, claim, wish);
        }
        if record.tickets.is_finished(ticket) {
            let outcome = record.tickets.outcome(ticket);
            return Reply::Refused(Refusal::TicketFinished { ticket, outcome });
        }
        if record.tickets.count() + record.open.len() >= TICKET_RANGES_MAX {
            return tickets_full();
        }
        match self.claim_key(at, owner, ticket, wish) {
            Ok(reply) => reply,
            Err((outcome, reply)) => {
                self.sessions.records[owner].tickets.finish(ticket, outcome);
                reply
            }
        }
    }

    /// An acquire whose ticket is open gets its answer again, if it is the same acquire.
    fn repeat_acquire(
        &self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        claim: Slot,
        wish: Wish<'_>,
    ) -> Reply {
        let record = &self.claims.records[claim];
        let lock = &self.locks.records[record.lock];
        let same = *lock.key == *wish.key
            && lock.class == wish.class
            && record.wait == wish.wait
            && record.resource.as_deref() == wish.resource;
        if !same {
            return Reply::Refused(Refusal::TicketMismatch { ticket });
        }
        if record.state != State::Queued {
            return Reply::Granted { session, ticket, fence: self.fence(claim) };
        }
        let place = self.claims.place(claim);
        Reply::Queued { session, ticket, place, holder: self.holder_box(record.lock, at.clock_ms) }
    }

    /// A new claim. An error finishes its ticket.
    fn claim_key(
        &mut self,
        at: Applied,
        owner: Slot,
        ticket: Ticket,
        wish: Wish<'_>,
    ) -> Result<Reply, (Outcome, Reply)> {
        let refuse = |refusal| Err((Outcome::Refused, Reply::Refused(refusal)));
        let session = self.id(self.sessions.records[owner].opened);
        if wish.class == Class::Fenced && wish.resource.is_none() {
            return refuse(Refusal::BadRequest { reason: "a fenced claim names its resource".into() });
        }
        let found = self.locks.find(wish.key);
        let known = found.map(|slot| &self.locks.records[slot]);
        if let Some(lock) = known.filter(|lock| lock.class != wish.class) {
            return refuse(Refusal::ClassMismatch { has: lock.class });
        }
        let waiting = known.map_or(0, |lock| lock.queue.len);
        let is_held = known.is_some_and(|lock| lock.holder != NONE);
        if let (Some(slot), true, false) = (found, is_held, wish.wait) {
            let holder = self.holder_box(slot, at.clock_ms);
            return Err((Outcome::Denied, Reply::Denied { session, ticket, waiting, holder }));
        }
        if let Some(refusal) = self.over_limit(owner, is_held, waiting) {
            return refuse(refusal);
        }
        let lock = match found {
            Some(slot) => slot,
            None => self.locks.create(Key::new(wish.key).expect(CHECKED), wish.class),
        };
        let resource = self.share_resource(lock, wish.resource);
        let claim = self.claims.records.insert(Claim::new(owner, lock, ticket, wish.wait, resource));
        self.sessions.records[owner].add_claim(ticket, claim);
        if is_held {
            self.claims.records[claim].since_ms = at.clock_ms;
            let place = self.join_queue(lock, claim);
            return Ok(Reply::Queued { session, ticket, place, holder: self.holder_box(lock, at.clock_ms) });
        }
        if found.is_some() {
            self.locks.wake(lock);
        }
        self.grant(at, lock, claim);
        Ok(Reply::Granted { session, ticket, fence: self.fence(claim) })
    }

    /// Which limit forbids one more claim, if any does.
    fn over_limit(&self, owner: Slot, queues: bool, waiting: u32) -> Option<Refusal> {
        let quota = |what: &str, limit: u32| {
            Some(Refusal::QuotaExceeded { what: String::from(what), limit: u64::from(limit) })
        };
        let keys_max = self.limits.keys_per_session;
        if self.sessions.records[owner].open.len() >= keys_max as usize {
            let what = String::from("keys held or awaited");
            return Some(Refusal::SessionFull { what, limit: u64::from(keys_max) });
        }
        if self.claims.records.len() >= self.limits.claims as usize {
            return quota("the number of keys held or awaited", self.limits.claims);
        }
        if queues && waiting >= self.limits.waiters_per_key {
            return quota("the queue of this key", self.limits.waiters_per_key);
        }
        None
    }

    /// The resource as a name; shared with the key's record when that has the same, as it mostly has.
    fn share_resource(&self, lock: Slot, resource: Option<&str>) -> Option<Name> {
        let text = resource?;
        match &self.locks.cold(lock).resource {
            Some(known) if **known == *text => Some(known.clone()),
            _ => Some(Name::new(text).expect(CHECKED)),
        }
    }

    /// Makes a claim the holder of a key that nobody holds: one epoch higher than the grant before.
    pub(crate) fn grant(&mut self, at: Applied, lock: Slot, claim: Slot) {
        let record = &mut self.claims.records[claim];
        let owner = &mut self.sessions.records[record.session];
        assert!(owner.is_live() || self.mutants.has(Mutant::B22), "a grant only ever goes to a live session");
        owner.held += 1;
        record.state = State::Held;
        record.since_ms = at.clock_ms;
        let held = &mut self.locks.records[lock];
        assert!(held.holder == NONE, "at most one holder");
        assert!(held.epoch < Epoch::MAX, "epochs stay below 2^63");
        held.epoch.0 += 1;
        held.holder = claim;
        let (epoch, session) = (held.epoch, owner.opened);
        let cold = self.locks.cold_mut(lock);
        if cold.resource != record.resource {
            cold.resource = record.resource.clone();
        }
        let kind = TransitionKind::Granted;
        cold.record(Happened { revision: at.index, clock_ms: at.clock_ms, session, epoch, kind });
    }

    /// Puts a claim at the end of its key's queue and returns its place. A key in the backlog that
    /// somebody waits for goes before those that nobody waits for.
    fn join_queue(&mut self, lock: Slot, claim: Slot) -> u32 {
        let Machine { claims, locks, wanted, unwanted, .. } = self;
        let lock = &mut locks.records[lock];
        claims.enqueue(&mut lock.queue, claim);
        if lock.queue.len == 1 && claims.records[lock.holder].state == State::Ending {
            claims.unlink(unwanted, lock.holder);
            claims.link(wanted, lock.holder);
        }
        lock.queue.len - 1
    }

    fn holder_box(&self, lock: Slot, clock_ms: u64) -> Box<HolderInfo> {
        Box::new(self.holder_info(lock, clock_ms).expect("the key is held"))
    }
}

pub(crate) fn bad_ticket() -> Reply {
    Reply::Refused(Refusal::BadRequest { reason: "tickets count 1, 2, 3 … and stay below 2^60".into() })
}

pub(crate) fn tickets_full() -> Reply {
    let what = String::from("open tickets and ranges of finished ones");
    Reply::Refused(Refusal::SessionFull { what, limit: TICKET_RANGES_MAX as u64 })
}

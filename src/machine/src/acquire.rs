//! Acquire: granted, queued, denied or refused, in one step (DESIGN section 3).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use palisade_types::limits::TICKET_RANGES_MAX;
use palisade_types::{Class, Epoch, Fence, HolderInfo, Mutant, Outcome, Refusal, Reply, SessionId, Ticket};

use crate::claims::{Claim, State};
use crate::machine::{Applied, Effect, Machine, Wanted, Wish, fence};
use crate::news::granted;
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
            && record.wait == wish.wait
            && record.resource == wish.resource;
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
        let Wanted::Known(slot) = wish.key else { return self.over_limit(owner, None).and_then(refuse) };
        let lock = &self.locks.records[slot];
        if lock.class != wish.class {
            return refuse(Refusal::ClassMismatch { has: lock.class });
        }
        if lock.holder == NONE {
            return self.over_limit(owner, None).and_then(refuse);
        }
        if wish.wait {
            return self.over_limit(owner, Some(lock.queue.len)).and_then(refuse);
        }
        let session = self.id(self.sessions.records[owner].opened);
        let holder = self.holder_box(slot, at.clock_ms);
        Some((Outcome::Denied, Reply::Denied { session, ticket, waiting: lock.queue.len, holder }))
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
        let Wish { key, class, resource, wait } = wish;
        let (lock, is_known) = match key {
            Wanted::Known(lock) => (lock, true),
            Wanted::New(key) => (self.locks.create(key, class), false),
        };
        let claim = Claim::new(owner, lock, ticket, wait, resource, at.when());
        let claim = self.claims.records.insert(claim);
        self.sessions.records[owner].open.add(ticket, claim);
        if self.locks.records[lock].holder != NONE {
            let place = self.join_queue(lock, claim);
            return Reply::Queued { session, ticket, place, holder: self.holder_box(lock, at.clock_ms) };
        }
        if is_known {
            self.locks.wake(lock);
        }
        Reply::Granted { session, ticket, fence: self.grant(at, lock, claim) }
    }

    /// Which limit forbids one more claim, if any does; of one that would join a queue, how many wait.
    fn over_limit(&self, owner: Slot, queue: Option<u32>) -> Option<Refusal> {
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
        if queue.is_some_and(|waiting| waiting >= self.limits.waiters_per_key) {
            return quota("the queue of this key", self.limits.waiters_per_key);
        }
        None
    }

    /// Makes a claim the holder of a key that nobody holds: one epoch higher than the grant before.
    /// Returns its fence.
    pub(crate) fn grant(&mut self, at: Applied, lock: Slot, claim: Slot) -> Fence {
        let record = &mut self.claims.records[claim];
        let owner = &mut self.sessions.records[record.session];
        assert!(owner.is_live() || self.mutants.has(Mutant::B22), "a grant only ever goes to a live session");
        owner.open.held += 1;
        record.state = State::Held;
        record.since = at.when();
        let held = &mut self.locks.records[lock];
        assert!(held.holder == NONE, "at most one holder");
        assert!(held.epoch < Epoch::MAX, "epochs stay below 2^63");
        held.epoch.0 += 1;
        held.holder = claim;
        if held.resource != record.resource {
            held.resource.clone_from(&record.resource);
        }
        let session = SessionId { shard: self.shard, opened: owner.opened };
        self.news.push(granted(at, held, session, owner.owner.as_ref()));
        fence(held)
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

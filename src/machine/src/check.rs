//! The invariants that the state alone can show. The numbers are those of the list of invariants in
//! `tests/SIMULATION.md`.

use palisade_types::limits::TICKET_RANGES_MAX;
use palisade_types::{Class, Epoch};

use crate::claims::{Claim, State};
use crate::locks::Lock;
use crate::machine::Machine;
use crate::slab::{NONE, Slot};

impl Machine {
    /// Asserts every invariant that the state alone can show. Takes time in proportion to the state.
    ///
    /// # Panics
    /// When one does not hold: a bug.
    pub fn check(&self) {
        self.sessions.check();
        self.ended.check();
        self.locks.check();
        self.claims.check_chunks();
        self.check_locks();
        self.check_claims();
        self.check_sessions();
        self.check_backlog();
        self.check_limits();
        self.values
            .check(|session| self.sessions.find(session).map(|slot| self.sessions.records[slot].values()));
        self.acts.check();
        self.resources.check(self.limits.resource_claims as usize);
        self.candidates.check();
    }

    /// S1, S4: holders hold; a free key has no waiters (held is what is not idle); the queue
    /// is whole and made of waiters for this key.
    fn check_locks(&self) {
        let mut held = 0;
        let mut queued = 0;
        for (slot, lock) in self.locks.records.iter() {
            assert!(lock.epoch <= Epoch::MAX && lock.epoch > Epoch(0), "a record was granted once, at least");
            self.claims.check_list(&lock.queue, true);
            for (_, claim) in self.claims.iter(&lock.queue) {
                assert!(
                    claim.lock == slot && claim.state == State::Queued,
                    "a queue is of waiters for its key"
                );
            }
            queued += lock.queue.len as usize;
            if lock.holder == NONE {
                assert!(lock.queue.len == 0, "S4: {} is free and awaited", lock.key);
                continue;
            }
            held += self.check_holders(slot);
            assert!(!self.has_room_for_more(slot) || lock.is_due, "S4: {} lets in who may enter", lock.key);
            assert_eq!(lock.is_due, self.due.contains(&slot));
        }
        let shared = |lock: &Lock| lock.holder != NONE && self.claims.records[lock.holder].is_shared();
        let groups = self.locks.records.iter().filter(|(_, lock)| shared(lock)).count();
        assert_eq!(groups, self.holders.groups(), "keys that are shared have groups, and only those");
        assert_eq!(held + queued, self.claims.records.len(), "S1: every claim holds or waits, once");
    }

    /// S1, S2: who holds exclusively holds alone; of several, none is below another's barrier. Returns
    /// how many there are.
    fn check_holders(&self, slot: Slot) -> usize {
        let lock = &self.locks.records[slot];
        let is_shared = self.claims.records[lock.holder].is_shared();
        if is_shared {
            self.holders.check(lock.beside);
        }
        let (mut count, mut ending) = (0, 0);
        for claim in self.holders_of(slot) {
            let (epoch, barrier) = self.tenure_of(claim);
            assert!(barrier <= epoch && epoch <= lock.epoch, "S2: a fence is of a grant");
            let holder = &self.claims.records[claim];
            assert!(holder.lock == slot && holder.state != State::Queued, "S1: a holder holds");
            assert_eq!(holder.is_shared(), is_shared, "S1: who holds exclusively holds alone");
            count += 1;
            ending += u32::from(holder.state == State::Ending);
        }
        assert!(!is_shared || self.holders.group(lock.beside).ending == ending);
        count
    }

    fn has_room_for_more(&self, slot: Slot) -> bool {
        let lock = &self.locks.records[slot];
        let both = [lock.holder, lock.queue.head];
        lock.queue.len > 0 && both.into_iter().all(|claim| self.claims.records[claim].is_shared())
    }

    /// S3: claims and their sessions' lists agree, and nothing belongs to the dead but what is about
    /// to be released.
    fn check_claims(&self) {
        for (slot, claim) in self.claims.records.iter() {
            let session = &self.sessions.records[claim.session];
            assert_eq!(session.open.find(claim.ticket), Some(slot), "S3: a claim is on its session's list");
            let ending = matches!(claim.state, State::Ending | State::Quarantined);
            assert_eq!(session.is_live(), !ending, "S3: session {} and its claim", session.opened);
            let is_candidate = self.locks.records[claim.lock].class == Class::Election;
            assert_eq!(self.candidates.said(slot).is_some(), is_candidate, "candidates have values");
        }
        let candidates = |c: &Claim| self.locks.records[c.lock].class == Class::Election;
        assert_eq!(self.claims.records.iter().filter(|(_, c)| candidates(c)).count(), self.candidates.len());
    }

    fn check_sessions(&self) {
        let mut listed = 0;
        for (slot, session) in self.sessions.records.iter() {
            let mut held = 0;
            let tickets = session.open.iter().map(|(ticket, _)| ticket);
            assert!(tickets.is_sorted_by(|a, b| a < b), "open tickets ascend");
            for (ticket, claim) in session.open.iter() {
                let claim = &self.claims.records[claim];
                assert!(claim.session == slot && claim.ticket == ticket, "S3: lists hold one's own claims");
                assert!(!session.tickets.is_finished(ticket), "S8: a ticket is open or finished");
                held += u32::from(claim.state != State::Queued);
            }
            assert_eq!(session.open.held, held);
            listed += session.open.len();
            let closed = session.open.iter().filter(|c| self.claims.records[c.1].state == State::Quarantined);
            let is_listed = self.sessions.find_quarantined(session.opened) == Some(slot);
            assert_eq!(closed.count() > 0, is_listed, "a session is listed while it has keys in quarantine");
            if !session.is_live() {
                assert!(held > 0, "a dead session's record is kept for its keys only");
                continue;
            }
            assert!(
                self.ended.find(session.opened).is_none() && self.ended.find_token(session.token).is_none()
            );
            assert!(session.tickets.count() + session.open.len() <= TICKET_RANGES_MAX, "S10");
        }
        assert_eq!(listed, self.claims.records.len());
    }

    /// The backlog holds exactly the keys of the dead, in the list where they belong.
    fn check_backlog(&self) {
        for (list, is_wanted) in [(&self.wanted, true), (&self.unwanted, false)] {
            self.claims.check_list(list, false);
            for (_, claim) in self.claims.iter(list) {
                assert!(claim.state == State::Ending);
                assert_eq!(self.locks.records[claim.lock].queue.len > 0, is_wanted, "wanted keys go first");
            }
        }
        let ending = self.claims.records.iter().filter(|(_, c)| c.state == State::Ending).count();
        let locks = self.backlog_len() - self.values.ending_len();
        assert_eq!(ending, locks, "every key of the dead is in the backlog");
    }

    /// S10: nothing grows past its limit.
    fn check_limits(&self) {
        let counts = self.counts();
        assert!(counts.sessions <= u64::from(self.limits.sessions));
        assert!(counts.claims <= u64::from(self.limits.claims));
        assert!(counts.idle_keys <= u64::from(self.limits.idle_keys));
        assert!(counts.ended_sessions <= u64::from(self.limits.ended_sessions));
        for (_, session) in self.sessions.records.iter() {
            assert!(session.keys() <= self.limits.keys_per_session as usize);
        }
        for (_, lock) in self.locks.records.iter() {
            assert!(lock.queue.len <= self.limits.waiters_per_key);
        }
    }
}

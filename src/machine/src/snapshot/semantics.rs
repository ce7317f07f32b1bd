//! What must hold between records that are well linked: what [`Machine::check`] asserts beyond that.

use palisade_types::Class;
use palisade_types::limits::{OPERATOR_ACTS_KEPT, TICKET_RANGES_MAX};

use super::links::{Checked, require};
use crate::machine::Machine;
use crate::slab::NONE;

impl Machine {
    pub(super) fn judge(&self) -> Checked {
        self.judge_sessions()?;
        self.judge_locks()?;
        let acts = self.acts.iter();
        require(acts.is_sorted_by(|a, b| a.revision < b.revision), "actions are not in order")?;
        require(self.acts.iter().count() <= OPERATOR_ACTS_KEPT, "there are too many actions")?;
        self.judge_limits()
    }

    fn judge_sessions(&self) -> Checked {
        for (_, session) in self.sessions.records.iter() {
            let keys = session.keys();
            require(session.opened.0 > 0 && session.opened <= self.applied, "a session opens later")?;
            require(keys <= self.limits.keys_per_session as usize, "a session has too many keys")?;
            if session.is_live() {
                let is_ended = self.ended.find(session.opened).is_some()
                    || self.ended.find_token(session.token).is_some();
                require(!is_ended, "a session lives and has ended")?;
                let tickets = session.tickets.count() + session.open.len();
                require(tickets <= TICKET_RANGES_MAX, "a session has too many tickets")?;
            }
        }
        Ok(())
    }

    fn judge_locks(&self) -> Checked {
        for (_, lock) in self.locks.records.iter() {
            require(lock.queue.len <= self.limits.waiters_per_key, "a queue is too long")?;
            let both = [lock.holder, lock.queue.head];
            let is_open =
                lock.queue.len > 0 && both.into_iter().all(|claim| self.claims.records[claim].is_shared());
            require(!is_open || lock.is_due, "a waiter may enter and is not let in")?;
            require(!lock.is_due || lock.holder != NONE, "a key is due and free")?;
        }
        let mut candidates = 0;
        for (slot, claim) in self.claims.records.iter() {
            let is_candidate = self.locks.records[claim.lock].class == Class::Election;
            let has_said = self.candidates.said(slot).is_some();
            require(is_candidate == has_said, "a candidate says nothing, or another says something")?;
            candidates += usize::from(is_candidate);
        }
        require(candidates == self.candidates.len(), "a candidate has no claim")
    }

    fn judge_limits(&self) -> Checked {
        let counts = self.counts();
        let bounds = [
            (counts.sessions, self.limits.sessions),
            (counts.claims, self.limits.claims),
            (counts.idle_keys, self.limits.idle_keys),
            (counts.resource_claims, self.limits.resource_claims),
        ];
        let is_within = bounds.into_iter().all(|(count, most)| count <= u64::from(most));
        require(is_within, "there is more than the limits allow")
    }
}

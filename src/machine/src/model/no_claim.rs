//! Acquires that change nothing but their ticket, as plainly as the rest of the model.

use super::*;

impl Model {
    /// The answer to an acquire whose ticket alone decides it.
    pub(super) fn old_or_bad_ticket(
        &self,
        at: Applied,
        s: &Session,
        key: &Key,
        class: Class,
        claim: &Claim,
    ) -> Option<Reply> {
        let (session, ticket) = (claim.session, claim.ticket);
        if ticket.0 == 0 || ticket.0 >= 1 << 60 {
            return Some(bad_ticket());
        }
        let same = |known: &Key, c: &Claim| {
            known == key
                && self.locks[known].class == class
                && (c.mode, c.wait, c.on_death, c.was) == (claim.mode, claim.wait, claim.on_death, None)
                && (&c.resource, &c.value) == (&claim.resource, &claim.value)
        };
        let mismatch = Some(Reply::Refused(Refusal::TicketMismatch { ticket }));
        if let Some((known, held)) = self.held_by(session, ticket) {
            return if same(&known, &held) {
                Some(Reply::Granted { session, ticket, fence: fence(&known, &held) })
            } else {
                mismatch
            };
        }
        if let Some((known, place)) = self.awaited_by(session, ticket) {
            let lock = &self.locks[&known];
            if !same(&known, &lock.queue[place]) {
                return mismatch;
            }
            let holder = Box::new(holder(lock, at.clock_ms)?);
            return Some(Reply::Queued { session, ticket, place: place as u32, holder });
        }
        if let Some(outcome) = Model::outcome(s, ticket) {
            return Some(Reply::Refused(Refusal::TicketFinished { ticket, outcome }));
        }
        if self.ticket_weight(s, None) + 1 > 2_000 {
            return Some(tickets_full());
        }
        None
    }

    /// The answer to an acquire that gets neither the key nor a place in its queue.
    pub(super) fn no_claim(
        &self,
        at: Applied,
        s: &Session,
        key: &Key,
        class: Class,
        claim: &Claim,
    ) -> Option<Reply> {
        let (session, ticket) = (claim.session, claim.ticket);
        if class == Class::Fenced && claim.resource.is_none() {
            let reason = "a fenced claim names its resource".to_string();
            return Some(Reply::Refused(Refusal::BadRequest { reason }));
        }
        let lock = self.locks.get(key);
        if let Some(lock) = lock {
            if lock.class != class {
                return Some(Reply::Refused(Refusal::ClassMismatch { has: lock.class }));
            }
            if !claim.wait && !may_enter(lock, claim.mode) {
                let holder = Box::new(holder(lock, at.clock_ms)?);
                let waiting = lock.queue.len() as u32;
                return Some(Reply::Denied { session, ticket, waiting, holder });
            }
        }
        if let Some(refusal) = self.full(s.id) {
            return Some(Reply::Refused(refusal));
        }
        let all: usize = self.locks.values().map(|l| l.queue.len() + l.holders.len()).sum();
        if all >= self.limits.claims as usize {
            let what = "the number of keys held or awaited".to_string();
            return Some(Reply::Refused(Refusal::QuotaExceeded { what, limit: self.limits.claims.into() }));
        }
        let queue_max = self.limits.waiters_per_key;
        if lock.is_some_and(|l| !may_enter(l, claim.mode) && l.queue.len() >= queue_max as usize) {
            let what = "the queue of this key".to_string();
            return Some(Reply::Refused(Refusal::QuotaExceeded { what, limit: queue_max.into() }));
        }
        let said = claim.value.as_ref().map_or(0, |value| value.len() as u64);
        let more = match lock {
            None => 448 + key.len() as u64 + 96 + 2 * len(&claim.resource) + said,
            Some(_) => said,
        };
        if more > 0 { self.over_quota(more).map(Reply::Refused) } else { None }
    }
}

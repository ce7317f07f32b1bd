//! Timers of claims that wait for a bounded time. They live in the leader's memory; a new leader
//! starts them anew when the client repeats its acquire, and the client cancels at its own deadline.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use palisade_types::{SessionId, Ticket, Time};

type Claim = (SessionId, Ticket);

/// The deadlines of waiting claims.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    by_time: BTreeSet<(Time, Claim)>,
    by_claim: BTreeMap<Claim, Time>,
}

impl Waits {
    /// The claim waits until then; a repeat of the request moves nothing.
    pub(crate) fn start(&mut self, session: SessionId, ticket: Ticket, deadline: Time) {
        let claim = (session, ticket);
        if self.by_claim.contains_key(&claim) {
            return;
        }
        self.by_claim.insert(claim, deadline);
        self.by_time.insert((deadline, claim));
    }

    /// The claim waits no longer.
    pub(crate) fn stop(&mut self, session: SessionId, ticket: Ticket) {
        if let Some(deadline) = self.by_claim.remove(&(session, ticket)) {
            self.by_time.remove(&(deadline, (session, ticket)));
        }
    }

    /// All claims of an ended session.
    pub(crate) fn stop_session(&mut self, session: SessionId) {
        let range = (session, Ticket(0))..=(session, Ticket(u64::MAX));
        let claims: Vec<Claim> = self.by_claim.range(range).map(|(claim, _)| *claim).collect();
        for (session, ticket) in claims {
            self.stop(session, ticket);
        }
    }

    /// Claims whose time is over; each is handed out once. At most `most`.
    pub(crate) fn take_due(&mut self, now: Time, most: usize) -> Vec<Claim> {
        let mut due = Vec::new();
        while due.len() < most {
            match self.by_time.first() {
                Some(&(at, claim)) if at <= now => {
                    self.stop(claim.0, claim.1);
                    due.push(claim);
                }
                _ => break,
            }
        }
        due
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Time {
        self.by_time.first().map_or(Time::FAR, |(at, _)| *at)
    }

    /// Forgets all: this node no longer leads.
    pub(crate) fn clear(&mut self) {
        self.by_time.clear();
        self.by_claim.clear();
    }
}

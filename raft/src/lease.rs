//! The lease of a leader (thesis, section 6.4.1): for how long after a round that a quorum answered no
//! other leader can have been elected, so that reads need no round of their own.
//!
//! Whoever answers a round has heard this leader after the round was sent, and neither stands nor
//! votes for [`crate::Config::election_min`] from then. A quorum of them, and no other leader has one
//! before that time is over. So the lease runs from when the round was *sent*, for that long less a
//! tenth for clocks that differ. It is measured on the clock of leases, which the driver hands in
//! ([`Raft::lease_time`]): one that goes on while the machine sleeps.
//!
//! A voter that restarts has forgotten whom it heard. With leases, a node that has just started
//! therefore grants no vote for [`crate::Config::election_min`].

use alloc::collections::VecDeque;
use core::time::Duration;

use palisade_types::{Mutant, Time};

use crate::config::Config;
use crate::node::{Raft, State};

/// A lease is shorter than the shortest election timeout by this much, in a hundred: clocks may differ
/// in rate by as much while it lasts.
pub const LEASE_DRIFT_PERCENT: u32 = 10;
/// Rounds without an answer that are remembered. Forgetting one costs lease time, never safety.
const SENT_MAX: usize = 64;

/// What a leader knows of its lease.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Rounds that no quorum has answered, with when they were sent, oldest first.
    sent: VecDeque<(u64, Time)>,
    /// When the newest round that a quorum has answered was sent.
    since: Option<Time>,
    /// Given up for the rest of the term.
    forgone: bool,
}

impl Lease {
    /// A round is about to be sent.
    pub(crate) fn on_sent(&mut self, round: u64, at: Time) {
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((round, at));
    }

    /// A quorum has answered this round and all before it.
    pub(crate) fn on_confirmed(&mut self, round: u64) {
        while let Some(&(sent, at)) = self.sent.front() {
            if sent > round {
                break;
            }
            self.since = Some(at);
            self.sent.pop_front();
        }
    }

    /// Mutant F2: the lease runs from when the answers came.
    pub(crate) fn on_sent_late(&mut self, round: u64, now: Time) {
        self.on_confirmed(round);
        self.since = Some(now);
    }

    /// Mutant H3: what was given up for the rest of the term comes back.
    pub(crate) fn take_back(&mut self) {
        self.forgone = false;
    }

    /// Nothing from before now counts any more.
    fn void(&mut self) {
        self.sent.clear();
        self.since = None;
    }

    pub(crate) fn check(&self) {
        assert!(self.sent.iter().zip(self.sent.iter().skip(1)).all(|(a, b)| a.0 < b.0 && a.1 <= b.1));
        assert!(self.sent.len() <= SENT_MAX, "few rounds are remembered");
    }
}

/// How much a clock may be off while a lease lasts.
fn drift(config: &Config) -> Duration {
    config.election_min * LEASE_DRIFT_PERCENT / 100
}

impl Raft {
    /// What the clock of leases shows, read before anything that follows is sent. It must not go back.
    /// Without this call nothing that is sent begins a lease. A gap of more than a heartbeat and the
    /// allowance for drift is a stall: the clocks of this machine are not to be trusted over it, so
    /// the lease ends and begins anew with the next round.
    pub fn lease_time(&mut self, at: Time) {
        let before = self.lease_now.replace(at);
        let allowed = self.config.heartbeat + drift(&self.config);
        let (State::Leader(lead), Some(before)) = (&mut self.state, before) else { return };
        assert!(at >= before, "the clock of leases goes back");
        let gap = at.since(before);
        if gap <= allowed {
            return;
        }
        if self.config.mutants.has(Mutant::F3) {
            lead.lease.since = lead.lease.since.map(|since| since + gap);
            return;
        }
        lead.lease.void();
    }

    /// Whether this leader may answer a read without a round, from a state in which everything up to
    /// its commit index is applied. `at` is the clock of leases, read *after* the read arrived.
    pub fn holds_lease(&self, at: Time) -> bool {
        let State::Leader(lead) = &self.state else { return false };
        let own_term_committed = self.log.term_at(self.commit) == Some(self.term);
        let lasts = lead.lease.since.is_some_and(|since| {
            at >= since && at.since(since) < self.config.election_min - drift(&self.config)
        });
        self.config.leases && !lead.lease.forgone && own_term_committed && lasts
    }

    /// Gives the lease up for the rest of this leadership: whoever is invited to stand does so at
    /// once, without waiting for anybody's timeout. To be called before a leadership is handed over,
    /// whatever becomes of that.
    pub fn forgo_lease(&mut self) {
        if let State::Leader(lead) = &mut self.state {
            lead.lease.forgone = true;
        }
    }

    /// A round was given its number and is about to be sent.
    pub(crate) fn note_sent(&mut self) {
        let (State::Leader(lead), Some(at)) = (&mut self.state, self.lease_now) else { return };
        if self.config.leases {
            lead.lease.on_sent(lead.rounds.started(), at);
        }
    }

    /// Whether this node started so recently that it may have forgotten whose lease it upholds.
    pub(crate) fn is_new_here(&self) -> bool {
        self.config.leases && self.now < self.started + self.config.election_min
    }
}

//! Confirmation rounds: proof that at some moment after its start no newer leader had a quorum
//! (ReadIndex; thesis, section 6.4).
//!
//! Every Append carries the newest round, every answer echoes the newest one seen in the term. A
//! follower that echoes round n in term t was in term t after the round began, so a quorum of
//! echoes, the leader's own included, confirms n and all rounds before it. Heartbeats repeat it.

use crate::node::{Raft, State};
use crate::ready::{Round, RoundError, RoundId};
use palisade_types::{Mutant, Time};

/// The rounds of one term. Counters are never reused.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    started: u64,
    confirmed: u64,
}

impl Rounds {
    /// The newest round begun; 0 before the first.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// The number of a new round.
    fn begin(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    pub(crate) fn check(&self) {
        assert!(self.confirmed <= self.started, "a round is confirmed after it began");
    }
}

impl Raft {
    /// Begins a confirmation round: tells every voter at once. See [`crate::Ready::confirmed`]. With
    /// one voter it is confirmed at once.
    ///
    /// # Errors
    /// [`RoundError`].
    pub fn start_round(&mut self, now: Time) -> Result<Round, RoundError> {
        self.now = self.now.max(now);
        let own_term_committed = self.log.term_at(self.commit) == Some(self.term);
        let State::Leader(lead) = &mut self.state else {
            return Err(RoundError::NotLeader { leader: self.leader });
        };
        if !own_term_committed {
            return Err(RoundError::NotReady);
        }
        let counter = lead.rounds.begin();
        self.note_sent();
        self.send_heartbeats();
        self.confirm_rounds();
        Ok(Round { id: RoundId { term: self.term, counter }, read_index: self.commit })
    }

    /// A heartbeat. With leases each is a round, so that its answers can be told from those to others.
    pub(crate) fn beat(&mut self) {
        if self.config.leases
            && let State::Leader(lead) = &mut self.state
        {
            lead.rounds.begin();
            self.note_sent();
        }
        self.send_heartbeats();
        self.confirm_rounds();
    }

    pub(crate) fn confirm_rounds(&mut self) {
        let State::Leader(lead) = &mut self.state else { return };
        let started = lead.rounds.started;
        let reached = self.membership.reached(|v| lead.peers.get(&v).map_or(started, |p| p.round));
        if reached > lead.rounds.confirmed {
            lead.rounds.confirmed = reached;
            match self.lease_now.filter(|_| self.config.mutants.has(Mutant::F2)) {
                Some(now) => lead.lease.on_sent_late(reached, now),
                None => lead.lease.on_confirmed(reached),
            }
            self.confirmed = Some(RoundId { term: self.term, counter: reached });
        }
    }
}

//! Assertions over the whole node. The simulator calls them after every event.

use crate::node::{Raft, State};
use palisade_types::{Mutant, Time};

impl Raft {
    /// Asserts how watermarks, role and log must stand to each other.
    ///
    /// # Panics
    /// When one of them does not hold.
    pub fn check(&self) {
        let last = self.log.last();
        assert!(self.delivered <= self.commit && self.commit <= last.index, "delivered <= commit <= last");
        assert!(self.log.edge(self.commit).is_some(), "the commit index is an edge");
        assert!(self.log.edge(self.delivered).is_some(), "whole blocks are delivered");
        assert!(self.log.edge(self.ledger.log_durable()).is_some(), "whole blocks are durable");
        assert!(last.term <= self.term, "no block is of a later term");
        self.ledger.check(last.index);
        self.mail.check(&self.ledger);
        assert!(self.next_deadline() < Time::FAR, "something is always due some day");
        match &self.state {
            State::Follower(f) => {
                assert!(f.verified <= last.index, "verified <= last");
                let durable = self.ledger.log_durable();
                let hasty = self.config.mutants.has(Mutant::B1);
                assert!(hasty || f.claimed <= f.verified.min(durable), "claims are proved and durable");
                assert!(self.leader != Some(self.config.id), "nobody follows itself");
            }
            State::PreCandidate(_) => {
                assert!(self.leader.is_none(), "who stands knows no leader");
                assert!(self.asking.is_empty(), "who stands has nobody to ask");
            }
            State::Candidate(c) => {
                assert!(self.leader.is_none(), "who stands knows no leader");
                assert_eq!(self.vote, Some(self.config.id), "a candidate votes for itself");
                assert!(c.answers.keys().all(|&v| self.membership.contains(v)), "only voters answer");
            }
            State::Leader(lead) => {
                assert_eq!(self.leader, Some(self.config.id), "a leader knows that it leads");
                assert_eq!(self.vote, Some(self.config.id), "a leader voted for itself");
                assert_eq!(last.term, self.term, "a leader's log ends in its term");
                assert_eq!(lead.peers.len() + 1, self.membership.voters().len(), "all voters are led");
                self.check_transfer(last.index, last.term);
                lead.rounds.check();
                lead.lease.check();
                for progress in lead.peers.values() {
                    progress.check(last.index);
                    assert!(self.log.edge(progress.match_index).is_some(), "followers match at edges");
                    assert!(self.log.edge(progress.next.prev()).is_some(), "sending starts at an edge");
                    assert!(progress.round <= lead.rounds.started(), "echoes follow the round");
                }
                if self.commit > lead.inherited_commit {
                    let term = self.log.term_at(self.commit);
                    assert_eq!(
                        term,
                        Some(self.term),
                        "only blocks of the own term are committed by counting"
                    );
                    assert!(
                        self.quorum_index(lead) >= self.commit,
                        "what is committed is on a quorum's disks"
                    );
                }
            }
        }
    }
}

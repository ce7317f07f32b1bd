//! Assertions over the whole node. The simulator calls them after every event.

use crate::node::{Raft, State};
use palisade_types::{Mutant, Time};

impl Raft {
    fn check_snapshots(&self) {
        let start = self.log.start().index;
        assert!(start <= self.delivered, "the log begins at or before what was handed out");
        assert!(self.snapshot.is_none_or(|id| start <= id.last), "the log begins at or before a snapshot");
        assert!(self.install_state.is_none_or(|id| id.last <= self.delivered), "a state is adopted whole");
        if let Some(receiving) = &self.receiving {
            receiving.check();
        }
        assert!(self.chunks_wanted.is_empty() || matches!(self.state, State::Leader(_)), "leaders send");
    }

    /// Asserts how watermarks, role and log must stand to each other.
    ///
    /// # Panics
    /// When one of them does not hold.
    pub fn check(&self) {
        let last = self.log.last();
        assert!(self.delivered <= self.commit && self.commit <= last.index, "delivered <= commit <= last");
        assert!(self.log.edge(self.commit).is_some(), "the commit index is an edge");
        assert!(self.log.edge(self.delivered).is_some(), "whole blocks are delivered");
        assert!(self.log.may_be_edge(self.ledger.log_durable()), "whole blocks are durable");
        self.check_snapshots();
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
                    assert!(self.log.may_be_edge(progress.match_index), "followers match at edges");
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

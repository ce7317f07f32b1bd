//! The follower: takes the leader's blocks, and claims what is proved and on disk (Raft paper,
//! sections 5.3 and 5.5).

use palisade_types::{Block, Edge, LogIndex, Mutant, NodeId};

use crate::message::{Append, AppendReply, AppendResult, Message};
use crate::node::{Raft, State};

/// What a follower knows of its log with respect to the leader of this term. A new term starts
/// with nothing known.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Up to here requests of this term's leader have proved the logs equal.
    pub(crate) verified: LogIndex,
    /// The highest durable index claimed so far.
    pub(crate) claimed: LogIndex,
    /// The newest round seen.
    pub(crate) round: u64,
}

impl Raft {
    pub(crate) fn on_append(&mut self, from: NodeId, m: Append) {
        if m.term < self.term {
            // Teaches the sender the term, so that a leader left behind steps down.
            self.reject(from, &m);
            return;
        }
        self.follow(from);
        if !self.is_well_formed(&m) {
            return;
        }
        let round_is_new = self.note_round(m.round);
        let is_heartbeat = m.blocks.is_empty();
        let m = if self.config.mutants.has(Mutant::B36) { m } else { self.behind_start(m) };
        let prev = self.log.edge(m.prev_index).filter(|e| e.term == m.prev_term);
        let Some(prev) = prev else {
            let lacks = m.prev_index <= self.commit && m.prev_index >= self.log.start().index;
            assert!(!lacks, "the leader of term {} lacks what is committed", m.term);
            self.reject(from, &m);
            return;
        };
        let proved = m.blocks.last().map_or(prev.index, Block::last);
        self.merge(prev, m.blocks);
        self.accept(proved, m.commit);
        // Blocks are answered once, when the disk has them. What the leader needs to know before,
        // heartbeats and rounds ask for.
        if is_heartbeat || round_is_new || self.durable_claim() >= proved {
            self.acknowledge(from);
        }
    }

    /// A message whose previous index lies before the log says nothing new up to the start, where
    /// everything is committed: every leader that may come has it (Raft paper, section 5.4). So it
    /// is read as one that begins at the start; a conflict it cannot be.
    fn behind_start(&self, mut m: Append) -> Append {
        let start = self.log.start();
        if m.prev_index < start.index {
            m.blocks.retain(|b| b.last() > start.index);
            (m.prev_index, m.prev_term) = (start.index, start.term);
            let first = m.blocks.first().map(Block::first);
            assert!(first.is_none_or(|f| f == start.index.next()), "logs diverged at index {}", start.index);
        }
        m
    }

    /// Whether this is a round not seen before.
    pub(crate) fn note_round(&mut self, round: u64) -> bool {
        let State::Follower(f) = &mut self.state else { return false };
        let is_new = round > f.round;
        f.round = f.round.max(round);
        is_new
    }

    /// Takes the sender of a valid Append as leader of this term.
    pub(crate) fn follow(&mut self, from: NodeId) {
        assert!(!matches!(self.state, State::Leader(_)), "term {} has two leaders", self.term);
        assert!(self.leader.is_none_or(|l| l == from), "term {} has two leaders", self.term);
        self.leader = Some(from);
        self.heard_at = Some(self.now);
        self.draw_election_at();
        if !matches!(self.state, State::Follower(_)) {
            self.state = State::Follower(Following::default());
        }
    }

    /// Whether the blocks of a message follow one another and its previous block.
    fn is_well_formed(&self, m: &Append) -> bool {
        if m.prev_term > m.term || (m.prev_index.0 == 0) != (m.prev_term.0 == 0) {
            return false;
        }
        let mut at = Edge { index: m.prev_index, term: m.prev_term, ..Edge::default() };
        for (n, block) in m.blocks.iter().enumerate() {
            let linked = n == 0 || block.prev_chain() == at.chain;
            if !linked || !self.log.follows(at, block) || block.term() > m.term {
                return false;
            }
            at = block.edge();
        }
        true
    }

    /// Brings the log in line with blocks that follow `prev`. What is already there stays; only a
    /// proven conflict cuts, and nothing behind what is sent is touched.
    fn merge(&mut self, prev: Edge, blocks: alloc::vec::Vec<Block>) {
        if self.config.mutants.has(Mutant::B4) {
            self.cut_bluntly(prev.index);
        }
        let mut at = prev;
        for block in blocks {
            assert_eq!(block.prev_chain(), at.chain, "logs diverged before index {}", block.first());
            let here = self.log.edge(block.last()).filter(|e| e.term == block.term());
            if let Some(edge) = here {
                assert_eq!(edge.chain, block.chain(), "logs diverged at index {}", block.last());
                at = edge;
                continue;
            }
            if self.log.last().index > at.index {
                self.truncate_after(at.index);
            }
            self.log.push(block);
            at = self.log.last();
        }
    }

    fn truncate_after(&mut self, keep: LogIndex) {
        assert!(keep >= self.commit, "what is committed is never cut");
        if let State::Follower(f) = &self.state {
            assert!(keep >= f.verified, "what this leader has proved is never cut by it");
        }
        self.log.truncate_after(keep);
        self.ledger.on_truncated(keep);
    }

    /// Mutant B4: the request is taken for the whole rest of the log.
    fn cut_bluntly(&mut self, prev: LogIndex) {
        let keep = prev.max(self.commit);
        if self.log.last().index > keep {
            if let State::Follower(f) = &mut self.state {
                f.verified = f.verified.min(keep);
                f.claimed = f.claimed.min(keep);
            }
            self.truncate_after(keep);
        }
    }

    /// The logs are equal up to `proved`, and the leader has committed up to `commit`. What lies
    /// beyond the proof may be another leader's, whatever its index.
    pub(crate) fn accept(&mut self, proved: LogIndex, commit: LogIndex) {
        let State::Follower(f) = &mut self.state else { return };
        f.verified = f.verified.max(proved);
        let commit = commit.min(f.verified);
        if commit > self.commit && self.log.edge(commit).is_some() {
            self.commit = commit;
        }
    }

    /// Up to here the log is both proved and on disk: what may be claimed.
    fn durable_claim(&self) -> LogIndex {
        let State::Follower(f) = &self.state else { return LogIndex(0) };
        if self.config.mutants.has(Mutant::B1) {
            return f.verified;
        }
        f.verified.min(self.ledger.log_durable())
    }

    pub(crate) fn acknowledge(&mut self, leader: NodeId) {
        let durable = self.durable_claim();
        let State::Follower(f) = &mut self.state else { return };
        assert!(durable >= f.claimed, "a claim is never taken back");
        f.claimed = durable;
        let result = AppendResult::Accepted { verified: f.verified, durable };
        let reply = AppendReply { term: self.term, round: f.round, result };
        self.mail.post(&self.ledger, leader, Message::AppendReply(reply));
    }

    /// The disk has caught up: says so without being asked, or an idle cluster would never hear it.
    pub(crate) fn acknowledge_again(&mut self) {
        let (Some(leader), State::Follower(f)) = (self.leader, &self.state) else { return };
        if self.durable_claim() > f.claimed {
            self.acknowledge(leader);
        }
    }

    /// There is no such previous block here, or the sender's term is over.
    fn reject(&mut self, from: NodeId, m: &Append) {
        // Where the log does not reach back so far, it begins at the least that can match.
        let hint = self.log.edge_at_most(m.prev_index, m.prev_term).unwrap_or_default();
        let round = match &self.state {
            State::Follower(f) if m.term == self.term => f.round,
            _ => 0,
        };
        let result =
            AppendResult::Rejected { prev_index: m.prev_index, hint_index: hint.index, hint_term: hint.term };
        let reply = AppendReply { term: self.term, round, result };
        self.mail.post(&self.ledger, from, Message::AppendReply(reply));
    }
}

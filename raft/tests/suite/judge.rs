//! What must hold over the whole cluster, judged from its disks rather than from what nodes believe.

use std::collections::BTreeMap;

use palisade_raft::{AppendResult, Message, Role, Round, RoundId};
use palisade_types::{Block, LogIndex, NodeId, Term};

use crate::cluster::{Disk, Node};

#[derive(Default)]
pub(crate) struct Judge {
    leaders: BTreeMap<Term, NodeId>,
    /// Every block anyone has treated as committed, in order.
    pub(crate) committed: Vec<Block>,
    /// How often a snapshot took the place of a state.
    pub(crate) installs: usize,
    /// The test itself plays a leader, whose commit index is to be believed.
    pub(crate) trusting: bool,
    /// For each round, the read index it must reach: what was committed when it began.
    rounds: BTreeMap<(NodeId, RoundId), (LogIndex, LogIndex)>,
}

fn end(blocks: &[Block]) -> LogIndex {
    blocks.last().map_or(LogIndex(0), Block::last)
}

impl Judge {
    /// Election safety and leader completeness (Raft paper, figure 3).
    pub(crate) fn on_role(&mut self, node: &Node, role: Role, term: Term) {
        if role != Role::Leader {
            return;
        }
        let first = *self.leaders.entry(term).or_insert(node.id);
        assert_eq!(first, node.id, "term {term} has two leaders");
        let log = node.accepted();
        let all = self.committed.iter().all(|b| log.holds(b));
        assert!(all, "the leader of term {term} lacks committed blocks");
    }

    /// Nothing is claimed that is not on the disk at that moment.
    pub(crate) fn on_send(&self, node: &Node, to: NodeId, message: &Message) {
        let disk = &node.disk;
        if let Some(term) = message.term() {
            assert!(disk.hard_state.term >= term, "node {} speaks of a term it may forget", node.id);
        }
        match message {
            Message::VoteReply(m) if m.granted && m.term == disk.hard_state.term => {
                assert_eq!(disk.hard_state.vote, Some(to), "a vote left before it was durable");
            }
            Message::AppendReply(m) => {
                if let AppendResult::Accepted { durable, .. } = m.result {
                    let held = durable <= disk.base.index || disk.blocks.iter().any(|b| b.last() == durable);
                    assert!(held, "node {} claims {durable}, which its disk does not hold", node.id);
                }
            }
            _ => {}
        }
    }

    /// State machine safety, and: committed means on a quorum's disks.
    pub(crate) fn on_committed(&mut self, blocks: &[Block], applied_before: usize, disks: &[&Disk]) {
        for (n, block) in blocks.iter().enumerate() {
            if let Some(known) = self.committed.get(applied_before + n) {
                assert_eq!(known, block, "two blocks were committed in one place");
                continue;
            }
            let copies = disks.iter().filter(|d| d.holds(block)).count();
            assert!(self.trusting || copies > disks.len() / 2, "{block:?} is committed with {copies} copies");
            self.committed.push(block.clone());
        }
    }

    /// The committed blocks up to this edge.
    pub(crate) fn committed_upto(&self, edge: LogIndex) -> Vec<Block> {
        let all: Vec<Block> = self.committed.iter().take_while(|b| b.last() <= edge).cloned().collect();
        assert_eq!(end(&all), edge, "a state ends at a committed edge");
        all
    }

    pub(crate) fn on_round(&mut self, node: NodeId, round: Round) {
        let known = self.rounds.insert((node, round.id), (round.read_index, end(&self.committed)));
        assert!(known.is_none(), "round {:?} is used twice", round.id);
    }

    /// A confirmed read sees all that was committed before its round began. With leases a heartbeat is a
    /// round as well, for which nobody reads: it confirms the last one before it.
    pub(crate) fn on_confirmed(&self, node: NodeId, id: RoundId) {
        let first = RoundId { counter: 0, ..id };
        let last = self.rounds.range((node, first)..=(node, id)).next_back();
        let Some((_, &(read_index, committed))) = last else { return };
        assert!(read_index >= committed, "a read at {read_index} misses {committed}");
    }

    /// Log matching (Raft paper, figure 3): one term at one index, one log up to there.
    pub(crate) fn logs_match(&self, logs: &[Vec<Block>]) {
        for (n, a) in logs.iter().enumerate() {
            for b in &logs[n + 1..] {
                for x in a {
                    let twin = b.iter().find(|y| y.last() == x.last() && y.term() == x.term());
                    assert!(twin.is_none_or(|y| y.chain() == x.chain()), "logs differ before {x:?}");
                }
            }
        }
    }
}

//! The log in memory: blocks in order, looked up by index.

use alloc::collections::VecDeque;
use alloc::collections::vec_deque::Iter;

use palisade_types::{Block, LogIndex, ShardId, Term};

/// An edge: where a block ends, or the place before the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Edge {
    pub(crate) index: LogIndex,
    pub(crate) term: Term,
    pub(crate) chain: u128,
}

impl Edge {
    fn of(block: &Block) -> Edge {
        Edge { index: block.last(), term: block.term(), chain: block.chain() }
    }
}

/// All blocks after `start`. The start is the place before the log; a log that begins behind a
/// snapshot differs from one that does not in this value alone.
#[derive(Debug)]
pub(crate) struct Log {
    shard: ShardId,
    start: Edge,
    blocks: VecDeque<Block>,
}

impl Log {
    pub(crate) fn new(shard: ShardId) -> Log {
        Log { shard, start: Edge::default(), blocks: VecDeque::new() }
    }

    /// The end of the log.
    pub(crate) fn last(&self) -> Edge {
        self.blocks.back().map_or(self.start, Edge::of)
    }

    /// The clock of the last block; 0 without one.
    pub(crate) fn last_clock_ms(&self) -> u64 {
        self.blocks.back().map_or(0, Block::clock_ms)
    }

    /// The block that holds this index.
    pub(crate) fn block_at(&self, index: LogIndex) -> Option<&Block> {
        let at = self.blocks.partition_point(|b| b.last() < index);
        self.blocks.get(at).filter(|b| b.first() <= index)
    }

    /// The term of the command at this index.
    pub(crate) fn term_at(&self, index: LogIndex) -> Option<Term> {
        if index == self.start.index {
            return Some(self.start.term);
        }
        self.block_at(index).map(Block::term)
    }

    /// The edge at exactly this index, if one is there.
    pub(crate) fn edge(&self, index: LogIndex) -> Option<Edge> {
        if index == self.start.index {
            return Some(self.start);
        }
        self.block_at(index).filter(|b| b.last() == index).map(Edge::of)
    }

    /// The last edge that is neither above `index` nor of a later term than `term`. Terms never
    /// fall along the log, so both bounds cut it once.
    pub(crate) fn edge_at_most(&self, index: LogIndex, term: Term) -> Edge {
        let by_index = self.blocks.partition_point(|b| b.last() <= index);
        let by_term = self.blocks.partition_point(|b| b.term() <= term);
        match by_index.min(by_term).checked_sub(1) {
            Some(at) => Edge::of(&self.blocks[at]),
            None => self.start,
        }
    }

    /// The blocks after an edge.
    pub(crate) fn after(&self, edge: LogIndex) -> Iter<'_, Block> {
        let at = self.blocks.partition_point(|b| b.last() <= edge);
        self.blocks.range(at..)
    }

    /// Whether a block may follow this edge.
    pub(crate) fn follows(&self, edge: Edge, block: &Block) -> bool {
        block.first() == edge.index.next() && block.term() >= edge.term && block.shard() == self.shard
    }

    /// Adds a block at the end.
    ///
    /// # Panics
    /// When it does not follow the end, or was made behind another log.
    pub(crate) fn push(&mut self, block: Block) {
        let last = self.last();
        assert!(self.follows(last, &block), "a block continues the log it joins");
        assert_eq!(block.prev_chain(), last.chain, "logs diverged before index {}", block.first());
        self.blocks.push_back(block);
    }

    /// Drops all blocks after an edge.
    pub(crate) fn truncate_after(&mut self, edge: LogIndex) {
        assert!(self.edge(edge).is_some(), "the log is cut at an edge");
        let keep = self.blocks.partition_point(|b| b.last() <= edge);
        self.blocks.truncate(keep);
    }
}

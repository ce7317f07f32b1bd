//! The log in memory: blocks in order, looked up by index.

use alloc::collections::VecDeque;
use alloc::collections::vec_deque::Iter;

use palisade_types::{Block, Edge, LogIndex, ShardId, Term};

/// All blocks after `start`. The start is the place before the log; a log that begins behind a
/// snapshot differs from one that does not in this value alone. What is at or before the start is
/// committed.
#[derive(Debug)]
pub(crate) struct Log {
    shard: ShardId,
    start: Edge,
    blocks: VecDeque<Block>,
    /// The bytes of the blocks.
    bytes: u64,
}

impl Log {
    /// A log that begins behind this edge.
    pub(crate) fn new(shard: ShardId, start: Edge) -> Log {
        Log { shard, start, blocks: VecDeque::new(), bytes: 0 }
    }

    /// The place before the first block.
    pub(crate) fn start(&self) -> Edge {
        self.start
    }

    /// The end of the log.
    pub(crate) fn last(&self) -> Edge {
        self.blocks.back().map_or(self.start, Block::edge)
    }

    /// The bytes of the blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
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
        self.block_at(index).filter(|b| b.last() == index).map(Block::edge)
    }

    /// Whether a block ends here, for all that is known: before the start nothing is known any more.
    pub(crate) fn may_be_edge(&self, index: LogIndex) -> bool {
        index <= self.start.index || self.edge(index).is_some()
    }

    /// The last edge that is neither above `index` nor of a later term than `term`. Terms never
    /// fall along the log, so both bounds cut it once. None when it lies before the start.
    pub(crate) fn edge_at_most(&self, index: LogIndex, term: Term) -> Option<Edge> {
        let by_index = self.blocks.partition_point(|b| b.last() <= index);
        let by_term = self.blocks.partition_point(|b| b.term() <= term);
        match by_index.min(by_term).checked_sub(1) {
            Some(at) => Some(self.blocks[at].edge()),
            None => Some(self.start).filter(|s| s.index <= index && s.term <= term),
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
        self.bytes += block.bytes().len() as u64;
        self.blocks.push_back(block);
    }

    /// Drops all blocks after an edge.
    pub(crate) fn truncate_after(&mut self, edge: LogIndex) {
        assert!(self.edge(edge).is_some(), "the log is cut at an edge");
        let keep = self.blocks.partition_point(|b| b.last() <= edge);
        self.bytes -= self.blocks.drain(keep..).map(|b| b.bytes().len() as u64).sum::<u64>();
    }

    /// Drops blocks at the beginning, those up to the edge `upto` at most, as long as more than
    /// `keep_bytes` of them are there. Whether any was dropped.
    pub(crate) fn compact(&mut self, upto: LogIndex, keep_bytes: u64) -> bool {
        let behind = self.blocks.partition_point(|b| b.last() <= upto);
        let mut bytes: u64 = self.blocks.range(..behind).map(|b| b.bytes().len() as u64).sum();
        let before = self.start;
        while bytes > keep_bytes
            && let Some(block) = self.blocks.pop_front_if(|b| b.last() <= upto)
        {
            let len = block.bytes().len() as u64;
            bytes -= len;
            self.bytes -= len;
            self.start = block.edge();
        }
        self.start != before
    }

    /// Begins anew behind an edge, without any block.
    pub(crate) fn begin_behind(&mut self, start: Edge) {
        assert!(start.index > self.start.index, "a log never begins earlier than before");
        *self = Log::new(self.shard, start);
    }

    /// Mutant B24: what lay behind the index stays, though it belongs to another history.
    pub(crate) fn begin_behind_and_keep_tail(&mut self, start: Edge) {
        let tail: VecDeque<Block> = self.blocks.iter().filter(|b| b.first() > start.index).cloned().collect();
        self.begin_behind(start);
        if tail.front().is_some_and(|b| b.first() == start.index.next()) {
            self.bytes = tail.iter().map(|b| b.bytes().len() as u64).sum();
            self.blocks = tail;
        }
    }
}

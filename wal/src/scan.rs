//! Reading one segment: takes the batches that continue the log, and notes what lies behind them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{Block, BlockError, Edge, LogIndex, Reader, Term};

use crate::archive::{Place, decode_edge};
use crate::batch::{self, BatchHeader};
use crate::error::RecoverError;
use crate::page::{Owner, PAGE, content_len};
use crate::segment::{DATA_START, Mark, SegmentHeader};

/// The log as far as it has been read.
pub(crate) struct Log {
    pub(crate) owner: Owner,
    /// The last batch taken and its chain hash.
    pub(crate) seq: u64,
    pub(crate) chain: u128,
    /// What the blocks begin behind.
    pub(crate) base: Edge,
    pub(crate) blocks: Vec<Block>,
    /// The highest commit index on record in the batches taken.
    pub(crate) hint: LogIndex,
    /// Where each segment read so far begins.
    pub(crate) begins: Vec<Begin>,
    /// A batch has dropped the log and begun it anew.
    pub(crate) restarted: bool,
}

/// Where a segment begins: behind which batch, and behind which edge, unless that was cut off later.
#[derive(Clone, Debug)]
pub(crate) struct Begin {
    pub(crate) segment: u64,
    pub(crate) seq: u64,
    pub(crate) chain: u128,
    pub(crate) edge: Option<Edge>,
    /// Bytes in use.
    pub(crate) used: u64,
}

impl Begin {
    /// The log is cut behind `keep`: an edge after it is none any more.
    pub(crate) fn cut(&mut self, keep: LogIndex) {
        self.edge.take_if(|e| e.index > keep);
    }
}

/// A segment's header, and what reading it showed.
pub(crate) struct Segment {
    pub(crate) file: String,
    pub(crate) header: SegmentHeader,
    /// Batches with this number and above are void: a segment opened later says so.
    pub(crate) limit: u64,
    pub(crate) file_len: u64,
    /// Where the batches that were taken end.
    pub(crate) used: u64,
    pub(crate) stray: Stray,
    pub(crate) marks: Vec<Mark>,
    /// Bytes behind `used` up to the last that is not zero.
    pub(crate) junk: u64,
    /// Nothing but zeros behind the header.
    pub(crate) pristine: bool,
}

/// Whole headers of batches that were not taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stray {
    pub(crate) seq: u64,
    pub(crate) durable_upto: u64,
    pub(crate) hint: LogIndex,
}

impl Log {
    /// A log that begins at this place.
    pub(crate) fn new(owner: Owner, place: &Place) -> Log {
        Log {
            owner,
            seq: place.seq,
            chain: place.chain,
            base: place.edge,
            blocks: Vec::new(),
            hint: LogIndex(0),
            begins: Vec::new(),
            restarted: false,
        }
    }

    /// Where the log ends.
    pub(crate) fn edge(&self) -> Edge {
        self.blocks.last().map_or(self.base, edge_of)
    }

    pub(crate) fn last(&self) -> LogIndex {
        self.edge().index
    }

    pub(crate) fn last_term(&self) -> Term {
        self.edge().term
    }

    /// Whether the log has this edge, of the same term and history.
    pub(crate) fn has(&self, edge: &Edge) -> bool {
        let same = |own: Edge| (own.index, own.term, own.chain) == (edge.index, edge.term, edge.chain);
        let at = self.blocks.partition_point(|b| b.last() < edge.index);
        same(self.base) || self.blocks.get(at).is_some_and(|b| same(edge_of(b)))
    }

    /// Reads a segment's bytes into the log.
    pub(crate) fn read_segment(&mut self, segment: &mut Segment, bytes: &[u8]) -> Result<(), RecoverError> {
        let (owner, header) = (self.owner, segment.header);
        let ours = |h: &BatchHeader| h.owner == owner && h.salt == header.salt && h.segment == header.number;
        let mut offset = DATA_START;
        self.begins.push(Begin {
            segment: header.number,
            seq: self.seq,
            chain: self.chain,
            edge: Some(self.edge()),
            used: DATA_START,
        });
        while self.seq + 1 < segment.limit {
            let Some((batch, chain)) = batch::read(bytes, offset).filter(|(h, _)| ours(h)) else { break };
            if batch.seq != self.seq + 1 || batch.prev_chain != self.chain {
                break;
            }
            let Some(body) = batch.body(bytes) else { break };
            self.apply(&segment.file, &batch, body)?;
            (self.seq, self.chain) = (batch.seq, chain);
            offset += batch.span();
        }
        if let Some(format) = batch::newer(bytes, offset).filter(|_| self.seq + 1 < segment.limit) {
            return Err(RecoverError::Newer { file: segment.file.clone(), format });
        }
        segment.file_len = bytes.len() as u64;
        segment.used = offset;
        if let Some(begin) = self.begins.last_mut() {
            begin.used = offset;
        }
        for at in (offset..segment.file_len).step_by(PAGE) {
            let Some((batch, _)) = batch::read(bytes, at).filter(|(h, _)| ours(h)) else { continue };
            if batch.seq < segment.limit {
                let stray = &mut segment.stray;
                stray.seq = stray.seq.max(batch.seq);
                stray.durable_upto = stray.durable_upto.max(batch.durable_upto);
                stray.hint = stray.hint.max(batch.commit_hint);
            }
        }
        segment.marks = Mark::all(bytes, owner, header.number)
            .filter(|m| m.salt == header.salt && m.seq < segment.limit)
            .collect();
        let end = content_len(bytes) as u64;
        segment.junk = end.saturating_sub(offset);
        segment.pristine = end <= PAGE as u64;
        Ok(())
    }

    /// Replays a whole batch. What is wrong inside one is no torn write: its checksums fit.
    fn apply(&mut self, file: &str, batch: &BatchHeader, body: &[u8]) -> Result<(), RecoverError> {
        let damaged =
            |what: String| RecoverError::Damaged { file: file.to_string(), offset: batch.offset, what };
        if let Some(keep) = batch.truncate_after {
            self.blocks.truncate(self.blocks.partition_point(|b| b.last() <= keep));
            if self.last() != keep {
                return Err(damaged(format!("batch {} cuts the log inside a block, at {keep}", batch.seq)));
            }
            self.begins.iter_mut().for_each(|b| b.cut(keep));
        }
        if batch.restart {
            let edge = restart_edge(batch, body)
                .ok_or_else(|| damaged(format!("batch {} begins the log behind no edge", batch.seq)))?;
            (self.base, self.restarted) = (edge, true);
            self.blocks.clear();
        }
        self.hint = self.hint.max(batch.commit_hint);
        if self.hint > self.last() {
            return Err(damaged(format!(
                "the log ends at {} before what was committed, {}",
                self.last(),
                self.hint
            )));
        }
        let mut rest = if batch.restart { Bytes::new() } else { Bytes::copy_from_slice(body) };
        let mut count = 0;
        while !rest.is_empty() {
            let block = take_block(&mut rest).map_err(|fault| match fault {
                BlockError::Unknown { format, .. } => RecoverError::Newer { file: file.to_string(), format },
                fault => damaged(format!("batch {} holds no block: {fault}", batch.seq)),
            })?;
            let follows = block.shard() == self.owner.shard
                && block.first() == self.last().next()
                && block.term() >= self.last_term()
                && block.prev_chain() == self.edge().chain;
            let first = count > 0 || block.first() == batch.first;
            if !follows || !first {
                return Err(damaged(format!(
                    "batch {}: {block:?} does not follow {}",
                    batch.seq,
                    self.last()
                )));
            }
            self.blocks.push(block);
            count += 1;
        }
        if count != batch.blocks || self.last() != batch.last {
            return Err(damaged(format!("batch {} holds other blocks than it says", batch.seq)));
        }
        Ok(())
    }
}

/// Where a block ends.
pub(crate) fn edge_of(block: &Block) -> Edge {
    Edge { index: block.last(), term: block.term(), chain: block.chain(), clock_ms: block.clock_ms() }
}

/// What a batch that restarts the log begins it behind.
fn restart_edge(batch: &BatchHeader, body: &[u8]) -> Option<Edge> {
    let mut r = Reader::new(body);
    let edge = decode_edge(&mut r).ok()?;
    r.finish().ok()?;
    ((edge.index, edge.term) == (batch.last, batch.last_term)).then_some(edge)
}

fn take_block(rest: &mut Bytes) -> Result<Block, BlockError> {
    let len = Block::length_of(rest)?;
    if len > rest.len() {
        return Err(BlockError::Length);
    }
    Block::decode(rest.split_to(len))
}

/// Whether a file whose header is unreadable was ever in use: a batch or a mark in it is whole.
/// A segment is used only after its creation was durable, so without a trace it never was.
pub(crate) fn was_used(bytes: &[u8], owner: Owner, number: u64) -> bool {
    let batch_at =
        |at| batch::read(bytes, at as u64).is_some_and(|(h, _)| h.owner == owner && h.segment == number);
    Mark::all(bytes, owner, number).next().is_some() || (0..bytes.len()).step_by(PAGE).any(batch_at)
}

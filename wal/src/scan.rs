//! Reading one segment: takes the batches that continue the log, and notes what lies behind them.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{Block, BlockError, LogIndex, Term};

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
    pub(crate) blocks: Vec<Block>,
    /// The highest commit index on record in the batches taken.
    pub(crate) hint: LogIndex,
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
    pub(crate) fn new(owner: Owner) -> Log {
        Log { owner, seq: 0, chain: 0, blocks: Vec::new(), hint: LogIndex(0) }
    }

    pub(crate) fn last(&self) -> LogIndex {
        self.blocks.last().map_or(LogIndex(0), Block::last)
    }

    pub(crate) fn last_term(&self) -> Term {
        self.blocks.last().map_or(Term(0), Block::term)
    }

    pub(crate) fn last_chain(&self) -> u128 {
        self.blocks.last().map_or(0, Block::chain)
    }

    /// Reads a segment's bytes into the log.
    pub(crate) fn read_segment(&mut self, segment: &mut Segment, bytes: &[u8]) -> Result<(), RecoverError> {
        let (owner, header) = (self.owner, segment.header);
        let ours = |h: &BatchHeader| h.owner == owner && h.salt == header.salt && h.segment == header.number;
        let mut offset = DATA_START;
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
        segment.file_len = bytes.len() as u64;
        segment.used = offset;
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
        }
        self.hint = self.hint.max(batch.commit_hint);
        if self.hint > self.last() {
            return Err(damaged(format!(
                "the log ends at {} before what was committed, {}",
                self.last(),
                self.hint
            )));
        }
        let mut rest = Bytes::copy_from_slice(body);
        let mut count = 0;
        while !rest.is_empty() {
            let block = take_block(&mut rest).map_err(|fault| match fault {
                BlockError::Unknown { format, .. } => RecoverError::Newer { file: file.to_string(), format },
                fault => damaged(format!("batch {} holds no block: {fault}", batch.seq)),
            })?;
            let follows = block.shard() == self.owner.shard
                && block.first() == self.last().next()
                && block.term() >= self.last_term()
                && block.prev_chain() == self.last_chain();
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

//! Segments: the files a log consists of. A page with the header, a ring of marks, then batches.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::{LogIndex, Reader, ShardId, Term};

use crate::hard::shard_dir;
use crate::page::{self, Owner, PAGE, PageFault};

const HEADER_MAGIC: [u8; 4] = *b"PSEG";
const MARK_MAGIC: [u8; 4] = *b"PMRK";
const KIND_SPARE: u16 = 0;
const KIND_OPENING: u16 = 1;

/// How many marks a segment keeps: the mark of batch `seq` lies in page `1 + seq % MARKS`.
pub(crate) const MARKS: u64 = 8;
/// Where the batches start.
pub const DATA_START: u64 = (1 + MARKS) * PAGE as u64;

/// The file of a segment; numbers start at 1.
pub fn segment_file(shard: ShardId, number: u64) -> String {
    format!("{}/wal-{number:016}", shard_dir(shard))
}

/// The number of the segment that a file name, without its directory, stands for.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("wal-")?;
    if digits.len() != 16 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|n| *n > 0)
}

/// Where a log goes on after a start: says where the segments before end, whatever they hold behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// The first batch that may be in this segment; that number or a higher one in an earlier
    /// segment is void.
    pub(crate) first_seq: u64,
    /// The chain hash of the batch before it.
    pub(crate) prev_chain: u128,
}

/// The first page of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// Drawn for this segment alone; every record in it repeats it.
    pub(crate) salt: u128,
    /// How many bytes were allocated ahead; a first batch larger than that grows the file.
    pub(crate) size: u64,
    /// The newest batch that was durable when the segment was made: a log that ends before it is damaged.
    pub(crate) durable_upto: u64,
    /// `None` in a spare, made ahead of need: its first batch follows the last of the segment before.
    pub(crate) opening: Option<Opening>,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, owner: &Owner) -> Vec<u8> {
        let kind = if self.opening.is_some() { KIND_OPENING } else { KIND_SPARE };
        page::seal(HEADER_MAGIC, kind, owner, |w| {
            w.u64(self.number);
            w.u128(self.salt);
            w.u64(self.size);
            w.u64(self.durable_upto);
            w.u64(self.opening.map_or(0, |o| o.first_seq));
            w.u128(self.opening.map_or(0, |o| o.prev_chain));
        })
    }

    /// Reads the header of a segment's bytes, and whose it is.
    pub(crate) fn read(file: &[u8]) -> Result<(Owner, SegmentHeader), PageFault> {
        let page = page::open(file, 0, HEADER_MAGIC)?;
        let mut header = decode_header(page.fields).map_err(|_| PageFault::Bad)?;
        match page.kind {
            KIND_SPARE => header.opening = None,
            KIND_OPENING => {}
            _ => return Err(PageFault::Bad),
        }
        Ok((page.owner, header))
    }
}

fn decode_header(mut r: Reader<'_>) -> Result<SegmentHeader, palisade_types::DecodeError> {
    Ok(SegmentHeader {
        number: r.u64()?,
        salt: r.u128()?,
        size: r.u64()?,
        durable_upto: r.u64()?,
        opening: Some(Opening { first_seq: r.u64()?, prev_chain: r.u128()? }),
    })
}

/// "I intended this batch": written under the same sync as the batch, in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) segment: u64,
    pub(crate) salt: u128,
    pub(crate) seq: u64,
    pub(crate) offset: u64,
    pub(crate) body_len: u32,
    pub(crate) body_crc: u32,
    /// The log's end with this batch.
    pub(crate) last: LogIndex,
    pub(crate) last_term: Term,
}

/// Where the mark of a batch lies.
pub(crate) fn mark_offset(seq: u64) -> u64 {
    (1 + seq % MARKS) * PAGE as u64
}

impl Mark {
    pub(crate) fn encode(&self, owner: &Owner) -> Vec<u8> {
        page::seal(MARK_MAGIC, 0, owner, |w| {
            w.u64(self.segment);
            w.u128(self.salt);
            w.u64(self.seq);
            w.u64(self.offset);
            w.u32(self.body_len);
            w.u32(self.body_crc);
            w.u64(self.last.0);
            w.u64(self.last_term.0);
        })
    }

    /// Reads the mark in one place of the ring; `None` for zeros, torn marks and misplaced ones.
    pub(crate) fn read(file: &[u8], place: u64) -> Option<(Owner, Mark)> {
        let page = page::open(file, ((1 + place) * PAGE as u64) as usize, MARK_MAGIC).ok()?;
        let mut r = page.fields;
        let mark = decode_mark(&mut r).ok()?;
        (mark.seq % MARKS == place).then_some((page.owner, mark))
    }

    /// All marks in the ring of a segment that are its own.
    pub(crate) fn all(file: &[u8], owner: Owner, number: u64) -> impl Iterator<Item = Mark> + '_ {
        (0..MARKS)
            .filter_map(|place| Mark::read(file, place))
            .filter(move |(o, m)| *o == owner && m.segment == number)
            .map(|(_, m)| m)
    }
}

fn decode_mark(r: &mut Reader<'_>) -> Result<Mark, palisade_types::DecodeError> {
    Ok(Mark {
        segment: r.u64()?,
        salt: r.u128()?,
        seq: r.u64()?,
        offset: r.u64()?,
        body_len: r.u32()?,
        body_crc: r.u32()?,
        last: LogIndex(r.u64()?),
        last_term: Term(r.u64()?),
    })
}

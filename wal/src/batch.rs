//! The batch: the unit of group commit. A header, then whole blocks as the leader encoded them,
//! then zeros up to the page. No two batches share a page, and none is ever written twice.
//!
//! ```text
//!   0 magic u32       4 format u16     6 flags u16 (1: truncate_after is set; 2: restart)
//!   8 cluster u128   24 incarnation u128              40 node u32      44 shard u32
//!  48 salt u128      64 segment u64   72 offset u64   80 seq u64
//!  88 first u64      96 last u64     104 last_term u64               112 truncate_after u64
//! 120 durable_upto u64              128 commit_hint u64              136 prev_chain u128
//! 152 body_len u32  156 blocks u32  160 body_crc u32  164 header_crc u32 of 0..164
//! 168 blocks
//! ```

use alloc::vec::Vec;
use palisade_types::hash::hash128;
use palisade_types::{DecodeError, LogIndex, Reader, Term, Writer};

use crate::page::{FORMAT, Owner, padded, read_owner};

const MAGIC: u32 = u32::from_le_bytes(*b"PBAT");
const FLAG_TRUNCATE: u16 = 1;
const FLAG_RESTART: u16 = 2;
/// The format of a batch that restarts the log; all others have that of a page.
const FORMAT_RESTART: u16 = 2;
const CRC_AT: usize = 164;

/// Bytes before the blocks.
pub(crate) const BATCH_HEADER: usize = 168;

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) owner: Owner,
    pub(crate) salt: u128,
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// Batches are numbered from 1 through all segments.
    pub(crate) seq: u64,
    /// Index of the first command; 0 without blocks.
    pub(crate) first: LogIndex,
    /// The end of the log with this batch.
    pub(crate) last: LogIndex,
    pub(crate) last_term: Term,
    /// The log is cut behind this index before the blocks are added.
    pub(crate) truncate_after: Option<LogIndex>,
    /// The log is dropped and begins anew behind the edge in the body.
    pub(crate) restart: bool,
    /// The seal: this batch and all before it were synced when this one was submitted.
    pub(crate) durable_upto: u64,
    /// Committed, and durable in this log when the batch was submitted.
    pub(crate) commit_hint: LogIndex,
    /// Chain hash of the batch before; 0 for the first.
    pub(crate) prev_chain: u128,
    pub(crate) body_len: u32,
    pub(crate) blocks: u32,
    pub(crate) body_crc: u32,
}

/// A header's bytes, and the chain hash that the next batch repeats.
pub(crate) fn encode(h: &BatchHeader) -> (Vec<u8>, u128) {
    let mut bytes = Vec::with_capacity(BATCH_HEADER);
    let mut w = Writer(&mut bytes);
    w.u32(MAGIC);
    w.u16(if h.restart { FORMAT_RESTART } else { FORMAT });
    let cut = if h.truncate_after.is_some() { FLAG_TRUNCATE } else { 0 };
    w.u16(cut | if h.restart { FLAG_RESTART } else { 0 });
    h.owner.encode(&mut w);
    w.u128(h.salt);
    w.u64(h.segment);
    w.u64(h.offset);
    w.u64(h.seq);
    w.u64(h.first.0);
    w.u64(h.last.0);
    w.u64(h.last_term.0);
    w.u64(h.truncate_after.unwrap_or_default().0);
    w.u64(h.durable_upto);
    w.u64(h.commit_hint.0);
    w.u128(h.prev_chain);
    w.u32(h.body_len);
    w.u32(h.blocks);
    w.u32(h.body_crc);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(bytes.len(), BATCH_HEADER);
    let chain = hash128(&bytes);
    (bytes, chain)
}

/// The header at `offset` of a segment's bytes and the chain hash with it. `None` if none is whole there: zeros, the
/// inside of a batch, a torn header, or one that was written for another place.
pub(crate) fn read(file: &[u8], offset: u64) -> Option<(BatchHeader, u128)> {
    let at = usize::try_from(offset).ok()?;
    let bytes = whole(file.get(at..at.checked_add(BATCH_HEADER)?)?)?;
    let header = decode(&mut Reader::new(bytes)).ok()??;
    (header.offset == offset).then(|| (header, hash128(bytes)))
}

/// The format of a whole header at `offset` that this build does not know.
pub(crate) fn newer(file: &[u8], offset: u64) -> Option<u16> {
    let at = usize::try_from(offset).ok()?;
    let bytes = whole(file.get(at..at.checked_add(BATCH_HEADER)?)?)?;
    let format = u16::from_le_bytes([bytes[4], bytes[5]]);
    (format > FORMAT_RESTART).then_some(format)
}

fn whole(bytes: &[u8]) -> Option<&[u8]> {
    let ours = bytes[..4] == MAGIC.to_le_bytes();
    (ours && crc32fast::hash(&bytes[..CRC_AT]).to_le_bytes() == bytes[CRC_AT..]).then_some(bytes)
}

fn decode(r: &mut Reader<'_>) -> Result<Option<BatchHeader>, DecodeError> {
    r.u32()?;
    let format = r.u16()?;
    let flags = r.u16()?;
    let restart = flags & FLAG_RESTART != 0;
    if format != if restart { FORMAT_RESTART } else { FORMAT } {
        return Ok(None);
    }
    let owner = read_owner(r)?;
    let header = BatchHeader {
        owner,
        salt: r.u128()?,
        segment: r.u64()?,
        offset: r.u64()?,
        seq: r.u64()?,
        first: LogIndex(r.u64()?),
        last: LogIndex(r.u64()?),
        last_term: Term(r.u64()?),
        truncate_after: Some(LogIndex(r.u64()?)).filter(|_| flags & FLAG_TRUNCATE != 0),
        restart,
        durable_upto: r.u64()?,
        commit_hint: LogIndex(r.u64()?),
        prev_chain: r.u128()?,
        body_len: r.u32()?,
        blocks: r.u32()?,
        body_crc: r.u32()?,
    };
    Ok(Some(header))
}

impl BatchHeader {
    /// Bytes from this header to the next batch.
    pub(crate) fn span(&self) -> u64 {
        padded(BATCH_HEADER as u64 + u64::from(self.body_len))
    }

    /// Whether the body behind the header is whole.
    pub(crate) fn body<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let at = usize::try_from(self.offset).ok()? + BATCH_HEADER;
        let body = file.get(at..at.checked_add(self.body_len as usize)?)?;
        (crc32fast::hash(body) == self.body_crc).then_some(body)
    }
}

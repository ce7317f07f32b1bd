//! The name of a snapshot (DESIGN section 12).
//!
//! A snapshot is the state of a shard's machine at an *edge*: the last index of a block. It is a
//! sequence of chunks which only the machine understands. The same state gives the same chunks on
//! every replica, so whoever holds the chunks that one [`SnapshotId`] names holds what every other
//! replica means by it, and a transfer can go on from another node.

use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{LogIndex, Term};

/// The most bytes of one chunk.
pub const SNAPSHOT_CHUNK_MAX: usize = 128 << 10;

/// An edge of the log: where a block ends. All zero: the beginning of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// The last index of the block.
    pub index: LogIndex,
    /// The term of the block.
    pub term: Term,
    /// The chain hash up to and including the block.
    pub chain: u128,
    /// The block's clock, in milliseconds.
    pub clock_ms: u64,
}

/// Names a snapshot: equal values, equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// The state is that after this index, which is the last of a block.
    pub last: LogIndex,
    /// The term of the block that ends there.
    pub term: Term,
    /// The chain hash of that block.
    pub chain: u128,
    /// Its clock, in milliseconds.
    pub clock_ms: u64,
    /// The sum of the chunks' lengths.
    pub bytes: u64,
    /// The number of chunks: at least one.
    pub chunks: u32,
    /// The 128-bit hash of the concatenated chunks (XXH3-128, see
    /// [`crate::hash::Xxh3`]).
    pub digest: u128,
}

impl SnapshotId {
    /// Bytes of the encoding.
    pub const BYTES: usize = 68;

    /// The edge the state stands at.
    pub fn edge(&self) -> Edge {
        Edge { index: self.last, term: self.term, chain: self.chain, clock_ms: self.clock_ms }
    }

    /// Appends the encoding, [`SnapshotId::BYTES`] long.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.last.0);
        w.u64(self.term.0);
        w.u128(self.chain);
        w.u64(self.clock_ms);
        w.u64(self.bytes);
        w.u32(self.chunks);
        w.u128(self.digest);
    }

    /// Reads what [`SnapshotId::encode`] wrote.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that end too soon, and for numbers no snapshot can have: index or
    /// term 0, no chunks, more or fewer bytes than that many chunks can hold.
    pub fn decode(r: &mut Reader<'_>) -> Result<SnapshotId, DecodeError> {
        let id = SnapshotId {
            last: LogIndex(r.u64()?),
            term: Term(r.u64()?),
            chain: r.u128()?,
            clock_ms: r.u64()?,
            bytes: r.u64()?,
            chunks: r.u32()?,
            digest: r.u128()?,
        };
        id.check()?;
        Ok(id)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let unknown = |what, value| Err(DecodeError::Unknown { what, value });
        if self.last.0 == 0 || self.last.0 > u64::MAX / 2 {
            return unknown("snapshot index", self.last.0);
        }
        if self.term.0 == 0 {
            return unknown("snapshot term", self.term.0);
        }
        let chunks = u64::from(self.chunks);
        if chunks == 0 {
            return unknown("snapshot chunks", chunks);
        }
        // No chunk is empty, none is larger than the limit.
        if self.bytes < chunks || self.bytes > chunks * SNAPSHOT_CHUNK_MAX as u64 {
            return unknown("snapshot bytes", self.bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn sample() -> SnapshotId {
        SnapshotId {
            last: LogIndex(7),
            term: Term(2),
            chain: 3 << 100,
            clock_ms: 99,
            bytes: 5000,
            chunks: 3,
            digest: 8 << 90,
        }
    }

    fn bytes(id: &SnapshotId) -> Vec<u8> {
        let mut out = Vec::new();
        id.encode(&mut Writer(&mut out));
        out
    }

    #[test]
    fn it_decodes_to_itself_and_never_from_less() {
        let whole = bytes(&sample());
        assert_eq!(whole.len(), SnapshotId::BYTES);
        let mut r = Reader::new(&whole);
        assert_eq!(SnapshotId::decode(&mut r), Ok(sample()));
        assert_eq!(r.remaining(), 0);
        for len in 0..whole.len() {
            assert!(SnapshotId::decode(&mut Reader::new(&whole[..len])).is_err(), "length {len}");
        }
    }

    #[test]
    fn numbers_no_snapshot_can_have_are_refused() {
        let bad = [
            SnapshotId { last: LogIndex(0), ..sample() },
            SnapshotId { last: LogIndex(u64::MAX), ..sample() },
            SnapshotId { term: Term(0), ..sample() },
            SnapshotId { chunks: 0, ..sample() },
            SnapshotId { bytes: 2, ..sample() },
            SnapshotId { bytes: 3 * SNAPSHOT_CHUNK_MAX as u64 + 1, ..sample() },
        ];
        for id in bad {
            assert!(SnapshotId::decode(&mut Reader::new(&bytes(&id))).is_err(), "{id:?}");
        }
    }
}

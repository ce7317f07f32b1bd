//! The block: the unit of replication, of the log and of apply (DESIGN section 10).
//!
//! One contiguous buffer of encoded commands, encoded once by the leader. The same bytes go to its
//! disk, to every peer, onto the followers' disks and into apply. A log is a sequence of blocks;
//! blocks are never split, so acknowledgement, commit and truncation always fall on their edges,
//! and two logs that hold a block of the same term and last index hold the same blocks before it.
//!
//! ```text
//!  0 magic u32      4 format u16    6 kind u16     8 shard u32    12 count u32
//! 16 term u64      24 first_index u64             32 clock_ms u64
//! 40 prev_chain u128                              56 body_len u32 60 crc32 u32
//! 64 body: count times { len u32, command }
//! ```
//! The CRC-32 covers bytes 0..60 and the body. `prev_chain` is the chain hash of the block before;
//! the chain hash of a block is XXH3-128 over all its bytes, so equal chain hashes mean equal logs.

use alloc::vec::Vec;
use bytes::Bytes;

use crate::hash::hash128;
use crate::ids::{LogIndex, ShardId, Term};
use crate::snapshot::Edge;

const MAGIC: u32 = u32::from_le_bytes(*b"PBLK");
const FORMAT: u16 = 1;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 64;
/// The most bytes of a body. Under the limit of a frame, with room for what wraps it.
pub const BODY_BYTES_MAX: usize = 512 * 1024;
/// The most commands in a block.
pub const COMMANDS_MAX: usize = 4096;

/// What a block carries. Other kinds (a configuration change) are refused until they exist.
const KIND_COMMANDS: u16 = 0;

/// Why bytes are no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Fewer bytes than the header, or not as many as it says.
    #[error("the length does not fit the header")]
    Length,
    /// Not a block at all.
    #[error("no block starts here")]
    Magic,
    /// A format or kind this build does not know.
    #[error("block format {format}, kind {kind} is newer than this build")]
    Unknown {
        /// The format number.
        format: u16,
        /// The kind number.
        kind: u16,
    },
    /// The checksum does not fit.
    #[error("the checksum does not fit")]
    Crc,
    /// The commands inside do not fill the body exactly, or none are there.
    #[error("the commands do not fill the body")]
    Body,
    /// An index, term or count is out of range.
    #[error("an index, term or count is out of range")]
    Range,
}

/// A checked block. Cheap to clone: clones share the bytes.
#[derive(Clone)]
pub struct Block {
    bytes: Bytes,
    shard: ShardId,
    term: Term,
    first: LogIndex,
    count: u32,
    clock_ms: u64,
    prev_chain: u128,
    chain: u128,
}

fn le<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl Block {
    /// Takes exactly one block out of bytes from disk or network, checking everything.
    ///
    /// # Errors
    /// See [`BlockError`]; nothing is allocated on the word of a length field.
    pub fn decode(bytes: Bytes) -> Result<Block, BlockError> {
        let len = Block::length_of(&bytes)?;
        if bytes.len() != len {
            return Err(BlockError::Length);
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[..60]);
        crc.update(&bytes[HEADER_BYTES..]);
        if crc.finalize() != u32::from_le_bytes(le(&bytes, 60)) {
            return Err(BlockError::Crc);
        }
        let format = u16::from_le_bytes(le(&bytes, 4));
        let kind = u16::from_le_bytes(le(&bytes, 6));
        if format != FORMAT || kind != KIND_COMMANDS {
            return Err(BlockError::Unknown { format, kind });
        }
        let count = u32::from_le_bytes(le(&bytes, 12));
        let term = u64::from_le_bytes(le(&bytes, 16));
        let first = u64::from_le_bytes(le(&bytes, 24));
        if count == 0 || count as usize > COMMANDS_MAX || term == 0 || first == 0 || first > u64::MAX / 2 {
            return Err(BlockError::Range);
        }
        let block = Block {
            shard: ShardId(u32::from_le_bytes(le(&bytes, 8))),
            term: Term(term),
            first: LogIndex(first),
            count,
            clock_ms: u64::from_le_bytes(le(&bytes, 32)),
            prev_chain: u128::from_le_bytes(le(&bytes, 40)),
            chain: hash128(&bytes),
            bytes,
        };
        let filled: usize = block.commands().map(|c| 4 + c.len()).sum();
        if block.commands().count() != count as usize || filled != block.bytes.len() - HEADER_BYTES {
            return Err(BlockError::Body);
        }
        Ok(block)
    }

    /// How many bytes the block that starts here has, from its header alone.
    ///
    /// # Errors
    /// [`BlockError::Length`] or [`BlockError::Magic`].
    pub fn length_of(bytes: &[u8]) -> Result<usize, BlockError> {
        if bytes.len() < HEADER_BYTES {
            return Err(BlockError::Length);
        }
        if u32::from_le_bytes(le(bytes, 0)) != MAGIC {
            return Err(BlockError::Magic);
        }
        let body = u32::from_le_bytes(le(bytes, 56)) as usize;
        if body > BODY_BYTES_MAX {
            return Err(BlockError::Length);
        }
        Ok(HEADER_BYTES + body)
    }

    /// All bytes, header and body: what is written and sent.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The shard whose log this belongs to.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The term of the leader that made it.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The index of its first command.
    pub fn first(&self) -> LogIndex {
        self.first
    }

    /// The index of its last command.
    pub fn last(&self) -> LogIndex {
        LogIndex(self.first.0 + u64::from(self.count) - 1)
    }

    /// How many commands it holds: at least one.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The cluster's clock when the leader sealed it, in milliseconds: rises across leaders, for
    /// information only (how long a lock has been held). Nothing is decided by it.
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// The chain hash of the block before; 0 for the first.
    pub fn prev_chain(&self) -> u128 {
        self.prev_chain
    }

    /// The chain hash up to and including this block.
    pub fn chain(&self) -> u128 {
        self.chain
    }

    /// The edge it ends at.
    pub fn edge(&self) -> Edge {
        Edge { index: self.last(), term: self.term, chain: self.chain, clock_ms: self.clock_ms }
    }

    /// The commands, in order.
    pub fn commands(&self) -> Commands<'_> {
        Commands(&self.bytes[HEADER_BYTES..])
    }
}

impl core::fmt::Debug for Block {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "block({}..={} term {})", self.first, self.last(), self.term)
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        self.chain == other.chain && self.bytes == other.bytes
    }
}

impl Eq for Block {}

/// The commands of a block. See [`Block::commands`].
#[derive(Clone, Debug)]
pub struct Commands<'a>(&'a [u8]);

impl<'a> Iterator for Commands<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.0.split_first_chunk::<4>()?;
        let (command, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = rest;
        Some(command)
    }
}

/// What [`BlockBuilder::seal`] writes into the header besides the commands.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// The shard whose log it joins.
    pub shard: ShardId,
    /// The leader's term.
    pub term: Term,
    /// The index of the first command.
    pub first: LogIndex,
    /// See [`Block::clock_ms`].
    pub clock_ms: u64,
    /// The chain hash of the block before; 0 for the first.
    pub prev_chain: u128,
}

/// Gathers commands, encoded in place, until the block is sealed.
pub struct BlockBuilder {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        BlockBuilder::new()
    }
}

impl BlockBuilder {
    /// An empty block.
    pub fn new() -> BlockBuilder {
        let mut bytes = Vec::with_capacity(4096);
        bytes.resize(HEADER_BYTES, 0);
        BlockBuilder { bytes, count: 0 }
    }

    /// How many commands are in.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the body so far.
    pub fn body_len(&self) -> usize {
        self.bytes.len() - HEADER_BYTES
    }

    /// Whether a command of this many bytes still fits.
    pub fn fits(&self, command_bytes: usize) -> bool {
        (self.count as usize) < COMMANDS_MAX && self.body_len() + 4 + command_bytes <= BODY_BYTES_MAX
    }

    /// Adds a command, which `encode` appends to the vector. Returns its place in the block, from 0.
    ///
    /// # Panics
    /// When it does not fit: ask [`BlockBuilder::fits`] with the most it can need first.
    pub fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        encode(&mut self.bytes);
        let len = (self.bytes.len() - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
        self.count += 1;
        assert!(self.count as usize <= COMMANDS_MAX && self.body_len() <= BODY_BYTES_MAX, "block overfull");
        self.count - 1
    }

    /// Writes the header and the checksum; from here on the bytes never change.
    ///
    /// # Panics
    /// On an empty block, term 0 or index 0.
    pub fn seal(mut self, seal: Seal) -> Block {
        assert!(self.count > 0 && seal.term.0 > 0 && seal.first.0 > 0, "a block needs commands, term, index");
        let body_len = self.body_len() as u32;
        let b = &mut self.bytes;
        b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4..6].copy_from_slice(&FORMAT.to_le_bytes());
        b[6..8].copy_from_slice(&KIND_COMMANDS.to_le_bytes());
        b[8..12].copy_from_slice(&seal.shard.0.to_le_bytes());
        b[12..16].copy_from_slice(&self.count.to_le_bytes());
        b[16..24].copy_from_slice(&seal.term.0.to_le_bytes());
        b[24..32].copy_from_slice(&seal.first.0.to_le_bytes());
        b[32..40].copy_from_slice(&seal.clock_ms.to_le_bytes());
        b[40..56].copy_from_slice(&seal.prev_chain.to_le_bytes());
        b[56..60].copy_from_slice(&body_len.to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&b[..60]);
        crc.update(&b[HEADER_BYTES..]);
        b[60..64].copy_from_slice(&crc.finalize().to_le_bytes());
        Block {
            chain: hash128(b),
            shard: seal.shard,
            term: seal.term,
            first: seal.first,
            count: self.count,
            clock_ms: seal.clock_ms,
            prev_chain: seal.prev_chain,
            bytes: Bytes::from(self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Block {
        let mut b = BlockBuilder::new();
        b.push(|v| v.extend_from_slice(b"one"));
        b.push(|_| ());
        b.push(|v| v.extend_from_slice(&[7; 300]));
        b.seal(Seal { shard: ShardId(2), term: Term(3), first: LogIndex(10), clock_ms: 99, prev_chain: 5 })
    }

    #[test]
    fn a_sealed_block_decodes_to_itself() {
        let block = sample();
        let again = Block::decode(block.bytes().clone()).unwrap();
        assert_eq!(block, again);
        assert_eq!((again.first(), again.last(), again.count()), (LogIndex(10), LogIndex(12), 3));
        assert_eq!(again.commands().nth(1), Some(&b""[..]));
        assert_eq!((again.clock_ms(), again.prev_chain(), again.chain()), (99, 5, block.chain()));
    }

    #[test]
    fn every_flipped_bit_and_every_length_is_refused() {
        let block = sample();
        let good = block.bytes().to_vec();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::decode(bad.into()).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(Block::decode(good[..len].to_vec().into()).is_err(), "length {len}");
        }
    }
}

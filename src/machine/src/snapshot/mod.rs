//! Snapshots: the replicated state as a sequence of chunks, and back (DESIGN section 12; bytes in
//! [SNAPSHOT.md](../../SNAPSHOT.md)).
//!
//! Records are archived with their places, and so is the order in which free places are used next. So a
//! machine that was restored gives the same places to the same records as all others, and equal states have
//! equal bytes, whichever replica took the snapshot and whatever it was itself restored from. What follows
//! from the records (indexes, counts, sums, lists of open tickets, chunks of queues and of idle keys) is not
//! archived but made again, and none of it shows in the bytes.

use alloc::vec::Vec;

use rkyv::util::AlignedVec;

mod archive;
pub(crate) mod code;
pub(crate) mod frozen;
mod links;
mod records;
mod restore;
mod semantics;
pub(crate) mod v1;

pub(crate) use archive::Freeze;
pub use restore::Restore;

/// Of every chunk, in its first four bytes.
const MAGIC: u32 = u32::from_le_bytes(*b"PSNP");
/// What this version writes, and the only one it reads.
const FORMAT: u16 = 1;
/// magic 4, format 2, section 2, count 4, payload length 4, crc32 4.
const HEADER: usize = 20;
const CRC_AT: usize = 16;

/// The sections, in the order in which they come. Each but the head may have any number of chunks.
pub(crate) mod section {
    pub(crate) const HEAD: u16 = 0;
    pub(crate) const FREE_SESSIONS: u16 = 1;
    pub(crate) const FREE_LOCKS: u16 = 2;
    pub(crate) const FREE_CLAIMS: u16 = 3;
    pub(crate) const FREE_HOLDS: u16 = 4;
    pub(crate) const FREE_GROUPS: u16 = 5;
    pub(crate) const SESSIONS: u16 = 6;
    pub(crate) const LOCKS: u16 = 7;
    pub(crate) const HISTORIES: u16 = 8;
    pub(crate) const CLAIMS: u16 = 9;
    pub(crate) const HOLDS: u16 = 10;
    pub(crate) const GROUPS: u16 = 11;
    pub(crate) const CANDIDATES: u16 = 12;
    pub(crate) const IDLE: u16 = 13;
    pub(crate) const DUE: u16 = 14;
    pub(crate) const ENDED: u16 = 15;
    pub(crate) const ACTS: u16 = 16;
    pub(crate) const VALUES: u16 = 17;
    pub(crate) const ENDING_VALUES: u16 = 18;
    pub(crate) const RESOURCES: u16 = 19;
    pub(crate) const LAST: u16 = RESOURCES;
    /// How many of them the head counts: all but itself.
    pub(crate) const COUNTED: usize = LAST as usize;
}

/// Why chunks are no snapshot of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotFault {
    /// A newer version wrote it.
    #[error(
        "chunk {chunk} has format {format}, this version reads format 1: use the version that wrote it, or a newer one"
    )]
    Newer {
        /// Counted from 0.
        chunk: u32,
        /// What it has.
        format: u16,
    },
    /// Its bytes are not those that were written, or no archive.
    #[error("chunk {chunk} is damaged ({what}): take the snapshot from another replica")]
    Damaged {
        /// Counted from 0.
        chunk: u32,
        /// How that shows.
        what: &'static str,
    },
    /// A chunk comes out of its order, or more or fewer records come than the head says.
    #[error("chunk {chunk} does not belong here ({what}): take the snapshot from another replica")]
    Misplaced {
        /// Counted from 0.
        chunk: u32,
        /// How that shows.
        what: &'static str,
    },
    /// It is of another shard, or of a cluster with other limits.
    #[error("the snapshot is not of this shard: {0} differs")]
    Foreign(&'static str),
    /// A record contradicts another, or what always holds.
    #[error("the snapshot contradicts itself: {0}; take it from another replica, and report this")]
    Contradiction(&'static str),
}

/// The frame of a chunk around its archive.
fn frame(section: u16, count: u32, archive: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(HEADER + archive.len());
    chunk.extend_from_slice(&MAGIC.to_le_bytes());
    chunk.extend_from_slice(&FORMAT.to_le_bytes());
    chunk.extend_from_slice(&section.to_le_bytes());
    chunk.extend_from_slice(&count.to_le_bytes());
    chunk.extend_from_slice(&(archive.len() as u32).to_le_bytes());
    chunk.extend_from_slice(&[0; 4]);
    chunk.extend_from_slice(archive);
    let crc = crc(&chunk);
    chunk[CRC_AT..HEADER].copy_from_slice(&crc.to_le_bytes());
    chunk
}

/// Of everything but itself.
fn crc(chunk: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&chunk[..CRC_AT]);
    hasher.update(&chunk[HEADER..]);
    hasher.finalize()
}

/// Opens the frame of a chunk: its section, how many records it says it has, and its archive, aligned.
fn unframe(chunk: u32, bytes: &[u8]) -> Result<(u16, u32, AlignedVec), SnapshotFault> {
    let damaged = |what| SnapshotFault::Damaged { chunk, what };
    if bytes.len() < HEADER {
        return Err(damaged("it is cut short"));
    }
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if u32_at(0) != MAGIC {
        return Err(damaged("it does not begin as one"));
    }
    if crc(bytes) != u32_at(CRC_AT) {
        return Err(damaged("its checksum differs"));
    }
    if u16_at(4) != FORMAT {
        return Err(SnapshotFault::Newer { chunk, format: u16_at(4) });
    }
    if u32_at(12) as usize != bytes.len() - HEADER {
        return Err(damaged("its length differs"));
    }
    let mut archive = AlignedVec::with_capacity(bytes.len() - HEADER);
    archive.extend_from_slice(&bytes[HEADER..]);
    Ok((u16_at(6), u32_at(8), archive))
}

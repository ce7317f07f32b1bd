//! What the log asks its driver to do, and what the driver may answer.

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;

/// Names an operation until it is reported done. Never reused by one [`crate::Wal`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// One stretch of a [`DiskOp::Write`]: an offset, a multiple of 4096, and the buffers that lie one
/// behind the other from there on, together a multiple of 4096 bytes.
pub type Part = (u64, Vec<Bytes>);

/// How an operation ended: the bytes of a [`DiskOp::Read`], none for all others.
pub type DiskResult = Result<Bytes, DiskFault>;

/// An operation on a file of the node's directory. Names are relative to it. An operation is
/// reported done only when its effect, data and directory entry, outlives a power cut.
#[derive(Clone, Debug)]
pub enum DiskOp {
    /// Makes a file (or empties the one that is there), fills it with zeros up to `size`, writes
    /// `header` at its start, syncs the file and then its directory.
    Create {
        /// Which operation.
        id: OpId,
        /// The file.
        file: String,
        /// Its size in bytes, a multiple of 4096.
        size: u64,
        /// The first bytes, a multiple of 4096 of them.
        header: Bytes,
        /// Nobody waits for it yet: the zeros may be written slowly, to leave the disk to others.
        ahead: bool,
    },
    /// Writes all parts, in any order and to their last byte (a short write is completed), then
    /// syncs the data once. A part may lie behind the end of the file, which then grows.
    Write {
        /// Which operation.
        id: OpId,
        /// The file, which exists.
        file: String,
        /// What to write, and where.
        parts: Vec<Part>,
    },
    /// Cuts a file to `len` bytes and syncs it.
    Truncate {
        /// Which operation.
        id: OpId,
        /// The file, which exists.
        file: String,
        /// Its new length in bytes, a multiple of 4096.
        len: u64,
    },
    /// Gives a synced file another name, in place of a file that may bear it, and syncs the directory.
    Rename {
        /// Which operation.
        id: OpId,
        /// The file, which exists.
        file: String,
        /// Its new name, in the same directory.
        to: String,
    },
    /// Removes a file and syncs its directory. It may be gone already.
    Remove {
        /// Which operation.
        id: OpId,
        /// The file.
        file: String,
    },
    /// Reads from the disk itself, past every cache. Fewer bytes come back where the file ends.
    Read {
        /// Which operation.
        id: OpId,
        /// The file.
        file: String,
        /// From which byte on, a multiple of 4096.
        offset: u64,
        /// How many bytes, a multiple of 4096.
        len: usize,
    },
}

impl DiskOp {
    /// Which operation it is.
    pub fn id(&self) -> OpId {
        match self {
            DiskOp::Create { id, .. }
            | DiskOp::Write { id, .. }
            | DiskOp::Truncate { id, .. }
            | DiskOp::Rename { id, .. }
            | DiskOp::Remove { id, .. }
            | DiskOp::Read { id, .. } => *id,
        }
    }

    /// The file it works on.
    pub fn file(&self) -> &str {
        match self {
            DiskOp::Create { file, .. }
            | DiskOp::Write { file, .. }
            | DiskOp::Truncate { file, .. }
            | DiskOp::Rename { file, .. }
            | DiskOp::Remove { file, .. }
            | DiskOp::Read { file, .. } => file,
        }
    }

    /// How many bytes it writes; the zeros of a new file are not counted.
    pub fn bytes(&self) -> u64 {
        match self {
            DiskOp::Create { header, .. } => header.len() as u64,
            DiskOp::Write { parts, .. } => parts.iter().flat_map(|p| &p.1).map(|b| b.len() as u64).sum(),
            DiskOp::Truncate { .. } | DiskOp::Rename { .. } | DiskOp::Remove { .. } | DiskOp::Read { .. } => {
                0
            }
        }
    }
}

/// Why an operation failed. What it left behind is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskFault {
    /// The disk is full.
    #[error("{file}: no space left")]
    NoSpace {
        /// The file.
        file: String,
    },
    /// The system refused.
    #[error("{file}: {op} failed with error {errno}")]
    Io {
        /// The file.
        file: String,
        /// The call, such as `fdatasync`.
        op: &'static str,
        /// The system's error number.
        errno: i32,
    },
    /// Fewer bytes were written than asked for, and the rest could not be.
    #[error("{file}: {written} of {wanted} bytes written")]
    Short {
        /// The file.
        file: String,
        /// How many bytes were asked for.
        wanted: u64,
        /// How many were written.
        written: u64,
    },
}

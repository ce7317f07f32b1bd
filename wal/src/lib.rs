#![no_std]
//! The log on disk: its layout, its writer and its recovery, without I/O. `FORMAT.md` beside this
//! crate gives every byte.
//!
//! [`Wal`] says what to write, as [`DiskOp`]s that a driver performs; [`recover_shard`] reads a
//! shard's files through a [`Source`] and says what was durable.
//!
//! # Fault model
//!
//! Expected at any time, and survived without a word but one line in the log: the process ends or
//! the power fails; what was written and not synced is kept, lost or garbled sector by sector and in
//! any order, also inside a page; a new file's directory entry survives or does not.
//!
//! Noticed, and the directory refused with file and offset: bits that flip, pages that change,
//! writes that went elsewhere or were lost although synced, files cut or missing, as long as
//! anything is left that vouches for what they held; files of another cluster, node, incarnation or
//! shard, or of a newer format.
//!
//! Not tolerated: a physical block larger than 4096 bytes that a power cut damages as a whole; the
//! loss of the last segment as a whole, down to its header; damage to the last batch within the 10 ms
//! before its seal is written, together with a crash in that time (it looks like a torn write; it is
//! reported as [`Note::SuspectTail`] as long as the batch's mark is whole).
//!
//! # Guarantees
//!
//! - Recovery yields the state last acknowledged, or it with more of what was being written in
//!   order, or a refusal. Never another state, however often it is interrupted.
//! - Term and vote are durable, twice, before any block of that term is submitted.
//! - What a start has dropped never comes back: its new segment says where the old ones end.
//! - A failed write or sync is final. Only the creation of a segment is tried again, for lack of space.
extern crate alloc;
#[cfg(test)]
extern crate std;

mod archive;
mod batch;
pub mod boot;
mod config;
#[cfg(any(test, feature = "sim"))]
pub mod disk;
pub mod error;
mod files;
mod flight;
pub mod hard;
pub mod identity;
mod inspect;
mod note;
pub mod op;
pub mod page;
pub mod recover;
mod scan;
pub mod segment;
pub mod slots;
mod snapshots;
pub mod source;
mod verdict;
pub mod writer;

pub use archive::{read_snapshot, snapshot_file};
pub use boot::{BOOT_FILE, BootRecord, boot_file, read_boot};
pub use config::{BATCH_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, WalConfig};
#[cfg(any(test, feature = "sim"))]
pub use disk::SimDisk;
pub use error::RecoverError;
pub use hard::{hard_state_file, initial_hard_state, read_hard_state, shard_dir};
pub use identity::{IDENTITY_FILE, Identity, IdentityRead, format_files, identity_file, read_identity};
pub use inspect::{HardView, SegmentView, ShardView, SnapshotView, inspect_shard};
pub use note::Note;
pub use op::{DiskFault, DiskOp, DiskResult, OpId, Part};
pub use page::{FORMAT, Owner, PAGE};
pub use recover::{Recovered, Tail, recover_shard, recover_with};
pub use segment::{DATA_START, segment_file};
pub use slots::{SLOTS_BYTES, SlotValue, Slots, Staged};
pub use snapshots::SnapshotLost;
pub use source::{Source, SourceError};
pub use writer::Wal;

#[cfg(test)]
mod tests;

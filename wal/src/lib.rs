#![no_std]
//! The log on disk.
extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
pub mod boot;
mod config;
#[cfg(any(test, feature = "sim"))]
pub mod disk;
pub mod error;
pub mod hard;
pub mod identity;
pub mod op;
pub mod page;
pub mod recover;
mod scan;
pub mod segment;
pub mod slots;
pub mod source;
mod verdict;
pub mod writer;

pub use boot::{BOOT_FILE, BootRecord, boot_file, read_boot};
pub use config::{BATCH_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, WalConfig};
#[cfg(any(test, feature = "sim"))]
pub use disk::SimDisk;
pub use error::RecoverError;
pub use hard::{hard_state_file, initial_hard_state, read_hard_state, shard_dir};
pub use identity::{IDENTITY_FILE, Identity, IdentityRead, identity_file, read_identity};
pub use op::{DiskFault, DiskOp, OpId, Part};
pub use page::{FORMAT, Owner, PAGE};
pub use recover::{Note, Recovered, Tail, recover_shard};
pub use segment::{DATA_START, segment_file};
pub use slots::{SLOTS_BYTES, SlotValue, Slots, Staged};
pub use source::{Source, SourceError};
pub use writer::Wal;

#[cfg(test)]
mod tests;

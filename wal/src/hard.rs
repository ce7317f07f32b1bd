//! `HARDSTATE`: term and vote of one shard. A slots file.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::{DecodeError, HardState, LogIndex, NodeId, Reader, ShardId, Term, Writer};

use crate::error::RecoverError;
use crate::identity::Identity;
use crate::slots::{SlotValue, Slots};

/// The directory of a shard.
pub fn shard_dir(shard: ShardId) -> String {
    format!("shard-{:04}", shard.0)
}

/// The hard state's file.
pub fn hard_state_file(shard: ShardId) -> String {
    format!("{}/HARDSTATE", shard_dir(shard))
}

/// The bytes of a new `HARDSTATE` file: term 0, no vote.
pub fn initial_hard_state(identity: &Identity, shard: ShardId) -> Vec<u8> {
    Slots::create(identity.owner(shard), HardRecord::default()).0
}

/// Reads the bytes of a `HARDSTATE` file alone. Recovery reads the log as well; this is for checkers
/// and tools.
///
/// # Errors
/// See [`Slots::read`].
pub fn read_hard_state(identity: &Identity, shard: ShardId, bytes: &[u8]) -> Result<HardState, RecoverError> {
    let slots: Slots<HardRecord> = Slots::read(identity.owner(shard), &hard_state_file(shard), bytes)?;
    Ok(slots.value().state)
}

/// What the slots hold: the hard state, and a witness of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct HardRecord {
    /// `commit` is held below what is durable in this log, so that a log shorter than it is damaged.
    pub(crate) state: HardState,
    /// The newest batch that was durable at the time; a log that ends before it is damaged.
    pub(crate) batch: u64,
}

impl SlotValue for HardRecord {
    const MAGIC: [u8; 4] = *b"PHRD";

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.state.term.0);
        w.u32(self.state.vote.map_or(0, |n| n.0));
        w.u64(self.state.commit.0);
        w.u64(self.batch);
    }

    fn decode(r: &mut Reader<'_>) -> Result<HardRecord, DecodeError> {
        let term = Term(r.u64()?);
        let vote = match r.u32()? {
            0 => None,
            node => Some(NodeId(node)),
        };
        let commit = LogIndex(r.u64()?);
        Ok(HardRecord { state: HardState { term, vote, commit }, batch: r.u64()? })
    }
}

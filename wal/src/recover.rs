//! Recovery: reads a shard's files and says what was durable.

use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::{Block, HardState, LogIndex, ShardId, Term};

use crate::error::RecoverError;
use crate::hard::HardRecord;
use crate::identity::Identity;
use crate::slots::Slots;
use crate::source::Source;

/// Where the writer goes on. Made by [`recover_shard`] alone.
#[derive(Clone, Debug)]
pub struct Tail {
    pub(crate) next_seq: u64,
    pub(crate) chain: u128,
    /// Number of the segment to be opened.
    pub(crate) segment: u64,
    pub(crate) last: LogIndex,
    pub(crate) last_term: Term,
    /// Chain hash of the last block.
    pub(crate) last_chain: u128,
    pub(crate) hard: Slots<HardRecord>,
    pub(crate) trims: Vec<(String, u64)>,
    pub(crate) used: u64,
}

/// Something an operator may want to know; one line in the log each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
}

/// What a shard's files hold.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Term and vote.
    pub hard_state: HardState,
    /// The log, without gaps from index 1.
    pub blocks: Vec<Block>,
    /// Where the writer goes on.
    pub tail: Tail,
    /// What was noticed.
    pub notes: Vec<Note>,
}

/// Reads one shard.
///
/// # Errors
/// See [`RecoverError`].
pub fn recover_shard(_source: &dyn Source, _identity: &Identity, shard: ShardId) -> Result<Recovered, RecoverError> {
    Err(RecoverError::Missing { file: crate::hard::hard_state_file(shard) })
}

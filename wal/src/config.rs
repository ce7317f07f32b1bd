//! What a log is opened with.

use palisade_types::block::{BODY_BYTES_MAX, HEADER_BYTES};
use palisade_types::{ClusterId, Incarnation, Mutants, NodeId, ShardId};

use crate::batch::BATCH_HEADER;
use crate::identity::Identity;
use crate::page::{Owner, PAGE};
use crate::segment::DATA_START;

/// How a shard's log is written.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The shard.
    pub shard: ShardId,
    /// Bytes allocated for a segment, a multiple of 4096, at least 64 KiB.
    pub segment_bytes: u64,
    /// The most bytes of blocks gathered into one batch; a single larger block still is one.
    pub batch_bytes_max: usize,
    /// Where the salts come from: drawn by the caller, another one at every start.
    pub seed: u64,
    /// Bugs switched on in the simulator.
    pub mutants: Mutants,
}

/// The size of a segment unless configured otherwise.
pub const SEGMENT_BYTES_DEFAULT: u64 = 32 * 1024 * 1024;
/// The most bytes of a batch unless configured otherwise.
pub const BATCH_BYTES_DEFAULT: usize = 4 * 1024 * 1024;

impl WalConfig {
    /// The usual configuration for a shard of this identity.
    pub fn new(identity: &Identity, shard: ShardId, seed: u64) -> WalConfig {
        WalConfig {
            cluster: identity.cluster,
            node: identity.node,
            incarnation: identity.incarnation,
            shard,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            batch_bytes_max: BATCH_BYTES_DEFAULT,
            seed,
            mutants: Mutants::NONE,
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { cluster: self.cluster, node: self.node, incarnation: self.incarnation, shard: self.shard }
    }

    /// # Panics
    /// On sizes that make no log: the caller has checked what users may set.
    pub(crate) fn check(&self) {
        let page = PAGE as u64;
        assert!(self.segment_bytes.is_multiple_of(page), "segments are whole pages");
        assert!(self.segment_bytes >= DATA_START + page, "a segment has room for a batch");
        let largest = self.batch_bytes_max + BATCH_HEADER + HEADER_BYTES + BODY_BYTES_MAX;
        assert!(u32::try_from(largest).is_ok(), "a batch's length fits 32 bits");
    }
}

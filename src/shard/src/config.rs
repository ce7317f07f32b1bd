//! What a shard is configured with.

use core::time::Duration;

use palisade_types::{ClusterLimits, Mutants, NodeId, ShardId};

use crate::watch::WatchConfig;

/// The configuration of a shard. All sizes and times are this node's own, but for `limits`.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// This node.
    pub node: NodeId,
    /// This shard.
    pub shard: ShardId,
    /// The consensus.
    pub raft: palisade_raft::Config,
    /// The log.
    pub wal: palisade_wal::WalConfig,
    /// Replicated limits, equal on all nodes.
    pub limits: ClusterLimits,
    /// The seed of the hash of in-memory tables; order never depends on it.
    pub hash_seed: u64,
    /// The boot counter, for the status.
    pub boot: u64,
    /// Beyond so many bytes of log, new sessions and acquires are refused with `QuotaExceeded`.
    pub log_bytes_max: u64,
    /// Within the TTL, 1 % and this a silent session is gone (DESIGN section 2). It falls due after half
    /// of it; the other half is for reading what has arrived, for the confirmation and for the log.
    /// Default 1 s.
    pub expiry_slack: Duration,
    /// Cores that own sockets of clients of this shard; each answers [`crate::Actions::drain`].
    pub client_cores: u16,
    /// Releases of ended sessions, in keys a second. Default 20,000.
    pub releases_per_second: u64,
    /// Reads that ask for it may be answered by lease; what that takes of the consensus is in
    /// `raft.leases`. The driver then hands in a second clock ([`crate::Shard::lease_time`]).
    pub lease_reads: bool,
    /// Commands in hand before new ones are answered `Busy`; releases may go to twice that.
    pub in_hand_max: usize,
    /// A pause of this node longer than this is credited to every session.
    pub stall_min: Duration,
    /// Under load a block is sealed once it holds so many commands …
    pub block_commands: u32,
    /// … or so long after the last one, whichever comes first; up to twice as long where the disk
    /// is slow (three times what a block takes to become durable).
    pub block_gap: Duration,
    /// While so long would gather fewer commands than this, load is light: blocks are sealed at once.
    pub light_commands: u32,
    /// No further block is applied in a turn once so many commands were.
    pub commands_per_turn: u32,
    /// A snapshot is taken whenever so many bytes of blocks have been applied since the last: equal on
    /// all nodes, so that they take theirs at the same places and one can go on with what another has
    /// sent. Default 64 MiB.
    pub snapshot_bytes: u64,
    /// While a snapshot is on its way to another node none is taken, lest the transfer begin anew, until
    /// the log has so many bytes. Default 512 MiB.
    pub snapshot_hold_bytes: u64,
    /// Chunks of snapshots that are made, or taken in, in one turn. Default 2.
    pub snapshot_slices: u32,
    /// Watches.
    pub watch: WatchConfig,
    /// Bugs switched on in the simulator; none elsewhere.
    pub mutants: Mutants,
}

impl ShardConfig {
    /// A configuration with the defaults of DESIGN.
    pub fn new(
        node: NodeId,
        raft: palisade_raft::Config,
        wal: palisade_wal::WalConfig,
        limits: ClusterLimits,
    ) -> ShardConfig {
        // A leader is called at least once a heartbeat.
        let stall_min = Duration::from_millis(300).max(raft.heartbeat * 3);
        ShardConfig {
            node,
            shard: raft.shard,
            raft,
            wal,
            limits,
            hash_seed: 0,
            boot: 0,
            log_bytes_max: 8 << 30,
            expiry_slack: Duration::from_secs(1),
            client_cores: 1,
            releases_per_second: 20_000,
            lease_reads: false,
            in_hand_max: 50_000,
            stall_min,
            block_commands: 512,
            block_gap: Duration::from_micros(2_500),
            light_commands: 64,
            commands_per_turn: 1_024,
            snapshot_bytes: 64 << 20,
            snapshot_hold_bytes: 512 << 20,
            snapshot_slices: 2,
            watch: WatchConfig::default(),
            mutants: Mutants::NONE,
        }
    }
}

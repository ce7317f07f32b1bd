//! What a node is told once, at start.

use alloc::vec::Vec;
use core::time::Duration;

use palisade_types::{LogIndex, Mutants, NodeId, ShardId};

/// The most voters of a shard.
pub const VOTERS_MAX: usize = 15;

/// The configuration of one node of one shard. [`Config::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub id: NodeId,
    /// Counts the starts of this node, so that the numbers it gives away are never used twice over its
    /// restarts. Default 0, for a node that never restarts.
    pub boot: u64,
    /// The shard whose log this is; blocks of other shards are refused.
    pub shard: ShardId,
    /// All voters, this node included; order does not matter.
    pub voters: Vec<NodeId>,
    /// How often a leader makes itself heard. Default 100 ms.
    pub heartbeat: Duration,
    /// The shortest silence after which a follower stands. It is also how long a node that heard
    /// from a leader refuses votes to others. Default 1 s.
    pub election_min: Duration,
    /// The longest silence after which a follower stands; the time is drawn anew each time. A
    /// leader that has not heard from a quorum for so long steps down. Default 2 s.
    pub election_max: Duration,
    /// The most unacknowledged Append messages to a follower. Default 64.
    pub inflight_messages_max: usize,
    /// Sending to a follower pauses once this many bytes of blocks are unacknowledged. Default 8 MiB.
    pub inflight_bytes_max: usize,
    /// The most bytes of blocks in one Append message; a larger block travels alone. Default 512 KiB.
    pub append_bytes_max: usize,
    /// The most committed blocks handed out in one [`crate::Ready`]. Default 4.
    pub committed_blocks_max: usize,
    /// Leaders may answer reads by lease, and nodes that start keep to what that takes. Must be equal on
    /// all nodes, as [`Config::election_min`] must be. Default false.
    pub leases: bool,
    /// Behind the newest snapshot, up to so many bytes of blocks stay in memory for followers that
    /// are a little behind. Default 16 MiB.
    pub log_keep_bytes: u64,
    /// The most chunks of a snapshot under way to a follower. Default 8.
    pub snapshot_window: u32,
    /// A leader whose disk has not finished a persist for so long steps down, and a node in that
    /// state does not stand. Default 2 s.
    pub disk_stall: Duration,
    /// Bugs switched on by the simulator.
    pub mutants: Mutants,
}

/// A configuration or a restored log that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Node number 0.
    #[error("node ids start at 1")]
    NodeZero,
    /// This node is not among the voters.
    #[error("node {0} is not among the voters")]
    NotAVoter(NodeId),
    /// A voter is listed twice.
    #[error("voter {0} is listed twice")]
    VoterTwice(NodeId),
    /// Too many voters.
    #[error("{0} voters are more than {VOTERS_MAX}")]
    TooManyVoters(usize),
    /// The times do not fit together.
    #[error("0 < heartbeat, 2 heartbeats <= election_min <= election_max, and 0 < disk_stall must hold")]
    Times,
    /// A limit is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The restored blocks do not follow one another, or are of another shard.
    #[error("the restored log breaks at index {0}")]
    BrokenLog(LogIndex),
    /// The restored log does not hold the edge of the restored snapshot.
    #[error("the restored log does not reach the snapshot at index {0}")]
    BrokenSnapshot(LogIndex),
}

impl Config {
    /// The defaults for a node and its voters.
    pub fn new(id: NodeId, shard: ShardId, voters: Vec<NodeId>) -> Config {
        Config {
            id,
            boot: 0,
            shard,
            voters,
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_secs(1),
            election_max: Duration::from_secs(2),
            inflight_messages_max: 64,
            inflight_bytes_max: 8 << 20,
            append_bytes_max: 512 << 10,
            committed_blocks_max: 4,
            leases: false,
            log_keep_bytes: 16 << 20,
            snapshot_window: 8,
            disk_stall: Duration::from_secs(2),
            mutants: Mutants::NONE,
        }
    }

    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.voters.len() > VOTERS_MAX {
            return Err(ConfigError::TooManyVoters(self.voters.len()));
        }
        for (at, voter) in self.voters.iter().enumerate() {
            if voter.0 == 0 {
                return Err(ConfigError::NodeZero);
            }
            if self.voters[..at].contains(voter) {
                return Err(ConfigError::VoterTwice(*voter));
            }
        }
        if !self.voters.contains(&self.id) {
            return Err(ConfigError::NotAVoter(self.id));
        }
        let times_fit = !self.heartbeat.is_zero()
            && self.heartbeat.saturating_mul(2) <= self.election_min
            && self.election_min <= self.election_max
            && !self.disk_stall.is_zero();
        if !times_fit {
            return Err(ConfigError::Times);
        }
        let limits = [
            (self.inflight_messages_max, "inflight_messages_max"),
            (self.inflight_bytes_max, "inflight_bytes_max"),
            (self.append_bytes_max, "append_bytes_max"),
            (self.committed_blocks_max, "committed_blocks_max"),
            (self.snapshot_window as usize, "snapshot_window"),
        ];
        match limits.iter().find(|(value, _)| *value == 0) {
            Some((_, name)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}

//! Limits that apply reads: replicated configuration, fixed when the cluster is formatted and part
//! of its identity. Never a node's own file.

use alloc::vec::Vec;
use core::time::Duration;

use crate::codec::{DecodeError, Reader, Writer};

/// The shortest and longest TTL of a session.
pub const TTL_MIN: Duration = Duration::from_millis(500);
/// See [`TTL_MIN`].
pub const TTL_MAX: Duration = Duration::from_secs(3600);
/// The TTL a session gets that does not ask for one.
pub const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How many finished tickets of a session keep their outcome.
pub const OUTCOMES_KEPT: usize = 256;
/// The most ranges of finished tickets plus open tickets of a session.
pub const TICKET_RANGES_MAX: usize = 2_000;
/// The most keys one entry releases when a session ends.
pub const RELEASES_PER_ENTRY: u32 = 50;
/// The most waiters one entry lets in beside others that hold their keys. With the at most 50 that it
/// gives a key that nobody holds, an entry makes at most 1,000 grants.
pub const SHARED_GRANTS_PER_ENTRY: u32 = 950;
/// The most rows of a page of a listing.
pub const PAGE_ROWS_MAX: u32 = 1_000;
/// A node more commands than this behind what it knows to be committed has no current state.
pub const BEHIND_MAX: u64 = 10_000;
/// The most waiters `describe` lists.
pub const DESCRIBE_WAITERS_MAX: usize = 100;
/// The longest value of an ephemeral key, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;
/// A page of values ends before it holds more bytes of values than this. One value always fits.
pub const PAGE_VALUE_BYTES_MAX: usize = 256 * 1024;
/// How many last transitions of a key are kept.
pub const TRANSITIONS_KEPT: usize = 8;

/// The most resources that one key claims: to withdraw them all is one step.
pub const RESOURCES_PER_KEY_MAX: usize = 100;
/// The most keys of a resource that a row of a listing names.
pub const RESOURCE_KEYS_SHOWN: usize = 16;

/// How many of the operators' last actions are kept on record.
pub const OPERATOR_ACTS_KEPT: usize = 1_000;

/// What a live session counts in the account of the state ([`ClusterLimits::state_bytes`]), beside the
/// bytes of its tags: its record, its places in the indexes, its clock. In bytes.
pub const SESSION_COST: u64 = 256;
/// The same of a key with a record, beside the bytes of its name and its resource's: the record, its last
/// transitions, its places in the indexes.
pub const KEY_COST: u64 = 448;
/// The same of a claim, held or waiting, beside the bytes of the resource it names.
pub const CLAIM_COST: u64 = 96;
/// The same of an ephemeral key, beside the bytes of its name and value.
pub const VALUE_COST: u64 = 192;
/// The same of a key's claim to a resource, beside the bytes of both names.
pub const RESOURCE_CLAIM_COST: u64 = 256;

/// The limits of a cluster, as `format` fixed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Live sessions.
    pub sessions: u32,
    /// Keys held or awaited by one session.
    pub keys_per_session: u32,
    /// Waiters in one key's queue.
    pub waiters_per_key: u32,
    /// Records of idle keys kept before the oldest are reclaimed.
    pub idle_keys: u32,
    /// Keys held or awaited, all sessions together.
    pub claims: u32,
    /// Ends of sessions remembered.
    pub ended_sessions: u32,
    /// Bytes of sessions, keys, claims, ephemeral keys and the registry of resources together, by the account
    /// described at [`SESSION_COST`]. What would exceed it is refused: opens, acquires of keys without a
    /// record, puts of more than was there, claims of a key to a resource that are not on record.
    pub state_bytes: u64,
    /// Claims of keys to resources kept before the one that was not made again for longest is reclaimed.
    pub resource_claims: u32,
}

/// The quota of a cluster that says nothing else: 1 GiB.
const STATE_BYTES_DEFAULT: u64 = 1 << 30;
/// The claims to resources that a cluster keeps which says nothing else.
const RESOURCE_CLAIMS_DEFAULT: u32 = 200_000;

impl Default for ClusterLimits {
    fn default() -> Self {
        ClusterLimits {
            sessions: 200_000,
            keys_per_session: 1_000,
            waiters_per_key: 100_000,
            idle_keys: 1_000_000,
            claims: 2_000_000,
            ended_sessions: 100_000,
            state_bytes: STATE_BYTES_DEFAULT,
            resource_claims: RESOURCE_CLAIMS_DEFAULT,
        }
    }
}

impl ClusterLimits {
    /// Appends the fields.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        w.u32(self.sessions);
        w.u32(self.keys_per_session);
        w.u32(self.waiters_per_key);
        w.u32(self.idle_keys);
        w.u32(self.claims);
        w.u32(self.ended_sessions);
        w.u64(self.state_bytes);
        w.u32(self.resource_claims);
    }

    /// Reads the fields.
    ///
    /// # Errors
    /// When the bytes end early.
    pub fn decode(r: &mut Reader<'_>) -> Result<ClusterLimits, DecodeError> {
        Ok(ClusterLimits {
            sessions: r.u32()?,
            keys_per_session: r.u32()?,
            waiters_per_key: r.u32()?,
            idle_keys: r.u32()?,
            claims: r.u32()?,
            ended_sessions: r.u32()?,
            // Directories of before there was a quota hold zeros here.
            state_bytes: match r.u64()? {
                0 => STATE_BYTES_DEFAULT,
                bytes => bytes,
            },
            // The same of those of before there was a registry of resources.
            resource_claims: match r.u32()? {
                0 => RESOURCE_CLAIMS_DEFAULT,
                claims => claims,
            },
        })
    }
}

//! The account of the state: how many bytes it has, and the quota on them (DESIGN section 9).
//!
//! Each kind of record counts a fixed cost and the bytes of its names and values
//! ([`palisade_types::limits`]). What is fixed follows from the numbers of records, so that acquires keep
//! count of nothing but the resource they name. Sessions that have ended count no more, and what they
//! leave counts until it is released.

use palisade_types::limits::{CLAIM_COST, KEY_COST, RESOURCE_CLAIM_COST, SESSION_COST, VALUE_COST};
use palisade_types::{Key, Name, Refusal};

use crate::locks::bytes_of;
use crate::machine::Machine;

/// What is refused for the sake of the quota says this.
const WHAT: &str = "the state in bytes";

/// What the first acquire of a key without a record adds: the record and the claim, which both name the
/// resource.
pub(crate) fn cost_of_new(key: &Key, resource: Option<&Name>) -> u64 {
    KEY_COST + key.len() as u64 + CLAIM_COST + 2 * bytes_of(resource)
}

impl Machine {
    /// Bytes of sessions, keys, claims, campaigns, ephemeral keys and claims to resources, by the account.
    pub fn state_bytes(&self) -> u64 {
        let sessions = self.sessions.live() as u64 * SESSION_COST + self.sessions.tag_bytes();
        let keys = self.locks.records.len() as u64 * KEY_COST + self.locks.name_bytes;
        let claims = self.claims.records.len() as u64 * CLAIM_COST + self.claims.resource_bytes();
        let values = self.values.len() as u64 * VALUE_COST + self.values.bytes();
        let resources = self.resources.len() as u64 * RESOURCE_CLAIM_COST + self.resources.bytes();
        sessions + keys + claims + values + resources + self.candidates.bytes()
    }

    /// Whether so many bytes more exceed the quota, and how that is refused.
    pub(crate) fn over_quota(&self, more: u64) -> Option<Refusal> {
        let limit = self.limits.state_bytes;
        (self.state_bytes() + more > limit).then(|| Refusal::QuotaExceeded { what: WHAT.into(), limit })
    }
}

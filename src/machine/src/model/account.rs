//! The account of the state in the naive machine: added up anew each time.

use alloc::string::ToString;

use palisade_types::{Name, Refusal};

use super::Model;

impl Model {
    /// See `Machine::state_bytes`.
    pub fn state_bytes(&self) -> u64 {
        let sessions = self.sessions.iter().map(|s| 256 + len(&s.owner) + len(&s.incarnation));
        let keys = self.locks.iter().map(|(key, lock)| 448 + key.len() as u64 + len(&lock.resource));
        let claims = self.locks.values().flat_map(|lock| lock.holders.iter().chain(&lock.queue));
        let claims = claims.map(|claim| {
            let said = [&claim.value, &claim.proclaimed].into_iter().flatten().map(|v| v.len() as u64);
            96 + len(&claim.resource) + said.sum::<u64>()
        });
        sessions.sum::<u64>()
            + keys.sum::<u64>()
            + claims.sum::<u64>()
            + self.values.cost()
            + self.registry_cost()
    }

    pub(super) fn over_quota(&self, more: u64) -> Option<Refusal> {
        let limit = self.limits.state_bytes;
        let what = "the state in bytes".to_string();
        (self.state_bytes() + more > limit).then_some(Refusal::QuotaExceeded { what, limit })
    }
}

pub(super) fn len(name: &Option<Name>) -> u64 {
    name.as_ref().map_or(0, |name| name.len() as u64)
}

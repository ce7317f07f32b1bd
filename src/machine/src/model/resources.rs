//! The registry of resources in the naive machine: one vector of pairs.

use super::*;

impl Model {
    pub(super) fn registry_cost(&self) -> u64 {
        self.resources.iter().map(|(resource, key)| 256 + (resource.len() + key.len()) as u64).sum()
    }

    pub(super) fn claim_resource(&mut self, revision: LogIndex, resource: &Name, key: &Key) -> Reply {
        let pair = (resource.clone(), key.clone());
        let known = self.resources.contains(&pair);
        if !known && self.resources.iter().filter(|(_, of)| of == key).count() >= 100 {
            let what = "the resources of one key".into();
            return Reply::Refused(Refusal::QuotaExceeded { what, limit: 100 });
        }
        let over = self.over_quota(256 + (resource.len() + key.len()) as u64);
        if let Some(refusal) = over.filter(|_| !known) {
            return Reply::Refused(refusal);
        }
        self.resources.retain(|other| *other != pair);
        self.resources.push(pair);
        if self.resources.len() > self.limits.resource_claims as usize {
            self.resources.remove(0);
        }
        self.resource_claimed(revision, resource, key)
    }

    /// The answer to a claim that is on record at this revision.
    pub fn resource_claimed(&self, revision: LogIndex, resource: &Name, key: &Key) -> Reply {
        let keys = self.keys_of(resource);
        let other = keys.iter().find(|other| *other != key).cloned();
        Reply::ResourceClaimed { revision, keys: keys.len() as u32, other }
    }

    /// Whether a key's claim to a resource is on record.
    pub fn claims_resource(&self, resource: &Name, key: &Key) -> bool {
        self.keys_of(resource).contains(key)
    }

    fn keys_of(&self, resource: &Name) -> Vec<Key> {
        let of = |(r, key): &(Name, Key)| (r == resource).then(|| key.clone());
        let mut keys: Vec<Key> = self.resources.iter().filter_map(of).collect();
        keys.sort();
        keys
    }

    /// See `Machine::list_resources`.
    pub fn list_resources(
        &self,
        conflicts: bool,
        after: Option<&str>,
        rows: u32,
    ) -> (Vec<ResourceRow>, bool) {
        let mut names: Vec<Name> = self.resources.iter().map(|(resource, _)| resource.clone()).collect();
        names.sort();
        names.dedup();
        names.retain(|name| after.is_none_or(|after| name.as_str() > after));
        let mut all: Vec<ResourceRow> = Vec::new();
        for resource in names {
            let mut keys = self.keys_of(&resource);
            let count = keys.len() as u32;
            keys.truncate(16);
            if count > 1 || !conflicts {
                all.push(ResourceRow { resource, count, keys });
            }
        }
        let rows = rows.min(1_000) as usize;
        let more = all.len() > rows;
        all.truncate(rows);
        (all, more)
    }
}

//! The registry of resources (DESIGN section 1): which keys claim to protect which resource, so that two
//! locks for one thing are noticed. A claim decides nothing and belongs to no session; it stays until its key
//! is retired, or until it is the one that was not made again for longest and there are too many.
//!
//! Claims are rare beside acquires (one of each pair and client), so these are plain maps. An acquire neither
//! reads nor writes them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use palisade_types::limits::{
    PAGE_ROWS_MAX, RESOURCE_CLAIM_COST, RESOURCE_KEYS_SHOWN, RESOURCES_PER_KEY_MAX,
};
use palisade_types::{Key, LogIndex, Mutant, Name, Refusal, Reply, ResourceRow};

use crate::machine::{Applied, Machine};
use crate::snapshot::frozen::FrozenMap;

/// Every claim, found by its resource, by its key and by its age.
#[derive(Default)]
pub(crate) struct Resources {
    /// The keys of each resource that has some, each with the number of the last time it was claimed.
    by_resource: BTreeMap<Name, BTreeMap<Key, u64>>,
    /// The resources of each key that claims some.
    by_key: BTreeMap<Key, BTreeSet<Name>>,
    /// From the one that was not made again for longest.
    by_age: BTreeMap<u64, (Name, Key)>,
    /// Resources with more than one key.
    conflicts: BTreeSet<Name>,
    /// The number of the last claim: one more for each that is applied.
    last: u64,
    /// Of the names of all claims.
    bytes: u64,
    frozen: Option<Box<FrozenMap<u64, (Name, Key)>>>,
}

fn size(resource: &str, key: &str) -> u64 {
    (resource.len() + key.len()) as u64
}

impl Resources {
    /// How many claims there are.
    pub(crate) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(crate) fn resources_len(&self) -> usize {
        self.by_resource.len()
    }

    pub(crate) fn conflicts_len(&self) -> usize {
        self.conflicts.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether the key claims anything.
    pub(crate) fn is_claimant(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    fn keep(&mut self, number: u64) {
        if let Some(frozen) = &mut self.frozen {
            frozen.keep(&number, self.by_age.get(&number));
        }
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(Box::new(FrozenMap::new(&self.by_age)));
    }

    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The next claims of the freeze.
    pub(crate) fn give(&mut self, bytes_max: usize) -> Option<Vec<(u64, (Name, Key))>> {
        let cost = |_: &u64, (resource, key): &(Name, Key)| 24 + size(resource, key) as usize;
        self.frozen.as_mut()?.give(&self.by_age, bytes_max, cost)
    }

    /// Claims whose numbers ascend up to the last, each once.
    pub(crate) fn restored(claims: Vec<(u64, Name, Key)>, last: u64) -> Option<Resources> {
        let is_sorted = claims.is_sorted_by(|a, b| a.0 < b.0);
        if !is_sorted || claims.last().is_some_and(|claim| claim.0 > last) {
            return None;
        }
        let mut all = Resources { last, ..Resources::default() };
        for (number, resource, key) in claims {
            let known = all.by_resource.get_key_value(&resource).map(|(resource, _)| resource.clone());
            let resource = known.unwrap_or(resource);
            let known = all.by_key.get_key_value(&key).map(|(key, _)| key.clone());
            let key = known.unwrap_or(key);
            all.bytes += size(&resource, &key);
            let keys = all.by_resource.entry(resource.clone()).or_default();
            if keys.insert(key.clone(), number).is_some() {
                return None;
            }
            if keys.len() > 1 {
                all.conflicts.insert(resource.clone());
            }
            all.by_key.entry(key.clone()).or_default().insert(resource.clone());
            all.by_age.insert(number, (resource, key));
        }
        Some(all)
    }

    /// The number of a claim.
    fn find(&self, resource: &str, key: &str) -> Option<u64> {
        self.by_resource.get(resource)?.get(key).copied()
    }

    /// The newest claim is this one from now on.
    fn claim(&mut self, resource: &str, key: &str) {
        self.last += 1;
        self.keep(self.last);
        if let Some(before) = self.find(resource, key) {
            self.keep(before);
            let names = self.by_age.remove(&before).expect("a claim has its place in the order");
            if let Some(keys) = self.by_resource.get_mut(resource)
                && let Some(number) = keys.get_mut(key)
            {
                *number = self.last;
            }
            self.by_age.insert(self.last, names);
            return;
        }
        let known = self.by_resource.get_key_value(resource).map(|(resource, _)| resource.clone());
        let resource = known.unwrap_or_else(|| checked(resource));
        let known = self.by_key.get_key_value(key).map(|(key, _)| key.clone());
        let key = known.unwrap_or_else(|| checked(key));
        self.bytes += size(&resource, &key);
        let keys = self.by_resource.entry(resource.clone()).or_default();
        keys.insert(key.clone(), self.last);
        if keys.len() > 1 {
            self.conflicts.insert(resource.clone());
        }
        self.by_key.entry(key.clone()).or_default().insert(resource.clone());
        self.by_age.insert(self.last, (resource, key));
    }

    fn remove(&mut self, resource: &Name, key: &Key) {
        let Some(keys) = self.by_resource.get_mut(resource) else { return };
        let Some(number) = keys.remove(key) else { return };
        if keys.len() < 2 {
            self.conflicts.remove(resource);
        }
        if keys.is_empty() {
            self.by_resource.remove(resource);
        }
        if let Some(resources) = self.by_key.get_mut(key) {
            resources.remove(resource);
            if resources.is_empty() {
                self.by_key.remove(key);
            }
        }
        self.keep(number);
        self.by_age.remove(&number);
        self.bytes -= size(resource, key);
    }

    fn reclaim_oldest(&mut self) {
        if let Some((_, (resource, key))) = self.by_age.first_key_value() {
            let (resource, key) = (resource.clone(), key.clone());
            self.remove(&resource, &key);
        }
    }

    /// All of them, the one that was not made again for longest ahead.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Name, &Key)> {
        self.by_age.iter().map(|(number, (resource, key))| (*number, resource, key))
    }

    fn row(&self, resource: &Name, keys: &BTreeMap<Key, u64>) -> ResourceRow {
        let shown = keys.keys().take(RESOURCE_KEYS_SHOWN).cloned().collect();
        ResourceRow { resource: resource.clone(), count: keys.len() as u32, keys: shown }
    }

    /// Asserts that the indexes agree and that no more is kept than may be.
    pub(crate) fn check(&self, most: usize) {
        assert!(self.len() <= most, "claims to resources are bounded");
        let mut bytes = 0;
        for (number, resource, key) in self.iter() {
            bytes += size(resource, key);
            assert!(
                number <= self.last && self.find(resource, key) == Some(number),
                "a claim has one number"
            );
            assert!(self.by_key.get(key).is_some_and(|resources| resources.contains(resource)));
        }
        assert_eq!(self.bytes, bytes);
        assert_eq!(self.by_resource.values().map(BTreeMap::len).sum::<usize>(), self.len());
        assert_eq!(self.by_key.values().map(BTreeSet::len).sum::<usize>(), self.len());
        assert!(self.by_resource.values().all(|keys| !keys.is_empty()));
        assert!(self.by_key.values().all(|resources| !resources.is_empty()));
        let several =
            self.by_resource.iter().filter(|(_, keys)| keys.len() > 1).map(|(resource, _)| resource);
        assert!(several.eq(&self.conflicts), "a conflict is a resource with several keys");
    }
}

fn checked(text: &str) -> Name {
    Name::new(text).expect("checked when the command was decoded")
}

impl Machine {
    /// Puts a claim on record. One that is on record already becomes the newest, whatever the quota.
    pub(crate) fn claim_resource(&mut self, at: Applied, resource: &str, key: &str) -> Reply {
        if self.resources.find(resource, key).is_none() {
            let claimed = self.resources.by_key.get(key).map_or(0, BTreeSet::len);
            if claimed >= RESOURCES_PER_KEY_MAX {
                let (what, limit) = ("the resources of one key".into(), RESOURCES_PER_KEY_MAX as u64);
                return Reply::Refused(Refusal::QuotaExceeded { what, limit });
            }
            if let Some(refusal) = self.over_quota(RESOURCE_CLAIM_COST + size(resource, key)) {
                return Reply::Refused(refusal);
            }
        }
        self.resources.claim(resource, key);
        if self.resources.len() > self.limits.resource_claims as usize {
            self.resources.reclaim_oldest();
        }
        self.resource_claimed(at.index, resource, key)
    }

    fn resource_claimed(&self, revision: LogIndex, resource: &str, key: &str) -> Reply {
        let keys = self.resources.by_resource.get(resource);
        let other = keys.and_then(|keys| keys.keys().find(|other| other.as_str() != key)).cloned();
        Reply::ResourceClaimed { revision, keys: keys.map_or(0, BTreeMap::len) as u32, other }
    }

    /// The answer to a claim that need not be made again: it is on record, and so new that half as many
    /// claims as are kept must be made before it can be the next to be reclaimed.
    pub fn fresh_claim(&self, resource: &str, key: &str) -> Option<Reply> {
        let number = self.resources.find(resource, key)?;
        let is_fresh = self.resources.last - number < u64::from(self.limits.resource_claims / 2);
        is_fresh.then(|| self.resource_claimed(self.applied, resource, key))
    }

    /// Forgets all claims of a key; says whether there were any.
    pub(crate) fn withdraw_claims(&mut self, key: &Key) -> bool {
        let Some(resources) = self.resources.by_key.get(key).cloned() else { return false };
        if !self.mutants.has(Mutant::R1) {
            resources.iter().for_each(|resource| self.resources.remove(resource, key));
        }
        true
    }

    /// A page of resources in order, from behind `after`, of at most [`PAGE_ROWS_MAX`] rows; and whether
    /// more follow. `conflicts`: only those that several keys claim.
    pub fn list_resources(
        &self,
        conflicts: bool,
        after: Option<&str>,
        rows: u32,
    ) -> (Vec<ResourceRow>, bool) {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let registry = &self.resources;
        let rows = rows.min(PAGE_ROWS_MAX) as usize;
        let mut page: Vec<ResourceRow> = if conflicts {
            let names = registry.conflicts.range::<str, _>(from).take(rows + 1);
            names.filter_map(|name| Some(registry.row(name, registry.by_resource.get(name)?))).collect()
        } else {
            let all = registry.by_resource.range::<str, _>(from).take(rows + 1);
            all.map(|(name, keys)| registry.row(name, keys)).collect()
        };
        let more = page.len() > rows;
        page.truncate(rows);
        (page, more)
    }
}

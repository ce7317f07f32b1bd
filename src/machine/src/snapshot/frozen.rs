//! Maps and queues whose state at a freeze is given piece by piece while they change.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

/// A map: keys behind `given` are still to be given, with the values they had.
pub(crate) struct FrozenMap<K, V> {
    given: Option<K>,
    left: usize,
    /// Keys that changed since, with what they had.
    saved: BTreeMap<K, Option<V>>,
}

impl<K: Ord + Clone, V: Clone> FrozenMap<K, V> {
    pub(crate) fn new(map: &BTreeMap<K, V>) -> FrozenMap<K, V> {
        FrozenMap { given: None, left: map.len(), saved: BTreeMap::new() }
    }

    /// To be called before a key changes, with what it has.
    pub(crate) fn keep(&mut self, key: &K, before: Option<&V>) {
        let is_due = self.left > 0 && self.given.as_ref().is_none_or(|given| key > given);
        if is_due && !self.saved.contains_key(key) {
            self.saved.insert(key.clone(), before.cloned());
        }
    }

    /// The next entries, until they have so many bytes. `None` when all were given.
    pub(crate) fn give(
        &mut self,
        live: &BTreeMap<K, V>,
        bytes_max: usize,
        size: impl Fn(&K, &V) -> usize,
    ) -> Option<Vec<(K, V)>> {
        if self.left == 0 {
            return None;
        }
        let from = (self.given.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut live = live.range(from).peekable();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while self.left > 0 && bytes < bytes_max {
            let is_saved = match (self.saved.first_key_value(), live.peek()) {
                (Some((saved, _)), Some((key, _))) => saved <= key,
                (saved, _) => saved.is_some(),
            };
            let entry = if is_saved {
                let (key, value) = self.saved.pop_first()?;
                if live.peek().is_some_and(|(live, _)| **live == key) {
                    live.next();
                }
                value.map(|value| (key, value))
            } else {
                live.next().map(|(key, value)| (key.clone(), value.clone()))
            };
            if let Some((key, value)) = entry {
                bytes += size(&key, &value);
                entries.push((key, value));
                self.left -= 1;
            }
        }
        self.given = entries.last().map(|(key, _)| key.clone());
        if self.left == 0 {
            self.saved.clear();
        }
        Some(entries)
    }
}

/// A queue that grows at its end, shrinks at its front and is never changed between.
pub(crate) struct FrozenQueue<T> {
    len: usize,
    given: usize,
    /// How many have left since the freeze, and those of them still to be given.
    gone: usize,
    saved: VecDeque<T>,
}

impl<T: Clone> FrozenQueue<T> {
    pub(crate) fn new(queue: &VecDeque<T>) -> FrozenQueue<T> {
        FrozenQueue { len: queue.len(), given: 0, gone: 0, saved: VecDeque::new() }
    }

    /// To be called when the first has left.
    pub(crate) fn keep(&mut self, first: &T) {
        if (self.given..self.len).contains(&self.gone) {
            self.saved.push_back(first.clone());
        }
        self.gone += 1;
    }

    /// The next ones, until they have so many bytes. `None` when all were given.
    pub(crate) fn give(
        &mut self,
        live: &VecDeque<T>,
        bytes_max: usize,
        size: impl Fn(&T) -> usize,
    ) -> Option<Vec<T>> {
        if self.given == self.len {
            return None;
        }
        let (mut items, mut bytes) = (Vec::new(), 0);
        while self.given < self.len && bytes < bytes_max {
            let item = match self.given.checked_sub(self.gone) {
                None => self.saved.pop_front()?,
                Some(at) => live.get(at)?.clone(),
            };
            self.given += 1;
            bytes += size(&item);
            items.push(item);
        }
        Some(items)
    }
}

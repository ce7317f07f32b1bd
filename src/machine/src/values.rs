//! Ephemeral keys and their values (DESIGN section 5): found and listed in the order of the keys, and by
//! the session that put them. Their names are a space of their own, apart from those of locks.
//!
//! Puts are rare beside acquires, so these are plain maps, and nothing of them stands in the records that
//! acquires work on but the number of a session's keys.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use palisade_types::{Cause, Key, LogIndex, Name};

use crate::snapshot::frozen::{FrozenMap, FrozenQueue};

/// What an ephemeral key holds.
#[derive(Clone)]
pub(crate) struct Value {
    pub(crate) bytes: Arc<[u8]>,
    /// Whose: the session's id within the shard, and its owner tag.
    pub(crate) session: LogIndex,
    pub(crate) owner: Option<Name>,
    /// The revisions of the first put and of the last.
    pub(crate) created: LogIndex,
    pub(crate) modified: LogIndex,
    /// Why its session ended, if it has: the key waits for a sweep.
    pub(crate) ending: Option<Cause>,
}

/// All ephemeral keys.
#[derive(Default)]
pub(crate) struct Values {
    by_key: BTreeMap<Key, Value>,
    /// The keys of each live session that has some.
    by_session: BTreeMap<LogIndex, BTreeSet<Key>>,
    /// Those of ended sessions, first to go first.
    ending: VecDeque<Key>,
    /// Of all names and values.
    bytes: u64,
    frozen: Option<Box<FrozenMap<Key, Value>>>,
    frozen_ending: Option<Box<FrozenQueue<Key>>>,
}

fn size(key: &Key, value: &Value) -> u64 {
    (key.len() + value.bytes.len()) as u64
}

impl Values {
    fn keep(&mut self, key: &Key) {
        if let Some(frozen) = &mut self.frozen {
            frozen.keep(key, self.by_key.get(key));
        }
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(Box::new(FrozenMap::new(&self.by_key)));
        self.frozen_ending = Some(Box::new(FrozenQueue::new(&self.ending)));
    }

    pub(crate) fn thaw(&mut self) {
        (self.frozen, self.frozen_ending) = (None, None);
    }

    /// The next keys and values of the freeze.
    pub(crate) fn give(&mut self, bytes_max: usize) -> Option<Vec<(Key, Value)>> {
        let cost = |key: &Key, value: &Value| 72 + size(key, value) as usize;
        self.frozen.as_mut()?.give(&self.by_key, bytes_max, cost)
    }

    /// The next of those that waited for a sweep at the freeze.
    pub(crate) fn give_ending(&mut self, bytes_max: usize) -> Option<Vec<Key>> {
        self.frozen_ending.as_mut()?.give(&self.ending, bytes_max, |key| 8 + key.len())
    }

    /// Keys that ascend, and those of them that wait for a sweep, each once.
    pub(crate) fn restored(keys: Vec<(Key, Value)>, ending: Vec<Key>) -> Option<Values> {
        if !keys.is_sorted_by(|a, b| a.0 < b.0) {
            return None;
        }
        let bytes = keys.iter().map(|(key, value)| size(key, value)).sum();
        let waiting = keys.iter().filter(|(_, value)| value.ending.is_some()).map(|(key, _)| key);
        let listed: BTreeSet<&Key> = ending.iter().collect();
        if listed.len() != ending.len() || !waiting.eq(listed.iter().copied()) {
            return None;
        }
        let mut by_session: BTreeMap<LogIndex, Vec<Key>> = BTreeMap::new();
        for (key, value) in keys.iter().filter(|(_, value)| value.ending.is_none()) {
            by_session.entry(value.session).or_default().push(key.clone());
        }
        let by_session = by_session.into_iter().map(|(session, keys)| (session, keys.into_iter().collect()));
        let by_session = by_session.collect();
        let (by_key, ending) = (keys.into_iter().collect(), ending.into());
        Some(Values { by_key, by_session, ending, bytes, frozen: None, frozen_ending: None })
    }

    /// The live sessions that have keys, and how many.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (LogIndex, u32)> {
        self.by_session.iter().map(|(&session, keys)| (session, keys.len() as u32))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn ending_len(&self) -> usize {
        self.ending.len()
    }

    /// Bytes of all names and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn find(&self, key: &str) -> Option<&Value> {
        self.by_key.get(key)
    }

    /// Puts a value of a live session in the place of what the key had; returns that.
    pub(crate) fn insert(&mut self, key: Key, value: Value) -> Option<Value> {
        self.keep(&key);
        self.bytes += size(&key, &value);
        self.by_session.entry(value.session).or_default().insert(key.clone());
        let session = value.session;
        let before = self.by_key.insert(key.clone(), value);
        if let Some(before) = &before {
            self.bytes -= size(&key, before);
            if before.session != session {
                self.disown(before.session, &key);
            }
        }
        before
    }

    /// Takes a key away, which is not among those that wait for a sweep.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Value> {
        self.keep(key);
        let value = self.by_key.remove(key)?;
        self.bytes -= size(key, &value);
        self.disown(value.session, key);
        Some(value)
    }

    fn disown(&mut self, session: LogIndex, key: &Key) {
        let Some(keys) = self.by_session.get_mut(&session) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.by_session.remove(&session);
        }
    }

    /// The keys of a session that ends, in order: they are no longer found by it.
    pub(crate) fn take_keys(&mut self, session: LogIndex) -> BTreeSet<Key> {
        self.by_session.remove(&session).unwrap_or_default()
    }

    /// Puts a key of an ended session among those that wait for a sweep.
    pub(crate) fn leave(&mut self, key: Key, cause: Cause) {
        self.keep(&key);
        let value = self.by_key.get_mut(&key).expect("a session's keys are there");
        value.ending = Some(cause);
        self.ending.push_back(key);
    }

    /// The next key to go in a sweep, no longer among those that wait.
    pub(crate) fn next_ending(&mut self) -> Option<Key> {
        let first = self.ending.pop_front()?;
        if let Some(frozen) = &mut self.frozen_ending {
            frozen.keep(&first);
        }
        Some(first)
    }

    /// The keys with this prefix from behind `after`, in order.
    pub(crate) fn after<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let keys = self.by_key.range::<str, _>((from, Bound::Unbounded));
        keys.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// All of them, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.by_key.iter()
    }

    /// Those that wait for a sweep, first to go first.
    pub(crate) fn ending(&self) -> impl Iterator<Item = &Key> {
        self.ending.iter()
    }

    /// Asserts that the indexes agree. `live` gives how many keys a live session counts as its own.
    pub(crate) fn check(&self, live: impl Fn(LogIndex) -> Option<u32>) {
        let mut bytes = 0;
        for (key, value) in &self.by_key {
            bytes += size(key, value);
            assert!(value.created <= value.modified, "a key is put before it is put again");
            let listed = self.by_session.get(&value.session).is_some_and(|keys| keys.contains(key));
            assert_eq!(listed, value.ending.is_none(), "{key} is its session's, or about to go");
            assert_eq!(live(value.session).is_some(), listed, "E1: {key} and its session live together");
        }
        assert_eq!(self.bytes, bytes);
        for (&session, keys) in &self.by_session {
            assert_eq!(live(session), Some(keys.len() as u32), "session {session} counts its keys");
            assert!(!keys.is_empty());
        }
        let listed: usize = self.by_session.values().map(BTreeSet::len).sum();
        assert_eq!(listed + self.ending.len(), self.by_key.len(), "every key is in one place");
        assert!(self.ending.iter().all(|key| self.by_key.get(key).is_some_and(|v| v.ending.is_some())));
    }
}

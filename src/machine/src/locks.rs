//! The records of keys: found by hash, listed in order, reclaimed when idle for longest (DESIGN
//! sections 1 and 3).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::ops::Bound;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use palisade_types::limits::TRANSITIONS_KEPT;
use palisade_types::{Class, Epoch, Key, LogIndex, Name, TransitionKind};

use crate::claims::List;
use crate::slab::{NONE, Slab, Slot};

/// What every acquire and release of a key touches.
pub(crate) struct Lock {
    pub(crate) key: Key,
    /// The last epoch granted.
    pub(crate) epoch: Epoch,
    /// The claim that holds it; an idle key has none, and no queue either.
    pub(crate) holder: Slot,
    pub(crate) queue: List,
    idle_prev: Slot,
    idle_next: Slot,
    pub(crate) class: Class,
}

/// One of a key's last transitions.
#[derive(Clone, Copy)]
pub(crate) struct Happened {
    pub(crate) revision: LogIndex,
    pub(crate) clock_ms: u64,
    /// The session's id within the shard.
    pub(crate) session: LogIndex,
    pub(crate) epoch: Epoch,
    pub(crate) kind: TransitionKind,
}

/// What only `describe` reads.
#[derive(Default)]
pub(crate) struct Cold {
    /// Of the last grant.
    pub(crate) resource: Option<Name>,
    /// The last transitions, in a ring that grows to [`TRANSITIONS_KEPT`].
    ring: Vec<Happened>,
    /// Where the oldest stands once the ring is full.
    oldest: u8,
}

impl Cold {
    pub(crate) fn record(&mut self, happened: Happened) {
        if self.ring.len() < TRANSITIONS_KEPT {
            if self.ring.is_empty() {
                self.ring.reserve_exact(2);
            }
            self.ring.push(happened);
            return;
        }
        self.ring[usize::from(self.oldest)] = happened;
        self.oldest = (self.oldest + 1) % TRANSITIONS_KEPT as u8;
    }

    /// Newest first.
    pub(crate) fn transitions(&self) -> impl Iterator<Item = &Happened> {
        let (newer, older) = self.ring.split_at(usize::from(self.oldest));
        newer.iter().rev().chain(older.iter().rev())
    }
}

/// All records of keys.
pub(crate) struct Locks {
    pub(crate) records: Slab<Lock>,
    /// Beside `records`, in the same places.
    cold: Vec<Cold>,
    by_key: HashTable<Slot>,
    /// For listings. Changes only when a record comes or goes.
    order: BTreeMap<Key, Slot>,
    /// The idle one that is to be reclaimed first, and the last.
    idle_head: Slot,
    idle_tail: Slot,
    idle_len: u32,
    idle_max: u32,
    /// No reclaimed record had a higher epoch.
    pub(crate) epoch_floor: Epoch,
    hasher: FixedState,
}

impl Locks {
    pub(crate) fn new(idle_max: u32, hasher: FixedState) -> Locks {
        Locks {
            records: Slab::new(),
            cold: Vec::new(),
            by_key: HashTable::new(),
            order: BTreeMap::new(),
            idle_head: NONE,
            idle_tail: NONE,
            idle_len: 0,
            idle_max,
            epoch_floor: Epoch(0),
            hasher,
        }
    }

    pub(crate) fn find(&self, key: &str) -> Option<Slot> {
        let hash = self.hasher.hash_one(key);
        self.by_key.find(hash, |&slot| *self.records[slot].key == *key).copied()
    }

    pub(crate) fn cold(&self, slot: Slot) -> &Cold {
        &self.cold[slot as usize]
    }

    pub(crate) fn cold_mut(&mut self, slot: Slot) -> &mut Cold {
        &mut self.cold[slot as usize]
    }

    pub(crate) fn idle_len(&self) -> u32 {
        self.idle_len
    }

    /// A record for a key that has none. Nobody holds it, and it is not on the idle list: the caller
    /// grants it at once.
    pub(crate) fn create(&mut self, key: Key, class: Class) -> Slot {
        let Locks { records, cold, by_key, order, hasher, .. } = self;
        let hash = hasher.hash_one(&*key);
        let slot = records.insert(Lock {
            key: key.clone(),
            epoch: self.epoch_floor,
            holder: NONE,
            queue: List::EMPTY,
            idle_prev: NONE,
            idle_next: NONE,
            class,
        });
        if slot as usize == cold.len() {
            cold.push(Cold::default());
        }
        by_key.insert_unique(hash, slot, |&s| hasher.hash_one(&*records[s].key));
        let before = order.insert(key, slot);
        assert!(before.is_none(), "a key has one record");
        slot
    }

    /// Puts a key that nobody holds or awaits at the end of the idle list, and reclaims the record
    /// that has been idle for longest if there are too many now.
    pub(crate) fn make_idle(&mut self, slot: Slot) {
        let lock = &mut self.records[slot];
        assert!(lock.holder == NONE && lock.queue.len == 0, "idle means free and not awaited");
        lock.idle_prev = self.idle_tail;
        lock.idle_next = NONE;
        match self.idle_tail {
            NONE => self.idle_head = slot,
            tail => self.records[tail].idle_next = slot,
        }
        self.idle_tail = slot;
        self.idle_len += 1;
        if self.idle_len > self.idle_max {
            self.reclaim(self.idle_head);
        }
        assert!(self.idle_len <= self.idle_max);
    }

    /// Takes a key off the idle list, to be granted.
    pub(crate) fn wake(&mut self, slot: Slot) {
        let lock = &mut self.records[slot];
        let (prev, next) = (lock.idle_prev, lock.idle_next);
        (lock.idle_prev, lock.idle_next) = (NONE, NONE);
        match prev {
            NONE => {
                assert_eq!(self.idle_head, slot, "an idle key without a predecessor is the first");
                self.idle_head = next;
            }
            prev => self.records[prev].idle_next = next,
        }
        match next {
            NONE => self.idle_tail = prev,
            next => self.records[next].idle_prev = prev,
        }
        self.idle_len -= 1;
    }

    /// Forgets an idle record; its epoch lives on in the floor.
    fn reclaim(&mut self, slot: Slot) {
        self.wake(slot);
        let hash = self.hasher.hash_one(&*self.records[slot].key);
        const LISTED: &str = "a record is in every index";
        self.by_key.find_entry(hash, |&s| s == slot).expect(LISTED).remove();
        let lock = self.records.remove(slot);
        self.order.remove(&*lock.key).expect(LISTED);
        self.cold[slot as usize] = Cold::default();
        self.epoch_floor = self.epoch_floor.max(lock.epoch);
    }

    /// Records from behind a key, in the order of their keys.
    pub(crate) fn after(&self, after: Option<&str>) -> impl Iterator<Item = Slot> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range::<str, _>((from, Bound::Unbounded)).map(|(_, &slot)| slot)
    }

    /// Idle records, the one to be reclaimed first ahead.
    pub(crate) fn idle(&self) -> impl Iterator<Item = &Lock> {
        let mut at = self.idle_head;
        core::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let lock = &self.records[at];
            at = lock.idle_next;
            Some(lock)
        })
    }

    pub(crate) fn check(&self) {
        let count = self.records.len();
        assert!(count == self.by_key.len() && count == self.order.len());
        for (key, &slot) in &self.order {
            assert!(self.records[slot].key == *key && self.find(key) == Some(slot));
        }
        let mut idle = 0;
        for lock in self.idle() {
            assert!(lock.holder == NONE && lock.queue.len == 0, "an idle key is free and not awaited");
            idle += 1;
        }
        let free = self.records.iter().filter(|(_, lock)| lock.holder == NONE).count();
        assert!(idle == self.idle_len && free == idle as usize, "every free key is idle, and only those");
        assert!(idle <= self.idle_max);
    }
}

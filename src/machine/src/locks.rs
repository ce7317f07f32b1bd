//! The records of keys: found by hash, listed in order, reclaimed when idle for longest (DESIGN
//! sections 1 and 3).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use core::ops::Bound;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use palisade_types::limits::TRANSITIONS_KEPT;
use palisade_types::{Class, Epoch, Key, LogIndex, Name, TransitionKind};

use crate::claims::List;
use crate::idle::Idle;
use crate::slab::{NONE, Slab, Slot};

/// What every acquire and release of a key touches: one cache line.
#[repr(align(64))]
pub(crate) struct Lock {
    pub(crate) key: Key,
    /// Of the last grant.
    pub(crate) resource: Option<Name>,
    /// The last epoch granted.
    pub(crate) epoch: Epoch,
    /// The claim that holds it, of several the one with the lowest epoch; an idle key has none, and no
    /// queue either.
    pub(crate) holder: Slot,
    pub(crate) queue: List,
    /// Of an idle key: its chunk in the order of the idle ones. Of one that is held in shared mode: its
    /// group of holders.
    pub(crate) beside: Slot,
    pub(crate) class: Class,
    /// The first of its queue may enter, but the entry had no room: a sweep goes on.
    pub(crate) is_due: bool,
}

const _: () = assert!(size_of::<Option<Lock>>() == 64);

/// The point in the log, and on the cluster's clock, at which something happened.
#[derive(Clone, Copy)]
pub(crate) struct When {
    pub(crate) revision: LogIndex,
    pub(crate) clock_ms: u64,
}

/// One of a key's past holders, from the grant to the end: one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Tenure {
    /// The session's id within the shard.
    pub(crate) session: LogIndex,
    pub(crate) epoch: Epoch,
    pub(crate) granted: When,
    pub(crate) ended: When,
    pub(crate) how: TransitionKind,
}

/// Each tenure is two of the transitions to keep; that of the present holder is in its claim.
pub(crate) const TENURES_KEPT: usize = TRANSITIONS_KEPT / 2;

/// A key's last tenures. A grant has an epoch one above the grant before, so each tenure has its place,
/// and nothing else is read to write it. Holders that share a key may leave in any order: of those with
/// the same place the last to leave is kept.
pub(crate) struct History([Option<Tenure>; TENURES_KEPT]);

const _: () = assert!(size_of::<Option<History>>() == 64 * TENURES_KEPT);

fn place(epoch: Epoch) -> usize {
    (epoch.0 % TENURES_KEPT as u64) as usize
}

impl History {
    pub(crate) const EMPTY: History = History([None; TENURES_KEPT]);

    /// The tenure of an epoch, if it is still kept.
    pub(crate) fn tenure(&self, epoch: Epoch) -> Option<&Tenure> {
        self.0[place(epoch)].as_ref().filter(|tenure| tenure.epoch == epoch)
    }

    /// Keeps a tenure; says in which place.
    pub(crate) fn record(&mut self, tenure: Tenure) -> usize {
        let place = place(tenure.epoch);
        self.0[place] = Some(tenure);
        place
    }

    /// All that are kept, in no order of time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tenure> {
        self.0.iter().flatten()
    }
}

fn hash(hasher: &FixedState, key: &[u8]) -> u64 {
    let mut hash = hasher.build_hasher();
    hash.write(key);
    hash.finish()
}

/// All records of keys.
pub(crate) struct Locks {
    pub(crate) records: Slab<Lock>,
    /// Beside `records`, in the same places: what only `describe` reads.
    histories: Slab<History>,
    by_key: HashTable<Slot>,
    /// For listings. Changes only when a record comes or goes.
    order: BTreeMap<Key, Slot>,
    idle: Idle,
    idle_max: u32,
    /// No reclaimed record had a higher epoch.
    pub(crate) epoch_floor: Epoch,
    /// Of keys and resources.
    pub(crate) name_bytes: u64,
    hasher: FixedState,
}

/// Bytes of a name that may be absent.
pub(crate) fn bytes_of(name: Option<&Name>) -> u64 {
    name.map_or(0, |name| name.len() as u64)
}

impl Locks {
    pub(crate) fn new(idle_max: u32, hasher: FixedState) -> Locks {
        Locks {
            records: Slab::new(),
            histories: Slab::new(),
            by_key: HashTable::new(),
            order: BTreeMap::new(),
            idle: Idle::new(),
            idle_max,
            epoch_floor: Epoch(0),
            name_bytes: 0,
            hasher,
        }
    }

    pub(crate) fn freeze(&mut self, is_leaky: bool) {
        self.records.freeze(is_leaky);
        self.histories.freeze(is_leaky);
        self.idle.freeze();
    }

    pub(crate) fn thaw(&mut self) {
        self.records.thaw();
        self.histories.thaw();
        self.idle.thaw();
    }

    /// Of these records and their histories, which stand in the same places. Nobody is idle yet.
    /// `bounds`: how many idle keys there may be, and the floor.
    pub(crate) fn restored(
        records: Slab<Lock>,
        histories: Slab<History>,
        bounds: (u32, Epoch),
        hasher: FixedState,
    ) -> Option<Locks> {
        let (idle_max, epoch_floor) = bounds;
        let mut order: Vec<(Key, Slot)> =
            records.iter().map(|(slot, lock)| (lock.key.clone(), slot)).collect();
        order.sort_unstable();
        let is_whole = order.is_sorted_by(|a, b| a.0 < b.0)
            && records.iter().map(|r| r.0).eq(histories.iter().map(|h| h.0));
        let mut by_key = HashTable::with_capacity(records.len());
        let mut name_bytes = 0;
        for (slot, lock) in records.iter() {
            name_bytes += lock.key.len() as u64 + bytes_of(lock.resource.as_ref());
            let hash_of = |&s: &Slot| hash(&hasher, records[s].key.as_bytes());
            by_key.insert_unique(hash(&hasher, lock.key.as_bytes()), slot, hash_of);
        }
        let order = order.into_iter().collect();
        let idle = Idle::new();
        let locks =
            Locks { records, histories, by_key, order, idle, idle_max, epoch_floor, name_bytes, hasher };
        is_whole.then_some(locks)
    }

    /// Puts the keys that nobody holds in the order of the idle ones; says whether they are those.
    pub(crate) fn restore_idle(&mut self, idle: &[Slot]) -> bool {
        let free = self.records.iter().filter(|(_, lock)| lock.holder == NONE).count();
        let mut is_listed = alloc::vec![false; self.records.len() + self.records.free_len()];
        for &slot in idle {
            let Some(lock) = self.records.get(slot).filter(|lock| lock.holder == NONE) else { return false };
            if !lock.queue.is_empty() || core::mem::replace(&mut is_listed[slot as usize], true) {
                return false;
            }
            self.records[slot].beside = self.idle.push(slot);
        }
        free == idle.len()
    }

    pub(crate) fn histories_mut(&mut self) -> &mut Slab<History> {
        &mut self.histories
    }

    /// The next of the idle keys that were idle at the freeze.
    pub(crate) fn give_idle(&mut self, max: usize) -> Option<Vec<Slot>> {
        self.idle.give(max)
    }

    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<Slot> {
        let hash = hash(&self.hasher, key);
        self.by_key.find(hash, |&slot| self.records[slot].key.as_bytes() == key).copied()
    }

    /// A record that is the key's if it has one.
    pub(crate) fn guess(&self, key: &[u8]) -> Slot {
        self.by_key.find(hash(&self.hasher, key), |_| true).copied().unwrap_or(NONE)
    }

    /// Reads from an idle key's place in the order, for the sake of reading.
    pub(crate) fn look_idle(&self, lock: &Lock) -> u64 {
        u64::from(self.idle.look(lock.beside))
    }

    pub(crate) fn history(&self, slot: Slot) -> &History {
        &self.histories[slot]
    }

    pub(crate) fn history_mut(&mut self, slot: Slot) -> &mut History {
        &mut self.histories[slot]
    }

    pub(crate) fn idle_len(&self) -> u32 {
        self.idle.len()
    }

    /// A record for a key that has none. Nobody holds it, and it is not among the idle: the caller
    /// grants it at once.
    pub(crate) fn create(&mut self, key: Key, class: Class) -> Slot {
        self.name_bytes += key.len() as u64;
        let Locks { records, histories, by_key, order, hasher, .. } = self;
        let hash = hash(hasher, key.as_bytes());
        let slot = records.insert(Lock {
            key: key.clone(),
            resource: None,
            epoch: self.epoch_floor,
            holder: NONE,
            queue: List::EMPTY,
            beside: NONE,
            class,
            is_due: false,
        });
        let beside = histories.insert(History::EMPTY);
        assert_eq!(beside, slot, "records and histories come and go together");
        by_key.insert_unique(hash, slot, |&s| self::hash(hasher, records[s].key.as_bytes()));
        let before = order.insert(key, slot);
        assert!(before.is_none(), "a key has one record");
        slot
    }

    /// Puts a key that nobody holds or awaits at the end of the idle ones, and reclaims the record
    /// that has been idle for longest if there are too many now.
    pub(crate) fn make_idle(&mut self, slot: Slot) {
        let lock = &mut self.records[slot];
        assert!(lock.holder == NONE && lock.queue.len == 0 && !lock.is_due, "idle is free and not awaited");
        lock.beside = self.idle.push(slot);
        if self.idle.len() > self.idle_max {
            let oldest = self.idle.iter().next();
            self.reclaim(oldest.expect("one at least is idle"));
        }
        assert!(self.idle.len() <= self.idle_max);
    }

    /// Takes a key out of the idle ones, to be granted.
    pub(crate) fn wake(&mut self, slot: Slot) {
        let chunk = core::mem::replace(&mut self.records[slot].beside, NONE);
        self.idle.remove(chunk, slot);
    }

    /// Forgets an idle record; its epoch lives on in the floor.
    pub(crate) fn reclaim(&mut self, slot: Slot) {
        self.wake(slot);
        let hash = hash(&self.hasher, self.records[slot].key.as_bytes());
        const LISTED: &str = "a record is in every index";
        self.by_key.find_entry(hash, |&s| s == slot).expect(LISTED).remove();
        let lock = self.records.remove(slot);
        self.name_bytes -= lock.key.len() as u64 + bytes_of(lock.resource.as_ref());
        self.histories.remove(slot);
        self.order.remove(&*lock.key).expect(LISTED);
        self.epoch_floor = self.epoch_floor.max(lock.epoch);
    }

    /// Records from behind a key, in the order of their keys.
    pub(crate) fn after(&self, after: Option<&str>) -> impl Iterator<Item = Slot> {
        self.range(after, None).map(|(_, slot)| slot)
    }

    /// Records and their keys from behind a key, or from a key on, in order.
    pub(crate) fn range(
        &self,
        after: Option<&str>,
        first: Option<&str>,
    ) -> impl Iterator<Item = (&Key, Slot)> {
        let from = first.map(Bound::Included).or(after.map(Bound::Excluded)).unwrap_or(Bound::Unbounded);
        self.order.range::<str, _>((from, Bound::Unbounded)).map(|(key, &slot)| (key, slot))
    }

    /// Idle records, the one to be reclaimed first ahead.
    pub(crate) fn idle(&self) -> impl Iterator<Item = &Lock> {
        self.idle.iter().map(|slot| &self.records[slot])
    }

    pub(crate) fn check(&self) {
        let count = self.records.len();
        assert!(count == self.by_key.len() && count == self.order.len() && count == self.histories.len());
        for (key, &slot) in &self.order {
            assert!(self.records[slot].key == *key && self.find(key.as_bytes()) == Some(slot));
        }
        let names = |lock: &Lock| lock.key.len() as u64 + bytes_of(lock.resource.as_ref());
        assert_eq!(self.name_bytes, self.records.iter().map(|(_, lock)| names(lock)).sum::<u64>());
        self.idle.check();
        for lock in self.idle() {
            assert!(lock.holder == NONE && lock.queue.len == 0, "an idle key is free and not awaited");
        }
        let free = self.records.iter().filter(|(_, lock)| lock.holder == NONE).count();
        assert_eq!(free, self.idle.len() as usize, "every free key is idle, and only those");
        assert!(self.idle.len() <= self.idle_max);
    }
}

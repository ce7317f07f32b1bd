//! Records in one vector, named by their place. A place is used again after its record is gone;
//! which place a record gets is the same on every replica, and yet nothing that is seen outside
//! depends on it.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// The place of a record.
pub(crate) type Slot = u32;
/// No record.
pub(crate) const NONE: Slot = u32::MAX;

const GONE: &str = "a slot is only kept while its record lives";

pub(crate) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, item: T) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.items[slot as usize] = Some(item);
            return slot;
        }
        let slot = self.items.len() as Slot;
        assert!(slot != NONE, "memory holds fewer records than there are slots");
        self.items.push(Some(item));
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> T {
        let item = self.items[slot as usize].take().expect(GONE);
        self.free.push(slot);
        item
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// In the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.items.iter().enumerate().filter_map(|(i, item)| Some((i as Slot, item.as_ref()?)))
    }
}

impl<T> Index<Slot> for Slab<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        self.items[slot as usize].as_ref().expect(GONE)
    }
}

impl<T> IndexMut<Slot> for Slab<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        self.items[slot as usize].as_mut().expect(GONE)
    }
}

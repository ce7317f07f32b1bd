//! Records in segments, named by their place. A place is used again after its record is gone; which
//! place a record gets is the same on every replica, and yet nothing that is seen outside depends on
//! it.
//!
//! Segments, because one vector of everything would be copied as a whole, by a single command, each
//! time it outgrows its room.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// The place of a record.
pub(crate) type Slot = u32;
/// No record.
pub(crate) const NONE: Slot = u32::MAX;

const GONE: &str = "a slot is only kept while its record lives";

/// The bits of a slot that name its place in the segment.
const SEGMENT_BITS: u32 = 9;
const SEGMENT: usize = 1 << SEGMENT_BITS;

pub(crate) struct Slab<T> {
    segments: Vec<Box<[Option<T>; SEGMENT]>>,
    /// Places that were in use so far.
    used: Slot,
    /// Those of them that are free again; the last freed is used first: the caches still know it.
    free: Vec<Slot>,
}

#[inline]
fn place(slot: Slot) -> (usize, usize) {
    ((slot >> SEGMENT_BITS) as usize, slot as usize % SEGMENT)
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { segments: Vec::new(), used: 0, free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, item: T) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| self.unused());
        let (segment, at) = place(slot);
        self.segments[segment][at] = Some(item);
        slot
    }

    #[cold]
    fn unused(&mut self) -> Slot {
        let slot = self.used;
        assert!(slot != NONE, "memory holds fewer records than there are slots");
        self.used += 1;
        if place(slot).0 == self.segments.len() {
            let items: Vec<Option<T>> = (0..SEGMENT).map(|_| None).collect();
            let Ok(segment) = items.try_into() else { unreachable!("it has the length of a segment") };
            self.segments.push(segment);
        }
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> T {
        let (segment, at) = place(slot);
        let item = self.segments[segment][at].take().expect(GONE);
        self.free.push(slot);
        item
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        let (segment, at) = place(slot);
        self.segments.get(segment)?[at].as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// In the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        let items = self.segments.iter().flat_map(|segment| segment.iter());
        items.enumerate().filter_map(|(i, item)| Some((i as Slot, item.as_ref()?)))
    }
}

impl<T> Index<Slot> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: Slot) -> &T {
        let (segment, at) = place(slot);
        self.segments[segment][at].as_ref().expect(GONE)
    }
}

impl<T> IndexMut<Slot> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        let (segment, at) = place(slot);
        self.segments[segment][at].as_mut().expect(GONE)
    }
}

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

pub(crate) struct Slab<T: Record> {
    segments: Vec<Box<[Option<T>; SEGMENT]>>,
    /// Places that were in use so far.
    used: Slot,
    /// Those of them that are free again; the last freed is used first: the caches still know it.
    free: Vec<Slot>,
    /// While a snapshot is taken: what it still needs.
    frozen: Option<Box<Frozen<T::Saved>>>,
}

/// What a slab keeps.
pub(crate) trait Record {
    /// Its form in a snapshot.
    type Saved;
    fn save(&self, slot: Slot) -> Self::Saved;
}

/// The state of a slab at a freeze: slots from `next` to `end` are still to be given, as they were then.
struct Frozen<S> {
    next: Slot,
    end: Slot,
    /// Per segment: records that changed since, as they were.
    sides: Vec<Option<Box<Side<S>>>>,
    /// The free slots: how many there were, how many of those have never been taken since, those taken (the
    /// last ahead), and how many have been given.
    free_len: usize,
    free_low: usize,
    free_taken: Vec<Slot>,
    free_given: usize,
    /// A bug of tests: changes are not kept.
    is_leaky: bool,
}

struct Side<S> {
    /// Per slot of the segment its place in `saved`, or [`UNCHANGED`].
    places: [u16; SEGMENT],
    /// `None`: the slot was free.
    saved: Vec<Option<S>>,
}

const UNCHANGED: u16 = u16::MAX;

#[inline]
fn place(slot: Slot) -> (usize, usize) {
    ((slot >> SEGMENT_BITS) as usize, slot as usize % SEGMENT)
}

impl<T: Record> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { segments: Vec::new(), used: 0, free: Vec::new(), frozen: None }
    }

    pub(crate) fn insert(&mut self, item: T) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| self.unused());
        if self.frozen.is_some() {
            self.keep_free(slot);
            self.keep(slot);
        }
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
        if self.frozen.is_some() {
            self.keep(slot);
        }
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

    /// Fixes what the records are; what changes afterwards is kept until it was given.
    pub(crate) fn freeze(&mut self, is_leaky: bool) {
        let sides = (0..self.segments.len()).map(|_| None).collect();
        self.frozen = Some(Box::new(Frozen {
            next: 0,
            end: self.used,
            sides,
            free_len: self.free.len(),
            free_low: self.free.len(),
            free_taken: Vec::new(),
            free_given: 0,
            is_leaky,
        }));
    }

    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// Keeps a record that is about to change, if it is still to be given.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, slot: Slot) {
        let Some(frozen) = &mut self.frozen else { return };
        if slot < frozen.next || slot >= frozen.end || frozen.is_leaky {
            return;
        }
        let (segment, at) = place(slot);
        let new = || Box::new(Side { places: [UNCHANGED; SEGMENT], saved: Vec::new() });
        let side = frozen.sides[segment].get_or_insert_with(new);
        if side.places[at] == UNCHANGED {
            side.places[at] = side.saved.len() as u16;
            side.saved.push(self.segments[segment][at].as_ref().map(|record| record.save(slot)));
        }
    }

    fn keep_free(&mut self, slot: Slot) {
        let Some(frozen) = &mut self.frozen else { return };
        if self.free.len() < frozen.free_low {
            frozen.free_low = self.free.len();
            frozen.free_taken.push(slot);
        }
    }

    /// The next frozen records, in the order of their places: until they have so many bytes, or so many
    /// places were looked at. `None` when all were given.
    pub(crate) fn give(
        &mut self,
        bytes_max: usize,
        places_max: u32,
        size: impl Fn(&T::Saved) -> usize,
    ) -> Option<Vec<T::Saved>> {
        let frozen = self.frozen.as_mut().filter(|frozen| frozen.next < frozen.end)?;
        let (mut given, mut bytes) = (Vec::new(), 0);
        let last = frozen.end.min(frozen.next.saturating_add(places_max));
        while frozen.next < last && bytes < bytes_max {
            let (slot, (segment, at)) = (frozen.next, place(frozen.next));
            let kept = frozen.sides[segment].as_mut().and_then(|side| {
                let place = side.places[at];
                side.saved.get_mut(usize::from(place)).map(Option::take)
            });
            let live = || self.segments[segment][at].as_ref().map(|record| record.save(slot));
            if let Some(record) = kept.unwrap_or_else(live) {
                bytes += size(&record);
                given.push(record);
            }
            frozen.next += 1;
            if place(frozen.next).0 != segment {
                frozen.sides[segment] = None;
            }
        }
        Some(given)
    }

    /// The next of the slots that were free, from the one that would be used last. `None` when all were given.
    pub(crate) fn give_free(&mut self, max: usize) -> Option<Vec<Slot>> {
        let frozen = self.frozen.as_mut().filter(|frozen| frozen.free_given < frozen.free_len)?;
        let to = frozen.free_len.min(frozen.free_given + max);
        let slot = |at: usize| {
            if at < frozen.free_low { self.free[at] } else { frozen.free_taken[frozen.free_len - 1 - at] }
        };
        let given = (frozen.free_given..to).map(slot).collect();
        frozen.free_given = to;
        Some(given)
    }

    /// How many slots are free.
    pub(crate) fn free_len(&self) -> usize {
        self.free.len()
    }

    /// The slab of these records, ascending, and free slots, if every slot is one or the other.
    pub(crate) fn restored(records: Vec<(Slot, T)>, free: Vec<Slot>) -> Option<Slab<T>> {
        let used = records.len() + free.len();
        let mut slab = Slab::new();
        slab.used = Slot::try_from(used).ok().filter(|&used| used != NONE)?;
        let mut is_free = alloc::vec![false; used];
        for &slot in &free {
            if core::mem::replace(is_free.get_mut(slot as usize)?, true) {
                return None;
            }
        }
        let mut records = records.into_iter();
        let mut segment = Vec::with_capacity(SEGMENT);
        for (slot, is_free) in is_free.into_iter().enumerate() {
            let record = if is_free { None } else { records.next() };
            if record.as_ref().is_some_and(|record| record.0 as usize != slot) {
                return None;
            }
            segment.push(record.map(|record| record.1));
            if segment.len() == SEGMENT || slot + 1 == used {
                segment.resize_with(SEGMENT, || None);
                slab.segments
                    .push(core::mem::replace(&mut segment, Vec::with_capacity(SEGMENT)).try_into().ok()?);
            }
        }
        slab.free = free;
        Some(slab)
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

impl<T: Record> Index<Slot> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: Slot) -> &T {
        let (segment, at) = place(slot);
        self.segments[segment][at].as_ref().expect(GONE)
    }
}

impl<T: Record> IndexMut<Slot> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        if self.frozen.is_some() {
            self.keep(slot);
        }
        let (segment, at) = place(slot);
        self.segments[segment][at].as_mut().expect(GONE)
    }
}

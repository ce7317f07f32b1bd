//! The idle records of keys, the one that has been idle for longest ahead.
//!
//! A key that is acquired leaves from anywhere in the order. A list linked through the records would
//! fetch both neighbours into the caches each time; here the order stands apart, in chunks of a cache
//! line, and whoever leaves makes a hole in its chunk. A chunk goes when it holds nobody any more, so
//! there are never more chunks than idle keys.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::slab::{NONE, Slot};

/// As many as fill a cache line with the rest.
const CHUNK: usize = 11;

#[repr(align(64))]
struct Chunk {
    /// Records, holes ([`NONE`]) among them.
    members: [Slot; CHUNK],
    /// Ascends along the list.
    number: u64,
    prev: Slot,
    /// Of a chunk that is not in use: the next such.
    next: Slot,
    /// Places in use so far.
    used: u8,
    /// Those of them that are no holes.
    live: u8,
}

const _: () = assert!(size_of::<Chunk>() == 64);

pub(crate) struct Idle {
    chunks: Vec<Chunk>,
    /// The first chunk that is not in use.
    free: Slot,
    head: Slot,
    tail: Slot,
    len: u32,
    /// How many chunks were ever appended.
    appended: u64,
    frozen: Option<Box<Frozen>>,
}

/// Where a record stands: its chunk's number, and its place there.
type Place = (u64, u8);

/// The order at a freeze, from `next` to `end`.
struct Frozen {
    next: Place,
    end: Place,
    left: usize,
    /// The chunk that `next` is in, or the first after it.
    chunk: Slot,
    /// Those that left since.
    gone: BTreeMap<Place, Slot>,
}

impl Idle {
    pub(crate) fn new() -> Idle {
        Idle { chunks: Vec::new(), free: NONE, head: NONE, tail: NONE, len: 0, appended: 0, frozen: None }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Puts a record at the end; returns its chunk, by which it is taken out again.
    pub(crate) fn push(&mut self, record: Slot) -> Slot {
        let is_full = self.tail == NONE || usize::from(self.chunks[self.tail as usize].used) == CHUNK;
        if is_full {
            self.append();
        }
        let chunk = &mut self.chunks[self.tail as usize];
        chunk.members[usize::from(chunk.used)] = record;
        chunk.used += 1;
        chunk.live += 1;
        self.len += 1;
        self.tail
    }

    fn append(&mut self) {
        self.appended += 1;
        let number = self.appended;
        let chunk = Chunk { members: [NONE; CHUNK], number, prev: self.tail, next: NONE, used: 0, live: 0 };
        let at = match self.free {
            NONE => {
                self.chunks.push(chunk);
                self.chunks.len() as Slot - 1
            }
            free => {
                self.free = self.chunks[free as usize].next;
                self.chunks[free as usize] = chunk;
                free
            }
        };
        match self.tail {
            NONE => self.head = at,
            tail => self.chunks[tail as usize].next = at,
        }
        self.tail = at;
    }

    /// Takes a record out of its chunk.
    pub(crate) fn remove(&mut self, chunk: Slot, record: Slot) {
        let at = &mut self.chunks[chunk as usize];
        let place = at.members.iter().position(|member| *member == record);
        let place = place.expect("a record is in its chunk");
        at.members[place] = NONE;
        if let Some(frozen) = &mut self.frozen {
            let place = (at.number, place as u8);
            if (frozen.next..frozen.end).contains(&place) {
                frozen.gone.insert(place, record);
            }
        }
        at.live -= 1;
        self.len -= 1;
        if at.live == 0 {
            self.drop_chunk(chunk);
        }
    }

    fn drop_chunk(&mut self, chunk: Slot) {
        let Chunk { prev, next, .. } = self.chunks[chunk as usize];
        if let Some(frozen) = self.frozen.as_mut().filter(|frozen| frozen.chunk == chunk) {
            frozen.chunk = next;
        }
        match prev {
            NONE => self.head = next,
            prev => self.chunks[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.chunks[next as usize].prev = prev,
        }
        self.chunks[chunk as usize].next = self.free;
        self.free = chunk;
    }

    /// Fixes the order as it is now.
    pub(crate) fn freeze(&mut self) {
        let end = self.chunks.get(self.tail as usize).map_or((0, 0), |tail| (tail.number, tail.used));
        let (chunk, left) = (self.head, self.len as usize);
        let gone = BTreeMap::new();
        self.frozen = Some(Box::new(Frozen { next: (0, 0), end, left, chunk, gone }));
    }

    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The next of those that were idle at the freeze, in the order that they had. `None` when all were
    /// given.
    pub(crate) fn give(&mut self, max: usize) -> Option<Vec<Slot>> {
        let Idle { chunks, frozen, .. } = self;
        let frozen = frozen.as_mut().filter(|frozen| frozen.left > 0)?;
        let mut given = Vec::new();
        while given.len() < max && frozen.left > 0 {
            let live = chunks.get(frozen.chunk as usize).map(|chunk| {
                let from = if chunk.number == frozen.next.0 { frozen.next.1 } else { 0 };
                let at = (usize::from(from)..CHUNK).find(|&at| chunk.members[at] != NONE);
                (chunk, at)
            });
            if let Some((chunk, None)) = live {
                let has_gone = |place: Place| place.0 <= chunk.number;
                if !frozen.gone.first_key_value().is_some_and(|(&place, _)| has_gone(place)) {
                    frozen.chunk = chunk.next;
                    continue;
                }
            }
            let live = live.and_then(|(chunk, at)| Some(((chunk.number, at? as u8), chunk.members[at?])));
            let gone = frozen.gone.first_key_value().map(|(&place, &record)| (place, record));
            let (place, record) = match (gone, live) {
                (Some(gone), Some(live)) => gone.min(live),
                (gone, live) => gone.or(live)?,
            };
            frozen.gone.remove(&place);
            frozen.next = (place.0, place.1 + 1);
            frozen.left -= 1;
            given.push(record);
        }
        Some(given)
    }

    /// Reads from a chunk, for the sake of reading.
    pub(crate) fn look(&self, chunk: Slot) -> u8 {
        self.chunks.get(chunk as usize).map_or(0, |chunk| chunk.live)
    }

    /// From the one that has been idle for longest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> {
        let mut at = self.head;
        let chunks = core::iter::from_fn(move || {
            let chunk = self.chunks.get(at as usize)?;
            at = chunk.next;
            Some(chunk)
        });
        chunks.flat_map(|chunk| chunk.members).filter(|&member| member != NONE)
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.iter().count(), self.len as usize);
        let (mut at, mut before, mut in_use) = (self.head, NONE, 0);
        while at != NONE {
            let chunk = &self.chunks[at as usize];
            let live = chunk.members.iter().filter(|&&member| member != NONE).count();
            assert!(chunk.prev == before && live > 0 && live == usize::from(chunk.live));
            assert!(chunk.members[usize::from(chunk.used)..].iter().all(|&member| member == NONE));
            (before, at, in_use) = (at, chunk.next, in_use + 1);
        }
        assert_eq!(self.tail, before);
        let mut free = self.free;
        while free != NONE {
            (free, in_use) = (self.chunks[free as usize].next, in_use + 1);
        }
        assert_eq!(in_use, self.chunks.len(), "a chunk is in use or free");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::Rng;

    #[test]
    fn the_order_is_that_of_a_plain_vector_whoever_leaves() {
        let mut rng = Rng::new(3);
        let (mut idle, mut plain) = (Idle::new(), Vec::new());
        for record in 0..5_000 {
            let leaving = if record % 1_000 < 500 { 300 } else { 1_500 };
            for _ in 0..rng.below(leaving) / 500 {
                if !plain.is_empty() {
                    let at = if rng.per_mille(300) { 0 } else { rng.below(plain.len() as u64) as usize };
                    let (chunk, record) = plain.remove(at);
                    idle.remove(chunk, record);
                }
            }
            plain.push((idle.push(record), record));
            if record % 100 == 0 {
                idle.check();
                assert!(idle.iter().eq(plain.iter().map(|&(_, record)| record)));
            }
        }
        for (chunk, record) in plain {
            idle.remove(chunk, record);
        }
        idle.check();
        assert_eq!((idle.len(), idle.head, idle.tail), (0, NONE, NONE));
    }
}

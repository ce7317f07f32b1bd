//! The idle records of keys, the one that has been idle for longest ahead.
//!
//! A key that is acquired leaves from anywhere in the order. A list linked through the records would
//! fetch both neighbours into the caches each time; here the order stands apart, in chunks of a cache
//! line, and whoever leaves makes a hole in its chunk. A chunk goes when it holds nobody any more, so
//! there are never more chunks than idle keys.

use alloc::vec::Vec;

use crate::slab::{NONE, Slot};

/// As many as fill a cache line with the rest.
const CHUNK: usize = 13;

#[repr(align(64))]
struct Chunk {
    /// Records, holes ([`NONE`]) among them.
    members: [Slot; CHUNK],
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
}

impl Idle {
    pub(crate) fn new() -> Idle {
        Idle { chunks: Vec::new(), free: NONE, head: NONE, tail: NONE, len: 0 }
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
        let chunk = Chunk { members: [NONE; CHUNK], prev: self.tail, next: NONE, used: 0, live: 0 };
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
        let member = at.members.iter_mut().find(|member| **member == record);
        *member.expect("a record is in its chunk") = NONE;
        at.live -= 1;
        self.len -= 1;
        if at.live == 0 {
            self.drop_chunk(chunk);
        }
    }

    fn drop_chunk(&mut self, chunk: Slot) {
        let Chunk { prev, next, .. } = self.chunks[chunk as usize];
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

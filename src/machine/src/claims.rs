//! Claims, and the lists they stand on: a key's queue, or the backlog of ended sessions' keys.
//!
//! A queue is a doubly linked list, so that anybody leaves it in a step. To tell a waiter its place
//! without walking a queue of a hundred thousand, neighbours are gathered in chunks of at most
//! [`CHUNK_MAX`] with a count each: the place is the sum of the chunks ahead and of the few ahead in
//! one's own. Chunks that shrink are merged with a neighbour, so there are at most about
//! `4 * waiters / CHUNK_MAX`.

use palisade_types::{Mode, Name, Ticket};

use crate::locks::{When, bytes_of};
use crate::slab::{NONE, Record, Slab, Slot};

/// The most waiters of one chunk; two neighbours that together fill half of it are merged.
pub(crate) const CHUNK_MAX: u32 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Stands in the queue of its key.
    Queued,
    /// Holds its key.
    Held,
    /// Holds its key, its session has ended, and it stands in the backlog.
    Ending,
    /// Holds its key, its session has ended, and only a death report or force releases it.
    Quarantined,
}

/// What an acquire asked for, as far as its repetition must ask for the same; and, of a claim that was
/// exclusive once, that.
pub(crate) mod flag {
    /// It was ready to wait.
    pub(crate) const WAIT: u8 = 1;
    /// It holds, or wants to hold, its key with others.
    pub(crate) const SHARED: u8 = 2;
    /// Its key stays closed should its session die.
    pub(crate) const QUARANTINE: u8 = 4;
    /// It came from an exclusive grant; no acquire has this.
    pub(crate) const DOWNGRADED: u8 = 8;
}

/// One ticket's claim to one key: one cache line.
#[repr(align(64))]
pub(crate) struct Claim {
    pub(crate) session: Slot,
    pub(crate) lock: Slot,
    pub(crate) ticket: Ticket,
    pub(crate) state: State,
    pub(crate) flags: u8,
    /// Neighbours on the queue or on the list of the backlog.
    pub(crate) prev: Slot,
    pub(crate) next: Slot,
    /// In a queue: its chunk. Held with others: its place among them.
    pub(crate) beside: Slot,
    /// When it was queued or granted.
    pub(crate) since: When,
    pub(crate) resource: Option<Name>,
}

impl Claim {
    pub(crate) fn new(
        session: Slot,
        lock: Slot,
        ticket: Ticket,
        flags: u8,
        resource: Option<Name>,
        since: When,
    ) -> Claim {
        Claim {
            session,
            lock,
            ticket,
            state: State::Queued,
            flags,
            prev: NONE,
            next: NONE,
            beside: NONE,
            since,
            resource,
        }
    }

    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.flags & flag::SHARED != 0
    }

    pub(crate) fn mode(&self) -> Mode {
        if self.is_shared() { Mode::Shared } else { Mode::Exclusive }
    }
}

const _: () = assert!(size_of::<Option<Claim>>() == 64);

/// The ends of a list, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: Slot,
    pub(crate) tail: Slot,
    pub(crate) len: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };
}

struct Chunk {
    count: u32,
    prev: Slot,
    next: Slot,
}

impl Record for Chunk {
    /// Not archived: made again from the queue.
    type Saved = ();

    fn save(&self, _: Slot) {}
}

pub(crate) struct Claims {
    pub(crate) records: Slab<Claim>,
    chunks: Slab<Chunk>,
    /// Of the resources that claims name.
    resource_bytes: u64,
}

impl Claims {
    pub(crate) fn new() -> Claims {
        Claims { records: Slab::new(), chunks: Slab::new(), resource_bytes: 0 }
    }

    /// Of these records; queues are still without chunks.
    pub(crate) fn restored(records: Slab<Claim>) -> Claims {
        let resource_bytes = records.iter().map(|(_, claim)| bytes_of(claim.resource.as_ref())).sum();
        Claims { records, chunks: Slab::new(), resource_bytes }
    }

    /// Whether a list from a snapshot is whole, and its claims belong on it.
    pub(crate) fn restore_list(&self, list: &List, belongs: impl Fn(&Claim) -> bool) -> bool {
        let (mut at, mut before) = (list.head, NONE);
        for _ in 0..list.len {
            let Some(claim) = self.records.get(at) else { return false };
            if claim.prev != before || !belongs(claim) {
                return false;
            }
            (before, at) = (at, claim.next);
        }
        at == NONE && list.tail == before
    }

    /// Makes the chunks of a queue that is whole.
    pub(crate) fn restore_chunks(&mut self, queue: &List) {
        let (mut at, mut chunk) = (queue.head, NONE);
        while at != NONE {
            if chunk == NONE || self.chunks[chunk].count == CHUNK_MAX {
                let new = self.chunks.insert(Chunk { count: 0, prev: chunk, next: NONE });
                if chunk != NONE {
                    self.chunks[chunk].next = new;
                }
                chunk = new;
            }
            self.chunks[chunk].count += 1;
            self.records[at].beside = chunk;
            at = self.records[at].next;
        }
    }

    /// A new claim, on no list.
    pub(crate) fn insert(&mut self, claim: Claim) -> Slot {
        self.resource_bytes += bytes_of(claim.resource.as_ref());
        self.records.insert(claim)
    }

    /// Forgets a claim that is on no list.
    pub(crate) fn remove(&mut self, claim: Slot) -> Claim {
        let claim = self.records.remove(claim);
        self.resource_bytes -= bytes_of(claim.resource.as_ref());
        claim
    }

    /// Bytes of the resources that claims name.
    pub(crate) fn resource_bytes(&self) -> u64 {
        self.resource_bytes
    }

    /// Puts a claim at the end of a list.
    pub(crate) fn link(&mut self, list: &mut List, claim: Slot) {
        let record = &mut self.records[claim];
        assert!(record.prev == NONE && record.next == NONE && list.head != claim, "a claim is on one list");
        record.prev = list.tail;
        match list.tail {
            NONE => list.head = claim,
            tail => self.records[tail].next = claim,
        }
        list.tail = claim;
        list.len += 1;
    }

    /// Takes a claim off its list.
    pub(crate) fn unlink(&mut self, list: &mut List, claim: Slot) {
        let record = &mut self.records[claim];
        let (prev, next) = (record.prev, record.next);
        (record.prev, record.next) = (NONE, NONE);
        match prev {
            NONE => {
                assert_eq!(list.head, claim, "a claim without a predecessor is the head");
                list.head = next;
            }
            prev => self.records[prev].next = next,
        }
        match next {
            NONE => {
                assert_eq!(list.tail, claim, "a claim without a successor is the tail");
                list.tail = prev;
            }
            next => self.records[next].prev = prev,
        }
        list.len -= 1;
    }

    /// Puts a claim at the end of a queue.
    pub(crate) fn enqueue(&mut self, queue: &mut List, claim: Slot) {
        let last = match queue.tail {
            NONE => NONE,
            tail => self.records[tail].beside,
        };
        let chunk = match last {
            NONE => self.chunks.insert(Chunk { count: 0, prev: NONE, next: NONE }),
            last if self.chunks[last].count < CHUNK_MAX => last,
            last => {
                let new = self.chunks.insert(Chunk { count: 0, prev: last, next: NONE });
                self.chunks[last].next = new;
                new
            }
        };
        self.chunks[chunk].count += 1;
        self.records[claim].beside = chunk;
        self.link(queue, claim);
    }

    /// Takes a claim out of a queue, wherever it stands.
    pub(crate) fn dequeue(&mut self, queue: &mut List, claim: Slot) {
        let record = &mut self.records[claim];
        let (chunk, before, after) = (record.beside, record.prev, record.next);
        assert!(chunk != NONE, "who queues is in a chunk");
        record.beside = NONE;
        self.unlink(queue, claim);
        self.chunks[chunk].count -= 1;
        let Chunk { count, prev, next } = self.chunks[chunk];
        if count == 0 {
            self.drop_chunk(chunk);
            return;
        }
        let member = if before != NONE && self.records[before].beside == chunk { before } else { after };
        for neighbour in [prev, next] {
            if neighbour != NONE && count + self.chunks[neighbour].count <= CHUNK_MAX / 2 {
                self.merge(chunk, neighbour, member);
                return;
            }
        }
    }

    /// Moves the few members of a chunk, of which one is given, to a neighbouring chunk.
    fn merge(&mut self, chunk: Slot, into: Slot, member: Slot) {
        let mut at = member;
        while at != NONE && self.records[at].beside == chunk {
            self.records[at].beside = into;
            at = self.records[at].prev;
        }
        at = self.records[member].next;
        while at != NONE && self.records[at].beside == chunk {
            self.records[at].beside = into;
            at = self.records[at].next;
        }
        self.chunks[into].count += self.chunks[chunk].count;
        self.drop_chunk(chunk);
    }

    fn drop_chunk(&mut self, chunk: Slot) {
        let Chunk { prev, next, .. } = self.chunks.remove(chunk);
        if prev != NONE {
            self.chunks[prev].next = next;
        }
        if next != NONE {
            self.chunks[next].prev = prev;
        }
    }

    /// How many are ahead in the queue.
    pub(crate) fn place(&self, claim: Slot) -> u32 {
        let chunk = self.records[claim].beside;
        assert!(chunk != NONE, "who queues is in a chunk");
        let mut place = 0;
        let mut at = self.records[claim].prev;
        while at != NONE && self.records[at].beside == chunk {
            place += 1;
            at = self.records[at].prev;
        }
        let mut ahead = self.chunks[chunk].prev;
        while ahead != NONE {
            place += self.chunks[ahead].count;
            ahead = self.chunks[ahead].prev;
        }
        place
    }

    /// The claims of a list, first to last.
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = (Slot, &Claim)> {
        let mut at = list.head;
        core::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let (slot, claim) = (at, &self.records[at]);
            at = claim.next;
            Some((slot, claim))
        })
    }

    /// Asserts that a list is whole; for a queue, that its chunks are.
    pub(crate) fn check_list(&self, list: &List, is_queue: bool) {
        let (mut before, mut len) = (NONE, 0);
        for (slot, claim) in self.iter(list) {
            assert_eq!(claim.prev, before, "links go both ways");
            if is_queue {
                let chunk = &self.chunks[claim.beside];
                assert!(chunk.count <= CHUNK_MAX);
                let ahead = if before == NONE { NONE } else { self.records[before].beside };
                assert!(ahead == claim.beside || ahead == chunk.prev, "chunks follow the queue");
            }
            (before, len) = (slot, len + 1);
        }
        assert!(list.tail == before && list.len == len, "a list knows its end and its length");
        if is_queue && before != NONE {
            assert_eq!(self.chunks[self.records[before].beside].next, NONE);
            assert_eq!(self.place(before) + 1, len, "the counts of the chunks add up");
        }
    }

    /// Asserts that no chunk outlived its members.
    pub(crate) fn check_chunks(&self) {
        let members: usize = self.chunks.iter().map(|(_, c)| c.count as usize).sum();
        let queued = self.records.iter().filter(|(_, c)| c.state == State::Queued).count();
        assert_eq!(members, queued, "every waiter is in one chunk");
        assert!(self.chunks.iter().all(|(_, c)| c.count > 0));
        let resources = self.records.iter().map(|(_, claim)| bytes_of(claim.resource.as_ref()));
        assert_eq!(self.resource_bytes, resources.sum::<u64>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use palisade_types::{LogIndex, Rng};

    #[test]
    fn places_in_a_long_queue_are_those_of_a_plain_vector() {
        let mut rng = Rng::new(11);
        let (mut claims, mut queue, mut plain) = (Claims::new(), List::EMPTY, Vec::new());
        for round in 0..20_000_u64 {
            let growing = round < 6_000 || (11_000..14_000).contains(&round);
            if plain.is_empty() || rng.per_mille(if growing { 850 } else { 300 }) {
                let since = When { revision: LogIndex(round), clock_ms: 0 };
                let claim =
                    claims.records.insert(Claim::new(0, 0, Ticket(round + 1), flag::WAIT, None, since));
                claims.enqueue(&mut queue, claim);
                plain.push(claim);
            } else {
                let at = if rng.per_mille(300) { 0 } else { rng.below(plain.len() as u64) as usize };
                let claim = plain.remove(at);
                claims.dequeue(&mut queue, claim);
                claims.records.remove(claim);
            }
            if !plain.is_empty() {
                let at = rng.below(plain.len() as u64) as usize;
                assert_eq!(claims.place(plain[at]), at as u32);
            }
            if round % 500 == 0 {
                claims.check_list(&queue, true);
                claims.check_chunks();
                let slots: Vec<Slot> = claims.iter(&queue).map(|(slot, _)| slot).collect();
                assert_eq!(slots, plain);
                assert!(claims.chunks.len() <= 2 + plain.len() * 4 / CHUNK_MAX as usize, "few chunks");
            }
        }
    }
}

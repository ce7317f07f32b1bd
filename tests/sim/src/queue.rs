//! The event queue: events ordered by (time, sequence number), so that the order is total and the
//! same in every run.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use palisade_types::Time;

/// Events waiting for their time.
pub struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    sequence: u64,
}

struct Entry<E> {
    at: Time,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed: the heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E> Queue<E> {
    /// Adds an event. Of two for the same time, the one added first comes first.
    pub fn push(&mut self, at: Time, event: E) {
        self.sequence += 1;
        self.heap.push(Entry { at, sequence: self.sequence, event });
    }

    /// The time of the next event.
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|e| e.at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|e| (e.at, e.event))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_added() {
        let mut q = Queue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b'), (5, 'e')] {
            q.push(Time(at), event);
        }
        let order: String = std::iter::from_fn(|| q.pop().map(|(_, e)| e)).collect();
        assert_eq!(order, "abcde");
    }
}

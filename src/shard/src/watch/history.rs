//! The last events, encoded, in the order of their revisions: what a watch that comes back is told.
//!
//! Events are numbered from the first that this process has seen. They stand in segments, byte behind
//! byte, so that remembering one costs a copy and forgetting one costs nothing; the oldest segment
//! goes as a whole, and its memory is used again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use palisade_types::{Event, LogIndex, Writer};

/// The most events of a segment.
const SEGMENT_EVENTS: usize = 1_024;
/// A history has at least so many segments when it is full.
const SEGMENTS_MIN: usize = 16;

#[derive(Debug, Default)]
struct Segment {
    /// The number of its first event.
    first: u64,
    /// Bytes of all events before it.
    passed: u64,
    bytes: Vec<u8>,
    /// Where each event ends.
    ends: Vec<u32>,
}

impl Segment {
    fn get(&self, number: u64) -> Option<&[u8]> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let end = *self.ends.get(at)? as usize;
        self.bytes.get(self.start(at)..end)
    }

    /// Where an event begins, by its place among those of the segment.
    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// Makes room for so many bytes more. Growing doubles, but not far beyond what a segment may hold: the
    /// memory is kept when its events are forgotten.
    fn reserve(&mut self, more: usize, most: usize) {
        let (len, capacity) = (self.bytes.len(), self.bytes.capacity());
        if capacity - len < more {
            let wanted = (2 * capacity).min(most + more).max(len + more);
            self.bytes.reserve_exact(wanted - len);
        }
    }

    fn last_revision(&self) -> LogIndex {
        let last = (self.ends.len() as u64).checked_sub(1).and_then(|n| self.get(self.first + n));
        last.map_or(LogIndex(0), revision_of)
    }
}

/// The revision of an encoded event.
pub(crate) fn revision_of(encoded: &[u8]) -> LogIndex {
    let bytes = encoded[1..].first_chunk::<8>().expect("an event holds its revision");
    LogIndex(u64::from_le_bytes(*bytes))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct History {
    /// Oldest first; never empty.
    segments: VecDeque<Segment>,
    len: usize,
    bytes: usize,
    /// Everything that happened after this revision is kept.
    floor: LogIndex,
    events_max: usize,
    bytes_max: usize,
    /// A segment is full with so many events, or with so many bytes.
    segment_events: usize,
    segment_bytes: usize,
}

impl History {
    /// Of nothing, from the beginning of the log on; at most so many events, of at most so many bytes.
    pub(crate) fn new(events_max: usize, bytes_max: usize) -> History {
        History {
            segments: VecDeque::from([Segment::default()]),
            len: 0,
            bytes: 0,
            floor: LogIndex(0),
            events_max: events_max.max(1),
            bytes_max,
            segment_events: (events_max / SEGMENTS_MIN).clamp(1, SEGMENT_EVENTS),
            segment_bytes: bytes_max / SEGMENTS_MIN,
        }
    }

    /// Remembers the next event, and returns its number.
    pub(crate) fn push(&mut self, event: &Event) -> u64 {
        let (events, bytes) = (self.segment_events, self.segment_bytes);
        let mut last = self.segments.back_mut().expect("there is always one");
        if last.ends.len() >= events || (last.bytes.len() >= bytes && !last.ends.is_empty()) {
            self.begin_segment(events, bytes);
            last = self.segments.back_mut().expect("there is always one");
        }
        let before = last.bytes.len();
        last.reserve(event.size_max(), bytes);
        let number = last.first + last.ends.len() as u64;
        event.encode(&mut Writer(&mut last.bytes));
        last.ends.push(last.bytes.len() as u32);
        self.bytes += last.bytes.len() - before;
        self.len += 1;
        number
    }

    /// Makes room, and a new segment, if it can be in the memory of the last one that was forgotten.
    fn begin_segment(&mut self, events: usize, bytes: usize) {
        let next = self.end();
        let passed = self.segments.back().map_or(0, |last| last.passed + last.bytes.len() as u64);
        let mut segment = Segment::default();
        while self.len + events > self.events_max || self.bytes + bytes > self.bytes_max {
            let Some(oldest) = self.segments.pop_front() else { break };
            self.floor = oldest.last_revision();
            self.len -= oldest.ends.len();
            self.bytes -= oldest.bytes.len();
            segment = oldest;
        }
        (segment.first, segment.passed) = (next, passed);
        segment.bytes.clear();
        segment.ends.clear();
        self.segments.push_back(segment);
    }

    /// Forgets everything: what happened up to this revision is not known here. Numbers go on behind a gap,
    /// so that whoever was about to be told the next event is overtaken like one that is too slow.
    pub(crate) fn begin_behind(&mut self, revision: LogIndex) {
        let first = self.end() + 1;
        self.segments = VecDeque::from([Segment { first, ..Segment::default() }]);
        (self.len, self.bytes) = (0, 0);
        self.floor = revision;
    }

    /// The number of the oldest event kept.
    pub(crate) fn start(&self) -> u64 {
        self.segments.front().map_or(0, |segment| segment.first)
    }

    /// The number that the next event gets.
    pub(crate) fn end(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.first + segment.ends.len() as u64)
    }

    /// Everything that happened after this revision is kept.
    pub(crate) fn floor(&self) -> LogIndex {
        self.floor
    }

    /// Bytes of the events kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// An event, encoded, if it is kept.
    pub(crate) fn get(&self, number: u64) -> Option<&[u8]> {
        let at = self.segments.partition_point(|segment| segment.first <= number);
        self.segments.get(at.checked_sub(1)?)?.get(number)
    }

    /// Bytes of the events from a number on, as far as they are kept.
    pub(crate) fn bytes_from(&self, number: u64) -> u64 {
        let end = self.segments.back().map_or(0, |last| last.passed + last.bytes.len() as u64);
        let at = self.segments.partition_point(|segment| segment.first <= number);
        let Some(segment) = self.segments.get(at.saturating_sub(1)) else { return 0 };
        let place = usize::try_from(number.saturating_sub(segment.first)).unwrap_or(usize::MAX);
        end - (segment.passed + segment.start(place.min(segment.ends.len())) as u64)
    }

    /// The number of the first event kept that happened after a revision.
    pub(crate) fn after(&self, revision: LogIndex) -> u64 {
        let at = self.segments.partition_point(|s| !s.ends.is_empty() && s.last_revision() <= revision);
        let Some(segment) = self.segments.get(at) else { return self.end() };
        let (mut low, mut high) = (0, segment.ends.len() as u64);
        while low < high {
            let middle = low.midpoint(high);
            match segment.get(segment.first + middle).is_some_and(|e| revision_of(e) <= revision) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        segment.first + low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{Happened, Key, SessionId};

    fn event(revision: u64) -> Event {
        Event {
            revision: LogIndex(revision),
            key: Some(Key::new("k").expect("a name")),
            session: SessionId::default(),
            owner: None,
            what: Happened::Free { epoch: palisade_types::Epoch(revision) },
        }
    }

    #[test]
    fn it_keeps_as_many_of_the_last_as_it_may_and_finds_what_follows_a_revision() {
        for most in [1, 2, 16, 17, 100, 5_000] {
            let mut h = History::new(most, 1 << 20);
            // Two events a revision, and every third revision has none.
            let revisions = (1..2_000_u64).filter(|r| r % 3 != 0).flat_map(|r| [r, r]);
            let all: Vec<u64> = revisions.collect();
            for (n, &revision) in all.iter().enumerate() {
                assert_eq!(h.end(), n as u64);
                h.push(&event(revision));
                let kept = (h.end() - h.start()) as usize;
                assert!(kept <= most, "{kept} of {most}");
                assert!(kept >= (n + 1).min(most.saturating_sub(most / 8).max(1)), "{kept} of {most}");
            }
            for (n, &revision) in all.iter().enumerate() {
                let kept = n as u64 >= h.start();
                assert_eq!(h.get(n as u64).map(revision_of), kept.then_some(LogIndex(revision)));
            }
            assert_eq!(h.get(h.end()), None);
            for revision in h.floor().0..2_001 {
                let first = all.iter().position(|&r| r > revision).unwrap_or(all.len()) as u64;
                assert_eq!(h.after(LogIndex(revision)), first, "all that follows {revision} is kept");
            }
            assert!(h.start() == 0 || h.floor().0 > 0);
        }
    }

    #[test]
    fn behind_a_gap_nothing_from_before_is_known_and_what_follows_is() {
        let mut h = History::new(100, 1 << 20);
        for revision in 1..10 {
            h.push(&event(revision));
        }
        let before = h.end();
        h.begin_behind(LogIndex(50));
        assert!(h.start() > before && h.get(before - 1).is_none(), "who would be told next is overtaken");
        assert_eq!((h.floor(), h.start(), h.bytes()), (LogIndex(50), h.end(), 0));
        let number = h.push(&event(51));
        assert_eq!(h.get(number).map(revision_of), Some(LogIndex(51)));
        assert_eq!((h.after(LogIndex(50)), h.after(LogIndex(51))), (number, number + 1));
        for revision in 52..400 {
            h.push(&event(revision));
        }
        assert!(h.floor() > LogIndex(50) && h.end() - h.start() <= 100);
    }

    #[test]
    fn its_bytes_are_bounded_whatever_the_events() {
        let mut h = History::new(100_000, 4_096);
        for revision in 1..5_000 {
            h.push(&event(revision));
            assert!(h.bytes() <= 4_096 + 64, "{} bytes", h.bytes());
        }
        assert!(h.end() - h.start() > 40);
    }

    fn put(revision: u64, size: usize) -> Event {
        let value = palisade_types::Value::from(std::vec![1; size]);
        let what = Happened::Put { created: LogIndex(revision), value };
        Event { what, ..event(revision) }
    }

    #[test]
    fn large_values_neither_exceed_its_bytes_nor_the_memory_it_keeps() {
        let most = 1 << 20;
        let mut h = History::new(100_000, most);
        for revision in 1..3_000 {
            // Small ones now and then: segments are used again by events of any size.
            h.push(&put(revision, [16_384, 3, 900][revision as usize % 3]));
            assert!(h.bytes() <= most + 17_000, "{} bytes", h.bytes());
            let memory: usize = h.segments.iter().map(|s| s.bytes.capacity()).sum();
            assert!(memory <= 3 * most / 2 + 17_000, "{memory} bytes of memory");
        }
        for number in h.start()..=h.end() {
            let left: usize = (number..h.end()).map(|n| h.get(n).map_or(0, <[u8]>::len)).sum();
            assert_eq!(h.bytes_from(number), left as u64);
        }
    }
}

//! One key's changes and who has been told of them: counted the same way for Palisade and for its peers.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::pace::Schedule;
use crate::work::new_histogram;

/// Watchers of one key, and how often it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watching {
    /// Watchers of the key, all of them told of every change.
    pub(crate) watchers: u32,
    /// Connections they share; who changes the key has one more, to the leader.
    pub(crate) connections: u32,
    /// Changes a second: the key is taken and left in turn.
    pub(crate) per_second: u64,
    /// Before anything is counted.
    pub(crate) warmup: Duration,
    /// What is counted: the changes that are due in it.
    pub(crate) duration: Duration,
}

/// How many changes are due in this time: an even number, so that the key is free at its end.
pub(crate) fn due_in(per_second: u64, length: Duration) -> u64 {
    let schedule = Schedule::new(0, per_second);
    let end = length.as_nanos() as u64;
    (0..).step_by(2).find(|&n| schedule.at(n) >= end).unwrap_or(0)
}

/// A change: the key was taken, or left.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// When it was meant to be, in nanoseconds of the run's clock.
    due: u64,
    /// How many watchers have been told.
    told: u32,
}

/// The changes of a stretch of time. They are numbered from the beginning of the run, so that what is heard late
/// of an earlier stretch is known for it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    watchers: u32,
    first: u64,
    changes: Vec<Change>,
    complete: u64,
    /// One for each watcher and change.
    pub(crate) events: u64,
    /// From when a change was due to each watcher, in microseconds.
    pub(crate) delays: Histogram<u64>,
    /// The same to the last watcher.
    pub(crate) to_last: Histogram<u64>,
}

impl Told {
    /// No changes yet; the next is the one of this number.
    pub(crate) fn new(watchers: u32, first: u64) -> Told {
        Told {
            watchers,
            first,
            changes: Vec::new(),
            complete: 0,
            events: 0,
            delays: new_histogram(),
            to_last: new_histogram(),
        }
    }

    /// The stretch behind this one, without changes yet.
    pub(crate) fn after(&self) -> Told {
        Told::new(self.watchers, self.next())
    }

    /// The next change is made; it was due then.
    pub(crate) fn add(&mut self, due: u64) {
        self.changes.push(Change { due, told: 0 });
    }

    /// A watcher has been told of the change of this number. Changes of other stretches are not counted.
    pub(crate) fn heard(&mut self, number: u64, now: u64) {
        let index = number.checked_sub(self.first);
        let Some(change) = index.and_then(|n| self.changes.get_mut(n as usize)) else { return };
        let micros = (now.saturating_sub(change.due) / 1_000).max(1);
        change.told += 1;
        self.events += 1;
        self.delays.saturating_record(micros);
        if change.told == self.watchers {
            self.complete += 1;
            self.to_last.saturating_record(micros);
        }
    }

    /// How many changes were made.
    pub(crate) fn made(&self) -> u64 {
        self.changes.len() as u64
    }

    /// How many of them everybody has been told of.
    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    /// The number of the change after these.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.made()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_from_when_it_was_due_and_is_told_when_the_last_watcher_has_heard() {
        let mut told = Told::new(2, 10);
        told.add(1_000_000);
        told.add(2_000_000);
        told.heard(10, 2_000_000);
        assert_eq!((told.made(), told.complete(), told.events, told.to_last.len()), (2, 0, 1, 0));
        told.heard(10, 2_500_000);
        assert_eq!((told.complete(), told.events), (1, 2));
        assert_eq!((told.delays.min(), told.delays.max(), told.to_last.max()), (1_000, 1_500, 1_500));
    }

    #[test]
    fn what_is_heard_of_another_stretch_does_not_count() {
        let mut told = Told::new(1, 10);
        told.add(0);
        told.heard(9, 1_000);
        told.heard(11, 1_000);
        assert_eq!((told.events, told.complete(), told.next()), (0, 0, 11));
    }

    #[test]
    fn the_changes_of_a_stretch_are_those_due_before_its_end_and_leave_the_key_free() {
        assert_eq!(due_in(5, Duration::from_secs(8)), 40);
        assert_eq!(due_in(5, Duration::from_secs(1)), 6, "the fifth takes the key, so a sixth leaves it");
        assert_eq!(due_in(1, Duration::ZERO), 0);
    }
}

//! The durability ledger: what has been accepted, handed to the disk, and made durable.
//!
//! For the log, `accepted` is its last index; for the hard state, a version counts its changes.
//! Whatever claims that something is durable asks here and nowhere else.

use alloc::collections::VecDeque;

use palisade_types::{LogIndex, Time};

use crate::ready::PersistNumber;

/// Counts the changes of term and vote since start. 0 is what was restored from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct HardVersion(pub(crate) u64);

/// A persist that the disk has not finished.
#[derive(Debug)]
struct Flight {
    number: PersistNumber,
    submitted_at: Time,
    hard: HardVersion,
    /// When it is done, the log is durable up to here. Lowered by every truncation after it, so
    /// that the end of an old write says nothing about blocks that took the place of its own:
    /// each flight belongs to the generation of the log between two truncations.
    log: LogIndex,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    hard_accepted: HardVersion,
    hard_submitted: HardVersion,
    hard_durable: HardVersion,
    log_submitted: LogIndex,
    log_durable: LogIndex,
    /// Blocks handed to the disk were truncated since: the next persist cuts them off.
    truncate_after: Option<LogIndex>,
    /// Numbers given out so far.
    numbered: PersistNumber,
    flights: VecDeque<Flight>,
    /// Mutant B8: flights keep what they said when they were submitted.
    keep_stale: bool,
}

impl Ledger {
    /// A ledger over a log restored from disk.
    pub(crate) fn new(last: LogIndex, keep_stale: bool) -> Ledger {
        Ledger {
            hard_accepted: HardVersion(0),
            hard_submitted: HardVersion(0),
            hard_durable: HardVersion(0),
            log_submitted: last,
            log_durable: last,
            truncate_after: None,
            numbered: PersistNumber(0),
            flights: VecDeque::new(),
            keep_stale,
        }
    }

    /// The version of the hard state in memory.
    pub(crate) fn hard(&self) -> HardVersion {
        self.hard_accepted
    }

    /// Whether a version of the hard state, or a later one, is durable.
    pub(crate) fn is_hard_durable(&self, version: HardVersion) -> bool {
        version <= self.hard_durable
    }

    /// Up to here the log in memory is durable.
    pub(crate) fn log_durable(&self) -> LogIndex {
        self.log_durable
    }

    /// Up to here the log in memory was handed to the disk.
    pub(crate) fn log_submitted(&self) -> LogIndex {
        self.log_submitted
    }

    pub(crate) fn hard_is_unsubmitted(&self) -> bool {
        self.hard_submitted < self.hard_accepted
    }

    pub(crate) fn truncation_is_unsubmitted(&self) -> bool {
        self.truncate_after.is_some()
    }

    /// When the oldest unfinished persist was handed out.
    pub(crate) fn oldest_flight(&self) -> Option<Time> {
        self.flights.front().map(|f| f.submitted_at)
    }

    /// Term or vote changed.
    pub(crate) fn on_hard_changed(&mut self) {
        self.hard_accepted.0 += 1;
    }

    /// The log in memory was cut: what was written after `keep` is void, and so are the promises
    /// of the flights about it.
    pub(crate) fn on_truncated(&mut self, keep: LogIndex) {
        if self.log_submitted > keep {
            self.log_submitted = keep;
            self.truncate_after = Some(keep);
        }
        self.log_durable = self.log_durable.min(keep);
        if self.keep_stale {
            return;
        }
        for flight in &mut self.flights {
            flight.log = flight.log.min(keep);
        }
    }

    /// A snapshot took the place of the log in memory. The disk still has the old log, and of that
    /// `keep` stays true whatever happens: up to there it is part of what the snapshot holds.
    pub(crate) fn on_installed(&mut self, keep: LogIndex) {
        self.truncate_after = None;
        self.log_submitted = self.log_submitted.min(keep);
        self.log_durable = self.log_durable.min(keep);
        for flight in &mut self.flights {
            flight.log = flight.log.min(keep);
        }
    }

    /// A persist is handed out: the log up to `last`, and the hard state if `hard`. Returns its
    /// number and where the log on disk is to be cut first.
    pub(crate) fn submit(
        &mut self,
        now: Time,
        last: LogIndex,
        hard: bool,
    ) -> (PersistNumber, Option<LogIndex>) {
        assert!(last >= self.log_submitted, "the log is handed out in order");
        self.log_submitted = last;
        if hard {
            self.hard_submitted = self.hard_accepted;
        }
        self.numbered.0 += 1;
        let number = self.numbered;
        self.flights.push_back(Flight { number, submitted_at: now, hard: self.hard_submitted, log: last });
        (number, self.truncate_after.take())
    }

    /// All persists up to `number` are durable.
    pub(crate) fn on_durable(&mut self, number: PersistNumber) {
        assert!(number <= self.numbered, "persist {number} was never handed out");
        while let Some(flight) = self.flights.pop_front_if(|f| f.number <= number) {
            self.hard_durable = self.hard_durable.max(flight.hard);
            let log = flight.log.min(self.log_submitted);
            self.log_durable = self.log_durable.max(log);
        }
    }

    /// Asserts `accepted >= submitted >= durable`.
    pub(crate) fn check(&self, last: LogIndex) {
        assert!(
            last >= self.log_submitted && self.log_submitted >= self.log_durable,
            "{self:?}, last {last}"
        );
        assert!(self.hard_accepted >= self.hard_submitted && self.hard_submitted >= self.hard_durable);
        assert!(self.truncate_after.is_none_or(|keep| keep <= self.log_submitted));
        assert!(self.keep_stale || self.flights.iter().all(|f| f.log <= self.log_submitted));
    }
}

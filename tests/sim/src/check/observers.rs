//! W9: an observer of an election is told who leads as it is in the committed log at the revision that is
//! said, each change once, and no vacancy where one leader followed another in one step.

use palisade_client_core::{Observed, Observer, WatchItem};
use palisade_types::{Cursor, Key, LogIndex};

use super::watches::Committed;
use super::{Checked, Violation, demand};
use crate::node::SHARD;

/// The observer of `client-core` on the items of a watch, and what it has told last.
#[derive(Debug)]
pub struct Observing {
    election: Key,
    observer: Observer,
    last: Option<Observed>,
    /// What it has told.
    pub told: u64,
}

impl Observing {
    /// Of nothing yet.
    pub fn new(election: Key) -> Observing {
        Observing { election, observer: Observer::new(), last: None, told: 0 }
    }

    /// Where the application goes on when it dies now.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.observer.cursor()
    }

    /// The application died, and goes on.
    pub fn restart(&mut self) {
        (self.observer, self.last) = (Observer::new(), None);
    }

    /// The watch tells something.
    ///
    /// # Errors
    /// W9.
    pub fn on_item(&mut self, committed: &Committed, item: &WatchItem) -> Checked {
        self.observer.take(item.clone()).map_err(|error| Violation::new("W9", error.to_string()))?;
        while let Some(told) = self.observer.poll() {
            self.on_told(committed, told)?;
        }
        let (WatchItem::Progress { cursor } | WatchItem::Listed { cursor }) = item else { return Ok(()) };
        match (&self.last, cursor.revision(SHARD)) {
            (Some(last), Some(upto)) => self.is_so(committed, last, upto),
            _ => Ok(()),
        }
    }

    fn on_told(&mut self, committed: &Committed, told: Observed) -> Checked {
        self.told += 1;
        self.is_so(committed, &told, told.revision)?;
        if let Some(last) = &self.last
            && told.present.is_none()
            && !told.coalesced
        {
            let between = (last.revision.next(), told.revision);
            let missed = committed.changes_of_election(&self.election, between).next();
            demand(missed.is_none(), "W9", || {
                format!("{missed:?} is not told, between {last:?} and {told:?}")
            })?;
        }
        self.last = Some(told);
        Ok(())
    }

    /// Whether what was told is so at a revision.
    fn is_so(&self, committed: &Committed, told: &Observed, at: LogIndex) -> Checked {
        let wanted = committed.view_of(&self.election, at);
        let said = told.leader.as_ref().map(|leader| (told.epoch, leader.session, &leader.value));
        demand(said == wanted.leader(&self.election), "W9", || {
            format!("an observer of {} is told {told:?}; at {at} it is {wanted:?}", self.election)
        })
    }
}

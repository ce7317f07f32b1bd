//! Following an election: the events of its key become who leads, and what the leader says.
//!
//! Only what could be seen is said. Where one leader follows another under one revision, nobody could have
//! found the election vacant in between, so no vacancy is said.

use alloc::collections::VecDeque;

use palisade_types::{Cursor, Epoch, Event, Fence, Happened, Key, LogIndex, Name, SessionId, Value};

use crate::watch::{Listing, WatchItem};

/// Who leads an election, as its observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// What it says.
    pub value: Value,
    /// The session that leads.
    pub session: SessionId,
    /// The owner tag of that session.
    pub owner: Option<Name>,
    /// The fence of its leadership: an announcement with a lower epoch is stale.
    pub fence: Fence,
}

/// What an observer of an election is told: who leads from here on, if anybody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Since when: the revision of the change, or the one that the present state is told for.
    pub revision: LogIndex,
    /// Who leads; none where the election is vacant.
    pub leader: Option<Leader>,
    /// The last epoch granted: that of the leader, or of the last one that led. Where no election of this
    /// name is known, the next leader's epoch is above it.
    pub epoch: Epoch,
    /// This is the present state, and why it is told. For any reason but [`Listing::Asked`] changes before it may
    /// have been missed.
    pub present: Option<Listing>,
    /// Changes before this one were left out, because the stream is read so slowly.
    pub coalesced: bool,
    /// Where to go on, once this is dealt with. What is told behind it may begin with this once more.
    pub cursor: Option<Cursor>,
}

/// The key is held, and is a lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is a lock, and no election")]
pub struct NotAnElection {
    /// Which.
    pub key: Key,
}

/// Makes of the items of a watch of one key what observers of an election are told.
#[derive(Debug)]
pub struct Observer {
    /// What is known; unknown before the first of it is told.
    seat: Option<Seat>,
    /// The present state is being told, and why.
    listing: Option<Listing>,
    /// A leadership is over: vacant, unless the next begins under the same revision.
    vacated: Option<Vacated>,
    /// Changes were left out since the last that was told.
    coalesced: bool,
    told: VecDeque<Observed>,
    cursor: Option<Cursor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seat {
    epoch: Epoch,
    leader: Option<Leader>,
}

#[derive(Debug)]
struct Vacated {
    revision: LogIndex,
    epoch: Epoch,
    cursor: Option<Cursor>,
}

/// What an event says of an election.
enum Said {
    Leads(Seat),
    Vacant(Epoch),
    Nothing,
}

impl Observer {
    /// Of nothing yet.
    pub fn new() -> Observer {
        Observer {
            seat: None,
            listing: None,
            vacated: None,
            coalesced: false,
            told: VecDeque::new(),
            cursor: None,
        }
    }

    /// What is to be told next.
    pub fn poll(&mut self) -> Option<Observed> {
        let next = self.told.pop_front()?;
        if next.cursor.is_some() {
            self.cursor.clone_from(&next.cursor);
        }
        Some(next)
    }

    /// Where to go on behind what [`Observer::poll`] has given: it moves on also while nothing happens.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    /// Takes the next item of the watch.
    ///
    /// # Errors
    /// [`NotAnElection`] when a lock is held under this name.
    pub fn take(&mut self, item: WatchItem) -> Result<(), NotAnElection> {
        match item {
            WatchItem::Listing(why) => {
                // One that is told anew still is told for the first reason.
                let why = self.listing.filter(|_| why == Listing::Interrupted).unwrap_or(why);
                (self.listing, self.seat, self.vacated) = (Some(why), None, None);
            }
            WatchItem::Row(event) | WatchItem::Change { event, cursor: None, .. } => match said(event)? {
                Said::Leads(seat) => self.seat = Some(seat),
                Said::Vacant(epoch) => self.seat = Some(Seat { epoch, leader: None }),
                Said::Nothing => {}
            },
            WatchItem::Listed { cursor } => {
                let seat = self.seat.take().unwrap_or(Seat { epoch: Epoch(0), leader: None });
                let revision = revision_of(&cursor);
                // The present state leaves nothing out that it does not say itself.
                self.coalesced = false;
                self.tell(revision, seat, Some(cursor));
            }
            WatchItem::Change { event, coalesced, cursor: Some(cursor) } => {
                self.coalesced |= coalesced;
                self.change(event, cursor)?;
            }
            WatchItem::Progress { cursor } => self.move_to(cursor),
        }
        Ok(())
    }

    fn change(&mut self, event: Event, cursor: Cursor) -> Result<(), NotAnElection> {
        let revision = event.revision;
        if self.vacated.as_ref().is_some_and(|vacated| vacated.revision < revision) {
            self.tell_vacancy(None);
        }
        match said(event)? {
            Said::Leads(seat) => {
                self.vacated = None;
                self.tell(revision, seat, Some(cursor.clone()));
            }
            Said::Vacant(epoch) => {
                self.vacated = Some(Vacated { revision, epoch, cursor: Some(cursor.clone()) });
            }
            Said::Nothing => {}
        }
        self.move_to(cursor);
        Ok(())
    }

    /// All is known up to a cursor.
    fn move_to(&mut self, cursor: Cursor) {
        let upto = revision_of(&cursor);
        if self.vacated.as_ref().is_some_and(|vacated| vacated.revision <= upto) {
            self.tell_vacancy(Some(cursor.clone()));
        }
        if self.told.is_empty() && self.vacated.is_none() && self.listing.is_none() {
            self.cursor = Some(cursor);
        }
    }

    fn tell_vacancy(&mut self, cursor: Option<Cursor>) {
        let Some(vacated) = self.vacated.take() else { return };
        let seat = Seat { epoch: vacated.epoch, leader: None };
        // That an operator forgets a record changes nothing here.
        if self.seat.as_ref() != Some(&seat) {
            self.tell(vacated.revision, seat, cursor.or(vacated.cursor));
        }
    }

    fn tell(&mut self, revision: LogIndex, seat: Seat, cursor: Option<Cursor>) {
        self.told.push_back(Observed {
            revision,
            leader: seat.leader.clone(),
            epoch: seat.epoch,
            present: self.listing.take(),
            coalesced: ::core::mem::take(&mut self.coalesced),
            cursor,
        });
        self.seat = Some(seat);
    }
}

impl Default for Observer {
    fn default() -> Observer {
        Observer::new()
    }
}

fn revision_of(cursor: &Cursor) -> LogIndex {
    cursor.revisions.first().map_or(LogIndex(0), |(_, revision)| *revision)
}

fn said(event: Event) -> Result<Said, NotAnElection> {
    let Event { key: Some(key), session, owner, what, .. } = event else { return Ok(Said::Nothing) };
    Ok(match what {
        Happened::Leads { epoch, value, .. }
        | Happened::Elected { epoch, value }
        | Happened::Proclaimed { epoch, value } => match Fence::new(key, epoch, epoch) {
            Ok(fence) => Said::Leads(Seat { epoch, leader: Some(Leader { value, session, owner, fence }) }),
            // No grant has such an epoch.
            Err(_) => Said::Nothing,
        },
        Happened::Free { epoch } | Happened::Released { epoch, .. } | Happened::Retired { epoch } => {
            Said::Vacant(epoch)
        }
        Happened::Held { .. } | Happened::Granted { .. } => return Err(NotAnElection { key }),
        // An ephemeral key of the same name.
        _ => Said::Nothing,
    })
}

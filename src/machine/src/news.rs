//! What watchers learn: the events of the last command, and the present state as rows.

use palisade_types::{Epoch, Event, Happened, Key, LogIndex, Name, Selector, SessionId, TransitionKind};

use crate::locks::{Lock, Locks};
use crate::machine::{Applied, Machine, fence};
use crate::session::Session;
use crate::slab::{NONE, Slot};

/// How far a walk over the present state has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has not begun.
    Start,
    /// Behind this key.
    Key(Key),
    /// Behind this session.
    Session(LogIndex),
}

impl Place {
    /// Whether the walk has passed the subject of an event: what it showed of that is older.
    pub fn is_past(&self, event: &Event) -> bool {
        match (self, &event.key) {
            (Place::Key(place), Some(key)) => key <= place,
            (Place::Session(place), None) => event.session.opened <= *place,
            _ => false,
        }
    }
}

impl Machine {
    /// What the last command changed, in order, for whoever watches. All of it has that command's
    /// index as its revision.
    pub fn news(&self) -> &[Event] {
        &self.news
    }

    /// Walks on over the present state of what is selected, past at most `most` records, and shows
    /// the keys that are held, a single key also when it is free, and the sessions that live. Returns
    /// where the walk has come, or nothing when it is over.
    pub fn present(
        &self,
        selector: &Selector,
        place: &Place,
        most: usize,
        mut show: impl FnMut(Event),
    ) -> Option<Place> {
        let from = match selector {
            Selector::Key(key) => {
                show(self.present_key(key));
                return None;
            }
            Selector::Sessions => return self.present_sessions(place, most, show),
            Selector::Prefix(prefix) => Some(prefix.as_str()),
            Selector::Keys => None,
        };
        let after = match place {
            Place::Key(key) => Some(key.as_str()),
            _ => None,
        };
        let mut last = None;
        for (passed, slot) in self.locks.walk(from, after).enumerate() {
            if passed == most {
                return last.map(Place::Key);
            }
            let lock = &self.locks.records[slot];
            last = Some(lock.key.clone());
            if lock.holder != NONE {
                show(self.held(slot));
            }
        }
        None
    }

    fn present_key(&self, key: &Key) -> Event {
        let slot = self.locks.find(key.as_bytes());
        if let Some(slot) = slot.filter(|&slot| self.locks.records[slot].holder != NONE) {
            return self.held(slot);
        }
        let epoch = slot.map_or(self.locks.epoch_floor, |slot| self.locks.records[slot].epoch);
        self.nobodys(self.applied, key, Happened::Free { epoch })
    }

    fn held(&self, slot: Slot) -> Event {
        let lock = &self.locks.records[slot];
        let session = &self.sessions.records[self.claims.records[lock.holder].session];
        let fence = fence(lock);
        Event {
            revision: self.applied,
            key: Some(lock.key.clone()),
            session: self.id(session.opened),
            owner: session.owner.clone(),
            what: Happened::Held {
                epoch: fence.epoch(),
                barrier: fence.barrier(),
                ending: !session.is_live(),
            },
        }
    }

    fn present_sessions(&self, place: &Place, most: usize, mut show: impl FnMut(Event)) -> Option<Place> {
        let after = match place {
            Place::Session(opened) => *opened,
            _ => LogIndex(0),
        };
        let mut last = LogIndex(0);
        for (passed, session) in self.sessions.after(after).enumerate() {
            if passed == most {
                return Some(Place::Session(last));
            }
            last = session.opened;
            show(self.of_session(session, Happened::SessionLives { ttl_ms: session.ttl_ms() }));
        }
        None
    }

    fn of_session(&self, session: &Session, what: Happened) -> Event {
        Event {
            revision: self.applied,
            key: None,
            session: self.id(session.opened),
            owner: session.owner.clone(),
            what,
        }
    }

    fn nobodys(&self, revision: LogIndex, key: &Key, what: Happened) -> Event {
        Event { revision, key: Some(key.clone()), session: SessionId::default(), owner: None, what }
    }

    /// A session was opened, or has ended.
    pub(crate) fn tell_session(&mut self, slot: Slot, what: Happened) {
        let event = self.of_session(&self.sessions.records[slot], what);
        self.news.push(event);
    }

    /// An idle record was forgotten.
    pub(crate) fn tell_retired(&mut self, key: &Key, epoch: Epoch) {
        let event = self.nobodys(self.applied, key, Happened::Retired { epoch });
        self.news.push(event);
    }
}

/// The grant that a key has now.
pub(crate) fn granted(at: Applied, lock: &Lock, session: SessionId, owner: Option<&Name>) -> Event {
    let what = Happened::Granted { epoch: lock.epoch, barrier: lock.epoch };
    Event { revision: at.index, key: Some(lock.key.clone()), session, owner: owner.cloned(), what }
}

/// The end of the grant that a key had last.
pub(crate) fn released(
    at: Applied,
    lock: &Lock,
    session: SessionId,
    owner: Option<&Name>,
    how: TransitionKind,
) -> Event {
    let what = Happened::Released { epoch: lock.epoch, how };
    Event { revision: at.index, key: Some(lock.key.clone()), session, owner: owner.cloned(), what }
}

impl Locks {
    /// Records whose keys begin so, from behind a key, in order.
    fn walk<'a>(
        &'a self,
        prefix: Option<&'a str>,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = Slot> + 'a {
        let from = match (prefix, after) {
            (Some(prefix), Some(after)) if after < prefix => Err(prefix),
            (Some(prefix), None) => Err(prefix),
            (_, after) => Ok(after),
        };
        let slots = match from {
            Ok(after) => self.range(after, None),
            Err(first) => self.range(None, Some(first)),
        };
        slots.take_while(move |(key, _)| prefix.is_none_or(|prefix| key.starts_with(prefix))).map(|(_, s)| s)
    }
}

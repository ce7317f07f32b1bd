//! What watchers learn: the events of the last command, and the present state as rows.

use palisade_types::{Epoch, Event, Happened, Key, LogIndex, Name, Selector, SessionId};

use crate::locks::{Lock, Locks};
use crate::machine::{Applied, Machine};
use crate::session::Session;
use crate::slab::{NONE, Slot};

/// How far a walk over the present state has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has not begun.
    Start,
    /// Behind this key.
    Key(Key),
    /// Among the holders of this key, behind the one with this epoch.
    Holder(Key, Epoch),
    /// Behind this session.
    Session(LogIndex),
}

impl Place {
    /// Whether the walk has passed the subject of an event: what it showed of that is older.
    pub fn is_past(&self, event: &Event) -> bool {
        match (self, &event.key) {
            (Place::Key(place), Some(key)) => key <= place,
            (Place::Holder(place, shown), Some(key)) => {
                let of_shown = event.what.grant().is_some_and(|(epoch, _)| epoch <= *shown);
                key < place || (key == place && of_shown)
            }
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
    /// who holds keys, of a single key also that it is free, and the sessions that live. Returns
    /// where the walk has come, or nothing when it is over.
    pub fn present(
        &self,
        selector: &Selector,
        place: &Place,
        most: usize,
        mut show: impl FnMut(Event),
    ) -> Option<Place> {
        let from = match selector {
            Selector::Key(key) => return self.present_key(key, place, most, show),
            Selector::Sessions => return self.present_sessions(place, most, show),
            Selector::Prefix(prefix) => Some(prefix.as_str()),
            Selector::Keys => None,
        };
        let mut left = most;
        let mut last = None;
        if let Place::Holder(key, shown) = place
            && let Some(slot) = self.locks.find(key.as_bytes())
            && let Some(shown) = self.present_holders(slot, *shown, &mut left, &mut show)
        {
            return Some(Place::Holder(key.clone(), shown));
        }
        let after = match place {
            Place::Key(key) | Place::Holder(key, _) => {
                last = Some(key.clone());
                Some(key.as_str())
            }
            _ => None,
        };
        for slot in self.locks.walk(from, after) {
            if left == 0 {
                return last.map(Place::Key);
            }
            left -= 1;
            let key = &self.locks.records[slot].key;
            last = Some(key.clone());
            // The first of its holders costs what an idle key does.
            let mut room = left + 1;
            let rest = self.present_holders(slot, Epoch(0), &mut room, &mut show);
            left = left.min(room);
            if let Some(shown) = rest {
                return Some(Place::Holder(key.clone(), shown));
            }
        }
        None
    }

    fn present_key(
        &self,
        key: &Key,
        place: &Place,
        most: usize,
        mut show: impl FnMut(Event),
    ) -> Option<Place> {
        let slot = self.locks.find(key.as_bytes());
        let shown = match place {
            Place::Holder(_, shown) => *shown,
            _ => Epoch(0),
        };
        if let Some(slot) = slot.filter(|&slot| self.locks.records[slot].holder != NONE) {
            let rest = self.present_holders(slot, shown, &mut { most }, &mut show);
            return rest.map(|shown| Place::Holder(key.clone(), shown));
        }
        if shown == Epoch(0) {
            let epoch = slot.map_or(self.locks.epoch_floor, |slot| self.locks.records[slot].epoch);
            show(self.nobodys(self.applied, key, Happened::Free { epoch }));
        }
        None
    }

    /// Shows the holders of a key behind an epoch, as many as are left to be shown. Returns the epoch of
    /// the last one shown if there are more.
    fn present_holders(
        &self,
        slot: Slot,
        behind: Epoch,
        left: &mut usize,
        show: &mut impl FnMut(Event),
    ) -> Option<Epoch> {
        let mut last = behind;
        for claim in self.holders_of(slot) {
            let (epoch, barrier) = self.tenure_of(claim);
            if epoch <= behind {
                continue;
            }
            if *left == 0 {
                return Some(last);
            }
            *left -= 1;
            last = epoch;
            show(self.held(slot, claim, epoch, barrier));
        }
        None
    }

    fn held(&self, slot: Slot, claim: Slot, epoch: Epoch, barrier: Epoch) -> Event {
        let session = &self.sessions.records[self.claims.records[claim].session];
        Event {
            revision: self.applied,
            key: Some(self.locks.records[slot].key.clone()),
            session: self.id(session.opened),
            owner: session.owner.clone(),
            what: Happened::Held { epoch, barrier, ending: !session.is_live() },
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

/// What happened to a grant of a key.
pub(crate) fn of_grant(
    at: Applied,
    lock: &Lock,
    session: SessionId,
    owner: Option<&Name>,
    what: Happened,
) -> Event {
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

//! What watchers learn: the events of the last command, and the present state as rows.

use palisade_types::{Class, Epoch, Event, Happened, Key, LogIndex, Mutant, Name, Selector, SessionId};

use crate::locks::{Lock, Locks};
use crate::machine::Machine;
use crate::session::Session;
use crate::slab::{NONE, Slot};
use crate::values::Value;

/// How far a walk over the present state has come: locks and elections come first, in the order of their
/// keys, and then ephemeral keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has not begun.
    Start,
    /// Behind the lock or the election with this key.
    Key(Key),
    /// Among the holders of this key, behind the one with this epoch.
    Holder(Key, Epoch),
    /// Behind all locks and elections, or behind the one that is selected.
    Locks,
    /// Behind this ephemeral key.
    Value(Key),
    /// Behind this session.
    Session(LogIndex),
}

impl Place {
    /// Whether the walk has passed the subject of an event: what it showed of that is older.
    pub fn is_past(&self, event: &Event) -> bool {
        let of_value = event.what.is_of_value();
        match (self, &event.key) {
            (Place::Value(place), Some(key)) => !of_value || key <= place,
            (Place::Start, _) => false,
            (_, Some(_)) if of_value => false,
            (Place::Locks, Some(_)) => true,
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

/// What is left of a step of a walk. A record counts one, and its value one more for each KiB: so the
/// values of a step have no more KiB than it has records, or there is but one value.
struct Left {
    most: usize,
    left: usize,
}

impl Left {
    /// Whether there is room for a record with a value of so many bytes.
    fn has_room(&self, value: usize) -> bool {
        let cost = 1 + value / 1024;
        cost <= self.left || (self.left == self.most && self.left > 0)
    }

    fn take(&mut self, value: usize) {
        self.left = self.left.saturating_sub(1 + value / 1024);
    }
}

impl Machine {
    /// What the last command changed, in order, for whoever watches. All of it has that command's
    /// index as its revision.
    pub fn news(&self) -> &[Event] {
        &self.news
    }

    /// Walks on over the present state of what is selected, past at most `most` records, fewer where
    /// values are large, and shows who holds keys, of a single key also that it is free, the ephemeral
    /// keys, and the sessions that live. Returns where the walk has come, or nothing when it is over.
    pub fn present(
        &self,
        selector: &Selector,
        place: &Place,
        most: usize,
        mut show: impl FnMut(Event),
    ) -> Option<Place> {
        let mut left = Left { most, left: most };
        let prefix = match selector {
            Selector::Key(key) => return self.present_key(key, place, &mut left, show),
            Selector::Sessions => return self.present_sessions(place, most, show),
            Selector::Prefix(prefix) => Some(prefix.as_str()),
            Selector::Keys => None,
        };
        let after = match place {
            Place::Value(key) => Some(key),
            Place::Locks => None,
            _ => match self.present_locks(prefix, place, &mut left, &mut show) {
                Some(place) => return Some(place),
                None => None,
            },
        };
        self.present_values(prefix.unwrap_or_default(), after, &mut left, &mut show)
    }

    /// Returns where the walk has come, or nothing when there are no more locks.
    fn present_locks(
        &self,
        prefix: Option<&str>,
        place: &Place,
        left: &mut Left,
        show: &mut impl FnMut(Event),
    ) -> Option<Place> {
        let mut last = None;
        if let Place::Holder(key, shown) = place
            && let Some(slot) = self.locks.find(key.as_bytes())
            && let Some(shown) = self.present_holders(slot, *shown, left, show)
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
        for slot in self.locks.walk(prefix, after) {
            let record = &self.locks.records[slot];
            let value = self.leader_value(record).map_or(0, |value| value.len());
            if !left.has_room(value) {
                return last.map(Place::Key);
            }
            left.take(value);
            last = Some(record.key.clone());
            // The first of its holders costs what an idle key does.
            let mut room = Left { most: left.most, left: left.left + 1 };
            let rest = self.present_holders(slot, Epoch(0), &mut room, show);
            left.left = left.left.min(room.left);
            if let Some(shown) = rest {
                return Some(Place::Holder(record.key.clone(), shown));
            }
        }
        None
    }

    /// Returns where the walk has come, or nothing when it is over.
    fn present_values(
        &self,
        prefix: &str,
        after: Option<&Key>,
        left: &mut Left,
        show: &mut impl FnMut(Event),
    ) -> Option<Place> {
        let mut last = after;
        for (key, value) in self.values.after(prefix, after.map(Key::as_str)) {
            if !left.has_room(value.bytes.len()) {
                return Some(last.map_or(Place::Locks, |key| Place::Value(key.clone())));
            }
            left.take(value.bytes.len());
            last = Some(key);
            show(self.stands(key, value));
        }
        None
    }

    fn present_key(
        &self,
        key: &Key,
        place: &Place,
        left: &mut Left,
        mut show: impl FnMut(Event),
    ) -> Option<Place> {
        if *place != Place::Locks {
            let shown = match place {
                Place::Holder(_, shown) => *shown,
                _ => Epoch(0),
            };
            let slot = self.locks.find(key.as_bytes());
            if let Some(slot) = slot.filter(|&slot| self.locks.records[slot].holder != NONE) {
                if let Some(shown) = self.present_holders(slot, shown, left, &mut show) {
                    return Some(Place::Holder(key.clone(), shown));
                }
            } else if shown == Epoch(0) {
                let epoch = slot.map_or(self.locks.epoch_floor, |slot| self.locks.records[slot].epoch);
                left.take(0);
                show(self.nobodys(self.applied, key, Happened::Free { epoch }));
            }
        }
        let value = self.values.find(key)?;
        if !left.has_room(value.bytes.len()) {
            return Some(Place::Locks);
        }
        show(self.stands(key, value));
        None
    }

    /// Shows the holders of a key behind an epoch, as many as are left to be shown. Returns the epoch of
    /// the last one shown if there are more.
    fn present_holders(
        &self,
        slot: Slot,
        behind: Epoch,
        left: &mut Left,
        show: &mut impl FnMut(Event),
    ) -> Option<Epoch> {
        let mut last = behind;
        for claim in self.holders_of(slot) {
            let (epoch, barrier) = self.tenure_of(claim);
            if epoch <= behind {
                continue;
            }
            if left.left == 0 {
                return Some(last);
            }
            left.take(0);
            last = epoch;
            show(self.held(slot, claim, epoch, barrier));
        }
        None
    }

    fn held(&self, slot: Slot, claim: Slot, epoch: Epoch, barrier: Epoch) -> Event {
        let session = &self.sessions.records[self.claims.records[claim].session];
        let (lock, ending) = (&self.locks.records[slot], !session.is_live());
        Event {
            revision: self.applied,
            key: Some(lock.key.clone()),
            session: self.id(session.opened),
            owner: session.owner.clone(),
            what: match lock.class {
                Class::Election => Happened::Leads { epoch, ending, value: self.candidates.value(claim) },
                _ => Happened::Held { epoch, barrier, ending },
            },
        }
    }

    fn stands(&self, key: &Key, value: &Value) -> Event {
        let (created, modified, ending) = (value.created, value.modified, value.ending.is_some());
        self.of_value(key, value, Happened::Stands { created, modified, ending, value: value.bytes.clone() })
    }

    fn of_value(&self, key: &Key, value: &Value, what: Happened) -> Event {
        Event {
            revision: self.applied,
            key: Some(key.clone()),
            session: self.id(value.session),
            owner: value.owner.clone(),
            what,
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

    /// A leader has proclaimed something.
    pub(crate) fn tell_proclaimed(&mut self, claim: Slot) {
        if self.mutants.has(Mutant::W4) {
            return;
        }
        let record = &self.claims.records[claim];
        let (lock, owner) = (&self.locks.records[record.lock], &self.sessions.records[record.session]);
        let (id, value) = (self.id(owner.opened), self.candidates.value(claim));
        let what = Happened::Proclaimed { epoch: lock.epoch, value };
        let event = of_grant(self.applied, lock, id, owner.owner.as_ref(), what);
        self.news.push(event);
    }

    /// Something happened to an ephemeral key.
    pub(crate) fn tell_value(&mut self, key: &Key, value: &Value, what: Happened) {
        let event = self.of_value(key, value, what);
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
    revision: LogIndex,
    lock: &Lock,
    session: SessionId,
    owner: Option<&Name>,
    what: Happened,
) -> Event {
    Event { revision, key: Some(lock.key.clone()), session, owner: owner.cloned(), what }
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

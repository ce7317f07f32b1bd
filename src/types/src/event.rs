//! Events: what watchers are told (DESIGN section 6). An event is encoded once, when its command is
//! applied, and the same bytes are kept in the history and sent to every watcher.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::codec::{DecodeError, Reader, Writer};
use crate::happened::{self, Happened};
use crate::ids::{Epoch, LogIndex, SessionId};
use crate::name::{Key, Name};
use crate::watch::Selector;

/// Where the key stands in an encoded event: behind the kind, the revision and the session.
const KEY_AT: usize = 1 + 8 + 12;
/// What an encoded event has at most beside its names and its value.
const FIXED_MAX: usize = 64;

/// One change, or one row of the present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When: the revision of the change; of a row of the present state, that of the state.
    pub revision: LogIndex,
    /// Which key; none for what happens to a session itself.
    pub key: Option<Key>,
    /// Whose doing or holding it is.
    pub session: SessionId,
    /// The owner tag of that session.
    pub owner: Option<Name>,
    /// What happened.
    pub what: Happened,
}

/// Every grant and release makes one.
const _: () = assert!(size_of::<Event>() <= 96);

impl Event {
    /// Appends the event: kind, revision, session, key, owner, then what the kind carries.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let (key, owner) = (self.key.as_deref().unwrap_or(""), self.owner.as_deref().unwrap_or(""));
        // Every grant and release is encoded, whether or not anybody watches: the fixed part leaves in one
        // write.
        let mut head = [self.what.kind(); KEY_AT];
        head[1..9].copy_from_slice(&self.revision.0.to_le_bytes());
        head[9..13].copy_from_slice(&self.session.shard.0.to_le_bytes());
        head[13..].copy_from_slice(&self.session.opened.0.to_le_bytes());
        w.0.extend_from_slice(&head);
        w.name(key);
        w.name(owner);
        self.what.encode(w);
    }

    /// Reads an event.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
        let kind = r.u8()?;
        let (revision, session) = (LogIndex(r.u64()?), r.session()?);
        let (key, owner) = (r.opt_name()?, r.opt_name()?);
        let what = Happened::decode(kind, r)?;
        Ok(Event { revision, key, session, owner, what })
    }

    /// The key in an encoded event, without decoding the rest; empty when it has none, or when these
    /// bytes are no event.
    pub fn key_in(encoded: &[u8]) -> &[u8] {
        let rest = encoded.get(KEY_AT..).unwrap_or_default();
        let Some((len, rest)) = rest.split_first_chunk::<2>() else { return &[] };
        rest.get(..usize::from(u16::from_le_bytes(*len))).unwrap_or_default()
    }

    /// Whether an encoded event is about an ephemeral key.
    pub fn is_of_value(encoded: &[u8]) -> bool {
        encoded.first().is_some_and(|kind| happened::is_of_value(*kind))
    }

    /// [`Happened::grant`] of an encoded event, without decoding the rest; nothing also when these bytes
    /// are no event.
    pub fn grant_in(encoded: &[u8]) -> Option<(Epoch, Epoch)> {
        let owner_at = KEY_AT + 2 + Event::key_in(encoded).len();
        let owner = encoded.get(owner_at..)?.first_chunk::<2>()?;
        let fields = owner_at + 2 + usize::from(u16::from_le_bytes(*owner));
        happened::grant_in(*encoded.first()?, encoded.get(fields..)?)
    }

    /// Bytes that it has at most when it is encoded.
    pub fn size_max(&self) -> usize {
        let name = |name: Option<&Name>| name.map_or(0, |name| name.len());
        let value = self.what.value().map_or(0, |value| value.len());
        FIXED_MAX + name(self.key.as_ref()) + name(self.owner.as_ref()) + value
    }
}

impl Selector {
    /// Whether an encoded event is about something selected.
    pub fn selects(&self, encoded: &[u8]) -> bool {
        let key = Event::key_in(encoded);
        match self {
            Selector::Key(own) => own.as_bytes() == key,
            Selector::Prefix(prefix) => key.starts_with(prefix.as_bytes()),
            Selector::Keys => !key.is_empty(),
            Selector::Sessions => key.is_empty(),
        }
    }
}

/// Encoded events, one behind the other, shared by all who are sent them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Events {
    count: u32,
    bytes: Bytes,
}

impl Events {
    /// Of so many events, encoded.
    pub fn new(count: u32, bytes: Bytes) -> Events {
        Events { count, bytes }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Their bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reads them.
    ///
    /// # Errors
    /// When these are not so many events and nothing else.
    pub fn decode(&self) -> Result<Vec<Event>, DecodeError> {
        let mut r = Reader::new(&self.bytes);
        let mut all = Vec::new();
        for _ in 0..self.count {
            all.push(Event::decode(&mut r)?);
        }
        r.finish()?;
        Ok(all)
    }
}

impl FromIterator<Event> for Events {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Events {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for event in events {
            event.encode(&mut Writer(&mut bytes));
            count += 1;
        }
        Events { count, bytes: bytes.into() }
    }
}

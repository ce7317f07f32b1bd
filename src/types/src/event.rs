//! Events: what watchers are told (DESIGN section 6). An event is encoded once, when its command is
//! applied, and the same bytes are kept in the history and sent to every watcher.

use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::cause::{Cause, TransitionKind};
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Epoch, LogIndex, SessionId};
use crate::name::{Key, Name};
use crate::watch::Selector;

const HELD: u8 = 1;
const FREE: u8 = 2;
const GRANTED: u8 = 3;
const RELEASED: u8 = 4;
const RETIRED: u8 = 5;
const SESSION_LIVES: u8 = 6;
const SESSION_OPENED: u8 = 7;
const SESSION_ENDED: u8 = 8;

/// Where the key stands in an encoded event: behind the kind, the revision and the session.
const KEY_AT: usize = 1 + 8 + 12;

/// Room for what the kinds carry: two epochs and a few bytes. More is no error.
const TAIL_BYTES: usize = 24;

/// What happened to a key or a session; or, in the present state that a watch begins with, how it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happened {
    /// Present state: the session holds the key.
    Held {
        /// The epoch of its grant.
        epoch: Epoch,
        /// The barrier of its fence.
        barrier: Epoch,
        /// The session has ended: a sweep is about to release the key, or it is in quarantine.
        ending: bool,
    },
    /// Present state: nobody holds the key. Its session is 0-0.
    Free {
        /// The last epoch granted; without a record, the floor the next grant starts above.
        epoch: Epoch,
    },
    /// The key was granted to the session.
    Granted {
        /// The epoch of the grant.
        epoch: Epoch,
        /// The barrier of its fence.
        barrier: Epoch,
    },
    /// The session no longer holds the key.
    Released {
        /// The epoch of the grant that is over.
        epoch: Epoch,
        /// The barrier of its fence.
        barrier: Epoch,
        /// Why. Never [`TransitionKind::Granted`].
        how: TransitionKind,
    },
    /// An operator had the key's idle record forgotten. Its session is 0-0.
    Retired {
        /// The last epoch granted.
        epoch: Epoch,
    },
    /// Present state: the session lives.
    SessionLives {
        /// Its TTL in milliseconds.
        ttl_ms: u32,
    },
    /// The session was opened.
    SessionOpened {
        /// Its TTL in milliseconds.
        ttl_ms: u32,
    },
    /// The session has ended. Its keys are released by events of their own.
    SessionEnded {
        /// Why.
        cause: Cause,
    },
}

impl Happened {
    /// The grant it is about, and the epoch below which nobody holds the key any more: who keeps account of
    /// the holders of keys forgets those first, also where changes were coalesced.
    pub fn grant(self) -> Option<(Epoch, Epoch)> {
        match self {
            Happened::Held { epoch, barrier, .. }
            | Happened::Granted { epoch, barrier }
            | Happened::Released { epoch, barrier, .. } => Some((epoch, barrier)),
            Happened::Free { epoch } | Happened::Retired { epoch } => Some((epoch, Epoch(epoch.0 + 1))),
            Happened::SessionLives { .. }
            | Happened::SessionOpened { .. }
            | Happened::SessionEnded { .. } => None,
        }
    }

    /// Whether it describes the present state, and not a change.
    pub fn is_present(self) -> bool {
        matches!(self, Happened::Held { .. } | Happened::Free { .. } | Happened::SessionLives { .. })
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happened::Held { ending: false, .. } => f.write_str("is held"),
            Happened::Held { ending: true, .. } => f.write_str("is held by a session that has ended"),
            Happened::Free { .. } => f.write_str("is free"),
            Happened::Granted { .. } => f.write_str("granted"),
            Happened::Released { how: TransitionKind::SessionEnded(cause), .. } => {
                write!(f, "released: the session {cause}")
            }
            Happened::Released { how: TransitionKind::Forced, .. } => {
                f.write_str("released by an operator, by force")
            }
            Happened::Released { .. } => f.write_str("released"),
            Happened::Retired { .. } => f.write_str("retired"),
            Happened::SessionLives { .. } => f.write_str("lives"),
            Happened::SessionOpened { .. } => f.write_str("opened"),
            Happened::SessionEnded { cause } => write!(f, "ended: {cause}"),
        }
    }
}

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

impl Event {
    /// Appends the event: kind, revision, session, key, owner, then what the kind carries.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let kind = match self.what {
            Happened::Held { .. } => HELD,
            Happened::Free { .. } => FREE,
            Happened::Granted { .. } => GRANTED,
            Happened::Released { .. } => RELEASED,
            Happened::Retired { .. } => RETIRED,
            Happened::SessionLives { .. } => SESSION_LIVES,
            Happened::SessionOpened { .. } => SESSION_OPENED,
            Happened::SessionEnded { .. } => SESSION_ENDED,
        };
        let (key, owner) = (self.key.as_deref().unwrap_or(""), self.owner.as_deref().unwrap_or(""));
        // Every grant and release is encoded, whether or not anybody watches: the fixed part leaves in one
        // write, and room is looked for once.
        w.0.reserve(KEY_AT + 2 + key.len() + 2 + owner.len() + TAIL_BYTES);
        let mut head = [kind; KEY_AT];
        head[1..9].copy_from_slice(&self.revision.0.to_le_bytes());
        head[9..13].copy_from_slice(&self.session.shard.0.to_le_bytes());
        head[13..].copy_from_slice(&self.session.opened.0.to_le_bytes());
        w.0.extend_from_slice(&head);
        w.name(key);
        w.name(owner);
        match self.what {
            Happened::Held { epoch, barrier, ending } => {
                w.u64(epoch.0);
                w.u64(barrier.0);
                w.bool(ending);
            }
            Happened::Granted { epoch, barrier } => {
                w.u64(epoch.0);
                w.u64(barrier.0);
            }
            Happened::Free { epoch } | Happened::Retired { epoch } => w.u64(epoch.0),
            Happened::Released { epoch, barrier, how } => {
                w.u64(epoch.0);
                w.u64(barrier.0);
                how.encode(w);
            }
            Happened::SessionLives { ttl_ms } | Happened::SessionOpened { ttl_ms } => w.u32(ttl_ms),
            Happened::SessionEnded { cause } => cause.encode(w),
        }
    }

    /// Reads an event.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'_>) -> Result<Event, DecodeError> {
        let kind = r.u8()?;
        let (revision, session) = (LogIndex(r.u64()?), r.session()?);
        let (key, owner) = (r.opt_name()?, r.opt_name()?);
        let what = match kind {
            HELD => {
                let (epoch, barrier) = (Epoch(r.u64()?), Epoch(r.u64()?));
                Happened::Held { epoch, barrier, ending: r.bool("ending")? }
            }
            FREE => Happened::Free { epoch: Epoch(r.u64()?) },
            GRANTED => Happened::Granted { epoch: Epoch(r.u64()?), barrier: Epoch(r.u64()?) },
            RELEASED => {
                let (epoch, barrier) = (Epoch(r.u64()?), Epoch(r.u64()?));
                Happened::Released { epoch, barrier, how: TransitionKind::decode(r)? }
            }
            RETIRED => Happened::Retired { epoch: Epoch(r.u64()?) },
            SESSION_LIVES => Happened::SessionLives { ttl_ms: r.u32()? },
            SESSION_OPENED => Happened::SessionOpened { ttl_ms: r.u32()? },
            SESSION_ENDED => Happened::SessionEnded { cause: Cause::decode(r)? },
            other => return Err(DecodeError::Unknown { what: "event", value: other.into() }),
        };
        Ok(Event { revision, key, session, owner, what })
    }

    /// The key in an encoded event, without decoding the rest; empty when it has none, or when these
    /// bytes are no event.
    pub fn key_in(encoded: &[u8]) -> &[u8] {
        let rest = encoded.get(KEY_AT..).unwrap_or_default();
        let Some((len, rest)) = rest.split_first_chunk::<2>() else { return &[] };
        rest.get(..usize::from(u16::from_le_bytes(*len))).unwrap_or_default()
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

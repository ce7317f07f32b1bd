//! What can happen to a key or a session, and how the present state is shown: the part of an event that
//! says what it is.
//!
//! Locks and elections share one name space, and ephemeral keys have another: an event says by its kind of
//! which of the two its key is.

use core::fmt;

use crate::cause::{Cause, TransitionKind};
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Epoch, LogIndex};
use crate::limits::VALUE_BYTES_MAX;
use crate::value::Value;

const HELD: u8 = 1;
const FREE: u8 = 2;
const GRANTED: u8 = 3;
const RELEASED: u8 = 4;
const RETIRED: u8 = 5;
const SESSION_LIVES: u8 = 6;
const SESSION_OPENED: u8 = 7;
const SESSION_ENDED: u8 = 8;
const LEADS: u8 = 9;
const ELECTED: u8 = 10;
const PROCLAIMED: u8 = 11;
const STANDS: u8 = 12;
const PUT: u8 = 13;
const DELETED: u8 = 14;
const VANISHED: u8 = 15;

/// Whether an event of this kind is about an ephemeral key.
pub(crate) fn is_of_value(kind: u8) -> bool {
    (STANDS..=VANISHED).contains(&kind)
}

/// The epoch and the barrier that an encoded event of this kind says, given what follows its owner: as
/// [`Happened::grant`].
pub(crate) fn grant_in(kind: u8, fields: &[u8]) -> Option<(Epoch, Epoch)> {
    let (epoch, rest) = fields.split_first_chunk::<8>()?;
    let epoch = Epoch(u64::from_le_bytes(*epoch));
    match kind {
        HELD | GRANTED | RELEASED => Some((epoch, Epoch(u64::from_le_bytes(*rest.first_chunk::<8>()?)))),
        FREE | RETIRED => Some((epoch, Epoch(epoch.0.saturating_add(1)))),
        LEADS | ELECTED | PROCLAIMED => Some((epoch, epoch)),
        _ => None,
    }
}

/// What happened to a key or a session; or, in the present state that a watch begins with, how it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Present state: the session leads the election. Its barrier is its epoch: there is one leader.
    Leads {
        /// The epoch of its grant.
        epoch: Epoch,
        /// The session has ended: a sweep is about to end the leadership.
        ending: bool,
        /// What the leader says.
        value: Value,
    },
    /// The session leads the election from now on.
    Elected {
        /// The epoch of the grant.
        epoch: Epoch,
        /// What its campaign said.
        value: Value,
    },
    /// The leader says something else.
    Proclaimed {
        /// The epoch of its grant.
        epoch: Epoch,
        /// What it says now.
        value: Value,
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
    /// Present state: the ephemeral key stands.
    Stands {
        /// The revision of its first put.
        created: LogIndex,
        /// The revision of its last put.
        modified: LogIndex,
        /// The session has ended: a sweep is about to remove the key.
        ending: bool,
        /// Its value.
        value: Value,
    },
    /// The session gave the ephemeral key a value.
    Put {
        /// The revision of its first put: that of the event if the key is new.
        created: LogIndex,
        /// Its value.
        value: Value,
    },
    /// The session deleted the ephemeral key.
    Deleted,
    /// The ephemeral key went with its session.
    Vanished {
        /// Why the session ended.
        cause: Cause,
    },
}

impl Happened {
    /// The grant it is about, and the epoch below which nobody holds the key any more: who keeps account of
    /// the holders of keys forgets those first, also where changes were coalesced.
    pub fn grant(&self) -> Option<(Epoch, Epoch)> {
        match *self {
            Happened::Held { epoch, barrier, .. }
            | Happened::Granted { epoch, barrier }
            | Happened::Released { epoch, barrier, .. } => Some((epoch, barrier)),
            Happened::Leads { epoch, .. }
            | Happened::Elected { epoch, .. }
            | Happened::Proclaimed { epoch, .. } => Some((epoch, epoch)),
            Happened::Free { epoch } | Happened::Retired { epoch } => {
                Some((epoch, Epoch(epoch.0.saturating_add(1))))
            }
            _ => None,
        }
    }

    /// Whether it describes the present state, and not a change.
    pub fn is_present(&self) -> bool {
        matches!(
            self,
            Happened::Held { .. }
                | Happened::Free { .. }
                | Happened::Leads { .. }
                | Happened::Stands { .. }
                | Happened::SessionLives { .. }
        )
    }

    /// Whether it is about an ephemeral key, and not about a lock, an election or a session.
    pub fn is_of_value(&self) -> bool {
        is_of_value(self.kind())
    }

    /// What a leader says, or the value of an ephemeral key.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Happened::Leads { value, .. }
            | Happened::Elected { value, .. }
            | Happened::Proclaimed { value, .. }
            | Happened::Stands { value, .. }
            | Happened::Put { value, .. } => Some(value),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> u8 {
        match self {
            Happened::Held { .. } => HELD,
            Happened::Free { .. } => FREE,
            Happened::Granted { .. } => GRANTED,
            Happened::Released { .. } => RELEASED,
            Happened::Retired { .. } => RETIRED,
            Happened::SessionLives { .. } => SESSION_LIVES,
            Happened::SessionOpened { .. } => SESSION_OPENED,
            Happened::SessionEnded { .. } => SESSION_ENDED,
            Happened::Leads { .. } => LEADS,
            Happened::Elected { .. } => ELECTED,
            Happened::Proclaimed { .. } => PROCLAIMED,
            Happened::Stands { .. } => STANDS,
            Happened::Put { .. } => PUT,
            Happened::Deleted => DELETED,
            Happened::Vanished { .. } => VANISHED,
        }
    }

    /// Appends what its kind carries.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Happened::Held { epoch, barrier, ending } => {
                w.u64(epoch.0);
                w.u64(barrier.0);
                w.bool(*ending);
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
            Happened::SessionLives { ttl_ms } | Happened::SessionOpened { ttl_ms } => w.u32(*ttl_ms),
            Happened::SessionEnded { cause } | Happened::Vanished { cause } => cause.encode(w),
            Happened::Leads { epoch, ending, value } => {
                w.u64(epoch.0);
                w.bool(*ending);
                w.bytes(value);
            }
            Happened::Elected { epoch, value } | Happened::Proclaimed { epoch, value } => {
                w.u64(epoch.0);
                w.bytes(value);
            }
            Happened::Stands { created, modified, ending, value } => {
                w.u64(created.0);
                w.u64(modified.0);
                w.bool(*ending);
                w.bytes(value);
            }
            Happened::Put { created, value } => {
                w.u64(created.0);
                w.bytes(value);
            }
            Happened::Deleted => {}
        }
    }

    /// Reads what a kind carries.
    pub(crate) fn decode(kind: u8, r: &mut Reader<'_>) -> Result<Happened, DecodeError> {
        Ok(match kind {
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
            LEADS => {
                let (epoch, ending) = (Epoch(r.u64()?), r.bool("ending")?);
                Happened::Leads { epoch, ending, value: value(r)? }
            }
            ELECTED => Happened::Elected { epoch: Epoch(r.u64()?), value: value(r)? },
            PROCLAIMED => Happened::Proclaimed { epoch: Epoch(r.u64()?), value: value(r)? },
            STANDS => {
                let (created, modified) = (LogIndex(r.u64()?), LogIndex(r.u64()?));
                Happened::Stands { created, modified, ending: r.bool("ending")?, value: value(r)? }
            }
            PUT => Happened::Put { created: LogIndex(r.u64()?), value: value(r)? },
            DELETED => Happened::Deleted,
            VANISHED => Happened::Vanished { cause: Cause::decode(r)? },
            other => return Err(DecodeError::Unknown { what: "event", value: other.into() }),
        })
    }
}

fn value(r: &mut Reader<'_>) -> Result<Value, DecodeError> {
    Ok(Value::from(r.bytes("value", VALUE_BYTES_MAX)?))
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
            Happened::Leads { ending: false, .. } => f.write_str("is led"),
            Happened::Leads { ending: true, .. } => f.write_str("is led by a session that has ended"),
            Happened::Elected { .. } => f.write_str("elected"),
            Happened::Proclaimed { .. } => f.write_str("proclaimed"),
            Happened::Stands { ending: false, .. } => f.write_str("stands"),
            Happened::Stands { ending: true, .. } => f.write_str("stands, put by a session that has ended"),
            Happened::Put { .. } => f.write_str("put"),
            Happened::Deleted => f.write_str("deleted"),
            Happened::Vanished { cause } => write!(f, "vanished: the session {cause}"),
        }
    }
}

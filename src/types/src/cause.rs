//! Why sessions end and grants do, and the bytes that say so: in answers as in events.

use core::fmt;

use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::LogIndex;

/// Why a session ended. "Why did I lose my lock?" has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its owner closed it.
    Closed,
    /// The leader heard nothing for so many milliseconds.
    Expired {
        /// Silence as the leader measured it.
        silent_ms: u64,
    },
    /// An operator reported its owner dead.
    ReportedDead {
        /// The revision of the action: the record under it says who and why.
        action: LogIndex,
    },
    /// An operator evicted it.
    Evicted {
        /// The revision of the action: the record under it says who and why.
        action: LogIndex,
    },
    /// The id is not, or no longer, remembered.
    Forgotten,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Closed => f.write_str("closed"),
            Cause::Expired { silent_ms } => write!(f, "expired after {silent_ms} ms of silence"),
            Cause::ReportedDead { action } => write!(f, "reported dead by an operator (action {action})"),
            Cause::Evicted { action } => write!(f, "evicted by an operator (action {action})"),
            Cause::Forgotten => f.write_str("not or no longer remembered"),
        }
    }
}

impl Cause {
    /// Appends the cause.
    pub fn encode(self, w: &mut Writer<'_>) {
        let (code, number) = match self {
            Cause::Closed => (1, None),
            Cause::Expired { silent_ms } => (2, Some(silent_ms)),
            Cause::Forgotten => (3, None),
            Cause::ReportedDead { action } => (4, Some(action.0)),
            Cause::Evicted { action } => (5, Some(action.0)),
        };
        w.u8(code);
        if let Some(number) = number {
            w.u64(number);
        }
    }

    /// Reads a cause.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'_>) -> Result<Cause, DecodeError> {
        Ok(match r.u8()? {
            1 => Cause::Closed,
            2 => Cause::Expired { silent_ms: r.u64()? },
            3 => Cause::Forgotten,
            4 => Cause::ReportedDead { action: LogIndex(r.u64()?) },
            5 => Cause::Evicted { action: LogIndex(r.u64()?) },
            other => return Err(DecodeError::Unknown { what: "cause", value: other.into() }),
        })
    }
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransitionKind {
    /// It was granted.
    Granted,
    /// The holder released it.
    Released,
    /// The holder's session ended, with this cause.
    SessionEnded(Cause),
    /// An operator took it from the holder; the action has this transition's revision.
    Forced,
    /// The holder turned its exclusive grant into a shared one, which is the next grant.
    Downgraded,
}

impl TransitionKind {
    /// Appends the kind, and the cause if it has one.
    pub fn encode(self, w: &mut Writer<'_>) {
        match self {
            TransitionKind::Granted => w.u8(1),
            TransitionKind::Released => w.u8(2),
            TransitionKind::SessionEnded(cause) => {
                w.u8(3);
                cause.encode(w);
            }
            TransitionKind::Forced => w.u8(4),
            TransitionKind::Downgraded => w.u8(5),
        }
    }

    /// Reads a kind.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'_>) -> Result<TransitionKind, DecodeError> {
        Ok(match r.u8()? {
            1 => TransitionKind::Granted,
            2 => TransitionKind::Released,
            3 => TransitionKind::SessionEnded(Cause::decode(r)?),
            4 => TransitionKind::Forced,
            5 => TransitionKind::Downgraded,
            other => return Err(DecodeError::Unknown { what: "transition", value: other.into() }),
        })
    }
}

//! What operators do to other people's sessions and keys (DESIGN section 8).

use core::fmt;

use crate::ids::{Epoch, LogIndex, SessionId};
use crate::name::{Key, Name};

/// An operator's action. Each is safe to repeat: it names a session, or a grant by its epoch, and so
/// never meets a successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorAct {
    /// Positive knowledge that the session's owner is dead: no need to wait for its TTL.
    ReportDead {
        /// Which session.
        session: SessionId,
    },
    /// Ends a session whose owner may well be alive.
    Evict {
        /// Which session.
        session: SessionId,
    },
    /// Takes a key from its holder, whose session lives on. Safe *because of fencing*: an unfenced
    /// resource is open to the old holder until that one notices.
    ForceRelease {
        /// Which key.
        key: Key,
        /// Only if this grant still holds it.
        epoch: Epoch,
    },
    /// Forgets the record of a key that nobody holds or awaits, and with it the key's class.
    Retire {
        /// Which key.
        key: Key,
    },
}

impl OperatorAct {
    /// The action in one word, as in the command line.
    pub fn verb(&self) -> &'static str {
        match self {
            OperatorAct::ReportDead { .. } => "report-dead",
            OperatorAct::Evict { .. } => "evict",
            OperatorAct::ForceRelease { .. } => "force-release",
            OperatorAct::Retire { .. } => "retire",
        }
    }
}

impl fmt::Display for OperatorAct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb();
        match self {
            OperatorAct::ReportDead { session } | OperatorAct::Evict { session } => {
                write!(f, "{verb} {session}")
            }
            OperatorAct::ForceRelease { key, epoch } => write!(f, "{verb} {key}@{epoch}"),
            OperatorAct::Retire { key } => write!(f, "{verb} {key}"),
        }
    }
}

/// An action that was carried out, as it is kept on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRow {
    /// Where in the log: what causes and transitions refer to.
    pub revision: LogIndex,
    /// What was done.
    pub act: OperatorAct,
    /// Who did it, as they said.
    pub by: Name,
    /// Why, as they said.
    pub reason: Name,
    /// How long ago, in milliseconds, by the clock the leaders carry on.
    pub ago_ms: u64,
}

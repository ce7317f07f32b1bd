//! What operators do to other people's sessions and keys, and to the cluster (DESIGN section 8).

use core::fmt;

use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Epoch, LogIndex, NodeId, SessionId, Term};
use crate::name::{Key, NAME_BYTES_MAX, Name, NameError};

const REPORT_DEAD: u8 = 1;
const EVICT: u8 = 2;
const FORCE_RELEASE: u8 = 3;
const RETIRE: u8 = 4;
const TRANSFER: u8 = 5;

/// An operator's action. Each names a session, or a grant by its epoch, or a leadership by its term, and so
/// never meets a successor when it is repeated.
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
        /// Only if this was its last grant.
        epoch: Epoch,
    },
    /// Hands the leadership of a term to another voter. On record is that it was begun.
    Transfer {
        /// Whose leader is to hand over.
        term: Term,
        /// To whom; without a name to a voter that has everything.
        to: Option<NodeId>,
    },
}

impl OperatorAct {
    /// The same with borrowed names.
    pub fn as_ref(&self) -> ActRef<'_> {
        match self {
            OperatorAct::ReportDead { session } => ActRef::ReportDead(*session),
            OperatorAct::Evict { session } => ActRef::Evict(*session),
            OperatorAct::ForceRelease { key, epoch } => ActRef::ForceRelease(key, *epoch),
            OperatorAct::Retire { key, epoch } => ActRef::Retire(key, *epoch),
            OperatorAct::Transfer { term, to } => ActRef::Transfer(*term, *to),
        }
    }

    /// The key it is about, if it is about one.
    pub fn key(&self) -> Option<&Key> {
        match self {
            OperatorAct::ForceRelease { key, .. } | OperatorAct::Retire { key, .. } => Some(key),
            OperatorAct::ReportDead { .. } | OperatorAct::Evict { .. } | OperatorAct::Transfer { .. } => None,
        }
    }

    /// The session it ends, if that is what it does.
    pub fn ends(&self) -> Option<SessionId> {
        self.as_ref().ends()
    }

    /// Reads an action with names of its own.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'_>) -> Result<OperatorAct, DecodeError> {
        Ok(ActRef::decode(r)?.to_act()?)
    }

    /// The action in one word, as in the command line.
    pub fn verb(&self) -> &'static str {
        match self {
            OperatorAct::ReportDead { .. } => "report-dead",
            OperatorAct::Evict { .. } => "evict",
            OperatorAct::ForceRelease { .. } => "force-release",
            OperatorAct::Retire { .. } => "retire",
            OperatorAct::Transfer { .. } => "transfer",
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
            OperatorAct::ForceRelease { key, epoch } | OperatorAct::Retire { key, epoch } => {
                write!(f, "{verb} {key}@{epoch}")
            }
            OperatorAct::Transfer { term, to: Some(to) } => write!(f, "{verb} of term {term} to node {to}"),
            OperatorAct::Transfer { term, to: None } => write!(f, "{verb} of term {term}"),
        }
    }
}

/// An [`OperatorAct`] whose names are borrowed. Its bytes are the same in the protocol and in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActRef<'a> {
    /// See [`OperatorAct::ReportDead`].
    ReportDead(SessionId),
    /// See [`OperatorAct::Evict`].
    Evict(SessionId),
    /// See [`OperatorAct::ForceRelease`].
    ForceRelease(&'a str, Epoch),
    /// See [`OperatorAct::Retire`].
    Retire(&'a str, Epoch),
    /// See [`OperatorAct::Transfer`].
    Transfer(Term, Option<NodeId>),
}

impl<'a> ActRef<'a> {
    /// No action has more bytes: the longest are those that name a key.
    pub const BYTES_MAX: usize = 1 + 8 + 2 + NAME_BYTES_MAX;

    /// The session it ends, if that is what it does.
    pub fn ends(self) -> Option<SessionId> {
        match self {
            ActRef::ReportDead(session) | ActRef::Evict(session) => Some(session),
            ActRef::ForceRelease(..) | ActRef::Retire(..) | ActRef::Transfer(..) => None,
        }
    }

    /// Appends the action: one byte that says which, then what it names.
    pub fn encode(self, w: &mut Writer<'_>) {
        match self {
            ActRef::ReportDead(session) => {
                w.u8(REPORT_DEAD);
                w.session(session);
            }
            ActRef::Evict(session) => {
                w.u8(EVICT);
                w.session(session);
            }
            ActRef::ForceRelease(key, epoch) => {
                w.u8(FORCE_RELEASE);
                w.u64(epoch.0);
                w.name(key);
            }
            ActRef::Retire(key, epoch) => {
                w.u8(RETIRE);
                w.u64(epoch.0);
                w.name(key);
            }
            ActRef::Transfer(term, to) => {
                w.u8(TRANSFER);
                w.u64(term.0);
                w.u32(to.map_or(0, |node| node.0));
            }
        }
    }

    /// Reads an action.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'a>) -> Result<ActRef<'a>, DecodeError> {
        Ok(match r.u8()? {
            REPORT_DEAD => ActRef::ReportDead(r.session()?),
            EVICT => ActRef::Evict(r.session()?),
            FORCE_RELEASE => {
                let epoch = Epoch(r.u64()?);
                ActRef::ForceRelease(r.name_str()?, epoch)
            }
            RETIRE => {
                let epoch = Epoch(r.u64()?);
                ActRef::Retire(r.name_str()?, epoch)
            }
            TRANSFER => {
                let term = Term(r.u64()?);
                // Nodes are numbered from 1.
                ActRef::Transfer(term, Some(NodeId(r.u32()?)).filter(|node| node.0 != 0))
            }
            other => return Err(DecodeError::Unknown { what: "an operator's act", value: other.into() }),
        })
    }

    /// The same with names of its own.
    ///
    /// # Errors
    /// When a name breaks the rules for names, as none does that was decoded.
    pub fn to_act(self) -> Result<OperatorAct, NameError> {
        Ok(match self {
            ActRef::ReportDead(session) => OperatorAct::ReportDead { session },
            ActRef::Evict(session) => OperatorAct::Evict { session },
            ActRef::ForceRelease(key, epoch) => OperatorAct::ForceRelease { key: Key::new(key)?, epoch },
            ActRef::Retire(key, epoch) => OperatorAct::Retire { key: Key::new(key)?, epoch },
            ActRef::Transfer(term, to) => OperatorAct::Transfer { term, to },
        })
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

//! What a read asks for. A read's body is its consistency and then one of these, whose kind is that
//! of the frame. Another read is another variant here: on its way through client, shard and rounds
//! nobody looks inside but who encodes it and who answers it.

use palisade_types::{DecodeError, Key, LogIndex, Name, Reader, SessionId, Writer};

use crate::Kind;

/// A read of the applied state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// All about a key.
    Describe {
        /// Which.
        key: Key,
    },
    /// A page of keys.
    ListLocks {
        /// The last key of the page before.
        after: Option<Key>,
        /// The most rows wanted.
        rows: u32,
    },
    /// A page of sessions.
    ListSessions {
        /// The last session of the page before.
        after: Option<SessionId>,
        /// The most rows wanted.
        rows: u32,
    },
    /// A page of what operators did, oldest first.
    ListOperatorActs {
        /// The revision of the last row of the page before; 0 begins at the oldest kept.
        after: LogIndex,
        /// The most rows wanted.
        rows: u32,
    },
    /// An ephemeral key and its value.
    Get {
        /// Which.
        key: Key,
    },
    /// A page of ephemeral keys with their values.
    ListValues {
        /// What the keys begin with; `None` for all.
        prefix: Option<Name>,
        /// The last key of the page before.
        after: Option<Key>,
        /// The most rows wanted.
        rows: u32,
    },
    /// A page of resources with the keys that claim them.
    ListResources {
        /// Only those that several keys claim.
        conflicts: bool,
        /// The last resource of the page before.
        after: Option<Name>,
        /// The most rows wanted.
        rows: u32,
    },
}

impl Query {
    /// The rows asked for, where the answer is a page.
    pub fn rows(&self) -> Option<u32> {
        match self {
            Query::Describe { .. } | Query::Get { .. } => None,
            Query::ListLocks { rows, .. }
            | Query::ListSessions { rows, .. }
            | Query::ListOperatorActs { rows, .. }
            | Query::ListValues { rows, .. }
            | Query::ListResources { rows, .. } => Some(*rows),
        }
    }

    /// The kind of frame that asks for it.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Query::Describe { .. } => Kind::Describe,
            Query::ListLocks { .. } => Kind::ListLocks,
            Query::ListSessions { .. } => Kind::ListSessions,
            Query::ListOperatorActs { .. } => Kind::ListOperatorActs,
            Query::Get { .. } => Kind::Get,
            Query::ListValues { .. } => Kind::ListValues,
            Query::ListResources { .. } => Kind::ListResources,
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Query::Describe { key } => w.name(key),
            Query::ListLocks { after, rows } => {
                w.opt_name(after.as_deref());
                w.u32(*rows);
            }
            Query::ListSessions { after, rows } => {
                // Revisions start at 1, so the smallest id of all stands for "from the beginning".
                w.session(after.unwrap_or_default());
                w.u32(*rows);
            }
            Query::ListOperatorActs { after, rows } => {
                w.u64(after.0);
                w.u32(*rows);
            }
            Query::Get { key } => w.name(key),
            Query::ListValues { prefix, after, rows } => {
                w.opt_name(prefix.as_deref());
                w.opt_name(after.as_deref());
                w.u32(*rows);
            }
            Query::ListResources { conflicts, after, rows } => {
                w.bool(*conflicts);
                w.opt_name(after.as_deref());
                w.u32(*rows);
            }
        }
    }

    /// `None` for the kind of a frame that is no read.
    pub(crate) fn decode(kind: Kind, r: &mut Reader<'_>) -> Result<Option<Query>, DecodeError> {
        Ok(Some(match kind {
            Kind::Describe => Query::Describe { key: r.name()? },
            Kind::ListLocks => Query::ListLocks { after: r.opt_name()?, rows: r.u32()? },
            Kind::ListSessions => {
                let after = r.session()?;
                let after = (after != SessionId::default()).then_some(after);
                Query::ListSessions { after, rows: r.u32()? }
            }
            Kind::ListOperatorActs => Query::ListOperatorActs { after: LogIndex(r.u64()?), rows: r.u32()? },
            Kind::Get => Query::Get { key: r.name()? },
            Kind::ListValues => {
                Query::ListValues { prefix: r.opt_name()?, after: r.opt_name()?, rows: r.u32()? }
            }
            Kind::ListResources => {
                Query::ListResources { conflicts: r.bool("conflicts")?, after: r.opt_name()?, rows: r.u32()? }
            }
            _ => return Ok(None),
        }))
    }
}

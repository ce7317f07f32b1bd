//! What a client asks.

use alloc::vec::Vec;
use palisade_types::{
    Class, Cursor, DecodeError, Key, LogIndex, Name, OperatorAct, Reader, RequestId, Selector, SessionId,
    SessionToken, Ticket, Writer,
};

use crate::frame::{Frame, begin};
use crate::parts::{bool, claim, class, put_bool, put_claim, put_class};
use crate::{Group, Kind, MessageError, RENEW_SESSIONS_MAX};

/// How long an acquire waits for a key that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Not at all: the answer is `Granted` or `Denied`.
    No,
    /// Until it is granted, cancelled, or the session ends.
    Forever,
    /// So many milliseconds. Kept by the leader and started anew by a new one; the client cancels
    /// at its own deadline.
    Millis(u32),
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Opens a session, or finds the live one this token opened.
    OpenSession {
        /// Drawn at random by the client, for this session alone.
        token: SessionToken,
        /// The TTL asked for, in milliseconds; 0 takes the default.
        ttl_ms: u32,
        /// A free tag, such as a host.
        owner: Option<Name>,
        /// A free tag, such as a pod's uid.
        incarnation: Option<Name>,
    },
    /// Presents the token of a session on a new connection. This is no renewal.
    Attach {
        /// The token it was opened with.
        token: SessionToken,
        /// The session.
        session: SessionId,
    },
    /// Renews sessions attached to this connection, at most [`RENEW_SESSIONS_MAX`].
    Renew {
        /// Which.
        sessions: Vec<SessionId>,
    },
    /// Ends a session and everything it holds.
    CloseSession {
        /// Which.
        session: SessionId,
    },
    /// Asks for a key. Repeating it with the same ticket is harmless.
    Acquire {
        /// For whom.
        session: SessionId,
        /// The claim's number in its session, from 1.
        ticket: Ticket,
        /// The key.
        key: Key,
        /// What the lock is for.
        class: Class,
        /// What it protects; `Fenced` must say.
        resource: Option<Name>,
        /// Whether to stand in the queue, and how long.
        wait: Wait,
    },
    /// Gives a claim up, whatever became of it: granted, waiting or never seen.
    Release {
        /// Whose.
        session: SessionId,
        /// The ticket of the acquire.
        ticket: Ticket,
    },
    /// Withdraws a claim that waits. If it was granted first, the answer is the grant.
    Cancel {
        /// Whose.
        session: SessionId,
        /// The ticket of the acquire.
        ticket: Ticket,
    },
    /// Asks for all about a key.
    Describe {
        /// Which.
        key: Key,
    },
    /// Asks for a page of keys.
    ListLocks {
        /// The last key of the page before.
        after: Option<Key>,
        /// The most rows wanted.
        rows: u32,
    },
    /// Asks for a page of sessions.
    ListSessions {
        /// The last session of the page before.
        after: Option<SessionId>,
        /// The most rows wanted.
        rows: u32,
    },
    /// Asks a node about itself. Any node answers.
    Status,
    /// Acts on a session or key of somebody else. Repeating it is harmless.
    Operate {
        /// Who does it.
        by: Name,
        /// Why.
        reason: Name,
        /// What.
        act: OperatorAct,
    },
    /// Asks for a page of what operators did, oldest first.
    ListOperatorActs {
        /// The revision of the last row of the page before; 0 begins at the oldest kept.
        after: LogIndex,
        /// The most rows wanted.
        rows: u32,
    },
    /// Watches what is selected. Any node answers, and pushes from then on.
    Watch {
        /// A number the client chooses, not in use on this connection.
        watch: u64,
        /// What to watch.
        selector: Selector,
        /// Begin with the present state.
        present: bool,
        /// Without the present state: go on behind this cursor, or, if there is none, from now. With
        /// it: the state must be at least as new.
        cursor: Option<Cursor>,
    },
    /// Ends a watch.
    Unwatch {
        /// Its number.
        watch: u64,
    },
}

impl Request {
    /// The kind of frame that carries it.
    pub fn kind(&self) -> Kind {
        match self {
            Request::OpenSession { .. } => Kind::OpenSession,
            Request::Attach { .. } => Kind::Attach,
            Request::Renew { .. } => Kind::Renew,
            Request::CloseSession { .. } => Kind::CloseSession,
            Request::Acquire { .. } => Kind::Acquire,
            Request::Release { .. } => Kind::Release,
            Request::Cancel { .. } => Kind::Cancel,
            Request::Describe { .. } => Kind::Describe,
            Request::ListLocks { .. } => Kind::ListLocks,
            Request::ListSessions { .. } => Kind::ListSessions,
            Request::Status => Kind::Status,
            Request::Operate { .. } => Kind::Operate,
            Request::ListOperatorActs { .. } => Kind::ListOperatorActs,
            Request::Watch { .. } => Kind::Watch,
            Request::Unwatch { .. } => Kind::Unwatch,
        }
    }

    /// Appends the request as one frame. At most [`RENEW_SESSIONS_MAX`] sessions may be renewed at
    /// once; more is a bug and panics.
    pub fn encode(&self, id: RequestId, out: &mut Vec<u8>) {
        let open = begin(out, self.kind(), id);
        self.encode_body(&mut Writer(out));
        open.finish(out);
    }

    fn encode_body(&self, w: &mut Writer<'_>) {
        match self {
            Request::OpenSession { token, ttl_ms, owner, incarnation } => {
                w.u128(token.0);
                w.u32(*ttl_ms);
                w.opt_name(owner.as_deref());
                w.opt_name(incarnation.as_deref());
            }
            Request::Attach { token, session } => {
                w.u128(token.0);
                w.session(*session);
            }
            Request::Renew { sessions } => {
                assert!(sessions.len() <= RENEW_SESSIONS_MAX, "{} sessions in one renewal", sessions.len());
                w.u32(sessions.len() as u32);
                for session in sessions {
                    w.session(*session);
                }
            }
            Request::CloseSession { session } => w.session(*session),
            Request::Acquire { session, ticket, key, class, resource, wait } => {
                put_claim(w, *session, *ticket);
                put_class(w, *class);
                put_wait(w, *wait);
                w.name(key);
                w.opt_name(resource.as_deref());
            }
            Request::Release { session, ticket } | Request::Cancel { session, ticket } => {
                put_claim(w, *session, *ticket);
            }
            Request::Describe { key } => w.name(key),
            Request::ListLocks { after, rows } => {
                w.opt_name(after.as_deref());
                w.u32(*rows);
            }
            Request::ListSessions { after, rows } => {
                // Revisions start at 1, so the smallest id of all stands for "from the beginning".
                w.session(after.unwrap_or_default());
                w.u32(*rows);
            }
            Request::Status => {}
            Request::Operate { by, reason, act } => {
                w.name(by);
                w.name(reason);
                act.as_ref().encode(w);
            }
            Request::ListOperatorActs { after, rows } => {
                w.u64(after.0);
                w.u32(*rows);
            }
            Request::Watch { watch, selector, present, cursor } => {
                w.u64(*watch);
                selector.encode(w);
                put_bool(w, *present);
                put_bool(w, cursor.is_some());
                if let Some(cursor) = cursor {
                    cursor.encode(w);
                }
            }
            Request::Unwatch { watch } => w.u64(*watch),
        }
    }

    /// Reads a request. Nothing is allocated but what its names need.
    ///
    /// # Errors
    /// [`MessageError::Unexpected`] when the frame is no request: the connection is to be closed.
    /// [`MessageError::Body`] when the request breaks a rule: it is to be answered `BadRequest`.
    pub fn decode(frame: &Frame<'_>) -> Result<Request, MessageError> {
        let kind = frame.kind;
        if kind.group() != Group::Request {
            return Err(MessageError::Unexpected { found: kind });
        }
        decode_body(kind, frame.body).map_err(|error| MessageError::Body { kind, error })
    }
}

fn decode_body(kind: Kind, body: &[u8]) -> Result<Request, DecodeError> {
    let mut r = Reader::new(body);
    let request = match kind {
        Kind::OpenSession => Request::OpenSession {
            token: SessionToken(r.u128()?),
            ttl_ms: r.u32()?,
            owner: r.opt_name()?,
            incarnation: r.opt_name()?,
        },
        Kind::Attach => Request::Attach { token: SessionToken(r.u128()?), session: r.session()? },
        Kind::Renew => Request::Renew { sessions: sessions(&mut r)? },
        Kind::CloseSession => Request::CloseSession { session: r.session()? },
        Kind::Acquire => {
            let (session, ticket) = claim(&mut r)?;
            let (class, wait) = (class(&mut r)?, wait(&mut r)?);
            Request::Acquire { session, ticket, class, wait, key: r.name()?, resource: r.opt_name()? }
        }
        Kind::Release => {
            let (session, ticket) = claim(&mut r)?;
            Request::Release { session, ticket }
        }
        Kind::Cancel => {
            let (session, ticket) = claim(&mut r)?;
            Request::Cancel { session, ticket }
        }
        Kind::Describe => Request::Describe { key: r.name()? },
        Kind::ListLocks => Request::ListLocks { after: r.opt_name()?, rows: r.u32()? },
        Kind::ListSessions => {
            let after = r.session()?;
            let after = (after != SessionId::default()).then_some(after);
            Request::ListSessions { after, rows: r.u32()? }
        }
        Kind::Status => Request::Status,
        Kind::Operate => {
            Request::Operate { by: r.name()?, reason: r.name()?, act: OperatorAct::decode(&mut r)? }
        }
        Kind::ListOperatorActs => Request::ListOperatorActs { after: LogIndex(r.u64()?), rows: r.u32()? },
        Kind::Watch => Request::Watch {
            watch: r.u64()?,
            selector: Selector::decode(&mut r)?,
            present: bool(&mut r, "present")?,
            cursor: if bool(&mut r, "presence")? { Some(Cursor::decode(&mut r)?) } else { None },
        },
        Kind::Unwatch => Request::Unwatch { watch: r.u64()? },
        _ => return Err(DecodeError::Unknown { what: "request kind", value: u64::from(kind.number()) }),
    };
    r.finish()?;
    Ok(request)
}

fn sessions(r: &mut Reader<'_>) -> Result<Vec<SessionId>, DecodeError> {
    let count = r.u32()? as usize;
    if count > RENEW_SESSIONS_MAX {
        return Err(DecodeError::TooLong { what: "the list of sessions to renew", max: RENEW_SESSIONS_MAX });
    }
    let mut sessions = Vec::with_capacity(count.min(r.remaining() / 12));
    for _ in 0..count {
        sessions.push(r.session()?);
    }
    Ok(sessions)
}

fn put_wait(w: &mut Writer<'_>, wait: Wait) {
    match wait {
        Wait::No => w.u8(0),
        Wait::Forever => w.u8(1),
        Wait::Millis(ms) => {
            w.u8(2);
            w.u32(ms);
        }
    }
}

fn wait(r: &mut Reader<'_>) -> Result<Wait, DecodeError> {
    match r.u8()? {
        0 => Ok(Wait::No),
        1 => Ok(Wait::Forever),
        2 => Ok(Wait::Millis(r.u32()?)),
        other => Err(DecodeError::Unknown { what: "wait", value: u64::from(other) }),
    }
}

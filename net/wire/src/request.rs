//! What a client asks.

use alloc::vec::Vec;
use palisade_types::reply::Consistency;
use palisade_types::{
    Class, Cursor, DecodeError, Key, Mode, Name, OnDeath, OperatorAct, Reader, RequestId, Selector,
    SessionId, SessionToken, Ticket, Value, Writer,
};

use crate::frame::{Frame, begin};
use crate::parts::{
    claim, class, consistency, mode, on_death, put_claim, put_class, put_consistency, put_mode, put_on_death,
    value,
};
use crate::{Group, Kind, MessageError, Query, RENEW_SESSIONS_MAX};

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
        /// Alone, or with others of this mode.
        mode: Mode,
        /// Whether to stand in the queue, and how long.
        wait: Wait,
        /// What becomes of the key should the session die with it.
        on_death: OnDeath,
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
    /// Reads the applied state. Any node answers.
    Read {
        /// How new the answer must be. It says what it is.
        consistency: Consistency,
        /// What is asked.
        query: Query,
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
    /// Turns an exclusive grant into a shared one under a new ticket, as a new grant. Repeating it is
    /// harmless.
    Downgrade {
        /// Whose.
        session: SessionId,
        /// The ticket that takes over the claim.
        ticket: Ticket,
        /// The ticket that holds it.
        holds: Ticket,
    },
    /// Asks to lead an election. Repeating it with the same ticket is harmless.
    Campaign {
        /// For whom.
        session: SessionId,
        /// The claim's number in its session, from 1.
        ticket: Ticket,
        /// The election.
        key: Key,
        /// What observers are shown once it leads; at most [`VALUE_BYTES_MAX`](palisade_types::limits::VALUE_BYTES_MAX) bytes.
        value: Value,
        /// Whether to stand in the queue, and how long.
        wait: Wait,
    },
    /// Changes the value of a leader. Repeating it with the same ticket is harmless.
    Proclaim {
        /// Whose.
        session: SessionId,
        /// The number of the command in its session, from 1.
        ticket: Ticket,
        /// The ticket of the campaign.
        leads: Ticket,
        /// At most [`VALUE_BYTES_MAX`](palisade_types::limits::VALUE_BYTES_MAX) bytes.
        value: Value,
    },
    /// Gives an ephemeral key of a session a value. Repeating it with the same ticket is harmless.
    Put {
        /// Whose.
        session: SessionId,
        /// The number of the command in its session, from 1.
        ticket: Ticket,
        /// The key.
        key: Key,
        /// At most [`VALUE_BYTES_MAX`](palisade_types::limits::VALUE_BYTES_MAX) bytes.
        value: Value,
    },
    /// Removes an ephemeral key of a session. Repeating it with the same ticket is harmless.
    Delete {
        /// Whose.
        session: SessionId,
        /// The number of the command in its session, from 1.
        ticket: Ticket,
        /// The key.
        key: Key,
    },
    /// Puts on record that a key protects a resource. Belongs to no session, and repeating it is harmless.
    ClaimResource {
        /// What is protected.
        resource: Name,
        /// By which lock.
        key: Key,
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
            Request::Read { query, .. } => query.kind(),
            Request::Status => Kind::Status,
            Request::Operate { .. } => Kind::Operate,
            Request::Downgrade { .. } => Kind::Downgrade,
            Request::Campaign { .. } => Kind::Campaign,
            Request::Proclaim { .. } => Kind::Proclaim,
            Request::Put { .. } => Kind::Put,
            Request::Delete { .. } => Kind::Delete,
            Request::ClaimResource { .. } => Kind::ClaimResource,
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
            Request::Acquire { session, ticket, key, class, resource, mode, wait, on_death } => {
                put_claim(w, *session, *ticket);
                put_class(w, *class);
                put_mode(w, *mode);
                put_on_death(w, *on_death);
                put_wait(w, *wait);
                w.name(key);
                w.opt_name(resource.as_deref());
            }
            Request::Release { session, ticket } | Request::Cancel { session, ticket } => {
                put_claim(w, *session, *ticket);
            }
            Request::Read { consistency, query } => {
                put_consistency(w, *consistency);
                query.encode(w);
            }
            Request::Status => {}
            Request::Operate { by, reason, act } => {
                w.name(by);
                w.name(reason);
                act.as_ref().encode(w);
            }
            Request::Downgrade { session, ticket, holds } => {
                put_claim(w, *session, *ticket);
                w.u64(holds.0);
            }
            Request::Campaign { session, ticket, key, value, wait } => {
                put_claim(w, *session, *ticket);
                put_wait(w, *wait);
                w.name(key);
                w.bytes(value);
            }
            Request::Proclaim { session, ticket, leads, value } => {
                put_claim(w, *session, *ticket);
                w.u64(leads.0);
                w.bytes(value);
            }
            Request::Put { session, ticket, key, value } => {
                put_claim(w, *session, *ticket);
                w.name(key);
                w.bytes(value);
            }
            Request::Delete { session, ticket, key } => {
                put_claim(w, *session, *ticket);
                w.name(key);
            }
            Request::ClaimResource { resource, key } => {
                w.name(resource);
                w.name(key);
            }
            Request::Watch { watch, selector, present, cursor } => {
                w.u64(*watch);
                selector.encode(w);
                w.bool(*present);
                w.bool(cursor.is_some());
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
            let class = class(&mut r)?;
            if class == Class::Election {
                return Err(DecodeError::Unknown { what: "class of an acquire", value: 3 });
            }
            let (mode, on_death, wait) = (mode(&mut r)?, on_death(&mut r)?, wait(&mut r)?);
            let (key, resource) = (r.name()?, r.opt_name()?);
            Request::Acquire { session, ticket, key, class, resource, mode, wait, on_death }
        }
        Kind::Downgrade => {
            let (session, ticket) = claim(&mut r)?;
            Request::Downgrade { session, ticket, holds: Ticket(r.u64()?) }
        }
        Kind::Campaign => {
            let (session, ticket) = claim(&mut r)?;
            let wait = wait(&mut r)?;
            Request::Campaign { session, ticket, wait, key: r.name()?, value: value(&mut r)? }
        }
        Kind::Proclaim => {
            let (session, ticket) = claim(&mut r)?;
            Request::Proclaim { session, ticket, leads: Ticket(r.u64()?), value: value(&mut r)? }
        }
        Kind::Release => {
            let (session, ticket) = claim(&mut r)?;
            Request::Release { session, ticket }
        }
        Kind::Cancel => {
            let (session, ticket) = claim(&mut r)?;
            Request::Cancel { session, ticket }
        }
        Kind::Status => Request::Status,
        Kind::Operate => {
            Request::Operate { by: r.name()?, reason: r.name()?, act: OperatorAct::decode(&mut r)? }
        }
        Kind::Put => {
            let (session, ticket) = claim(&mut r)?;
            Request::Put { session, ticket, key: r.name()?, value: value(&mut r)? }
        }
        Kind::Delete => {
            let (session, ticket) = claim(&mut r)?;
            Request::Delete { session, ticket, key: r.name()? }
        }
        Kind::ClaimResource => Request::ClaimResource { resource: r.name()?, key: r.name()? },
        Kind::Watch => Request::Watch {
            watch: r.u64()?,
            selector: Selector::decode(&mut r)?,
            present: r.bool("present")?,
            cursor: if r.bool("presence")? { Some(Cursor::decode(&mut r)?) } else { None },
        },
        Kind::Unwatch => Request::Unwatch { watch: r.u64()? },
        _ => read(kind, &mut r)?,
    };
    r.finish()?;
    Ok(request)
}

/// Every read begins with its consistency.
fn read(kind: Kind, r: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let consistency = consistency(r)?;
    match Query::decode(kind, r)? {
        Some(query) => Ok(Request::Read { consistency, query }),
        None => Err(DecodeError::Unknown { what: "request kind", value: u64::from(kind.number()) }),
    }
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

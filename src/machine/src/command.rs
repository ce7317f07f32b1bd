//! The commands of the log, and their bytes.
//!
//! A command is encoded once, by the leader, into its block. Every replica decodes it again when it
//! applies it, borrowing the names from the block ([`CommandRef`]), so that an acquire of a known
//! key allocates nothing; nor are the names of an acquire checked, for the name of a record has been,
//! and most acquires are of a key that has one.
//!
//! ```text
//! kind u8, then, little-endian, names with a length in two bytes (0: none):
//! 1 open session  token u128, ttl_ms u32, owner name?, incarnation name?
//! 2 end session   session, cause u8 (1 closed, 2 expired), silent_ms u64 (closed: 0), release_now u32
//! 3 sweep         releases u32
//! 4 acquire       session, ticket u64, flags u8 (1 fenced, 2 wait, 4 shared, 8 quarantine), key name,
//!                 resource name?
//! 5 release       session, ticket u64
//! 6 cancel        session, ticket u64, timeout u8 (0 or 1)
//! 7 operator      by name, reason name, act u8, and then: 1 report dead, 2 evict: session, release_now u32;
//!                 3 force release, 4 retire: epoch u64, key name
//! 8 downgrade     session, ticket u64, holds u64 (the ticket of the claim)
//! 9 campaign      session, ticket u64, wait u8 (0 or 1), key name, value: as of a put
//! 10 proclaim     session, ticket u64, leads u64 (the ticket of the claim), value: as of a put
//! 11 put          session, ticket u64, key name, value: its length in four bytes, and its bytes
//! 12 delete       session, ticket u64, key name
//! session: shard u32, opened u64
//! ```

use alloc::vec::Vec;

use palisade_types::limits::VALUE_BYTES_MAX;
use palisade_types::name::NAME_BYTES_MAX;
use palisade_types::{
    ActRef, Cause, Class, DecodeError, Key, LogIndex, Mode, Name, NameError, OnDeath, OperatorAct, Reader,
    SessionId, SessionToken, ShardId, Ticket, Value, Writer,
};

const OPEN_SESSION: u8 = 1;
const END_SESSION: u8 = 2;
const SWEEP: u8 = 3;
const ACQUIRE: u8 = 4;
const RELEASE: u8 = 5;
const CANCEL: u8 = 6;
const OPERATOR: u8 = 7;
const DOWNGRADE: u8 = 8;
const CAMPAIGN: u8 = 9;
const PROCLAIM: u8 = 10;
const PUT: u8 = 11;
const DELETE: u8 = 12;

const CAUSE_CLOSED: u8 = 1;
const CAUSE_EXPIRED: u8 = 2;

const FLAG_FENCED: u8 = 1;
const FLAG_WAIT: u8 = 2;
const FLAG_SHARED: u8 = 4;
const FLAG_QUARANTINE: u8 = 8;
const FLAGS: u8 = FLAG_FENCED | FLAG_WAIT | FLAG_SHARED | FLAG_QUARANTINE;

const NAME_FIELD_MAX: usize = 2 + NAME_BYTES_MAX;
const SESSION_BYTES: usize = 12;
const CLAIM_BYTES: usize = SESSION_BYTES + 8;
const OPEN_BYTES_MAX: usize = 1 + 16 + 4 + 2 * NAME_FIELD_MAX;
const ACQUIRE_BYTES_MAX: usize = 1 + SESSION_BYTES + 8 + 1 + 2 * NAME_FIELD_MAX;
const OPERATOR_BYTES_MAX: usize = 1 + 2 * NAME_FIELD_MAX + ActRef::BYTES_MAX;
const PUT_BYTES_MAX: usize = 1 + CLAIM_BYTES + NAME_FIELD_MAX + 4 + VALUE_BYTES_MAX;
const CAMPAIGN_BYTES_MAX: usize = PUT_BYTES_MAX + 1;
const _: () = assert!(OPERATOR_BYTES_MAX > OPEN_BYTES_MAX && OPERATOR_BYTES_MAX > ACQUIRE_BYTES_MAX);
const _: () = assert!(PUT_BYTES_MAX > OPERATOR_BYTES_MAX);

/// What a replica is told to do. No command (zero bytes) is also one: it does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Opens a session, or finds the live one with this token.
    OpenSession {
        /// Drawn by the client.
        token: SessionToken,
        /// TTL in milliseconds; 0 asks for the default.
        ttl_ms: u32,
        /// Free tag.
        owner: Option<Name>,
        /// Free tag.
        incarnation: Option<Name>,
    },
    /// Ends a session.
    EndSession {
        /// Which.
        session: SessionId,
        /// Why; never [`Cause::Forgotten`].
        cause: Cause,
        /// How many of its keys to release in this same entry; the rest joins the backlog.
        release_now: u32,
    },
    /// Releases keys of ended sessions from the backlog.
    Sweep {
        /// How many.
        releases: u32,
    },
    /// Claims a key.
    Acquire {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// What is claimed.
        key: Key,
        /// What the lock is for.
        class: Class,
        /// What it protects; a fenced claim must say.
        resource: Option<Name>,
        /// Alone, or with others of this mode.
        mode: Mode,
        /// Whether to stand in the queue when the key is held.
        wait: bool,
        /// What becomes of the key should the session die with it.
        on_death: OnDeath,
    },
    /// Gives a claim up, whether it holds or waits.
    Release {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
    },
    /// Gives a claim up unless it holds.
    Cancel {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
        /// Its time to wait ran out, rather than its client's patience.
        timeout: bool,
    },
    /// An operator acts on another's session or key, and is put on record.
    Operator {
        /// Who.
        by: Name,
        /// Why.
        reason: Name,
        /// What is to be done.
        act: OperatorAct,
        /// Where a session is ended: how many of its keys to release in this same entry.
        release_now: u32,
    },
    /// Turns an exclusive grant into a shared one, as a new grant under a new ticket.
    Downgrade {
        /// Whose claim.
        session: SessionId,
        /// The ticket that takes over the claim.
        ticket: Ticket,
        /// The ticket that holds it.
        holds: Ticket,
    },
    /// Claims an election, with a value.
    Campaign {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// The election.
        key: Key,
        /// What observers are shown once the campaign has won.
        value: Value,
        /// Whether to stand in the queue when somebody leads.
        wait: bool,
    },
    /// Changes the value of a leader.
    Proclaim {
        /// Whose.
        session: SessionId,
        /// The number of this command.
        ticket: Ticket,
        /// The ticket of the campaign that won.
        leads: Ticket,
        /// The new value.
        value: Value,
    },
    /// Gives an ephemeral key of the session a value.
    Put {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: Key,
        /// At most [`VALUE_BYTES_MAX`] bytes.
        value: Value,
    },
    /// Removes an ephemeral key of the session.
    Delete {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: Key,
    },
}

/// A [`Command`] whose names are borrowed from its bytes. Those of an acquire are not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRef<'a> {
    /// See [`Command::OpenSession`].
    OpenSession {
        /// Drawn by the client.
        token: SessionToken,
        /// TTL in milliseconds; 0 asks for the default.
        ttl_ms: u32,
        /// Free tag.
        owner: Option<&'a str>,
        /// Free tag.
        incarnation: Option<&'a str>,
    },
    /// See [`Command::EndSession`].
    EndSession {
        /// Which.
        session: SessionId,
        /// Why.
        cause: Cause,
        /// How many of its keys to release in this same entry.
        release_now: u32,
    },
    /// See [`Command::Sweep`].
    Sweep {
        /// How many.
        releases: u32,
    },
    /// See [`Command::Acquire`].
    Acquire {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// What is claimed: a name, or not.
        key: &'a [u8],
        /// What the lock is for.
        class: Class,
        /// What it protects: a name, or not.
        resource: Option<&'a [u8]>,
        /// Alone, or with others of this mode.
        mode: Mode,
        /// Whether to stand in the queue.
        wait: bool,
        /// What becomes of the key should the session die with it.
        on_death: OnDeath,
    },
    /// See [`Command::Release`].
    Release {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
    },
    /// See [`Command::Cancel`].
    Cancel {
        /// Whose claim.
        session: SessionId,
        /// The ticket of its acquire.
        ticket: Ticket,
        /// Its time to wait ran out.
        timeout: bool,
    },
    /// See [`Command::Operator`].
    Operator {
        /// Who.
        by: &'a str,
        /// Why.
        reason: &'a str,
        /// What is to be done.
        act: ActRef<'a>,
        /// How many keys to release in this same entry.
        release_now: u32,
    },
    /// See [`Command::Downgrade`].
    Downgrade {
        /// Whose claim.
        session: SessionId,
        /// The ticket that takes over the claim.
        ticket: Ticket,
        /// The ticket that holds it.
        holds: Ticket,
    },
    /// See [`Command::Campaign`].
    Campaign {
        /// Whose claim.
        session: SessionId,
        /// The number of the claim.
        ticket: Ticket,
        /// The election: a name, or not.
        key: &'a [u8],
        /// What observers are shown.
        value: &'a [u8],
        /// Whether to stand in the queue.
        wait: bool,
    },
    /// See [`Command::Proclaim`].
    Proclaim {
        /// Whose.
        session: SessionId,
        /// The number of this command.
        ticket: Ticket,
        /// The ticket of the campaign that won.
        leads: Ticket,
        /// The new value.
        value: &'a [u8],
    },
    /// See [`Command::Put`].
    Put {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: &'a str,
        /// Its bytes.
        value: &'a [u8],
    },
    /// See [`Command::Delete`].
    Delete {
        /// Whose key.
        session: SessionId,
        /// The number of the command.
        ticket: Ticket,
        /// Which key.
        key: &'a str,
    },
}

impl Command {
    /// No command has more bytes than this.
    pub const BYTES_MAX: usize = CAMPAIGN_BYTES_MAX;
    /// No command but those that carry a value, has more bytes than this.
    pub const PLAIN_BYTES_MAX: usize = OPERATOR_BYTES_MAX;

    /// Appends the bytes of the command.
    ///
    /// # Panics
    /// On [`Cause::Forgotten`]: nothing ever ends for that reason; and on the causes that are
    /// operators', whose command is another.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.as_ref().encode(out);
    }

    /// The command of these bytes.
    ///
    /// # Errors
    /// When they are not exactly one command.
    pub fn decode(bytes: &[u8]) -> Result<Command, DecodeError> {
        CommandRef::decode(bytes)?.to_command()
    }

    /// The same command with borrowed names.
    pub fn as_ref(&self) -> CommandRef<'_> {
        match *self {
            Command::OpenSession { token, ttl_ms, ref owner, ref incarnation } => CommandRef::OpenSession {
                token,
                ttl_ms,
                owner: owner.as_deref(),
                incarnation: incarnation.as_deref(),
            },
            Command::EndSession { session, cause, release_now } => {
                CommandRef::EndSession { session, cause, release_now }
            }
            Command::Sweep { releases } => CommandRef::Sweep { releases },
            Command::Acquire { session, ticket, ref key, class, ref resource, mode, wait, on_death } => {
                let (key, resource) = (key.as_bytes(), resource.as_ref().map(|name| name.as_bytes()));
                CommandRef::Acquire { session, ticket, key, class, resource, mode, wait, on_death }
            }
            Command::Release { session, ticket } => CommandRef::Release { session, ticket },
            Command::Cancel { session, ticket, timeout } => CommandRef::Cancel { session, ticket, timeout },
            Command::Operator { ref by, ref reason, ref act, release_now } => {
                CommandRef::Operator { by, reason, act: act.as_ref(), release_now }
            }
            Command::Downgrade { session, ticket, holds } => CommandRef::Downgrade { session, ticket, holds },
            Command::Campaign { session, ticket, ref key, ref value, wait } => {
                CommandRef::Campaign { session, ticket, key: key.as_bytes(), value, wait }
            }
            Command::Proclaim { session, ticket, leads, ref value } => {
                CommandRef::Proclaim { session, ticket, leads, value }
            }
            Command::Put { session, ticket, ref key, ref value } => {
                CommandRef::Put { session, ticket, key, value }
            }
            Command::Delete { session, ticket, ref key } => CommandRef::Delete { session, ticket, key },
        }
    }
}

impl<'a> CommandRef<'a> {
    /// Appends the bytes of the command.
    ///
    /// # Panics
    /// On [`Cause::Forgotten`]: nothing ever ends for that reason.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        match *self {
            CommandRef::OpenSession { token, ttl_ms, owner, incarnation } => {
                w.u8(OPEN_SESSION);
                w.u128(token.0);
                w.u32(ttl_ms);
                w.opt_name(owner);
                w.opt_name(incarnation);
            }
            CommandRef::EndSession { session, cause, release_now } => {
                let (code, silent_ms) = match cause {
                    Cause::Closed => (CAUSE_CLOSED, 0),
                    Cause::Expired { silent_ms } => (CAUSE_EXPIRED, silent_ms),
                    Cause::Forgotten => unreachable!("no session ends by being forgotten"),
                    Cause::ReportedDead { .. } | Cause::Evicted { .. } => {
                        unreachable!("operators have a command of their own")
                    }
                };
                w.u8(END_SESSION);
                w.session(session);
                w.u8(code);
                w.u64(silent_ms);
                w.u32(release_now);
            }
            CommandRef::Sweep { releases } => {
                w.u8(SWEEP);
                w.u32(releases);
            }
            CommandRef::Acquire { session, ticket, key, class, resource, mode, wait, on_death } => {
                w.u8(ACQUIRE);
                w.session(session);
                w.u64(ticket.0);
                assert!(class != Class::Election, "elections are claimed by campaigns");
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                w.u8(flag(class == Class::Fenced, FLAG_FENCED)
                    | flag(wait, FLAG_WAIT)
                    | flag(mode == Mode::Shared, FLAG_SHARED)
                    | flag(on_death == OnDeath::Quarantine, FLAG_QUARANTINE));
                put_bytes(&mut w, key);
                put_bytes(&mut w, resource.unwrap_or_default());
            }
            CommandRef::Release { session, ticket } => {
                w.u8(RELEASE);
                w.session(session);
                w.u64(ticket.0);
            }
            CommandRef::Cancel { session, ticket, timeout } => {
                w.u8(CANCEL);
                w.session(session);
                w.u64(ticket.0);
                w.bool(timeout);
            }
            CommandRef::Operator { by, reason, act, release_now } => {
                w.u8(OPERATOR);
                w.name(by);
                w.name(reason);
                act.encode(&mut w);
                if act.ends().is_some() {
                    w.u32(release_now);
                }
            }
            CommandRef::Downgrade { session, ticket, holds } => {
                w.u8(DOWNGRADE);
                w.session(session);
                w.u64(ticket.0);
                w.u64(holds.0);
            }
            CommandRef::Campaign { session, ticket, key, value, wait } => {
                w.u8(CAMPAIGN);
                w.session(session);
                w.u64(ticket.0);
                w.bool(wait);
                put_bytes(&mut w, key);
                w.bytes(value);
            }
            CommandRef::Proclaim { session, ticket, leads, value } => {
                w.u8(PROCLAIM);
                w.session(session);
                w.u64(ticket.0);
                w.u64(leads.0);
                w.bytes(value);
            }
            CommandRef::Put { session, ticket, key, value } => {
                w.u8(PUT);
                w.session(session);
                w.u64(ticket.0);
                w.name(key);
                w.bytes(value);
            }
            CommandRef::Delete { session, ticket, key } => {
                w.u8(DELETE);
                w.session(session);
                w.u64(ticket.0);
                w.name(key);
            }
        }
    }

    /// The command of these bytes.
    ///
    /// # Errors
    /// When they are not exactly one command. The names of an acquire are for the caller to check.
    #[inline(always)]
    pub fn decode(bytes: &'a [u8]) -> Result<CommandRef<'a>, DecodeError> {
        // Nearly all commands are of these two kinds. Inlined, their fields stay in registers; as a value
        // in memory they are written in parts and read as a whole, for which the processor waits.
        match bytes {
            [ACQUIRE, rest @ ..] => get_acquire(rest),
            [RELEASE, claim @ ..] if claim.len() == CLAIM_BYTES => {
                let (session, ticket) = claim_of(claim.first_chunk().ok_or(DecodeError::Short)?);
                Ok(CommandRef::Release { session, ticket })
            }
            _ => CommandRef::decode_rare(bytes),
        }
    }

    #[inline(never)]
    fn decode_rare(bytes: &'a [u8]) -> Result<CommandRef<'a>, DecodeError> {
        let mut r = Reader::new(bytes);
        let command = match r.u8()? {
            OPEN_SESSION => CommandRef::OpenSession {
                token: SessionToken(r.u128()?),
                ttl_ms: r.u32()?,
                owner: r.opt_name_str()?,
                incarnation: r.opt_name_str()?,
            },
            END_SESSION => CommandRef::EndSession {
                session: r.session()?,
                cause: get_cause(&mut r)?,
                release_now: r.u32()?,
            },
            SWEEP => CommandRef::Sweep { releases: r.u32()? },
            RELEASE => {
                let (session, ticket) = get_claim(&mut r)?;
                CommandRef::Release { session, ticket }
            }
            CANCEL => {
                let (session, ticket) = get_claim(&mut r)?;
                CommandRef::Cancel { session, ticket, timeout: r.bool("timeout")? }
            }
            DOWNGRADE => {
                let (session, ticket) = get_claim(&mut r)?;
                CommandRef::Downgrade { session, ticket, holds: Ticket(r.u64()?) }
            }
            CAMPAIGN => {
                let (session, ticket) = get_claim(&mut r)?;
                let wait = r.bool("wait")?;
                let key = r.name_str()?.as_bytes();
                CommandRef::Campaign { session, ticket, key, value: get_value(&mut r)?, wait }
            }
            PROCLAIM => {
                let (session, ticket) = get_claim(&mut r)?;
                let leads = Ticket(r.u64()?);
                CommandRef::Proclaim { session, ticket, leads, value: get_value(&mut r)? }
            }
            OPERATOR => {
                let (by, reason) = (r.name_str()?, r.name_str()?);
                let act = ActRef::decode(&mut r)?;
                let release_now = if act.ends().is_some() { r.u32()? } else { 0 };
                CommandRef::Operator { by, reason, act, release_now }
            }
            PUT => {
                let (session, ticket) = get_claim(&mut r)?;
                let key = r.name_str()?;
                CommandRef::Put { session, ticket, key, value: r.bytes("value", VALUE_BYTES_MAX)? }
            }
            DELETE => {
                let (session, ticket) = get_claim(&mut r)?;
                CommandRef::Delete { session, ticket, key: r.name_str()? }
            }
            other => return Err(DecodeError::Unknown { what: "command", value: other.into() }),
        };
        r.finish()?;
        Ok(command)
    }

    fn to_command(self) -> Result<Command, DecodeError> {
        Ok(match self {
            CommandRef::OpenSession { token, ttl_ms, owner, incarnation } => Command::OpenSession {
                token,
                ttl_ms,
                owner: owner.map(Name::new).transpose()?,
                incarnation: incarnation.map(Name::new).transpose()?,
            },
            CommandRef::EndSession { session, cause, release_now } => {
                Command::EndSession { session, cause, release_now }
            }
            CommandRef::Sweep { releases } => Command::Sweep { releases },
            CommandRef::Acquire { session, ticket, key, class, resource, mode, wait, on_death } => {
                let (key, resource) = (Key::from_bytes(key)?, resource.map(Name::from_bytes).transpose()?);
                Command::Acquire { session, ticket, key, class, resource, mode, wait, on_death }
            }
            CommandRef::Release { session, ticket } => Command::Release { session, ticket },
            CommandRef::Cancel { session, ticket, timeout } => Command::Cancel { session, ticket, timeout },
            CommandRef::Operator { by, reason, act, release_now } => Command::Operator {
                by: Name::new(by)?,
                reason: Name::new(reason)?,
                act: act.to_act()?,
                release_now,
            },
            CommandRef::Downgrade { session, ticket, holds } => Command::Downgrade { session, ticket, holds },
            CommandRef::Campaign { session, ticket, key, value, wait } => Command::Campaign {
                session,
                ticket,
                key: Key::from_bytes(key)?,
                value: Value::from(value),
                wait,
            },
            CommandRef::Proclaim { session, ticket, leads, value } => {
                Command::Proclaim { session, ticket, leads, value: Value::from(value) }
            }
            CommandRef::Put { session, ticket, key, value } => {
                Command::Put { session, ticket, key: Key::new(key)?, value: Value::from(value) }
            }
            CommandRef::Delete { session, ticket, key } => {
                Command::Delete { session, ticket, key: Key::new(key)? }
            }
        })
    }
}

fn put_bytes(w: &mut Writer<'_>, bytes: &[u8]) {
    w.u16(bytes.len() as u16);
    w.0.extend_from_slice(bytes);
}

fn get_value<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    r.bytes("value", VALUE_BYTES_MAX)
}

fn get_claim(r: &mut Reader<'_>) -> Result<(SessionId, Ticket), DecodeError> {
    Ok(claim_of(r.take(CLAIM_BYTES)?.first_chunk().ok_or(DecodeError::Short)?))
}

#[inline]
fn claim_of(bytes: &[u8; CLAIM_BYTES]) -> (SessionId, Ticket) {
    let [s0, s1, s2, s3, rest @ ..] = *bytes;
    let [o0, o1, o2, o3, o4, o5, o6, o7, t0, t1, t2, t3, t4, t5, t6, t7] = rest;
    let opened = LogIndex(u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]));
    let session = SessionId { shard: ShardId(u32::from_le_bytes([s0, s1, s2, s3])), opened };
    (session, Ticket(u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7])))
}

fn get_cause(r: &mut Reader<'_>) -> Result<Cause, DecodeError> {
    let code = r.u8()?;
    let silent_ms = r.u64()?;
    match (code, silent_ms) {
        (CAUSE_CLOSED, 0) => Ok(Cause::Closed),
        (CAUSE_CLOSED, _) => {
            Err(DecodeError::Unknown { what: "silence of a closed session", value: silent_ms })
        }
        (CAUSE_EXPIRED, _) => Ok(Cause::Expired { silent_ms }),
        _ => Err(DecodeError::Unknown { what: "cause", value: code.into() }),
    }
}

/// An acquire, from behind its kind.
#[inline(always)]
fn get_acquire(bytes: &[u8]) -> Result<CommandRef<'_>, DecodeError> {
    let (claim, rest) = bytes.split_first_chunk().ok_or(DecodeError::Short)?;
    let (session, ticket) = claim_of(claim);
    let (&flags, rest) = rest.split_first().ok_or(DecodeError::Short)?;
    if flags & !FLAGS != 0 {
        return Err(DecodeError::Unknown { what: "flags of an acquire", value: flags.into() });
    }
    let class = if flags & FLAG_FENCED != 0 { Class::Fenced } else { Class::Advisory };
    let wait = flags & FLAG_WAIT != 0;
    let mode = if flags & FLAG_SHARED != 0 { Mode::Shared } else { Mode::Exclusive };
    let on_death = if flags & FLAG_QUARANTINE != 0 { OnDeath::Quarantine } else { OnDeath::Release };
    let (key, rest) = get_name(rest)?;
    if key.is_empty() {
        return Err(DecodeError::Name(NameError::Empty));
    }
    let (resource, rest) = get_name(rest)?;
    if !rest.is_empty() {
        return Err(DecodeError::Trailing(rest.len()));
    }
    let resource = Some(resource).filter(|name| !name.is_empty());
    Ok(CommandRef::Acquire { session, ticket, key, class, resource, mode, wait, on_death })
}

#[inline]
fn get_name(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let (&len, rest) = bytes.split_first_chunk().ok_or(DecodeError::Short)?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(len))).ok_or(DecodeError::Short)
}

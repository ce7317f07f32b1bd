//! The bytes of commands.
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
//! 13 claim resource  resource name, key name
//! session: shard u32, opened u64
//! ```

use alloc::vec::Vec;

use palisade_types::limits::VALUE_BYTES_MAX;
use palisade_types::name::NAME_BYTES_MAX;
use palisade_types::{
    ActRef, Cause, Class, DecodeError, LogIndex, Mode, NameError, OnDeath, Reader, SessionId, SessionToken,
    ShardId, Ticket, Writer,
};

use super::CommandRef;

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
const CLAIM_RESOURCE: u8 = 13;

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
pub(super) const OPERATOR_BYTES_MAX: usize = 1 + 2 * NAME_FIELD_MAX + ActRef::BYTES_MAX;
const PUT_BYTES_MAX: usize = 1 + CLAIM_BYTES + NAME_FIELD_MAX + 4 + VALUE_BYTES_MAX;
pub(super) const CAMPAIGN_BYTES_MAX: usize = PUT_BYTES_MAX + 1;
const _: () = assert!(OPERATOR_BYTES_MAX > OPEN_BYTES_MAX && OPERATOR_BYTES_MAX > ACQUIRE_BYTES_MAX);
const _: () = assert!(PUT_BYTES_MAX > OPERATOR_BYTES_MAX);

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
                put_claim(&mut w, session, ticket);
                w.u64(leads.0);
                w.bytes(value);
            }
            CommandRef::Put { session, ticket, key, value } => {
                w.u8(PUT);
                put_claim(&mut w, session, ticket);
                w.name(key);
                w.bytes(value);
            }
            CommandRef::Delete { session, ticket, key } => {
                w.u8(DELETE);
                put_claim(&mut w, session, ticket);
                w.name(key);
            }
            CommandRef::ClaimResource { resource, key } => {
                w.u8(CLAIM_RESOURCE);
                w.name(resource);
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
            CLAIM_RESOURCE => CommandRef::ClaimResource { resource: r.name_str()?, key: r.name_str()? },
            other => return Err(DecodeError::Unknown { what: "command", value: other.into() }),
        };
        r.finish()?;
        Ok(command)
    }
}

fn put_bytes(w: &mut Writer<'_>, bytes: &[u8]) {
    w.u16(bytes.len() as u16);
    w.0.extend_from_slice(bytes);
}

fn put_claim(w: &mut Writer<'_>, session: SessionId, ticket: Ticket) {
    w.session(session);
    w.u64(ticket.0);
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

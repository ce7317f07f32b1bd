//! Fields that several messages share.

use alloc::string::{String, ToString};
use palisade_types::limits::VALUE_BYTES_MAX;
use palisade_types::reply::Consistency;
use palisade_types::{
    Class, DecodeError, Epoch, Fence, Incarnation, Mode, NodeId, OnDeath, Outcome, Reader, SessionId,
    Standing, Ticket, Value, Writer,
};

use crate::TEXT_BYTES_MAX;

pub(crate) fn put_claim(w: &mut Writer<'_>, session: SessionId, ticket: Ticket) {
    w.session(session);
    w.u64(ticket.0);
}

pub(crate) fn claim(r: &mut Reader<'_>) -> Result<(SessionId, Ticket), DecodeError> {
    Ok((r.session()?, Ticket(r.u64()?)))
}

/// Node ids start at 1; 0 stands for none.
pub(crate) fn put_opt_node(w: &mut Writer<'_>, node: Option<NodeId>) {
    w.u32(node.map_or(0, |n| n.0));
}

pub(crate) fn opt_node(r: &mut Reader<'_>) -> Result<Option<NodeId>, DecodeError> {
    let number = r.u32()?;
    Ok((number != 0).then_some(NodeId(number)))
}

/// What every read begins with, and its answer.
pub(crate) fn put_consistency(w: &mut Writer<'_>, consistency: Consistency) {
    w.u8(consistency.number());
}

pub(crate) fn consistency(r: &mut Reader<'_>) -> Result<Consistency, DecodeError> {
    let number = r.u8()?;
    Consistency::of_number(number)
        .ok_or(DecodeError::Unknown { what: "consistency", value: u64::from(number) })
}

pub(crate) fn put_opt_incarnation(w: &mut Writer<'_>, value: Option<Incarnation>) {
    w.bool(value.is_some());
    if let Some(incarnation) = value {
        w.u128(incarnation.0);
    }
}

pub(crate) fn opt_incarnation(r: &mut Reader<'_>) -> Result<Option<Incarnation>, DecodeError> {
    Ok(if r.bool("presence")? { Some(Incarnation(r.u128()?)) } else { None })
}

/// A text for people: length in two bytes, then UTF-8. Cut at a character when it is too long.
pub(crate) fn put_text(w: &mut Writer<'_>, text: &str) {
    w.name(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
}

pub(crate) fn text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    plain(r, "text", TEXT_BYTES_MAX)
}

/// UTF-8 of a bounded length that follows no rules for names.
pub(crate) fn plain(r: &mut Reader<'_>, what: &'static str, max: usize) -> Result<String, DecodeError> {
    let len = usize::from(r.u16()?);
    if len > max {
        return Err(DecodeError::TooLong { what, max });
    }
    let bytes = r.take(len)?;
    let text = core::str::from_utf8(bytes).map_err(|_| palisade_types::NameError::NotUtf8)?;
    Ok(text.to_string())
}

pub(crate) fn put_fence(w: &mut Writer<'_>, fence: &Fence) {
    w.name(fence.key());
    w.u64(fence.epoch().0);
    w.u64(fence.barrier().0);
}

pub(crate) fn fence(r: &mut Reader<'_>) -> Result<Fence, DecodeError> {
    let key = r.name()?;
    let (epoch, barrier) = (r.u64()?, r.u64()?);
    Fence::new(key, Epoch(epoch), Epoch(barrier))
        .map_err(|_| DecodeError::Unknown { what: "fence epoch", value: epoch })
}

pub(crate) fn put_class(w: &mut Writer<'_>, class: Class) {
    w.u8(match class {
        Class::Fenced => 1,
        Class::Advisory => 2,
        Class::Election => 3,
    });
}

fn class_of(number: u8) -> Result<Class, DecodeError> {
    match number {
        1 => Ok(Class::Fenced),
        2 => Ok(Class::Advisory),
        3 => Ok(Class::Election),
        other => Err(DecodeError::Unknown { what: "class", value: u64::from(other) }),
    }
}

pub(crate) fn class(r: &mut Reader<'_>) -> Result<Class, DecodeError> {
    class_of(r.u8()?)
}

pub(crate) fn put_mode(w: &mut Writer<'_>, mode: Mode) {
    w.u8(match mode {
        Mode::Exclusive => 1,
        Mode::Shared => 2,
    });
}

pub(crate) fn mode(r: &mut Reader<'_>) -> Result<Mode, DecodeError> {
    match r.u8()? {
        1 => Ok(Mode::Exclusive),
        2 => Ok(Mode::Shared),
        other => Err(DecodeError::Unknown { what: "mode", value: u64::from(other) }),
    }
}

pub(crate) fn put_on_death(w: &mut Writer<'_>, on_death: OnDeath) {
    w.u8(match on_death {
        OnDeath::Release => 1,
        OnDeath::Quarantine => 2,
    });
}

pub(crate) fn on_death(r: &mut Reader<'_>) -> Result<OnDeath, DecodeError> {
    match r.u8()? {
        1 => Ok(OnDeath::Release),
        2 => Ok(OnDeath::Quarantine),
        other => Err(DecodeError::Unknown { what: "on_death", value: u64::from(other) }),
    }
}

pub(crate) fn put_standing(w: &mut Writer<'_>, standing: Standing) {
    w.u8(match standing {
        Standing::Live => 1,
        Standing::Ending => 2,
        Standing::Quarantined => 3,
    });
}

pub(crate) fn standing(r: &mut Reader<'_>) -> Result<Standing, DecodeError> {
    match r.u8()? {
        1 => Ok(Standing::Live),
        2 => Ok(Standing::Ending),
        3 => Ok(Standing::Quarantined),
        other => Err(DecodeError::Unknown { what: "standing", value: u64::from(other) }),
    }
}

pub(crate) fn value(r: &mut Reader<'_>) -> Result<Value, DecodeError> {
    Ok(Value::from(r.bytes("value", VALUE_BYTES_MAX)?))
}

pub(crate) fn put_opt_class(w: &mut Writer<'_>, class: Option<Class>) {
    match class {
        Some(class) => put_class(w, class),
        None => w.u8(0),
    }
}

pub(crate) fn opt_class(r: &mut Reader<'_>) -> Result<Option<Class>, DecodeError> {
    match r.u8()? {
        0 => Ok(None),
        number => class_of(number).map(Some),
    }
}

pub(crate) fn put_outcome(w: &mut Writer<'_>, outcome: Outcome) {
    w.u8(match outcome {
        Outcome::Unknown => 0,
        Outcome::Released => 1,
        Outcome::Cancelled => 2,
        Outcome::TimedOut => 3,
        Outcome::Denied => 4,
        Outcome::Refused => 5,
        Outcome::Forced => 6,
        Outcome::Downgraded => 7,
        Outcome::Done => 8,
    });
}

pub(crate) fn outcome(r: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
    Ok(match r.u8()? {
        0 => Outcome::Unknown,
        1 => Outcome::Released,
        2 => Outcome::Cancelled,
        3 => Outcome::TimedOut,
        4 => Outcome::Denied,
        5 => Outcome::Refused,
        6 => Outcome::Forced,
        7 => Outcome::Downgraded,
        8 => Outcome::Done,
        other => return Err(DecodeError::Unknown { what: "outcome", value: u64::from(other) }),
    })
}

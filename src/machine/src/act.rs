//! The bytes of operators' actions inside their command.

use palisade_types::{DecodeError, Epoch, Key, NameError, OperatorAct, Reader, SessionId, Writer};

use crate::command::{NAME_FIELD_MAX, get_session, put_session};

const ACT_REPORT_DEAD: u8 = 1;
const ACT_EVICT: u8 = 2;
const ACT_FORCE_RELEASE: u8 = 3;
const ACT_RETIRE: u8 = 4;

/// The longest is a forced release.
pub(crate) const ACT_BYTES_MAX: usize = 1 + 8 + NAME_FIELD_MAX;

/// An [`OperatorAct`] whose names are borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActRef<'a> {
    /// See [`OperatorAct::ReportDead`].
    ReportDead(SessionId),
    /// See [`OperatorAct::Evict`].
    Evict(SessionId),
    /// See [`OperatorAct::ForceRelease`].
    ForceRelease(&'a str, Epoch),
    /// See [`OperatorAct::Retire`].
    Retire(&'a str),
}

impl<'a> ActRef<'a> {
    pub(crate) fn new(act: &'a OperatorAct) -> ActRef<'a> {
        match act {
            OperatorAct::ReportDead { session } => ActRef::ReportDead(*session),
            OperatorAct::Evict { session } => ActRef::Evict(*session),
            OperatorAct::ForceRelease { key, epoch } => ActRef::ForceRelease(key, *epoch),
            OperatorAct::Retire { key } => ActRef::Retire(key),
        }
    }

    /// The same with names of its own.
    pub(crate) fn to_act(self) -> Result<OperatorAct, NameError> {
        Ok(match self {
            ActRef::ReportDead(session) => OperatorAct::ReportDead { session },
            ActRef::Evict(session) => OperatorAct::Evict { session },
            ActRef::ForceRelease(key, epoch) => OperatorAct::ForceRelease { key: Key::new(key)?, epoch },
            ActRef::Retire(key) => OperatorAct::Retire { key: Key::new(key)? },
        })
    }
}

pub(crate) fn put_act(w: &mut Writer<'_>, act: ActRef<'_>, release_now: u32) {
    match act {
        ActRef::ReportDead(session) | ActRef::Evict(session) => {
            w.u8(if matches!(act, ActRef::Evict(_)) { ACT_EVICT } else { ACT_REPORT_DEAD });
            put_session(w, session);
            w.u32(release_now);
        }
        ActRef::ForceRelease(key, epoch) => {
            w.u8(ACT_FORCE_RELEASE);
            w.u64(epoch.0);
            w.name(key);
        }
        ActRef::Retire(key) => {
            w.u8(ACT_RETIRE);
            w.name(key);
        }
    }
}

pub(crate) fn get_act<'a>(r: &mut Reader<'a>) -> Result<(ActRef<'a>, u32), DecodeError> {
    Ok(match r.u8()? {
        ACT_REPORT_DEAD => (ActRef::ReportDead(get_session(r)?), r.u32()?),
        ACT_EVICT => (ActRef::Evict(get_session(r)?), r.u32()?),
        ACT_FORCE_RELEASE => {
            let epoch = Epoch(r.u64()?);
            (ActRef::ForceRelease(r.name_str()?, epoch), 0)
        }
        ACT_RETIRE => (ActRef::Retire(r.name_str()?), 0),
        other => return Err(DecodeError::Unknown { what: "an operator's act", value: other.into() }),
    })
}

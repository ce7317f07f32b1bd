//! The numbers that stand for variants in snapshots. Released: a number keeps its meaning.

use palisade_types::{Cause, Class, LogIndex, Outcome, TransitionKind};

use crate::claims::State;

pub(crate) fn cause(cause: Cause) -> (u8, u64) {
    match cause {
        Cause::Closed => (1, 0),
        Cause::Expired { silent_ms } => (2, silent_ms),
        Cause::Forgotten => (3, 0),
        Cause::ReportedDead { action } => (4, action.0),
        Cause::Evicted { action } => (5, action.0),
    }
}

pub(crate) fn to_cause(code: u8, detail: u64) -> Option<Cause> {
    Some(match code {
        1 if detail == 0 => Cause::Closed,
        2 => Cause::Expired { silent_ms: detail },
        3 if detail == 0 => Cause::Forgotten,
        4 => Cause::ReportedDead { action: LogIndex(detail) },
        5 => Cause::Evicted { action: LogIndex(detail) },
        _ => return None,
    })
}

/// The cause of an end has the codes from 16 on.
pub(crate) fn how(how: TransitionKind) -> (u8, u64) {
    match how {
        TransitionKind::Granted => (1, 0),
        TransitionKind::Released => (2, 0),
        TransitionKind::Forced => (3, 0),
        TransitionKind::Downgraded => (4, 0),
        TransitionKind::SessionEnded(of) => {
            let (code, detail) = cause(of);
            (16 + code, detail)
        }
    }
}

pub(crate) fn to_how(code: u8, detail: u64) -> Option<TransitionKind> {
    Some(match (code, detail) {
        (1, 0) => TransitionKind::Granted,
        (2, 0) => TransitionKind::Released,
        (3, 0) => TransitionKind::Forced,
        (4, 0) => TransitionKind::Downgraded,
        _ => TransitionKind::SessionEnded(to_cause(code.checked_sub(16)?, detail)?),
    })
}

pub(crate) fn class(class: Class) -> u8 {
    match class {
        Class::Fenced => 1,
        Class::Advisory => 2,
        Class::Election => 3,
    }
}

pub(crate) fn to_class(code: u8) -> Option<Class> {
    [Class::Fenced, Class::Advisory, Class::Election].into_iter().find(|&c| class(c) == code)
}

pub(crate) fn state(state: State) -> u8 {
    match state {
        State::Queued => 0,
        State::Held => 1,
        State::Ending => 2,
        State::Quarantined => 3,
    }
}

pub(crate) fn to_state(code: u8) -> Option<State> {
    [State::Queued, State::Held, State::Ending, State::Quarantined].into_iter().find(|&s| state(s) == code)
}

pub(crate) fn outcome(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Unknown => 0,
        Outcome::Released => 1,
        Outcome::Cancelled => 2,
        Outcome::TimedOut => 3,
        Outcome::Denied => 4,
        Outcome::Refused => 5,
        Outcome::Forced => 6,
        Outcome::Downgraded => 7,
        Outcome::Done => 8,
    }
}

pub(crate) fn to_outcome(code: u8) -> Option<Outcome> {
    let all = [
        Outcome::Unknown,
        Outcome::Released,
        Outcome::Cancelled,
        Outcome::TimedOut,
        Outcome::Denied,
        Outcome::Refused,
        Outcome::Forced,
        Outcome::Downgraded,
        Outcome::Done,
    ];
    all.get(usize::from(code)).copied()
}

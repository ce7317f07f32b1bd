//! Every error says whether the same thing can succeed later. The lists below are matched without a rest:
//! a new variant does not compile before it has taken a side here.

use std::time::Duration;

use palisade_types::{Class, Epoch, NodeId, Term, Ticket};

use super::*;
use crate::WatchError;

const MAYBE_LATER: bool = false;
const FINAL: bool = true;

/// Every refusal.
fn refusals() -> Vec<Refusal> {
    let session = SessionId::default();
    let (what, limit) = ("keys".to_owned(), 1);
    let (asked, last) = (Epoch(1), Epoch(2));
    vec![
        Refusal::NotLeader { leader: Some(NodeId(1)) },
        Refusal::Interrupted { leader: None },
        Refusal::Busy { retry_after_ms: 5 },
        Refusal::QuotaExceeded { what: what.clone(), limit },
        Refusal::SessionEnded { session, cause: Cause::Closed },
        Refusal::NotAttached { session },
        Refusal::SessionFull { what, limit },
        Refusal::ClassMismatch { has: Class::Fenced },
        Refusal::TicketMismatch { ticket: Ticket(1) },
        Refusal::TicketFinished { ticket: Ticket(1), outcome: Outcome::Released },
        Refusal::NotHeld { asked, last },
        Refusal::OwnedByOther { session, owner: None },
        Refusal::InUse,
        Refusal::NotAtEpoch { asked, last },
        Refusal::NotAVoter { node: NodeId(4) },
        Refusal::OtherTerm { asked: Term(2), term: Term(3), leader: NodeId(1) },
        Refusal::NotHandedOver { leader: NodeId(1) },
        Refusal::Compacted { oldest: LogIndex(1) },
        Refusal::ClusterReset,
        Refusal::BadRequest { reason: "why".to_owned() },
    ]
}

fn side_of_refusal(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::NotLeader { .. }
        | Refusal::Interrupted { .. }
        | Refusal::Busy { .. }
        | Refusal::QuotaExceeded { .. }
        | Refusal::NotAttached { .. }
        | Refusal::SessionFull { .. } => MAYBE_LATER,
        Refusal::SessionEnded { .. }
        | Refusal::ClassMismatch { .. }
        | Refusal::TicketMismatch { .. }
        | Refusal::TicketFinished { .. }
        | Refusal::NotHeld { .. }
        | Refusal::OwnedByOther { .. }
        | Refusal::InUse
        | Refusal::NotAtEpoch { .. }
        | Refusal::NotAVoter { .. }
        | Refusal::OtherTerm { .. }
        | Refusal::NotHandedOver { .. }
        | Refusal::Compacted { .. }
        | Refusal::ClusterReset
        | Refusal::BadRequest { .. } => FINAL,
    }
}

/// Every reason for a loss.
fn reasons() -> Vec<LostReason> {
    let refused = refusals().into_iter().map(LostReason::Refused);
    let others = [
        LostReason::Ended(Cause::Closed),
        LostReason::DeadlinePassed,
        LostReason::Closed,
        LostReason::ShuttingDown,
        LostReason::Finished(Outcome::Forced),
        LostReason::Stopped,
    ];
    refused.chain(others).collect()
}

fn side_of_reason(reason: &LostReason) -> bool {
    match reason {
        LostReason::Ended(_)
        | LostReason::DeadlinePassed
        | LostReason::Closed
        | LostReason::ShuttingDown
        | LostReason::Refused(_)
        | LostReason::Finished(_)
        | LostReason::Stopped => FINAL,
    }
}

/// Every error of a call.
fn calls() -> Vec<CallError> {
    let others = [
        CallError::Unavailable { waited: Duration::from_secs(1), last: "refused".to_owned() },
        CallError::Name { what: "key", error: NameError::Empty },
        CallError::Beyond { asked: LogIndex(2), end: LogIndex(1) },
        CallError::Stopped,
    ];
    let lost = reasons().into_iter().map(CallError::SessionLost);
    others.into_iter().chain(lost).chain(refusals().into_iter().map(CallError::Refused)).collect()
}

fn side_of_call(error: &CallError) -> bool {
    match error {
        CallError::Unavailable { .. } => MAYBE_LATER,
        CallError::Refused(refusal) => side_of_refusal(refusal),
        CallError::SessionLost(reason) => side_of_reason(reason),
        CallError::Name { .. } | CallError::Beyond { .. } | CallError::Stopped => FINAL,
    }
}

/// Each is an error with a text, and on its side.
fn check<E: std::error::Error>(error: &E, is_final: bool, side: bool) {
    assert_eq!(is_final, side, "{error:?}");
    assert!(!error.to_string().is_empty(), "{error:?}");
}

#[test]
fn every_refusal_reason_and_error_of_a_call_says_whether_it_is_final() {
    for refusal in refusals() {
        check(&refusal, refusal.is_final(), side_of_refusal(&refusal));
    }
    for reason in reasons() {
        check(&reason, reason.is_final(), side_of_reason(&reason));
    }
    for error in calls() {
        check(&error, error.is_final(), side_of_call(&error));
    }
}

#[test]
fn every_error_that_holds_an_error_of_a_call_is_as_final_as_that() {
    for error in calls() {
        let side = side_of_call(&error);
        let acquire = AcquireError::from(error.clone());
        check(&acquire, acquire.is_final(), side);
        let shut_down = ShutDownError::from(error.clone());
        check(&shut_down, shut_down.is_final(), side);
        let report = ReportError { as_of: LogIndex(1), ended: Vec::new(), error: error.clone() };
        check(&report, report.is_final(), side);
        let kept = NotDowngraded { guard: None, error: error.clone() };
        check(&kept, kept.is_final(), FINAL);
        let kept = crate::blocking::NotDowngraded { guard: None, error };
        check(&kept, kept.is_final(), FINAL);
    }
}

#[test]
fn every_other_error_says_whether_it_is_final() {
    let acquires =
        [AcquireError::Held { holder: None, waiting: 1 }, AcquireError::TimedOut, AcquireError::Taken];
    for error in acquires {
        let side = match &error {
            AcquireError::Held { .. } | AcquireError::TimedOut | AcquireError::Taken => MAYBE_LATER,
            AcquireError::Call(error) => side_of_call(error),
        };
        check(&error, error.is_final(), side);
    }
    let times = (Duration::from_secs(2), Duration::from_secs(1));
    for lost in reasons().into_iter().map(Some).chain([None]) {
        let late = TooLate { needs: times.0, left: times.1, lost: lost.clone() };
        check(&late, late.is_final(), lost.is_some());
    }
    let remain = ShutDownError::GuardsRemain { left: 1, gone_within: Duration::from_secs(30) };
    let side = match &remain {
        ShutDownError::GuardsRemain { .. } => MAYBE_LATER,
        ShutDownError::Call(error) => side_of_call(error),
    };
    check(&remain, remain.is_final(), side);
    for error in [ConnectError::Config("no endpoint".to_owned()), io::Error::other("no timer").into()] {
        let side = match &error {
            ConnectError::Config(_) => FINAL,
            ConnectError::System(_) => MAYBE_LATER,
        };
        check(&error, error.is_final(), side);
    }
    let refused = refusals().into_iter().map(WatchError::Refused);
    for error in refused.chain([WatchError::ClusterReset, WatchError::Stopped]) {
        let side = match &error {
            WatchError::Refused(refusal) => side_of_refusal(refusal),
            WatchError::ClusterReset | WatchError::Stopped => FINAL,
        };
        check(&error, error.is_final(), side);
    }
}

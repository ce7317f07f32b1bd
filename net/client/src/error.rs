//! What can go wrong, told apart by what the caller can do about it.

use std::io;
use std::time::Duration;

use palisade_types::{Cause, HolderInfo, NameError, Refusal};

/// Why a session, and every lock it held, is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The cluster says that the session has ended. Others may hold its locks by now.
    #[error("the session has ended: {0}")]
    Ended(Cause),
    /// No renewal was acknowledged in time. The lease may run out any moment; this was noticed a
    /// margin before it, or on waking after it.
    #[error("no renewal was acknowledged before the deadline")]
    DeadlinePassed,
    /// This program closed the session.
    #[error("the session was closed here")]
    Closed,
    /// The client's task no longer runs, so nobody renews the session.
    #[error("the client has stopped")]
    Stopped,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration makes no sense.
    #[error("bad configuration: {0}")]
    Config(String),
    /// The kernel gives no timer on CLOCK_BOOTTIME, or no random number.
    #[error("the system gives no timer: {0}")]
    System(#[from] io::Error),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No usable cluster within the time given: nobody answers, or there is no quorum. This says
    /// nothing about the session. Worth trying again.
    #[error("no usable cluster within {} ms ({last})", waited.as_millis())]
    Unavailable {
        /// How long it was tried.
        waited: Duration,
        /// What happened last, for people.
        last: String,
    },
    /// The session is gone. Final.
    #[error("the session is lost: {0}")]
    SessionLost(LostReason),
    /// The cluster refuses. [`Refusal::is_final`] says whether the same call can succeed later.
    #[error(transparent)]
    Refused(Refusal),
    /// A key, resource or tag breaks the rules for names. Final.
    #[error("{what}: {error}")]
    Name {
        /// Which.
        what: &'static str,
        /// Which rule.
        error: NameError,
    },
    /// The client's task no longer runs: its runtime has shut down. Final.
    #[error("the client has stopped")]
    Stopped,
}

impl CallError {
    /// Whether the same call can never succeed.
    pub fn is_final(&self) -> bool {
        match self {
            CallError::Unavailable { .. } => false,
            CallError::Refused(refusal) => refusal.is_final(),
            CallError::SessionLost(_) | CallError::Name { .. } | CallError::Stopped => true,
        }
    }
}

/// Why an acquire ended without a grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody holds the key and the acquire did not want to wait. Worth trying again.
    #[error("held by {} (epoch {}) for {} ms", describe_holder(holder), holder.epoch, holder.held_ms)]
    Held {
        /// Who holds it.
        holder: Box<HolderInfo>,
        /// How many wait for it.
        waiting: u32,
    },
    /// The time to wait ran out. Said only once the wait is withdrawn: no grant follows. Worth
    /// trying again.
    #[error("the time to wait ran out")]
    TimedOut,
    /// For a reason that any call can fail for.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl AcquireError {
    /// Whether the same acquire, on the same session, can never succeed.
    pub fn is_final(&self) -> bool {
        match self {
            AcquireError::Held { .. } | AcquireError::TimedOut => false,
            AcquireError::Call(e) => e.is_final(),
        }
    }
}

fn describe_holder(holder: &HolderInfo) -> String {
    match &holder.owner {
        Some(owner) => format!("{owner}, session {}", holder.session),
        None => format!("session {}", holder.session),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{Class, SessionId};

    #[test]
    fn an_outage_is_worth_another_try_and_a_lost_session_is_not() {
        let outage = CallError::Unavailable { waited: Duration::from_secs(1), last: "refused".to_owned() };
        assert!(!outage.is_final());
        assert!(CallError::SessionLost(LostReason::DeadlinePassed).is_final());
        assert!(CallError::Refused(Refusal::ClassMismatch { has: Class::Fenced }).is_final());
        assert!(!CallError::Refused(Refusal::Busy { retry_after_ms: 5 }).is_final());
        assert!(!AcquireError::TimedOut.is_final());
        let ended = Refusal::SessionEnded { session: SessionId::default(), cause: Cause::Closed };
        assert!(AcquireError::from(CallError::Refused(ended)).is_final());
    }
}

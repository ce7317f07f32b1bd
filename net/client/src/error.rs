//! What can go wrong, told apart by what the caller can do about it.

use std::time::Duration;
use std::{fmt, io};

use palisade_client_core as core;
use palisade_types::{
    Cause, HolderInfo, LogIndex, Mode, Name, NameError, Outcome, Refusal, SessionId, Standing,
};

/// Why a session, and every lock it held, is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// This program is shutting the session down: stop the work and drop the guard. Nobody else is
    /// granted the lock before that, or before the lease ends ([`crate::Guard::grace`]).
    #[error("the session is being shut down here")]
    ShuttingDown,
    /// The cluster refuses the session for good.
    #[error(transparent)]
    Refused(Refusal),
    /// The cluster ended this lock alone.
    #[error("the cluster ended the lock: {0}")]
    Finished(Outcome),
    /// The client's task no longer runs, so nobody renews the session.
    #[error("the client has stopped")]
    Stopped,
}

impl LostReason {
    /// Always: what is lost does not come back. Work that is to go on needs a new session or a new
    /// grant, with a new fence.
    pub fn is_final(&self) -> bool {
        true
    }

    pub(crate) fn of_core(reason: core::LostReason) -> LostReason {
        match reason {
            core::LostReason::Ended(cause) => LostReason::Ended(cause),
            core::LostReason::DeadlinePassed => LostReason::DeadlinePassed,
            core::LostReason::Closed => LostReason::Closed,
            core::LostReason::Refused(refusal) => LostReason::Refused(refusal),
            core::LostReason::Finished(outcome) => LostReason::Finished(outcome),
            core::LostReason::NoSession => LostReason::Ended(Cause::Forgotten),
            core::LostReason::NoClaim => LostReason::Finished(Outcome::Unknown),
        }
    }
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

impl ConnectError {
    /// Whether the same configuration can never do: not so when the system lacked something.
    pub fn is_final(&self) -> bool {
        match self {
            ConnectError::Config(_) => true,
            ConnectError::System(_) => false,
        }
    }
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
    /// A revision was given that the log has not reached: it is a mistake, or another cluster's. Final.
    #[error("revision {asked} is beyond the end of the log, which is at {end}")]
    Beyond {
        /// What was given.
        asked: LogIndex,
        /// The newest revision there is.
        end: LogIndex,
    },
    /// The client's task no longer runs: its runtime has shut down. Final.
    #[error("the client has stopped")]
    Stopped,
}

/// A name of a caller's.
pub(crate) fn name(what: &'static str, text: &str) -> Result<Name, CallError> {
    Name::new(text).map_err(|error| CallError::Name { what, error })
}

impl CallError {
    /// Whether the same call can never succeed.
    pub fn is_final(&self) -> bool {
        match self {
            CallError::Unavailable { .. } => false,
            CallError::Refused(refusal) => refusal.is_final(),
            CallError::SessionLost(_)
            | CallError::Name { .. }
            | CallError::Beyond { .. }
            | CallError::Stopped => true,
        }
    }
}

/// Why a session that was shut down is not closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShutDownError {
    /// Guards were still there when the time was over. The session is renewed no more; their locks are
    /// free when they are dropped, or when the session has expired. Worth trying again: another
    /// [`crate::Session::shut_down`] goes on waiting.
    #[error(
        "{left} guards are still in use: their locks are free when they are dropped, \
         or {gone_within:?} after the last renewal at the latest"
    )]
    GuardsRemain {
        /// How many.
        left: usize,
        /// Once silent, the session is gone within this time.
        gone_within: Duration,
    },
    /// Every guard is gone, but the close was not confirmed; the session expires. Or the session was
    /// lost, meanwhile or before.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl ShutDownError {
    /// Whether shutting down once more cannot end better.
    pub fn is_final(&self) -> bool {
        match self {
            ShutDownError::GuardsRemain { .. } => false,
            ShutDownError::Call(error) => error.is_final(),
        }
    }
}

/// Why work under a lock was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not begun: it may take {needs:?}, and {left:?} are left; {}", crate::protect::Why(lost))]
pub struct TooLate {
    /// How much it was to have.
    pub needs: Duration,
    /// How much was left.
    pub left: Duration,
    /// Why the lock is lost, if it is.
    pub lost: Option<LostReason>,
}

impl TooLate {
    /// Whether it can never be begun under this lock: so when that is lost.
    pub fn is_final(&self) -> bool {
        self.lost.is_some()
    }
}

/// Why a report about an owner failed, and how far it came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}; the report, as of revision {as_of}, had ended {} sessions by then", ended.len())]
pub struct ReportError {
    /// Only sessions opened up to this revision were meant: give it again when repeating the report.
    pub as_of: LogIndex,
    /// The sessions that the report is known to have ended. It may have ended more, whose answers got
    /// lost; a repeat passes over them.
    pub ended: Vec<SessionId>,
    /// What went wrong.
    #[source]
    pub error: CallError,
}

impl ReportError {
    /// Whether the same report can never succeed. One that can is repeated with the same `as_of`.
    pub fn is_final(&self) -> bool {
        self.error.is_final()
    }
}

/// Why an acquire ended without a grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody holds the key and the acquire did not want to wait. Worth trying again.
    #[error("held{}", Holder(holder.as_deref()))]
    Held {
        /// Who holds it; unknown when the answer got lost on the way and was asked for again.
        holder: Option<Box<HolderInfo>>,
        /// How many wait for it.
        waiting: u32,
    },
    /// The time to wait ran out. Said only once the wait is withdrawn: no grant follows. Worth
    /// trying again.
    #[error("the time to wait ran out")]
    TimedOut,
    /// The lock was granted, and an operator took it away before the grant was heard of. It holds
    /// nothing; the key has had another epoch. Worth trying again.
    #[error("an operator took the lock away before its grant was heard of (`palisade acts` says why)")]
    Taken,
    /// For a reason that any call can fail for.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl AcquireError {
    /// Whether the same acquire, on the same session, can never succeed.
    pub fn is_final(&self) -> bool {
        match self {
            AcquireError::Held { .. } | AcquireError::TimedOut | AcquireError::Taken => false,
            AcquireError::Call(e) => e.is_final(),
        }
    }
}

/// A lock was not downgraded.
#[derive(Debug, thiserror::Error)]
#[error("not downgraded: {error}")]
pub struct NotDowngraded {
    /// The guard, if it still holds its lock as before.
    pub guard: Option<Box<crate::Guard>>,
    /// Why not.
    #[source]
    pub error: CallError,
}

impl NotDowngraded {
    /// Whether the same downgrade can never succeed: it cannot without the guard.
    pub fn is_final(&self) -> bool {
        self.guard.is_none() || self.error.is_final()
    }
}

struct Holder<'a>(Option<&'a HolderInfo>);

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(holder) = self.0 else { return Ok(()) };
        f.write_str(" by ")?;
        if let Some(owner) = &holder.owner {
            write!(f, "{owner}, ")?;
        }
        write!(f, "session {}, epoch {}, for {} ms", holder.session, holder.epoch, holder.held_ms)?;
        match (holder.mode, holder.standing) {
            (_, Standing::Quarantined) => f.write_str(", in quarantine until its death is reported"),
            (_, Standing::Ending) => f.write_str(", whose session has ended"),
            (Mode::Shared, Standing::Live) => f.write_str(", shared"),
            (Mode::Exclusive, Standing::Live) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

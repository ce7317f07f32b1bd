//! Acquiring, and the guard that a grant is.

use std::sync::Arc;
use std::time::Duration;

use palisade_client_core::AcquireSpec;
use palisade_types::{Class, Fence, HolderInfo, SessionId};
use palisade_wire::Wait;
use tokio::sync::{mpsc, oneshot, watch};

use crate::command::{ClaimEvent, Command, LostReceiver, Tag};
use crate::error::{AcquireError, CallError, LostReason, name};
use crate::session::{Handle, lost, lost_now};

/// An acquire stands in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// How many wait ahead of it, the holder not counted.
    pub place: u32,
    /// Who holds the key.
    pub holder: HolderInfo,
}

type OnQueued = Box<dyn FnMut(Queued) + Send>;

/// What both kinds of acquire have in common.
struct Request {
    handle: Arc<Handle>,
    key: String,
    class: Class,
    resource: Option<String>,
    wait: Wait,
    on_queued: Option<OnQueued>,
}

impl Request {
    fn spec(&self) -> Result<AcquireSpec, CallError> {
        Ok(AcquireSpec {
            key: name("key", &self.key)?,
            class: self.class,
            resource: self.resource.as_deref().map(|r| name("resource", r)).transpose()?,
            wait: self.wait,
        })
    }

    async fn acquire(mut self) -> Result<Guard, AcquireError> {
        let spec = self.spec()?;
        let tag = self.handle.shared.next_tag();
        let (events_in, mut events) = mpsc::unbounded_channel();
        let (lost_in, lost) = watch::channel(None);
        let session = self.handle.tag;
        self.handle.shared.send(Command::Acquire { session, tag, spec, events: events_in, lost: lost_in })?;
        // Dropping the future from here on abandons the claim, also one that is granted meanwhile.
        let claim = Claim { handle: self.handle, tag, over: false };
        loop {
            match events.recv().await {
                Some(ClaimEvent::Queued { place, holder }) => {
                    if let Some(tell) = &mut self.on_queued {
                        tell(Queued { place, holder: *holder });
                    }
                }
                Some(ClaimEvent::Granted(fence)) => {
                    return Ok(Guard { claim, class: self.class, fence, lost });
                }
                Some(ClaimEvent::Failed(error)) => {
                    let reason = claim.handle.lost_now();
                    claim.forget();
                    return Err(match (error, reason) {
                        // The driver keeps no memory of sessions that are over; their handles do.
                        (AcquireError::Call(CallError::SessionLost(_)), Some(reason)) => {
                            CallError::SessionLost(reason).into()
                        }
                        (error, _) => error,
                    });
                }
                None => return Err(CallError::Stopped.into()),
            }
        }
    }
}

/// A claim of ours that is not over: abandoned when dropped.
struct Claim {
    handle: Arc<Handle>,
    tag: Tag,
    over: bool,
}

impl Claim {
    fn forget(mut self) {
        self.over = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.over {
            // Without a driver nothing is renewed, and the claim ends with its session.
            let _ = self.handle.shared.send(Command::Abandon { tag: self.tag });
        }
    }
}

macro_rules! request_methods {
    ($name:ident) => {
        impl $name {
            /// Wait at most so long. Without this or [`Self::no_wait`], it waits for ever.
            pub fn wait(mut self, time: Duration) -> $name {
                self.0.wait = match u32::try_from(time.as_millis()) {
                    Ok(0) => Wait::No,
                    Ok(ms) => Wait::Millis(ms),
                    Err(_) => Wait::Forever,
                };
                self
            }

            /// Do not wait: [`AcquireError::Held`] at once when somebody holds the key.
            pub fn no_wait(mut self) -> $name {
                self.0.wait = Wait::No;
                self
            }

            /// Calls this each time the cluster says that the acquire stands in the queue.
            pub fn on_queued(mut self, tell: impl FnMut(Queued) + Send + 'static) -> $name {
                self.0.on_queued = Some(Box::new(tell));
                self
            }

            /// Acquires. Dropping the future withdraws the wait, and releases a grant that came
            /// meanwhile.
            ///
            /// An outage of the cluster is waited out as long as the session lives.
            ///
            /// # Errors
            /// [`AcquireError::Held`] without a wait, [`AcquireError::TimedOut`] after one,
            /// [`AcquireError::Taken`] when an operator was quicker, and what can go wrong with any call.
            pub async fn acquire(self) -> Result<Guard, AcquireError> {
                self.0.acquire().await
            }

            /// Acquires if nobody holds the key; `None` if somebody does, or if an operator took it
            /// away before the grant was heard of.
            ///
            /// # Errors
            /// What can go wrong with any call.
            pub async fn try_acquire(self) -> Result<Option<Guard>, CallError> {
                match self.no_wait().acquire().await {
                    Ok(guard) => Ok(Some(guard)),
                    Err(AcquireError::Held { .. } | AcquireError::TimedOut | AcquireError::Taken) => Ok(None),
                    Err(AcquireError::Call(e)) => Err(e),
                }
            }
        }
    };
}

/// A lock for correctness, not yet acquired. Made by [`crate::Session::fenced`].
///
/// ```no_run
/// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn write(_: &palisade_client::Fence, _: &str) -> Result<(), std::io::Error> { Ok(()) }
/// let guard = session.fenced("invoices/run", "billing-db").acquire().await?;
/// tokio::select! {
///     reason = guard.lost() => eprintln!("stop working: {reason}"),
///     // The resource refuses the write if anybody newer has acted.
///     written = write(guard.fence(), "totals") => written?,
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is asked before `acquire` is awaited"]
pub struct FencedRequest(Request);

impl FencedRequest {
    pub(crate) fn new(handle: Arc<Handle>, key: String, resource: String) -> FencedRequest {
        FencedRequest(Request {
            handle,
            key,
            class: Class::Fenced,
            resource: Some(resource),
            wait: Wait::Forever,
            on_queued: None,
        })
    }
}

request_methods!(FencedRequest);

/// A lock for efficiency, not yet acquired. Made by [`crate::Session::advisory`].
///
/// ```no_run
/// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// match session.advisory("warm-cache").try_acquire().await? {
///     Some(_guard) => { /* warm the cache; the guard releases when it is dropped */ }
///     None => { /* somebody else is at it */ }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is asked before `acquire` is awaited"]
pub struct AdvisoryRequest(Request);

impl AdvisoryRequest {
    pub(crate) fn new(handle: Arc<Handle>, key: String) -> AdvisoryRequest {
        AdvisoryRequest(Request {
            handle,
            key,
            class: Class::Advisory,
            resource: None,
            wait: Wait::Forever,
            on_queued: None,
        })
    }

    /// Names the resource all the same, for people who look at the key.
    pub fn resource(mut self, resource: impl Into<String>) -> AdvisoryRequest {
        self.0.resource = Some(resource.into());
        self
    }
}

request_methods!(AdvisoryRequest);

/// A held lock. Released when it is dropped.
///
/// What a guard cannot do: a process that is stopped (SIGSTOP, a paused virtual machine) runs
/// nothing, so it cannot notice that its lease runs out, and between a check and the write that
/// follows it any amount of time may pass. The fence makes the late write harmless, if the resource
/// checks it: show [`Guard::fence`] with every write.
#[must_use = "a guard releases its lock when it is dropped"]
pub struct Guard {
    claim: Claim,
    class: Class,
    fence: Fence,
    lost: LostReceiver,
}

impl Guard {
    /// What to show the resource with every write.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// What the lock is for.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The session that holds it.
    pub fn session(&self) -> SessionId {
        self.claim.handle.opened().session
    }

    /// Whether the lock may still be relied upon. Asks the clock, so the answer is right even if
    /// this process was stopped a moment ago; it can be stopped again right after.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lock may still be relied upon without another renewal; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        if lost_now(&self.lost).is_some() { Duration::ZERO } else { self.claim.handle.lease.remaining() }
    }

    /// How long nobody else can be granted the lock, even if nothing is renewed any more: longer
    /// than [`Guard::remaining`] by the margin, for cleaning up after [`Guard::lost`]. Zero once the
    /// cluster has said that the session ended.
    pub fn grace(&self) -> Duration {
        self.claim.handle.lease.until_end()
    }

    /// Completes when the lock is lost, with the reason, a margin (a tenth of the TTL, at most 1 s)
    /// before silence can end the lease elsewhere. May be awaited any number of times.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        lost(self.lost.clone())
    }

    /// Releases and waits for the cluster to confirm it. Dropping the future, like dropping the
    /// guard, releases without waiting.
    ///
    /// # Errors
    /// [`CallError::SessionLost`] when the lock was lost before: somebody else may have held it
    /// meanwhile. [`CallError::Unavailable`] when no usable cluster confirmed it in time; it is still
    /// tried, and at the latest the session's end frees the key.
    pub async fn release(self) -> Result<(), CallError> {
        let Guard { claim, lost, .. } = self;
        let (reply, answer) = oneshot::channel();
        // Kept to the end: the last handle of a session closes it.
        let handle = claim.handle.clone();
        handle.shared.send(Command::Release { tag: claim.tag, reply })?;
        claim.forget();
        match handle.shared.answer(answer).await {
            Err(CallError::SessionLost(reason)) => {
                Err(CallError::SessionLost(lost_now(&lost).unwrap_or(reason)))
            }
            end => end,
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "guard({}, session {})", self.fence, self.session())
    }
}

//! Acquiring, and the guard that a grant is.

use std::sync::Arc;
use std::time::Duration;

use palisade_client_core::{AcquireSpec, Conflict};
use palisade_types::{Class, Fence, HolderInfo, Mode, OnDeath, SessionId, Signature, SignedFence};
use palisade_wire::Wait;
use tokio::sync::{mpsc, oneshot, watch};

use crate::command::{ClaimEvent, Command, ConflictReceiver, LostReceiver, Shown, Tag};
use crate::error::{AcquireError, CallError, LostReason, NotDowngraded, name};
use crate::renewals::Renewals;
use crate::session::{Handle, lost, lost_now};
use crate::values::value;

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
pub(crate) struct Request {
    handle: Arc<Handle>,
    pub(crate) key: String,
    class: Class,
    pub(crate) resource: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
    on_death: OnDeath,
    value: Option<Vec<u8>>,
    pub(crate) on_queued: Option<OnQueued>,
}

impl Request {
    /// An exclusive claim that waits for as long as it takes.
    pub(crate) fn new(handle: Arc<Handle>, key: String, class: Class) -> Request {
        Request {
            handle,
            key,
            class,
            resource: None,
            mode: Mode::Exclusive,
            wait: Wait::Forever,
            on_death: OnDeath::Release,
            value: None,
            on_queued: None,
        }
    }

    pub(crate) fn campaign(handle: Arc<Handle>, election: String, value: Vec<u8>) -> Request {
        Request { value: Some(value), ..Request::new(handle, election, Class::Election) }
    }

    pub(crate) fn spec(&self) -> Result<AcquireSpec, CallError> {
        Ok(AcquireSpec {
            key: name("key", &self.key)?,
            class: self.class,
            resource: self.resource.as_deref().map(|r| name("resource", r)).transpose()?,
            mode: self.mode,
            wait: self.wait,
            on_death: self.on_death,
            value: self.value.as_deref().map(value).transpose().map_err(CallError::Refused)?,
        })
    }

    pub(crate) async fn acquire(mut self) -> Result<Guard, AcquireError> {
        let spec = self.spec()?;
        let tag = self.handle.shared.next_tag();
        let (events_in, mut events) = mpsc::unbounded_channel();
        let (lost_in, lost) = watch::channel(None);
        let (conflict_in, conflict) = spec.resource.as_ref().map(|_| watch::channel(None)).unzip();
        let session = self.handle.tag;
        let order =
            Command::Acquire { session, tag, spec, events: events_in, lost: lost_in, conflict: conflict_in };
        self.handle.shared.send(order)?;
        // Dropping the future from here on abandons the claim, also one that is granted meanwhile.
        let claim = Claim { handle: self.handle, tag, over: false };
        loop {
            match events.recv().await {
                Some(ClaimEvent::Queued { place, holder }) => {
                    if let Some(tell) = &mut self.on_queued {
                        tell(Queued { place, holder: *holder });
                    }
                }
                Some(ClaimEvent::Granted(shown)) => {
                    return Ok(Guard { claim, class: self.class, mode: self.mode, shown, lost, conflict });
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

pub(crate) fn wait_of(time: Duration) -> Wait {
    match u32::try_from(time.as_millis()) {
        Ok(0) => Wait::No,
        Ok(ms) => Wait::Millis(ms),
        Err(_) => Wait::Forever,
    }
}

/// What everything that may have to wait has: whether it does, and word of it.
macro_rules! waiting_methods {
    ($name:ident, $acquire:literal) => {
        impl $name {
            #[doc = concat!("Wait at most so long. Without this or [`Self::no_wait`], ", $acquire, " waits for ever.")]
            pub fn wait(mut self, time: Duration) -> $name {
                self.0.wait = $crate::lock::wait_of(time);
                self
            }

            /// Do not wait: [`AcquireError::Held`](crate::AcquireError::Held) at once when somebody holds
            /// the key.
            pub fn no_wait(mut self) -> $name {
                self.0.wait = Wait::No;
                self
            }

            /// Calls this each time the cluster says that it stands in the queue.
            pub fn on_queued(mut self, tell: impl FnMut(Queued) + Send + 'static) -> $name {
                self.0.on_queued = Some(Box::new(tell));
                self
            }
        }
    };
}
pub(crate) use waiting_methods;

macro_rules! request_methods {
    ($name:ident) => {
        waiting_methods!($name, "it");

        impl $name {
            /// Hold the lock together with others that ask for it in this mode: they exclude only whoever
            /// wants it alone. Who waits for it alone is not overtaken, so readers do not starve writers.
            /// A shared lock cannot become exclusive (two that tried would wait for each other): release
            /// it and acquire anew.
            pub fn shared(mut self) -> $name {
                self.0.mode = Mode::Shared;
                self
            }

            /// Keep the key closed should this session fall silent: nobody is granted it until the
            /// session's death is reported or the grant is released by force. At most once, for a resource
            /// that cannot check a fence: the price is that somebody must come and look.
            pub fn quarantine(mut self) -> $name {
                self.0.on_death = OnDeath::Quarantine;
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
        FencedRequest(Request { resource: Some(resource), ..Request::new(handle, key, Class::Fenced) })
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
        AdvisoryRequest(Request::new(handle, key, Class::Advisory))
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
/// ```no_run
/// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn write(_: &palisade_client::Fence, _: u32) -> Result<(), std::io::Error> { Ok(()) }
/// let guard = session.fenced("import/orders", "orders-db").acquire().await?;
/// for part in 0..10 {
///     if !guard.is_valid() {
///         return Err(guard.lost().await.into());
///     }
///     write(guard.fence(), part).await?;
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// It belongs to its session and to no thread, task or runtime: whoever has it may use, release or drop it
/// anywhere. Dropping it only leaves word for the client's task, so it never waits and never panics. When
/// that task has ended with its runtime, nobody renews any more: the guard says that it is lost
/// ([`LostReason::Stopped`]), dropping it does nothing, and the key is free when the session has expired.
///
/// What a guard cannot do: a process that is stopped (SIGSTOP, a paused virtual machine) runs
/// nothing, so it cannot notice that its lease runs out, and between a check and the write that
/// follows it any amount of time may pass. The fence makes the late write harmless, if the resource
/// checks it: show [`Guard::fence`] with every write.
#[must_use = "a guard releases its lock when it is dropped"]
pub struct Guard {
    claim: Claim,
    class: Class,
    mode: Mode,
    shown: Shown,
    lost: LostReceiver,
    /// Of a lock that names a resource.
    conflict: Option<ConflictReceiver>,
}

impl Guard {
    /// What to show the resource with every write.
    pub fn fence(&self) -> &Fence {
        &self.shown.0
    }

    /// What the cluster has signed the fence with; `None` where it signs nothing, and for an advisory lock. A resource that wants
    /// signatures is shown it with the fence. Whoever has both can show them: keep them as you would a password that is good
    /// for this epoch.
    pub fn signature(&self) -> Option<Signature> {
        self.shown.1
    }

    /// Fence and signature as one, if the fence is signed.
    pub fn signed_fence(&self) -> Option<SignedFence> {
        let (fence, signature) = self.shown.clone();
        Some(SignedFence { fence, signature: signature? })
    }

    /// What the lock is for.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether it is held alone or with others.
    pub fn mode(&self) -> Mode {
        self.mode
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

    /// Why it is lost, if it is.
    pub(crate) fn lost_by_now(&self) -> Option<LostReason> {
        lost_now(&self.lost)
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

    /// A warning: another key protects the resource that this lock names, so that the two locks do not
    /// exclude each other. `None` while the registry of resources has not answered (which it does at about
    /// the time of the grant, and later when it is out of reach), and for a lock that names no resource.
    pub fn conflict(&self) -> Option<Conflict> {
        self.conflict.as_ref().and_then(|conflict| conflict.borrow().clone())
    }

    /// Completes with the warning of [`Guard::conflict`] as soon as it is there, or with `None` once the lock
    /// is over without one. Holds neither the lock nor the session.
    pub fn conflicted(&self) -> impl Future<Output = Option<Conflict>> + Send + use<> {
        let conflict = self.conflict.clone();
        async move {
            let mut conflict = conflict?;
            match conflict.wait_for(Option::is_some).await {
                Ok(conflict) => conflict.clone(),
                Err(_) => None,
            }
        }
    }

    /// The renewals of its session, as [`crate::Session::renewals`].
    pub fn renewals(&self) -> Renewals {
        Renewals::of(self.claim.handle.lease.clone())
    }

    pub(crate) fn tag(&self) -> Tag {
        self.claim.tag
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.claim.handle
    }

    /// Why it is lost, if that is known here better than where it was asked.
    pub(crate) fn why(&self, reason: LostReason) -> LostReason {
        lost_now(&self.lost).unwrap_or(reason)
    }

    /// Turns an exclusive lock into a shared one in one step, without a moment in which it is not held,
    /// and lets in those who wait to share it. It is a new grant: the guard returned has another fence,
    /// by which exclusive writes still under way are refused once anybody acts. There is no way back.
    ///
    /// An outage of the cluster is waited out as long as the session lives. Dropping the future releases
    /// the lock.
    ///
    /// # Errors
    /// [`NotDowngraded`], with the guard when it still holds what it held: a shared lock is shared already.
    pub async fn downgrade(mut self) -> Result<Guard, NotDowngraded> {
        let (reply, answer) = oneshot::channel();
        let order = Command::Downgrade { tag: self.claim.tag, reply };
        if let Err(error) = self.claim.handle.shared.send(order) {
            return Err(NotDowngraded { guard: None, error });
        }
        match answer.await {
            Ok(Ok(shown)) => {
                (self.shown, self.mode) = (shown, Mode::Shared);
                Ok(self)
            }
            Ok(Err(refusal)) => {
                Err(NotDowngraded { guard: Some(Box::new(self)), error: CallError::Refused(refusal) })
            }
            Err(_) => {
                let reason = lost(self.lost.clone()).await;
                Err(NotDowngraded { guard: None, error: CallError::SessionLost(reason) })
            }
        }
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
        write!(f, "guard({}, session {})", self.fence(), self.session())
    }
}

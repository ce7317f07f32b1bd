//! Lock sets: several locks of one session, taken in one order by everybody, so that {a, b} against
//! {b, a} never waits for itself.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use palisade_types::{Class, Fence, Mode};
use palisade_wire::Wait;

use crate::clock;
use crate::error::{AcquireError, CallError, LostReason};
use crate::lock::{Guard, Request, wait_of};
use crate::session::{Handle, Session};

/// Why a set was not acquired. Whatever of it was granted is released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The set names no key. Final.
    #[error("a set needs at least one key")]
    Empty,
    /// The set names a key twice, of which the second would wait for the first. Final.
    #[error("the set names key {key} twice")]
    Duplicate {
        /// Which.
        key: String,
    },
    /// One of the keys was not to be had.
    #[error("key {key} of the set: {error}")]
    Acquire {
        /// Which: the first in the order of the keys' bytes.
        key: String,
        /// Why not.
        #[source]
        error: AcquireError,
    },
    /// A lock of the set was lost while others of it were being waited for.
    #[error("key {key} of the set was lost while others were waited for: {reason}")]
    Lost {
        /// Which.
        key: String,
        /// Why.
        reason: LostReason,
    },
}

impl SetError {
    /// Whether the same set, on the same session, can never be acquired.
    pub fn is_final(&self) -> bool {
        match self {
            SetError::Empty | SetError::Duplicate { .. } => true,
            SetError::Acquire { error, .. } => error.is_final(),
            SetError::Lost { reason, .. } => !matches!(reason, LostReason::Finished(_)),
        }
    }
}

/// Several locks, not yet acquired. Made by [`Session::set`].
///
/// The keys are acquired one after the other, in the order of their bytes, whatever the order in which
/// they were named. So sets never wait for each other in a circle. For the caller it is all or nothing:
/// there is a guard once every lock is held, and whenever that fails, or the future is dropped, what was
/// granted so far is released.
///
/// It is no transaction. While the set waits for one key it holds those before it, and anybody can see
/// that and is kept out by it: a set that waits long makes others wait. And the order protects sets from
/// sets only: whoever holds a lock and then asks for a set, or for a second set, can wait in a circle with
/// somebody who does the same the other way round. Ask for all at once, or bound the wait.
///
/// ```no_run
/// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn transfer(_: &palisade_client::SetGuard) -> Result<(), std::io::Error> { Ok(()) }
/// let accounts = session.set().fenced("account/7", "ledger").fenced("account/3", "ledger").acquire().await?;
/// tokio::select! {
///     (key, reason) = accounts.lost() => eprintln!("stop working: {key} is lost: {reason}"),
///     // Each write shows the fence of its account: `accounts.fence("account/7")`.
///     done = transfer(&accounts) => done?,
/// }
/// accounts.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is asked before `acquire` is awaited"]
pub struct SetRequest {
    handle: Arc<Handle>,
    requests: Vec<Request>,
    mode: Mode,
    wait: Wait,
}

impl Session {
    /// Several locks that are acquired together. See [`SetRequest`].
    pub fn set(&self) -> SetRequest {
        let (handle, requests) = (self.handle.clone(), Vec::new());
        SetRequest { handle, requests, mode: Mode::Exclusive, wait: Wait::Forever }
    }
}

impl SetRequest {
    /// Adds a lock for correctness, as [`Session::fenced`] makes it.
    pub fn fenced(mut self, key: impl Into<String>, resource: impl Into<String>) -> SetRequest {
        let mut request = Request::new(self.handle.clone(), key.into(), Class::Fenced);
        request.resource = Some(resource.into());
        self.requests.push(request);
        self
    }

    /// Adds a lock for efficiency, as [`Session::advisory`] makes it.
    pub fn advisory(mut self, key: impl Into<String>) -> SetRequest {
        self.requests.push(Request::new(self.handle.clone(), key.into(), Class::Advisory));
        self
    }

    /// Hold all of them together with others that ask for them in this mode, as
    /// [`crate::FencedRequest::shared`] says.
    pub fn shared(mut self) -> SetRequest {
        self.mode = Mode::Shared;
        self
    }

    /// Wait at most so long for all of them together. Without this or [`Self::no_wait`], it waits for ever.
    pub fn wait(mut self, time: Duration) -> SetRequest {
        self.wait = wait_of(time);
        self
    }

    /// Do not wait for any of them.
    pub fn no_wait(mut self) -> SetRequest {
        self.wait = Wait::No;
        self
    }

    /// Acquires all of them. Dropping the future withdraws the wait and releases what was granted.
    ///
    /// # Errors
    /// [`SetError`]: nothing of the set is held any more, or will be.
    pub async fn acquire(mut self) -> Result<SetGuard, SetError> {
        self.requests.sort_by(|a, b| a.key.as_bytes().cmp(b.key.as_bytes()));
        self.check()?;
        let deadline = match self.wait {
            Wait::Millis(ms) => Some(clock::now() + Duration::from_millis(u64::from(ms))),
            Wait::No | Wait::Forever => None,
        };
        let mut set = SetGuard { guards: Vec::with_capacity(self.requests.len()) };
        for mut request in self.requests {
            request.mode = self.mode;
            request.wait = match deadline {
                Some(deadline) => wait_of(deadline.since(clock::now())),
                None => self.wait,
            };
            let key = request.key.clone();
            let late = deadline.is_some() && request.wait == Wait::No;
            // Asked for all the same when the time is over: it may be free.
            let acquired = tokio::select! {
                biased;
                (key, reason) = set.lost() => return Err(SetError::Lost { key, reason }),
                acquired = request.acquire() => acquired,
            };
            match acquired {
                Ok(guard) => set.guards.push(guard),
                Err(AcquireError::Held { .. }) if late => {
                    return Err(SetError::Acquire { key, error: AcquireError::TimedOut });
                }
                Err(error) => return Err(SetError::Acquire { key, error }),
            }
        }
        Ok(set)
    }

    /// Before anything is asked, all names are looked at.
    fn check(&self) -> Result<(), SetError> {
        if self.requests.is_empty() {
            return Err(SetError::Empty);
        }
        for pair in self.requests.windows(2) {
            if pair[0].key == pair[1].key {
                return Err(SetError::Duplicate { key: pair[0].key.clone() });
            }
        }
        for request in &self.requests {
            let key = || request.key.clone();
            request.spec().map_err(|e: CallError| SetError::Acquire { key: key(), error: e.into() })?;
        }
        Ok(())
    }
}

/// A held set of locks, in the order of their keys' bytes. All are released when it is dropped. It is lost
/// when one of them is lost; what a guard cannot do is said at [`Guard`].
#[must_use = "a set releases its locks when it is dropped"]
pub struct SetGuard {
    guards: Vec<Guard>,
}

impl SetGuard {
    /// What to show the resource with every write under this key; `None` if the set has no such key.
    pub fn fence(&self, key: &str) -> Option<&Fence> {
        self.guards.iter().map(Guard::fence).find(|fence| &**fence.key() == key)
    }

    /// The fences of all keys.
    pub fn fences(&self) -> impl Iterator<Item = &Fence> {
        self.guards.iter().map(Guard::fence)
    }

    /// Whether all of them may still be relied upon, as [`Guard::is_valid`] says.
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// How long all of them may still be relied upon without another renewal; zero once one is lost.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Completes when one of them is lost, with its key and the reason. May be awaited any number of times.
    pub fn lost(&self) -> impl Future<Output = (String, LostReason)> + Send + use<> {
        type Loss = Pin<Box<dyn Future<Output = LostReason> + Send>>;
        let watched = |guard: &Guard| (guard.fence().key().to_string(), Box::pin(guard.lost()) as Loss);
        let mut all: Vec<(String, Loss)> = self.guards.iter().map(watched).collect();
        poll_fn(move |cx| {
            for (key, loss) in &mut all {
                if let Poll::Ready(reason) = loss.as_mut().poll(cx) {
                    return Poll::Ready((key.clone(), reason));
                }
            }
            Poll::Pending
        })
    }

    /// The guards one by one: from now on each is released and lost on its own.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// Releases all and waits for the cluster to confirm each. Dropping the future, like dropping the set,
    /// releases without waiting.
    ///
    /// # Errors
    /// As [`Guard::release`], of the first that failed; all the others are released all the same.
    pub async fn release(self) -> Result<(), CallError> {
        let mut first = Ok(());
        for guard in self.guards.into_iter().rev() {
            let end = guard.release().await;
            first = first.and(end);
        }
        first
    }
}

impl fmt::Debug for SetGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}

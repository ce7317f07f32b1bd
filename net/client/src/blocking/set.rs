//! Lock sets for programs without an executor.

use std::ops::Deref;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Session;
use crate::error::{CallError, LostReason};
use crate::set::SetError;

/// Several locks, not yet acquired. Made by [`Session::set`]; see [`crate::SetRequest`].
#[must_use = "nothing is asked before `acquire` is called"]
pub struct SetRequest {
    inner: crate::SetRequest,
    thread: Handle,
}

impl Session {
    /// Several locks that are acquired together: see [`crate::SetRequest`].
    pub fn set(&self) -> SetRequest {
        SetRequest { inner: self.inner.set(), thread: self.thread.clone() }
    }
}

impl SetRequest {
    /// See [`crate::SetRequest::fenced`].
    pub fn fenced(self, key: impl Into<String>, resource: impl Into<String>) -> SetRequest {
        SetRequest { inner: self.inner.fenced(key, resource), ..self }
    }

    /// See [`crate::SetRequest::advisory`].
    pub fn advisory(self, key: impl Into<String>) -> SetRequest {
        SetRequest { inner: self.inner.advisory(key), ..self }
    }

    /// See [`crate::SetRequest::shared`].
    pub fn shared(self) -> SetRequest {
        SetRequest { inner: self.inner.shared(), ..self }
    }

    /// See [`crate::SetRequest::wait`].
    pub fn wait(self, time: Duration) -> SetRequest {
        SetRequest { inner: self.inner.wait(time), ..self }
    }

    /// See [`crate::SetRequest::no_wait`].
    pub fn no_wait(self) -> SetRequest {
        SetRequest { inner: self.inner.no_wait(), ..self }
    }

    /// Acquires all of them.
    ///
    /// # Errors
    /// As [`crate::SetRequest::acquire`].
    pub fn acquire(self) -> Result<SetGuard, SetError> {
        let inner = self.thread.block_on(self.inner.acquire())?;
        Ok(SetGuard { inner, thread: self.thread })
    }
}

/// A held set of locks, released when it is dropped: see [`crate::SetGuard`], whose methods it also has.
#[must_use = "a set releases its locks when it is dropped"]
#[derive(Debug)]
pub struct SetGuard {
    inner: crate::SetGuard,
    thread: Handle,
}

impl Deref for SetGuard {
    type Target = crate::SetGuard;

    fn deref(&self) -> &crate::SetGuard {
        &self.inner
    }
}

impl SetGuard {
    /// Waits until one of them is lost, but no longer than this; `None` if all are held still.
    pub fn lost_within(&self, time: Duration) -> Option<(String, LostReason)> {
        self.thread.block_on(async { tokio::time::timeout(time, self.inner.lost()).await.ok() })
    }

    /// Releases all and waits until the cluster has confirmed each.
    ///
    /// # Errors
    /// As [`crate::SetGuard::release`].
    pub fn release(self) -> Result<(), CallError> {
        self.thread.block_on(self.inner.release())
    }
}

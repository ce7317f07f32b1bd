//! The blocking front of observers.

use std::time::Duration;

use palisade_types::{Cursor, NameError};
use tokio::runtime::Handle;

use super::Client;
use crate::{ObserveError, Observed};

impl Client {
    /// See [`crate::Client::observe`].
    ///
    /// # Errors
    /// As [`crate::Client::observe`].
    pub fn observe(&self, election: &str) -> Result<ObserveRequest, NameError> {
        Ok(ObserveRequest { inner: self.inner.observe(election)?, thread: self.thread.clone() })
    }
}

/// An observer that has not begun. Made by [`Client::observe`].
#[must_use = "nothing is observed before `start` is called"]
pub struct ObserveRequest {
    inner: crate::ObserveRequest,
    thread: Handle,
}

impl ObserveRequest {
    /// See [`crate::ObserveRequest::after`].
    pub fn after(self, cursor: Cursor) -> ObserveRequest {
        ObserveRequest { inner: self.inner.after(cursor), ..self }
    }

    /// Begins. It does not wait for the cluster.
    pub fn start(self) -> Observer {
        let inside = self.thread.enter();
        let inner = self.inner.start();
        drop(inside);
        Observer { inner, thread: self.thread, is_over: false }
    }
}

/// A stream of who leads an election, to be iterated over: see [`crate::Observer`]. The iteration waits for
/// each change, and ends after the first error.
pub struct Observer {
    inner: crate::Observer,
    thread: Handle,
    is_over: bool,
}

impl Observer {
    /// What is told next, if it comes within this time.
    ///
    /// # Errors
    /// As [`crate::Observer::next`].
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Observed>, ObserveError> {
        let next = self.thread.block_on(async { tokio::time::timeout(time, self.inner.next()).await });
        next.map_or(Ok(None), |told| told.map(Some))
    }

    /// See [`crate::Observer::cursor`].
    pub fn cursor(&self) -> Option<&Cursor> {
        self.inner.cursor()
    }
}

impl Iterator for Observer {
    type Item = Result<Observed, ObserveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.thread.block_on(self.inner.next());
        self.is_over = next.is_err();
        Some(next)
    }
}

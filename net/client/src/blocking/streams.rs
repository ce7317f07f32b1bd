//! The blocking front of what goes on by itself, watches and observers: to be iterated over.

use std::time::Duration;

use palisade_types::{Cursor, NameError};
use tokio::runtime::Handle;

use super::Client;
use crate::{ObserveError, Observed, Selector, WatchError, WatchItem};

/// A request and the stream that it begins, of the same names as the async ones.
macro_rules! stream {
    ($(#[$of_request:meta])* $request:ident, $(#[$of_stream:meta])* $stream:ident, $item:ty, $error:ty) => {
        $(#[$of_request])*
        pub struct $request {
            inner: crate::$request,
            thread: Handle,
        }

        impl $request {
            /// Go on behind a cursor, as the async request says.
            pub fn after(self, cursor: Cursor) -> $request {
                $request { inner: self.inner.after(cursor), ..self }
            }

            /// Begins. It does not wait for the cluster.
            pub fn start(self) -> $stream {
                let inside = self.thread.enter();
                let inner = self.inner.start();
                drop(inside);
                $stream { inner, thread: self.thread, is_over: false }
            }
        }

        $(#[$of_stream])*
        pub struct $stream {
            inner: crate::$stream,
            thread: Handle,
            is_over: bool,
        }

        impl $stream {
            /// What is told next, if it comes within this time.
            ///
            /// # Errors
            /// As the async one.
            pub fn next_within(&mut self, time: Duration) -> Result<Option<$item>, $error> {
                let next = self.thread.block_on(async { tokio::time::timeout(time, self.inner.next()).await });
                next.map_or(Ok(None), |told| told.map(Some))
            }
        }

        impl Iterator for $stream {
            type Item = Result<$item, $error>;

            fn next(&mut self) -> Option<Self::Item> {
                if self.is_over {
                    return None;
                }
                let next = self.thread.block_on(self.inner.next());
                self.is_over = next.is_err();
                Some(next)
            }
        }
    };
}

stream! {
    /// A watch that has not begun. Made by [`Client::watch`]; see [`crate::WatchRequest`].
    #[must_use = "nothing is watched before `start` is called"]
    WatchRequest,
    /// A stream of what changes: see [`crate::Watch`]. The iteration waits for each item, and ends after the first
    /// error.
    Watch, WatchItem, WatchError
}

stream! {
    /// An observer that has not begun. Made by [`Client::observe`]; see [`crate::ObserveRequest`].
    #[must_use = "nothing is observed before `start` is called"]
    ObserveRequest,
    /// A stream of who leads an election: see [`crate::Observer`]. The iteration waits for each change, and ends
    /// after the first error.
    Observer, Observed, ObserveError
}

impl WatchRequest {
    /// See [`crate::WatchRequest::from_now`].
    pub fn from_now(self) -> WatchRequest {
        WatchRequest { inner: self.inner.from_now(), ..self }
    }
}

impl Observer {
    /// See [`crate::Observer::cursor`].
    pub fn cursor(&self) -> Option<&Cursor> {
        self.inner.cursor()
    }
}

impl Client {
    /// See [`crate::Client::watch`].
    pub fn watch(&self, selector: Selector) -> WatchRequest {
        WatchRequest { inner: self.inner.watch(selector), thread: self.thread.clone() }
    }

    /// See [`crate::Client::observe`].
    ///
    /// # Errors
    /// As [`crate::Client::observe`].
    pub fn observe(&self, election: &str) -> Result<ObserveRequest, NameError> {
        Ok(ObserveRequest { inner: self.inner.observe(election)?, thread: self.thread.clone() })
    }
}

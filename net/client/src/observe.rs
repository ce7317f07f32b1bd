//! Observers of elections: a watch of one key, told as who leads and what the leader says.

use palisade_client_core as core;
pub use palisade_client_core::{NotAnElection, Observed};
use palisade_types::{Cursor, NameError, Selector};

use crate::client::Client;
use crate::watch::{Watch, WatchError, WatchRequest};

/// Why an observer's stream is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The watch under it is over.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A lock is held under this name.
    #[error(transparent)]
    NotAnElection(#[from] NotAnElection),
}

impl Client {
    /// An observer of an election, not yet begun: who leads, and every change of it.
    ///
    /// # Errors
    /// [`NameError`] when no election can have this name.
    pub fn observe(&self, election: &str) -> Result<ObserveRequest, NameError> {
        Ok(ObserveRequest { watch: self.watch(Selector::key(election)?) })
    }
}

/// An observer that has not begun. Made by [`Client::observe`].
#[must_use = "nothing is observed before `start` is called"]
pub struct ObserveRequest {
    watch: WatchRequest,
}

impl ObserveRequest {
    /// Go on behind what is known already, instead of beginning with the present state.
    pub fn after(self, cursor: Cursor) -> ObserveRequest {
        ObserveRequest { watch: self.watch.after(cursor) }
    }

    /// Begins, on the current tokio runtime. It does not wait for the cluster.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> Observer {
        Observer { watch: self.watch.start(), seen: core::Observer::new(), over: None }
    }
}

/// A stream of who leads an election: first the present state, a leader or a vacancy, and then every change
/// in order, with the leader's fence and with what it says. It goes on at another node by itself, as a
/// [`Watch`] does; where changes are left out or may have been missed, it says so. Where one leader follows
/// another in one step no vacancy is told: there was none. Dropping it ends it.
///
/// What is told is what was: by the time it is read the leadership may be over. Who acts on what a leader
/// wrote compares fences.
///
/// ```no_run
/// # async fn example(client: palisade_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut observer = client.observe("scheduler")?.start();
/// loop {
///     match observer.next().await?.leader {
///         Some(leader) => println!("{}: {}", leader.fence, String::from_utf8_lossy(&leader.value)),
///         None => println!("vacant"),
///     }
/// }
/// # }
/// ```
pub struct Observer {
    watch: Watch,
    seen: core::Observer,
    over: Option<ObserveError>,
}

impl Observer {
    /// What is told next: the present state at first, then each change as it comes. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// [`ObserveError`], and again whenever it is called.
    pub async fn next(&mut self) -> Result<Observed, ObserveError> {
        loop {
            if let Some(told) = self.seen.poll() {
                return Ok(told);
            }
            if let Some(error) = &self.over {
                return Err(error.clone());
            }
            let taken = match self.watch.next().await {
                Ok(item) => self.seen.take(item).map_err(ObserveError::from),
                Err(error) => Err(ObserveError::from(error)),
            };
            self.over = taken.err();
        }
    }

    /// Where to go on behind what [`Observer::next`] has given. It moves on also while nothing happens to
    /// the election, as long as somebody waits for the next change.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.seen.cursor()
    }
}

//! The client for programs without an executor: the same calls, and each waits for its answer. A thread
//! of the client's own renews the sessions and talks to the cluster; it ends when the last client,
//! session and guard is gone, after it has closed what was left.
//!
//! ```no_run
//! use palisade_client::ClientConfig;
//! use palisade_client::blocking::Client;
//!
//! # fn write(_: &palisade_client::Fence, _: &str) -> std::io::Result<()> { Ok(()) }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(ClientConfig::new(["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"]))?;
//! let session = client.session().owner("batch-2").open()?;
//! let guard = session.fenced("reports/daily", "reports-bucket").acquire()?;
//! // The resource refuses the write if anybody newer has acted.
//! write(guard.fence(), "totals")?;
//! guard.release()?;
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Threads that hold guards are told to stop, and waited for, by [`Session::shut_down`], at a signal by
//! [`Session::shut_down_at_signal`].
//!
//! A program that ends by itself right after it dropped its last guard may end before the cluster has
//! heard of it; [`Session::close`] waits for that.
//!
//! # Panics
//! No call here may be made from a thread that runs an executor: it would stand still. They panic there.

mod reads;
mod set;
mod streams;

use std::ops::Deref;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use palisade_types::reply::NodeStatus;
use palisade_types::{Fence, ValueRow};
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

pub use streams::{ObserveRequest, Observer, Watch, WatchRequest};

use crate::Queued;
use crate::config::ClientConfig;
use crate::error::{AcquireError, CallError, ConnectError, LostReason, ShutDownError, TooLate};

pub use set::{SetGuard, SetRequest};

/// A client of one cluster whose calls wait. Cheap to clone. See [`crate::Client`].
#[derive(Clone)]
pub struct Client {
    inner: crate::Client,
    thread: Handle,
}

impl Client {
    /// Starts the client and its thread. It does not wait for the cluster: calls do.
    ///
    /// # Errors
    /// As [`crate::Client::connect`]; [`ConnectError::System`] also when there can be no thread.
    pub fn connect(config: ClientConfig) -> Result<Client, ConnectError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ConnectError::System)?;
        let handle = runtime.handle().clone();
        let (started, start) = mpsc::channel();
        let run = move || {
            runtime.block_on(async {
                let (client, driver) = match crate::Client::begin(config) {
                    Ok(begun) => begun,
                    // Whoever called has gone only if its own thread has died.
                    Err(error) => return drop(started.send(Err(error))),
                };
                drop(started.send(Ok(client)));
                driver.run().await;
            });
        };
        thread::Builder::new().name("palisade-client".to_owned()).spawn(run).map_err(ConnectError::System)?;
        match start.recv() {
            Ok(begun) => Ok(Client { inner: begun?, thread: handle }),
            Err(_) => Err(ConnectError::System(std::io::Error::other("the client's thread has died"))),
        }
    }

    /// A session to be opened.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder { inner: self.inner.session(), thread: self.thread.clone() }
    }

    /// See [`crate::Client::status`].
    ///
    /// # Errors
    /// As there.
    pub fn status(&self) -> Result<NodeStatus, CallError> {
        self.thread.block_on(self.inner.status())
    }

    /// See [`crate::Client::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, prefix: &str) -> Result<Vec<ValueRow>, CallError> {
        self.thread.block_on(self.inner.list(prefix))
    }

    /// Waits for anything that the async client offers beyond this front, such as what an
    /// [`crate::Operator`] does.
    pub fn wait_for<T>(&self, call: impl AsyncFnOnce(&crate::Client) -> T) -> T {
        self.thread.block_on(call(&self.inner))
    }
}

pub use reads::{LeaseReader, Reader, StaleReader};

/// What a session is to be like. Made by [`Client::session`].
#[must_use = "a builder opens nothing until `open` is called"]
pub struct SessionBuilder {
    inner: crate::SessionBuilder,
    thread: Handle,
}

impl SessionBuilder {
    /// See [`crate::SessionBuilder::ttl`].
    pub fn ttl(self, ttl: Duration) -> SessionBuilder {
        SessionBuilder { inner: self.inner.ttl(ttl), ..self }
    }

    /// See [`crate::SessionBuilder::owner`].
    pub fn owner(self, owner: impl Into<String>) -> SessionBuilder {
        SessionBuilder { inner: self.inner.owner(owner), ..self }
    }

    /// See [`crate::SessionBuilder::incarnation`].
    pub fn incarnation(self, incarnation: impl Into<String>) -> SessionBuilder {
        SessionBuilder { inner: self.inner.incarnation(incarnation), ..self }
    }

    /// Opens the session; from now on it renews itself.
    ///
    /// # Errors
    /// As [`crate::SessionBuilder::open`].
    pub fn open(self) -> Result<Session, CallError> {
        let inner = self.thread.block_on(self.inner.open())?;
        Ok(Session { inner, thread: self.thread })
    }
}

/// An open session: see [`crate::Session`], whose methods it also has.
#[derive(Clone)]
pub struct Session {
    inner: crate::Session,
    thread: Handle,
}

impl Deref for Session {
    type Target = crate::Session;

    fn deref(&self) -> &crate::Session {
        &self.inner
    }
}

impl Session {
    /// A lock for correctness: see [`crate::Session::fenced`].
    pub fn fenced(&self, key: impl Into<String>, resource: impl Into<String>) -> FencedRequest {
        FencedRequest { inner: self.inner.fenced(key, resource), thread: self.thread.clone() }
    }

    /// A lock for efficiency: see [`crate::Session::advisory`].
    pub fn advisory(&self, key: impl Into<String>) -> AdvisoryRequest {
        AdvisoryRequest { inner: self.inner.advisory(key), thread: self.thread.clone() }
    }

    /// A campaign to lead an election: see [`crate::Session::campaign`].
    pub fn campaign(&self, election: impl Into<String>, value: impl Into<Vec<u8>>) -> CampaignRequest {
        CampaignRequest { inner: self.inner.campaign(election, value), thread: self.thread.clone() }
    }

    /// Gives an ephemeral key a value: see [`crate::Session::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), CallError> {
        self.thread.block_on(self.inner.put(key, value))
    }

    /// Removes an ephemeral key: see [`crate::Session::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: &str) -> Result<(), CallError> {
        self.thread.block_on(self.inner.delete(key))
    }

    /// Tells the guards that they are lost, waits for them to be dropped by other threads, and closes the
    /// session: see [`crate::Session::shut_down`].
    ///
    /// # Errors
    /// As there.
    pub fn shut_down(&self, within: Duration) -> Result<(), ShutDownError> {
        self.thread.block_on(self.inner.shut_down(within))
    }

    /// Does so when this process gets SIGTERM or SIGINT, and then calls `tell`, on the client's own thread,
    /// which must not be kept: see [`crate::Session::shut_down_at_signal`].
    ///
    /// # Errors
    /// As there.
    pub fn shut_down_at_signal(
        &self,
        within: Duration,
        tell: impl FnOnce(Result<(), ShutDownError>) + Send + 'static,
    ) -> std::io::Result<()> {
        let _inside = self.thread.enter();
        let shutting_down = self.inner.shut_down_at_signal(within)?;
        self.thread.spawn(async move { tell(shutting_down.await) });
        Ok(())
    }

    /// Ends the session and waits until the cluster has confirmed it.
    ///
    /// # Errors
    /// As [`crate::Session::close`].
    pub fn close(self) -> Result<(), CallError> {
        self.thread.block_on(self.inner.close())
    }
}

macro_rules! waiting {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name {
            inner: crate::$name,
            thread: Handle,
        }

        impl $name {
            /// Wait at most so long. Without this or [`Self::no_wait`], it waits for ever.
            pub fn wait(self, time: Duration) -> $name {
                $name { inner: self.inner.wait(time), ..self }
            }

            /// Do not wait: [`AcquireError::Held`] at once when somebody holds the key.
            pub fn no_wait(self) -> $name {
                $name { inner: self.inner.no_wait(), ..self }
            }

            /// Calls this, on the caller's thread, each time it is said to stand in the queue.
            pub fn on_queued(self, tell: impl FnMut(Queued) + Send + 'static) -> $name {
                $name { inner: self.inner.on_queued(tell), ..self }
            }
        }
    };
}

macro_rules! request {
    ($(#[$doc:meta])* $name:ident) => {
        waiting! {
            $(#[$doc])*
            #[must_use = "nothing is asked before `acquire` is called"]
            $name
        }

        impl $name {
            /// Hold the lock together with others of this mode, as the async request says.
            pub fn shared(self) -> $name {
                $name { inner: self.inner.shared(), ..self }
            }

            /// Keep the key closed should this session fall silent, as the async request says.
            pub fn quarantine(self) -> $name {
                $name { inner: self.inner.quarantine(), ..self }
            }

            /// Acquires.
            ///
            /// # Errors
            /// As the async request.
            pub fn acquire(self) -> Result<Guard, AcquireError> {
                let inner = self.thread.block_on(self.inner.acquire())?;
                Ok(Guard { watchers: Watchers::default(), inner, thread: self.thread })
            }

            /// Acquires if nobody holds the key; `None` if not, as the async request says.
            ///
            /// # Errors
            /// As the async request.
            pub fn try_acquire(self) -> Result<Option<Guard>, CallError> {
                let inner = self.thread.block_on(self.inner.try_acquire())?;
                Ok(inner.map(|inner| Guard { watchers: Watchers::default(), inner, thread: self.thread }))
            }
        }
    };
}

request! {
    /// A lock for correctness, not yet acquired. Made by [`Session::fenced`].
    FencedRequest
}

request! {
    /// A lock for efficiency, not yet acquired. Made by [`Session::advisory`].
    AdvisoryRequest
}

/// A held lock, released when it is dropped: see [`crate::Guard`], whose methods it also has.
#[must_use = "a guard releases its lock when it is dropped"]
#[derive(Debug)]
pub struct Guard {
    /// Dropped first: they must not hear of the end of the guard itself.
    watchers: Watchers,
    inner: crate::Guard,
    thread: Handle,
}

/// Those who are to be told of a loss: nobody any more once the guard is given up.
#[derive(Debug, Default)]
struct Watchers(Mutex<Vec<AbortHandle>>);

impl Drop for Watchers {
    fn drop(&mut self) {
        let all = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.drain(..).for_each(|watcher| watcher.abort());
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.inner
    }
}

impl Guard {
    /// Does the work if at least this much is left for it: see [`crate::Guard::protect`].
    ///
    /// # Errors
    /// As there.
    pub fn protect<T>(&self, needs: Duration, work: impl FnOnce(&Fence) -> T) -> Result<T, TooLate> {
        self.inner.in_time(needs)?;
        Ok(work(self.inner.fence()))
    }

    /// Waits until the lock is lost, but no longer than this; `None` if it is held still.
    pub fn lost_within(&self, time: Duration) -> Option<LostReason> {
        self.thread.block_on(async { tokio::time::timeout(time, self.inner.lost()).await.ok() })
    }

    /// Calls this once if the lock is lost before the guard is released or dropped, on the client's own
    /// thread, which must not be kept: set a flag, send a signal.
    pub fn on_lost(&self, tell: impl FnOnce(LostReason) + Send + 'static) {
        let lost = self.inner.lost();
        let watcher = self.thread.spawn(async move { tell(lost.await) }).abort_handle();
        self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    /// Turns an exclusive lock into a shared one: see [`crate::Guard::downgrade`]. Whoever was to be told of
    /// its loss by [`Guard::on_lost`] is not told any more: ask again of the guard returned.
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<Guard, NotDowngraded> {
        let Guard { watchers, inner, thread } = self;
        drop(watchers);
        let watchers = Watchers::default();
        match thread.block_on(inner.downgrade()) {
            Ok(inner) => Ok(Guard { watchers, inner, thread }),
            Err(crate::NotDowngraded { guard, error }) => Err(NotDowngraded {
                guard: guard.map(|inner| Box::new(Guard { watchers, inner: *inner, thread })),
                error,
            }),
        }
    }

    /// Releases and waits until the cluster has confirmed it.
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<(), CallError> {
        let Guard { watchers, inner, thread } = self;
        drop(watchers);
        thread.block_on(inner.release())
    }
}

/// A lock was not downgraded: see [`crate::NotDowngraded`].
#[derive(Debug, thiserror::Error)]
#[error("not downgraded: {error}")]
pub struct NotDowngraded {
    /// The guard, if it still holds its lock as before.
    pub guard: Option<Box<Guard>>,
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

waiting! {
    /// A campaign, not yet begun. Made by [`Session::campaign`]; see [`crate::CampaignRequest`].
    #[must_use = "nothing is asked before `lead` is called"]
    CampaignRequest
}

impl CampaignRequest {
    /// Campaigns until it leads.
    ///
    /// # Errors
    /// As [`crate::CampaignRequest::lead`].
    pub fn lead(self) -> Result<Leadership, AcquireError> {
        let inner = self.thread.block_on(self.inner.lead())?;
        Ok(Leadership { inner, thread: self.thread })
    }
}

/// A leadership, resigned when it is dropped: see [`crate::Leadership`], whose methods it also has.
#[must_use = "a leadership is resigned when it is dropped"]
#[derive(Debug)]
pub struct Leadership {
    inner: crate::Leadership,
    thread: Handle,
}

impl Deref for Leadership {
    type Target = crate::Leadership;

    fn deref(&self) -> &crate::Leadership {
        &self.inner
    }
}

impl Leadership {
    /// Changes the value that observers are shown: see [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    /// As there.
    pub fn proclaim(&self, said: impl AsRef<[u8]>) -> Result<(), CallError> {
        self.thread.block_on(self.inner.proclaim(said))
    }

    /// Waits until the leadership is lost, but no longer than this; `None` if it lasts still.
    pub fn lost_within(&self, time: Duration) -> Option<LostReason> {
        self.thread.block_on(async { tokio::time::timeout(time, self.inner.lost()).await.ok() })
    }

    /// Resigns and waits until the cluster has confirmed it.
    ///
    /// # Errors
    /// As [`crate::Leadership::resign`].
    pub fn resign(self) -> Result<(), CallError> {
        self.thread.block_on(self.inner.resign())
    }
}

//! The Palisade client for applications on tokio: sessions that renew themselves, locks as guards,
//! the fence that makes a protected write safe, and ephemeral keys that are there as long as a session.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use palisade_client::{Client, ClientConfig};
//!
//! let client = Client::connect(ClientConfig::new(["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"]))?;
//! let session = client.session().owner("worker-3").open().await?;
//! let guard = session.fenced("reports/daily", "reports-bucket").acquire().await?;
//! println!("show this with every write: {}", guard.fence());
//! guard.release().await?;
//! session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What a lock cannot do
//! A holder that is paused past its lease wakes up believing that it still holds the lock. A guard
//! notices as soon as it can run ([`Guard::lost`], [`Guard::is_valid`]), but a write that was on its
//! way by then arrives all the same. Only the resource can refuse it: it stores the highest barrier
//! it has seen and applies the rule of [`Floor`] to the [`Fence`] of each write.

//!
//! # Runtimes
//! A client's task runs on the tokio runtime it was started on, with I/O and time enabled, and renews as long
//! as that runtime is driven. Its sessions, guards and requests may be used on others. When that runtime shuts
//! down, nothing is closed or released: guards are lost ([`LostReason::Stopped`]), calls fail with
//! [`CallError::Stopped`], everything may be dropped anywhere without harm, and the sessions expire. So
//! await [`Session::close`] or [`Session::shut_down`] before the runtime ends.
//!
//! # Errors
//! Every error says by `is_final()` whether the same thing can still succeed. An outage
//! ([`CallError::Unavailable`]) is never taken for the loss of a session ([`CallError::SessionLost`]).

pub mod blocking;
mod client;
mod clock;
mod command;
mod config;
mod driver;
mod election;
mod error;
mod link;
mod lock;
mod observe;
mod operator;
mod protect;
mod reads;
mod renewals;
mod session;
mod set;
mod shutdown;
mod values;
mod watch;

pub use client::{Answer, Client, Page};
pub use config::ClientConfig;
pub use election::{CampaignRequest, Leader, Leadership};
pub use error::{
    AcquireError, CallError, ConnectError, LostReason, NotDowngraded, ReportError, ShutDownError, TooLate,
};
pub use lock::{AdvisoryRequest, FencedRequest, Guard, Queued};
pub use observe::{NotAnElection, ObserveError, ObserveRequest, Observed, Observer};
pub use operator::{HandedOver, Operator, OwnerReport};
pub use palisade_client_core::Conflict;
pub use palisade_types::reply::{Consistency, NodeStatus, ReadMark};
pub use palisade_types::{
    Cause, Class, ClusterId, ClusterIdentity, Cursor, CursorError, Description, Epoch, Event, Fence,
    FenceError, Floor, Happened, HolderInfo, LockRow, LogIndex, Mode, NameError, NodeId, OperatorAct,
    OperatorRow, Outcome, Refusal, Refused, ResourceRow, Selector, SessionId, SessionRow, Signature,
    SignedFence, Standing, Term, Time, Transition, TransitionKind, Value, ValueRow, WaiterInfo,
};
pub use reads::{LeaseReader, Reader, StaleReader};
pub use renewals::{LeaseTimes, Renewals};
pub use session::{Session, SessionBuilder};
pub use set::{SetError, SetGuard, SetRequest};
pub use shutdown::Termination;
pub use watch::{Listing, Watch, WatchError, WatchItem, WatchRequest};

//! The half of a lock that makes a write safe: what the protected resource needs to refuse a holder
//! that has been replaced. No async, no network.
//!
//! A lock service cannot stop a process that is paused past its lease, wakes up and writes. Every
//! grant of Palisade therefore carries a [`Fence`] `key@epoch/barrier`, and the resource keeps one
//! number for each key, its *floor*: it accepts a write iff `epoch >= floor`, and then raises the
//! floor to the barrier if that is higher. The number must be read, compared and raised in the same
//! atomic and durable step as the write, or so that no other write comes between.
//!
//! - A resource that is a database does it in one statement: see `net/fence/recipes`.
//! - A resource that is a file: [`FencedFile`].
//! - Anything that only one process writes to: a [`FenceGate`] in that process.
//! - A resource that cannot take part: `palisade gate`, a process that is its only writer.
//!
//! Where the cluster signs its fences, a [`Verifier`] tells a grant from an epoch that somebody invented, and what is made with
//! [`FenceGate::require_signed`] takes nothing that was not verified.
//!
//! [`OperationId`]s make a retried operation happen once, also when a successor under a newer fence
//! retries it. `net/fence/FENCING.md` tells the whole story, and what a fence does not promise.
//!
//! ```
//! use palisade_fence::{Fence, Floor};
//!
//! let zombie: Fence = "reports/daily@7/7".parse()?;
//! let successor: Fence = "reports/daily@8/8".parse()?;
//! let floor = Floor::default().admit(&successor)?;
//! let refused = floor.admit(&zombie).unwrap_err();
//! assert_eq!(refused.floor, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two fences of different keys cannot be compared, and there is no `<` that would try:
//!
//! ```compile_fail
//! # use palisade_fence::Fence;
//! fn newer(a: &Fence, b: &Fence) -> bool {
//!     a > b
//! }
//! ```

#[cfg(feature = "redb")]
mod clock;
mod error;
mod file;
mod gate;
#[cfg(feature = "signed")]
mod keys;
mod ledger;
mod operation;
mod record;
#[cfg(feature = "redb")]
mod redb_ledger;
mod shown;
#[cfg(feature = "signed")]
mod signed;
pub mod sql;

pub use error::{Failed, FileError};
pub use file::{FencedFile, Written};
pub use gate::{FenceGate, Once, Undone};
#[cfg(feature = "signed")]
pub use keys::{KeyError, PublicKey, SigningKey};
pub use ledger::Ledger;
pub use operation::{Begun, OperationId, Past};
pub use palisade_types::name::{Name, NameError};
pub use palisade_types::{
    ClusterIdentity, ClusterIdentityError, Epoch, Fence, FenceError, Floor, Key, Refused, Signature,
    SignedFence,
};
pub use record::{Record, RecordError, Step};
#[cfg(feature = "redb")]
pub use redb_ledger::{LedgerError, NotLowered, RedbLedger};
pub use shown::Shown;
#[cfg(feature = "signed")]
pub use signed::{DOMAIN, NoKeys, Signer, Unverified, VerifiedFence, Verifier, message};

//! What can go wrong at a resource.

use std::io;
use std::path::PathBuf;

use palisade_types::{Key, Refused};

use crate::record::RecordError;

/// Why a write did not take place.
#[derive(Debug, thiserror::Error)]
pub enum Failed<E: std::error::Error + 'static> {
    /// Somebody newer has acted under this key. Final: stop; a new attempt needs a new grant.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The fence belongs to another key than the one this resource is protected by. Final: two locks do not protect one
    /// resource.
    #[error("this resource is protected by the lock {wanted}, not by {shown}: acquire that one")]
    WrongKey {
        /// The key that protects the resource.
        wanted: Key,
        /// The key of the fence that was shown.
        shown: Key,
    },
    /// The durable memory failed, so nobody is admitted. Worth a retry once its cause is mended.
    #[error("the ledger of fences failed, and without it nobody is admitted: {0}")]
    Ledger(#[source] E),
}

impl<E: std::error::Error + 'static> Failed<E> {
    /// Whether no retry under the same fence can ever succeed.
    pub fn is_final(&self) -> bool {
        !matches!(self, Failed::Ledger(_))
    }
}

/// Why a fenced file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A call of the operating system failed. The file is as before or as after the write, never between; the next call finds
    /// out which.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The state of the fence beside the file is damaged. Nothing is written until it is restored: without the floor a zombie
    /// could not be told from a holder.
    #[error(
        "{path} is damaged ({why}); restore it from a copy, or after making sure that no old holder is left, remove it"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: RecordError,
    },
}

//! What the host must allow before a node starts, checked one by one so that each refusal says what
//! to change.

use std::io;
use std::path::Path;

use super::ServeError;
use super::sys::{self, Limit};

/// glommio refuses to build a ring below this.
const LOCKED_MEMORY_MIN: u64 = 512 << 10;
/// Descriptors kept for files, peers and administration.
const FILES_RESERVED: u64 = 64;

/// Checks io_uring, limits and file system, raises soft limits to the hard ones.
///
/// # Errors
/// The first thing that is missing.
pub(crate) fn check(dir: &Path) -> Result<(), ServeError> {
    palisade_tuning::try_io_uring().map_err(ServeError::IoUring)?;
    let locked = sys::raise_limit(Limit::LockedMemory).map_err(host)?;
    if locked < LOCKED_MEMORY_MIN {
        return Err(ServeError::LockedMemory { bytes: locked, needed: LOCKED_MEMORY_MIN });
    }
    if sys::is_in_memory(dir).map_err(host)? {
        tracing::warn!(
            dir = %dir.display(),
            "the directory lies in memory (tmpfs): nothing survives a restart of the host, and a node that lost \
             its directory must be replaced under a new id"
        );
    }
    Ok(())
}

fn host(error: io::Error) -> ServeError {
    ServeError::Host { what: "asking for limits", error }
}

/// How many connections fit: what the configuration allows, less if the limit on open files is lower.
///
/// # Errors
/// When the limit cannot be read or leaves no room at all.
pub(crate) fn connections(configured: usize) -> Result<usize, ServeError> {
    let files = sys::raise_limit(Limit::Files).map_err(host)?;
    let room = usize::try_from(files.saturating_sub(FILES_RESERVED)).unwrap_or(usize::MAX);
    if room == 0 {
        return Err(ServeError::Files { limit: files });
    }
    if room < configured {
        tracing::info!(limit = files, connections = room, "the limit on open files bounds the connections");
    }
    Ok(room.min(configured))
}

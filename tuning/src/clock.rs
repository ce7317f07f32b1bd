//! The only module that asks the system for the time.

use std::io;
use std::time::{Duration, Instant};

/// Runs something and says how long it took.
///
/// # Errors
/// What the work returned.
pub(crate) fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

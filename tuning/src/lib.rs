//! The host under a server: what it is, what is wrong with it, what to change.
//!
//! [`examine`] reads the host and gives a [`Report`] of [`Check`]s; each says what was found, whether
//! that will do, why, and how to change it and back. [`plan`] says which thread belongs on which CPU.
//! Nothing here changes the host: the report names the commands, an operator runs them.

mod check;
mod checks;
mod clock;
mod parse;
mod placement;
mod probe;
mod report;
mod root;
mod sys;
mod topology;

use std::path::Path;

pub use check::{Check, Verdict};
pub use placement::{Placement, pin_current_thread, plan};
pub use report::Report;
pub use sys::try_io_uring;
pub use topology::Topology;

use root::Root;

/// How many writes a measurement of the disk takes unless told otherwise.
pub const ITERATIONS: usize = 200;

/// What to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to measure the disk. Without it one write still tells whether O_DIRECT works.
    pub measure_disk: bool,
    /// How many writes a measurement takes; at least one is made.
    pub iterations: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { measure_disk: true, iterations: ITERATIONS }
    }
}

/// Examines this host for a node whose data lies in `dir`, or will: a directory that is not there yet
/// is judged by the nearest one above it. Writes one small file there and removes it. What cannot be
/// read is a check that says so.
#[must_use]
pub fn examine(dir: &Path, options: Options) -> Report {
    let attempt = try_io_uring().map_err(|e| e.to_string());
    checks::run(&Root::host(), &attempt, dir, options)
}

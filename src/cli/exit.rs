//! Exit codes, after sysexits(3) and the shell.

use std::fmt;

/// The cluster said no: what was named is not so, or no longer.
pub(crate) const REFUSED: u8 = 1;
/// The arguments make no sense.
pub(crate) const USAGE: u8 = 64;
/// No usable cluster within the time given: no quorum, or nobody there.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The cluster answered something this command has no use for: a bug or a wrong version.
pub(crate) const SOFTWARE: u8 = 70;
/// The operating system refused.
pub(crate) const OS: u8 = 71;
/// Bad configuration, or a directory that is not what it should be.
pub(crate) const CONFIG: u8 = 78;
/// The lock was lost while it was held.
pub(crate) const LOST: u8 = 84;
/// The command exists and cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// There is no such command.
pub(crate) const NO_COMMAND: u8 = 127;
/// Added to the number of the signal that ended the command.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// Why a verb failed: one line for stderr and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    /// A failure with its exit code.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    /// A failure of the arguments.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(USAGE, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The exit status a shell would report for a signal.
pub(crate) fn of_signal(signal: i32) -> u8 {
    SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or(0))
}

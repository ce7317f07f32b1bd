//! The supervisor of a command that `lock`, `elect` or `put` runs: a small process between the wrapper, which
//! renews the session, and the command. It holds the deadline and enforces it alone, whether the wrapper is
//! stopped, hung or dead. All that the command starts is found again below it, because it is a sub-reaper:
//! what loses its parent becomes its child. The wrapper is one too, for when the supervisor is killed.

pub(super) mod protocol;
mod run;
pub(super) mod task;
pub(super) mod tree;

pub(super) use run::run;

/// The first argument that makes this executable a supervisor. Not for people.
pub(super) const VERB: &str = "__supervise";

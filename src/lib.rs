//! The Palisade server: one node of a cluster, from a formatted directory to a listening process.
//!
//! [`format`] makes the directory, [`config`] reads its configuration, [`server`] runs the node,
//! [`inspect`] looks at the directory of one that does not run.
//! Everything that decides anything (consensus, log layout, state machine, session clocks) lives in
//! crates without I/O; this one performs what they ask for.

pub mod clock;
pub mod config;
pub mod format;
pub mod inspect;
pub mod server;

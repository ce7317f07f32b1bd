#![no_std]
//! One Raft group wired to its log and its state machine, without I/O.
//!
//! A [`Shard`] is what production and the simulator both run: [`Input`]s in, [`Actions`] out, time
//! as an argument. It knows no socket, no file, no clock and no thread.
//!
//! What it holds to:
//! - An answer that says something took effect leaves only from apply, found by index *and* term.
//! - A renewal, a read or an attachment is answered only after a confirmation of the leadership that
//!   began after it arrived; but reads that ask for less: `reads.rs`. A node that does not lead asks the
//!   leader how new its answer must be (`remote.rs`).
//! - The end of a session is proposed only by a leader that has applied an entry of its own term,
//!   was confirmed after the session fell due, and holds no unanswered renewal of it; nothing decided
//!   in one leadership is proposed in another.
//! - Nothing is acknowledged before the log says it is durable: Raft holds back every message that
//!   would claim it.

extern crate alloc;
#[cfg(test)]
extern crate std;

mod action;
mod apply;
mod budget;
mod clock;
mod clocks;
mod config;
mod drains;
pub mod formation;
mod handover;
mod input;
mod leases;
mod links;
mod pace;
pub mod peer_codec;
mod pending;
mod reads;
mod remote;
mod request;
mod resources;
mod rounds;
mod serve;
mod shard;
mod snapshots;
mod stages;
pub mod starts;
mod turn;
mod waits;
mod watch;

pub use action::{Actions, Note, Stop};
pub use config::ShardConfig;
pub use drains::{CoreId, DrainId};
pub use formation::{Formation, Stranger, Verdict};
pub use input::Input;
pub use palisade_machine::Machine;
pub use shard::{Counters, Shard};
pub use snapshots::{StateError, read_state};
pub use stages::{Passed, Stage};
pub use starts::{Astray, Showing};
pub use watch::{WatchConfig, WatchCounters};

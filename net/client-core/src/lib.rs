#![no_std]
//! The client's logic without I/O: who leads, when to renew, what to send again, when to stop
//! believing in a session. The application's client and the simulator's clients are shells around
//! [`Core`]: they give it what arrives and what time it is, and do what it says.
//!
//! What a shell does:
//! 1. hand over inputs ([`Core::handle`]) and calls ([`Core::acquire`] and so on), each with the
//!    time now, on a clock that counts while the machine sleeps (CLOCK_BOOTTIME);
//! 2. after each, perform what [`Core::poll_action`] returns until it returns `None`;
//! 3. hand over [`Input::Tick`] at [`Core::next_deadline`], which changes with every input.
//!
//! Rules kept here (DESIGN sections 2, 3 and 15):
//! - A lease runs from when the acknowledged renewal, or the *first* try of the open, was sent. A
//!   new connection, an attach, an answer to anything else does not lengthen it.
//! - A session whose deadline passes is lost, with all its claims, before anything else that has
//!   arrived is looked at; it is never silently replaced.
//! - Every ticket drawn is finished in the end: granted and released, refused, or given up by a
//!   release that is repeated until it is answered or the session is over. So is that of a put or delete,
//!   which is done once, whenever its answer comes.
//! - Whatever is unanswered when a connection breaks is sent again on the next one, under the same
//!   ticket or token, which makes it harmless.

extern crate alloc;

mod api;
mod call;
mod claim;
mod config;
mod core;
mod downgrade;
mod greeting;
mod net;
mod observe;
mod resources;
mod session;
mod timers;
mod watch;
mod write;

pub use api::{
    AcquireSpec, Action, CallId, CallRequest, ClaimId, ClaimResult, Conflict, Event, Input, LinkError,
    LinkId, LostReason, ReadFrom, SessionHandle, SessionSpec, WriteId, WriteSpec,
};
pub use config::{CoreConfig, NoEndpoints};
pub use core::Core;
pub use observe::{Leader, NotAnElection, Observed, Observer};
pub use palisade_wire::Query;
pub use session::margin;
pub use watch::{Listing, Watch, WatchAction, WatchError, WatchFrom, WatchItem};

#![no_std]
//! The replicated state machine of one shard: sessions, tickets, exclusive locks, ephemeral keys (DESIGN
//! sections 1 to 3 and 5). Commands go in by [`Machine::apply`], in the order of the log, the same on every replica;
//! effects come out. It has no clock and draws nothing at random: expiry arrives as a command, and
//! the clock that blocks carry only says how long something has lasted.
//!
//! What always holds after a command has been applied ([`Machine::check`] asserts what the state
//! alone can show):
//!
//! - A key has one holder, or several that all share it. Every grant of a key has an epoch one above the grant before;
//!   a key whose record was reclaimed starts above `epoch_floor`, which no reclaimed epoch exceeds.
//! - A key that somebody waits for is held, and the first who waits cannot share it with those who hold it,
//!   or could and is on the list of keys that sweeps go on with. Queues are first come, first served; who cancels or dies
//!   leaves at once, so there is nobody to be skipped when the key is handed on.
//! - A session that has ended waits for nothing. What it still holds is in the backlog, closed to
//!   everybody until a sweep releases it, keys that others wait for first; or in quarantine, until an
//!   operator releases it.
//! - An ephemeral key is one session's. When that ends the key goes in the same step or joins the backlog
//!   behind the locks, closed to everybody until a sweep removes it.
//! - A ticket is unseen, open or finished, and only moves forward. Open: repeating its acquire
//!   repeats the answer. Finished: it changes nothing any more.
//! - Everything is bounded by the cluster's limits, and one command does a bounded amount of work:
//!   at most 50 releases, at most 1,000 grants, and the withdrawal of at most the waits of one session.
//!
//! An acquire is judged in this order, and the first that fits is the answer:
//! the session is not live (`SessionEnded`) · the ticket is 0 or too large (`BadRequest`) · it is open
//! (the answer again, or `TicketMismatch`) · it is finished (`TicketFinished`) · the session's record
//! of tickets is full (`SessionFull`) · and from here on a refusal finishes the ticket: a fenced claim
//! names no resource (`BadRequest`) · the key lives under another class (`ClassMismatch`) · the key is
//! held, cannot be shared at once, and the claim would not wait (`Denied`) · the session (`SessionFull`), the shard or the key's
//! queue (`QuotaExceeded`) has no room · the key has no record, and the state no room for one
//! (`QuotaExceeded`) · it is granted or queued.
//!
//! A put is judged in the same order up to the record of tickets, and then: the key is another
//! session's (`OwnedByOther`) · the session has no room for one more (`SessionFull`) · the state has no
//! room for what it adds (`QuotaExceeded`) · it is done, which finishes the ticket as every other answer
//! does.
//!
//! A claim of a key to a resource is a command of neither session nor ticket: it is on record · the state has
//! no room for it (`QuotaExceeded`) · it is put on record, and the one not made again for longest goes if
//! there are too many.
//!
//! Layout: `machine` is the way in; `acquire`, `release`, `downgrade`, `election`, `ending`
//! and `put` are the commands; `grant` and `holders` are who holds a key; `session`,
//! `open`, `tickets`, `ended`, `locks`, `idle`, `claims` and `values` keep the records; `describe` reads them;
//! `operate` is what operators do; `resources` is the registry of what keys protect; `news` is what watchers learn; `account` counts bytes;
//! `warm` fetches them ahead of their use; `check` and `digest` go over all of them. With the feature
//! `model` there is also a second, naive machine that tests compare this one with.
//!
//! Applying a command costs what it waits for memory. So what a command touches is small and stands
//! together (one cache line of a key, one of a claim, one of a session), what only reads want stands
//! elsewhere, and nothing is allocated while no record comes or goes.

extern crate alloc;
#[cfg(test)]
extern crate std;

mod account;
mod acquire;
mod check;
mod claims;
mod command;
mod describe;
mod digest;
mod downgrade;
mod election;
mod ended;
mod ending;
mod grant;
mod holders;
mod idle;
mod locks;
mod machine;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod news;
mod open;
mod operate;
mod put;
mod release;
mod resources;
mod session;
mod slab;
mod snapshot;
#[cfg(test)]
mod tests;
mod tickets;
mod values;
mod warm;

pub use command::{Command, CommandRef};
pub use machine::{Applied, ApplyError, ClaimView, Counts, Effect, Machine, SessionView};
pub use news::Place;
pub use snapshot::{Restore, SnapshotFault};
pub use tickets::TICKET_MAX;

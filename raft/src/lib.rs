#![no_std]
//! Raft as a pure state machine: no I/O, no clock, no randomness but the seed it is given.
//!
//! Events go in ([`Raft::step`], [`Raft::tick`], [`Raft::propose`], [`Raft::start_round`],
//! [`Raft::on_persisted`]), work comes out ([`Raft::take_ready`]). The algorithm is that of Ongaro
//! and Ousterhout, "In Search of an Understandable Consensus Algorithm" (extended version, 2014),
//! with pre-vote, check-quorum, stickiness, ReadIndex, leases and leadership transfer after Ongaro's thesis
//! (2014; sections 9.6, 6.2, 4.2.3, 6.4, 6.4.1, 3.10) and writes to the leader's disk in parallel with
//! replication (10.2.1).
//!
//! # The unit is the block
//! Where the papers say "entry" this crate has a [`palisade_types::Block`]: one or more commands
//! with consecutive indexes, of one term, made by one leader. Blocks are never split:
//! acknowledgement, commit and truncation fall on their edges. Two logs with a block of the same
//! term and last index are equal up to there, and the chain hash in each block's header proves it.
//!
//! # What must be durable before what
//! One ledger (`ledger.rs`) keeps `accepted >= submitted >= durable` for the log, and the same for
//! the hard state. From it follows:
//! 1. Every message but a pre-vote request says "I am in this term". It stays inside until the
//!    hard state of that term, vote included, is durable. So a vote, a request for votes, and an
//!    acknowledgement never leave too early, and a candidate counts its own vote as late as others'.
//! 2. A follower claims a block only if a request of this term's leader has proved it *and* its
//!    disk holds it; when the disk catches up it claims again. The leader counts itself by the same
//!    measure; its Append messages may leave before its own disk has the blocks.
//! 3. The hard state of a term is in the same [`Persist`] as the first blocks of that term, or in an
//!    earlier one.
//! 4. A completion reported for blocks that were truncated meanwhile counts for nothing.
//!
//! 5. A snapshot takes the place of the log in a [`Persist`], like everything else; until the disk
//!    has done that, nothing is claimed but what both hold.
//!
//! The driver performs [`Persist`]s strictly in order, each whole (hard state first, then
//! installation, truncation and blocks), and reports them with [`Raft::on_persisted`]. It may send
//! [`Ready::messages`] and apply [`Ready::committed`] at once: what may not leave yet is not there.
//!
//! Messages may be lost, delayed, repeated and reordered. They must come from who they say
//! they come from; links authenticate cluster, shard, node and incarnation.

extern crate alloc;

mod asking;
mod check;
mod config;
mod election;
mod follower;
mod leader;
mod lease;
mod ledger;
mod log;
mod mail;
mod membership;
mod message;
mod node;
mod progress;
mod ready;
mod receiving;
mod rounds;
mod sending;
mod snapshot;
mod transfer;

pub use config::{Config, ConfigError, VOTERS_MAX};
pub use lease::LEASE_DRIFT_PERCENT;
pub use membership::{Membership, Tally};
pub use message::{
    Append, AppendReply, AppendResult, AskId, Message, PreVote, PreVoteReply, ReadIndex, ReadIndexReply,
    Snapshot, SnapshotReply, TimeoutNow, Vote, VoteReply,
};
pub use node::{Raft, Restored};
pub use progress::ProgressState;
pub use ready::{
    ChunkReceived, ChunkWanted, NotLeader, Persist, PersistNumber, ProposeError, ReadAnswer, Ready, Role,
    RoleChange, Round, RoundError, RoundId, Status, VoterStatus,
};
pub use transfer::TransferError;

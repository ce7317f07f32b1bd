//! Tests of the Raft crate from outside: rules of the paper, scripted scenarios, quorum arithmetic,
//! and random schedules, all on one small cluster in memory.

mod cluster;
mod faults;
mod judge;
mod leases;
mod paper;
mod quorum;
mod random;
mod reads;
mod script;
mod snapshots;
mod topology;
mod transfer;

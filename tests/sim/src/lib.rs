//! The deterministic simulator of whole Palisade clusters. `tests/SIMULATION.md` says what it
//! models, which rules it checks, and how to replay a failing seed.

pub mod check;
pub mod client;
pub mod clock;
mod drills;
mod ears;
pub mod faults;
pub mod links;
pub mod network;
pub mod node;
pub mod options;
pub mod queue;
pub mod raft_cluster;
mod raft_snapshots;
pub mod report;
pub mod resource;
pub mod rough;
pub mod runner;
mod scenario;
pub mod trace;
pub mod watcher;
mod workload;
pub mod world;

//! The peers that `compare` measures: their servers on loopback, and a driver for each that does the
//! same work as Palisade's load generator, through the client a Rust program would use.

pub(crate) mod audience;
pub(crate) mod etcd;
pub(crate) mod etcd_watch;
pub(crate) mod install;
pub(crate) mod jit;
pub(crate) mod redis;
pub(crate) mod servers;
pub(crate) mod window;
pub(crate) mod zookeeper;

use std::io;

use crate::error::BenchError;

/// Why a peer could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// etcd's client.
    #[error("etcd: {0}")]
    Etcd(#[from] etcd_client::Error),
    /// ZooKeeper's client.
    #[error("ZooKeeper: {0}")]
    ZooKeeper(#[from] zookeeper_client::Error),
    /// A socket.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// A file, a program or a directory of this machine.
    #[error(transparent)]
    Host(#[from] BenchError),
    /// The peer answered with what the work rules out.
    #[error("unexpected answer: {0}")]
    Answer(String),
    /// The servers did not come up.
    #[error("not ready in {seconds} s: {last}\n{log}")]
    NotReady {
        /// How long was waited.
        seconds: u64,
        /// What the last attempt met.
        last: String,
        /// The end of the first node's log.
        log: String,
    },
    /// A task of the driver died.
    #[error("a task of the driver panicked")]
    Task,
    /// The peer has no such operation.
    #[error("{0} has no such work")]
    NoSuchWork(&'static str),
}

/// A prefix for keys that no other run has.
fn fresh_name() -> Result<String, PeerError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|e| PeerError::Answer(e.to_string()))?;
    Ok(format!("bench-{:08x}", u32::from_le_bytes(bytes)))
}

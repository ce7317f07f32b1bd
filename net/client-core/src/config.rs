//! How patient the client is.

use ::core::time::Duration;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::ClusterId;

/// Where the servers are, and how long to wait for what.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// `host:port` of some nodes; the others are learnt from them.
    pub endpoints: Vec<String>,
    /// The cluster meant; `None` takes the first that answers, and then only that one.
    pub cluster: Option<ClusterId>,
    /// How long a connection may take to be made, and how long its greeting.
    pub dial_timeout: Duration,
    /// A server that says nothing for so long while it owes answers is left.
    pub silence_timeout: Duration,
    /// The first pause after a failure, and between the nodes of a first round.
    pub backoff_min: Duration,
    /// The longest pause between attempts.
    pub backoff_max: Duration,
}

impl CoreConfig {
    /// The usual patience: a second for a connection, two for an answer, pauses from 25 ms to half a second.
    pub fn new(endpoints: Vec<String>) -> CoreConfig {
        CoreConfig {
            endpoints,
            cluster: None,
            dial_timeout: Duration::from_secs(1),
            silence_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(25),
            backoff_max: Duration::from_millis(500),
        }
    }
}

/// The configuration names no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no endpoint is configured")]
pub struct NoEndpoints;

//! What a run does, and what it finds: the same for Palisade and for its peers.

use std::time::Duration;

use hdrhistogram::Histogram;

/// What the sessions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mix {
    /// Every session acquires a key nobody else uses, releases it, and takes the next.
    Cycle,
    /// All sessions wait in line for the same few keys: fair hand-over.
    Contend,
    /// Linearizable reads of one key each.
    Read,
    /// Renewals of the own session.
    Renew,
    /// Sessions are opened and closed.
    Session,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// What the sessions do.
    pub(crate) mix: Mix,
    /// How many sessions, each with one operation under way.
    pub(crate) sessions: u32,
    /// Over how many connections, all to the leader unless the run says otherwise.
    pub(crate) connections: u32,
    /// Before anything is counted.
    pub(crate) warmup: Duration,
    /// What is counted.
    pub(crate) duration: Duration,
}

/// What the window of a run showed.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Operations that ended in the window: acquisitions for `cycle` and `contend`.
    pub(crate) operations: u64,
    /// The length of the window.
    pub(crate) seconds: f64,
    /// Of each operation (acquire to grant; the release is not in it), in microseconds.
    pub(crate) latency: Histogram<u64>,
}

/// The longest latency a histogram tells apart, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;

/// An empty histogram of microseconds, three digits exact.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("the bounds are in order")
}

//! What ends a run.

use std::io;
use std::process::ExitCode;

use palisade_types::Refusal;

/// What ends a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A socket, a file or a process failed.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// The server sent what is not the protocol.
    #[error("the server sent something unexpected: {0}")]
    Protocol(String),
    /// No endpoint knows a leader.
    #[error("no leader found among {0:?}: is the cluster running?")]
    NoLeader(Vec<String>),
    /// The server refused.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// A connection or the leader was lost, and the run was not to survive that.
    #[error("{0} during the run (--survive goes on)")]
    Lost(String),
    /// The options make no sense together.
    #[error("{0}")]
    Usage(String),
    /// The cluster of this run did not start.
    #[error("the cluster did not start: {0}")]
    Cluster(String),
    /// A grant broke a promise: the service is wrong.
    #[error("VIOLATION: {0}")]
    Violation(String),
    /// Runs of a comparison failed; each was told.
    #[error("{0} runs failed")]
    Failed(u32),
    /// A thread of this program died.
    #[error("a thread of the generator panicked")]
    Thread,
}

impl BenchError {
    /// An error of the system, about this.
    pub(crate) fn io(what: impl ToString, error: impl Into<io::Error>) -> BenchError {
        BenchError::Io(what.to_string(), error.into())
    }

    /// 2 when the service is wrong, 1 when the run failed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            BenchError::Violation(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

//! Why a directory is refused.

use alloc::string::{String, ToString};

use palisade_types::LogIndex;

use crate::page::Owner;
use crate::source::SourceError;

/// A node's directory cannot be used as it is. Nothing in it was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// Something that was acknowledged, or may have been, cannot be read any more.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// Term or vote may be lost: the node could vote twice, so it never votes again.
    #[error(
        "{file} is damaged: both copies of a generation at byte {offset} are unreadable, so the newest may be \
         lost; replace this node under a new id"
    )]
    GenerationLost {
        /// The file.
        file: String,
        /// Where the first copy lies.
        offset: u64,
    },
    /// A file that must be there is not.
    #[error("{file} is missing")]
    Missing {
        /// The file.
        file: String,
    },
    /// A part of the log is gone, and no snapshot stands for it.
    #[error(
        "{file}: the log begins behind index {to}, and no readable snapshot reaches that far: {from} to {to} are \
         missing; put back the files that were removed, or replace this node under a new id"
    )]
    Hole {
        /// The first segment there is.
        file: String,
        /// The first index that is missing.
        from: LogIndex,
        /// The last.
        to: LogIndex,
    },
    /// A file belongs to another cluster, node, incarnation or shard.
    #[error("{file} is foreign: it belongs to another {whose}")]
    Foreign {
        /// The file.
        file: String,
        /// Of which kind the difference is.
        whose: &'static str,
    },
    /// A file was written by a newer version. It is left as it is.
    #[error("{file} has format {format}, newer than this build")]
    Newer {
        /// The file.
        file: String,
        /// Its format number.
        format: u16,
    },
    /// A file could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Checks that a record is ours.
pub(crate) fn check_owner(file: &str, found: &Owner, ours: &Owner) -> Result<(), RecoverError> {
    let whose = if found.cluster != ours.cluster {
        "cluster"
    } else if found.node != ours.node {
        "node"
    } else if found.incarnation != ours.incarnation {
        "incarnation of this node"
    } else if found.shard != ours.shard {
        "shard"
    } else {
        return Ok(());
    };
    Err(RecoverError::Foreign { file: file.to_string(), whose })
}

//! What a recovery noticed without refusing.

use alloc::string::String;
use core::fmt;
use palisade_types::{LogIndex, Term};

use crate::error::RecoverError;

/// Something an operator may want to know: one line in the log each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The last batch was being written when the process ended. It was never acknowledged.
    TornTail {
        /// The file.
        file: String,
        /// Where the batch would have started.
        offset: u64,
        /// How many bytes are dropped.
        bytes: u64,
        /// The number of the batch.
        batch: u64,
    },
    /// The same, but its mark is whole: a crash that wrote the mark first, or damage in the last
    /// milliseconds before a crash.
    SuspectTail {
        /// The file.
        file: String,
        /// Where the batch starts.
        offset: u64,
        /// How many bytes are dropped.
        bytes: u64,
        /// The number of the batch.
        batch: u64,
    },
    /// A snapshot is damaged. An earlier one and the log behind that give the same state.
    SnapshotDamaged {
        /// What is wrong, with file and offset.
        fault: RecoverError,
    },
    /// A snapshot is newer than the log, or says otherwise: the log begins anew behind it.
    Restarted {
        /// The last index of the snapshot.
        snapshot: LogIndex,
        /// That of the log.
        log: LogIndex,
    },
    /// Left by a snapshot that was never finished, or not needed any more: it is removed.
    Leftover {
        /// The file.
        file: String,
    },
    /// A segment's creation was not finished. It was never used and is made anew.
    Unfinished {
        /// The file.
        file: String,
    },
    /// A file that is not ours. It is left alone.
    Unknown {
        /// The file.
        file: String,
    },
    /// A copy of the hard state is unreadable or was not finished; it is written anew.
    HardStateCopy {
        /// The file.
        file: String,
    },
    /// The log holds blocks of a term above the stored one, which the order of writes rules out
    /// unless the disk lies. The term is raised and the vote forgotten.
    TermRaised {
        /// The term stored.
        from: Term,
        /// The term of the last block.
        to: Term,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::TornTail { file, offset, bytes, batch } => {
                write!(f, "{file}: dropped {bytes} bytes at {offset}: batch {batch} was never finished")
            }
            Note::SuspectTail { file, offset, bytes, batch } => write!(
                f,
                "{file}: dropped {bytes} bytes at {offset}: batch {batch} is unreadable though its mark is not; \
                 a crash does this, and so does damage just before one"
            ),
            Note::SnapshotDamaged { fault } => write!(
                f,
                "{fault}; the log reaches back to before it, so nothing is lost: the next snapshot replaces it"
            ),
            Note::Restarted { snapshot, log } => write!(
                f,
                "the log ends at {log} or says otherwise than the snapshot at {snapshot}: it begins anew behind that"
            ),
            Note::Leftover { file } => write!(f, "{file}: not needed any more; removed"),
            Note::Unfinished { file } => {
                write!(f, "{file}: its creation was never finished; it is made anew")
            }
            Note::Unknown { file } => write!(f, "{file}: not one of ours; left alone"),
            Note::HardStateCopy { file } => {
                write!(f, "{file}: a copy is unreadable or unfinished; written anew")
            }
            Note::TermRaised { from, to } => {
                write!(f, "the log holds term {to} but the stored term is {from}: raised, vote forgotten")
            }
        }
    }
}

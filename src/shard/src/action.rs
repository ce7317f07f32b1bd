//! All that a shard asks of its driver.

use alloc::string::String;
use alloc::vec::Vec;

use palisade_raft::Message;
use palisade_types::{Cause, ConnId, LogIndex, NodeId, Reply, RequestId, SessionId, SnapshotId, Term};
use palisade_wal::DiskOp;
use palisade_wire::Push;

use crate::drains::DrainId;
use crate::stages::Passed;

/// What is to be done, in any order but for `disk`, whose operations are started in order.
#[derive(Debug, Default)]
pub struct Actions {
    /// Answers to requests.
    pub replies: Vec<(ConnId, RequestId, Reply)>,
    /// Messages to clients that answer no request.
    pub pushes: Vec<(ConnId, Push)>,
    /// Messages to other nodes.
    pub peers: Vec<(NodeId, Message)>,
    /// Operations for the disk.
    pub disk: Vec<DiskOp>,
    /// Every core with sockets of clients is to hand in what is readable on them, and then
    /// [`crate::Input::Drained`]: sessions are due. Only what is readable when it begins is asked for,
    /// so that a client who never stops sending holds up nobody.
    pub drain: Option<DrainId>,
    /// Stages that blocks went through, for measuring.
    pub passed: Vec<Passed>,
    /// Lines for the log.
    pub notes: Vec<Note>,
    /// The node must end now: its state is impossible, or its disk failed.
    pub stop: Option<Stop>,
}

impl Actions {
    /// Whether nothing is to be done; what was measured asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
            && self.pushes.is_empty()
            && self.peers.is_empty()
            && self.disk.is_empty()
            && self.drain.is_none()
            && self.notes.is_empty()
            && self.stop.is_none()
    }
}

/// Something an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// This node leads.
    Leading {
        /// In this term.
        term: Term,
    },
    /// It leads and has applied an entry of its own term: it serves.
    Serving {
        /// In this term.
        term: Term,
        /// Sessions whose clocks it started.
        sessions: u64,
    },
    /// It hands its leadership over.
    HandingOver {
        /// To this node; or to whoever is able.
        to: Option<NodeId>,
    },
    /// Nobody took the leadership over in time: it leads on.
    HandOverGivenUp,
    /// It no longer leads.
    Deposed {
        /// In this term it led.
        term: Term,
    },
    /// It follows.
    Following {
        /// That leader.
        leader: NodeId,
        /// In this term.
        term: Term,
    },
    /// A session ended.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Why.
        cause: Cause,
    },
    /// A snapshot of the own state is durable; the log may be cut behind it.
    SnapshotTaken(SnapshotId),
    /// A snapshot was begun and came to nothing; the log stays, and another is taken later.
    SnapshotGivenUp {
        /// Of the state after this index.
        last: LogIndex,
        /// Why.
        why: String,
    },
    /// A leader's snapshot took the place of this node's state and log.
    SnapshotInstalled(SnapshotId),
    /// The newest snapshot cannot be read any more. Another is taken with the next block.
    SnapshotUnreadable {
        /// Of the state after this index.
        last: LogIndex,
        /// What failed.
        fault: palisade_wal::DiskFault,
    },
    /// The node was held up, and credits that to every session.
    Stalled {
        /// For so many milliseconds.
        ms: u64,
    },
}

/// Why a node must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// A write or sync failed: what the disk holds is no longer known.
    #[error("the disk failed: {0}")]
    Disk(palisade_wal::DiskFault),
    /// A committed entry cannot be applied.
    #[error("a committed entry cannot be applied: {0}")]
    Apply(String),
}

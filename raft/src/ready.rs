//! What comes out of the state machine.

use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;
use palisade_types::{Block, HardState, LogIndex, NodeId, SnapshotId, Term};

use crate::message::{AskId, Message};
use crate::progress::ProgressState;

/// Work for the driver. Each part is handed out once.
#[derive(Debug, Default)]
pub struct Ready {
    /// To be sent, in this order; they may leave at once.
    pub messages: Vec<(NodeId, Message)>,
    /// To be made durable, after all persists before it; then call [`crate::Raft::on_persisted`].
    pub persist: Option<Persist>,
    /// A received snapshot takes the place of the state: what was handed out before is part of it,
    /// and `committed` goes on behind [`SnapshotId::last`].
    pub install: Option<SnapshotId>,
    /// Committed blocks, each exactly once, in order, from the first block behind the snapshot the
    /// node started with. When more are waiting, [`crate::Raft::has_ready`] says so.
    pub committed: Vec<Block>,
    /// The newest round that a quorum has confirmed, when that changed. All before it are confirmed too.
    pub confirmed: Option<RoundId>,
    /// At a leader: followers that ask for a read index, each with its newest question. See
    /// [`crate::Raft::answer_read_index`].
    pub questions: Vec<(NodeId, AskId)>,
    /// At a follower: the leader's answer to the newest question.
    pub read_answer: Option<ReadAnswer>,
    /// Role, term or leader, when one of them changed.
    pub role_change: Option<RoleChange>,
    /// At a leader: chunks to be read from the snapshot on disk, in this order; then call
    /// [`crate::Raft::on_chunk_read`].
    pub chunks_wanted: Vec<ChunkWanted>,
    /// At a follower: chunks that arrived, in order, to be written and checked. Chunk 0 begins anew:
    /// whatever was received before is to be given up. See [`crate::Raft::on_chunks_written`] and
    /// [`crate::Raft::on_snapshot_complete`].
    pub chunks_received: Vec<ChunkReceived>,
}

/// A chunk that a follower is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkWanted {
    /// The follower.
    pub to: NodeId,
    /// The snapshot: the newest durable one, when this was asked.
    pub id: SnapshotId,
    /// The number of the chunk, from 0.
    pub chunk: u32,
}

/// A chunk that the leader sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkReceived {
    /// The snapshot.
    pub id: SnapshotId,
    /// The number of the chunk, from 0.
    pub chunk: u32,
    /// The chunk.
    pub data: Bytes,
}

/// The number of a persist: from 1, without gaps, in the order in which they must become durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PersistNumber(pub u64);

impl fmt::Display for PersistNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for PersistNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What must become durable, in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// Its number.
    pub number: PersistNumber,
    /// The hard state, when it changed.
    pub hard_state: Option<HardState>,
    /// The whole log is to go, and goes on behind this snapshot, which is durable. Everything else
    /// is empty then.
    pub install: Option<SnapshotId>,
    /// Everything after this index is to go; what is at or before it stays.
    pub truncate_after: Option<LogIndex>,
    /// Blocks that follow the log as it then is.
    pub blocks: Vec<Block>,
}

/// What a node is in its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks whether it would be elected.
    PreCandidate,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

/// Role, term and known leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleChange {
    /// The role now.
    pub role: Role,
    /// The term now.
    pub term: Term,
    /// The leader of that term, if known.
    pub leader: Option<NodeId>,
}

/// The answer to [`crate::Raft::ask_read_index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAnswer {
    /// The question.
    pub ask: AskId,
    /// Once this is applied here, a read sees everything that was acknowledged to anybody before the
    /// question was asked. None: the node asked does not lead.
    pub index: Option<LogIndex>,
}

/// Only a leader can do this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead")]
pub struct NotLeader {
    /// Who does, if known.
    pub leader: Option<NodeId>,
}

/// Why nothing was proposed; the commands are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This node does not lead.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// It is handing its leadership over: see [`crate::Raft::transfer`].
    #[error("this node is handing its leadership over")]
    HandingOver,
}

/// The name of a leadership confirmation round. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundId {
    /// The leader's term.
    pub term: Term,
    /// Counts the rounds of the term, from 1.
    pub counter: u64,
}

/// A round just started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its name.
    pub id: RoundId,
    /// Once the round is confirmed and this index applied, a read sees everything that was
    /// acknowledged before the round began (thesis, section 6.4).
    pub read_index: LogIndex,
}

/// Why no round was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoundError {
    /// Only a leader can.
    #[error("this node does not lead")]
    NotLeader {
        /// Who does, if known.
        leader: Option<NodeId>,
    },
    /// A new leader does not know what is committed before it has committed a block of its own term.
    #[error("this leader has not committed in its own term yet")]
    NotReady,
}

/// What can be seen of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The node.
    pub id: NodeId,
    /// Its role.
    pub role: Role,
    /// Its term.
    pub term: Term,
    /// Its vote in that term.
    pub vote: Option<NodeId>,
    /// The leader it knows.
    pub leader: Option<NodeId>,
    /// The last index of its log in memory.
    pub last: LogIndex,
    /// The term there.
    pub last_term: Term,
    /// Its log in memory begins behind this index.
    pub base: LogIndex,
    /// The state that its newest durable snapshot holds is that after this index; 0 without one.
    pub snapshot: LogIndex,
    /// Up to here the log is on its disk.
    pub durable: LogIndex,
    /// The commit index it knows.
    pub commit: LogIndex,
    /// Up to here committed blocks have been handed out.
    pub delivered: LogIndex,
    /// At a leader: how far the other voters are, by number. Elsewhere empty.
    pub voters: Vec<VoterStatus>,
}

/// What a leader knows of another voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterStatus {
    /// The voter.
    pub node: NodeId,
    /// Up to here its disk holds this leader's log.
    pub match_index: LogIndex,
    /// What is sent next.
    pub next: LogIndex,
    /// How it is being sent to.
    pub state: ProgressState,
}

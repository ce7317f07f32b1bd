//! What nodes of a shard say to each other. The encoding is the business of the shard crate.

use alloc::vec::Vec;

use bytes::Bytes;
use palisade_types::{Block, LogIndex, SnapshotId, Term};

/// A message between two nodes of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// "Would you vote for me?"
    PreVote(PreVote),
    /// The answer.
    PreVoteReply(PreVoteReply),
    /// "Vote for me." (Raft paper, RequestVote)
    Vote(Vote),
    /// The answer.
    VoteReply(VoteReply),
    /// Blocks, or none: then it is a heartbeat. (Raft paper, AppendEntries)
    Append(Append),
    /// The answer.
    AppendReply(AppendReply),
    /// "How new must a read be that I answer now?" (ReadIndex; thesis, section 6.4)
    ReadIndex(ReadIndex),
    /// The answer.
    ReadIndexReply(ReadIndexReply),
    /// A part of a snapshot. (Raft paper, InstallSnapshot)
    Snapshot(Snapshot),
    /// The answer.
    SnapshotReply(SnapshotReply),
    /// "Stand at once, in my place." (thesis, section 3.10)
    TimeoutNow(TimeoutNow),
}

/// Asks whether a vote would be granted; changes nobody's term (thesis, section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreVote {
    /// The term the sender would stand in: its own plus one.
    pub term: Term,
    /// Term of the sender's last block.
    pub last_term: Term,
    /// Index of the sender's last command.
    pub last_index: LogIndex,
}

/// Answers [`PreVote`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreVoteReply {
    /// The term the voter is in. A refusal teaches a higher one.
    pub term: Term,
    /// The term that was asked for.
    pub asked: Term,
    /// Whether it would vote so.
    pub granted: bool,
}

/// Asks for a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The candidate's term.
    pub term: Term,
    /// Term of the candidate's last block.
    pub last_term: Term,
    /// Index of the candidate's last command.
    pub last_index: LogIndex,
    /// The leader of the term before has invited the candidate to stand: whoever is in that term votes
    /// although it hears that leader.
    pub invited: bool,
}

/// Answers [`Vote`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteReply {
    /// The term the voter is in; a grant is for this term.
    pub term: Term,
    /// Whether the vote is the candidate's. Durable before this leaves.
    pub granted: bool,
}

/// Replicates blocks, carries commit index and round, and keeps followers from standing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The leader's term.
    pub term: Term,
    /// Term of the block before `blocks`; 0 before the log.
    pub prev_term: Term,
    /// Last index of the block before `blocks`; 0 before the log.
    pub prev_index: LogIndex,
    /// The leader's commit index, but not above the last index this message proves.
    pub commit: LogIndex,
    /// The newest confirmation round started in this term; 0 before the first.
    pub round: u64,
    /// What follows `prev_index`, in order.
    pub blocks: Vec<Block>,
}

/// Answers [`Append`], and repeats the answer when the disk has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendReply {
    /// The term the follower is in.
    pub term: Term,
    /// The newest round of this term's leader that the follower has seen. It confirms this round
    /// and those before it, whatever the result.
    pub round: u64,
    /// Whether the logs matched at the request's previous index.
    pub result: AppendResult,
}

/// See [`AppendReply::result`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendResult {
    /// The logs match.
    Accepted {
        /// Up to here the requests of this term's leader have proved the logs equal. It guides
        /// what to send next and commits nothing.
        verified: LogIndex,
        /// Up to here the same is on the follower's disk: what counts for a commit.
        durable: LogIndex,
    },
    /// There is no such previous block here.
    Rejected {
        /// The request's previous index.
        prev_index: LogIndex,
        /// The logs cannot match above this place, the last edge of the follower's log that is
        /// neither above `prev_index` nor of a later term than the request's `prev_term`.
        hint_index: LogIndex,
        /// The term there.
        hint_term: Term,
    },
}

/// The number of a follower's question for a read index. Never used twice by a node, whatever terms
/// and restarts lie between, so no answer can be taken for that to another question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId {
    /// Which start of the follower: [`crate::Config::boot`].
    pub boot: u64,
    /// Counts the questions since then, from 1.
    pub count: u64,
}

/// A follower asks its leader for a read index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIndex {
    /// The follower's term.
    pub term: Term,
    /// The question's number.
    pub ask: AskId,
}

/// Answers [`ReadIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIndexReply {
    /// The term the asked node is in.
    pub term: Term,
    /// The number of the question.
    pub ask: AskId,
    /// Reads that waited when the question was asked may be answered once this is applied. None from
    /// a node that does not lead.
    pub index: Option<LogIndex>,
}

/// One chunk of a snapshot, for a follower whose next block the leader no longer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The leader's term.
    pub term: Term,
    /// The newest confirmation round started in this term; 0 before the first.
    pub round: u64,
    /// Which snapshot.
    pub id: SnapshotId,
    /// The number of the chunk, from 0.
    pub chunk: u32,
    /// The chunk: at most [`palisade_types::SNAPSHOT_CHUNK_MAX`] bytes, never empty.
    pub data: Bytes,
}

/// Answers [`Snapshot`]. Whoever holds the snapshot's edge already, or has installed the snapshot,
/// answers with an [`AppendReply`] instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotReply {
    /// The term the follower is in.
    pub term: Term,
    /// The newest round of this term's leader that the follower has seen; see [`AppendReply::round`].
    pub round: u64,
    /// The snapshot.
    pub id: SnapshotId,
    /// The follower has written the chunks before this one: where the sender goes on. It promises
    /// nothing; what counts is the [`AppendReply`] after the installation.
    pub have: u32,
}

/// A leader hands over: its receiver is to stand in the next term without waiting for its timeout. It
/// counts only where the sender is followed in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutNow {
    /// The leader's term.
    pub term: Term,
    /// The end of the leader's log, all of it committed; whoever does not hold it on disk does not stand.
    pub last_index: LogIndex,
}

impl Message {
    /// The term the sender is in. A pre-vote names none that anyone is in.
    pub fn term(&self) -> Option<Term> {
        match self {
            Message::PreVote(_) => None,
            Message::PreVoteReply(m) => Some(m.term),
            Message::Vote(m) => Some(m.term),
            Message::VoteReply(m) => Some(m.term),
            Message::Append(m) => Some(m.term),
            Message::AppendReply(m) => Some(m.term),
            Message::ReadIndex(m) => Some(m.term),
            Message::ReadIndexReply(m) => Some(m.term),
            Message::Snapshot(m) => Some(m.term),
            Message::SnapshotReply(m) => Some(m.term),
            Message::TimeoutNow(m) => Some(m.term),
        }
    }
}

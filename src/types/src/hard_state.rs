//! Raft's hard state: what must be durable before a message that depends on it leaves.

use crate::ids::{LogIndex, NodeId, Term};

/// Term and vote (Raft paper, figure 2), and the commit index known when it was written: a hint
/// that lets recovery tell damage from a torn tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HardState {
    /// The newest term this node has seen.
    pub term: Term,
    /// For whom it voted in that term.
    pub vote: Option<NodeId>,
    /// A commit index known at the time; never above the true one.
    pub commit: LogIndex,
}

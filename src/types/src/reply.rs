//! What the service answers, as values: made by the state machine and the shard, carried by the
//! wire protocol, handed out by the client. The bytes are the wire crate's business.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::fence::Fence;
use crate::ids::{Epoch, LogIndex, NodeId, SessionId, ShardId, Term, Ticket};
use crate::name::{Key, Name};
use crate::operator::OperatorRow;
use crate::watch::ClusterIdentity;

/// What a lock is for, told apart by type (DESIGN section 1). A key has one class while its record
/// lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Correctness: names its resource, and the fence is shown to it.
    Fenced,
    /// Efficiency: running twice is waste, not corruption.
    Advisory,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Fenced => "fenced",
            Class::Advisory => "advisory",
        })
    }
}

/// Why a session ended. "Why did I lose my lock?" has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its owner closed it.
    Closed,
    /// The leader heard nothing for so many milliseconds.
    Expired {
        /// Silence as the leader measured it.
        silent_ms: u64,
    },
    /// An operator reported its owner dead.
    ReportedDead {
        /// The revision of the action: the record under it says who and why.
        action: LogIndex,
    },
    /// An operator evicted it.
    Evicted {
        /// The revision of the action: the record under it says who and why.
        action: LogIndex,
    },
    /// The id is not, or no longer, remembered.
    Forgotten,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Closed => f.write_str("closed"),
            Cause::Expired { silent_ms } => write!(f, "expired after {silent_ms} ms of silence"),
            Cause::ReportedDead { action } => write!(f, "reported dead by an operator (action {action})"),
            Cause::Evicted { action } => write!(f, "evicted by an operator (action {action})"),
            Cause::Forgotten => f.write_str("not or no longer remembered"),
        }
    }
}

/// How a ticket was finished: one byte in the session's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Finished too long ago: the outcome is no longer kept.
    Unknown,
    /// The holder released.
    Released,
    /// Withdrawn before a grant, or before the acquire arrived.
    Cancelled,
    /// Its time to wait ran out.
    TimedOut,
    /// It did not want to wait, and the key was held.
    Denied,
    /// Refused for another reason, such as a limit or the wrong class.
    Refused,
    /// It held the key, and an operator took the key away.
    Forced,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Unknown => "no longer known",
            Outcome::Released => "released",
            Outcome::Cancelled => "cancelled",
            Outcome::TimedOut => "timed out",
            Outcome::Denied => "denied",
            Outcome::Refused => "refused",
            Outcome::Forced => "released by an operator, by force",
        })
    }
}

/// Who holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderInfo {
    /// The holder's session.
    pub session: SessionId,
    /// The owner tag of that session.
    pub owner: Option<Name>,
    /// The epoch of its grant.
    pub epoch: Epoch,
    /// For how long, in milliseconds, by the clock the leaders carry on.
    pub held_ms: u64,
    /// Its session has ended; the key is about to be released by a sweep.
    pub ending: bool,
}

/// Who waits for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterInfo {
    /// The waiter's session.
    pub session: SessionId,
    /// The owner tag of that session.
    pub owner: Option<Name>,
    /// For how long, in milliseconds, by the clock the leaders carry on.
    pub waited_ms: u64,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransitionKind {
    /// It was granted.
    Granted,
    /// The holder released it.
    Released,
    /// The holder's session ended, with this cause.
    SessionEnded(Cause),
    /// An operator took it from the holder; the action has this transition's revision.
    Forced,
}

/// One of the last transitions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When: the revision.
    pub revision: LogIndex,
    /// What.
    pub kind: TransitionKind,
    /// Whose session.
    pub session: SessionId,
    /// The epoch granted or ended.
    pub epoch: Epoch,
    /// How long ago, in milliseconds, by the clock the leaders carry on.
    pub ago_ms: u64,
}

/// All about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The key.
    pub key: Key,
    /// Its class; `None` when the key has no record.
    pub class: Option<Class>,
    /// The resource its last acquisition named.
    pub resource: Option<Name>,
    /// The last epoch granted; without a record, the floor the next grant starts above.
    pub epoch: Epoch,
    /// Who holds it.
    pub holder: Option<HolderInfo>,
    /// How many wait.
    pub waiting: u32,
    /// The first of them, in order; at most [`crate::limits::DESCRIBE_WAITERS_MAX`].
    pub waiters: Vec<WaiterInfo>,
    /// The last transitions, newest first.
    pub transitions: Vec<Transition>,
}

/// A key in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRow {
    /// The key.
    pub key: Key,
    /// Its class.
    pub class: Class,
    /// The last epoch granted.
    pub epoch: Epoch,
    /// Who holds it.
    pub holder: Option<HolderInfo>,
    /// How many wait.
    pub waiting: u32,
}

/// A session in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub session: SessionId,
    /// Its owner tag.
    pub owner: Option<Name>,
    /// Its incarnation tag.
    pub incarnation: Option<Name>,
    /// Its TTL in milliseconds.
    pub ttl_ms: u32,
    /// Keys it holds.
    pub held: u32,
    /// Keys it waits for.
    pub waiting: u32,
}

/// What a node says of itself. Local, never a statement about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Which node.
    pub node: NodeId,
    /// `leader`, `follower`, `candidate`, `pre-candidate` or `forming`.
    pub role: String,
    /// Its term.
    pub term: Term,
    /// The leader it knows.
    pub leader: Option<NodeId>,
    /// The end of its log.
    pub last: LogIndex,
    /// Durable up to here on its own disk.
    pub durable: LogIndex,
    /// Committed, as far as it knows.
    pub commit: LogIndex,
    /// Applied to its state.
    pub applied: LogIndex,
    /// Live sessions in its state.
    pub sessions: u64,
    /// Records of keys in its state.
    pub keys: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Its boot counter.
    pub boot: u64,
}

/// Why a request was refused. Nothing was changed. [`Refusal::is_final`] says whether the same
/// request can succeed later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This node does not lead; go to that one, or ask another.
    #[error("this node is not the leader{}", Hint(*leader))]
    NotLeader {
        /// The leader, if known.
        leader: Option<NodeId>,
    },
    /// This node lost the leadership while the request was under way. It may take effect or not:
    /// repeat it at the leader, which is harmless.
    #[error("leadership was lost while the request was under way{}: repeat it", Hint(*leader))]
    Interrupted {
        /// The leader, if known.
        leader: Option<NodeId>,
    },
    /// The server has enough to do.
    #[error("the server is busy: try again in {retry_after_ms} ms")]
    Busy {
        /// When to come back, in milliseconds.
        retry_after_ms: u32,
    },
    /// The log or the state has reached its limit; releases, renewals and reads still pass.
    #[error("quota exceeded: {what} has reached its limit of {limit}")]
    QuotaExceeded {
        /// Of what.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The session has ended; so have its locks and waits.
    #[error("session {session} has ended: {cause}")]
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Why.
        cause: Cause,
    },
    /// This connection has not presented the session's token.
    #[error("session {session} is not attached to this connection: present its token first")]
    NotAttached {
        /// Which.
        session: SessionId,
    },
    /// The session holds and awaits as many keys, or as many ranges of tickets, as it may.
    #[error("the session is full: at most {limit} {what}")]
    SessionFull {
        /// Of what.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The key lives under another class.
    #[error("the key is {has}: a key has one class while its record lives")]
    ClassMismatch {
        /// Its class.
        has: Class,
    },
    /// The ticket is known with other parameters.
    #[error("ticket {ticket} was used for something else")]
    TicketMismatch {
        /// Which.
        ticket: Ticket,
    },
    /// The ticket is finished; repeating it changes nothing.
    #[error("ticket {ticket} is finished: {outcome}")]
    TicketFinished {
        /// Which.
        ticket: Ticket,
        /// How it ended.
        outcome: Outcome,
    },
    /// The grant that an operator meant does not hold the key any more, or never did.
    #[error("the grant with epoch {asked} does not hold the key: the last epoch granted is {last}")]
    NotHeld {
        /// The epoch that was to be released.
        asked: Epoch,
        /// The last one granted; without a record, the floor the next grant starts above.
        last: Epoch,
    },
    /// The key cannot be retired: it is held or awaited.
    #[error("the key is in use: only one that nobody holds or awaits can be retired")]
    InUse,
    /// What followed that revision is no longer kept here: ask another node, or begin anew from the
    /// present state.
    #[error("the history after that revision is no longer kept: it goes back to revision {oldest}")]
    Compacted {
        /// What happened after this one is kept.
        oldest: LogIndex,
    },
    /// The cursor belongs to another cluster, or to this one before it was restored from a backup.
    #[error("the cursor belongs to another cluster, or to this one before it was restored")]
    ClusterReset,
    /// The request breaks a rule; sending it again is useless.
    #[error("bad request: {reason}")]
    BadRequest {
        /// Which rule.
        reason: String,
    },
}

struct Hint(Option<NodeId>);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(node) => write!(f, ", node {node} is"),
            None => f.write_str(" and knows none"),
        }
    }
}

impl Refusal {
    /// Whether sending the same request again, here or elsewhere, can never succeed.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Refusal::NotLeader { .. }
                | Refusal::Interrupted { .. }
                | Refusal::Busy { .. }
                | Refusal::QuotaExceeded { .. }
                | Refusal::NotAttached { .. }
                | Refusal::SessionFull { .. }
                // Another node may keep more of its history.
                | Refusal::Compacted { .. }
        )
    }
}

/// How a read was answered, and at which revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMark {
    /// The consistency the answer has.
    pub consistency: Consistency,
    /// The state it describes.
    pub revision: LogIndex,
}

/// What a read's answer promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// It holds everything acknowledged to anybody before the read was sent.
    Linearizable,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The session is open (again, for a repeated token) and attached to this connection.
    Opened {
        /// Its id.
        session: SessionId,
        /// The TTL granted, in milliseconds.
        ttl_ms: u32,
        /// A silent session is gone within so many milliseconds, without a change of leader.
        gone_within_ms: u64,
        /// The TTL is below three election timeouts: a failover may outlast it.
        short_ttl: bool,
    },
    /// The session is attached to this connection. This is no renewal.
    Attached {
        /// Its id.
        session: SessionId,
        /// Its TTL, in milliseconds.
        ttl_ms: u32,
    },
    /// All sessions of the request are renewed but these.
    Renewed {
        /// Those that are not, and why.
        refused: Vec<Refusal>,
    },
    /// The session is closed, by this request or an earlier one.
    SessionClosed {
        /// Its id.
        session: SessionId,
    },
    /// The claim holds the key.
    Granted {
        /// Whose.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
        /// What to show the resource.
        fence: Fence,
    },
    /// The claim stands in the queue; the grant is pushed.
    Queued {
        /// Whose.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
        /// How many are ahead of it, the holder not counted.
        place: u32,
        /// Who holds the key.
        holder: Box<HolderInfo>,
    },
    /// The claim did not want to wait. Its ticket is finished.
    Denied {
        /// Whose.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
        /// How many wait.
        waiting: u32,
        /// Who holds the key.
        holder: Box<HolderInfo>,
    },
    /// The claim is over: the answer to release and cancel, and what a claim gets that timed out.
    Finished {
        /// Whose.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
        /// How it ended.
        outcome: Outcome,
    },
    /// The answer to describe.
    Described {
        /// Consistency and revision.
        read: ReadMark,
        /// All about the key.
        description: Box<Description>,
    },
    /// A page of keys, in order.
    Locks {
        /// Consistency and revision.
        read: ReadMark,
        /// The rows.
        rows: Vec<LockRow>,
        /// There are more, after the last of these.
        more: bool,
    },
    /// A page of sessions, in order.
    Sessions {
        /// Consistency and revision.
        read: ReadMark,
        /// The rows.
        rows: Vec<SessionRow>,
        /// There are more, after the last of these.
        more: bool,
    },
    /// An operator's action is done, by this request or an earlier one.
    OperatorDone {
        /// The revision of the action.
        action: LogIndex,
    },
    /// A page of the operators' last actions, oldest first.
    OperatorActs {
        /// Consistency and revision.
        read: ReadMark,
        /// The rows.
        rows: Vec<OperatorRow>,
        /// There are more, after the last of these.
        more: bool,
    },
    /// What this node says of itself.
    Status(Box<NodeStatus>),
    /// The watch stands: everything it selects is pushed from now on.
    Watching {
        /// Its number on this connection.
        watch: u64,
        /// Whose revisions it tells.
        cluster: ClusterIdentity,
        /// Of which shard.
        shard: ShardId,
        /// Nothing is pushed that is not behind this revision.
        revision: LogIndex,
    },
    /// The watch has ended, or there was none.
    Unwatched {
        /// Its number on this connection.
        watch: u64,
    },
    /// Nothing was done.
    Refused(Refusal),
}

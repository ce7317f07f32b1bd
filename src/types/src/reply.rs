//! What the service answers, as values: made by the state machine and the shard, carried by the
//! wire protocol, handed out by the client. The bytes are the wire crate's business.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::cause::TransitionKind;
use crate::fence::Fence;
use crate::ids::{Epoch, LogIndex, NodeId, SessionId, ShardId, Term, Ticket};
use crate::limits::BEHIND_MAX;
use crate::name::{Key, Name};
use crate::operator::OperatorRow;
use crate::refusal::Refusal;
use crate::value::Value;
use crate::watch::ClusterIdentity;

/// What a lock is for, told apart by type (DESIGN section 1). A key has one class while its record
/// lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Correctness: names its resource, and the fence is shown to it.
    Fenced,
    /// Efficiency: running twice is waste, not corruption.
    Advisory,
    /// An election: its claims are campaigns, each with a value (DESIGN section 4).
    Election,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Fenced => "fenced",
            Class::Advisory => "advisory",
            Class::Election => "election",
        })
    }
}

/// How a claim holds its key (DESIGN section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with others that hold it in the same mode.
    Shared,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        })
    }
}

/// What becomes of a key whose holder's session expires or is evicted (DESIGN section 3). One that
/// is closed or reported dead frees its keys in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OnDeath {
    /// The next in line gets it.
    #[default]
    Release,
    /// It stays closed until the holder is reported dead or the grant is released by force: at most
    /// once, for resources that cannot check a fence.
    Quarantine,
}

/// Whether a holder may still act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Its session lives.
    Live,
    /// Its session has ended; a sweep is about to release the key.
    Ending,
    /// Its session has expired or was evicted, and the claim asked for quarantine: the key stays
    /// closed until a death report or a forced release.
    Quarantined,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Live => "live",
            Standing::Ending => "ending",
            Standing::Quarantined => "quarantined",
        })
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
    /// It held the key alone and was turned into a shared claim, under another ticket.
    Downgraded,
    /// A command that opens no claim was carried out.
    Done,
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
            Outcome::Downgraded => "turned into a shared claim",
            Outcome::Done => "done",
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
    /// The incarnation tag of that session.
    pub incarnation: Option<Name>,
    /// The epoch of its grant.
    pub epoch: Epoch,
    /// Alone, or with others.
    pub mode: Mode,
    /// For how long, in milliseconds, by the clock the leaders carry on.
    pub held_ms: u64,
    /// Whether its session lives.
    pub standing: Standing,
}

/// Who waits for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterInfo {
    /// The waiter's session.
    pub session: SessionId,
    /// The owner tag of that session.
    pub owner: Option<Name>,
    /// How it wants to hold the key.
    pub mode: Mode,
    /// For how long, in milliseconds, by the clock the leaders carry on.
    pub waited_ms: u64,
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
    /// How many hold it.
    pub holding: u32,
    /// The first of them, in the order of their epochs; at most
    /// [`crate::limits::DESCRIBE_WAITERS_MAX`].
    pub holders: Vec<HolderInfo>,
    /// Of an election that somebody leads: the leader's value.
    pub value: Option<Value>,
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
    /// How many hold it.
    pub holding: u32,
    /// The one of them with the lowest epoch.
    pub holder: Option<HolderInfo>,
    /// How many wait.
    pub waiting: u32,
}

/// An ephemeral key and its value: there as long as the session that put it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRow {
    /// The key.
    pub key: Key,
    /// At most [`crate::limits::VALUE_BYTES_MAX`] bytes.
    pub value: Value,
    /// Whose it is.
    pub session: SessionId,
    /// The owner tag of that session.
    pub owner: Option<Name>,
    /// The revision of the first put.
    pub created: LogIndex,
    /// The revision of the last put.
    pub modified: LogIndex,
    /// Its session has ended; the key is about to be removed by a sweep.
    pub ending: bool,
}

/// A resource in a listing, and the keys that claim to protect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRow {
    /// The resource.
    pub resource: Name,
    /// How many keys claim it: one, unless there is a conflict.
    pub count: u32,
    /// The first of them, in order; at most [`crate::limits::RESOURCE_KEYS_SHOWN`].
    pub keys: Vec<Key>,
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
    /// It has ended, and the keys it held are in quarantine.
    pub quarantined: bool,
    /// Ephemeral keys it has put.
    pub values: u32,
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
    /// The index of the state that its newest snapshot holds; 0 without one, and to nodes that speak version 1 of the protocol.
    pub snapshot: LogIndex,
    /// Its boot counter.
    pub boot: u64,
    /// The identity of its cluster, as cursors and signed fences have it; not known before the cluster is formed, nor to nodes
    /// that speak version 1 of the protocol.
    pub cluster: Option<ClusterIdentity>,
}

impl NodeStatus {
    /// Whether the node is still making its state from its log, as after a restart: it has a log and does
    /// not know yet how much of it is committed, or it is far behind with applying that.
    pub fn is_recovering(&self) -> bool {
        let unknown = self.commit.0 == 0 && self.last.0 > 0;
        unknown || self.applied.0 + BEHIND_MAX < self.commit.0
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

/// What a read asks for, and what its answer promises (DESIGN section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consistency {
    /// It holds everything acknowledged to anybody before the read was sent.
    Linearizable,
    /// The same as long as clocks keep their promise: the leader answered by its lease, and asked
    /// nobody.
    Lease,
    /// What the node that answered had applied: a state that was, and may be long past.
    Stale,
}

impl Consistency {
    /// Its number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Consistency::Linearizable => 1,
            Consistency::Lease => 2,
            Consistency::Stale => 3,
        }
    }

    /// The consistency with this number.
    pub const fn of_number(number: u8) -> Option<Consistency> {
        match number {
            1 => Some(Consistency::Linearizable),
            2 => Some(Consistency::Lease),
            3 => Some(Consistency::Stale),
            _ => None,
        }
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Consistency::Linearizable => "linearizable",
            Consistency::Lease => "lease",
            Consistency::Stale => "stale",
        })
    }
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
        /// Who holds the key; of several, the one with the lowest epoch.
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
        /// Who holds the key; of several, the one with the lowest epoch.
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
    /// The ephemeral key has its value.
    PutDone {
        /// Whose it is.
        session: SessionId,
        /// The ticket of the put.
        ticket: Ticket,
        /// When: the revision.
        revision: LogIndex,
    },
    /// The ephemeral key is gone.
    Deleted {
        /// Whose it was.
        session: SessionId,
        /// The ticket of the delete.
        ticket: Ticket,
        /// Whether it was there.
        existed: bool,
    },
    /// The answer to a get.
    Value {
        /// Consistency and revision.
        read: ReadMark,
        /// What is there, if anything.
        row: Option<Box<ValueRow>>,
    },
    /// A page of ephemeral keys with their values, in order.
    Values {
        /// Consistency and revision.
        read: ReadMark,
        /// The rows.
        rows: Vec<ValueRow>,
        /// There are more, after the last of these.
        more: bool,
    },
    /// The key's claim to the resource is on record.
    ResourceClaimed {
        /// The state that the rest describes.
        revision: LogIndex,
        /// How many keys claim the resource, this one included.
        keys: u32,
        /// Another of them, the first in order: there should be none.
        other: Option<Key>,
    },
    /// A page of resources, in order.
    Resources {
        /// Consistency and revision.
        read: ReadMark,
        /// The rows.
        rows: Vec<ResourceRow>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_recovers_until_it_has_applied_all_but_ten_thousand_of_what_it_knows_to_be_committed() {
        let status = |last, commit, applied| NodeStatus {
            node: NodeId(1),
            role: String::from("follower"),
            term: Term(1),
            leader: None,
            last: LogIndex(last),
            durable: LogIndex(last),
            commit: LogIndex(commit),
            applied: LogIndex(applied),
            sessions: 0,
            keys: 0,
            log_bytes: 0,
            snapshot: LogIndex(0),
            boot: 1,
            cluster: None,
        };
        assert!(!status(0, 0, 0).is_recovering(), "there is nothing to recover");
        assert!(status(5, 0, 0).is_recovering(), "it does not know yet what of its log is committed");
        assert!(status(20_000, 10_002, 1).is_recovering());
        assert!(!status(20_000, 10_001, 1).is_recovering());
    }
}

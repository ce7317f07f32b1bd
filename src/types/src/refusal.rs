//! Why requests are refused: typed, and each says whether it is final.

use alloc::string::String;
use core::fmt;

use crate::cause::Cause;
use crate::ids::{Epoch, LogIndex, NodeId, SessionId, Term, Ticket};
use crate::name::Name;
use crate::reply::{Class, Outcome};

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
    #[error("session {session} {}", Gone(*cause))]
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
    /// The ephemeral key is another session's, which lives or whose keys are about to be removed.
    #[error("the ephemeral key belongs to session {session}{}", Owner(owner.as_ref()))]
    OwnedByOther {
        /// Whose it is.
        session: SessionId,
        /// The owner tag of that session.
        owner: Option<Name>,
    },
    /// The key cannot be retired: it is held or awaited.
    #[error("the key is in use: only one that nobody holds or awaits can be retired")]
    InUse,
    /// The record that was to be retired is gone, or has been granted since, or never was.
    #[error("the key has no record whose last grant is epoch {asked}: the last epoch granted is {last}")]
    NotAtEpoch {
        /// The epoch that was to be the last one.
        asked: Epoch,
        /// The last one granted; without a record, the floor the next grant starts above.
        last: Epoch,
    },
    /// Leadership cannot be handed to a node that does not vote.
    #[error("node {node} is not a voter of this cluster")]
    NotAVoter {
        /// Which.
        node: NodeId,
    },
    /// The leadership that was to be handed over is not that of the present term.
    #[error(
        "the leadership of term {asked} is over, or already where it was to go: node {leader} leads in term {term}"
    )]
    OtherTerm {
        /// The term that was named.
        asked: Term,
        /// The present one.
        term: Term,
        /// Who leads in it.
        leader: NodeId,
    },
    /// Leadership was to be handed over, and nobody took it in time.
    #[error("nobody has taken the leadership over in time: node {leader} leads on")]
    NotHandedOver {
        /// Who leads as before.
        leader: NodeId,
    },
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

struct Owner<'a>(Option<&'a Name>);

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(owner) => write!(f, " of {owner}"),
            None => Ok(()),
        }
    }
}

/// Of an id that nobody remembers it is not certain that there ever was such a session.
struct Gone(Cause);

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Cause::Forgotten => write!(f, "is {}", self.0),
            cause => write!(f, "has ended: {cause}"),
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
        )
    }
}

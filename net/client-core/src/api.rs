//! What goes in and what comes out.

use ::core::time::Duration;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::{
    Cause, Class, Fence, HolderInfo, Key, Mode, Name, NodeId, OnDeath, OperatorAct, Outcome, Refusal, Reply,
    SessionId, Ticket, Time, Value,
};
use palisade_wire::{Query, RefusedReason, Wait};

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);
    };
}

handle! {
    /// A connection, or the attempt at one. Never reused.
    LinkId
}
handle! {
    /// A session of this client, from the call that opens it. Never reused.
    SessionHandle
}
handle! {
    /// A claim of this client, from the call that makes it. Never reused.
    ClaimId
}
handle! {
    /// A call of this client. Never reused.
    CallId
}
handle! {
    /// A put or delete of this client. Never reused.
    WriteId
}

/// Another key protects the same resource: two locks that do not exclude each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The resource.
    pub resource: Name,
    /// The other key; of several the first in order.
    pub other: Key,
    /// How many keys claim the resource, one's own included.
    pub keys: u32,
}

/// What happened outside.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The connection asked for by [`Action::Dial`] is made.
    Connected {
        /// Which.
        link: LinkId,
    },
    /// The connection could not be made, or is broken.
    Disconnected {
        /// Which.
        link: LinkId,
    },
    /// Bytes arrived, cut anywhere.
    Received {
        /// On which connection.
        link: LinkId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Time has passed.
    Tick,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make a connection; the outcome comes back as an input.
    Dial {
        /// Its number.
        link: LinkId,
        /// `host:port`.
        endpoint: String,
    },
    /// Close the connection, or give up making it. No more inputs for it are looked at.
    Hangup {
        /// Which.
        link: LinkId,
    },
    /// Send bytes.
    Send {
        /// On which connection.
        link: LinkId,
        /// Whole frames.
        bytes: Vec<u8>,
    },
    /// Tell the application.
    Event(Event),
}

/// What a session is to be.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SessionSpec {
    /// The TTL asked for; zero takes the server's default.
    pub ttl: Duration,
    /// A free tag, such as a host.
    pub owner: Option<Name>,
    /// A free tag, such as a pod's uid.
    pub incarnation: Option<Name>,
}

/// What is to be acquired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireSpec {
    /// The key.
    pub key: Key,
    /// What the lock is for.
    pub class: Class,
    /// What it protects; `Fenced` must say.
    pub resource: Option<Name>,
    /// Alone, or with others of this mode. A campaign is exclusive.
    pub mode: Mode,
    /// Whether to stand in the queue, and how long, counted from the call.
    pub wait: Wait,
    /// What becomes of the key should the session die with it. A campaign's is released.
    pub on_death: OnDeath,
    /// Of a campaign (class `Election`), which must have one, and of nothing else: what observers are
    /// shown. At most 16 KiB ([`palisade_types::limits::VALUE_BYTES_MAX`]).
    pub value: Option<Value>,
}

impl AcquireSpec {
    /// An exclusive claim that waits for as long as it takes, and that names no resource.
    pub fn new(key: Key, class: Class) -> AcquireSpec {
        AcquireSpec {
            key,
            class,
            resource: None,
            mode: Mode::Exclusive,
            wait: Wait::Forever,
            on_death: OnDeath::Release,
            value: None,
        }
    }
}

/// What a session writes: its ephemeral keys, and what it says as a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteSpec {
    /// Give it a value.
    Put {
        /// The key.
        key: Key,
        /// At most 16 KiB ([`palisade_types::limits::VALUE_BYTES_MAX`]): a longer one is a bug of the
        /// caller's, which the server answers by closing the connection.
        value: Value,
    },
    /// Remove it.
    Delete {
        /// The key.
        key: Key,
    },
    /// Change the value under which the session leads an election.
    Proclaim {
        /// The ticket of the campaign.
        leads: Ticket,
        /// At most 16 KiB, as of a put.
        value: Value,
    },
}

/// Which node answers a linearizable read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadFrom {
    /// The leader: one round among the nodes, and the connection on which sessions live.
    #[default]
    Leader,
    /// Whichever node this client is connected to. A follower asks the leader first how new its answer
    /// must be, so this takes work off the leader, not time off the answer.
    Any,
}

/// A read, an operator's action, or a question to a node about itself. How new the answer to a read
/// must be is told by the variant: no flag makes a read stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRequest {
    /// A linearizable read: the answer holds everything acknowledged to anybody before it was asked.
    Read {
        /// What.
        query: Query,
        /// Of whom.
        from: ReadFrom,
    },
    /// A read that the leader may answer by its lease, where its configuration allows that. The answer
    /// says whether it did; otherwise it is linearizable.
    ReadByLease {
        /// What.
        query: Query,
    },
    /// A read of what whichever node this client is connected to has applied, however old that is.
    /// It needs neither a leader nor a quorum.
    ReadStale {
        /// What.
        query: Query,
    },
    /// What the node connected to says of itself, whichever it is.
    Status,
    /// Acts on somebody else's session or key.
    Operate {
        /// Who does it.
        by: Name,
        /// Why.
        reason: Name,
        /// What.
        act: OperatorAct,
    },
}

/// Why a session, or a claim of it, is over without the caller having wished it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The cluster says so.
    Ended(Cause),
    /// No renewal was acknowledged in time: from now on silence can end the lease elsewhere.
    DeadlinePassed,
    /// The caller closed the session.
    Closed,
    /// The cluster refuses the session for good.
    Refused(Refusal),
    /// The cluster ended this claim alone.
    Finished(Outcome),
    /// The session named does not exist, or no longer.
    NoSession,
    /// The claim named does not hold its key, or no longer.
    NoClaim,
}

/// How a claim ended that was not lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// It did not want to wait, and the key was held.
    Denied {
        /// By whom; unknown when the answer got lost on the way and was asked for again.
        holder: Option<Box<HolderInfo>>,
        /// How many wait.
        waiting: u32,
    },
    /// Its time to wait ran out. It holds nothing.
    TimedOut,
    /// It was granted, and an operator took the key away before the grant was heard of. It holds nothing.
    Taken,
    /// Withdrawn by the cluster before a grant. It holds nothing.
    Cancelled,
    /// Released as the caller wished.
    Released,
    /// Refused for good, or when it did not want to wait. It holds nothing.
    Refused(Refusal),
}

/// Why a connection was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// It could not be made, or broke.
    Closed,
    /// It was not made in time, or the greeting was not answered in time.
    Timeout,
    /// The server owed answers and said nothing.
    Silent,
    /// What the server sent is not the protocol.
    Protocol(String),
    /// The server will not talk.
    Refused {
        /// Why.
        reason: RefusedReason,
        /// The same for people.
        text: String,
    },
    /// Another cluster answered than the one meant.
    OtherCluster,
    /// The node does not lead.
    NotLeader {
        /// The leader it knows.
        leader: Option<NodeId>,
    },
    /// The node no longer keeps what a watch has not been told.
    Compacted,
    /// The node refuses a watch at present.
    Refusing(Refusal),
}

/// What the application learns.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The session is open and its lease runs.
    SessionOpened {
        /// Which.
        handle: SessionHandle,
        /// Its id in the cluster.
        session: SessionId,
        /// The TTL granted.
        ttl: Duration,
        /// Once silent it is gone within this time, without a change of leader.
        gone_within: Duration,
        /// The TTL is short: a failover may outlast it.
        short_ttl: bool,
    },
    /// The session could not be opened. A caller that still wants one opens another, with another
    /// token.
    SessionFailed {
        /// Which.
        handle: SessionHandle,
        /// Why.
        reason: LostReason,
    },
    /// The open is refused at present, and tried again until the caller closes the session.
    SessionDelayed {
        /// Which.
        handle: SessionHandle,
        /// Why.
        refusal: Refusal,
    },
    /// The session is over. Its claims were reported lost just before.
    SessionLost {
        /// Which.
        handle: SessionHandle,
        /// Why.
        reason: LostReason,
    },
    /// The session is closed as the caller wished, or was out of reach for so long that its lease
    /// has run out.
    SessionClosed {
        /// Which.
        handle: SessionHandle,
    },
    /// A renewal was acknowledged.
    Renewed {
        /// Of which session.
        handle: SessionHandle,
        /// Until when it may be believed in, margin taken off.
        deadline: Time,
    },
    /// The claim stands in the queue. Comes again when the connection has changed.
    ClaimQueued {
        /// Which.
        claim: ClaimId,
        /// How many are ahead of it, the holder not counted.
        place: u32,
        /// Who holds the key.
        holder: Box<HolderInfo>,
    },
    /// The claim is refused at present, and tried again.
    ClaimDelayed {
        /// Which.
        claim: ClaimId,
        /// Why.
        refusal: Refusal,
    },
    /// The claim holds its key, as long as its session lives.
    ClaimGranted {
        /// Which.
        claim: ClaimId,
        /// What to show the resource.
        fence: Fence,
    },
    /// The claim shares its key from now on, under a new fence.
    ClaimDowngraded {
        /// Which.
        claim: ClaimId,
        /// What to show the resource from now on.
        fence: Fence,
    },
    /// The claim was not downgraded and holds its key as it did.
    ClaimKept {
        /// Which.
        claim: ClaimId,
        /// Why.
        refusal: Refusal,
    },
    /// The resource that the claim names is protected by another key too. Said at most once of each claim,
    /// before or after the grant.
    ClaimConflict {
        /// Which.
        claim: ClaimId,
        /// With what.
        conflict: Conflict,
    },
    /// For logs: the same, said once for each key and resource.
    ResourceConflict {
        /// The key of this client.
        key: Key,
        /// With what.
        conflict: Conflict,
    },
    /// The claim is over.
    ClaimDone {
        /// Which.
        claim: ClaimId,
        /// How it ended.
        result: ClaimResult,
    },
    /// The claim is over because its session is, or because the cluster says so.
    ClaimLost {
        /// Which.
        claim: ClaimId,
        /// Why.
        reason: LostReason,
    },
    /// A put or delete is done, or refused: then it has changed nothing.
    WriteDone {
        /// Which.
        write: WriteId,
        /// How it ended.
        result: Result<(), Refusal>,
    },
    /// The session is over, and whether the put or delete took effect before is not known. It matters
    /// no more: the session's keys are gone, or about to be.
    WriteLost {
        /// Which.
        write: WriteId,
        /// Why.
        reason: LostReason,
    },
    /// A call is answered, or refused for good or for lack of room.
    CallDone {
        /// Which.
        call: CallId,
        /// The answer.
        result: Result<Box<Reply>, Refusal>,
    },
    /// For logs: a server answered the greeting.
    LinkUp {
        /// Where it is.
        endpoint: String,
        /// Which node.
        node: NodeId,
        /// The leader it knows.
        leader: Option<NodeId>,
    },
    /// For logs, and for whoever asks why nothing happens: a connection was given up.
    LinkDown {
        /// Where it led.
        endpoint: String,
        /// Why.
        error: LinkError,
    },
}

//! What handles ask of the driver.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palisade_client_core::{AcquireSpec, CallRequest, Conflict, SessionSpec, WriteSpec};
use palisade_types::{Fence, HolderInfo, Refusal, Reply, SessionId, Signature, Time, Value};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::clock;
use crate::error::{AcquireError, CallError, LostReason};

/// A handle's number for a session or a claim: drawn by the handle, so that it can give up what the
/// driver has not seen yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(pub(crate) u64);

/// Where the driver reports that something is lost; at its own end it drops the sender, which says
/// the same.
pub(crate) type LostSender = watch::Sender<Option<LostReason>>;
/// The other side.
pub(crate) type LostReceiver = watch::Receiver<Option<LostReason>>;

/// How far the shutting down of a session is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    /// Guards that are not given up, and releases that are not confirmed.
    pub(crate) left: usize,
    /// The session is over: nothing is waited for any more.
    pub(crate) over: Option<LostReason>,
}

/// Where the driver reports how far it is.
pub(crate) type DrainSender = watch::Sender<Drain>;

/// Where the driver reports that another key protects the same resource; dropped when the claim is over.
pub(crate) type ConflictSender = watch::Sender<Option<Conflict>>;
/// The other side.
pub(crate) type ConflictReceiver = watch::Receiver<Option<Conflict>>;

/// An order from a handle to the driver. They are carried out in order.
pub(crate) enum Command {
    /// Opens a session.
    Open {
        tag: Tag,
        spec: SessionSpec,
        lease: std::sync::Arc<Lease>,
        lost: LostSender,
        reply: oneshot::Sender<Result<Opened, CallError>>,
    },
    /// Closes a session, or gives up opening it.
    Close { tag: Tag, reply: Option<oneshot::Sender<Result<(), CallError>>> },
    /// Renews a session no more, tells its guards that they are lost, and lets them go one by one. Of a
    /// session that is over the reply is dropped.
    Drain { tag: Tag, reply: oneshot::Sender<watch::Receiver<Drain>> },
    /// Asks for a key.
    Acquire {
        session: Tag,
        tag: Tag,
        spec: AcquireSpec,
        events: mpsc::UnboundedSender<ClaimEvent>,
        lost: LostSender,
        /// Where a conflict is reported, if a resource is named.
        conflict: Option<ConflictSender>,
    },
    /// Releases a granted claim and says when that is done.
    Release { tag: Tag, reply: oneshot::Sender<Result<(), CallError>> },
    /// Downgrades a granted claim and says under which fence it holds from then on.
    Downgrade { tag: Tag, reply: oneshot::Sender<Result<Shown, Refusal>> },
    /// Changes the value of a campaign that has won.
    Proclaim { claim: Tag, tag: Tag, value: Value, reply: oneshot::Sender<Result<(), CallError>> },
    /// Nobody wants the claim any more: cancels it, or releases it if it was granted.
    Abandon { tag: Tag },
    /// Puts or deletes an ephemeral key.
    Write { session: Tag, tag: Tag, spec: WriteSpec, reply: oneshot::Sender<Result<(), CallError>> },
    /// Nobody waits for the put or delete any more.
    DropWrite { tag: Tag },
    /// Reads.
    Read { tag: Tag, request: CallRequest, reply: oneshot::Sender<Result<Reply, CallError>> },
    /// Nobody waits for the read any more.
    DropRead { tag: Tag },
}

/// An open session, as the cluster granted it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) session: SessionId,
    pub(crate) ttl: Duration,
    pub(crate) gone_within: Duration,
    pub(crate) short_ttl: bool,
}

/// What happens to a claim before it is over.
pub(crate) enum ClaimEvent {
    /// It stands in the queue.
    Queued { place: u32, holder: Box<HolderInfo> },
    /// It holds the key.
    Granted(Shown),
    /// It never will.
    Failed(AcquireError),
}

/// What a grant gives its holder to show: a fence, and its signature if the cluster signs.
pub(crate) type Shown = (Fence, Option<Signature>);

/// The lease of a session, shared by its handles, its guards and the driver. Read against the clock,
/// so that a process that was stopped sees the truth before the driver has run.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Nanoseconds of CLOCK_BOOTTIME; 0 once it is lost.
    deadline: AtomicU64,
    end: AtomicU64,
    /// Rung at each renewal.
    pub(crate) renewed: Notify,
}

impl Lease {
    /// A renewal was acknowledged: stop trusting it at `deadline`; at `end` it may really be over.
    pub(crate) fn extend(&self, deadline: Time, end: Time) {
        // In this order, so that whoever reads the deadline and then the end sees no end too early.
        self.end.store(end.0, Ordering::Release);
        self.deadline.store(deadline.0, Ordering::Release);
        self.renewed.notify_waiters();
    }

    /// The deadline, and the end; none once it is lost.
    pub(crate) fn times(&self) -> Option<(Time, Time)> {
        let deadline = Time(self.deadline.load(Ordering::Acquire));
        (deadline > Time::ZERO).then(|| (deadline, Time(self.end.load(Ordering::Acquire))))
    }

    /// The deadline was missed. The lease itself goes on to its end: nobody else is granted before.
    pub(crate) fn miss(&self) {
        self.deadline.store(0, Ordering::Release);
    }

    /// The session has ended: nothing is left.
    pub(crate) fn void(&self) {
        self.deadline.store(0, Ordering::Release);
        self.end.store(0, Ordering::Release);
    }

    /// How long the lease may still be trusted.
    pub(crate) fn remaining(&self) -> Duration {
        Time(self.deadline.load(Ordering::Acquire)).since(clock::now())
    }

    /// How long nobody else can be granted what the session holds, however long we are silent.
    pub(crate) fn until_end(&self) -> Duration {
        Time(self.end.load(Ordering::Acquire)).since(clock::now())
    }
}

//! What reaches a core's loop from elsewhere: finished disk operations from tasks of the same
//! executor, and messages of other threads. The loop looks into it before and after every sleep.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use palisade_types::NodeId;
use palisade_types::reply::NodeStatus;
use palisade_wal::{DiskResult, OpId};

/// For whom a disk operation was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The shard's log.
    Shard,
    /// The BOOT record.
    Boot,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A disk operation ended.
    Disk {
        /// Whose.
        owner: Owner,
        /// Which.
        id: OpId,
        /// How.
        result: DiskResult,
    },
    /// Another thread wants something.
    Outside(Outside),
}

/// A message of another thread.
#[derive(Debug)]
pub(crate) enum Outside {
    /// The administration asks how the node is.
    Status(tokio::sync::oneshot::Sender<Report>),
    /// The name of a peer was looked up.
    Resolved {
        /// Whose.
        node: NodeId,
        /// Its addresses, or why there are none.
        result: Result<Vec<SocketAddr>, String>,
    },
    /// The node is to end.
    Stop,
}

/// How a node is, for the administration.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// What it says of itself.
    pub(crate) status: NodeStatus,
    /// Members it has not met; empty once the cluster is formed.
    pub(crate) missing: Vec<NodeId>,
    /// The cluster is formed.
    pub(crate) formed: bool,
    /// It leads and has applied an entry of its own term.
    pub(crate) serving: bool,
    /// Peers with a working connection from here.
    pub(crate) linked: Vec<NodeId>,
}

/// The inbox of one core.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    events: RefCell<Vec<Event>>,
    disk_in_flight: Cell<usize>,
}

impl Inbox {
    /// Puts something in.
    pub(crate) fn put(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    /// Takes all that is in.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.borrow_mut())
    }

    /// Whether nothing is in.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.borrow().is_empty()
    }

    /// A disk operation was started.
    pub(crate) fn disk_started(&self) {
        self.disk_in_flight.set(self.disk_in_flight.get() + 1);
    }

    /// A disk operation ended.
    pub(crate) fn disk_done(&self, owner: Owner, id: OpId, result: DiskResult) {
        self.disk_in_flight.set(self.disk_in_flight.get() - 1);
        self.put(Event::Disk { owner, id, result });
    }

    /// How many disk operations run.
    pub(crate) fn disk_in_flight(&self) -> usize {
        self.disk_in_flight.get()
    }
}

/// Carries messages of other threads into the inbox, for as long as somebody can send.
pub(crate) async fn pump(inbox: Rc<Inbox>, outside: async_channel::Receiver<Outside>) {
    while let Ok(message) = outside.recv().await {
        inbox.put(Event::Outside(message));
    }
}

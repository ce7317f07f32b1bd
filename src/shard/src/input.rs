//! All that can happen to a shard.

use palisade_raft::Message;
use palisade_types::{ConnId, NodeId, RequestId};
use palisade_wal::{DiskResult, OpId};
use palisade_wire::Request;

use crate::drains::{CoreId, DrainId};

/// An input. Nothing else reaches a shard.
#[derive(Debug)]
pub enum Input {
    /// A client's request.
    Request {
        /// Its connection.
        conn: ConnId,
        /// Its number there.
        id: RequestId,
        /// What it wants.
        request: Request,
    },
    /// A client's connection is gone.
    ConnClosed {
        /// Which.
        conn: ConnId,
    },
    /// A client's connection takes no more of what is pushed for its watches, until
    /// [`Input::Cleared`].
    Congested {
        /// Which.
        conn: ConnId,
    },
    /// It takes more again.
    Cleared {
        /// Which.
        conn: ConnId,
    },
    /// A message of another node, whose identity the connection has proved.
    Peer {
        /// Who sent it.
        from: NodeId,
        /// The message.
        message: Message,
    },
    /// A core has handed in everything of its clients that was readable when the mark
    /// [`crate::Actions::drain`] asks for began.
    Drained {
        /// Which core.
        core: CoreId,
        /// Which mark.
        drain: DrainId,
    },
    /// This node is about to stop: if it leads, it hands over. [`crate::Shard::is_handing_over`] tells how long
    /// that goes on.
    HandOver,
    /// The disk is done with an operation.
    Disk {
        /// Which.
        id: OpId,
        /// How it ended.
        result: DiskResult,
    },
}

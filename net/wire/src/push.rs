//! What a server tells a client unasked.

use alloc::vec::Vec;
use palisade_types::{
    Cause, DecodeError, Fence, NodeId, Outcome, Reader, RequestId, SessionId, Ticket, Writer,
};

use crate::frame::{Frame, begin};
use crate::parts::{
    cause, claim, fence, opt_node, outcome, put_cause, put_claim, put_fence, put_opt_node, put_outcome,
};
use crate::{Group, Kind, MessageError};

/// News for the sessions attached to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// A claim that waited now holds its key.
    Granted {
        /// Whose.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
        /// What to show the resource.
        fence: Fence,
    },
    /// A claim that waited is over without a grant; or one that held, and an operator took its key.
    Finished {
        /// Whose.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
        /// How it ended.
        outcome: Outcome,
    },
    /// A session has ended, with everything it held.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Why.
        cause: Cause,
    },
    /// This node no longer leads, or knows another leader.
    LeaderChanged {
        /// The leader, if known.
        leader: Option<NodeId>,
    },
}

impl Push {
    /// Appends the push as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Push::Granted { .. } => Kind::PushGranted,
            Push::Finished { .. } => Kind::PushFinished,
            Push::SessionEnded { .. } => Kind::PushSessionEnded,
            Push::LeaderChanged { .. } => Kind::PushLeaderChanged,
        };
        let open = begin(out, kind, RequestId(0));
        let mut w = Writer(out);
        match self {
            Push::Granted { session, ticket, fence } => {
                put_claim(&mut w, *session, *ticket);
                put_fence(&mut w, fence);
            }
            Push::Finished { session, ticket, outcome } => {
                put_claim(&mut w, *session, *ticket);
                put_outcome(&mut w, *outcome);
            }
            Push::SessionEnded { session, cause } => {
                w.session(*session);
                put_cause(&mut w, *cause);
            }
            Push::LeaderChanged { leader } => put_opt_node(&mut w, *leader),
        }
        open.finish(out);
    }

    /// Reads a push.
    ///
    /// # Errors
    /// When the frame is no push, or malformed: the connection is to be closed.
    pub fn decode(frame: &Frame<'_>) -> Result<Push, MessageError> {
        let kind = frame.kind;
        if kind.group() != Group::Push {
            return Err(MessageError::Unexpected { found: kind });
        }
        decode_body(kind, frame.body).map_err(|error| MessageError::Body { kind, error })
    }
}

fn decode_body(kind: Kind, body: &[u8]) -> Result<Push, DecodeError> {
    let mut r = Reader::new(body);
    let push = match kind {
        Kind::PushGranted => {
            let (session, ticket) = claim(&mut r)?;
            Push::Granted { session, ticket, fence: fence(&mut r)? }
        }
        Kind::PushFinished => {
            let (session, ticket) = claim(&mut r)?;
            Push::Finished { session, ticket, outcome: outcome(&mut r)? }
        }
        Kind::PushSessionEnded => Push::SessionEnded { session: r.session()?, cause: cause(&mut r)? },
        Kind::PushLeaderChanged => Push::LeaderChanged { leader: opt_node(&mut r)? },
        _ => return Err(DecodeError::Unknown { what: "push kind", value: u64::from(kind.number()) }),
    };
    r.finish()?;
    Ok(push)
}

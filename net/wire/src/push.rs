//! What a server tells a client unasked.

use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{
    Cause, DecodeError, Events, Fence, LogIndex, NodeId, Outcome, Reader, RequestId, SessionId, Signature,
    Ticket, Writer,
};

use crate::frame::{Frame, begin};
use crate::parts::{claim, fence, opt_node, outcome, put_claim, put_fence, put_opt_node, put_outcome};
use crate::signed::{put_signature, signature};
use crate::{Group, Kind, MessageError, VERSION_SIGNED};

/// Bytes of a push of events before the events.
pub(crate) const EVENTS_HEAD_BYTES: usize = 8 + 1 + 8 + 4;

const PRESENT: u8 = 1;
const COALESCED: u8 = 2;
const CONTINUED: u8 = 4;

/// Why a watch has ended without the client having wished it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEnd {
    /// The client was so slow that what it has not been sent is no longer kept here.
    Resync,
}

/// News for the sessions attached to a connection, and for its watches.
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
    /// Something that a watch selects: changes, or rows of the present state.
    Events {
        /// Which watch.
        watch: u64,
        /// Rows of the present state may be among them; the last such push is not continued.
        present: bool,
        /// Of changes of one key only the newest is told.
        coalesced: bool,
        /// The next push of this watch belongs to the same revision, or to the same present state.
        continued: bool,
        /// All that is selected has been told up to this revision, this push included. While the
        /// present state is being told, that is no resume point yet.
        upto: LogIndex,
        /// Them, in the order of their revisions.
        events: Events,
    },
    /// All that a watch selects has been told up to a revision.
    Progress {
        /// Which watch.
        watch: u64,
        /// This one.
        upto: LogIndex,
    },
    /// A watch has ended. It can be asked for anew.
    WatchEnded {
        /// Which.
        watch: u64,
        /// Why.
        why: WatchEnd,
        /// What happened after this revision is kept.
        oldest: LogIndex,
    },
}

impl Push {
    /// Appends the push as one frame for a connection of a version: a grant with the signature behind it, if one is given and
    /// the version knows them.
    pub fn encode_in(&self, version: u16, signature: Option<&Signature>, out: &mut Vec<u8>) {
        match self {
            Push::Granted { session, ticket, fence } if version >= VERSION_SIGNED => {
                let open = begin(out, Kind::PushGranted, RequestId(0));
                let mut w = Writer(out);
                put_claim(&mut w, *session, *ticket);
                put_fence(&mut w, fence);
                put_signature(&mut w, signature);
                open.finish(out);
            }
            other => other.encode(out),
        }
    }

    /// Appends the push as one frame, without a signature.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Push::Granted { .. } => Kind::PushGranted,
            Push::Finished { .. } => Kind::PushFinished,
            Push::SessionEnded { .. } => Kind::PushSessionEnded,
            Push::LeaderChanged { .. } => Kind::PushLeaderChanged,
            Push::Events { .. } => Kind::PushEvents,
            Push::Progress { .. } => Kind::PushProgress,
            Push::WatchEnded { .. } => Kind::PushWatchEnded,
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
                cause.encode(&mut w);
            }
            Push::LeaderChanged { leader } => put_opt_node(&mut w, *leader),
            Push::Events { watch, present, coalesced, continued, upto, events } => {
                w.u64(*watch);
                let flag = |set: bool, bit: u8| if set { bit } else { 0 };
                w.u8(flag(*present, PRESENT) | flag(*coalesced, COALESCED) | flag(*continued, CONTINUED));
                w.u64(upto.0);
                w.u32(events.count());
                w.0.extend_from_slice(events.bytes());
            }
            Push::Progress { watch, upto } => {
                w.u64(*watch);
                w.u64(upto.0);
            }
            Push::WatchEnded { watch, why, oldest } => {
                w.u64(*watch);
                w.u8(match why {
                    WatchEnd::Resync => 1,
                });
                w.u64(oldest.0);
            }
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
            let fence = fence(&mut r)?;
            // Whoever wants it asks for it by itself.
            signature(&mut r)?;
            Push::Granted { session, ticket, fence }
        }
        Kind::PushFinished => {
            let (session, ticket) = claim(&mut r)?;
            Push::Finished { session, ticket, outcome: outcome(&mut r)? }
        }
        Kind::PushSessionEnded => Push::SessionEnded { session: r.session()?, cause: Cause::decode(&mut r)? },
        Kind::PushLeaderChanged => Push::LeaderChanged { leader: opt_node(&mut r)? },
        Kind::PushEvents => return events(r),
        Kind::PushProgress => Push::Progress { watch: r.u64()?, upto: LogIndex(r.u64()?) },
        Kind::PushWatchEnded => {
            let watch = r.u64()?;
            let why = match r.u8()? {
                1 => WatchEnd::Resync,
                other => return Err(DecodeError::Unknown { what: "end of a watch", value: other.into() }),
            };
            Push::WatchEnded { watch, why, oldest: LogIndex(r.u64()?) }
        }
        _ => return Err(DecodeError::Unknown { what: "push kind", value: u64::from(kind.number()) }),
    };
    r.finish()?;
    Ok(push)
}

fn events(mut r: Reader<'_>) -> Result<Push, DecodeError> {
    let watch = r.u64()?;
    let flags = r.u8()?;
    if flags & !(PRESENT | COALESCED | CONTINUED) != 0 {
        return Err(DecodeError::Unknown { what: "flags of events", value: flags.into() });
    }
    let upto = LogIndex(r.u64()?);
    let count = r.u32()?;
    let bytes = Bytes::copy_from_slice(r.take(r.remaining())?);
    let events = Events::new(count, bytes);
    // Whoever reads them later need not fear what they hold.
    events.decode()?;
    let has = |bit: u8| flags & bit != 0;
    let (present, coalesced, continued) = (has(PRESENT), has(COALESCED), has(CONTINUED));
    Ok(Push::Events { watch, present, coalesced, continued, upto, events })
}

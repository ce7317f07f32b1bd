#![no_std]
//! The wire protocol: frames and messages, as `net/PROTOCOL.md` specifies them. Bytes in, values
//! out, and back; no sockets, no time. Shared by the server, the client and the simulator.
//!
//! Reading a frame never allocates what a length merely claims, and never panics, whatever the
//! bytes. Encoders append to a vector, so that all answers of a turn leave in one buffer.

extern crate alloc;

mod frame;
mod hello;
mod kind;
mod parts;
mod push;
mod query;
mod refusal;
mod reply;
mod request;
mod rows;
mod signed;

pub use frame::{Frame, FrameError, Frames, OwnedFrame, encode_peer, take_frame};
pub use hello::{
    ClientHello, HelloRefused, MAGIC, Member, PeerHello, ProtocolError, RefusedReason, ServerHello, VERSION,
    VERSION_MAX, VERSION_MIN, VERSION_SIGNED, common_version,
};
pub use kind::{Group, Kind};
pub use push::{Push, WatchEnd};
pub use query::Query;
pub use reply::{decode_reply, encode_reply, encode_reply_in};
pub use request::{Request, Wait};
pub use signed::signature_of;

use palisade_types::DecodeError;

/// The longest frame, header included, in bytes.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of a frame before its body.
pub const HEADER_BYTES: usize = 20;
/// The longest body of any frame, in bytes.
pub const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - HEADER_BYTES;
/// The longest body of a request, in bytes: a put of the longest value under the longest name, and some
/// room. A server never buffers more for a client.
pub const REQUEST_BODY_BYTES_MAX: usize = 20 * 1024;
/// The longest body of a push of events, in bytes.
pub const EVENTS_BODY_BYTES_MAX: usize = 64 * 1024;
/// The most bytes of events one push carries.
pub const EVENTS_BYTES_MAX: usize = EVENTS_BODY_BYTES_MAX - push::EVENTS_HEAD_BYTES;
/// The most sessions one renewal names.
pub const RENEW_SESSIONS_MAX: usize = 1_000;
/// The longest explaining text in a message, in bytes; longer ones are cut when they are encoded.
pub const TEXT_BYTES_MAX: usize = 512;
/// The longest credentials a client shows, in bytes.
pub const CREDENTIALS_BYTES_MAX: usize = 8 * 1024;
/// The most members a server names.
pub const MEMBERS_MAX: usize = 64;
/// The longest address of a member (`host:port`), in bytes.
pub const ADDRESS_BYTES_MAX: usize = 300;

/// A frame that is whole, but not the message it was read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The kind is another one, or of another group.
    #[error("a {found:?} frame has no place here")]
    Unexpected {
        /// The kind found.
        found: Kind,
    },
    /// The body does not decode.
    #[error("the body of a {kind:?} frame is malformed: {error}")]
    Body {
        /// The frame's kind.
        kind: Kind,
        /// What is wrong with it.
        error: DecodeError,
    },
}

//! Frames: where one message ends and the next begins.
//!
//! ```text
//!  0 length u32   of the whole frame, header included
//!  4 kind u16     6 flags u16 (zero)
//!  8 request id u64
//! 16 crc32 u32    over bytes 0..16 and the body
//! 20 body
//! ```

use alloc::vec::Vec;
use bytes::{Buf, Bytes, BytesMut};
use palisade_types::RequestId;

use crate::{FRAME_BYTES_MAX, HEADER_BYTES, Kind};

/// How many bytes tell whether a frame can be accepted: length, kind, flags.
const PREFIX_BYTES: usize = 8;

/// Bytes that are no frame. The connection they came from is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is below that of a header.
    #[error("a frame has at least 20 bytes, this one claims {length}")]
    TooShort {
        /// The length claimed.
        length: u32,
    },
    /// The length is above what frames of this kind may have.
    #[error("a {kind:?} frame has at most {max} bytes, this one claims {length}")]
    TooLong {
        /// The frame's kind.
        kind: Kind,
        /// The length claimed.
        length: u32,
        /// The most allowed.
        max: usize,
    },
    /// No kind has this number.
    #[error("frame kind {0:#06x} is unknown")]
    UnknownKind(u16),
    /// Flags are zero in this version.
    #[error("frame flags {0:#06x} are unknown")]
    UnknownFlags(u16),
    /// The checksum does not fit: the bytes were damaged on the way.
    #[error("the checksum of a frame does not fit")]
    Crc,
}

/// A whole, checked frame, its body borrowed from the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the body holds.
    pub kind: Kind,
    /// The request it is, or answers; 0 in frames that are neither.
    pub id: RequestId,
    /// The message.
    pub body: &'a [u8],
}

/// A whole, checked frame that shares the bytes of the receive buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedFrame {
    /// What the body holds.
    pub kind: Kind,
    /// The request it is, or answers; 0 in frames that are neither.
    pub id: RequestId,
    /// The message.
    pub body: Bytes,
}

impl OwnedFrame {
    /// The same, borrowed.
    pub fn as_frame(&self) -> Frame<'_> {
        Frame { kind: self.kind, id: self.id, body: &self.body }
    }
}

fn le<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

/// The frame at the start of these bytes and its length; `None` when they end before it does.
/// A frame that cannot be accepted is refused on its first eight bytes.
fn first(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    if bytes.len() < PREFIX_BYTES {
        return Ok(None);
    }
    let length = u32::from_le_bytes(le(bytes, 0));
    let number = u16::from_le_bytes(le(bytes, 4));
    let flags = u16::from_le_bytes(le(bytes, 6));
    let kind = Kind::from_number(number).ok_or(FrameError::UnknownKind(number))?;
    if flags != 0 {
        return Err(FrameError::UnknownFlags(flags));
    }
    let size = length as usize;
    if size < HEADER_BYTES {
        return Err(FrameError::TooShort { length });
    }
    let max = HEADER_BYTES + kind.body_bytes_max();
    if size > max {
        return Err(FrameError::TooLong { kind, length, max });
    }
    if bytes.len() < size {
        return Ok(None);
    }
    let body = &bytes[HEADER_BYTES..size];
    if checksum(&bytes[..16], body) != u32::from_le_bytes(le(bytes, 16)) {
        return Err(FrameError::Crc);
    }
    let id = RequestId(u64::from_le_bytes(le(bytes, 8)));
    Ok(Some((Frame { kind, id, body }, size)))
}

/// Takes frames off the front of received bytes without copying them.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    consumed: usize,
}

impl<'a> Frames<'a> {
    /// Reads from the start of these bytes.
    pub fn new(bytes: &'a [u8]) -> Frames<'a> {
        Frames { bytes, consumed: 0 }
    }

    /// The next whole frame; `None` when the rest is only the beginning of one. After an error
    /// nothing more can be read from this connection.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub fn next_frame(&mut self) -> Result<Option<Frame<'a>>, FrameError> {
        match first(&self.bytes[self.consumed..])? {
            None => Ok(None),
            Some((frame, size)) => {
                self.consumed += size;
                Ok(Some(frame))
            }
        }
    }

    /// How many bytes the frames taken so far had. What follows must be kept until more arrives.
    pub fn consumed(&self) -> usize {
        self.consumed
    }
}

/// Takes one whole frame off the front of a receive buffer, sharing its bytes; `None` when the
/// buffer holds only the beginning of one.
///
/// # Errors
/// See [`FrameError`]; the buffer is then of no further use.
pub fn take_frame(buffer: &mut BytesMut) -> Result<Option<OwnedFrame>, FrameError> {
    let Some((Frame { kind, id, .. }, size)) = first(buffer)? else {
        return Ok(None);
    };
    let mut body = buffer.split_to(size).freeze();
    body.advance(HEADER_BYTES);
    Ok(Some(OwnedFrame { kind, id, body }))
}

/// A frame under construction at the end of a vector.
pub(crate) struct Open {
    start: usize,
    kind: Kind,
}

/// Starts a frame at the end of the vector; the body is appended behind it.
pub(crate) fn begin(out: &mut Vec<u8>, kind: Kind, id: RequestId) -> Open {
    let start = out.len();
    let mut head = [0; HEADER_BYTES];
    head[4..6].copy_from_slice(&kind.number().to_le_bytes());
    head[8..16].copy_from_slice(&id.0.to_le_bytes());
    out.extend_from_slice(&head);
    Open { start, kind }
}

impl Open {
    /// Where the body begins.
    pub(crate) fn body(&self) -> usize {
        self.start + HEADER_BYTES
    }

    /// Completes the frame: everything behind its header is its body.
    pub(crate) fn finish(self, out: &mut [u8]) {
        let frame = &mut out[self.start..];
        let size = frame.len();
        assert!(size - HEADER_BYTES <= self.kind.body_bytes_max(), "a {:?} frame of {size} bytes", self.kind);
        frame[0..4].copy_from_slice(&(size as u32).to_le_bytes());
        let (head, body) = frame.split_at_mut(HEADER_BYTES);
        let crc = checksum(&head[..16], body);
        head[16..20].copy_from_slice(&crc.to_le_bytes());
    }
}

const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);

/// Appends a frame between nodes around a body given in parts. The caller keeps the body within
/// [`crate::BODY_BYTES_MAX`]; more is a bug and panics.
pub fn encode_peer(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let open = begin(out, Kind::Peer, RequestId(0));
    for part in parts {
        out.extend_from_slice(part);
    }
    open.finish(out);
}

//! The signature of a grant. It is no part of the values: a server adds it when it encodes a grant, behind the fence, and a
//! client looks for it there. Where nothing is signed a grant has the same bytes as in version 1.

use palisade_types::signature::SIGNATURE_BYTES;
use palisade_types::{DecodeError, Reader, Signature, Writer};

use crate::{Frame, Kind, MessageError};

/// Appends the signature, if there is one.
pub(crate) fn put_signature(w: &mut Writer<'_>, signature: Option<&Signature>) {
    if let Some(signature) = signature {
        w.0.extend_from_slice(&signature.0);
    }
}

/// Takes the signature that follows a fence, if one does.
pub(crate) fn signature(r: &mut Reader<'_>) -> Result<Option<Signature>, DecodeError> {
    // Fewer bytes are none: whoever ends the body complains.
    if r.remaining() < SIGNATURE_BYTES {
        return Ok(None);
    }
    let mut bytes = [0; SIGNATURE_BYTES];
    bytes.copy_from_slice(r.take(SIGNATURE_BYTES)?);
    Ok(Some(Signature(bytes)))
}

/// The signature that a grant carries, as the answer to a request or as a push; `None` for one without, and for whatever
/// is no grant.
///
/// # Errors
/// When the frame is malformed.
pub fn signature_of(frame: &Frame<'_>) -> Result<Option<Signature>, MessageError> {
    if !matches!(frame.kind, Kind::Granted | Kind::PushGranted) {
        return Ok(None);
    }
    let mut r = Reader::new(frame.body);
    let read = || {
        r.session()?;
        // The ticket, the key, epoch and barrier.
        r.take(8)?;
        let len = usize::from(r.u16()?);
        r.take(len + 16)?;
        let signature = signature(&mut r)?;
        r.finish()?;
        Ok(signature)
    };
    read().map_err(|error| MessageError::Body { kind: frame.kind, error })
}

//! Signatures of fences, as values: made by a server, shown to a resource. Whether one is right is the business of the crate
//! `palisade-fence`; here it is only carried.

use core::fmt;
use core::str::FromStr;

use crate::fence::{Fence, FenceError};

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Characters of a signature that is written out.
const DIGITS: usize = 2 * SIGNATURE_BYTES;

/// An Ed25519 signature of a fence. Prints and parses as 128 lower-case hexadecimal digits, so that each has one spelling.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature(pub [u8; SIGNATURE_BYTES]);

/// The text is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signature is 128 hexadecimal digits, in lower case")]
pub struct SignatureError;

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn digit(byte: u8) -> Result<u8, SignatureError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(SignatureError),
    }
}

impl FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Signature, SignatureError> {
        let text = text.as_bytes();
        if text.len() != DIGITS {
            return Err(SignatureError);
        }
        let mut bytes = [0; SIGNATURE_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Signature(bytes))
    }
}

/// A fence and what the cluster signed it with: all that a resource which wants signatures has to be shown. Prints and parses
/// as the signature, one space, and the fence, which goes on to the end: a key may hold spaces, a signature none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SignedFence {
    /// The fence.
    pub fence: Fence,
    /// Its signature, which may be anybody's until it is verified.
    pub signature: Signature,
}

/// The text is no signed fence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignedFenceError {
    /// There is no space, or what stands before it is no signature.
    #[error("a signed fence reads SIGNATURE key@epoch/barrier: {0}")]
    Signature(#[from] SignatureError),
    /// What follows the signature is no fence.
    #[error(transparent)]
    Fence(#[from] FenceError),
}

impl fmt::Display for SignedFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.signature, self.fence)
    }
}

impl FromStr for SignedFence {
    type Err = SignedFenceError;

    fn from_str(text: &str) -> Result<SignedFence, SignedFenceError> {
        let (signature, fence) = text.split_once(' ').ok_or(SignatureError)?;
        Ok(SignedFence { signature: signature.parse()?, fence: fence.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    fn signature() -> Signature {
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes.iter_mut().zip(0..).for_each(|(byte, n)| *byte = 250_u8.wrapping_add(n));
        Signature(bytes)
    }

    #[test]
    fn a_signature_has_one_spelling() {
        let text = signature().to_string();
        assert!(text.starts_with("fafbfcfdfeff0001") && text.len() == 128, "{text}");
        assert_eq!(text.parse(), Ok(signature()));
        let longer: String = text.clone() + "00";
        for bad in ["", &text[1..], &text[..126], &longer, &text.to_uppercase(), &text.replace("fa", "+a")] {
            assert_eq!(bad.parse::<Signature>(), Err(SignatureError), "{bad}");
        }
    }

    #[test]
    fn a_signed_fence_prints_and_parses_whatever_its_key() {
        for key in ["k", "a b", "mail@host/x@y", " k ", "schlüssel", "k@9/9"] {
            let fence = alloc::format!("{key}@12/7").parse().unwrap();
            let signed = SignedFence { fence, signature: signature() };
            assert_eq!(signed.to_string().parse(), Ok(signed));
        }
        for bad in ["", "k@1/1", &signature().to_string(), &alloc::format!("{} k", signature())] {
            assert!(bad.parse::<SignedFence>().is_err(), "{bad}");
        }
    }
}

//! Names that users choose: keys, resources, owners. Opaque, no hidden hierarchy.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Deref;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("a name has at least one byte")]
    Empty,
    /// It is longer than [`NAME_BYTES_MAX`].
    #[error("a name has at most 512 bytes, this one has {0}")]
    TooLong(usize),
    /// It holds a control character.
    #[error("a name holds no control characters")]
    Control,
    /// It holds a separator of lines or paragraphs, or a mark that turns the direction of text: what is
    /// shown would not be what is there.
    #[error("a name holds no line separators and no marks of direction (U+2028, U+202E and the like)")]
    Disguise,
    /// It is not UTF-8.
    #[error("a name is UTF-8")]
    NotUtf8,
}

/// Whether a character makes text look other than it is: U+2028 and U+2029, which begin lines, and the
/// marks that turn its direction (Unicode's `Bidi_Control`).
fn disguises(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks a name: 1 to 512 bytes of UTF-8 without control characters, without separators of lines and
/// paragraphs, and without marks that turn the direction of text.
///
/// # Errors
/// Says which of the rules does not hold.
pub fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong(text.len()));
    }
    // Of most names every byte tells; only beyond ASCII the characters must be looked at.
    let mut ascii = true;
    for byte in text.bytes() {
        if byte < b' ' || byte == 0x7f {
            return Err(NameError::Control);
        }
        ascii &= byte.is_ascii();
    }
    if ascii { Ok(()) } else { check_beyond_ascii(text) }
}

fn check_beyond_ascii(text: &str) -> Result<(), NameError> {
    for c in text.chars() {
        if c.is_control() {
            return Err(NameError::Control);
        }
        if disguises(c) {
            return Err(NameError::Disguise);
        }
    }
    Ok(())
}

/// A checked name (see [`check`]). Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// The name of a lock. A [`Name`] like any other.
pub type Key = Name;

impl Name {
    /// Checks a text and makes a name of it.
    ///
    /// # Errors
    /// See [`check`].
    pub fn new(text: &str) -> Result<Name, NameError> {
        check(text)?;
        Ok(Name(Arc::from(text)))
    }

    /// The same from bytes that may be anything.
    ///
    /// # Errors
    /// See [`check`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Name, NameError> {
        Name::new(core::str::from_utf8(bytes).map_err(|_| NameError::NotUtf8)?)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_it_looks_like() {
        for good in ["k", "jobs/nightly run", "höst", "שלום", "ping\u{200d}pong", "👩\u{200d}🔧"] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for hidden in "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            let mut text = [b'a'; 5];
            let text = hidden.encode_utf8(&mut text[1..]);
            assert_eq!(check(text), Err(NameError::Disguise), "U+{:04X}", u32::from(hidden));
            assert!(Name::from_bytes(text.as_bytes()).is_err());
        }
        for control in ["a\nb", "\u{7f}", "é\u{85}"] {
            assert_eq!(check(control), Err(NameError::Control), "{control:?}");
        }
    }
}

//! Values: what a candidate of an election, or a key that lives with its session, says to others.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;

/// The most bytes of a value: 16 KiB.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Any bytes, at most [`VALUE_BYTES_MAX`] of them. Cloning shares them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Value(Arc<[u8]>);

/// The bytes are no value: too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a value has at most {VALUE_BYTES_MAX} bytes, not {len}")]
pub struct ValueError {
    /// How many were given.
    pub len: usize,
}

impl Value {
    /// A value of these bytes.
    ///
    /// # Errors
    /// When there are more than [`VALUE_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Value, ValueError> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(ValueError { len: bytes.len() });
        }
        Ok(Value(Arc::from(bytes)))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match core::str::from_utf8(&self.0) {
            Ok(text) if text.len() <= 64 => write!(f, "{text:?}"),
            _ => write!(f, "<{} bytes>", self.0.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_value_is_any_bytes_up_to_its_limit() {
        assert_eq!(Value::new(&vec![0xff; VALUE_BYTES_MAX]).unwrap().len(), VALUE_BYTES_MAX);
        let len = VALUE_BYTES_MAX + 1;
        assert_eq!(Value::new(&vec![0; len]), Err(ValueError { len }));
        assert!(Value::new(b"").unwrap().is_empty());
    }
}

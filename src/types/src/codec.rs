//! Little-endian encoding into a byte vector, and bounds-checked decoding that never panics and
//! never allocates what a length merely claims.

use alloc::vec::Vec;

use crate::ids::{LogIndex, SessionId, ShardId};
use crate::name::{Name, NameError};

/// Bytes that do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("the message ends inside a field")]
    Short,
    /// Bytes are left over.
    #[error("{0} bytes are left over")]
    Trailing(usize),
    /// A number stands for nothing.
    #[error("{what} has no meaning {value}")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A list or value is longer than it may be.
    #[error("{what} is longer than {max}")]
    TooLong {
        /// The field.
        what: &'static str,
        /// The most allowed.
        max: usize,
    },
    /// A name breaks the rules for names.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Appends little-endian fields to a vector. Encoding cannot fail.
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    /// One byte, 0 or 1.
    pub fn bool(&mut self, v: bool) {
        self.u8(u8::from(v));
    }

    /// Two bytes.
    pub fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    /// Sixteen bytes.
    pub fn u128(&mut self, v: u128) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    /// A name: length in two bytes, then the text.
    pub fn name(&mut self, v: &str) {
        debug_assert!(v.len() <= usize::from(u16::MAX));
        self.u16(v.len() as u16);
        self.0.extend_from_slice(v.as_bytes());
    }

    /// A name or nothing: length 0 means nothing.
    pub fn opt_name(&mut self, v: Option<&str>) {
        self.name(v.unwrap_or(""));
    }

    /// A session's id: shard in four bytes, revision in eight.
    pub fn session(&mut self, v: SessionId) {
        self.u32(v.shard.0);
        self.u64(v.opened.0);
    }

    /// A byte string: length in four bytes, then the bytes.
    pub fn bytes(&mut self, v: &[u8]) {
        self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
    }
}

/// Takes fields off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the start of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`], as for every method here, when they are not there.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(DecodeError::Short)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = tail;
        Ok(*head)
    }

    /// One byte.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// One byte, 0 or 1; `what` is named when it is another.
    ///
    /// # Errors
    /// [`DecodeError::Unknown`]; see [`Reader::take`].
    pub fn bool(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Unknown { what, value: other.into() }),
        }
    }

    /// Two bytes.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A name as text that was checked, still borrowed.
    ///
    /// # Errors
    /// See [`Reader::take`] and [`NameError`].
    pub fn name_str(&mut self) -> Result<&'a str, DecodeError> {
        self.opt_name_str()?.ok_or(DecodeError::Name(NameError::Empty))
    }

    /// A name or nothing, still borrowed.
    ///
    /// # Errors
    /// See [`Reader::take`] and [`NameError`].
    pub fn opt_name_str(&mut self) -> Result<Option<&'a str>, DecodeError> {
        let len = usize::from(self.u16()?);
        if len == 0 {
            return Ok(None);
        }
        let text = core::str::from_utf8(self.take(len)?).map_err(|_| NameError::NotUtf8)?;
        crate::name::check(text)?;
        Ok(Some(text))
    }

    /// A name.
    ///
    /// # Errors
    /// See [`Reader::take`] and [`NameError`].
    pub fn name(&mut self) -> Result<Name, DecodeError> {
        Ok(Name::new(self.name_str()?)?)
    }

    /// A name or nothing.
    ///
    /// # Errors
    /// See [`Reader::take`] and [`NameError`].
    pub fn opt_name(&mut self) -> Result<Option<Name>, DecodeError> {
        Ok(self.opt_name_str()?.map(Name::new).transpose()?)
    }

    /// A session's id.
    ///
    /// # Errors
    /// See [`Reader::take`].
    pub fn session(&mut self) -> Result<SessionId, DecodeError> {
        Ok(SessionId { shard: ShardId(self.u32()?), opened: LogIndex(self.u64()?) })
    }

    /// A byte string of at most `max` bytes.
    ///
    /// # Errors
    /// See [`Reader::take`]; [`DecodeError::TooLong`] when it claims more.
    pub fn bytes(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], DecodeError> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(DecodeError::TooLong { what, max });
        }
        self.take(len)
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Demands that nothing is left over.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`].
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            n => Err(DecodeError::Trailing(n)),
        }
    }
}

//! What a watch is of, and where it goes on: selectors and cursors (DESIGN section 6).

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::codec::{DecodeError, Reader, Writer};
use crate::hash::hash128;
use crate::ids::{ClusterId, Incarnation, LogIndex, ShardId};
use crate::name::{Key, Name, NameError};

/// The longest cursor, in bytes.
pub const CURSOR_BYTES_MAX: usize = 1 + 8 + 2 + CURSOR_SHARDS_MAX * 12;
/// The most shards a cursor has a revision of.
pub const CURSOR_SHARDS_MAX: usize = 1_024;

const VERSION: u8 = 1;

/// What a watch is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// One key.
    Key(Key),
    /// All keys that begin so.
    Prefix(Name),
    /// All keys.
    Keys,
    /// The sessions themselves.
    Sessions,
}

impl Selector {
    /// Of one key.
    ///
    /// # Errors
    /// When the text is no name.
    pub fn key(key: &str) -> Result<Selector, NameError> {
        Ok(Selector::Key(Key::new(key)?))
    }

    /// Of all keys that begin so; of all keys if nothing is given.
    ///
    /// # Errors
    /// When no name begins so.
    pub fn prefix(prefix: &str) -> Result<Selector, NameError> {
        if prefix.is_empty() { Ok(Selector::Keys) } else { Ok(Selector::Prefix(Name::new(prefix)?)) }
    }

    /// Appends the selector.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let (kind, name) = match self {
            Selector::Key(key) => (1, Some(key)),
            Selector::Prefix(prefix) => (2, Some(prefix)),
            Selector::Keys => (3, None),
            Selector::Sessions => (4, None),
        };
        w.u8(kind);
        if let Some(name) = name {
            w.name(name);
        }
    }

    /// Reads a selector.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'_>) -> Result<Selector, DecodeError> {
        Ok(match r.u8()? {
            1 => Selector::Key(r.name()?),
            2 => Selector::Prefix(r.name()?),
            3 => Selector::Keys,
            4 => Selector::Sessions,
            other => return Err(DecodeError::Unknown { what: "selector", value: other.into() }),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Key(key) => write!(f, "key {key}"),
            Selector::Prefix(prefix) => write!(f, "keys {prefix}…"),
            Selector::Keys => f.write_str("all keys"),
            Selector::Sessions => f.write_str("sessions"),
        }
    }
}

/// Which cluster a cursor or a signed fence belongs to: its id and what its initial members drew when they were
/// formatted. A cluster restored from a backup is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClusterIdentity(pub u64);

impl ClusterIdentity {
    /// Of a cluster and the incarnations of its initial members, in the order of their ids.
    pub fn of(cluster: ClusterId, incarnations: impl IntoIterator<Item = Incarnation>) -> ClusterIdentity {
        let mut bytes = Vec::new();
        let mut w = Writer(&mut bytes);
        w.u128(cluster.0);
        for incarnation in incarnations {
            w.u128(incarnation.0);
        }
        ClusterIdentity(hash128(&bytes) as u64)
    }
}

impl fmt::Display for ClusterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClusterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no [`ClusterIdentity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the identity of a cluster is 16 hexadecimal digits, as `palisade status` shows them")]
pub struct ClusterIdentityError;

impl FromStr for ClusterIdentity {
    type Err = ClusterIdentityError;

    fn from_str(text: &str) -> Result<ClusterIdentity, ClusterIdentityError> {
        let is_plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_plain.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(ClusterIdentity).ok_or(ClusterIdentityError)
    }
}

/// Where a watch goes on: everything up to these revisions is known. To applications it is opaque.
/// Prints and parses as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Whose revisions they are.
    pub cluster: ClusterIdentity,
    /// One for each shard, in order.
    pub revisions: Vec<(ShardId, LogIndex)>,
}

impl Cursor {
    /// A cursor of one shard.
    pub fn new(cluster: ClusterIdentity, shard: ShardId, revision: LogIndex) -> Cursor {
        Cursor { cluster, revisions: alloc::vec![(shard, revision)] }
    }

    /// The revision of a shard.
    pub fn revision(&self, shard: ShardId) -> Option<LogIndex> {
        self.revisions.iter().find(|(of, _)| *of == shard).map(|(_, revision)| *revision)
    }

    /// Appends the cursor: version, cluster, count, then shards and revisions.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u8(VERSION);
        w.u64(self.cluster.0);
        w.u16(self.revisions.len() as u16);
        for (shard, revision) in &self.revisions {
            w.u32(shard.0);
            w.u64(revision.0);
        }
    }

    /// Reads a cursor.
    ///
    /// # Errors
    /// When the bytes do not begin with one.
    pub fn decode(r: &mut Reader<'_>) -> Result<Cursor, DecodeError> {
        match r.u8()? {
            VERSION => {}
            other => return Err(DecodeError::Unknown { what: "cursor version", value: other.into() }),
        }
        let cluster = ClusterIdentity(r.u64()?);
        let count = usize::from(r.u16()?);
        if count > CURSOR_SHARDS_MAX {
            return Err(DecodeError::TooLong { what: "a cursor", max: CURSOR_SHARDS_MAX });
        }
        let mut revisions = Vec::new();
        for _ in 0..count {
            revisions.push((ShardId(r.u32()?), LogIndex(r.u64()?)));
        }
        Ok(Cursor { cluster, revisions })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        self.encode(&mut Writer(&mut bytes));
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor: a watch prints one with every event")]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Cursor, CursorError> {
        if !text.is_ascii() || !text.len().is_multiple_of(2) || text.len() > 2 * CURSOR_BYTES_MAX {
            return Err(CursorError);
        }
        let digits = text.as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        let bytes = bytes.ok_or(CursorError)?;
        let mut r = Reader::new(&bytes);
        let cursor = Cursor::decode(&mut r).map_err(|_| CursorError)?;
        r.finish().map_err(|_| CursorError)?;
        Ok(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_cursor_survives_its_text_and_nothing_else_is_one() {
        let cursor = Cursor::new(ClusterIdentity(0xfeed_0000_0000_beef), ShardId(0), LogIndex(1 << 40));
        let text = cursor.to_string();
        assert_eq!(text.parse(), Ok(cursor));
        for bad in ["", "0", "zz", "-1", "é1", &text[2..], &text[..text.len() - 2]] {
            assert_eq!(bad.parse::<Cursor>(), Err(CursorError), "{bad}");
        }
        assert_eq!((text + "00").parse::<Cursor>(), Err(CursorError));
    }

    #[test]
    fn a_cursor_names_a_bounded_number_of_shards() {
        let revisions = |n: usize| (0..n as u32).map(|shard| (ShardId(shard), LogIndex(7))).collect();
        let most = Cursor { cluster: ClusterIdentity(3), revisions: revisions(CURSOR_SHARDS_MAX) };
        let mut bytes = Vec::new();
        most.encode(&mut Writer(&mut bytes));
        assert_eq!(bytes.len(), CURSOR_BYTES_MAX);
        assert_eq!(Cursor::decode(&mut Reader::new(&bytes)), Ok(most));
        let more = Cursor { cluster: ClusterIdentity(3), revisions: revisions(CURSOR_SHARDS_MAX + 1) };
        bytes.clear();
        more.encode(&mut Writer(&mut bytes));
        let refused = Cursor::decode(&mut Reader::new(&bytes));
        assert_eq!(refused, Err(DecodeError::TooLong { what: "a cursor", max: CURSOR_SHARDS_MAX }));
        assert_eq!(more.to_string().parse::<Cursor>(), Err(CursorError));
    }

    #[test]
    fn clusters_with_the_same_id_and_other_members_are_told_apart() {
        let of = |n: u128| ClusterIdentity::of(ClusterId(1), [Incarnation(n), Incarnation(3)]);
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(1));
    }
}

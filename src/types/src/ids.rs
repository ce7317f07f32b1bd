//! Identifiers. Each is its own type, so that a term is never passed for an index.

use core::fmt;
use core::str::FromStr;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A server process with a permanent number, from 1, never reused within a cluster.
    NodeId(u32)
}
number! {
    /// One Raft group with its own log; keys hash to shards. From 0.
    ShardId(u32)
}
number! {
    /// Raft's election epoch: at most one leader each (Raft paper, section 5.1).
    Term(u64)
}
number! {
    /// The position of a command in its shard's log, from 1 and without gaps. 0 means "before the log".
    /// Seen from outside it is the *revision*.
    LogIndex(u64)
}
number! {
    /// The number of a claim within its session, from 1. See DESIGN section 3.
    Ticket(u64)
}
number! {
    /// The number of a grant of one key: rises with each grant of that key, stays below 2^63.
    Epoch(u64)
}
number! {
    /// A connection of one node, never reused while the process lives.
    ConnId(u64)
}
number! {
    /// The number a client gives a request on its connection; the answer carries it back.
    RequestId(u64)
}

impl LogIndex {
    /// The index after this one.
    pub fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }

    /// The index before this one; 0 stays 0.
    pub fn prev(self) -> LogIndex {
        LogIndex(self.0.saturating_sub(1))
    }
}

impl Term {
    /// The term after this one.
    pub fn next(self) -> Term {
        Term(self.0 + 1)
    }
}

impl Epoch {
    /// Epochs stay below this (DESIGN section 1).
    pub const MAX: Epoch = Epoch((1 << 63) - 1);
}

macro_rules! wide {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    };
}

wide! {
    /// The identity of a cluster: a hash of its name, members, shards and limits, so that separate
    /// `format` calls agree.
    ClusterId
}
wide! {
    /// A random number drawn when a node's directory is formatted; a node wiped and formatted anew
    /// is a stranger.
    Incarnation
}
wide! {
    /// A random number drawn at each start of a node: two starts with one number are told apart by it.
    StartNonce
}
wide! {
    /// A random number the client draws before it opens a session: it makes a retried open return
    /// the same session, and proves ownership on reconnect. Treat it as a secret.
    SessionToken
}

/// A session: the shard it lives in and the revision at which it was opened. Never reused.
/// Prints and parses as `shard-revision`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId {
    /// The shard the session lives in.
    pub shard: ShardId,
    /// The revision of the `OpenSession` entry.
    pub opened: LogIndex,
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.shard, self.opened)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not `shard-revision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session id looks like 0-17: shard, dash, revision")]
pub struct SessionIdError;

/// A number of digits alone. The standard parsers also take a sign.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

impl FromStr for SessionId {
    type Err = SessionIdError;

    fn from_str(text: &str) -> Result<Self, SessionIdError> {
        let (shard, opened) = text.split_once('-').ok_or(SessionIdError)?;
        Ok(SessionId {
            shard: ShardId(digits(shard).ok_or(SessionIdError)?),
            opened: LogIndex(digits(opened).ok_or(SessionIdError)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_session_id_is_digits_a_dash_and_digits() {
        let id = SessionId { shard: ShardId(3), opened: LogIndex(17) };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["0-+1", "+0-1", "0--1", "-0-1", "0-", "-1", "0", "", "0- 1", "0-1 ", "0x1-1", "0-\u{661}"]
        {
            assert_eq!(bad.parse::<SessionId>(), Err(SessionIdError), "{bad:?}");
        }
        assert!("4294967296-1".parse::<SessionId>().is_err(), "no shard has this number");
    }
}

//! One session of the load.

use palisade_types::{SessionId, SessionToken};

/// What a session is doing, which is also what it repeats on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its open is unanswered.
    Opening,
    /// It acquires the key that `read` describes.
    Preparing,
    /// Nothing.
    Idle,
    /// Its operation is under way.
    Asked,
    /// It holds a lock, and keeps it for a while.
    Holding,
    /// What follows its operation is under way: a release, or the end of the session.
    Leaving,
    /// It is over.
    Over,
}

/// One session of the load.
pub(super) struct Session {
    pub(super) token: SessionToken,
    pub(super) id: SessionId,
    pub(super) state: State,
    /// Since when its connection may name it.
    pub(super) attached: Option<u64>,
    /// Of its last acquire.
    pub(super) ticket: u64,
    /// The number of the key of its last acquire.
    pub(super) key: u32,
    /// From when the latency of its operation counts.
    pub(super) from: u64,
    /// Until when it is certain to live, if it does.
    pub(super) lease_until: u64,
    /// The request of its operation: an acquire, a read, a renewal.
    pub(super) request: Box<[u8]>,
    /// What follows it: a release, or the end of the session.
    pub(super) leave: Box<[u8]>,
}

impl Session {
    /// One that is about to be opened.
    pub(super) fn new(token: SessionToken) -> Session {
        Session {
            token,
            id: SessionId::default(),
            state: State::Opening,
            attached: None,
            ticket: 0,
            key: 0,
            from: 0,
            lease_until: 0,
            request: Box::default(),
            leave: Box::default(),
        }
    }
}

/// What a request was for, in the upper half of its id; the session's number is in the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// An operation, or what follows it.
    Work = 0,
    /// The open of a session.
    Open = 1,
    /// A session is shown to a new connection.
    Attach = 2,
    /// Renewals in the background; the lower half says which.
    Renewal = 3,
    /// The end of a session at the end of the run.
    Close = 4,
}

impl Tag {
    /// The id of a request.
    pub(super) fn id(self, number: u32) -> u64 {
        (self as u64) << 32 | u64::from(number)
    }

    /// What the id of a request says.
    pub(super) fn of(id: u64) -> Option<(Tag, u32)> {
        let tag = match id >> 32 {
            0 => Tag::Work,
            1 => Tag::Open,
            2 => Tag::Attach,
            3 => Tag::Renewal,
            4 => Tag::Close,
            _ => return None,
        };
        Some((tag, id as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_it_was_for() {
        for tag in [Tag::Work, Tag::Open, Tag::Attach, Tag::Renewal, Tag::Close] {
            assert_eq!(Tag::of(tag.id(u32::MAX)), Some((tag, u32::MAX)));
        }
        assert_eq!(Tag::of(5 << 32), None);
    }
}

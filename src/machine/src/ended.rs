//! The sessions that ended, and why: the last ones, so that "why did I lose my lock?" has an answer
//! and a token never opens a second session in the place of the first.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use palisade_types::{Cause, LogIndex, SessionToken};

use crate::snapshot::frozen::FrozenQueue;

#[derive(Clone, Copy)]
pub(crate) struct EndedSession {
    pub(crate) opened: LogIndex,
    pub(crate) token: SessionToken,
    pub(crate) cause: Cause,
}

pub(crate) struct Ended {
    /// Oldest first.
    ring: VecDeque<EndedSession>,
    /// How many have been dropped from the front: the number of the first one kept.
    dropped: u64,
    /// Numbers, counted from the first end ever.
    by_id: HashTable<u64>,
    by_token: HashTable<u64>,
    hasher: FixedState,
    max: usize,
    frozen: Option<Box<FrozenQueue<EndedSession>>>,
}

impl Ended {
    pub(crate) fn new(max: u32, hasher: FixedState) -> Ended {
        Ended {
            ring: VecDeque::new(),
            dropped: 0,
            by_id: HashTable::new(),
            by_token: HashTable::new(),
            hasher,
            max: max as usize,
            frozen: None,
        }
    }

    /// Of these, oldest first.
    pub(crate) fn restored(sessions: Vec<EndedSession>, max: u32, hasher: FixedState) -> Option<Ended> {
        let mut ended = Ended::new(max, hasher);
        if sessions.len() > ended.max {
            return None;
        }
        ended.by_id.reserve(sessions.len(), |_| 0);
        ended.by_token.reserve(sessions.len(), |_| 0);
        for session in sessions {
            if ended.find(session.opened).is_some() || ended.find_token(session.token).is_some() {
                return None;
            }
            ended.push(session);
        }
        Some(ended)
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(Box::new(FrozenQueue::new(&self.ring)));
    }

    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The next ones of the freeze.
    pub(crate) fn give(&mut self, bytes_max: usize) -> Option<Vec<EndedSession>> {
        self.frozen.as_mut()?.give(&self.ring, bytes_max, |_| size_of::<EndedSession>())
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &EndedSession> {
        self.ring.iter()
    }

    pub(crate) fn find(&self, opened: LogIndex) -> Option<&EndedSession> {
        let hash = self.hasher.hash_one(opened.0);
        let number = self.by_id.find(hash, |&n| self.ring[(n - self.dropped) as usize].opened == opened)?;
        self.ring.get((number - self.dropped) as usize)
    }

    pub(crate) fn find_token(&self, token: SessionToken) -> Option<&EndedSession> {
        let hash = self.hasher.hash_one(token.0);
        let number = self.by_token.find(hash, |&n| self.ring[(n - self.dropped) as usize].token == token)?;
        self.ring.get((number - self.dropped) as usize)
    }

    /// Remembers one more and forgets the oldest above the limit.
    pub(crate) fn push(&mut self, session: EndedSession) {
        if self.max == 0 {
            return;
        }
        if self.ring.len() == self.max {
            self.forget_oldest();
        }
        let Ended { ring, dropped, by_id, by_token, hasher, .. } = self;
        let number = *dropped + ring.len() as u64;
        ring.push_back(session);
        let at = |n: u64| &ring[(n - *dropped) as usize];
        by_id.insert_unique(hasher.hash_one(session.opened.0), number, |&n| hasher.hash_one(at(n).opened.0));
        by_token.insert_unique(hasher.hash_one(session.token.0), number, |&n| hasher.hash_one(at(n).token.0));
    }

    fn forget_oldest(&mut self) {
        const LISTED: &str = "a remembered end is in every index";
        let oldest = self.ring.pop_front().expect("the ring is full, and its limit is not 0");
        if let Some(frozen) = &mut self.frozen {
            frozen.keep(&oldest);
        }
        let number = self.dropped;
        self.dropped += 1;
        let id_hash = self.hasher.hash_one(oldest.opened.0);
        self.by_id.find_entry(id_hash, |&n| n == number).expect(LISTED).remove();
        let token_hash = self.hasher.hash_one(oldest.token.0);
        self.by_token.find_entry(token_hash, |&n| n == number).expect(LISTED).remove();
    }

    pub(crate) fn check(&self) {
        assert!(self.ring.len() <= self.max);
        assert!(self.by_id.len() == self.ring.len() && self.by_token.len() == self.ring.len());
        for ended in &self.ring {
            assert!(self.find(ended.opened).is_some_and(|e| e.token == ended.token));
            assert!(self.find_token(ended.token).is_some_and(|e| e.opened == ended.opened));
        }
    }
}

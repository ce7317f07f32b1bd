//! Sessions (DESIGN section 2). Their clocks are not here: expiry arrives as a command.

use alloc::collections::BTreeMap;
use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use palisade_types::{Cause, LogIndex, Name, SessionToken};

use crate::locks::bytes_of;
use crate::open::Open;
use crate::slab::{NONE, Slab, Slot};
use crate::tickets::Tickets;

/// Whether a session lives. Its record outlives its end only while it has keys in the backlog.
#[derive(Clone, Copy)]
pub(crate) enum Life {
    /// `values`: the ephemeral keys it has put.
    Live {
        ttl_ms: u32,
        values: u32,
    },
    Ended(Cause),
}

/// Two cache lines: what acquires and releases work on comes first.
#[repr(C, align(128))]
pub(crate) struct Session {
    /// The revision of its open: its id within the shard.
    pub(crate) opened: LogIndex,
    pub(crate) open: Open,
    pub(crate) tickets: Tickets,
    pub(crate) life: Life,
    pub(crate) token: SessionToken,
    pub(crate) owner: Option<Name>,
    pub(crate) incarnation: Option<Name>,
}

const _: () = assert!(size_of::<Option<Session>>() == 128 && core::mem::offset_of!(Session, life) == 64);

impl Session {
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.life, Life::Live { .. })
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.open.len() as u32 - self.open.held
    }

    fn tag_bytes(&self) -> u64 {
        bytes_of(self.owner.as_ref()) + bytes_of(self.incarnation.as_ref())
    }

    /// Why it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Cause> {
        match self.life {
            Life::Live { .. } => None,
            Life::Ended(cause) => Some(cause),
        }
    }

    /// Its TTL in milliseconds; 0 once it has ended.
    pub(crate) fn ttl_ms(&self) -> u32 {
        match self.life {
            Life::Live { ttl_ms, .. } => ttl_ms,
            Life::Ended(_) => 0,
        }
    }

    /// How many ephemeral keys it has put; 0 once it has ended.
    pub(crate) fn values(&self) -> u32 {
        match self.life {
            Life::Live { values, .. } => values,
            Life::Ended(_) => 0,
        }
    }

    /// How many keys it has of all that count against its limit: held, awaited or put.
    pub(crate) fn keys(&self) -> usize {
        self.open.len() + self.values() as usize
    }
}

/// All sessions, the live ones found by id and by token.
pub(crate) struct Sessions {
    pub(crate) records: Slab<Session>,
    by_id: HashTable<Slot>,
    by_token: HashTable<Slot>,
    /// The live ones in order. Changes only when one opens or ends.
    order: BTreeMap<LogIndex, Slot>,
    /// Those that have ended with keys in quarantine, in order.
    quarantined: BTreeMap<LogIndex, Slot>,
    /// Of the live ones.
    tag_bytes: u64,
    hasher: FixedState,
}

impl Sessions {
    pub(crate) fn new(hasher: FixedState) -> Sessions {
        Sessions {
            records: Slab::new(),
            by_id: HashTable::new(),
            by_token: HashTable::new(),
            order: BTreeMap::new(),
            quarantined: BTreeMap::new(),
            tag_bytes: 0,
            hasher,
        }
    }

    /// Of these records.
    pub(crate) fn restored(records: Slab<Session>, hasher: FixedState) -> Option<Sessions> {
        let mut sessions = Sessions::new(hasher);
        sessions.records = records;
        let Sessions { records, by_id, by_token, order, tag_bytes, .. } = &mut sessions;
        let mut dead = BTreeMap::new();
        for (slot, session) in records.iter() {
            let others = if session.is_live() { &mut *order } else { &mut dead };
            if others.insert(session.opened, slot).is_some() {
                return None;
            }
            if !session.is_live() {
                continue;
            }
            *tag_bytes += session.tag_bytes();
            let (id, token) = (hasher.hash_one(session.opened.0), hasher.hash_one(session.token.0));
            if by_token.find(token, |&s| records[s].token == session.token).is_some() {
                return None;
            }
            by_id.insert_unique(id, slot, |&s| hasher.hash_one(records[s].opened.0));
            by_token.insert_unique(token, slot, |&s| hasher.hash_one(records[s].token.0));
        }
        Some(sessions)
    }

    /// Bytes of the tags of those that live.
    pub(crate) fn tag_bytes(&self) -> u64 {
        self.tag_bytes
    }

    /// How many live.
    pub(crate) fn live(&self) -> usize {
        self.order.len()
    }

    #[inline]
    pub(crate) fn find(&self, opened: LogIndex) -> Option<Slot> {
        let hash = self.hasher.hash_one(opened.0);
        self.by_id.find(hash, |&slot| self.records[slot].opened == opened).copied()
    }

    /// A record that is the session's if it lives.
    pub(crate) fn guess(&self, opened: LogIndex) -> Slot {
        self.by_id.find(self.hasher.hash_one(opened.0), |_| true).copied().unwrap_or(NONE)
    }

    pub(crate) fn find_token(&self, token: SessionToken) -> Option<Slot> {
        let hash = self.hasher.hash_one(token.0);
        self.by_token.find(hash, |&slot| self.records[slot].token == token).copied()
    }

    pub(crate) fn insert(&mut self, session: Session) -> Slot {
        self.tag_bytes += session.tag_bytes();
        let Sessions { records, by_id, by_token, order, hasher, .. } = self;
        let (opened, token) = (session.opened, session.token);
        let slot = records.insert(session);
        by_id.insert_unique(hasher.hash_one(opened.0), slot, |&s| hasher.hash_one(records[s].opened.0));
        by_token.insert_unique(hasher.hash_one(token.0), slot, |&s| hasher.hash_one(records[s].token.0));
        let before = order.insert(opened, slot);
        assert!(before.is_none(), "an index opens one session");
        slot
    }

    /// Takes a session out of the live set; its record stays.
    pub(crate) fn bury(&mut self, slot: Slot, cause: Cause) {
        self.tag_bytes -= self.records[slot].tag_bytes();
        let Sessions { records, by_id, by_token, order, hasher, .. } = self;
        let session = &mut records[slot];
        assert!(session.is_live(), "a session ends once");
        session.life = Life::Ended(cause);
        session.tickets = Tickets::default();
        const LISTED: &str = "a live session is in every index";
        let id_hash = hasher.hash_one(session.opened.0);
        by_id.find_entry(id_hash, |&s| s == slot).expect(LISTED).remove();
        let token_hash = hasher.hash_one(session.token.0);
        by_token.find_entry(token_hash, |&s| s == slot).expect(LISTED).remove();
        order.remove(&session.opened).expect(LISTED);
    }

    /// The live ones from behind an id, in order.
    pub(crate) fn after(&self, after: LogIndex) -> impl Iterator<Item = &Session> {
        self.order.range(after.next()..).map(|(_, &slot)| &self.records[slot])
    }

    /// How many have ended with keys in quarantine.
    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    pub(crate) fn find_quarantined(&self, opened: LogIndex) -> Option<Slot> {
        self.quarantined.get(&opened).copied()
    }

    /// A session has ended, and keys that it held stay closed.
    pub(crate) fn quarantine(&mut self, slot: Slot) {
        let session = &self.records[slot];
        assert!(!session.is_live(), "only the dead have keys in quarantine");
        self.quarantined.insert(session.opened, slot);
    }

    /// No key of a session is in quarantine any more.
    pub(crate) fn end_quarantine(&mut self, opened: LogIndex) {
        self.quarantined.remove(&opened);
    }

    /// Those with keys in quarantine from behind an id, in order.
    pub(crate) fn quarantined_after(&self, after: LogIndex) -> impl Iterator<Item = &Session> {
        self.quarantined.range(after.next()..).map(|(_, &slot)| &self.records[slot])
    }

    pub(crate) fn check(&self) {
        for (&opened, &slot) in &self.quarantined {
            let session = &self.records[slot];
            assert!(!session.is_live() && session.opened == opened && !session.open.is_empty());
        }
        let live = self.records.iter().filter(|(_, s)| s.is_live()).count();
        let tags = self.records.iter().filter(|(_, s)| s.is_live()).map(|(_, s)| s.tag_bytes());
        assert_eq!(self.tag_bytes, tags.sum::<u64>());
        assert!(live == self.order.len() && live == self.by_id.len() && live == self.by_token.len());
        for (&opened, &slot) in &self.order {
            let session = &self.records[slot];
            assert!(session.is_live() && session.opened == opened);
            assert_eq!(self.find(opened), Some(slot));
            assert_eq!(self.find_token(session.token), Some(slot));
            session.tickets.check();
        }
    }
}

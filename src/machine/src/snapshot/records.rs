//! What the slabs keep, as records of a snapshot; and about how many bytes each has there.

use alloc::vec::Vec;

use palisade_types::Name;

use super::{code, v1};
use crate::claims::{Claim, List, State};
use crate::holders::{Group, Hold};
use crate::locks::{History, Lock, When, bytes_of};
use crate::session::{Life, Session};
use crate::slab::{NONE, Record, Slot};

pub(crate) fn list(list: &List) -> v1::List {
    v1::List { head: list.head, tail: list.tail, len: list.len }
}

fn when(when: When) -> (u64, u64) {
    (when.revision.0, when.clock_ms)
}

fn size_of_names(names: &[Option<&Name>]) -> usize {
    names.iter().map(|name| bytes_of(*name) as usize).sum()
}

impl Record for Session {
    type Saved = v1::Session;

    fn save(&self, slot: Slot) -> v1::Session {
        let (life, detail) = match self.life {
            Life::Live { ttl_ms, .. } => (0, u64::from(ttl_ms)),
            Life::Ended(cause) => code::cause(cause),
        };
        let (low, ranges, newest, older) = self.tickets.save();
        v1::Session {
            slot,
            opened: self.opened.0,
            token: self.token.0,
            life,
            detail,
            owner: self.owner.clone(),
            incarnation: self.incarnation.clone(),
            low,
            ranges,
            newest,
            older,
        }
    }
}

pub(crate) fn session_size(s: &v1::Session) -> usize {
    let names = size_of_names(&[s.owner.as_ref(), s.incarnation.as_ref()]);
    144 + names + s.ranges.len() * 16 + s.older.len() * 16
}

impl Record for Lock {
    type Saved = v1::Lock;

    fn save(&self, slot: Slot) -> v1::Lock {
        v1::Lock {
            slot,
            key: self.key.clone(),
            resource: self.resource.clone(),
            epoch: self.epoch.0,
            holder: self.holder,
            queue: list(&self.queue),
            group: if self.holder == NONE { NONE } else { self.beside },
            class: code::class(self.class),
            is_due: self.is_due,
        }
    }
}

pub(crate) fn lock_size(l: &v1::Lock) -> usize {
    64 + size_of_names(&[Some(&l.key), l.resource.as_ref()])
}

impl Record for History {
    type Saved = v1::History;

    fn save(&self, slot: Slot) -> v1::History {
        let tenure = |tenure: &crate::locks::Tenure| {
            let (how, detail) = code::how(tenure.how);
            v1::Tenure {
                session: tenure.session.0,
                epoch: tenure.epoch.0,
                granted: when(tenure.granted),
                ended: when(tenure.ended),
                how,
                detail,
            }
        };
        let tenures: Vec<v1::Tenure> = self.iter().map(tenure).collect();
        v1::History { slot, tenures }
    }
}

pub(crate) fn history_size(h: &v1::History) -> usize {
    12 + h.tenures.len() * 64
}

impl Record for Claim {
    type Saved = v1::Claim;

    fn save(&self, slot: Slot) -> v1::Claim {
        v1::Claim {
            slot,
            session: self.session,
            lock: self.lock,
            ticket: self.ticket.0,
            state: code::state(self.state),
            flags: self.flags,
            prev: self.prev,
            next: self.next,
            hold: if self.state == State::Queued { NONE } else { self.beside },
            since: when(self.since),
            resource: self.resource.clone(),
        }
    }
}

pub(crate) fn claim_size(c: &v1::Claim) -> usize {
    72 + bytes_of(c.resource.as_ref()) as usize
}

impl Record for Hold {
    type Saved = v1::Hold;

    fn save(&self, slot: Slot) -> v1::Hold {
        let (prev, next) = self.links();
        let (epoch, barrier) = (self.epoch.0, self.barrier.0);
        v1::Hold { slot, claim: self.claim, epoch, barrier, was: self.was.0, prev, next }
    }
}

impl Record for Group {
    type Saved = v1::Group;

    fn save(&self, slot: Slot) -> v1::Group {
        let (head, tail) = self.ends();
        v1::Group { slot, head, tail, len: self.len, ending: self.ending }
    }
}

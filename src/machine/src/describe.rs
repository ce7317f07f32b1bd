//! Reads.

use alloc::vec::Vec;

use palisade_types::limits::{DESCRIBE_WAITERS_MAX, PAGE_ROWS_MAX};
use palisade_types::{
    Description, HolderInfo, Key, LockRow, LogIndex, SessionId, SessionRow, Transition, WaiterInfo,
};

use crate::claims::State;
use crate::machine::{Machine, SessionView};
use crate::slab::{NONE, Slot};

impl Machine {
    /// All about a key; `clock_ms` is the cluster's clock at the moment of asking.
    pub fn describe(&self, key: &Key, clock_ms: u64) -> Description {
        let Some(slot) = self.locks.find(key) else {
            return Description {
                key: key.clone(),
                class: None,
                resource: None,
                epoch: self.locks.epoch_floor,
                holder: None,
                waiting: 0,
                waiters: Vec::new(),
                transitions: Vec::new(),
            };
        };
        let (lock, cold) = (&self.locks.records[slot], self.locks.cold(slot));
        let waiters = self.claims.iter(&lock.queue).take(DESCRIBE_WAITERS_MAX).map(|(_, claim)| {
            let session = &self.sessions.records[claim.session];
            WaiterInfo {
                session: self.id(session.opened),
                owner: session.owner.clone(),
                waited_ms: clock_ms.saturating_sub(claim.since_ms),
            }
        });
        let transitions = cold.transitions().map(|happened| Transition {
            revision: happened.revision,
            kind: happened.kind,
            session: self.id(happened.session),
            epoch: happened.epoch,
            ago_ms: clock_ms.saturating_sub(happened.clock_ms),
        });
        Description {
            key: lock.key.clone(),
            class: Some(lock.class),
            resource: cold.resource.clone(),
            epoch: lock.epoch,
            holder: self.holder_info(slot, clock_ms),
            waiting: lock.queue.len,
            waiters: waiters.collect(),
            transitions: transitions.collect(),
        }
    }

    /// A page of records in the order of their keys, from behind `after`, of at most
    /// [`PAGE_ROWS_MAX`] rows; and whether more follow.
    pub fn list_locks(&self, after: Option<&str>, rows: u32, clock_ms: u64) -> (Vec<LockRow>, bool) {
        page(self.locks.after(after), rows, |slot| {
            let lock = &self.locks.records[slot];
            LockRow {
                key: lock.key.clone(),
                class: lock.class,
                epoch: lock.epoch,
                holder: self.holder_info(slot, clock_ms),
                waiting: lock.queue.len,
            }
        })
    }

    /// A page of live sessions in the order of their ids, from behind `after`, of at most
    /// [`PAGE_ROWS_MAX`] rows; and whether more follow.
    pub fn list_sessions(&self, after: Option<SessionId>, rows: u32) -> (Vec<SessionRow>, bool) {
        let after = match after {
            Some(after) if after.shard > self.shard => return (Vec::new(), false),
            Some(after) if after.shard == self.shard => after.opened,
            _ => LogIndex(0),
        };
        page(self.sessions.after(after).map(|session| self.view(session)), rows, session_row)
    }

    pub(crate) fn holder_info(&self, lock: Slot, clock_ms: u64) -> Option<HolderInfo> {
        let lock = &self.locks.records[lock];
        if lock.holder == NONE {
            return None;
        }
        let claim = &self.claims.records[lock.holder];
        let session = &self.sessions.records[claim.session];
        Some(HolderInfo {
            session: self.id(session.opened),
            owner: session.owner.clone(),
            epoch: lock.epoch,
            held_ms: clock_ms.saturating_sub(claim.since_ms),
            ending: claim.state == State::Ending,
        })
    }
}

fn session_row(view: SessionView<'_>) -> SessionRow {
    SessionRow {
        session: view.session,
        owner: view.owner.cloned(),
        incarnation: view.incarnation.cloned(),
        ttl_ms: view.ttl_ms,
        held: view.held,
        waiting: view.waiting,
    }
}

/// The first rows, and whether there are more.
fn page<T, R>(mut items: impl Iterator<Item = T>, rows: u32, row: impl Fn(T) -> R) -> (Vec<R>, bool) {
    let rows: Vec<R> = items.by_ref().take(rows.min(PAGE_ROWS_MAX) as usize).map(row).collect();
    (rows, items.next().is_some())
}

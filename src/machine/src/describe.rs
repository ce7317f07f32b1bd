//! Reads.

use alloc::vec::Vec;

use palisade_types::limits::{DESCRIBE_WAITERS_MAX, PAGE_ROWS_MAX, TRANSITIONS_KEPT};
use palisade_types::{
    Description, Epoch, HolderInfo, Key, LockRow, LogIndex, SessionId, SessionRow, Transition,
    TransitionKind, WaiterInfo,
};

use crate::claims::State;
use crate::locks::When;
use crate::machine::{Machine, SessionView};
use crate::slab::{NONE, Slot};

/// One of a key's last transitions.
pub(crate) struct Happened {
    pub(crate) revision: LogIndex,
    pub(crate) clock_ms: u64,
    /// The session's id within the shard.
    pub(crate) session: LogIndex,
    pub(crate) epoch: Epoch,
    pub(crate) kind: TransitionKind,
}

impl Machine {
    /// All about a key; `clock_ms` is the cluster's clock at the moment of asking.
    pub fn describe(&self, key: &Key, clock_ms: u64) -> Description {
        let Some(slot) = self.locks.find(key.as_bytes()) else {
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
        let lock = &self.locks.records[slot];
        let waiters = self.claims.iter(&lock.queue).take(DESCRIBE_WAITERS_MAX).map(|(_, claim)| {
            let session = &self.sessions.records[claim.session];
            WaiterInfo {
                session: self.id(session.opened),
                owner: session.owner.clone(),
                waited_ms: clock_ms.saturating_sub(claim.since.clock_ms),
            }
        });
        let transitions = self.transitions(slot).map(|happened| Transition {
            revision: happened.revision,
            kind: happened.kind,
            session: self.id(happened.session),
            epoch: happened.epoch,
            ago_ms: clock_ms.saturating_sub(happened.clock_ms),
        });
        Description {
            key: lock.key.clone(),
            class: Some(lock.class),
            resource: lock.resource.clone(),
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

    /// The last transitions of a key, newest first.
    pub(crate) fn transitions(&self, slot: Slot) -> impl Iterator<Item = Happened> {
        let lock = &self.locks.records[slot];
        let is_held = lock.holder != NONE;
        let granted = |When { revision, clock_ms }, session, epoch| Happened {
            revision,
            clock_ms,
            session,
            epoch,
            kind: TransitionKind::Granted,
        };
        let holder = is_held.then(|| {
            let claim = &self.claims.records[lock.holder];
            granted(claim.since, self.sessions.records[claim.session].opened, lock.epoch)
        });
        let ended = Epoch(lock.epoch.0 - u64::from(is_held));
        let tenures = self.locks.history(slot).up_to(ended).flat_map(move |(epoch, tenure)| {
            let When { revision, clock_ms } = tenure.ended;
            let end = Happened { revision, clock_ms, session: tenure.session, epoch, kind: tenure.how };
            [end, granted(tenure.granted, tenure.session, epoch)]
        });
        holder.into_iter().chain(tenures).take(TRANSITIONS_KEPT)
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
            held_ms: clock_ms.saturating_sub(claim.since.clock_ms),
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
        values: view.values,
    }
}

/// The first rows, and whether there are more.
pub(crate) fn page<T, R>(
    mut items: impl Iterator<Item = T>,
    rows: u32,
    row: impl Fn(T) -> R,
) -> (Vec<R>, bool) {
    let rows: Vec<R> = items.by_ref().take(rows.min(PAGE_ROWS_MAX) as usize).map(row).collect();
    (rows, items.next().is_some())
}

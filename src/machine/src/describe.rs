//! Reads.

use alloc::vec::Vec;

use palisade_types::limits::{DESCRIBE_WAITERS_MAX, PAGE_ROWS_MAX, TRANSITIONS_KEPT};
use palisade_types::{
    Class, Description, Epoch, HolderInfo, Key, LockRow, LogIndex, SessionId, SessionRow, Standing,
    Transition, TransitionKind, WaiterInfo,
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
    /// What the key is used for; `None` when it has no record.
    pub fn class(&self, key: &Key) -> Option<Class> {
        self.locks.find(key.as_bytes()).map(|slot| self.locks.records[slot].class)
    }

    /// All about a key; `clock_ms` is the cluster's clock at the moment of asking.
    pub fn describe(&self, key: &Key, clock_ms: u64) -> Description {
        let Some(slot) = self.locks.find(key.as_bytes()) else {
            return Description {
                key: key.clone(),
                class: None,
                resource: None,
                epoch: self.locks.epoch_floor,
                holding: 0,
                holders: Vec::new(),
                value: None,
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
                mode: claim.mode(),
                waited_ms: clock_ms.saturating_sub(claim.since.clock_ms),
            }
        });
        let transitions = self.transitions(slot).into_iter().map(|happened| Transition {
            revision: happened.revision,
            kind: happened.kind,
            session: self.id(happened.session),
            epoch: happened.epoch,
            ago_ms: clock_ms.saturating_sub(happened.clock_ms),
        });
        let info = |claim| self.claim_info(claim, clock_ms);
        Description {
            key: lock.key.clone(),
            class: Some(lock.class),
            resource: lock.resource.clone(),
            epoch: lock.epoch,
            holding: self.holding(slot),
            holders: self.holders_of(slot).take(DESCRIBE_WAITERS_MAX).map(info).collect(),
            value: self.leader_value(lock).cloned(),
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
                holding: self.holding(slot),
                holder: self.holder_info(slot, clock_ms),
                waiting: lock.queue.len,
            }
        })
    }

    /// A page of sessions in the order of their ids, from behind `after`, of at most [`PAGE_ROWS_MAX`]
    /// rows; and whether more follow. Those that live, and those with keys in quarantine.
    pub fn list_sessions(&self, after: Option<SessionId>, rows: u32) -> (Vec<SessionRow>, bool) {
        let after = match after {
            Some(after) if after.shard > self.shard => return (Vec::new(), false),
            Some(after) if after.shard == self.shard => after.opened,
            _ => LogIndex(0),
        };
        let mut live = self.sessions.after(after).peekable();
        let mut dead = self.sessions.quarantined_after(after).peekable();
        let both = core::iter::from_fn(|| match (live.peek(), dead.peek()) {
            (Some(a), Some(b)) if b.opened < a.opened => dead.next(),
            (None, _) => dead.next(),
            _ => live.next(),
        });
        page(both.map(|session| self.view(session)), rows, session_row)
    }

    /// The last transitions of a key, newest first.
    pub(crate) fn transitions(&self, slot: Slot) -> Vec<Happened> {
        let granted = |When { revision, clock_ms }, session, epoch| Happened {
            revision,
            clock_ms,
            session,
            epoch,
            kind: TransitionKind::Granted,
        };
        let mut all = Vec::new();
        for claim in self.newest_holders(slot).take(TRANSITIONS_KEPT) {
            let record = &self.claims.records[claim];
            let session = self.sessions.records[record.session].opened;
            all.push(granted(record.since, session, self.tenure_of(claim).0));
        }
        for tenure in self.locks.history(slot).iter() {
            let (session, epoch) = (tenure.session, tenure.epoch);
            let When { revision, clock_ms } = tenure.ended;
            all.push(Happened { revision, clock_ms, session, epoch, kind: tenure.how });
            all.push(granted(tenure.granted, session, epoch));
        }
        all.sort_unstable_by_key(|happened| core::cmp::Reverse((happened.revision, happened.epoch)));
        all.truncate(TRANSITIONS_KEPT);
        all
    }

    /// The claims that hold a key, from the lowest epoch to the highest.
    pub(crate) fn holders_of(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let (alone, group) = self.alone_or_group(slot);
        alone.into_iter().chain(self.holders.iter(group).map(|hold| hold.claim))
    }

    fn newest_holders(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let (alone, group) = self.alone_or_group(slot);
        alone.into_iter().chain(self.holders.newest_first(group).map(|hold| hold.claim))
    }

    /// The claim that holds a key alone, or the group that shares it.
    fn alone_or_group(&self, slot: Slot) -> (Option<Slot>, Slot) {
        let lock = &self.locks.records[slot];
        match lock.holder {
            NONE => (None, NONE),
            holder if self.claims.records[holder].is_shared() => (None, lock.beside),
            holder => (Some(holder), NONE),
        }
    }

    fn holding(&self, slot: Slot) -> u32 {
        match self.alone_or_group(slot) {
            (Some(_), _) => 1,
            (None, NONE) => 0,
            (None, group) => self.holders.group(group).len,
        }
    }

    /// Of those that hold a key, the one with the lowest epoch.
    pub(crate) fn holder_info(&self, lock: Slot, clock_ms: u64) -> Option<HolderInfo> {
        let holder = self.locks.records[lock].holder;
        (holder != NONE).then(|| self.claim_info(holder, clock_ms))
    }

    fn claim_info(&self, claim: Slot, clock_ms: u64) -> HolderInfo {
        let (epoch, _) = self.tenure_of(claim);
        let claim = &self.claims.records[claim];
        let session = &self.sessions.records[claim.session];
        HolderInfo {
            session: self.id(session.opened),
            owner: session.owner.clone(),
            incarnation: session.incarnation.clone(),
            epoch,
            mode: claim.mode(),
            held_ms: clock_ms.saturating_sub(claim.since.clock_ms),
            standing: match claim.state {
                State::Ending => Standing::Ending,
                State::Quarantined => Standing::Quarantined,
                State::Held | State::Queued => Standing::Live,
            },
        }
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
        quarantined: view.quarantined,
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

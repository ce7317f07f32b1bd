//! Reads of the naive machine.

use super::*;

impl Model {
    /// See `Machine::describe`.
    pub fn describe(&self, key: &Key, clock_ms: u64) -> Description {
        let mut description = Description {
            key: key.clone(),
            class: None,
            resource: None,
            epoch: Epoch(self.epoch_floor),
            holding: 0,
            holders: Vec::new(),
            value: None,
            waiting: 0,
            waiters: Vec::new(),
            transitions: Vec::new(),
        };
        let Some(lock) = self.locks.get(key) else { return description };
        description.class = Some(lock.class);
        description.resource = lock.resource.clone();
        description.epoch = Epoch(lock.epoch);
        description.holding = lock.holders.len() as u32;
        description.holders = lock.holders.iter().take(100).map(|claim| info(claim, clock_ms)).collect();
        let leader = lock.holders.first();
        description.value = leader.and_then(|c| c.proclaimed.clone().or(c.value.clone()));
        description.waiting = lock.queue.len() as u32;
        for claim in lock.queue.iter().take(100) {
            description.waiters.push(WaiterInfo {
                session: claim.session,
                owner: claim.owner.clone(),
                mode: claim.mode,
                waited_ms: clock_ms.saturating_sub(claim.since.1),
            });
        }
        let mut transitions = Vec::new();
        let mut add = |when: (LogIndex, u64), kind, session, epoch| {
            let ago_ms = clock_ms.saturating_sub(when.1);
            transitions.push(Transition { revision: when.0, kind, session, epoch: Epoch(epoch), ago_ms });
        };
        for claim in &lock.holders {
            add(claim.since, TransitionKind::Granted, claim.session, claim.epoch);
        }
        for tenure in &lock.tenures {
            add(tenure.granted, TransitionKind::Granted, tenure.session, tenure.epoch);
            add(tenure.ended, tenure.how, tenure.session, tenure.epoch);
        }
        transitions.sort_by_key(|t| (t.revision, t.epoch));
        description.transitions = transitions.into_iter().rev().take(8).collect();
        description
    }

    /// See `Machine::list_locks`.
    pub fn list_locks(&self, after: Option<&str>, rows: u32, clock_ms: u64) -> (Vec<LockRow>, bool) {
        let mut all: Vec<LockRow> = Vec::new();
        for (key, lock) in &self.locks {
            if after.is_none_or(|after| key.as_str() > after) {
                all.push(LockRow {
                    key: key.clone(),
                    class: lock.class,
                    epoch: Epoch(lock.epoch),
                    holding: lock.holders.len() as u32,
                    holder: holder(lock, clock_ms),
                    waiting: lock.queue.len() as u32,
                });
            }
        }
        let rows = rows.min(1_000) as usize;
        let more = all.len() > rows;
        all.truncate(rows);
        (all, more)
    }

    /// See `Machine::list_sessions`.
    pub fn list_sessions(&self, after: Option<SessionId>, rows: u32) -> (Vec<SessionRow>, bool) {
        let mut all: Vec<SessionRow> = Vec::new();
        let both = self.sessions.iter().map(|s| (s, false)).chain(self.quarantined.iter().map(|s| (s, true)));
        for (s, quarantined) in both.filter(|(s, _)| after.is_none_or(|after| s.id > after)) {
            let holders = self.locks.values().flat_map(|l| &l.holders);
            let held = holders.filter(|c| c.session == s.id).count() as u32;
            all.push(SessionRow {
                session: s.id,
                owner: s.owner.clone(),
                incarnation: s.incarnation.clone(),
                ttl_ms: if quarantined { 0 } else { s.ttl_ms },
                held,
                waiting: self.claims_of(s.id).len() as u32 - held,
                quarantined,
                values: if quarantined { 0 } else { self.values.of(s.id) as u32 },
            });
        }
        all.sort_by_key(|row| row.session);
        let rows = rows.min(1_000) as usize;
        let more = all.len() > rows;
        all.truncate(rows);
        (all, more)
    }
}

fn info(claim: &Claim, clock_ms: u64) -> HolderInfo {
    HolderInfo {
        session: claim.session,
        owner: claim.owner.clone(),
        incarnation: claim.incarnation.clone(),
        epoch: Epoch(claim.epoch),
        mode: claim.mode,
        held_ms: clock_ms.saturating_sub(claim.since.1),
        standing: claim.standing,
    }
}

pub(super) fn holder(lock: &Lock, clock_ms: u64) -> Option<HolderInfo> {
    lock.holders.first().map(|claim| info(claim, clock_ms))
}

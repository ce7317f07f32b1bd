//! What operators do to other people's sessions and keys (DESIGN section 8), and the record of it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use palisade_types::limits::{OPERATOR_ACTS_KEPT, PAGE_ROWS_MAX};
use palisade_types::{
    ActRef, Cause, Epoch, Key, LogIndex, Mutant, Name, NameError, OperatorAct, OperatorRow, Outcome, Refusal,
    Reply, SessionId, TransitionKind,
};

use crate::claims::State;
use crate::machine::{Applied, Effect, Machine};
use crate::slab::{NONE, Slot};
use crate::snapshot::frozen::FrozenQueue;

/// An action that was carried out.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) revision: LogIndex,
    pub(crate) clock_ms: u64,
    pub(crate) act: OperatorAct,
    pub(crate) by: Name,
    pub(crate) reason: Name,
}

/// The last actions, oldest first.
#[derive(Default)]
pub(crate) struct Acts(VecDeque<Record>, Option<Box<FrozenQueue<Record>>>);

impl Acts {
    fn push(&mut self, record: Record) {
        if self.0.len() == OPERATOR_ACTS_KEPT {
            let oldest = self.0.pop_front();
            if let (Some(frozen), Some(oldest)) = (&mut self.1, &oldest) {
                frozen.keep(oldest);
            }
        }
        self.0.push_back(record);
    }

    pub(crate) fn freeze(&mut self) {
        self.1 = Some(Box::new(FrozenQueue::new(&self.0)));
    }

    pub(crate) fn thaw(&mut self) {
        self.1 = None;
    }

    /// The next ones of the freeze.
    pub(crate) fn give(&mut self, bytes_max: usize) -> Option<Vec<Record>> {
        let size = |record: &Record| {
            64 + record.by.len() + record.reason.len() + record.act.key().map_or(0, |key| key.len())
        };
        self.1.as_mut()?.give(&self.0, bytes_max, size)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn restored(records: Vec<Record>) -> Acts {
        Acts(records.into(), None)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter()
    }

    /// The same action, if it was carried out already. One that names a session, a grant or a leadership is
    /// carried out once at most.
    fn before(&self, act: &OperatorAct) -> Option<LogIndex> {
        self.0.iter().find(|record| record.act == *act).map(|record| record.revision)
    }

    pub(crate) fn check(&self) {
        assert!(self.0.len() <= OPERATOR_ACTS_KEPT);
        assert!(self.0.iter().is_sorted_by(|a, b| a.revision < b.revision), "one action an entry");
    }
}

/// An action that is asked for.
pub(crate) struct Order {
    act: OperatorAct,
    by: Name,
    reason: Name,
}

impl Order {
    pub(crate) fn new(by: &str, reason: &str, act: ActRef<'_>) -> Result<Order, NameError> {
        Ok(Order { act: act.to_act()?, by: Name::new(by)?, reason: Name::new(reason)? })
    }
}

impl Machine {
    /// Carries an action out and records it. One that was carried out before is answered with the
    /// revision it had then; one that fits nothing is refused. Neither leaves a record.
    pub(crate) fn operate(&mut self, at: Applied, order: Order, release_now: u32, effects: &mut Vec<Effect>) {
        let answer = effects.len();
        effects.push(Effect::Reply(Reply::OperatorDone { action: at.index }));
        let done = match &order.act {
            OperatorAct::ReportDead { session } => {
                self.dismiss(at, *session, Cause::ReportedDead { action: at.index }, release_now, effects)
            }
            OperatorAct::Evict { session } => {
                self.dismiss(at, *session, Cause::Evicted { action: at.index }, release_now, effects)
            }
            OperatorAct::ForceRelease { key, epoch } => self.force_release(at, key, *epoch, effects),
            OperatorAct::Retire { key, epoch } => self.retire(at, key, *epoch),
            // Nothing of the state changes; the leader acts once it is on record.
            OperatorAct::Transfer { .. } => Ok(self.acts.before(&order.act).unwrap_or(at.index)),
        };
        match done {
            Ok(action) if action == at.index => {
                let Order { act, by, reason } = order;
                self.acts.push(Record { revision: at.index, clock_ms: at.clock_ms, act, by, reason });
            }
            Ok(action) => effects[answer] = Effect::Reply(Reply::OperatorDone { action }),
            Err(refusal) => effects[answer] = Effect::Reply(Reply::Refused(refusal)),
        }
    }

    fn dismiss(
        &mut self,
        at: Applied,
        session: SessionId,
        cause: Cause,
        release_now: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<LogIndex, Refusal> {
        if let Some(slot) = self.find_session(session) {
            self.end_live(at, slot, cause, release_now, effects);
            return Ok(at.index);
        }
        let is_report = matches!(cause, Cause::ReportedDead { .. });
        if is_report
            && session.shard == self.shard
            && let Some(slot) = self.sessions.find_quarantined(session.opened)
        {
            self.release_quarantined(at, slot, cause, release_now, effects);
            return Ok(at.index);
        }
        // Of a session in quarantine there may be a report, although it ended otherwise.
        if is_report && let Some(action) = self.acts.before(&OperatorAct::ReportDead { session }) {
            return Ok(action);
        }
        match self.ended(session) {
            Some(Cause::ReportedDead { action } | Cause::Evicted { action }) => Ok(action),
            _ => Err(self.gone(session)),
        }
    }

    /// Takes a key from the grant with this epoch, and hands it to the next in line.
    fn force_release(
        &mut self,
        at: Applied,
        key: &Key,
        epoch: Epoch,
        effects: &mut Vec<Effect>,
    ) -> Result<LogIndex, Refusal> {
        let Some(slot) = self.locks.find(key.as_bytes()) else {
            return Err(Refusal::NotHeld { asked: epoch, last: self.locks.epoch_floor });
        };
        let Some(claim) = self.holder_at(slot, epoch) else {
            return self.forced_before(slot, epoch);
        };
        let record = &self.claims.records[claim];
        let (owner, ticket) = (record.session, record.ticket);
        match record.state {
            State::Ending => {
                let awaited = self.locks.records[slot].queue.len > 0;
                let list = if awaited { &mut self.wanted } else { &mut self.unwanted };
                self.claims.unlink(list, claim);
            }
            State::Quarantined => self.leave_quarantine(owner, claim),
            State::Held | State::Queued => {
                let session = self.id(self.sessions.records[owner].opened);
                self.sessions.records[owner].tickets.finish(ticket, Outcome::Forced);
                effects.push(Effect::Forced { session, ticket });
            }
        }
        self.vacate(at, claim, TransitionKind::Forced, effects);
        Ok(at.index)
    }

    /// The claim that holds a key under this epoch.
    fn holder_at(&self, slot: Slot, epoch: Epoch) -> Option<Slot> {
        let lock = &self.locks.records[slot];
        if lock.holder == NONE {
            return None;
        }
        if self.mutants.has(Mutant::O1) {
            return Some(lock.holder);
        }
        if !self.claims.records[lock.holder].is_shared() {
            return (lock.epoch == epoch).then_some(lock.holder);
        }
        self.holders.iter(lock.beside).find(|hold| hold.epoch == epoch).map(|hold| hold.claim)
    }

    /// One claim of a dead session is no longer in quarantine; perhaps it was the last.
    fn leave_quarantine(&mut self, owner: Slot, claim: Slot) {
        self.claims.records[claim].state = State::Held;
        let session = &self.sessions.records[owner];
        let opened = session.opened;
        let is_closed = |(_, claim): (_, Slot)| self.claims.records[claim].state == State::Quarantined;
        if !session.open.iter().any(is_closed) {
            self.sessions.end_quarantine(opened);
        }
    }

    /// The answer about a grant that does not hold its key: it may be gone because it was forced to.
    fn forced_before(&self, slot: Slot, epoch: Epoch) -> Result<LogIndex, Refusal> {
        let lock = &self.locks.records[slot];
        let tenure = self.locks.history(slot).tenure(epoch);
        match tenure.filter(|tenure| tenure.how == TransitionKind::Forced) {
            Some(tenure) => Ok(tenure.ended.revision),
            None => Err(Refusal::NotHeld { asked: epoch, last: lock.epoch }),
        }
    }

    /// Forgets an idle record whose last grant has this epoch, and the key's claims to resources. A key
    /// whose record was reclaimed may have claims all the same: they go if the epoch is the floor.
    fn retire(&mut self, at: Applied, key: &Key, epoch: Epoch) -> Result<LogIndex, Refusal> {
        let found = self.locks.find(key.as_bytes());
        let last = found.map_or(self.locks.epoch_floor, |slot| self.locks.records[slot].epoch);
        let Some(slot) = found.filter(|_| last == epoch) else {
            let act = OperatorAct::Retire { key: key.clone(), epoch };
            if let Some(action) = self.acts.before(&act) {
                return Ok(action);
            }
            if found.is_none() && last == epoch && self.withdraw_claims(key) {
                return Ok(at.index);
            }
            return Err(Refusal::NotAtEpoch { asked: epoch, last });
        };
        if self.locks.records[slot].holder != NONE {
            return Err(Refusal::InUse);
        }
        let floor = self.locks.epoch_floor;
        self.tell_retired(key, self.locks.records[slot].epoch);
        self.locks.reclaim(slot);
        self.withdraw_claims(key);
        if self.mutants.has(Mutant::O2) {
            self.locks.epoch_floor = floor;
        }
        Ok(at.index)
    }

    /// Whether an action would end a session or free or forget a key, if it were applied to this state.
    pub fn frees(&self, act: &OperatorAct) -> bool {
        let find = |key: &Key| self.locks.find(key.as_bytes());
        match act {
            OperatorAct::ReportDead { session } => self.ends_of(*session).is_some(),
            OperatorAct::Evict { session } => self.find_session(*session).is_some(),
            OperatorAct::ForceRelease { key, epoch } => {
                find(key).is_some_and(|slot| self.holder_at(slot, *epoch).is_some())
            }
            OperatorAct::Transfer { .. } => false,
            OperatorAct::Retire { key, epoch } => match find(key) {
                Some(slot) => {
                    let lock = &self.locks.records[slot];
                    lock.epoch == *epoch && lock.holder == NONE
                }
                None => self.locks.epoch_floor == *epoch && self.resources.is_claimant(key),
            },
        }
    }

    /// Whether an action is on record.
    pub fn has_act(&self, act: &OperatorAct) -> bool {
        self.acts.before(act).is_some()
    }

    /// The session that a death report would find: a live one, or one with keys in quarantine.
    fn ends_of(&self, session: SessionId) -> Option<Slot> {
        let is_here = session.shard == self.shard;
        let closed = || self.sessions.find_quarantined(session.opened).filter(|_| is_here);
        self.find_session(session).or_else(closed)
    }

    /// How many keys the end of a session would free, or a report of its death.
    pub fn keys_to_free(&self, session: SessionId) -> u32 {
        let record = self.ends_of(session).map(|slot| &self.sessions.records[slot]);
        record.map_or(0, |session| session.open.held + session.values())
    }

    /// A page of the actions on record from behind a revision, oldest first, of at most
    /// [`PAGE_ROWS_MAX`] rows; and whether more follow.
    pub fn list_operator_acts(&self, after: LogIndex, rows: u32, clock_ms: u64) -> (Vec<OperatorRow>, bool) {
        let all = &self.acts.0;
        let from = all.partition_point(|record| record.revision <= after);
        let rows = rows.min(PAGE_ROWS_MAX) as usize;
        let page = all.iter().skip(from).take(rows).map(|record| OperatorRow {
            revision: record.revision,
            act: record.act.clone(),
            by: record.by.clone(),
            reason: record.reason.clone(),
            ago_ms: clock_ms.saturating_sub(record.clock_ms),
        });
        (page.collect(), all.len() - from > rows)
    }
}

//! What operators do to other people's sessions and keys (DESIGN section 8), and the record of it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use palisade_types::limits::{OPERATOR_ACTS_KEPT, PAGE_ROWS_MAX};
use palisade_types::{
    ActRef, Cause, Epoch, Key, LogIndex, Mutant, Name, NameError, OperatorAct, OperatorRow, Outcome, Refusal,
    Reply, SessionId, TransitionKind,
};

use crate::claims::State;
use crate::locks::TENURES_KEPT;
use crate::machine::{Applied, Effect, Machine};
use crate::slab::{NONE, Slot};

/// An action that was carried out.
pub(crate) struct Record {
    pub(crate) revision: LogIndex,
    pub(crate) clock_ms: u64,
    pub(crate) act: OperatorAct,
    pub(crate) by: Name,
    pub(crate) reason: Name,
}

/// The last actions, oldest first.
#[derive(Default)]
pub(crate) struct Acts(VecDeque<Record>);

impl Acts {
    fn push(&mut self, record: Record) {
        if self.0.len() == OPERATOR_ACTS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(record);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter()
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
    /// revision it had then (a retirement finds nothing then, and counts anew); one that fits nothing is refused and leaves no record.
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
            OperatorAct::Retire { key } => self.retire(at, key),
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
        let lock = &self.locks.records[slot];
        let meant = lock.epoch == epoch || self.mutants.has(Mutant::O1);
        if lock.holder == NONE || !meant {
            return self.forced_before(slot, epoch);
        }
        let (claim, awaited) = (lock.holder, lock.queue.len > 0);
        let record = &self.claims.records[claim];
        if record.state == State::Ending {
            let list = if awaited { &mut self.wanted } else { &mut self.unwanted };
            self.claims.unlink(list, claim);
        } else {
            let (owner, ticket) = (record.session, record.ticket);
            let session = self.id(self.sessions.records[owner].opened);
            self.sessions.records[owner].tickets.finish(ticket, Outcome::Forced);
            effects.push(Effect::Forced { session, ticket });
        }
        self.vacate(at, claim, TransitionKind::Forced, effects);
        Ok(at.index)
    }

    /// The answer about a grant that does not hold its key: it may be gone because it was forced to.
    fn forced_before(&self, slot: Slot, epoch: Epoch) -> Result<LogIndex, Refusal> {
        let lock = &self.locks.records[slot];
        let is_held = u64::from(lock.holder != NONE);
        let recent = lock
            .epoch
            .0
            .checked_sub(epoch.0)
            .is_some_and(|age| (is_held..TENURES_KEPT as u64).contains(&age));
        let tenure = self.locks.history(slot).tenure(epoch).filter(|_| recent);
        match tenure.filter(|tenure| tenure.how == TransitionKind::Forced) {
            Some(tenure) => Ok(tenure.ended.revision),
            None => Err(Refusal::NotHeld { asked: epoch, last: lock.epoch }),
        }
    }

    /// Forgets an idle record; of a key without one there is nothing to forget.
    fn retire(&mut self, at: Applied, key: &Key) -> Result<LogIndex, Refusal> {
        let Some(slot) = self.locks.find(key.as_bytes()) else { return Ok(at.index) };
        if self.locks.records[slot].holder != NONE {
            return Err(Refusal::InUse);
        }
        let floor = self.locks.epoch_floor;
        self.tell_retired(key, self.locks.records[slot].epoch);
        self.locks.reclaim(slot);
        if self.mutants.has(Mutant::O2) {
            self.locks.epoch_floor = floor;
        }
        Ok(at.index)
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

//! What operators do, as plainly as the rest of the model.

use super::*;

impl Model {
    pub(super) fn operate(
        &mut self,
        at: Applied,
        act: &OperatorAct,
        now: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<LogIndex, Refusal> {
        let action = at.index;
        match act {
            OperatorAct::Transfer { .. } => Ok(self.done_before(act).unwrap_or(action)),
            OperatorAct::ReportDead { session } | OperatorAct::Evict { session } => {
                let session = *session;
                if let Some(place) = self.sessions.iter().position(|s| s.id == session) {
                    let cause = match act {
                        OperatorAct::Evict { .. } => Cause::Evicted { action },
                        _ => Cause::ReportedDead { action },
                    };
                    self.bury(at, place, cause, now, effects);
                    return Ok(action);
                }
                let is_report = matches!(act, OperatorAct::ReportDead { .. });
                if is_report && let Some(place) = self.quarantined.iter().position(|s| s.id == session) {
                    self.quarantined.remove(place);
                    let holders = self.locks.values_mut().flat_map(|l| &mut l.holders);
                    for claim in holders.filter(|c| c.session == session) {
                        if claim.standing == Standing::Quarantined {
                            claim.standing = Standing::Live;
                        }
                    }
                    let cause = Cause::ReportedDead { action };
                    self.wanted.iter_mut().chain(&mut self.unwanted).for_each(|left| {
                        let mut holders = self.locks[&left.key].holders.iter();
                        if holders.any(|c| c.epoch == left.epoch && c.session == session) {
                            left.cause = cause;
                        }
                    });
                    self.let_go(at, session, cause, now, effects);
                    return Ok(action);
                }
                if is_report && let Some(action) = self.done_before(act) {
                    return Ok(action);
                }
                match self.ended(session) {
                    Some(Cause::ReportedDead { action } | Cause::Evicted { action }) => Ok(action),
                    Some(cause) => Err(Refusal::SessionEnded { session, cause }),
                    None => Err(Refusal::SessionEnded { session, cause: Cause::Forgotten }),
                }
            }
            OperatorAct::ForceRelease { key, epoch } => {
                let last = Epoch(self.locks.get(key).map_or(self.epoch_floor, |lock| lock.epoch));
                let refusal = Refusal::NotHeld { asked: *epoch, last };
                let Some(lock) = self.locks.get(key) else { return Err(refusal) };
                let holders = lock.holders.clone();
                let Some(holder) = holders.iter().find(|c| c.epoch == epoch.0) else {
                    let forced = |t: &&Tenure| t.how == TransitionKind::Forced && t.epoch == epoch.0;
                    return lock.tenures.iter().find(forced).map(|t| t.ended.0).ok_or(refusal);
                };
                if self.live(holder.session).is_some() {
                    let (session, ticket) = (holder.session, holder.ticket);
                    self.finish(session, ticket, Outcome::Forced);
                    effects.push(Effect::Forced { session, ticket });
                }
                self.wanted.retain(|left| (&left.key, left.epoch) != (key, epoch.0));
                self.unwanted.retain(|left| (&left.key, left.epoch) != (key, epoch.0));
                self.free(at, key, epoch.0, TransitionKind::Forced, effects);
                let closed = |s: &Session| {
                    let mut holders = self.locks.values().flat_map(|l| &l.holders);
                    holders.any(|c| c.session == s.id && c.standing == Standing::Quarantined)
                };
                let kept = self.quarantined.iter().filter(|s| closed(s)).cloned().collect();
                self.quarantined = kept;
                Ok(action)
            }
            OperatorAct::Retire { key, epoch } => {
                let last = self.locks.get(key).map_or(self.epoch_floor, |lock| lock.epoch);
                let Some(lock) = self.locks.get(key).filter(|lock| lock.epoch == epoch.0) else {
                    let refusal = Refusal::NotAtEpoch { asked: *epoch, last: Epoch(last) };
                    let known = self.locks.contains_key(key);
                    let claims = self.resources.iter().any(|(_, claimant)| claimant == key);
                    if let Some(action) = self.done_before(act) {
                        return Ok(action);
                    }
                    if !known && last == epoch.0 && claims {
                        self.resources.retain(|(_, claimant)| claimant != key);
                        return Ok(action);
                    }
                    return Err(refusal);
                };
                if !lock.holders.is_empty() {
                    return Err(Refusal::InUse);
                }
                let (session, epoch) = (SessionId::default(), Epoch(lock.epoch));
                self.epoch_floor = self.epoch_floor.max(epoch.0);
                self.tell(Some(key), session, None, Happened::Retired { epoch });
                self.locks.remove(key);
                self.idle.retain(|k| k != key);
                self.resources.retain(|(_, claimant)| claimant != key);
                Ok(action)
            }
        }
    }

    /// The revision of the same action, if it is on record.
    fn done_before(&self, act: &OperatorAct) -> Option<LogIndex> {
        self.operators.iter().rev().take(1_000).find(|row| row.act == *act).map(|row| row.revision)
    }

    /// See `Machine::list_operator_acts`.
    pub fn list_operator_acts(&self, after: LogIndex, rows: u32, clock_ms: u64) -> (Vec<OperatorRow>, bool) {
        let kept = self.operators.iter().rev().take(1_000).rev();
        let mut all: Vec<OperatorRow> = kept.filter(|row| row.revision > after).cloned().collect();
        all.iter_mut().for_each(|row| row.ago_ms = clock_ms.saturating_sub(row.ago_ms));
        let rows = rows.min(1_000) as usize;
        let more = all.len() > rows;
        all.truncate(rows);
        (all, more)
    }
}

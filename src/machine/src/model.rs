//! A second machine, written from the design alone and as plainly as can be: vectors, searched from
//! the front. Tests and the simulator apply the same commands to both and compare what they say.
//! It shares no code with the first but the command's decoder and the types of the answers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use palisade_types::{
    Cause, Class, ClusterLimits, Description, Epoch, Fence, HolderInfo, Key, LockRow, LogIndex, Name,
    OperatorAct, OperatorRow, Outcome, Refusal, Reply, SessionId, SessionRow, SessionToken, ShardId, Ticket,
    Transition, TransitionKind, WaiterInfo,
};

use crate::{Applied, ApplyError, Command, Effect};
use account::len;

mod account;
mod values;

#[derive(Clone, Debug)]
struct Session {
    id: SessionId,
    token: SessionToken,
    ttl_ms: u32,
    owner: Option<Name>,
    incarnation: Option<Name>,
    /// Every ticket ever finished.
    finished: BTreeMap<Ticket, Outcome>,
    /// The same in the order of their finishing.
    order: Vec<Ticket>,
}

#[derive(Clone, Debug, PartialEq)]
struct Claim {
    session: SessionId,
    owner: Option<Name>,
    ticket: Ticket,
    resource: Option<Name>,
    wait: bool,
    since_ms: u64,
}

#[derive(Clone, Debug)]
struct Lock {
    class: Class,
    resource: Option<Name>,
    epoch: u64,
    holder: Option<Claim>,
    queue: Vec<Claim>,
    /// Oldest first: revision, clock, kind, session, epoch.
    history: Vec<(LogIndex, u64, TransitionKind, SessionId, u64)>,
}

/// The naive machine.
#[derive(Clone, Debug)]
pub struct Model {
    limits: ClusterLimits,
    shard: ShardId,
    sessions: Vec<Session>,
    /// Oldest end first.
    ended: Vec<(SessionId, SessionToken, Cause)>,
    locks: BTreeMap<Key, Lock>,
    /// Free keys, idle for longest first.
    idle: Vec<Key>,
    /// Keys whose holder's session has ended, with the cause: first those with waiters.
    wanted: Vec<(Key, Cause)>,
    unwanted: Vec<(Key, Cause)>,
    epoch_floor: u64,
    /// Oldest first; the clock in place of the time since.
    operators: Vec<OperatorRow>,
    values: values::Values,
}

impl Model {
    /// An empty state.
    pub fn new(limits: ClusterLimits, shard: ShardId) -> Model {
        Model {
            limits,
            shard,
            sessions: Vec::new(),
            ended: Vec::new(),
            locks: BTreeMap::new(),
            idle: Vec::new(),
            wanted: Vec::new(),
            unwanted: Vec::new(),
            epoch_floor: 0,
            operators: Vec::new(),
            values: values::Values::default(),
        }
    }

    /// Applies the command at the next index and appends its effects.
    ///
    /// # Errors
    /// When the bytes are no command.
    pub fn apply(
        &mut self,
        at: Applied,
        command: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Result<(), ApplyError> {
        if command.is_empty() {
            return Ok(());
        }
        match Command::decode(command).map_err(|error| ApplyError { index: at.index, error })? {
            Command::OpenSession { token, ttl_ms, owner, incarnation } => {
                let id = SessionId { shard: self.shard, opened: at.index };
                let fresh = Session {
                    id,
                    token,
                    ttl_ms: if ttl_ms == 0 { 30_000 } else { ttl_ms },
                    owner,
                    incarnation,
                    finished: BTreeMap::new(),
                    order: Vec::new(),
                };
                self.open(fresh, effects);
            }
            Command::EndSession { session, cause, release_now } => {
                self.end(at, session, cause, release_now, effects);
            }
            Command::Sweep { releases } => self.sweep(at, releases, effects),
            Command::Acquire { session, ticket, key, class, resource, wait } => {
                let owner = self.live(session).and_then(|s| s.owner.clone());
                let claim = Claim { session, owner, ticket, resource, wait, since_ms: at.clock_ms };
                let reply = self.acquire(at, key, class, claim);
                effects.push(Effect::Reply(reply));
            }
            Command::Release { session, ticket } => {
                if let Some(key) = self.held_by(session, ticket) {
                    self.finish(session, ticket, Outcome::Released);
                    effects.push(Effect::Reply(Reply::Finished {
                        session,
                        ticket,
                        outcome: Outcome::Released,
                    }));
                    self.free(at, &key, TransitionKind::Released, effects);
                } else {
                    let reply = self.withdraw(session, ticket, Outcome::Cancelled);
                    effects.push(Effect::Reply(reply));
                }
            }
            Command::Cancel { session, ticket, timeout } => {
                let reply = match self.held_by(session, ticket) {
                    Some(key) => Reply::Granted { session, ticket, fence: self.fence(&key) },
                    None => {
                        let outcome = if timeout { Outcome::TimedOut } else { Outcome::Cancelled };
                        self.withdraw(session, ticket, outcome)
                    }
                };
                effects.push(Effect::Reply(reply));
            }
            Command::Operator { by, reason, act, release_now } => {
                let place = effects.len();
                let row = OperatorRow { revision: at.index, act, by, reason, ago_ms: at.clock_ms };
                let reply = match self.operate(at, &row.act, release_now, effects) {
                    Ok(action) => {
                        if action == at.index {
                            self.operators.push(row);
                        }
                        Reply::OperatorDone { action }
                    }
                    Err(refusal) => Reply::Refused(refusal),
                };
                effects.insert(place, Effect::Reply(reply));
            }
            Command::Put { session, ticket, key, value } => {
                let reply = self.put(at, session, ticket, key, &value);
                effects.push(Effect::Reply(reply));
            }
            Command::Delete { session, ticket, key } => {
                let reply = self.delete(session, ticket, &key);
                effects.push(Effect::Reply(reply));
            }
        }
        Ok(())
    }

    fn open(&mut self, fresh: Session, effects: &mut Vec<Effect>) {
        let (session, ttl_ms) = (fresh.id, fresh.ttl_ms);
        if let Some(s) = self.sessions.iter().find(|s| s.token == fresh.token) {
            let (session, ttl_ms) = (s.id, s.ttl_ms);
            let reply = Reply::Opened { session, ttl_ms, gone_within_ms: 0, short_ttl: false };
            return effects.push(Effect::Reply(reply));
        }
        let refusal = if let Some(&(session, _, cause)) = self.ended.iter().find(|e| e.1 == fresh.token) {
            Some(Refusal::SessionEnded { session, cause })
        } else if !(500..=3_600_000).contains(&ttl_ms) {
            Some(Refusal::BadRequest { reason: "a TTL is between 500 ms and 1 h".to_string() })
        } else if self.sessions.len() >= self.limits.sessions as usize {
            let what = "the number of live sessions".to_string();
            Some(Refusal::QuotaExceeded { what, limit: self.limits.sessions.into() })
        } else {
            self.over_quota(256 + len(&fresh.owner) + len(&fresh.incarnation))
        };
        if let Some(refusal) = refusal {
            return effects.push(Effect::Reply(Reply::Refused(refusal)));
        }
        self.sessions.push(fresh);
        effects.push(Effect::Reply(Reply::Opened { session, ttl_ms, gone_within_ms: 0, short_ttl: false }));
        effects.push(Effect::SessionOpened { session, ttl_ms });
    }

    fn live(&self, session: SessionId) -> Option<&Session> {
        self.sessions.iter().find(|s| s.id == session)
    }

    /// Why a session ended, while that is remembered.
    pub fn ended(&self, session: SessionId) -> Option<Cause> {
        self.ended.iter().find(|e| e.0 == session).map(|e| e.2)
    }

    fn gone(&self, session: SessionId) -> Reply {
        Reply::Refused(Refusal::SessionEnded {
            session,
            cause: self.ended(session).unwrap_or(Cause::Forgotten),
        })
    }

    fn held_by(&self, session: SessionId, ticket: Ticket) -> Option<Key> {
        self.live(session)?;
        let holds = |c: &Claim| c.session == session && c.ticket == ticket;
        self.locks.iter().find(|(_, l)| l.holder.as_ref().is_some_and(holds)).map(|(k, _)| k.clone())
    }

    fn awaited_by(&self, session: SessionId, ticket: Ticket) -> Option<(Key, usize)> {
        let waits = |c: &Claim| c.session == session && c.ticket == ticket;
        self.locks.iter().find_map(|(k, l)| Some((k.clone(), l.queue.iter().position(waits)?)))
    }

    /// The keys a session holds and awaits, by ticket.
    fn claims_of(&self, session: SessionId) -> Vec<(Ticket, Key)> {
        let mut all = Vec::new();
        for (key, lock) in &self.locks {
            let claims = lock.holder.iter().chain(&lock.queue).filter(|c| c.session == session);
            all.extend(claims.map(|c| (c.ticket, key.clone())));
        }
        all.sort();
        all
    }

    /// How many open tickets and ranges of finished ones the session would have with these finished.
    fn ticket_weight(&self, session: &Session, also: Option<Ticket>) -> usize {
        let mut set: Vec<u64> = session.finished.keys().chain(&also).map(|t| t.0).collect();
        set.sort_unstable();
        let ranges = set.iter().enumerate().filter(|&(i, &t)| i == 0 || set[i - 1] + 1 != t).count();
        ranges + self.claims_of(session.id).len()
    }

    fn finish(&mut self, session: SessionId, ticket: Ticket, outcome: Outcome) {
        let s = self.sessions.iter_mut().find(|s| s.id == session).expect("only the living finish tickets");
        s.finished.insert(ticket, outcome);
        s.order.push(ticket);
    }

    fn outcome(session: &Session, ticket: Ticket) -> Option<Outcome> {
        let outcome = *session.finished.get(&ticket)?;
        let kept = session.order.iter().rev().take(256).any(|&t| t == ticket);
        Some(if kept { outcome } else { Outcome::Unknown })
    }

    fn fence(&self, key: &Key) -> Fence {
        let epoch = Epoch(self.locks[key].epoch);
        Fence::new(key.clone(), epoch, epoch).expect("a granted epoch")
    }

    fn holder(&self, lock: &Lock, clock_ms: u64) -> Option<HolderInfo> {
        let claim = lock.holder.as_ref()?;
        Some(HolderInfo {
            session: claim.session,
            owner: claim.owner.clone(),
            epoch: Epoch(lock.epoch),
            held_ms: clock_ms.saturating_sub(claim.since_ms),
            ending: self.live(claim.session).is_none(),
        })
    }

    fn acquire(&mut self, at: Applied, key: Key, class: Class, claim: Claim) -> Reply {
        let (session, ticket) = (claim.session, claim.ticket);
        let Some(s) = self.live(session) else { return self.gone(session) };
        if let Some(reply) = self.old_or_bad_ticket(at, s, &key, class, &claim) {
            return reply;
        }
        if let Some(reply) = self.no_claim(at, s, &key, class, &claim) {
            let denied = matches!(reply, Reply::Denied { .. });
            self.finish(session, ticket, if denied { Outcome::Denied } else { Outcome::Refused });
            return reply;
        }
        let floor = self.epoch_floor;
        let lock = self.locks.entry(key.clone()).or_insert(Lock {
            class,
            resource: None,
            epoch: floor,
            holder: None,
            queue: Vec::new(),
            history: Vec::new(),
        });
        lock.queue.push(claim);
        if lock.holder.is_none() {
            self.idle.retain(|k| *k != key);
            self.grant(at, &key);
            return Reply::Granted { session, ticket, fence: self.fence(&key) };
        }
        let place = lock.queue.len() as u32 - 1;
        self.sort_backlog();
        let holder = self.holder(&self.locks[&key], at.clock_ms).expect("held");
        Reply::Queued { session, ticket, place, holder: Box::new(holder) }
    }

    /// The answer to an acquire whose ticket alone decides it.
    fn old_or_bad_ticket(
        &self,
        at: Applied,
        s: &Session,
        key: &Key,
        class: Class,
        claim: &Claim,
    ) -> Option<Reply> {
        let (session, ticket) = (claim.session, claim.ticket);
        if ticket.0 == 0 || ticket.0 >= 1 << 60 {
            return Some(bad_ticket());
        }
        let same = |known: &Key, c: &Claim| {
            known == key
                && self.locks[known].class == class
                && (c.wait, &c.resource) == (claim.wait, &claim.resource)
        };
        let mismatch = Some(Reply::Refused(Refusal::TicketMismatch { ticket }));
        if let Some(known) = self.held_by(session, ticket) {
            let is_same = same(&known, self.locks[&known].holder.as_ref()?);
            return if is_same {
                Some(Reply::Granted { session, ticket, fence: self.fence(&known) })
            } else {
                mismatch
            };
        }
        if let Some((known, place)) = self.awaited_by(session, ticket) {
            let lock = &self.locks[&known];
            if !same(&known, &lock.queue[place]) {
                return mismatch;
            }
            let holder = Box::new(self.holder(lock, at.clock_ms)?);
            return Some(Reply::Queued { session, ticket, place: place as u32, holder });
        }
        if let Some(outcome) = Model::outcome(s, ticket) {
            return Some(Reply::Refused(Refusal::TicketFinished { ticket, outcome }));
        }
        if self.ticket_weight(s, None) + 1 > 2_000 {
            return Some(tickets_full());
        }
        None
    }

    /// The answer to an acquire that gets neither the key nor a place in its queue.
    fn no_claim(&self, at: Applied, s: &Session, key: &Key, class: Class, claim: &Claim) -> Option<Reply> {
        let (session, ticket) = (claim.session, claim.ticket);
        if class == Class::Fenced && claim.resource.is_none() {
            let reason = "a fenced claim names its resource".to_string();
            return Some(Reply::Refused(Refusal::BadRequest { reason }));
        }
        let lock = self.locks.get(key);
        if let Some(lock) = lock {
            if lock.class != class {
                return Some(Reply::Refused(Refusal::ClassMismatch { has: lock.class }));
            }
            if !claim.wait && lock.holder.is_some() {
                let holder = Box::new(self.holder(lock, at.clock_ms)?);
                let waiting = lock.queue.len() as u32;
                return Some(Reply::Denied { session, ticket, waiting, holder });
            }
        }
        if let Some(refusal) = self.full(s.id) {
            return Some(Reply::Refused(refusal));
        }
        let all: usize = self.locks.values().map(|l| l.queue.len() + usize::from(l.holder.is_some())).sum();
        if all >= self.limits.claims as usize {
            let what = "the number of keys held or awaited".to_string();
            return Some(Reply::Refused(Refusal::QuotaExceeded { what, limit: self.limits.claims.into() }));
        }
        let queue_max = self.limits.waiters_per_key;
        if lock.is_some_and(|l| l.holder.is_some() && l.queue.len() >= queue_max as usize) {
            let what = "the queue of this key".to_string();
            return Some(Reply::Refused(Refusal::QuotaExceeded { what, limit: queue_max.into() }));
        }
        if lock.is_none() {
            let more = 448 + key.len() as u64 + 96 + 2 * len(&claim.resource);
            return self.over_quota(more).map(Reply::Refused);
        }
        None
    }

    /// Gives a free key to the first of its queue.
    fn grant(&mut self, at: Applied, key: &Key) {
        let lock = self.locks.get_mut(key).expect("a key with a queue");
        let mut claim = lock.queue.remove(0);
        claim.since_ms = at.clock_ms;
        lock.epoch += 1;
        lock.resource = claim.resource.clone();
        lock.history.push((at.index, at.clock_ms, TransitionKind::Granted, claim.session, lock.epoch));
        lock.holder = Some(claim);
    }

    /// Frees a key; the next in line gets it.
    fn free(&mut self, at: Applied, key: &Key, kind: TransitionKind, effects: &mut Vec<Effect>) {
        let lock = self.locks.get_mut(key).expect("a held key");
        let old = lock.holder.take().expect("a held key");
        lock.history.push((at.index, at.clock_ms, kind, old.session, lock.epoch));
        if let Some(next) = lock.queue.first() {
            let (session, ticket) = (next.session, next.ticket);
            self.grant(at, key);
            effects.push(Effect::Granted { session, ticket, fence: self.fence(key) });
            return;
        }
        self.idle.push(key.clone());
        if self.idle.len() > self.limits.idle_keys as usize {
            let oldest = self.idle.remove(0);
            let record = self.locks.remove(&oldest).expect("an idle key has a record");
            self.epoch_floor = self.epoch_floor.max(record.epoch);
        }
    }

    /// Gives up a claim that does not hold its key.
    fn withdraw(&mut self, session: SessionId, ticket: Ticket, outcome: Outcome) -> Reply {
        let Some(s) = self.live(session) else { return self.gone(session) };
        if ticket.0 == 0 || ticket.0 >= 1 << 60 {
            return bad_ticket();
        }
        if let Some((key, place)) = self.awaited_by(session, ticket) {
            self.locks.get_mut(&key).expect("found").queue.remove(place);
            self.sort_backlog();
            self.finish(session, ticket, outcome);
            return Reply::Finished { session, ticket, outcome };
        }
        if let Some(outcome) = Model::outcome(s, ticket) {
            return Reply::Finished { session, ticket, outcome };
        }
        if self.ticket_weight(s, Some(ticket)) > 2_000 {
            return tickets_full();
        }
        self.finish(session, ticket, Outcome::Cancelled);
        Reply::Finished { session, ticket, outcome: Outcome::Cancelled }
    }

    /// Keys of the dead that somebody waits for stand before those nobody waits for; whoever changes
    /// sides goes to the end.
    fn sort_backlog(&mut self) {
        let awaited = |key: &Key| !self.locks[key].queue.is_empty();
        let up: Vec<_> = self.unwanted.iter().filter(|(k, _)| awaited(k)).cloned().collect();
        let down: Vec<_> = self.wanted.iter().filter(|(k, _)| !awaited(k)).cloned().collect();
        self.unwanted.retain(|pair| !up.contains(pair));
        self.wanted.retain(|pair| !down.contains(pair));
        self.wanted.extend(up);
        self.unwanted.extend(down);
    }

    fn end(&mut self, at: Applied, session: SessionId, cause: Cause, now: u32, effects: &mut Vec<Effect>) {
        let Some(place) = self.sessions.iter().position(|s| s.id == session) else {
            let closed = self.ended(session) == Some(Cause::Closed);
            let reply = if closed { Reply::SessionClosed { session } } else { self.gone(session) };
            return effects.push(Effect::Reply(reply));
        };
        effects.push(Effect::Reply(Reply::SessionClosed { session }));
        self.bury(at, place, cause, now, effects);
    }

    fn bury(&mut self, at: Applied, place: usize, cause: Cause, now: u32, effects: &mut Vec<Effect>) {
        let session = self.sessions[place].id;
        effects.push(Effect::SessionEnded { session, cause });
        let dead = self.sessions.remove(place);
        self.ended.push((session, dead.token, cause));
        if self.ended.len() > self.limits.ended_sessions as usize {
            self.ended.remove(0);
        }
        for (ticket, _) in self.claims_of(session) {
            if let Some((key, place)) = self.awaited_by(session, ticket) {
                self.locks.get_mut(&key).expect("found").queue.remove(place);
                self.sort_backlog();
            }
        }
        let mut keys = self.claims_of(session);
        keys.sort_by_key(|(ticket, key)| (self.locks[key].queue.is_empty(), *ticket));
        let left = (now.min(50) as usize).saturating_sub(keys.len());
        for (i, (_, key)) in keys.into_iter().enumerate() {
            if i < now.min(50) as usize {
                self.free(at, &key, TransitionKind::SessionEnded(cause), effects);
            } else if self.locks[&key].queue.is_empty() {
                self.unwanted.push((key, cause));
            } else {
                self.wanted.push((key, cause));
            }
        }
        self.values.end(session, left);
    }

    fn operate(
        &mut self,
        at: Applied,
        act: &OperatorAct,
        now: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<LogIndex, Refusal> {
        let action = at.index;
        match act {
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
                let Some(holder) = lock.holder.clone().filter(|_| last == *epoch) else {
                    let forced = lock
                        .history
                        .iter()
                        .find(|h| h.2 == TransitionKind::Forced && h.4 == epoch.0 && last.0 - epoch.0 < 4);
                    return forced.map(|h| h.0).ok_or(refusal);
                };
                if self.live(holder.session).is_some() {
                    let (session, ticket) = (holder.session, holder.ticket);
                    self.finish(session, ticket, Outcome::Forced);
                    effects.push(Effect::Forced { session, ticket });
                }
                self.wanted.retain(|(k, _)| k != key);
                self.unwanted.retain(|(k, _)| k != key);
                self.free(at, key, TransitionKind::Forced, effects);
                Ok(action)
            }
            OperatorAct::Retire { key } => {
                let Some(lock) = self.locks.get(key) else { return Ok(action) };
                if lock.holder.is_some() {
                    return Err(Refusal::InUse);
                }
                self.epoch_floor = self.epoch_floor.max(lock.epoch);
                self.locks.remove(key);
                self.idle.retain(|k| k != key);
                Ok(action)
            }
        }
    }

    fn sweep(&mut self, at: Applied, releases: u32, effects: &mut Vec<Effect>) {
        for _ in 0..releases.min(50) {
            let list = if self.wanted.is_empty() { &mut self.unwanted } else { &mut self.wanted };
            if list.is_empty() {
                self.values.sweep();
                continue;
            }
            let (key, cause) = list.remove(0);
            self.free(at, &key, TransitionKind::SessionEnded(cause), effects);
        }
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

    /// Keys of ended sessions still to be released.
    pub fn backlog_len(&self) -> usize {
        self.wanted.len() + self.unwanted.len() + self.values.ending()
    }

    /// See `Machine::describe`.
    pub fn describe(&self, key: &Key, clock_ms: u64) -> Description {
        let mut description = Description {
            key: key.clone(),
            class: None,
            resource: None,
            epoch: Epoch(self.epoch_floor),
            holder: None,
            waiting: 0,
            waiters: Vec::new(),
            transitions: Vec::new(),
        };
        let Some(lock) = self.locks.get(key) else { return description };
        description.class = Some(lock.class);
        description.resource = lock.resource.clone();
        description.epoch = Epoch(lock.epoch);
        description.holder = self.holder(lock, clock_ms);
        description.waiting = lock.queue.len() as u32;
        for claim in lock.queue.iter().take(100) {
            let waited_ms = clock_ms.saturating_sub(claim.since_ms);
            description.waiters.push(WaiterInfo {
                session: claim.session,
                owner: claim.owner.clone(),
                waited_ms,
            });
        }
        for &(revision, then_ms, kind, session, epoch) in lock.history.iter().rev().take(8) {
            let ago_ms = clock_ms.saturating_sub(then_ms);
            description.transitions.push(Transition { revision, kind, session, epoch: Epoch(epoch), ago_ms });
        }
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
                    holder: self.holder(lock, clock_ms),
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
        for s in self.sessions.iter().filter(|s| after.is_none_or(|after| s.id > after)) {
            let holds = |l: &&Lock| l.holder.as_ref().is_some_and(|c| c.session == s.id);
            let held = self.locks.values().filter(holds).count() as u32;
            all.push(SessionRow {
                session: s.id,
                owner: s.owner.clone(),
                incarnation: s.incarnation.clone(),
                ttl_ms: s.ttl_ms,
                held,
                waiting: self.claims_of(s.id).len() as u32 - held,
                values: self.values.of(s.id) as u32,
            });
        }
        let rows = rows.min(1_000) as usize;
        let more = all.len() > rows;
        all.truncate(rows);
        (all, more)
    }
}

fn bad_ticket() -> Reply {
    let reason = "tickets count 1, 2, 3 … and stay below 2^60".to_string();
    Reply::Refused(Refusal::BadRequest { reason })
}

fn tickets_full() -> Reply {
    let what = "open tickets and ranges of finished ones".to_string();
    Reply::Refused(Refusal::SessionFull { what, limit: 2_000 })
}

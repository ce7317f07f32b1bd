//! The witness check: a naive machine, written from the design alone, is replayed over the committed
//! log. Every answer a client gets must be the naive machine's answer to that command, at an index
//! that was not committed yet when the request arrived (so order respects real time); every push
//! must tell of something that happened; every read must show the naive machine's state at its
//! revision (R11; that the revision is new enough is the business of `reads.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use palisade_machine::model::Model;
use palisade_machine::{Applied, Command, Effect};
use palisade_types::reply::Consistency;
use palisade_types::{
    Block, Cause, ClusterLimits, Epoch, Fence, Key, LogIndex, Mode, OperatorAct, Outcome, Refusal, Reply,
    SessionId, SessionToken, Ticket, Time,
};
use palisade_wire::{Push, Query, Request};

use super::reads::mark_of;
use super::sessions::SessionsCheck;
use super::values::ValuesCheck;
use super::{Checked, Violation, demand};
use crate::links::Asked;
use crate::node::SHARD;

/// Whom an answer belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Claim(SessionId, Ticket),
    Session(SessionId),
    Token(SessionToken),
    /// An operator's action, as text.
    Act(String),
}

/// The witness.
pub struct Witness {
    model: Model,
    replayed: usize,
    index: LogIndex,
    /// The naive machine's answers, with their indexes.
    said: BTreeMap<Subject, Vec<(LogIndex, Reply)>>,
    granted: BTreeMap<(SessionId, Ticket), Fence>,
    /// Grants that an operator ended, of which their holders may not know yet.
    ousted: BTreeSet<(Key, Epoch)>,
    /// Claims whose key an operator took away.
    forced: BTreeSet<(SessionId, Ticket)>,
    /// The newest epoch of each key: it outlives the key's record.
    epochs: BTreeMap<Key, Epoch>,
    opened: BTreeMap<SessionId, SessionToken>,
    ended: BTreeMap<SessionId, Cause>,
    /// Reads to be compared when the run is over, by their revision.
    read: BTreeMap<LogIndex, Vec<(Request, Reply)>>,
    values: ValuesCheck,
    limits: ClusterLimits,
    answers: u64,
    over_quota: u64,
    outcomes: BTreeMap<(&'static str, &'static str), u64>,
}

impl Witness {
    /// A witness of an empty log.
    pub fn new(limits: ClusterLimits) -> Witness {
        Witness {
            model: Model::new(limits, SHARD),
            replayed: 0,
            index: LogIndex(0),
            said: BTreeMap::new(),
            granted: BTreeMap::new(),
            ousted: BTreeSet::new(),
            forced: BTreeSet::new(),
            epochs: BTreeMap::new(),
            opened: BTreeMap::new(),
            ended: BTreeMap::new(),
            read: BTreeMap::new(),
            values: ValuesCheck::default(),
            limits,
            answers: 0,
            over_quota: 0,
            outcomes: BTreeMap::new(),
        }
    }

    /// Whether an operator ended this grant, so that its holder may believe in it in vain.
    pub fn ousted(&self, fence: &Fence) -> bool {
        self.ousted.contains(&(fence.key().clone(), fence.epoch()))
    }

    /// The newest epoch at which the log grants a key, as far as it was taken in; 0 before any.
    pub fn last_epoch(&self, key: &Key) -> Epoch {
        self.epochs.get(key).copied().unwrap_or_default()
    }

    /// How many grants operators ended.
    pub fn ousted_count(&self) -> u64 {
        self.ousted.len() as u64
    }

    /// Ended sessions whose keys are in quarantine, as far as the log was taken in.
    pub fn quarantined(&self) -> Vec<SessionId> {
        let (rows, _) = self.model.list_sessions(None, 1_000);
        rows.into_iter().filter(|row| row.quarantined).map(|row| row.session).collect()
    }

    /// How often each command got each kind of answer in the log.
    pub fn outcomes(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.outcomes
    }

    /// How many answers were compared.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// How many different puts were acknowledged.
    pub fn puts(&self) -> u64 {
        self.values.acknowledged
    }

    /// How many requests the quota on the state refused.
    pub fn over_quota(&self) -> u64 {
        self.over_quota
    }

    /// Takes in what was committed meanwhile. `blocks` is the whole committed log.
    ///
    /// # Errors
    /// S5 when a session ends before its client's lease has.
    pub fn replay(&mut self, now: Time, blocks: &[Block], sessions: &mut SessionsCheck) -> Checked {
        while let Some(block) = blocks.get(self.replayed) {
            self.replayed += 1;
            for (place, command) in block.commands().enumerate() {
                self.index = LogIndex(block.first().0 + place as u64);
                self.apply(now, block.clock_ms(), command, sessions)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, now: Time, clock_ms: u64, command: &[u8], sessions: &mut SessionsCheck) -> Checked {
        let mut effects = Vec::new();
        self.model
            .apply(Applied { index: self.index, clock_ms }, command, &mut effects)
            .map_err(|e| Violation::new("R5", e.to_string()))?;
        let decoded = if command.is_empty() { None } else { Command::decode(command).ok() };
        decoded.iter().for_each(|command| self.values.on_command(command));
        let kind = decoded.as_ref().map_or("nothing", kind_of_command);
        let subject = decoded.and_then(subject_of_command);
        for effect in effects {
            match effect {
                Effect::Reply(reply) => {
                    if let Reply::Granted { session, ticket, fence } = &reply {
                        self.on_grant(*session, *ticket, fence)?;
                    }
                    *self.outcomes.entry((kind, kind_of_reply(&reply))).or_default() += 1;
                    if let Some(subject) = subject.clone() {
                        self.said.entry(subject).or_default().push((self.index, reply));
                    }
                }
                Effect::Granted { session, ticket, fence } => self.on_grant(session, ticket, &fence)?,
                Effect::Forced { session, ticket } => {
                    self.forced.insert((session, ticket));
                    self.oust(session, ticket..=ticket);
                }
                Effect::SessionOpened { session, ttl_ms } => {
                    sessions.on_opened(now, session, ttl_ms);
                    if let Some(Subject::Token(token)) = &subject {
                        self.opened.insert(session, *token);
                    }
                }
                Effect::SessionEnded { session, cause } => {
                    self.ended.insert(session, cause);
                    self.values.on_ended(session, self.index);
                    if matches!(cause, Cause::ReportedDead { .. } | Cause::Evicted { .. }) {
                        self.oust(session, Ticket(0)..=Ticket(u64::MAX));
                    }
                    sessions.on_ended(now, session, cause)?;
                }
            }
        }
        Ok(())
    }

    /// An operator ended what these tickets of a session were ever granted.
    fn oust(&mut self, session: SessionId, tickets: RangeInclusive<Ticket>) {
        let taken = self.granted.range((session, *tickets.start())..=(session, *tickets.end()));
        self.ousted.extend(taken.map(|(_, fence)| (fence.key().clone(), fence.epoch())));
    }

    /// The log grants a key: always under a higher epoch than ever before, unless it repeats itself.
    fn on_grant(&mut self, session: SessionId, ticket: Ticket, fence: &Fence) -> Checked {
        if self.granted.get(&(session, ticket)) == Some(fence) {
            return Ok(());
        }
        let newest = self.epochs.entry(fence.key().clone()).or_default();
        demand(fence.epoch() > *newest, "S2", || {
            format!("{fence} is granted to {session}/{ticket} after epoch {newest}")
        })?;
        *newest = fence.epoch();
        let before = self.granted.insert((session, ticket), fence.clone());
        demand(before.is_none(), "S8", || {
            format!("claim {session}/{ticket} is granted {before:?}, then {fence}")
        })
    }

    /// A node answers a request.
    ///
    /// # Errors
    /// S8 when the naive machine never said so, or not since the request arrived.
    pub fn on_reply(&mut self, asked: &Asked, reply: &Reply) -> Checked {
        self.answers += 1;
        let of_the_state = |refusal: &Refusal| matches!(refusal, Refusal::QuotaExceeded { what, .. } if what == "the state in bytes");
        self.over_quota += u64::from(matches!(reply, Reply::Refused(refusal) if of_the_state(refusal)));
        match (&asked.request, reply) {
            (_, Reply::Refused(refusal)) if is_the_shards(refusal) => Ok(()),
            (Request::Status, Reply::Status(_)) => Ok(()),
            (Request::Watch { .. }, Reply::Watching { .. } | Reply::Refused(Refusal::Compacted { .. })) => {
                Ok(())
            }
            (Request::Attach { session, token }, reply) => self.attached(*session, *token, reply),
            (Request::Renew { sessions }, Reply::Renewed { refused }) => {
                refused.iter().try_for_each(|refusal| match refusal {
                    Refusal::SessionEnded { session, cause } if sessions.contains(session) => {
                        self.is_ended(*session, *cause)
                    }
                    refusal => demand(is_the_shards(refusal), "S8", || format!("{asked:?} got {reply:?}")),
                })
            }
            (Request::Put { session, key, .. }, Reply::PutDone { revision, .. }) => {
                self.values.on_put(key, *session, *revision)?;
                self.said_since(asked, reply)
            }
            (Request::Read { .. }, reply) => {
                if let Some(read) = mark_of(reply) {
                    self.read.entry(read.revision).or_default().push((asked.request.clone(), reply.clone()));
                    if read.consistency == Consistency::Stale {
                        return Ok(());
                    }
                    return self.values_shown(asked, reply);
                }
                Err(Violation::new("S8", format!("{asked:?} got {reply:?}")))
            }
            _ => self.said_since(asked, reply),
        }
    }

    fn values_shown(&self, asked: &Asked, reply: &Reply) -> Checked {
        let arrived = asked.committed;
        match (&asked.request, reply) {
            (_, Reply::Value { read, row: Some(row) }) => self.values.on_row(arrived, read.revision, row),
            (Request::Read { query: Query::Get { key }, .. }, Reply::Value { read, row: None }) => {
                self.values.on_nothing(arrived, read.revision, key)
            }
            (_, Reply::Values { read, rows, .. }) => {
                rows.iter().try_for_each(|row| self.values.on_row(arrived, read.revision, row))
            }
            _ => Ok(()),
        }
    }

    fn attached(&self, session: SessionId, token: SessionToken, reply: &Reply) -> Checked {
        match reply {
            Reply::Attached { session: attached, .. } => {
                demand(session == *attached && self.opened.get(&session) == Some(&token), "S8", || {
                    format!("session {session} is attached, which was not opened with that token")
                })
            }
            Reply::Refused(Refusal::SessionEnded { session: ended, cause }) if *ended == session => {
                self.is_ended(session, *cause)
            }
            other => Err(Violation::new("S8", format!("an attach of {session} got {other:?}"))),
        }
    }

    /// The answer of apply: the same command, the same answer, after the request arrived.
    fn said_since(&mut self, asked: &Asked, reply: &Reply) -> Checked {
        let subject = subject_of_request(&asked.request);
        let known = subject.as_ref().and_then(|s| self.said.get(s)).map_or(&[][..], Vec::as_slice);
        let since = known.iter().filter(|(index, _)| *index > asked.committed);
        demand(since.clone().any(|(_, said)| same(said, reply)), "S8", || {
            format!("{:?} got {reply:?}, the model said {:?}", asked.request, since.collect::<Vec<_>>())
        })
    }

    fn is_ended(&self, session: SessionId, cause: Cause) -> Checked {
        let known = self.ended.get(&session);
        demand(known.is_some_and(|k| *k == cause || cause == Cause::Forgotten), "S8", || {
            format!("session {session} is said to have ended ({cause}), the log says {known:?}")
        })
    }

    /// A node tells something unasked.
    ///
    /// # Errors
    /// S8 when it did not happen.
    pub fn on_push(&self, push: &Push) -> Checked {
        match push {
            Push::Granted { session, ticket, fence } => {
                demand(self.granted.get(&(*session, *ticket)) == Some(fence), "S8", || {
                    format!("{push:?} is in no committed log")
                })
            }
            Push::Finished { session, ticket, outcome: Outcome::Forced } => {
                demand(self.forced.contains(&(*session, *ticket)), "S8", || {
                    format!("{push:?} is in no committed log")
                })
            }
            Push::Finished { session, ticket, outcome } => {
                let said = self.said.get(&Subject::Claim(*session, *ticket));
                let fits = said.into_iter().flatten().any(|(_, reply)| outcome_of(reply) == Some(*outcome));
                demand(fits, "S8", || format!("{push:?} is in no committed log"))
            }
            Push::SessionEnded { session, cause } => self.is_ended(*session, *cause),
            // What watches are told is held against the log by its own check.
            Push::LeaderChanged { .. }
            | Push::Events { .. }
            | Push::Progress { .. }
            | Push::WatchEnded { .. } => Ok(()),
        }
    }

    /// The run is over: compares every read with the naive machine at its revision.
    ///
    /// # Errors
    /// R11.
    pub fn finish(&self, blocks: &[Block]) -> Checked {
        let mut model = Model::new(self.limits, SHARD);
        let mut effects = Vec::new();
        self.compare(&model, LogIndex(0))?;
        for block in blocks {
            for (place, command) in block.commands().enumerate() {
                let index = LogIndex(block.first().0 + place as u64);
                effects.clear();
                model
                    .apply(Applied { index, clock_ms: block.clock_ms() }, command, &mut effects)
                    .map_err(|e| Violation::new("R5", e.to_string()))?;
                self.compare(&model, index)?;
            }
        }
        Ok(())
    }

    fn compare(&self, model: &Model, index: LogIndex) -> Checked {
        for (request, reply) in self.read.get(&index).into_iter().flatten() {
            let Request::Read { query, .. } = request else { continue };
            demand(shows(model, query, reply), "R11", || format!("{request:?} at {index} got {reply:?}"))?;
        }
        Ok(())
    }
}

/// Whether an answer is what the model says, but for times.
fn shows(model: &Model, query: &Query, reply: &Reply) -> bool {
    match (query, reply) {
        (Query::Describe { key }, Reply::Described { description, .. }) => {
            timeless(model.describe(key, 0)) == timeless((**description).clone())
        }
        (Query::ListLocks { after, rows }, Reply::Locks { rows: shown, more, .. }) => {
            let (mut own, own_more) = model.list_locks(after.as_deref(), *rows, 0);
            let mut shown = shown.clone();
            for row in own.iter_mut().chain(&mut shown) {
                row.holder.iter_mut().for_each(|h| h.held_ms = 0);
            }
            own == shown && own_more == *more
        }
        (Query::ListSessions { after, rows }, Reply::Sessions { rows: shown, more, .. }) => {
            model.list_sessions(*after, *rows) == (shown.clone(), *more)
        }
        (Query::ListOperatorActs { after, rows }, Reply::OperatorActs { rows: shown, more, .. }) => {
            let (mut own, own_more) = model.list_operator_acts(*after, *rows, 0);
            let mut shown = shown.clone();
            own.iter_mut().chain(&mut shown).for_each(|row| row.ago_ms = 0);
            own == shown && own_more == *more
        }
        (Query::Get { key }, Reply::Value { row, .. }) => model.get(key) == *row,
        (Query::ListValues { prefix, after, rows }, Reply::Values { rows: shown, more, .. }) => {
            let prefix = prefix.as_deref().unwrap_or_default();
            model.list_values(prefix, after.as_deref(), *rows) == (shown.clone(), *more)
        }
        _ => false,
    }
}

/// Refusals that the shard makes by itself, without an entry in the log.
fn is_the_shards(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::NotLeader { .. }
        | Refusal::Interrupted { .. }
        | Refusal::Busy { .. }
        | Refusal::NotAttached { .. } => true,
        Refusal::QuotaExceeded { what, .. } => what == "the log",
        _ => false,
    }
}

fn subject_of_command(command: Command) -> Option<Subject> {
    match command {
        Command::OpenSession { token, .. } => Some(Subject::Token(token)),
        Command::EndSession { session, .. } => Some(Subject::Session(session)),
        Command::Acquire { session, ticket, .. }
        | Command::Release { session, ticket }
        | Command::Cancel { session, ticket, .. }
        | Command::Downgrade { session, ticket, .. }
        | Command::Campaign { session, ticket, .. }
        | Command::Proclaim { session, ticket, .. }
        | Command::Put { session, ticket, .. }
        | Command::Delete { session, ticket, .. } => Some(Subject::Claim(session, ticket)),
        Command::Operator { act, .. } => Some(Subject::Act(act.to_string())),
        Command::Sweep { .. } => None,
    }
}

fn kind_of_command(command: &Command) -> &'static str {
    match command {
        Command::OpenSession { .. } => "open",
        Command::EndSession { cause: Cause::Closed, .. } => "close",
        Command::EndSession { .. } => "expire",
        Command::Sweep { .. } => "sweep",
        Command::Acquire { mode: Mode::Exclusive, .. } => "acquire",
        Command::Acquire { mode: Mode::Shared, .. } => "acquire shared",
        Command::Release { .. } => "release",
        Command::Cancel { timeout: true, .. } => "time out",
        Command::Cancel { .. } => "cancel",
        Command::Downgrade { .. } => "downgrade",
        Command::Campaign { .. } => "campaign",
        Command::Proclaim { .. } => "proclaim",
        Command::Put { .. } => "put",
        Command::Delete { .. } => "delete",
        Command::Operator { act, .. } => match act {
            OperatorAct::ReportDead { .. } => "report dead",
            OperatorAct::Evict { .. } => "evict",
            OperatorAct::ForceRelease { .. } => "force release",
            OperatorAct::Retire { .. } => "retire",
        },
    }
}

fn kind_of_reply(reply: &Reply) -> &'static str {
    match reply {
        Reply::Opened { .. } => "opened",
        Reply::SessionClosed { .. } => "closed",
        Reply::Granted { .. } => "granted",
        Reply::Queued { .. } => "queued",
        Reply::Denied { .. } => "denied",
        Reply::Finished { outcome, .. } => match outcome {
            Outcome::Unknown => "long finished",
            Outcome::Released => "released",
            Outcome::Cancelled => "cancelled",
            Outcome::TimedOut => "timed out",
            Outcome::Denied => "was denied",
            Outcome::Refused => "was refused",
            Outcome::Forced => "was forced",
            Outcome::Downgraded => "was downgraded",
            Outcome::Done => "done",
        },
        Reply::OperatorDone { .. } => "acted",
        Reply::PutDone { .. } => "put",
        Reply::Deleted { .. } => "deleted",
        Reply::Refused(refusal) => match refusal {
            Refusal::SessionEnded { .. } => "session ended",
            Refusal::SessionFull { .. } => "session full",
            Refusal::QuotaExceeded { .. } => "quota",
            Refusal::ClassMismatch { .. } => "class",
            Refusal::TicketMismatch { .. } => "mismatch",
            Refusal::TicketFinished { .. } => "ticket finished",
            Refusal::NotHeld { .. } => "not held",
            Refusal::NotAtEpoch { .. } => "not at epoch",
            Refusal::OwnedByOther { .. } => "owned by other",
            Refusal::InUse => "in use",
            Refusal::BadRequest { .. } => "bad request",
            Refusal::NotLeader { .. }
            | Refusal::Interrupted { .. }
            | Refusal::Busy { .. }
            | Refusal::Compacted { .. }
            | Refusal::ClusterReset
            | Refusal::NotAttached { .. } => "not apply's",
        },
        _ => "not apply's",
    }
}

fn subject_of_request(request: &Request) -> Option<Subject> {
    match request {
        Request::OpenSession { token, .. } => Some(Subject::Token(*token)),
        Request::CloseSession { session } => Some(Subject::Session(*session)),
        Request::Acquire { session, ticket, .. }
        | Request::Release { session, ticket }
        | Request::Cancel { session, ticket }
        | Request::Downgrade { session, ticket, .. }
        | Request::Campaign { session, ticket, .. }
        | Request::Proclaim { session, ticket, .. }
        | Request::Put { session, ticket, .. }
        | Request::Delete { session, ticket, .. } => Some(Subject::Claim(*session, *ticket)),
        Request::Operate { act, .. } => Some(Subject::Act(act.to_string())),
        _ => None,
    }
}

fn outcome_of(reply: &Reply) -> Option<Outcome> {
    match reply {
        Reply::Finished { outcome, .. } => Some(*outcome),
        _ => None,
    }
}

/// Whether two answers are the same, but for what only the leader knows.
fn same(said: &Reply, reply: &Reply) -> bool {
    match (said, reply) {
        (Reply::Opened { session: a, ttl_ms: b, .. }, Reply::Opened { session: c, ttl_ms: d, .. }) => {
            (a, b) == (c, d)
        }
        (said, reply) => said == reply,
    }
}

/// A description without its times, which are the leader's to tell.
fn timeless(mut d: palisade_types::Description) -> palisade_types::Description {
    d.holders.iter_mut().for_each(|h| h.held_ms = 0);
    d.waiters.iter_mut().for_each(|w| w.waited_ms = 0);
    d.transitions.iter_mut().for_each(|t| t.ago_ms = 0);
    d
}

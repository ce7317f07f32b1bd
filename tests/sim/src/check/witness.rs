//! The witness check: a naive machine, written from the design alone, is replayed over the committed
//! log. Every answer a client gets must be the naive machine's answer to that command, at an index
//! that was not committed yet when the request arrived (so order respects real time); every push
//! must tell of something that happened; every read must show the naive machine's state at its
//! revision (R11; that the revision is new enough is the business of `reads.rs`).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use palisade_machine::model::Model;
use palisade_machine::{Applied, Command, Effect};
use palisade_types::limits::{TTL_MAX, TTL_MIN};
use palisade_types::reply::Consistency;
use palisade_types::{
    Block, Cause, Class, ClusterLimits, Epoch, Fence, Key, LogIndex, Mode, Name, Outcome, Refusal, Reply,
    SessionId, SessionToken, Ticket, Time,
};
use palisade_wire::{Push, Query, Request};

use super::outcomes::{
    Counts, LOG_FULL, kind_of_command, kind_of_reply, kind_of_request, kind_of_service,
    kind_of_service_refusal,
};
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
    /// A key's claim to a resource.
    Resource(Name, Key),
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
    /// Claims to resources that were acknowledged, and those of them without a command in the log.
    claims: u64,
    claims_read: u64,
    over_quota: u64,
    outcomes: Counts,
    served: Counts,
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
            claims: 0,
            claims_read: 0,
            over_quota: 0,
            outcomes: Counts::new(),
            served: Counts::new(),
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
    pub fn outcomes(&self) -> &Counts {
        &self.outcomes
    }

    /// How often requests got each kind of answer that is not from the log.
    pub fn served(&self) -> &Counts {
        &self.served
    }

    /// Whether a request was refused because the log had reached its limit.
    pub fn log_was_full(&self) -> bool {
        self.served.keys().any(|(_, answer)| *answer == LOG_FULL)
    }

    /// How many answers were compared.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// How many different puts were acknowledged.
    pub fn puts(&self) -> u64 {
        self.values.acknowledged
    }

    /// How many claims to resources were acknowledged, and how many of them without a command in the log.
    pub fn resource_claims(&self) -> (u64, u64) {
        (self.claims, self.claims_read)
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
        self.count_service(&asked.request, reply);
        match (&asked.request, reply) {
            (_, Reply::Refused(refusal)) if is_the_shards(refusal) => Ok(()),
            (request, Reply::Refused(Refusal::BadRequest { .. })) if self.is_bad(request) => Ok(()),
            (Request::Status, Reply::Status(_)) | (Request::Unwatch { .. }, Reply::Unwatched { .. }) => {
                Ok(())
            }
            (
                Request::Watch { .. },
                Reply::Watching { .. }
                | Reply::Refused(
                    Refusal::Compacted { .. } | Refusal::ClusterReset | Refusal::BadRequest { .. },
                ),
            ) => Ok(()),
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
            // Said by apply, or read from the applied state: either way it shows the state of its revision.
            (Request::ClaimResource { .. }, Reply::ResourceClaimed { revision, .. }) => {
                self.read.entry(*revision).or_default().push((asked.request.clone(), reply.clone()));
                self.claims += 1;
                if !self.is_said(asked, *revision) {
                    self.claims_read += 1;
                    let kind = kind_of_request(&asked.request);
                    *self.served.entry((kind, kind_of_service(reply))).or_default() += 1;
                }
                demand(*revision >= asked.committed, "R11", || {
                    format!("{asked:?} is answered as of {revision}, before it arrived")
                })
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

    /// Counts an answer that is not from the log.
    fn count_service(&mut self, request: &Request, reply: &Reply) {
        let of_apply = match reply {
            Reply::Refused(Refusal::BadRequest { .. }) => {
                !self.is_bad(request) && subject_of_request(request).is_some()
            }
            Reply::Refused(refusal) => !is_the_shards(refusal) && subject_of_request(request).is_some(),
            _ => subject_of_request(request).is_some(),
        };
        if of_apply {
            return;
        }
        let kind = kind_of_request(request);
        *self.served.entry((kind, kind_of_service(reply))).or_default() += 1;
        if let Reply::Renewed { refused } = reply {
            for refusal in refused {
                *self.served.entry((kind, kind_of_service_refusal(refusal))).or_default() += 1;
            }
        }
    }

    /// Whether a request breaks a rule that the shard looks after by itself.
    fn is_bad(&self, request: &Request) -> bool {
        let elsewhere = |session: &SessionId| session.shard != SHARD;
        let ttl = |ttl_ms: u32| Duration::from_millis(u64::from(ttl_ms));
        match request {
            Request::OpenSession { ttl_ms, .. } => {
                *ttl_ms > 0 && !(TTL_MIN..=TTL_MAX).contains(&ttl(*ttl_ms))
            }
            Request::Attach { session, token } => self.opened.get(session).is_some_and(|own| own != token),
            Request::Acquire { session, class, resource, .. } => {
                elsewhere(session) || (*class == Class::Fenced && resource.is_none())
            }
            Request::Read { query, .. } => query.rows() == Some(0),
            Request::Operate { act, .. } => act.ends().as_ref().is_some_and(elsewhere),
            Request::CloseSession { session }
            | Request::Release { session, .. }
            | Request::Cancel { session, .. }
            | Request::Downgrade { session, .. }
            | Request::Campaign { session, .. }
            | Request::Proclaim { session, .. }
            | Request::Put { session, .. }
            | Request::Delete { session, .. } => elsewhere(session),
            _ => false,
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

    /// Whether the log holds this claim to a resource at that revision.
    fn is_said(&self, asked: &Asked, revision: LogIndex) -> bool {
        let said = subject_of_request(&asked.request).and_then(|subject| self.said.get(&subject));
        said.is_some_and(|said| said.iter().any(|(index, _)| *index == revision))
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
        // Of what never was nobody can tell it from what was forgotten.
        let forgotten = cause == Cause::Forgotten && (known.is_some() || !self.opened.contains_key(&session));
        demand(forgotten || known == Some(&cause), "S8", || {
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
            let holds = match request {
                Request::Read { query, .. } => shows(model, query, reply),
                Request::ClaimResource { resource, key } => {
                    let on_record = model.claims_resource(resource, key);
                    on_record && model.resource_claimed(index, resource, key) == *reply
                }
                _ => continue,
            };
            demand(holds, "R11", || format!("{request:?} at {index} got {reply:?}"))?;
            demand(one_leads(reply), "S9", || format!("several lead: {reply:?}"))?;
        }
        Ok(())
    }
}

/// Whether nobody leads an election beside another, and each leads it alone.
fn one_leads(reply: &Reply) -> bool {
    let alone = |class: Class, holding: u32, mode: Option<Mode>| {
        class != Class::Election || (holding <= 1 && mode != Some(Mode::Shared))
    };
    match reply {
        Reply::Described { description: d, .. } => {
            d.class.is_none_or(|class| alone(class, d.holding, d.holders.first().map(|h| h.mode)))
        }
        Reply::Locks { rows, .. } => {
            rows.iter().all(|row| alone(row.class, row.holding, row.holder.as_ref().map(|h| h.mode)))
        }
        _ => true,
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
        (Query::ListResources { conflicts, after, rows }, Reply::Resources { rows: shown, more, .. }) => {
            model.list_resources(*conflicts, after.as_deref(), *rows) == (shown.clone(), *more)
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
        | Refusal::NotAVoter { .. }
        | Refusal::OtherTerm { .. }
        | Refusal::NotHandedOver { .. }
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
        Command::ClaimResource { resource, key } => Some(Subject::Resource(resource, key)),
        Command::Sweep { .. } => None,
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
        Request::ClaimResource { resource, key } => Some(Subject::Resource(resource.clone(), key.clone())),
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

//! The machine: its parts, its one way in, and its queries.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use foldhash::fast::FixedState;
use palisade_types::{
    Cause, Class, ClusterLimits, DecodeError, Epoch, Event, Fence, Key, LogIndex, Mode, Mutants, Name,
    OnDeath, Refusal, Reply, SessionId, SessionToken, ShardId, Ticket, Value,
};

use crate::claims::{Claims, List, State, flag};
use crate::command::CommandRef;
use crate::election::Candidates;
use crate::ended::Ended;
use crate::holders::Holders;
use crate::locks::{Locks, When};
use crate::operate::{Acts, Order};
use crate::resources::Resources;
use crate::session::{Session, Sessions};
use crate::slab::Slot;
use crate::snapshot::Freeze;
use crate::values::Values;

/// Where in the log a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its index: the revision.
    pub index: LogIndex,
    /// The cluster's clock of its block, in milliseconds. For information only.
    pub clock_ms: u64,
}

/// What applying a command asks to be done or said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The answer to the command itself. Comes first; exactly one for every command but the empty
    /// one and the sweep, which nobody asked for.
    Reply(Reply),
    /// A waiter now holds the key, by another's release or end.
    Granted {
        /// Whose claim.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
        /// What to show the resource.
        fence: Fence,
    },
    /// An operator took a claim's key away; its session lives on.
    Forced {
        /// Whose claim.
        session: SessionId,
        /// Which claim.
        ticket: Ticket,
    },
    /// A session was opened: its clock starts. Not repeated when its open is.
    SessionOpened {
        /// Its id.
        session: SessionId,
        /// Its TTL in milliseconds.
        ttl_ms: u32,
    },
    /// A session has ended. Said once for each.
    SessionEnded {
        /// Its id.
        session: SessionId,
        /// Why.
        cause: Cause,
    },
}

/// A committed command that cannot be applied: damage, or a bug. The node must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command at {index} does not decode: {error}")]
pub struct ApplyError {
    /// Where.
    pub index: LogIndex,
    /// What is wrong.
    pub error: DecodeError,
}

/// A live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView<'a> {
    /// Its id.
    pub session: SessionId,
    /// Its TTL in milliseconds.
    pub ttl_ms: u32,
    /// What proves its ownership.
    pub token: SessionToken,
    /// Its owner tag.
    pub owner: Option<&'a Name>,
    /// Its incarnation tag.
    pub incarnation: Option<&'a Name>,
    /// Keys it holds.
    pub held: u32,
    /// Keys it waits for.
    pub waiting: u32,
    /// It has ended, and keys that it held are in quarantine.
    pub quarantined: bool,
    /// Ephemeral keys it has put.
    pub values: u32,
}

/// An open claim of a live session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimView {
    /// It holds its key, under this fence.
    Held(Fence),
    /// It stands in the queue.
    Queued,
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Live sessions.
    pub sessions: u64,
    /// Records of keys.
    pub keys: u64,
    /// Those of them that nobody holds.
    pub idle_keys: u64,
    /// Keys held or awaited, those of ended sessions included.
    pub claims: u64,
    /// Keys of ended sessions still to be released.
    pub backlog: u64,
    /// Ended sessions whose keys are in quarantine.
    pub quarantined_sessions: u64,
    /// Ephemeral keys, those of ended sessions included.
    pub values: u64,
    /// Bytes of their names and values.
    pub value_bytes: u64,
    /// See [`Machine::state_bytes`].
    pub state_bytes: u64,
    /// Ends of sessions remembered.
    pub ended_sessions: u64,
    /// Resources that keys claim to protect.
    pub resources: u64,
    /// Those of them that several keys claim.
    pub resource_conflicts: u64,
    /// Claims of keys to resources.
    pub resource_claims: u64,
}

impl Applied {
    pub(crate) fn when(self) -> When {
        When { revision: self.index, clock_ms: self.clock_ms }
    }
}

/// What an acquire asks for.
pub(crate) struct Wish {
    pub(crate) key: Wanted,
    pub(crate) class: Class,
    pub(crate) resource: Option<Name>,
    /// See [`flag`].
    pub(crate) flags: u8,
    /// Of a campaign.
    pub(crate) value: Option<Value>,
}

impl Wish {
    pub(crate) fn value_bytes(&self) -> u64 {
        self.value.as_ref().map_or(0, |value| value.len() as u64)
    }
}

/// The key that an acquire asks for.
pub(crate) enum Wanted {
    /// It has a record.
    Known(Slot),
    /// It has none.
    New(Key),
}

/// The state of one shard.
pub struct Machine {
    pub(crate) limits: ClusterLimits,
    pub(crate) shard: ShardId,
    pub(crate) mutants: Mutants,
    /// The index of the last command applied.
    pub(crate) applied: LogIndex,
    pub(crate) sessions: Sessions,
    pub(crate) ended: Ended,
    pub(crate) locks: Locks,
    pub(crate) claims: Claims,
    pub(crate) holders: Holders,
    /// What campaigns say.
    pub(crate) candidates: Candidates,
    /// Keys whose waiters may enter as soon as an entry has room, in the order in which they are let in.
    pub(crate) due: VecDeque<Slot>,
    /// Waiters that this entry has let in beside other holders.
    pub(crate) shared_grants: u32,
    /// Keys of ended sessions that somebody waits for, and those that nobody waits for.
    pub(crate) wanted: List,
    pub(crate) unwanted: List,
    /// What operators did.
    pub(crate) acts: Acts,
    pub(crate) values: Values,
    /// Which keys claim to protect which resources.
    pub(crate) resources: Resources,
    /// What the last command changed, for those who watch.
    pub(crate) news: Vec<Event>,
    /// While a snapshot is taken.
    pub(crate) frozen: Option<Box<Freeze>>,
}

impl Machine {
    /// An empty machine. The seed of the hash maps changes nothing that can be seen.
    pub fn new(limits: ClusterLimits, shard: ShardId, hash_seed: u64, mutants: Mutants) -> Machine {
        let hasher = FixedState::with_seed(hash_seed);
        Machine {
            limits,
            shard,
            mutants,
            applied: LogIndex(0),
            sessions: Sessions::new(hasher),
            ended: Ended::new(limits.ended_sessions, hasher),
            locks: Locks::new(limits.idle_keys, hasher),
            claims: Claims::new(),
            holders: Holders::new(),
            candidates: Candidates::default(),
            due: VecDeque::new(),
            shared_grants: 0,
            wanted: List::EMPTY,
            unwanted: List::EMPTY,
            acts: Acts::default(),
            values: Values::default(),
            resources: Resources::default(),
            news: Vec::new(),
            frozen: None,
        }
    }

    /// Applies the command at the next index and appends its effects. No bytes: does nothing.
    ///
    /// # Errors
    /// [`ApplyError`] when the bytes are no command; the node must stop.
    ///
    /// # Panics
    /// When the index is not above all indexes before it.
    pub fn apply(
        &mut self,
        at: Applied,
        command: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Result<(), ApplyError> {
        assert!(at.index > self.applied, "commands are applied once, in order");
        self.applied = at.index;
        self.shared_grants = 0;
        self.news.clear();
        if command.is_empty() {
            return Ok(());
        }
        let refuse = |error| ApplyError { index: at.index, error };
        match CommandRef::decode(command).map_err(refuse)? {
            CommandRef::OpenSession { token, ttl_ms, owner, incarnation } => {
                self.open_session(at, token, ttl_ms, [owner, incarnation], effects);
            }
            CommandRef::EndSession { session, cause, release_now } => {
                self.end_session(at, session, cause, release_now, effects);
            }
            CommandRef::Sweep { releases } => self.sweep(at, releases, effects),
            CommandRef::Acquire { session, ticket, key, class, resource, mode, wait, on_death } => {
                let (key, resource) = self.wanted(key, resource).map_err(refuse)?;
                let flags = flags(mode, wait, on_death);
                self.acquire(at, session, ticket, Wish { key, class, resource, flags, value: None }, effects);
            }
            CommandRef::Release { session, ticket } => self.release(at, session, ticket, effects),
            CommandRef::Cancel { session, ticket, timeout } => {
                self.cancel(at, session, ticket, timeout, effects);
            }
            CommandRef::Operator { by, reason, act, release_now } => {
                let order = Order::new(by, reason, act).map_err(|e| refuse(e.into()))?;
                self.operate(at, order, release_now, effects);
            }
            CommandRef::Downgrade { session, ticket, holds } => {
                self.downgrade(at, session, ticket, holds, effects);
            }
            CommandRef::Campaign { session, ticket, key, value, wait } => {
                let (key, _) = self.wanted(key, None).map_err(refuse)?;
                let flags = flags(Mode::Exclusive, wait, OnDeath::Release);
                let value = Some(Value::from(value));
                let wish = Wish { key, class: Class::Election, resource: None, flags, value };
                self.acquire(at, session, ticket, wish, effects);
            }
            CommandRef::Proclaim { session, ticket, leads, value } => {
                effects.push(Effect::Reply(self.proclaim(session, ticket, leads, Value::from(value))));
            }
            CommandRef::Put { session, ticket, key, value } => {
                let reply = self.put(at, session, ticket, key, value);
                effects.push(Effect::Reply(reply));
            }
            CommandRef::Delete { session, ticket, key } => {
                let reply = self.delete(session, ticket, key);
                effects.push(Effect::Reply(reply));
            }
            CommandRef::ClaimResource { resource, key } => {
                let reply = self.claim_resource(at, resource, key);
                effects.push(Effect::Reply(reply));
            }
        }
        Ok(())
    }

    /// The names of an acquire: shared with the key's record as far as that has the same, as it mostly
    /// has, and else checked.
    fn wanted(&self, key: &[u8], resource: Option<&[u8]>) -> Result<(Wanted, Option<Name>), DecodeError> {
        let Some(slot) = self.locks.find(key) else {
            let resource = resource.map(Name::from_bytes).transpose()?;
            return Ok((Wanted::New(Key::from_bytes(key)?), resource));
        };
        let resource = match (resource, &self.locks.records[slot].resource) {
            (None, _) => None,
            (Some(text), Some(known)) if known.as_bytes() == text => Some(known.clone()),
            (Some(text), _) => Some(Name::from_bytes(text)?),
        };
        Ok((Wanted::Known(slot), resource))
    }

    /// A live session.
    pub fn session(&self, session: SessionId) -> Option<SessionView<'_>> {
        let slot = self.find_session(session)?;
        Some(self.view(&self.sessions.records[slot]))
    }

    /// The live session with this token.
    pub fn session_by_token(&self, token: SessionToken) -> Option<SessionView<'_>> {
        let slot = self.sessions.find_token(token)?;
        Some(self.view(&self.sessions.records[slot]))
    }

    /// Why a session ended, while that is remembered.
    pub fn ended(&self, session: SessionId) -> Option<Cause> {
        if session.shard != self.shard {
            return None;
        }
        Some(self.ended.find(session.opened)?.cause)
    }

    /// The live sessions, in the order of their ids.
    pub fn sessions_iter(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.sessions.after(LogIndex(0)).map(|session| self.view(session))
    }

    /// An open claim of a live session.
    pub fn claim(&self, session: SessionId, ticket: Ticket) -> Option<ClaimView> {
        let slot = self.find_session(session)?;
        let claim = self.sessions.records[slot].open.find(ticket)?;
        Some(match self.claims.records[claim].state {
            State::Queued => ClaimView::Queued,
            State::Held | State::Ending | State::Quarantined => ClaimView::Held(self.fence(claim)),
        })
    }

    /// The claims of a live session whose keys an operator took away, as far as that is kept. For
    /// whoever may have missed the news.
    pub fn forced(&self, session: SessionId) -> impl Iterator<Item = Ticket> {
        let record = self.find_session(session).map(|slot| &self.sessions.records[slot]);
        record.into_iter().flat_map(|record| record.tickets.forced())
    }

    /// Keys of ended sessions still to be released by sweeps.
    pub fn backlog_len(&self) -> usize {
        self.wanted.len as usize + self.unwanted.len as usize + self.values.ending_len()
    }

    /// Whether there is something left that sweeps go on with: keys of ended sessions, or waiters that
    /// may enter a shared key.
    pub fn has_backlog(&self) -> bool {
        self.backlog_len() > 0 || !self.due.is_empty()
    }

    /// How much there is of everything.
    pub fn counts(&self) -> Counts {
        Counts {
            sessions: self.sessions.live() as u64,
            keys: self.locks.records.len() as u64,
            idle_keys: u64::from(self.locks.idle_len()),
            claims: self.claims.records.len() as u64,
            backlog: self.backlog_len() as u64,
            quarantined_sessions: self.sessions.quarantined() as u64,
            values: self.values.len() as u64,
            value_bytes: self.values.bytes(),
            state_bytes: self.state_bytes(),
            ended_sessions: self.ended.len() as u64,
            resources: self.resources.resources_len() as u64,
            resource_conflicts: self.resources.conflicts_len() as u64,
            resource_claims: self.resources.len() as u64,
        }
    }

    /// The highest epoch of all reclaimed records: a key without a record starts above it.
    pub fn epoch_floor(&self) -> Epoch {
        self.locks.epoch_floor
    }

    /// The index of the last command applied.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// Which shard's state this is.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    pub(crate) fn find_session(&self, session: SessionId) -> Option<Slot> {
        if session.shard != self.shard {
            return None;
        }
        self.sessions.find(session.opened)
    }

    /// What a session gets to hear that is not among the living.
    pub fn gone(&self, session: SessionId) -> Refusal {
        Refusal::SessionEnded { session, cause: self.ended(session).unwrap_or(Cause::Forgotten) }
    }

    /// What a command of a session gets that is not among the living.
    pub(crate) fn not_live(&self, session: SessionId) -> Reply {
        Reply::Refused(self.gone(session))
    }

    pub(crate) fn id(&self, opened: LogIndex) -> SessionId {
        SessionId { shard: self.shard, opened }
    }

    pub(crate) fn view<'a>(&self, session: &'a Session) -> SessionView<'a> {
        SessionView {
            session: self.id(session.opened),
            ttl_ms: session.ttl_ms(),
            token: session.token,
            owner: session.owner.as_ref(),
            incarnation: session.incarnation.as_ref(),
            held: session.open.held,
            waiting: session.waiting(),
            quarantined: !session.is_live(),
            values: session.values(),
        }
    }
}

/// What a claim remembers of the way it was asked for.
#[inline]
fn flags(mode: Mode, wait: bool, on_death: OnDeath) -> u8 {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    flag(wait, flag::WAIT)
        | flag(mode == Mode::Shared, flag::SHARED)
        | flag(on_death == OnDeath::Quarantine, flag::QUARANTINE)
}

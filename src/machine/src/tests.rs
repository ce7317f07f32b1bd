//! Tests of the whole machine. Every command of every test is also applied to the naive model and to
//! a machine with another hash seed, and all three must say the same.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use palisade_types::{
    Cause, Class, ClusterLimits, Description, Fence, Key, LogIndex, Mode, Mutants, Name, OnDeath, Outcome,
    Refusal, Reply, SessionId, SessionToken, ShardId, Standing, Ticket,
};

use crate::model::Model;
use crate::{Applied, Command, Effect, Machine};

mod command;
mod elections;
mod ends;
mod limits;
mod locks;
mod news;
mod operators;
mod quarantine;
mod random;
mod resources;
mod shared;
mod snapshot;
mod snapshot_damage;
mod tickets;
mod values;

const SHARD: ShardId = ShardId(4);

pub(crate) struct World {
    pub(crate) machine: Machine,
    twin: Machine,
    model: Model,
    watcher: news::Watcher,
    pub(crate) index: u64,
    pub(crate) clock_ms: u64,
    /// What was applied.
    log: Vec<(Applied, Vec<u8>)>,
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn acquire(session: SessionId, ticket: u64, key: &str, wait: bool) -> Command {
    acquire_as(session, ticket, key, Mode::Exclusive, wait)
}

pub(crate) fn acquire_as(session: SessionId, ticket: u64, key: &str, mode: Mode, wait: bool) -> Command {
    let (ticket, key, class) = (Ticket(ticket), name(key), Class::Advisory);
    let on_death = OnDeath::Release;
    Command::Acquire { session, ticket, key, class, resource: None, mode, wait, on_death }
}

impl World {
    pub(crate) fn new() -> World {
        World::with(ClusterLimits::default())
    }

    pub(crate) fn with(limits: ClusterLimits) -> World {
        World {
            machine: Machine::new(limits, SHARD, 1, Mutants::NONE),
            twin: Machine::new(limits, SHARD, 0xfeed, Mutants::NONE),
            model: Model::new(limits, SHARD),
            watcher: news::Watcher::default(),
            index: 0,
            clock_ms: 1_000,
            log: Vec::new(),
        }
    }

    /// Applies a command; gives its effects.
    pub(crate) fn apply(&mut self, command: &Command) -> Vec<Effect> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        self.index += 1;
        let at = Applied { index: LogIndex(self.index), clock_ms: self.clock_ms };
        let (mut effects, mut twins, mut models) = (Vec::new(), Vec::new(), Vec::new());
        // The twin is not warmed: warming changes nothing.
        self.machine.warm(&mut core::iter::once(&bytes[..]));
        self.machine.apply(at, &bytes, &mut effects).unwrap();
        self.twin.apply(at, &bytes, &mut twins).unwrap();
        self.watcher.learn(self.index, self.machine.news());
        assert_eq!(self.machine.news(), self.twin.news());
        self.model.apply(at, &bytes, &mut models).unwrap();
        assert_eq!(self.machine.news(), self.model.news(), "news of {command:?} at {}", self.index);
        assert_eq!(effects, models, "the machine and the model disagree on {command:?} at {}", self.index);
        assert_eq!(effects, twins, "the hash seed shows at {}", self.index);
        self.log.push((at, bytes));
        let replies = effects.iter().filter(|e| matches!(e, Effect::Reply(_))).count();
        assert_eq!(replies, usize::from(!matches!(command, Command::Sweep { .. })), "one reply each");
        assert!(effects.iter().skip(1).all(|e| !matches!(e, Effect::Reply(_))) || replies == 0, "and first");
        effects
    }

    /// Asserts that machine and model look the same from every side.
    pub(crate) fn compare(&self, keys: &[Key]) {
        self.machine.check();
        assert_eq!(self.machine.digest(), self.twin.digest());
        assert_eq!(self.machine.state_bytes(), self.model.state_bytes());
        self.watcher.compare(&self.model, &self.machine);
        for key in keys {
            let description = self.machine.describe(key, self.clock_ms);
            assert_eq!(description, self.model.describe(key, self.clock_ms));
            if description.class.is_none() {
                assert_eq!(self.machine.epoch_floor(), description.epoch);
            }
            assert_eq!(self.machine.get(key), self.model.get(key));
        }
        for (prefix, after, rows) in
            [("", None, 5_000), ("", Some("key 2"), 2), ("key 1", None, 3), ("key 1", Some("a"), 0)]
        {
            let page = self.machine.list_values(prefix, after, rows);
            assert_eq!(page, self.model.list_values(prefix, after, rows));
        }
        for conflicts in [false, true] {
            for (after, rows) in [(None, 5_000), (None, 1), (Some("bucket"), 2), (Some("c"), 0)] {
                let page = self.machine.list_resources(conflicts, after, rows);
                assert_eq!(page, self.model.list_resources(conflicts, after, rows));
            }
        }
        assert_eq!(self.machine.backlog_len(), self.model.backlog_len());
        for (after, rows) in [(0, 2), (self.index / 2, 5_000)] {
            let page = self.machine.list_operator_acts(LogIndex(after), rows, self.clock_ms);
            assert_eq!(page, self.model.list_operator_acts(LogIndex(after), rows, self.clock_ms));
        }
        for rows in [0, 1, 3, 5_000] {
            let (mut after, mut last) = (None, None);
            loop {
                let page = self.machine.list_locks(after.as_deref(), rows, self.clock_ms);
                assert_eq!(page, self.model.list_locks(after.as_deref(), rows, self.clock_ms));
                let sessions = self.machine.list_sessions(last, rows);
                assert_eq!(sessions, self.model.list_sessions(last, rows));
                if let Some(row) = sessions.0.last() {
                    last = Some(row.session);
                }
                let Some(row) = page.0.last().filter(|_| page.1) else { break };
                after = Some(row.key.clone());
            }
        }
    }

    /// The reply to a command.
    pub(crate) fn reply(&mut self, command: &Command) -> Reply {
        match self.apply(command).swap_remove(0) {
            Effect::Reply(reply) => reply,
            other => panic!("the reply comes first, not {other:?}"),
        }
    }

    pub(crate) fn refusal(&mut self, command: &Command) -> Refusal {
        match self.reply(command) {
            Reply::Refused(refusal) => refusal,
            other => panic!("expected a refusal, not {other:?}"),
        }
    }

    /// Opens a session whose token and owner tell its number.
    pub(crate) fn open(&mut self, number: u128) -> SessionId {
        let owner = Some(name(&alloc::format!("owner {number}")));
        let open = Command::OpenSession { token: SessionToken(number), ttl_ms: 0, owner, incarnation: None };
        match self.reply(&open) {
            Reply::Opened { session, .. } => session,
            other => panic!("expected a session, not {other:?}"),
        }
    }

    /// Acquires a key that is free; gives the fence.
    pub(crate) fn take(&mut self, session: SessionId, ticket: u64, key: &str) -> Fence {
        match self.reply(&acquire(session, ticket, key, false)) {
            Reply::Granted { session: s, ticket: t, fence } => {
                assert_eq!((s, t), (session, Ticket(ticket)));
                fence
            }
            other => panic!("expected a grant, not {other:?}"),
        }
    }

    /// Stands in the queue of a key that is held; gives the place.
    pub(crate) fn queue(&mut self, session: SessionId, ticket: u64, key: &str) -> u32 {
        match self.reply(&acquire(session, ticket, key, true)) {
            Reply::Queued { place, .. } => place,
            other => panic!("expected a place in the queue, not {other:?}"),
        }
    }

    /// Releases; gives who is granted the key in the same step.
    pub(crate) fn release(&mut self, session: SessionId, ticket: u64) -> Vec<(SessionId, Ticket)> {
        let effects = self.apply(&Command::Release { session, ticket: Ticket(ticket) });
        let outcome = Outcome::Released;
        assert_eq!(effects[0], Effect::Reply(Reply::Finished { session, ticket: Ticket(ticket), outcome }));
        granted(&effects)
    }

    pub(crate) fn end(&mut self, session: SessionId, cause: Cause, release_now: u32) -> Vec<Effect> {
        self.apply(&Command::EndSession { session, cause, release_now })
    }

    pub(crate) fn describe(&self, key: &str) -> Description {
        self.machine.check();
        self.machine.describe(&name(key), self.clock_ms)
    }

    pub(crate) fn holder(&self, key: &str) -> Option<SessionId> {
        self.describe(key).holders.first().map(|h| h.session)
    }
}

pub(crate) fn granted(effects: &[Effect]) -> Vec<(SessionId, Ticket)> {
    let grant = |e: &Effect| match e {
        Effect::Granted { session, ticket, .. } => Some((*session, *ticket)),
        _ => None,
    };
    effects.iter().filter_map(grant).collect()
}

//! Watches (DESIGN section 6): who watches what, what they have been told, and what is still known.
//!
//! Every replica serves them from what it applies itself. All watchers share one history; each has
//! but a place in it. A watcher is in one of these states:
//!
//! - **live**: it has been told everything, or will be when the news of its group come round to it;
//! - **behind**: it looks through the history by itself, in steps, until it is live: after a resume,
//!   or because its connection took no more for a while. Far behind, it is told only the newest change
//!   of each key in every step. Overtaken by the end of the history, its watch ends with `Resync`;
//! - **listing**: it is told the present state, page by page, and between pages what changes of the
//!   part that it has been told;
//! - **waiting**: it knows more than this node has applied.
//!
//! Work is done in slices: a turn makes a bounded number of deliveries and looks at a bounded number
//! of events, however many watch.

mod feed;
mod groups;
mod history;
mod scan;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_machine::Place;
use palisade_types::{
    ClusterIdentity, ConnId, Cursor, Event, LogIndex, Mutant, Mutants, Refusal, Reply, Selector, ShardId,
    Time,
};

pub(crate) use feed::Turn;
use groups::Groups;
use history::History;

/// How a node serves watches. Its own business: nothing of it is replicated.
#[derive(Clone, Copy, Debug)]
pub struct WatchConfig {
    /// Whose revisions it tells.
    pub cluster: ClusterIdentity,
    /// Events kept for those who come back. Default 100,000.
    pub history_events: usize,
    /// Bytes of them, at most. Default 64 MiB.
    pub history_bytes: usize,
    /// Watches of one connection. Default 1,000.
    pub per_connection: usize,
    /// Watches of this node. Default 200,000.
    pub per_node: usize,
    /// Deliveries in one turn. Default 1,000.
    pub deliveries_per_turn: usize,
    /// Events and records looked at in one turn. Default 16,384.
    pub looks_per_turn: usize,
    /// A watcher so many events behind is told only the newest change of each key; or such a part of the
    /// history's bytes, as this is of its events. Default 20,000.
    pub coalesce_behind: usize,
    /// Bytes for one connection in one turn, about. Default 256 KiB.
    pub bytes_per_turn: usize,
    /// An idle watch is told how far it has seen about so often. Default 5 s.
    pub progress: Duration,
}

impl Default for WatchConfig {
    fn default() -> WatchConfig {
        WatchConfig {
            cluster: ClusterIdentity::default(),
            history_events: 100_000,
            history_bytes: 64 << 20,
            per_connection: 1_000,
            per_node: 200_000,
            deliveries_per_turn: 1_000,
            looks_per_turn: 16_384,
            coalesce_behind: 20_000,
            bytes_per_turn: 256 << 10,
            progress: Duration::from_secs(5),
        }
    }
}

/// What was done so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounters {
    /// Pushes to watchers.
    pub deliveries: u64,
    /// Those of them that told only the newest change of each key.
    pub coalesced: u64,
    /// Watches that ended because their client was too slow.
    pub resyncs: u64,
    /// Watches that stand.
    pub watches: u64,
}

/// What a watcher is doing.
#[derive(Debug)]
enum State {
    Live,
    Behind,
    Listing(Place),
    /// For this revision; then it begins with the present state, or behind the revision.
    Waiting(LogIndex, bool),
}

/// A watch: a place in the history. Its memory does not depend on what happens.
#[derive(Debug)]
struct Watcher {
    conn: ConnId,
    /// The client's number for it.
    id: u64,
    group: usize,
    /// Where it stands in its group.
    place: usize,
    /// The number of the next event to tell.
    next: u64,
    /// All has been told up to here.
    upto: LogIndex,
    state: State,
    /// Something was told since the last look.
    spoke: bool,
}

/// A connection with watches.
#[derive(Debug, Default)]
struct Conn {
    /// By the client's numbers.
    watches: BTreeMap<u64, u64>,
    /// It takes no more at present.
    congested: bool,
    /// Watchers with something to do once it does.
    parked: Vec<u64>,
    /// Bytes told in the turn with this number.
    told: (u64, usize),
}

/// All watches of a shard, and its history.
pub(crate) struct Watches {
    config: WatchConfig,
    shard: ShardId,
    mutants: Mutants,
    history: History,
    groups: Groups,
    /// By their numbers, which are never used again; never iterated.
    watchers: HashMap<u64, Watcher, FixedState>,
    last_number: u64,
    conns: BTreeMap<ConnId, Conn>,
    /// Watchers that are behind or listing, each once.
    work: VecDeque<u64>,
    /// Watchers that wait, by the revision they wait for.
    waiting: BTreeSet<(LogIndex, u64)>,
    /// When to look whether a watcher has heard something.
    checks: VecDeque<(Time, u64)>,
    turn: u64,
    counters: WatchCounters,
}

impl Watches {
    /// Nobody watches, and nothing has happened.
    pub(crate) fn new(config: WatchConfig, shard: ShardId, hash_seed: u64, mutants: Mutants) -> Watches {
        Watches {
            history: History::new(config.history_events, config.history_bytes),
            config,
            shard,
            mutants,
            groups: Groups::default(),
            watchers: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            last_number: 0,
            conns: BTreeMap::new(),
            work: VecDeque::new(),
            waiting: BTreeSet::new(),
            checks: VecDeque::new(),
            turn: 0,
            counters: WatchCounters::default(),
        }
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> WatchCounters {
        WatchCounters { watches: self.watchers.len() as u64, ..self.counters }
    }

    /// Remembers what a command changed.
    pub(crate) fn record(&mut self, news: &[Event]) {
        for event in news {
            let number = self.history.push(event);
            if !self.watchers.is_empty() {
                self.groups.tell(event, number);
            }
        }
    }

    /// The state is another one now, or the first one is not of the beginning: what happened up to this
    /// revision is not known here. Whoever watches, and has not been told up to there, is overtaken:
    /// its watch ends with `Resync`; a cursor before it is answered `Compacted`.
    pub(crate) fn begin_behind(&mut self, revision: LogIndex) {
        if self.mutants.has(Mutant::S2) {
            return;
        }
        self.history.begin_behind(revision);
        self.groups.forget(self.history.start());
        let all: Vec<u64> = self.conns.values().flat_map(|conn| conn.watches.values()).copied().collect();
        for number in all {
            let is_live = |w: &Watcher| matches!(w.state, State::Live);
            if self.watchers.get(&number).is_some_and(is_live) {
                self.put_to_work(number, State::Behind);
            }
        }
    }

    /// Begins a watch. `applied` is the revision of this node's state.
    pub(crate) fn watch(&mut self, now: Time, applied: LogIndex, conn: ConnId, wish: Wish) -> Reply {
        let Wish { watch, selector, present, cursor } = wish;
        let from = match self.admit(conn, watch, cursor.as_ref(), present) {
            Ok(from) => from,
            Err(refusal) => return Reply::Refused(refusal),
        };
        self.last_number += 1;
        let (number, end) = (self.last_number, self.history.end());
        let group = self.groups.join(&selector, number, end);
        let place = self.groups.get(group).members.len() - 1;
        let upto = from.unwrap_or(applied);
        let watcher =
            Watcher { conn, id: watch, group, place, next: end, upto, state: State::Live, spoke: false };
        self.watchers.insert(number, watcher);
        self.conns.entry(conn).or_default().watches.insert(watch, number);
        self.checks.push_back((now + self.config.progress / 2, number));
        let waits = upto > applied && !self.mutants.has(Mutant::W3);
        match (waits, present) {
            (true, _) => {
                self.set_state(number, State::Waiting(upto, present));
                self.waiting.insert((upto, number));
            }
            (false, true) => self.put_to_work(number, State::Listing(Place::Start)),
            (false, false) if from.is_some() => self.go_on(number, upto),
            (false, false) => {}
        }
        Reply::Watching { watch, cluster: self.config.cluster, shard: self.shard, revision: upto }
    }

    /// The revision that a new watch goes on behind, if its cursor gives one.
    fn admit(
        &self,
        conn: ConnId,
        watch: u64,
        cursor: Option<&Cursor>,
        present: bool,
    ) -> Result<Option<LogIndex>, Refusal> {
        let quota = |what: &str, limit: usize| {
            Err(Refusal::QuotaExceeded { what: String::from(what), limit: limit as u64 })
        };
        let bad = |reason: &str| Err(Refusal::BadRequest { reason: String::from(reason) });
        if let Some(known) = self.conns.get(&conn) {
            if known.watches.contains_key(&watch) {
                return bad("that number is in use by another watch of this connection");
            }
            if known.watches.len() >= self.config.per_connection {
                return quota("watches of one connection", self.config.per_connection);
            }
        }
        if self.watchers.len() >= self.config.per_node {
            return quota("watches of this node", self.config.per_node);
        }
        let Some(cursor) = cursor else { return Ok(None) };
        if cursor.cluster != self.config.cluster {
            return Err(Refusal::ClusterReset);
        }
        let Some(revision) = cursor.revision(self.shard) else {
            return bad("the cursor names no revision of this shard");
        };
        let oldest = self.history.floor();
        if !present && revision < oldest && !self.mutants.has(Mutant::W2) {
            return Err(Refusal::Compacted { oldest });
        }
        Ok(Some(revision))
    }

    /// Ends a watch at its client's wish.
    pub(crate) fn unwatch(&mut self, conn: ConnId, watch: u64) -> Reply {
        if let Some(number) = self.conns.get(&conn).and_then(|c| c.watches.get(&watch)).copied() {
            self.remove(number);
        }
        Reply::Unwatched { watch }
    }

    /// A connection is closed, and its watches with it.
    pub(crate) fn close(&mut self, conn: ConnId) {
        let Some(known) = self.conns.get(&conn) else { return };
        let numbers: Vec<u64> = known.watches.values().copied().collect();
        numbers.into_iter().for_each(|number| self.remove(number));
    }

    /// A connection takes no more at present.
    pub(crate) fn congested(&mut self, conn: ConnId) {
        if let Some(known) = self.conns.get_mut(&conn) {
            known.congested = true;
        }
    }

    /// A connection takes more again.
    pub(crate) fn cleared(&mut self, conn: ConnId) {
        if let Some(known) = self.conns.get_mut(&conn) {
            known.congested = false;
            self.work.extend(known.parked.drain(..));
        }
    }

    /// When there is something to do: now, later, or never.
    pub(crate) fn next_deadline(&self, now: Time) -> Time {
        if !self.work.is_empty() || !self.groups.busy.is_empty() {
            return now;
        }
        self.checks.front().map_or(Time::FAR, |(at, _)| *at)
    }

    /// Forgets a watch. Its number may still stand in queues, where it finds nothing.
    fn remove(&mut self, number: u64) {
        let Some(watcher) = self.watchers.remove(&number) else { return };
        let watchers = &mut self.watchers;
        self.groups.leave(watcher.group, watcher.place, |moved, place| {
            if let Some(moved) = watchers.get_mut(&moved) {
                moved.place = place;
            }
        });
        if let State::Waiting(revision, _) = watcher.state {
            self.waiting.remove(&(revision, number));
        }
        if let Some(conn) = self.conns.get_mut(&watcher.conn) {
            conn.watches.remove(&watcher.id);
            if conn.watches.is_empty() {
                self.conns.remove(&watcher.conn);
            }
        }
    }

    fn set_state(&mut self, number: u64, state: State) {
        if let Some(watcher) = self.watchers.get_mut(&number) {
            watcher.state = state;
        }
    }

    fn put_to_work(&mut self, number: u64, state: State) {
        self.set_state(number, state);
        self.work.push_back(number);
    }

    /// Goes on behind a revision that has been applied here. What followed it may be forgotten already,
    /// if it was long waited for: then the watch is overtaken.
    fn go_on(&mut self, number: u64, revision: LogIndex) {
        let off_by_one = if self.mutants.has(Mutant::W1) { revision.next() } else { revision };
        let next = match revision < self.history.floor() && !self.mutants.has(Mutant::W2) {
            true => self.history.start() - 1,
            false => self.history.after(off_by_one),
        };
        if let Some(watcher) = self.watchers.get_mut(&number) {
            watcher.next = next;
        }
        if next < self.history.end() {
            self.put_to_work(number, State::Behind);
        } else {
            self.set_state(number, State::Live);
        }
    }
}

/// What a client wants to watch.
pub(crate) struct Wish {
    pub(crate) watch: u64,
    pub(crate) selector: Selector,
    pub(crate) present: bool,
    pub(crate) cursor: Option<Cursor>,
}

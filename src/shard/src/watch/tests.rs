//! Watchers on a machine, without a log: every change once and in order, whatever the slices, the
//! room of connections and the length of the history.

mod values;
mod viewer;

use std::collections::BTreeMap;

use palisade_machine::{Applied, Command, Machine};
use palisade_types::{
    Cause, Class, ClusterLimits, Epoch, Happened, Key, Mode, OnDeath, Rng, SessionId, SessionToken, Ticket,
    Value,
};
use palisade_wire::{EVENTS_BYTES_MAX, Push, WatchEnd};

use super::*;

use viewer::Viewer;

const SHARD: ShardId = ShardId(0);
const CLUSTER: ClusterIdentity = ClusterIdentity(7);

fn of_size(size: usize) -> Value {
    Value::from(std::vec![size as u8; size])
}

fn name(text: &str) -> Key {
    Key::new(text).expect("a name")
}

struct World {
    machine: Machine,
    watches: Watches,
    now: Time,
    index: u64,
    /// Every event ever.
    all: Vec<Event>,
    viewers: BTreeMap<(ConnId, u64), Viewer>,
    deliveries_per_turn: usize,
}

impl World {
    fn with(config: WatchConfig) -> World {
        let limits = ClusterLimits::default();
        World {
            machine: Machine::new(limits, SHARD, 1, Mutants::NONE),
            watches: Watches::new(WatchConfig { cluster: CLUSTER, ..config }, SHARD, 1, Mutants::NONE),
            now: Time::from_millis(1),
            index: 0,
            all: Vec::new(),
            viewers: BTreeMap::new(),
            deliveries_per_turn: config.deliveries_per_turn,
        }
    }

    fn new() -> World {
        World::with(WatchConfig::default())
    }

    fn apply(&mut self, command: &Command) {
        let (mut bytes, mut effects) = (Vec::new(), Vec::new());
        command.encode(&mut bytes);
        self.index += 1;
        let at = Applied { index: LogIndex(self.index), clock_ms: 0 };
        self.machine.apply(at, &bytes, &mut effects).expect("a command");
        self.watches.record(self.machine.news());
        self.all.extend_from_slice(self.machine.news());
    }

    fn open(&mut self) -> SessionId {
        let token = SessionToken(u128::from(self.index) + 1);
        self.apply(&Command::OpenSession { token, ttl_ms: 0, owner: None, incarnation: None });
        SessionId { shard: SHARD, opened: LogIndex(self.index) }
    }

    fn take(&mut self, session: SessionId, ticket: u64, key: &str) {
        let (ticket, key) = (Ticket(ticket), name(key));
        self.claim(session, ticket, key, Mode::Exclusive);
    }

    fn claim(&mut self, session: SessionId, ticket: Ticket, key: Key, mode: Mode) {
        let (class, resource, on_death) = (Class::Advisory, None, OnDeath::Release);
        self.apply(&Command::Acquire { session, ticket, key, class, resource, mode, wait: true, on_death });
    }

    fn campaign(&mut self, session: SessionId, ticket: u64, key: &str, size: usize) {
        let (ticket, key, value) = (Ticket(ticket), name(key), of_size(size));
        self.apply(&Command::Campaign { session, ticket, key, value, wait: true });
    }

    fn proclaim(&mut self, session: SessionId, ticket: u64, leads: u64, size: usize) {
        let (ticket, leads, value) = (Ticket(ticket), Ticket(leads), of_size(size));
        self.apply(&Command::Proclaim { session, ticket, leads, value });
    }

    fn put(&mut self, session: SessionId, ticket: u64, key: &str, size: usize) {
        let (ticket, key, value) = (Ticket(ticket), name(key), of_size(size));
        self.apply(&Command::Put { session, ticket, key, value });
    }

    fn delete(&mut self, session: SessionId, ticket: u64, key: &str) {
        self.apply(&Command::Delete { session, ticket: Ticket(ticket), key: name(key) });
    }

    fn release(&mut self, session: SessionId, ticket: u64) {
        self.apply(&Command::Release { session, ticket: Ticket(ticket) });
    }

    /// So many grants and releases of one key.
    fn churn(&mut self, session: SessionId, ticket: &mut u64, key: &str, times: usize) {
        for _ in 0..times {
            *ticket += 1;
            self.take(session, *ticket, key);
            self.release(session, *ticket);
        }
    }

    fn watch(&mut self, conn: u64, watch: u64, selector: Selector, from: From) -> Reply {
        let cursor = |revision| Some(Cursor::new(CLUSTER, SHARD, revision));
        let (present, cursor) = match from {
            From::Now => (false, None),
            From::Present => (true, None),
            From::After(revision) => (false, cursor(LogIndex(revision))),
            From::PresentSince(revision) => (true, cursor(LogIndex(revision))),
        };
        let wish = Wish { watch, selector, present, cursor };
        let reply = self.watches.watch(self.now, LogIndex(self.index), ConnId(conn), wish);
        if let Reply::Watching { revision, .. } = &reply {
            let viewer = Viewer { upto: *revision, last: *revision, whole: present, ..Viewer::default() };
            self.viewers.insert((ConnId(conn), watch), viewer);
        }
        reply
    }

    /// One turn; says how many were told something.
    fn turn(&mut self) -> usize {
        let mut pushes = Vec::new();
        let (now, applied, machine) = (self.now, LogIndex(self.index), &self.machine);
        self.watches.feed(Turn { now, applied, machine, in_touch: true, pushes: &mut pushes });
        assert!(pushes.len() <= self.deliveries_per_turn, "a turn is bounded");
        for (conn, push) in &pushes {
            let (Push::Events { watch, .. } | Push::Progress { watch, .. } | Push::WatchEnded { watch, .. }) =
                push
            else {
                panic!("{push:?} is not for watchers")
            };
            self.viewers.get_mut(&(*conn, *watch)).expect("only who watches is told").push(push);
        }
        pushes.len()
    }

    fn turns(&mut self) {
        for _ in 0..100_000 {
            if self.watches.next_deadline(self.now) > self.now {
                return;
            }
            self.turn();
        }
        panic!("there is no end of turns");
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + Duration::from_millis(500));
            self.turns();
        }
    }

    fn viewer(&self, conn: u64, watch: u64) -> &Viewer {
        &self.viewers[&(ConnId(conn), watch)]
    }

    /// The changes of what is selected behind a revision, in order.
    fn changes(&self, selector: &Selector, after: u64) -> Vec<(LogIndex, Option<Key>)> {
        let selected = |event: &&Event| {
            let mut bytes = Vec::new();
            event.encode(&mut palisade_types::Writer(&mut bytes));
            event.revision.0 > after && selector.selects(&bytes)
        };
        self.all.iter().filter(selected).map(|e| (e.revision, e.key.clone())).collect()
    }
}

/// Where a watch begins.
#[derive(Clone, Copy)]
enum From {
    Now,
    Present,
    After(u64),
    PresentSince(u64),
}

fn key(text: &str) -> Selector {
    Selector::Key(name(text))
}

#[test]
fn who_watches_is_told_what_it_selects_and_nothing_else() {
    let mut w = World::new();
    let a = w.open();
    let selectors = [
        key("a/1"),
        Selector::Prefix(name("a/")),
        Selector::Prefix(name("a")),
        Selector::Keys,
        Selector::Sessions,
    ];
    for (n, selector) in selectors.iter().enumerate() {
        w.watch(1, n as u64, selector.clone(), From::Now);
    }
    let since = w.index;
    let mut ticket = 0;
    for text in ["a/1", "a/2", "b", "a", "a/1", "a/10"] {
        w.churn(a, &mut ticket, text, 2);
        w.turns();
    }
    w.open();
    w.apply(&Command::EndSession { session: a, cause: Cause::Closed, release_now: 50 });
    w.turns();
    for (n, selector) in selectors.iter().enumerate() {
        let told = &w.viewer(1, n as u64).changes;
        assert_eq!(*told, w.changes(selector, since), "{selector}");
        assert!(!told.is_empty(), "{selector}");
    }
}

#[test]
fn the_present_state_comes_first_and_is_whole_while_everything_changes() {
    let mut w = World::with(WatchConfig { deliveries_per_turn: 2, ..WatchConfig::default() });
    let a = w.open();
    for n in 0..5_000 {
        w.take(a, n + 1, &std::format!("k{n:05}"));
        if n % 7 == 0 {
            w.release(a, n + 1);
        }
    }
    w.apply(&Command::OpenSession { token: SessionToken(99), ttl_ms: 1_000, owner: None, incarnation: None });
    w.watch(1, 1, Selector::Prefix(name("k")), From::Present);
    w.watch(1, 2, Selector::Sessions, From::Present);
    w.watch(1, 3, key("k00007"), From::Present);
    let (mut n, mut steps) = (0, 0);
    while !w.viewer(1, 1).listed {
        // What has been told, and what has not, changes in between.
        n += 1;
        w.release(a, n * 13 % 5_000 + 1);
        w.take(a, 5_000 + n, &std::format!("k{:05}", n * 17 % 5_000));
        w.turn();
        steps += 1;
    }
    assert!(steps > 5, "in pages, {steps} steps");
    w.turns();
    w.viewer(1, 1).compare(&w.machine, &Selector::Keys);
    assert_eq!(w.viewer(1, 2).sessions.len(), 2);
    assert!(w.viewer(1, 3).listed);
}

#[test]
fn fifty_thousand_watchers_of_one_key_are_told_in_slices() {
    let mut w = World::new();
    let a = w.open();
    for conn in 0..50_000 {
        w.watch(conn, 1, key("k"), From::Now);
    }
    let since = w.index;
    let mut ticket = 0;
    w.churn(a, &mut ticket, "k", 1);
    let mut turns = 0;
    while w.watches.next_deadline(w.now) == w.now {
        assert!(w.turn() <= 1_000);
        turns += 1;
        if turns == 10 {
            // More happens while the first news go round, and some leave.
            w.churn(a, &mut ticket, "k", 1);
            for conn in (0..50_000).step_by(7) {
                w.watches.close(ConnId(conn));
            }
        }
    }
    assert!((50..=130).contains(&turns), "{turns} turns");
    let all = w.changes(&key("k"), since);
    for ((conn, _), viewer) in &w.viewers {
        let told = &viewer.changes;
        if conn.0 % 7 == 0 {
            assert!(told.is_empty() || *told == all[..2] || *told == all, "{conn}");
        } else {
            assert_eq!(*told, all, "{conn}");
        }
    }
}

#[test]
fn a_watch_goes_on_behind_any_revision_that_is_kept_and_says_so_when_it_is_not() {
    let config = WatchConfig { history_events: 64, ..WatchConfig::default() };
    let mut w = World::with(config);
    let a = w.open();
    let mut ticket = 0;
    w.churn(a, &mut ticket, "k", 100);
    let oldest = w.watches.history.floor();
    assert!(oldest.0 > 0);
    for after in 0..=w.index {
        let reply = w.watch(after, 1, key("k"), From::After(after));
        if after < oldest.0 {
            assert_eq!(reply, Reply::Refused(Refusal::Compacted { oldest }));
            continue;
        }
        w.turns();
        assert_eq!(w.viewer(after, 1).changes, w.changes(&key("k"), after));
    }
    let other = Cursor::new(ClusterIdentity(8), SHARD, LogIndex(w.index));
    let wish = Wish { watch: 1, selector: key("k"), present: false, cursor: Some(other) };
    let reply = w.watches.watch(w.now, LogIndex(w.index), ConnId(9_999), wish);
    assert_eq!(reply, Reply::Refused(Refusal::ClusterReset));
}

#[test]
fn a_node_that_is_behind_the_cursor_waits_and_never_goes_back() {
    let mut w = World::new();
    let a = w.open();
    let ahead = w.index + 6;
    w.watch(1, 1, key("k"), From::After(ahead));
    w.watch(1, 2, key("k"), From::PresentSince(ahead));
    let mut ticket = 0;
    w.churn(a, &mut ticket, "k", 2);
    w.pass(Duration::from_secs(20));
    assert_eq!(w.viewer(1, 1).progress + w.viewer(1, 2).progress, 0, "it has nothing to tell");
    w.take(a, ticket + 1, "k");
    w.turns();
    assert!(!w.viewer(1, 2).listed);
    w.release(a, ticket + 1);
    w.take(a, ticket + 2, "k");
    w.turns();
    assert_eq!(w.viewer(1, 1).changes, w.changes(&key("k"), ahead), "only what follows");
    assert!(w.viewer(1, 2).listed);
    assert_eq!(w.viewer(1, 2).holders.len(), 1);
    w.pass(Duration::from_secs(20));
    assert!(w.viewer(1, 1).progress > 0);
}

#[test]
fn a_wait_that_is_overtaken_ends_in_a_resync_and_not_in_silence() {
    let mut w = World::with(WatchConfig { history_events: 32, ..WatchConfig::default() });
    let a = w.open();
    w.watch(1, 1, key("k"), From::After(w.index + 6));
    let mut ticket = 0;
    // All of it in one turn, as when a node catches up.
    w.churn(a, &mut ticket, "k", 100);
    w.turns();
    assert!(w.viewer(1, 1).ended && w.viewer(1, 1).changes.is_empty());
}

#[test]
fn who_takes_no_more_costs_nothing_then_gets_the_newest_and_in_the_end_a_resync() {
    let config = WatchConfig { history_events: 2_000, coalesce_behind: 500, ..WatchConfig::default() };
    let mut w = World::with(config);
    let a = w.open();
    for conn in 1..=3 {
        w.watch(conn, 1, Selector::Keys, From::Now);
        w.watches.congested(ConnId(conn));
    }
    let since = w.index;
    let mut ticket = 0;
    w.churn(a, &mut ticket, "a", 100);
    w.turns();
    assert_eq!(w.viewer(1, 1).changes, [], "nothing is told to who takes nothing");
    w.watches.cleared(ConnId(1));
    w.turns();
    assert_eq!(w.viewer(1, 1).changes, w.changes(&Selector::Keys, since), "a little late, but all");
    assert_eq!(w.viewer(1, 1).coalesced, 0);
    for text in ["a", "b", "c"] {
        w.churn(a, &mut ticket, text, 200);
    }
    w.take(a, ticket + 1, "b");
    w.turns();
    w.watches.cleared(ConnId(2));
    w.turns();
    let told = w.viewer(2, 1);
    assert!(told.coalesced > 0 && told.changes.len() < 20, "{told:?}");
    assert_eq!(told.holders.keys().map(|(k, _)| k.as_str()).collect::<Vec<_>>(), ["b"], "the newest of each");
    assert_eq!(told.upto.0, w.index);
    w.release(a, ticket + 1);
    for _ in 0..20 {
        w.churn(a, &mut ticket, "d", 100);
        w.turns();
    }
    assert!(!w.viewer(3, 1).ended);
    w.watches.cleared(ConnId(3));
    w.turns();
    assert!(w.viewer(3, 1).ended, "what it missed is gone, and it is told so");
    assert_eq!(w.watches.counters().resyncs, 1);
    assert!(!w.viewer(1, 1).ended && w.viewer(1, 1).changes.len() > 4_000);
}

#[test]
fn an_idle_watcher_is_not_overtaken_by_what_it_does_not_select() {
    let config = WatchConfig { history_events: 64, ..WatchConfig::default() };
    let mut w = World::with(config);
    let a = w.open();
    w.watch(1, 1, key("quiet"), From::Now);
    let mut ticket = 0;
    w.churn(a, &mut ticket, "loud", 1_000);
    w.turns();
    let since = w.index;
    w.watches.congested(ConnId(1));
    w.churn(a, &mut ticket, "quiet", 1);
    w.turns();
    w.watches.cleared(ConnId(1));
    w.turns();
    assert_eq!(w.viewer(1, 1).changes, w.changes(&key("quiet"), since));
}

#[test]
fn idle_streams_get_marks_and_busy_ones_none() {
    let mut w = World::new();
    let a = w.open();
    w.watch(1, 1, key("idle"), From::Now);
    w.watch(1, 2, key("busy"), From::Now);
    let mut ticket = 0;
    for _ in 0..60 {
        w.churn(a, &mut ticket, "busy", 1);
        w.pass(Duration::from_secs(1));
    }
    assert!((12..=24).contains(&w.viewer(1, 1).progress), "{}", w.viewer(1, 1).progress);
    assert_eq!(w.viewer(1, 2).progress, 0);
    assert_eq!(w.viewer(1, 1).upto.0, w.index, "it knows how far it has seen");
    let mut pushes = Vec::new();
    w.now = w.now + Duration::from_secs(10);
    let (now, applied, machine) = (w.now, LogIndex(w.index), &w.machine);
    w.watches.feed(Turn { now, applied, machine, in_touch: false, pushes: &mut pushes });
    assert_eq!(pushes, [], "a node that is out of touch does not pretend to be up to date");
}

#[test]
fn watches_are_limited_and_end_with_their_connection() {
    let config = WatchConfig { per_connection: 3, per_node: 5, ..WatchConfig::default() };
    let mut w = World::with(config);
    let a = w.open();
    let full = |reply: &Reply| matches!(reply, Reply::Refused(Refusal::QuotaExceeded { .. }));
    for watch in 0..3 {
        assert!(!full(&w.watch(1, watch, key("k"), From::Now)));
    }
    assert!(full(&w.watch(1, 3, key("k"), From::Now)), "as many as a connection may have");
    let again = w.watch(1, 2, key("k"), From::Now);
    assert!(matches!(again, Reply::Refused(Refusal::BadRequest { .. })), "a number is used once");
    for watch in 0..2 {
        w.watch(2, watch, Selector::Prefix(name("k")), From::Present);
    }
    assert!(full(&w.watch(3, 0, key("k"), From::Now)), "as many as a node may have");
    assert_eq!(w.watches.unwatch(ConnId(1), 2), Reply::Unwatched { watch: 2 });
    assert_eq!(w.watches.unwatch(ConnId(1), 2), Reply::Unwatched { watch: 2 });
    assert!(!full(&w.watch(3, 0, Selector::Sessions, From::Now)));
    for conn in 1..=3 {
        w.watches.close(ConnId(conn));
    }
    assert_eq!(w.watches.counters().watches, 0);
    assert!(w.watches.conns.is_empty());
    w.viewers.clear();
    let mut ticket = 0;
    w.churn(a, &mut ticket, "k", 3);
    w.pass(Duration::from_secs(60));
    assert!(w.watches.checks.is_empty() && w.watches.work.is_empty() && w.watches.groups.busy.is_empty());
}

#[test]
fn a_revision_with_more_than_fits_a_push_is_continued() {
    let mut w = World::new();
    let a = w.open();
    let long = "x".repeat(480);
    for n in 0..50 {
        w.take(a, n + 1, &std::format!("{long}{n:02}"));
    }
    let b = w.open();
    for n in 0..50 {
        w.take(b, n + 1, &std::format!("{long}{n:02}"));
    }
    let since = w.index;
    w.watch(1, 1, Selector::Keys, From::Now);
    w.apply(&Command::EndSession { session: a, cause: Cause::Closed, release_now: 50 });
    w.turns();
    assert_eq!(w.viewer(1, 1).changes, w.changes(&Selector::Keys, since));
    assert_eq!(w.viewer(1, 1).changes.len(), 100);
    w.watch(2, 1, Selector::Keys, From::After(since));
    w.turns();
    assert_eq!(w.viewer(2, 1).changes.len(), 100);
}

#[test]
fn random_watchers_miss_nothing_and_hear_nothing_twice() {
    let mut shortened = 0;
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let config = WatchConfig {
            history_events: rng.between(20, 600) as usize,
            coalesce_behind: if seed % 2 == 0 { 3 } else { rng.between(10, 300) as usize },
            deliveries_per_turn: rng.between(1, 20) as usize,
            looks_per_turn: rng.between(1, 200) as usize,
            bytes_per_turn: rng.between(1, 2_000) as usize,
            ..WatchConfig::default()
        };
        let mut w = World::with(config);
        let sessions = [w.open(), w.open()];
        let mut ticket = 0;
        let mut selected: BTreeMap<(u64, u64), (Selector, u64)> = BTreeMap::new();
        let mut present: BTreeMap<(u64, u64), Selector> = BTreeMap::new();
        let selectors =
            [key("a0"), key("b1"), Selector::Prefix(name("a")), Selector::Keys, Selector::Sessions];
        for round in 0..600_u64 {
            ticket += 1;
            let text = std::format!("{}{}", ["a", "b"][rng.below(2) as usize], rng.below(3));
            let session = sessions[rng.below(2) as usize];
            match rng.below(8) {
                4 => w.campaign(session, ticket, &text, [1, 70][rng.below(2) as usize]),
                5 => w.proclaim(session, ticket, rng.between(1, ticket), [3, 90][rng.below(2) as usize]),
                6 => w.put(session, ticket, &text, [0, 200][rng.below(2) as usize]),
                7 => w.delete(session, ticket, &text),
                0 => w.take(session, ticket, &text),
                1 => w.claim(session, Ticket(ticket), name(&text), Mode::Shared),
                _ => w.release(session, rng.between(1, ticket)),
            }
            if rng.per_mille(300) {
                let conn = ConnId(rng.below(3));
                match rng.per_mille(600) {
                    true => w.watches.congested(conn),
                    false => w.watches.cleared(conn),
                }
            }
            if rng.per_mille(100) {
                let selector = selectors[rng.below(5) as usize].clone();
                let after = rng.between(w.index.saturating_sub(100), w.index + 5);
                let conn = rng.below(3);
                if rng.per_mille(500) {
                    if let Reply::Watching { .. } = w.watch(conn, round, selector.clone(), From::Present) {
                        present.insert((conn, round), selector);
                    }
                    continue;
                }
                if let Reply::Watching { .. } = w.watch(conn, round, selector.clone(), From::After(after)) {
                    selected.insert((conn, round), (selector, after));
                }
            }
            if rng.per_mille(600) {
                w.turn();
            }
        }
        (0..3).for_each(|conn| w.watches.cleared(ConnId(conn)));
        w.turns();
        let mut whole = 0;
        for ((conn, watch), (selector, after)) in selected {
            let viewer = w.viewer(conn, watch);
            if viewer.ended || viewer.coalesced > 0 {
                continue;
            }
            whole += 1;
            assert_eq!(viewer.changes, w.changes(&selector, after), "seed {seed}, {selector} after {after}");
        }
        assert!(whole > 0, "seed {seed} proves nothing");
        for ((conn, watch), selector) in present {
            let viewer = w.viewer(conn, watch);
            if !viewer.ended {
                shortened += usize::from(viewer.coalesced > 0);
                assert!(viewer.listed, "seed {seed}");
                viewer.compare(&w.machine, &selector);
            }
        }
    }
    assert!(shortened > 10, "watchers that were told only what still says something: {shortened}");
}

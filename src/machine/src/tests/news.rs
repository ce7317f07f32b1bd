//! What watchers learn: every change once, in order, and nothing else.

use super::*;
use crate::Place;
use alloc::string::ToString;
use palisade_types::{Epoch, Event, Happened, OperatorAct, Selector, TransitionKind};

/// What somebody knows who was told every event.
#[derive(Default)]
pub(crate) struct Watcher {
    holders: BTreeMap<Key, (SessionId, Epoch)>,
    sessions: BTreeMap<SessionId, u32>,
}

impl Watcher {
    /// Takes the news of one command.
    pub(crate) fn learn(&mut self, index: u64, news: &[Event]) {
        for event in news {
            assert_eq!(event.revision, LogIndex(index), "news carry the revision of their command");
            let mut bytes = Vec::new();
            event.encode(&mut palisade_types::Writer(&mut bytes));
            let mut r = palisade_types::Reader::new(&bytes);
            assert_eq!(Event::decode(&mut r).as_ref(), Ok(event));
            assert_eq!(r.remaining(), 0);
            assert_eq!(Event::key_in(&bytes), event.key.as_deref().unwrap_or_default().as_bytes());
            self.learn_one(event);
        }
    }

    fn learn_one(&mut self, event: &Event) {
        let key = event.key.clone();
        match event.what {
            Happened::Granted { epoch, barrier } => {
                assert!(barrier <= epoch);
                let before = self.holders.insert(key.unwrap(), (event.session, epoch));
                assert_eq!(before, None, "a key is released before it is granted again");
            }
            Happened::Released { epoch, .. } => {
                assert_eq!(self.holders.remove(&key.unwrap()), Some((event.session, epoch)));
            }
            Happened::Retired { .. } => assert!(!self.holders.contains_key(&key.unwrap())),
            Happened::SessionOpened { ttl_ms } => {
                assert_eq!(self.sessions.insert(event.session, ttl_ms), None);
            }
            Happened::SessionEnded { .. } => assert!(self.sessions.remove(&event.session).is_some()),
            Happened::Held { .. } | Happened::Free { .. } | Happened::SessionLives { .. } => {
                panic!("{event:?} is no change")
            }
        }
    }

    /// Knows exactly what the listings of the naive model and the present state show.
    pub(crate) fn compare(&self, model: &Model, machine: &Machine) {
        let (rows, _) = model.list_locks(None, 1_000, 0);
        let listed: BTreeMap<Key, (SessionId, Epoch)> = rows
            .into_iter()
            .filter_map(|row| Some((row.key, row.holder?)))
            .map(|(k, h)| (k, (h.session, h.epoch)))
            .collect();
        assert_eq!(self.holders, listed);
        let (rows, _) = model.list_sessions(None, 1_000);
        assert_eq!(self.sessions, rows.into_iter().map(|row| (row.session, row.ttl_ms)).collect());
        for most in [1, 3, 10_000] {
            let keys = walk(machine, &Selector::Keys, most).into_iter().map(|event| match event.what {
                Happened::Held { epoch, .. } => (event.key.unwrap(), (event.session, epoch)),
                other => panic!("{other:?} is no holder"),
            });
            assert_eq!(self.holders, keys.collect());
            let sessions =
                walk(machine, &Selector::Sessions, most).into_iter().map(|event| match event.what {
                    Happened::SessionLives { ttl_ms } => (event.session, ttl_ms),
                    other => panic!("{other:?} is no session"),
                });
            assert_eq!(self.sessions, sessions.collect());
        }
    }
}

fn walk(machine: &Machine, selector: &Selector, most: usize) -> Vec<Event> {
    let (mut place, mut all) = (Place::Start, Vec::new());
    loop {
        let before = all.len();
        let next = machine.present(selector, &place, most, |event| all.push(event));
        assert!(all.len() - before <= most, "a step of the walk is bounded");
        match next {
            Some(next) => place = next,
            None => return all,
        }
    }
}

fn told(w: &World) -> Vec<(Option<&str>, Happened)> {
    w.machine.news().iter().map(|e| (e.key.as_deref(), e.what)).collect()
}

#[test]
fn a_handover_is_a_release_and_a_grant_under_one_revision() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    assert_eq!(told(&w), [(None, Happened::SessionOpened { ttl_ms: 30_000 })]);
    let first = w.take(a, 1, "k").epoch();
    assert_eq!(told(&w), [(Some("k"), Happened::Granted { epoch: first, barrier: first })]);
    w.queue(b, 1, "k");
    assert_eq!(told(&w), [], "who waits changes nothing that is watched");
    w.reply(&acquire(a, 1, "k", false));
    assert_eq!(told(&w), [], "a repeated answer is no news");
    w.release(a, 1);
    let next = Epoch(first.0 + 1);
    let how = TransitionKind::Released;
    assert_eq!(
        told(&w),
        [
            (Some("k"), Happened::Released { epoch: first, how }),
            (Some("k"), Happened::Granted { epoch: next, barrier: next }),
        ]
    );
    let news = w.machine.news();
    assert_eq!((news[0].session, news[1].session), (a, b));
    assert_eq!(news[1].owner.as_deref().map(ToString::to_string), Some("owner 2".to_string()));
}

#[test]
fn ends_forced_releases_and_retirements_tell_their_cause() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    let epoch = w.take(a, 1, "k").epoch();
    let order = |act: OperatorAct| {
        let release_now = act.ends().map_or(0, |_| 50);
        Command::Operator { by: name("ops"), reason: name("fire"), act, release_now }
    };
    w.apply(&order(OperatorAct::ForceRelease { key: name("k"), epoch }));
    assert_eq!(told(&w), [(Some("k"), Happened::Released { epoch, how: TransitionKind::Forced })]);
    w.apply(&order(OperatorAct::Retire { key: name("k") }));
    assert_eq!(told(&w), [(Some("k"), Happened::Retired { epoch })]);
    w.apply(&order(OperatorAct::Retire { key: name("k") }));
    assert_eq!(told(&w), [], "there was nothing to forget");
    let epoch = w.take(b, 1, "k").epoch();
    w.apply(&order(OperatorAct::Evict { session: b }));
    let cause = Cause::Evicted { action: LogIndex(w.index) };
    let how = TransitionKind::SessionEnded(cause);
    assert_eq!(
        told(&w),
        [(None, Happened::SessionEnded { cause }), (Some("k"), Happened::Released { epoch, how })]
    );
}

#[test]
fn what_a_dead_session_still_holds_is_held_until_it_is_swept() {
    let mut w = World::new();
    let a = w.open(1);
    w.take(a, 1, "k");
    w.end(a, Cause::Closed, 0);
    assert_eq!(told(&w), [(None, Happened::SessionEnded { cause: Cause::Closed })]);
    let rows = walk(&w.machine, &Selector::Keys, 10);
    assert!(matches!(rows[0].what, Happened::Held { ending: true, .. }));
    w.apply(&Command::Sweep { releases: 50 });
    let how = TransitionKind::SessionEnded(Cause::Closed);
    assert_eq!(told(&w), [(Some("k"), Happened::Released { epoch: Epoch(1), how })]);
    let rows = walk(&w.machine, &Selector::Key(name("k")), 10);
    assert_eq!(rows[0].what, Happened::Free { epoch: Epoch(1) });
}

#[test]
fn a_prefix_selects_the_keys_that_begin_so_and_no_others() {
    let mut w = World::new();
    let a = w.open(1);
    for (n, key) in ["a", "a/1", "a/2", "a/20", "a0", "b"].into_iter().enumerate() {
        w.take(a, n as u64 + 1, key);
    }
    w.release(a, 3);
    for most in [1, 2, 100] {
        let rows = walk(&w.machine, &Selector::Prefix(name("a/")), most);
        let keys: Vec<&str> = rows.iter().filter_map(|row| row.key.as_deref()).collect();
        assert_eq!(keys, ["a/1", "a/20"], "in order, and only those that are held");
    }
    assert_eq!(walk(&w.machine, &Selector::Prefix(name("c")), 10), []);
}

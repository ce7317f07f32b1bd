//! What watchers learn: every change once, in order, and nothing else.

use super::*;
use crate::Place;
use alloc::string::ToString;
use palisade_types::{Epoch, Event, Happened, OperatorAct, Selector, TransitionKind};

/// What somebody knows who was told every event.
#[derive(Default)]
pub(crate) struct Watcher {
    holders: BTreeMap<(Key, Epoch), SessionId>,
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
        if let (Some((_, barrier)), Some(key)) = (event.what.grant(), &event.key) {
            let below = self.holders.range((key.clone(), Epoch(0))..(key.clone(), barrier)).count();
            assert_eq!(below, 0, "nobody holds {key} below {barrier}");
        }
        let key = |epoch| (event.key.clone().unwrap(), epoch);
        match event.what {
            Happened::Granted { epoch, .. } => {
                let others = self.holders.range(key(Epoch(0))..key(Epoch::MAX)).count();
                assert_eq!(self.holders.insert(key(epoch), event.session), None);
                assert!(others == 0 || event.what.grant().is_some_and(|(e, barrier)| barrier < e));
            }
            Happened::Released { epoch, .. } => {
                assert_eq!(self.holders.remove(&key(epoch)), Some(event.session));
            }
            Happened::Retired { .. } => (),
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
        let mut listed = BTreeMap::new();
        for row in rows {
            for holder in model.describe(&row.key, 0).holders {
                listed.insert((row.key.clone(), holder.epoch), holder.session);
            }
        }
        assert_eq!(self.holders, listed);
        let (rows, _) = model.list_sessions(None, 1_000);
        let live = rows.into_iter().filter(|row| !row.quarantined);
        assert_eq!(self.sessions, live.map(|row| (row.session, row.ttl_ms)).collect());
        for most in [1, 3, 10_000] {
            let keys = walk(machine, &Selector::Keys, most).into_iter().map(|event| match event.what {
                Happened::Held { epoch, .. } => ((event.key.unwrap(), epoch), event.session),
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
            (Some("k"), Happened::Released { epoch: first, barrier: first, how }),
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
    assert_eq!(
        told(&w),
        [(Some("k"), Happened::Released { epoch, barrier: epoch, how: TransitionKind::Forced })]
    );
    w.apply(&order(OperatorAct::Retire { key: name("k"), epoch }));
    assert_eq!(told(&w), [(Some("k"), Happened::Retired { epoch })]);
    w.apply(&order(OperatorAct::Retire { key: name("k"), epoch }));
    assert_eq!(told(&w), [], "there was nothing to forget");
    let epoch = w.take(b, 1, "k").epoch();
    w.apply(&order(OperatorAct::Evict { session: b }));
    let cause = Cause::Evicted { action: LogIndex(w.index) };
    let how = TransitionKind::SessionEnded(cause);
    assert_eq!(
        told(&w),
        [
            (None, Happened::SessionEnded { cause }),
            (Some("k"), Happened::Released { epoch, barrier: epoch, how })
        ]
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
    assert_eq!(told(&w), [(Some("k"), Happened::Released { epoch: Epoch(1), barrier: Epoch(1), how })]);
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

#[test]
fn holders_that_share_a_key_are_rows_of_their_own_and_a_page_may_end_among_them() {
    let mut w = World::new();
    let a = w.open(1);
    w.take(a, 1, "a");
    for ticket in 2..=6 {
        w.reply(&acquire_as(a, ticket, "k", Mode::Shared, false));
    }
    w.take(a, 7, "z");
    let epochs = |most, selector: &Selector| -> Vec<(Key, u64)> {
        let rows = walk(&w.machine, selector, most).into_iter();
        rows.map(|row| (row.key.unwrap(), row.what.grant().unwrap().0.0)).collect()
    };
    let all = epochs(100, &Selector::Keys);
    assert_eq!(all.len(), 7);
    for most in 1..5 {
        assert_eq!(epochs(most, &Selector::Keys), all);
        assert_eq!(epochs(most, &Selector::Key(name("k"))), all[1..6]);
        assert_eq!(epochs(most, &Selector::Prefix(name("k"))), all[1..6]);
    }
    let place = Place::Holder(name("k"), Epoch(3));
    let of = |key: &str, epoch| Event {
        revision: LogIndex(9),
        key: Some(name(key)),
        session: a,
        owner: None,
        what: Happened::Released { epoch: Epoch(epoch), barrier: Epoch(1), how: TransitionKind::Released },
    };
    assert!(place.is_past(&of("a", 9)) && place.is_past(&of("k", 3)));
    assert!(!place.is_past(&of("k", 4)) && !place.is_past(&of("z", 1)));
}

#[test]
fn a_downgrade_is_a_release_and_a_grant_under_one_revision() {
    let mut w = World::new();
    let a = w.open(1);
    w.take(a, 1, "k");
    w.apply(&Command::Downgrade { session: a, ticket: Ticket(2), holds: Ticket(1) });
    let (one, two, how) = (Epoch(1), Epoch(2), TransitionKind::Downgraded);
    let released = (Some("k"), Happened::Released { epoch: one, barrier: one, how });
    assert_eq!(told(&w), [released, (Some("k"), Happened::Granted { epoch: two, barrier: two })]);
}

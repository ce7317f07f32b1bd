//! What watchers learn: every change once, in order, and nothing else.

use super::*;
use crate::Place;
use alloc::string::ToString;
use palisade_types::{Epoch, Event, Happened, OperatorAct, Selector, TransitionKind, Value};

/// What somebody knows who was told every event.
#[derive(Default)]
pub(crate) struct Watcher {
    holders: BTreeMap<(Key, Epoch), SessionId>,
    sessions: BTreeMap<SessionId, u32>,
    /// What leaders say.
    leaders: BTreeMap<(Key, Epoch), Value>,
    /// Ephemeral keys: whose, created, modified, value.
    values: BTreeMap<Key, (SessionId, LogIndex, LogIndex, Value)>,
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
            assert_eq!(Event::grant_in(&bytes), event.what.grant());
            assert_eq!(Event::is_of_value(&bytes), event.what.is_of_value());
            assert!(bytes.len() <= event.size_max());
            self.learn_one(event);
        }
    }

    fn learn_one(&mut self, event: &Event) {
        if let (Some((_, barrier)), Some(key)) = (event.what.grant(), &event.key) {
            let below = self.holders.range((key.clone(), Epoch(0))..(key.clone(), barrier)).count();
            assert_eq!(below, 0, "nobody holds {key} below {barrier}");
        }
        let key = |epoch| (event.key.clone().unwrap(), epoch);
        match event.what.clone() {
            Happened::Elected { epoch, value } => {
                assert_eq!(self.holders.range(key(Epoch(0))..key(Epoch::MAX)).count(), 0, "one leader");
                self.holders.insert(key(epoch), event.session);
                self.leaders.insert(key(epoch), value);
            }
            Happened::Proclaimed { epoch, value } => {
                assert_eq!(self.holders.get(&key(epoch)), Some(&event.session));
                assert!(self.leaders.insert(key(epoch), value).is_some());
            }
            Happened::Put { created, value } => {
                let key = event.key.clone().unwrap();
                let now = (event.session, created, event.revision, value);
                match self.values.insert(key, now) {
                    Some(before) => assert_eq!((before.0, before.1), (event.session, created)),
                    None => assert_eq!(created, event.revision),
                }
            }
            Happened::Deleted | Happened::Vanished { .. } => {
                let before = self.values.remove(event.key.as_ref().unwrap());
                assert_eq!(before.map(|value| value.0), Some(event.session));
            }
            Happened::Granted { epoch, .. } => {
                let others = self.holders.range(key(Epoch(0))..key(Epoch::MAX)).count();
                assert_eq!(self.holders.insert(key(epoch), event.session), None);
                assert!(others == 0 || event.what.grant().is_some_and(|(e, barrier)| barrier < e));
            }
            Happened::Released { epoch, .. } => {
                assert_eq!(self.holders.remove(&key(epoch)), Some(event.session));
                self.leaders.remove(&key(epoch));
            }
            Happened::Retired { .. } => (),
            Happened::SessionOpened { ttl_ms } => {
                assert_eq!(self.sessions.insert(event.session, ttl_ms), None);
            }
            Happened::SessionEnded { .. } => assert!(self.sessions.remove(&event.session).is_some()),
            Happened::Held { .. }
            | Happened::Free { .. }
            | Happened::Leads { .. }
            | Happened::Stands { .. }
            | Happened::SessionLives { .. } => panic!("{event:?} is no change"),
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
        let present = model.present();
        self.compare_rows(&present);
        for most in [1, 3, 10_000] {
            assert_eq!(walk(machine, &Selector::Keys, most), present);
            let sessions =
                walk(machine, &Selector::Sessions, most).into_iter().map(|event| match event.what {
                    Happened::SessionLives { ttl_ms } => (event.session, ttl_ms),
                    other => panic!("{other:?} is no session"),
                });
            assert_eq!(self.sessions, sessions.collect());
        }
    }
}

impl Watcher {
    /// Knows of keys what the rows show.
    fn compare_rows(&self, rows: &[Event]) {
        let (mut holders, mut leaders, mut values) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for row in rows {
            let key = row.key.clone().unwrap();
            match &row.what {
                Happened::Stands { created, modified, value, .. } => {
                    values.insert(key, (row.session, *created, *modified, value.clone()));
                    continue;
                }
                Happened::Leads { epoch, value, .. } => {
                    leaders.insert((key.clone(), *epoch), value.clone());
                }
                _ => {}
            }
            holders.insert((key, row.what.grant().unwrap().0), row.session);
        }
        assert_eq!(self.holders, holders);
        assert_eq!(self.leaders, leaders);
        assert_eq!(self.values, values);
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
    w.machine.news().iter().map(|e| (e.key.as_deref(), e.what.clone())).collect()
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

fn value(text: &str) -> Value {
    Value::from(text.as_bytes())
}

#[test]
fn what_leaders_say_is_told_with_the_grant_and_with_each_proclamation() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    let campaign = |session, ticket, said: &str| {
        let (ticket, key, value) = (Ticket(ticket), name("e"), value(said));
        Command::Campaign { session, ticket, key, value, wait: true }
    };
    w.apply(&campaign(a, 1, "a"));
    let elected =
        |epoch, said: &str| (Some("e"), Happened::Elected { epoch: Epoch(epoch), value: value(said) });
    assert_eq!(told(&w), [elected(1, "a")]);
    w.apply(&campaign(b, 1, "b"));
    assert_eq!(told(&w), []);
    let proclaim = |session, ticket, leads, said: &str| Command::Proclaim {
        session,
        ticket: Ticket(ticket),
        leads: Ticket(leads),
        value: value(said),
    };
    w.apply(&proclaim(a, 2, 1, "a2"));
    let proclaimed = |said| (Some("e"), Happened::Proclaimed { epoch: Epoch(1), value: value(said) });
    assert_eq!(told(&w), [proclaimed("a2")]);
    assert_eq!(w.machine.news()[0].session, a);
    w.apply(&proclaim(a, 3, 1, "a2"));
    assert_eq!(told(&w), [proclaimed("a2")], "it was said twice");
    w.apply(&proclaim(a, 3, 1, "a3"));
    w.apply(&proclaim(b, 2, 1, "b2"));
    assert_eq!(told(&w), [], "what is refused is no news");
    let rows = walk(&w.machine, &Selector::Key(name("e")), 10);
    let leads = |ending| Happened::Leads { epoch: Epoch(1), ending, value: value("a2") };
    assert_eq!((rows.len(), &rows[0].what, rows[0].session), (1, &leads(false), a));
    w.end(a, Cause::Closed, 0);
    assert_eq!(walk(&w.machine, &Selector::Prefix(name("e")), 10)[0].what, leads(true));
    w.apply(&Command::Sweep { releases: 50 });
    let how = TransitionKind::SessionEnded(Cause::Closed);
    let released = Happened::Released { epoch: Epoch(1), barrier: Epoch(1), how };
    assert_eq!(told(&w), [(Some("e"), released), elected(2, "b")], "a handover in one revision");
}

#[test]
fn ephemeral_keys_are_told_when_they_come_change_and_go_and_apart_from_locks_of_the_same_name() {
    let mut w = World::new();
    let a = w.open(1);
    let put = |ticket, key: &str, said: &str| Command::Put {
        session: a,
        ticket: Ticket(ticket),
        key: name(key),
        value: value(said),
    };
    w.apply(&put(1, "k", "one"));
    let created = LogIndex(w.index);
    assert_eq!(told(&w), [(Some("k"), Happened::Put { created, value: value("one") })]);
    w.apply(&put(2, "k", "two"));
    let modified = LogIndex(w.index);
    assert_eq!(told(&w), [(Some("k"), Happened::Put { created, value: value("two") })]);
    w.take(a, 3, "k");
    let rows = walk(&w.machine, &Selector::Key(name("k")), 1);
    let stands = |ending| Happened::Stands { created, modified, ending, value: value("two") };
    assert!(matches!(rows[0].what, Happened::Held { .. }));
    assert_eq!((rows.len(), &rows[1].what), (2, &stands(false)));
    w.apply(&put(4, "l", ""));
    w.apply(&Command::Delete { session: a, ticket: Ticket(5), key: name("l") });
    assert_eq!(told(&w), [(Some("l"), Happened::Deleted)]);
    w.apply(&Command::Delete { session: a, ticket: Ticket(6), key: name("l") });
    assert_eq!(told(&w), [], "there was nothing to delete");
    let cause = Cause::Expired { silent_ms: 7 };
    w.end(a, cause, 1);
    let how = TransitionKind::SessionEnded(cause);
    let released = Happened::Released { epoch: Epoch(1), barrier: Epoch(1), how };
    assert_eq!(told(&w), [(None, Happened::SessionEnded { cause }), (Some("k"), released)]);
    assert_eq!(walk(&w.machine, &Selector::Key(name("k")), 10)[1].what, stands(true));
    w.apply(&Command::Sweep { releases: 1 });
    assert_eq!(told(&w), [(Some("k"), Happened::Vanished { cause })]);
    assert_eq!(w.machine.news()[0].owner.as_deref().map(ToString::to_string), Some("owner 1".to_string()));
}

#[test]
fn a_step_over_large_values_shows_few_of_them_and_misses_none() {
    let mut w = World::new();
    let a = w.open(1);
    let large = Value::from(alloc::vec![7; 16 * 1024]);
    for n in 0..9 {
        let (ticket, key) = (Ticket(n + 1), name(&alloc::format!("k{n}")));
        let value = if n % 3 == 0 { value("") } else { large.clone() };
        w.apply(&match n % 2 {
            0 => Command::Put { session: a, ticket, key, value },
            _ => Command::Campaign { session: a, ticket, key, value, wait: false },
        });
    }
    let (mut place, mut all) = (Place::Start, Vec::new());
    loop {
        let mut bytes = 0;
        let next = w.machine.present(&Selector::Keys, &place, 16, |row| {
            bytes += row.what.value().map_or(0, |value| value.len());
            all.push(row);
        });
        assert!(bytes <= 16 * 1024, "{bytes} bytes in one step");
        match next {
            Some(next) => place = next,
            None => break,
        }
    }
    assert_eq!(all.len(), 9);
    assert_eq!(all, w.model.present());
}

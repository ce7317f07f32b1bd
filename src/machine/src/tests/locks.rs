//! DESIGN sections 1 and 3: fences, epochs, classes, the queue, describe.

use super::*;
use crate::CommandRef;
use palisade_types::{Epoch, TransitionKind};
use std::string::ToString;

fn fenced(session: SessionId, ticket: u64, key: &str, resource: Option<&str>) -> Command {
    let (ticket, key, resource) = (Ticket(ticket), name(key), resource.map(name));
    Command::Acquire {
        session,
        ticket,
        key,
        class: Class::Fenced,
        resource,
        mode: Mode::Exclusive,
        wait: false,
        on_death: OnDeath::Release,
    }
}

#[test]
fn every_grant_of_a_key_is_one_epoch_higher_and_is_its_own_barrier() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    assert_eq!(w.take(a, 1, "k").to_string(), "k@1/1");
    assert_eq!(w.queue(b, 1, "k"), 0);
    let effects = w.apply(&Command::Release { session: a, ticket: Ticket(1) });
    let fence = Fence::new(name("k"), Epoch(2), Epoch(2)).unwrap();
    assert_eq!(effects[1], Effect::Granted { session: b, ticket: Ticket(1), fence });
    assert_eq!(w.release(b, 1), []);
    assert_eq!(w.take(a, 2, "k").epoch(), Epoch(3));
    assert_eq!(w.take(a, 3, "other").epoch(), Epoch(1), "each key counts for itself");
}

#[test]
fn the_record_idle_for_longest_is_reclaimed_and_its_epoch_lives_on_as_the_floor() {
    let mut w = World::with(ClusterLimits { idle_keys: 2, ..ClusterLimits::default() });
    let a = w.open(1);
    for ticket in 1..=5 {
        w.take(a, ticket, "first");
        w.release(a, ticket);
    }
    for (ticket, key) in [(6, "second"), (7, "third")] {
        w.take(a, ticket, key);
    }
    w.release(a, 6);
    assert_eq!(w.describe("first").class, Some(Class::Advisory));
    w.release(a, 7);
    assert_eq!(w.describe("first").class, None, "three are idle, two are kept");
    assert_eq!((w.describe("first").epoch, w.machine.epoch_floor()), (Epoch(5), Epoch(5)));
    assert_eq!(w.describe("second").epoch, Epoch(1), "a record that lives keeps its own epoch");
    assert_eq!(w.take(a, 8, "first").epoch(), Epoch(6));
    assert_eq!(w.take(a, 9, "new").epoch(), Epoch(6), "a key never seen starts above the floor too");
    assert_eq!(w.take(a, 10, "second").epoch(), Epoch(2));
    w.release(a, 10);
    w.release(a, 8);
    assert_eq!(w.describe("third").class, None, "using a key makes it young again");
    assert_eq!(w.machine.epoch_floor(), Epoch(5), "the floor never falls");
}

#[test]
fn with_no_room_for_idle_records_epochs_still_never_repeat() {
    let mut w = World::with(ClusterLimits { idle_keys: 0, ..ClusterLimits::default() });
    let a = w.open(1);
    for ticket in 1..=4 {
        assert_eq!(w.take(a, ticket, "k").epoch(), Epoch(ticket));
        w.release(a, ticket);
        assert_eq!(w.machine.counts().keys, 0);
    }
}

#[test]
fn a_fenced_claim_names_its_resource_and_a_key_has_one_class_while_its_record_lives() {
    let mut w = World::with(ClusterLimits { idle_keys: 1, ..ClusterLimits::default() });
    let a = w.open(1);
    assert!(matches!(w.refusal(&fenced(a, 1, "k", None)), Refusal::BadRequest { .. }));
    assert_eq!(w.describe("k").class, None, "a refused claim leaves no record");
    assert!(matches!(w.reply(&fenced(a, 2, "k", Some("db"))), Reply::Granted { .. }));
    assert_eq!(w.refusal(&acquire(a, 3, "k", true)), Refusal::ClassMismatch { has: Class::Fenced });
    w.release(a, 2);
    assert_eq!(w.refusal(&acquire(a, 4, "k", true)), Refusal::ClassMismatch { has: Class::Fenced });
    let d = w.describe("k");
    assert_eq!((d.class, d.resource), (Some(Class::Fenced), Some(name("db"))));
    w.take(a, 5, "other");
    w.release(a, 5);
    w.take(a, 6, "k");
    assert_eq!(w.refusal(&fenced(a, 7, "k", Some("db"))), Refusal::ClassMismatch { has: Class::Advisory });
    w.compare(&[name("k"), name("other")]);
}

#[test]
fn the_record_names_the_resource_of_the_last_grant() {
    let mut w = World::new();
    let a = w.open(1);
    for (ticket, resource) in [(1, "db"), (2, "db"), (3, "bucket")] {
        w.reply(&fenced(a, ticket, "k", Some(resource)));
        assert_eq!(w.describe("k").resource, Some(name(resource)));
        w.release(a, ticket);
    }
}

#[test]
fn keys_that_look_like_paths_of_each_other_are_strangers() {
    let mut w = World::new();
    let longest = "é".repeat(256);
    let keys = ["a", "a/", "a/b", "a//b", "A", " a", "a ", "a@1/1", "🔒", "\u{ff}", &longest];
    for (number, key) in keys.iter().enumerate() {
        let session = w.open(number as u128);
        assert_eq!(w.take(session, 1, key).key().as_str(), *key);
    }
    let (rows, _) = w.machine.list_locks(None, 100, 0);
    assert_eq!(rows.len(), keys.len());
    assert!(rows.iter().all(|row| keys.contains(&row.key.as_str())), "listed byte by byte");
}

#[test]
fn two_tickets_of_one_session_contend_like_strangers() {
    let mut w = World::new();
    let a = w.open(1);
    w.take(a, 1, "k");
    assert!(matches!(w.reply(&acquire(a, 2, "k", false)), Reply::Denied { .. }));
    assert_eq!(w.queue(a, 3, "k"), 0);
    assert_eq!(w.release(a, 1), [(a, Ticket(3))]);
}

#[test]
fn the_queue_is_first_come_first_served_and_a_release_grants_in_the_same_step() {
    let mut w = World::new();
    let sessions: Vec<SessionId> = (0..6).map(|n| w.open(n)).collect();
    w.take(sessions[0], 1, "k");
    for (place, &s) in sessions[1..].iter().enumerate() {
        assert_eq!(w.queue(s, 1, "k"), place as u32);
    }
    w.apply(&Command::Cancel { session: sessions[2], ticket: Ticket(1), timeout: false });
    assert_eq!(w.queue(sessions[4], 1, "k"), 2, "the place moves up when one ahead leaves");
    let mut order = Vec::new();
    let mut at = sessions[0];
    while let [(next, _)] = w.release(at, 1)[..] {
        order.push(next);
        at = next;
    }
    assert_eq!(order, [sessions[1], sessions[3], sessions[4], sessions[5]]);
    assert_eq!(w.holder("k"), None);
}

#[test]
fn denied_and_queued_say_who_holds_since_when_and_how_many_wait() {
    let mut w = World::new();
    let (a, b, c) = (w.open(1), w.open(2), w.open(3));
    w.take(a, 1, "k");
    w.clock_ms += 250;
    let Reply::Queued { place, holder, .. } = w.reply(&acquire(b, 1, "k", true)) else { panic!("queued") };
    assert_eq!((place, holder.session, holder.epoch, holder.held_ms), (0, a, Epoch(1), 250));
    assert_eq!((holder.owner.clone(), holder.standing), (Some(name("owner 1")), Standing::Live));
    let Reply::Denied { waiting, holder, .. } = w.reply(&acquire(c, 1, "k", false)) else { panic!("denied") };
    assert_eq!((waiting, holder.session), (1, a));
    w.clock_ms = 3;
    let Reply::Denied { holder, .. } = w.reply(&acquire(c, 2, "k", false)) else { panic!("denied") };
    assert_eq!(holder.held_ms, 0, "a clock that went back is no reason to wrap around");
}

#[test]
fn describe_tells_the_holder_the_queue_in_order_and_the_last_transitions() {
    let mut w = World::new();
    let (a, b, c) = (w.open(1), w.open(2), w.open(3));
    w.take(a, 1, "k");
    w.clock_ms += 10;
    w.queue(b, 1, "k");
    w.clock_ms += 10;
    w.queue(c, 1, "k");
    let d = w.describe("k");
    let waiters: Vec<_> = d.waiters.iter().map(|x| (x.session, x.waited_ms)).collect();
    assert_eq!((d.waiting, waiters), (2, std::vec![(b, 10), (c, 0)]));
    w.end(a, Cause::Expired { silent_ms: 777 }, 50);
    w.release(b, 1);
    w.clock_ms += 5;
    let d = w.describe("k");
    let kinds: Vec<_> = d.transitions.iter().map(|t| (t.kind, t.session, t.epoch.0, t.ago_ms)).collect();
    let ended = TransitionKind::SessionEnded(Cause::Expired { silent_ms: 777 });
    assert_eq!(
        kinds,
        [
            (TransitionKind::Granted, c, 3, 5),
            (TransitionKind::Released, b, 2, 5),
            (TransitionKind::Granted, b, 2, 5),
            (ended, a, 1, 5),
            (TransitionKind::Granted, a, 1, 25),
        ]
    );
    assert_eq!(d.transitions[0].revision, LogIndex(w.index));
    for ticket in 2..9 {
        w.release(c, ticket - 1);
        w.take(c, ticket, "k");
    }
    let d = w.describe("k");
    assert_eq!(d.transitions.len(), 8, "only the last are kept");
    assert_eq!((d.transitions[0].epoch, d.transitions[7].epoch), (Epoch(10), Epoch(6)));
    w.compare(&[name("k")]);
}

#[test]
fn describe_lists_the_first_hundred_waiters_and_counts_them_all() {
    let mut w = World::new();
    let a = w.open(1);
    w.take(a, 1, "k");
    for ticket in 2..=131 {
        w.queue(a, ticket, "k");
    }
    let d = w.describe("k");
    assert_eq!((d.waiting, d.waiters.len()), (130, 100));
}

#[test]
fn listings_come_in_order_and_in_pages() {
    let mut w = World::new();
    let a = w.open(1);
    let b = w.open(2);
    for (ticket, key) in [(1, "m"), (2, "z"), (3, "a")] {
        w.take(a, ticket, key);
    }
    w.queue(b, 1, "z");
    let (rows, more) = w.machine.list_locks(None, 2, w.clock_ms);
    assert_eq!((rows[0].key.as_str(), rows[1].key.as_str(), more), ("a", "m", true));
    let (rows, more) = w.machine.list_locks(Some("m"), 2, w.clock_ms);
    assert_eq!((rows.len(), rows[0].key.as_str(), rows[0].waiting, more), (1, "z", 1, false));
    let (rows, more) = w.machine.list_sessions(None, 1);
    assert_eq!((rows[0].session, rows[0].held, rows[0].waiting, more), (a, 3, 0, true));
    let (rows, more) = w.machine.list_sessions(Some(a), 5);
    assert_eq!((rows[0].session, rows[0].held, rows[0].waiting, more), (b, 0, 1, false));
    let behind = SessionId { shard: ShardId(SHARD.0 + 1), opened: LogIndex(0) };
    assert_eq!(w.machine.list_sessions(Some(behind), 5), (Vec::new(), false));
    let ahead = SessionId { shard: ShardId(SHARD.0 - 1), opened: LogIndex(99) };
    assert_eq!(w.machine.list_sessions(Some(ahead), 5).0.len(), 2);
    w.compare(&[name("a"), name("m"), name("z"), name("none")]);
}

#[test]
fn a_page_holds_a_thousand_rows_at_most_whatever_was_asked_for() {
    let mut w = World::with(ClusterLimits { keys_per_session: 2_000, ..ClusterLimits::default() });
    let a = w.open(0);
    for n in 1..=1_001 {
        w.take(a, n, &alloc::format!("k{n:04}"));
        w.open(u128::from(n));
    }
    let (rows, more) = w.machine.list_locks(None, u32::MAX, w.clock_ms);
    assert_eq!((rows.len(), more), (1_000, true));
    let (rest, more) = w.machine.list_locks(Some(&rows[999].key), u32::MAX, w.clock_ms);
    assert_eq!((rest.len(), more), (1, false));
    let (rows, more) = w.machine.list_sessions(None, u32::MAX);
    assert_eq!((rows.len(), more), (1_000, true));
    assert_eq!(w.machine.list_sessions(Some(rows[999].session), u32::MAX).0.len(), 2);
}

#[test]
fn no_bytes_do_nothing_and_bytes_that_are_no_command_stop_the_node() {
    let mut w = World::new();
    w.open(1);
    let mut effects = Vec::new();
    let at = |index| Applied { index: LogIndex(index), clock_ms: 0 };
    let counts = w.machine.counts();
    w.machine.apply(at(2), b"", &mut effects).unwrap();
    assert!(effects.is_empty());
    assert_eq!((w.machine.applied(), w.machine.counts()), (LogIndex(2), counts));
    let error = w.machine.apply(at(3), b"\xff", &mut effects).unwrap_err();
    assert_eq!(error.index, LogIndex(3));
    assert!(effects.is_empty());
}

#[test]
fn names_that_are_none_stop_the_node_whether_the_key_has_a_record_or_not() {
    let mut w = World::new();
    let session = w.open(1);
    w.apply(&fenced(session, 1, "known", Some("db")));
    let mut index = w.index;
    for (key, resource, is_good) in [
        (&b"new"[..], &b"db"[..], true),
        (b"known", b"db", true),
        (b"known", b"other", true),
        (b"n\x01w", b"db", false),
        (b"n\xffw", b"db", false),
        (b"known", b"d\x7f", false),
        (b"known", b"d\xff", false),
        (b"new", b"d\n", false),
    ] {
        let mut bytes = Vec::new();
        let (ticket, resource) = (Ticket(index + 1), Some(resource));
        CommandRef::Acquire {
            session,
            ticket,
            key,
            class: Class::Fenced,
            resource,
            mode: Mode::Exclusive,
            wait: true,
            on_death: OnDeath::Release,
        }
        .encode(&mut bytes);
        assert_eq!(Command::decode(&bytes).is_ok(), is_good);
        index += 1;
        let at = Applied { index: LogIndex(index), clock_ms: 0 };
        let mut effects = Vec::new();
        assert_eq!(w.machine.apply(at, &bytes, &mut effects).is_ok(), is_good);
        assert_eq!(effects.len(), usize::from(is_good), "what is damaged has no effect");
    }
    w.machine.check();
}

#[test]
#[should_panic(expected = "once, in order")]
fn an_index_is_applied_once() {
    let mut w = World::new();
    w.open(1);
    let at = Applied { index: LogIndex(1), clock_ms: 0 };
    let _ = w.machine.apply(at, b"", &mut Vec::new());
}

#[test]
fn the_digest_tells_states_apart() {
    let mut seen = std::collections::BTreeSet::new();
    let digest = |commands: &[Command]| {
        let mut w = World::new();
        let (a, _) = (w.open(1), w.open(2));
        for c in commands {
            w.apply(c);
        }
        w.compare(&[]);
        assert_eq!(a.opened, LogIndex(1));
        w.machine.digest()
    };
    let id = |n| SessionId { shard: SHARD, opened: LogIndex(n) };
    let cancel = |n, t| Command::Cancel { session: id(n), ticket: Ticket(t), timeout: true };
    for commands in [
        [acquire(id(1), 1, "k", false), cancel(2, 1)],
        [acquire(id(2), 1, "k", false), cancel(1, 1)],
        [acquire(id(1), 1, "k", true), cancel(2, 1)],
        [acquire(id(1), 2, "k", false), cancel(2, 1)],
        [acquire(id(1), 1, "l", false), cancel(2, 1)],
        [acquire(id(1), 1, "k", false), cancel(2, 2)],
        [acquire(id(1), 1, "k", false), acquire(id(2), 1, "k", true)],
        [acquire(id(1), 1, "k", false), acquire(id(2), 1, "k", false)],
    ] {
        assert!(seen.insert(digest(&commands)), "{commands:?}");
    }
}

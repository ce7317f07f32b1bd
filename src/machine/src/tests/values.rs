//! DESIGN section 5: ephemeral keys.

use super::*;
use palisade_types::OperatorAct;
use palisade_types::limits::PAGE_VALUE_BYTES_MAX;

fn put(session: SessionId, ticket: u64, key: &str, value: &[u8]) -> Command {
    Command::Put { session, ticket: Ticket(ticket), key: name(key), value: value.into() }
}

fn delete(session: SessionId, ticket: u64, key: &str) -> Command {
    Command::Delete { session, ticket: Ticket(ticket), key: name(key) }
}

fn done(session: SessionId, ticket: u64, revision: u64) -> Reply {
    Reply::PutDone { session, ticket: Ticket(ticket), revision: LogIndex(revision) }
}

fn deleted(session: SessionId, ticket: u64, existed: bool) -> Reply {
    Reply::Deleted { session, ticket: Ticket(ticket), existed }
}

fn finished(ticket: u64, outcome: Outcome) -> Refusal {
    Refusal::TicketFinished { ticket: Ticket(ticket), outcome }
}

fn owned_by(session: SessionId, owner: &str) -> Refusal {
    Refusal::OwnedByOther { session, owner: Some(name(owner)) }
}

fn keys(w: &World, prefix: &str) -> Vec<Key> {
    w.machine.check();
    w.machine.list_values(prefix, None, 1_000).0.into_iter().map(|row| row.key).collect()
}

#[test]
fn a_put_keeps_value_owner_and_revisions_and_its_session_overwrites_it() {
    let mut w = World::new();
    let a = w.open(1);
    assert_eq!(w.machine.get(&name("k")), None);
    assert_eq!(w.reply(&put(a, 1, "k", b"one")), done(a, 1, 2));
    assert_eq!(w.reply(&put(a, 2, "k", &[])), done(a, 2, 3));
    let row = w.machine.get(&name("k")).unwrap();
    assert_eq!((&*row.value, row.session, row.owner.as_ref()), (&[][..], a, Some(&name("owner 1"))));
    assert_eq!((row.created, row.modified, row.ending), (LogIndex(2), LogIndex(3), false));
    assert_eq!(w.machine.session(a).unwrap().values, 1);
    assert_eq!(w.reply(&delete(a, 3, "k")), deleted(a, 3, true));
    assert_eq!(w.reply(&delete(a, 4, "k")), deleted(a, 4, false));
    assert_eq!((w.machine.get(&name("k")), w.machine.counts().value_bytes), (None, 0));
    w.compare(&[name("k")]);
}

#[test]
fn a_repeated_put_or_delete_changes_nothing() {
    let mut w = World::new();
    let a = w.open(1);
    w.reply(&put(a, 1, "k", b"one"));
    w.reply(&put(a, 2, "k", b"two"));
    assert_eq!(w.refusal(&put(a, 1, "k", b"one")), finished(1, Outcome::Done));
    assert_eq!(&*w.machine.get(&name("k")).unwrap().value, b"two");
    w.reply(&delete(a, 3, "k"));
    w.reply(&put(a, 4, "k", b"three"));
    assert_eq!(w.refusal(&delete(a, 3, "k")), finished(3, Outcome::Done));
    assert_eq!(&*w.machine.get(&name("k")).unwrap().value, b"three");
    w.reply(&Command::Release { session: a, ticket: Ticket(5) });
    assert_eq!(w.refusal(&put(a, 5, "k", b"late")), finished(5, Outcome::Cancelled), "given up before");
    w.take(a, 6, "lock");
    assert_eq!(w.refusal(&put(a, 6, "k", b"")), Refusal::TicketMismatch { ticket: Ticket(6) });
    assert!(matches!(w.refusal(&put(a, 0, "k", b"")), Refusal::BadRequest { .. }));
    w.compare(&[name("k")]);
}

#[test]
fn a_key_of_another_session_is_refused_by_name_and_so_is_its_removal() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.reply(&put(a, 1, "k", b"a's"));
    assert_eq!(w.refusal(&put(b, 1, "k", b"b's")), owned_by(a, "owner 1"));
    assert_eq!(w.refusal(&delete(b, 2, "k")), owned_by(a, "owner 1"));
    for ticket in [1, 2] {
        assert_eq!(w.refusal(&put(b, ticket, "k", b"b's")), finished(ticket, Outcome::Refused));
    }
    assert_eq!(&*w.machine.get(&name("k")).unwrap().value, b"a's");
    w.reply(&delete(a, 2, "k"));
    assert_eq!(w.reply(&put(b, 3, "k", b"b's")), done(b, 3, 9));
    w.compare(&[name("k")]);
}

#[test]
fn a_successor_under_the_same_owner_tag_does_not_take_the_old_sessions_key_for_its_own() {
    let mut w = World::new();
    let open = |token| Command::OpenSession {
        token: SessionToken(token),
        ttl_ms: 0,
        owner: Some(name("worker-3")),
        incarnation: None,
    };
    let Reply::Opened { session: old, .. } = w.reply(&open(1)) else { panic!("opened") };
    w.reply(&put(old, 1, "k", b"old"));
    let Reply::Opened { session: new, .. } = w.reply(&open(2)) else { panic!("opened") };
    assert_eq!(w.refusal(&put(new, 1, "k", b"new")), owned_by(old, "worker-3"));
    w.end(old, Cause::Expired { silent_ms: 31_000 }, 50);
    assert!(matches!(w.reply(&put(new, 2, "k", b"new")), Reply::PutDone { .. }));
    w.apply(&Command::Sweep { releases: 50 });
    assert_eq!(&*w.machine.get(&name("k")).unwrap().value, b"new", "the end of the old one is over");
}

#[test]
fn locks_and_ephemeral_keys_do_not_share_names() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "k");
    assert_eq!(w.reply(&put(b, 1, "k", b"v")), done(b, 1, 4));
    assert_eq!((w.holder("k"), w.machine.get(&name("k")).unwrap().session), (Some(a), b));
    w.release(a, 1);
    w.take(b, 2, "k");
}

#[test]
fn keys_vanish_with_their_session_whatever_ended_it() {
    let mut w = World::new();
    for (n, cause) in [(1, Cause::Closed), (2, Cause::Expired { silent_ms: 9 })] {
        let a = w.open(n);
        w.reply(&put(a, 1, "k1", b"v"));
        w.reply(&put(a, 2, "k2", b"v"));
        w.end(a, cause, 50);
        assert_eq!((keys(&w, ""), w.machine.backlog_len()), (std::vec![], 0));
        assert!(matches!(w.refusal(&put(a, 3, "k", b"")), Refusal::SessionEnded { .. }));
    }
    let a = w.open(3);
    w.reply(&put(a, 1, "k1", b"v"));
    let act = OperatorAct::ReportDead { session: a };
    w.apply(&Command::Operator { by: name("o"), reason: name("r"), act, release_now: 50 });
    assert_eq!(keys(&w, ""), []);
}

#[test]
fn what_does_not_fit_the_entry_that_ends_a_session_is_ending_until_it_is_swept() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    for (ticket, key) in [(1, "c"), (2, "a"), (3, "b")] {
        w.reply(&put(a, ticket, key, b"v"));
    }
    w.take(a, 4, "lock 1");
    w.take(a, 5, "lock 2");
    w.end(a, Cause::Closed, 3);
    assert_eq!(keys(&w, ""), [name("b"), name("c")], "locks first, then keys in their order");
    assert!(w.machine.list_values("", None, 9).0.iter().all(|row| row.ending && row.session == a));
    assert_eq!(w.refusal(&put(b, 1, "b", b"mine")), owned_by(a, "owner 1"));
    assert_eq!(w.refusal(&delete(b, 2, "b")), owned_by(a, "owner 1"));
    assert_eq!(w.machine.backlog_len(), 2);
    w.apply(&Command::Sweep { releases: 1 });
    assert_eq!(keys(&w, ""), [name("c")]);
    assert!(matches!(w.reply(&put(b, 3, "b", b"mine")), Reply::PutDone { .. }));
    w.apply(&Command::Sweep { releases: 9 });
    assert_eq!((keys(&w, ""), w.machine.backlog_len()), (std::vec![name("b")], 0));
    w.compare(&[name("a"), name("b"), name("c")]);
}

#[test]
fn one_entry_removes_at_most_fifty_things_locks_first() {
    let mut w = World::new();
    let a = w.open(1);
    for ticket in 1..=60 {
        w.take(a, ticket, &alloc::format!("k{ticket}"));
        w.reply(&put(a, 100 + ticket, &alloc::format!("k{ticket}"), b"v"));
    }
    w.end(a, Cause::Closed, u32::MAX);
    let mut left = std::vec![(w.machine.backlog_len(), keys(&w, "").len())];
    while w.machine.backlog_len() > 0 {
        w.apply(&Command::Sweep { releases: u32::MAX });
        left.push((w.machine.backlog_len(), keys(&w, "").len()));
    }
    assert_eq!(left, [(70, 60), (20, 20), (0, 0)]);
}

#[test]
fn keys_put_count_among_the_keys_of_a_session() {
    let mut w = World::with(ClusterLimits { keys_per_session: 2, ..ClusterLimits::default() });
    let a = w.open(1);
    w.take(a, 1, "lock");
    w.reply(&put(a, 2, "k", b"v"));
    assert!(matches!(w.refusal(&put(a, 3, "more", b"v")), Refusal::SessionFull { limit: 2, .. }));
    assert!(matches!(w.refusal(&acquire(a, 4, "more", true)), Refusal::SessionFull { limit: 2, .. }));
    assert!(matches!(w.reply(&put(a, 5, "k", b"new")), Reply::PutDone { .. }), "no key more than before");
    w.reply(&delete(a, 6, "k"));
    w.take(a, 7, "more");
    w.compare(&[name("k"), name("more"), name("lock")]);
}

#[test]
fn a_list_holds_the_keys_with_its_prefix_page_by_page() {
    let mut w = World::new();
    let a = w.open(1);
    for (n, key) in ["s", "svc", "svc/1", "svc/2", "svc/3", "svd", "t"].iter().enumerate() {
        w.reply(&put(a, n as u64 + 1, key, key.as_bytes()));
    }
    assert_eq!(keys(&w, "svc/"), [name("svc/1"), name("svc/2"), name("svc/3")]);
    assert_eq!((keys(&w, "svc/2").len(), keys(&w, "u").len(), keys(&w, "").len()), (1, 0, 7));
    let (page, more) = w.machine.list_values("svc", None, 2);
    assert_eq!((page[1].key.clone(), more), (name("svc/1"), true));
    let (page, more) = w.machine.list_values("svc", Some("svc/1"), 2);
    assert_eq!((page[0].key.clone(), page.len(), more), (name("svc/2"), 2, false));
    assert_eq!(w.machine.list_values("svc", Some("svd"), 2), (std::vec![], false));
    let (page, more) = w.machine.list_values("svc", Some("a"), 1);
    assert_eq!((page[0].key.clone(), more), (name("svc"), true), "from before the prefix");
}

#[test]
fn a_page_of_values_is_bounded_in_bytes() {
    let mut w = World::new();
    let a = w.open(1);
    for n in 1..=20 {
        w.reply(&put(a, n, &alloc::format!("k{n:02}"), &[7; 16_384]));
    }
    let (page, more) = w.machine.list_values("", None, 1_000);
    assert_eq!((page.len() * 16_384, more), (PAGE_VALUE_BYTES_MAX, true));
    let (page, more) = w.machine.list_values("", Some(&page[15].key), 1_000);
    assert_eq!((page.len(), more), (4, false));
    w.compare(&[]);
}

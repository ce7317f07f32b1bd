//! Observers of an election: what is told of it, from the items of a watch.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use palisade_client_core::{Listing, NotAnElection, Observed, Observer, WatchItem};
use palisade_types::{
    Cause, ClusterIdentity, Cursor, Epoch, Event, Happened, Key, LogIndex, Name, SessionId, ShardId,
    TransitionKind, Value,
};

fn cursor(revision: u64) -> Cursor {
    Cursor::new(ClusterIdentity(7), ShardId(0), LogIndex(revision))
}

fn value(text: &str) -> Value {
    Value::from(text.as_bytes())
}

fn event(revision: u64, session: u64, what: Happened) -> Event {
    let (key, session) =
        (Some(Key::new("e").unwrap()), SessionId { shard: ShardId(0), opened: LogIndex(session) });
    Event { revision: LogIndex(revision), key, session, owner: Some(Name::new("o").unwrap()), what }
}

fn elected(revision: u64, epoch: u64, said: &str) -> Event {
    event(revision, epoch, Happened::Elected { epoch: Epoch(epoch), value: value(said) })
}

fn proclaimed(revision: u64, epoch: u64, said: &str) -> Event {
    event(revision, epoch, Happened::Proclaimed { epoch: Epoch(epoch), value: value(said) })
}

fn released(revision: u64, epoch: u64) -> Event {
    let how = TransitionKind::SessionEnded(Cause::Closed);
    event(revision, epoch, Happened::Released { epoch: Epoch(epoch), barrier: Epoch(epoch), how })
}

fn leads(revision: u64, epoch: u64, said: &str) -> WatchItem {
    let what = Happened::Leads { epoch: Epoch(epoch), ending: false, value: value(said) };
    WatchItem::Row(event(revision, epoch, what))
}

fn free(revision: u64, epoch: u64) -> WatchItem {
    WatchItem::Row(event(revision, 0, Happened::Free { epoch: Epoch(epoch) }))
}

fn change(event: Event, upto: u64) -> WatchItem {
    WatchItem::Change { event, coalesced: false, cursor: Some(cursor(upto)) }
}

/// A leader's epoch and value, or the last epoch of a vacancy.
type Told = (u64, Option<&'static str>);

fn brief(told: &Observed) -> (u64, Option<String>) {
    let said = told.leader.as_ref().map(|leader| {
        assert_eq!(leader.fence.to_string(), format!("e@{}/{}", told.epoch, told.epoch));
        assert_eq!(leader.session.opened.0, told.epoch.0);
        String::from_utf8(leader.value.to_vec()).unwrap()
    });
    (told.epoch.0, said)
}

/// Takes items one by one, and gives what is told after all of them.
fn take(observer: &mut Observer, items: impl IntoIterator<Item = WatchItem>) -> Vec<Observed> {
    let mut all = Vec::new();
    for item in items {
        observer.take(item).unwrap();
        all.extend(std::iter::from_fn(|| observer.poll()));
    }
    all
}

fn check(told: &[Observed], wanted: &[Told]) {
    let wanted: Vec<_> = wanted.iter().map(|(epoch, said)| (*epoch, said.map(str::to_string))).collect();
    assert_eq!(told.iter().map(brief).collect::<Vec<_>>(), wanted);
}

#[test]
fn the_present_state_comes_first_and_then_every_change() {
    let mut o = Observer::new();
    let told = take(
        &mut o,
        [
            WatchItem::Listing(Listing::Asked),
            free(10, 0),
            WatchItem::Listed { cursor: cursor(10) },
            change(elected(11, 1, "a"), 11),
            change(proclaimed(13, 1, "a2"), 13),
            change(released(15, 1), 15),
            change(elected(17, 2, "b"), 17),
        ],
    );
    check(&told, &[(0, None), (1, Some("a")), (1, Some("a2")), (1, None), (2, Some("b"))]);
    assert_eq!(told[0].present, Some(Listing::Asked));
    assert!(told[1..].iter().all(|told| told.present.is_none() && !told.coalesced));
    let at: Vec<_> = told.iter().map(|t| (t.revision.0, t.cursor.clone())).collect();
    assert_eq!(at, [10, 11, 13, 15, 17].map(|r| (r, Some(cursor(r)))));
    assert_eq!(told[4].leader.as_ref().unwrap().owner.as_deref(), Name::new("o").ok().as_deref());
}

#[test]
fn one_leader_after_the_other_under_one_revision_leaves_no_vacancy() {
    let mut o = Observer::new();
    let started =
        [WatchItem::Listing(Listing::Asked), leads(10, 4, "a"), WatchItem::Listed { cursor: cursor(10) }];
    check(&take(&mut o, started), &[(4, Some("a"))]);
    // In the midst of a revision the cursor stands before it.
    check(&take(&mut o, [change(released(12, 4), 11)]), &[]);
    let told = take(&mut o, [change(elected(12, 5, "b"), 12)]);
    check(&told, &[(5, Some("b"))]);
    // The connection breaks between the two: what it says of progress is not that there was no successor.
    check(&take(&mut o, [change(released(14, 5), 13), WatchItem::Progress { cursor: cursor(13) }]), &[]);
    check(&take(&mut o, [change(elected(14, 6, "c"), 14)]), &[(6, Some("c"))]);
}

#[test]
fn a_vacancy_is_told_as_soon_as_its_revision_is_over_whatever_ends_it() {
    let leads_5 = || change(elected(20, 5, "a"), 20);
    let vacant: &[Told] = &[(5, Some("a")), (5, None)];
    // By its own cursor, by an ephemeral key of the same name that vanishes with it, by progress, by what
    // comes later.
    check(&take(&mut Observer::new(), [leads_5(), change(released(22, 5), 22)]), vacant);
    let vanished = event(22, 5, Happened::Vanished { cause: Cause::Closed });
    let told = take(&mut Observer::new(), [leads_5(), change(released(22, 5), 21), change(vanished, 22)]);
    check(&told, vacant);
    assert_eq!((told[1].revision.0, told[1].cursor.clone()), (22, Some(cursor(22))));
    let progress = WatchItem::Progress { cursor: cursor(30) };
    check(&take(&mut Observer::new(), [leads_5(), change(released(22, 5), 21), progress]), vacant);
    let later = [leads_5(), change(released(22, 5), 21), change(elected(25, 6, "b"), 25)];
    check(&take(&mut Observer::new(), later), &[(5, Some("a")), (5, None), (6, Some("b"))]);
}

#[test]
fn what_was_left_out_is_said_with_what_is_told_next() {
    let coalesced = |event, upto| WatchItem::Change { event, coalesced: true, cursor: Some(cursor(upto)) };
    let mut o = Observer::new();
    check(&take(&mut o, [change(elected(10, 1, "a"), 10)]), &[(1, Some("a"))]);
    // Of grant 7 only the newest is told, which is what its leader said last.
    let told = take(&mut o, [coalesced(proclaimed(40, 7, "g"), 10), coalesced(released(50, 7), 50)]);
    check(&told, &[(7, Some("g")), (7, None)]);
    assert!(told[0].coalesced && told[1].coalesced);
    assert_eq!(told[0].cursor, Some(cursor(10)), "going on there repeats, and misses nothing");
    // It came and went unseen: vacant as before, and yet not the same.
    let told = take(&mut o, [coalesced(released(60, 9), 60)]);
    check(&told, &[(9, None)]);
    assert!(told[0].coalesced);
    // That its record is forgotten changes nothing for those who observe.
    let retired = event(70, 0, Happened::Retired { epoch: Epoch(9) });
    check(&take(&mut o, [change(retired, 70)]), &[]);
    assert_eq!(o.cursor(), Some(&cursor(70)));
}

#[test]
fn a_gap_is_said_even_if_nothing_seems_to_have_changed_or_the_listing_is_interrupted() {
    let mut o = Observer::new();
    check(&take(&mut o, [change(elected(10, 1, "a"), 10)]), &[(1, Some("a"))]);
    let told = take(
        &mut o,
        [
            WatchItem::Listing(Listing::Lagged),
            leads(90, 1, "a"),
            WatchItem::Listing(Listing::Interrupted),
            leads(95, 1, "a"),
            WatchItem::Listed { cursor: cursor(95) },
        ],
    );
    check(&told, &[(1, Some("a"))]);
    assert_eq!((told[0].present, told[0].revision), (Some(Listing::Lagged), LogIndex(95)));
}

#[test]
fn what_changes_while_the_present_state_is_told_is_part_of_it() {
    let during = |event| WatchItem::Change { event, coalesced: false, cursor: None };
    let mut o = Observer::new();
    let told = take(
        &mut o,
        [
            WatchItem::Listing(Listing::Asked),
            leads(10, 1, "a"),
            during(released(11, 1)),
            during(elected(11, 2, "b")),
            during(proclaimed(12, 2, "b2")),
            WatchItem::Listed { cursor: cursor(12) },
        ],
    );
    check(&told, &[(2, Some("b2"))]);
}

#[test]
fn a_lock_of_that_name_is_an_error_and_an_ephemeral_key_is_nothing() {
    let stands =
        Happened::Stands { created: LogIndex(1), modified: LogIndex(2), ending: false, value: value("x") };
    let mut o = Observer::new();
    let told = take(
        &mut o,
        [
            WatchItem::Listing(Listing::Asked),
            free(10, 3),
            WatchItem::Row(event(10, 4, stands)),
            WatchItem::Listed { cursor: cursor(10) },
            change(event(11, 4, Happened::Put { created: LogIndex(1), value: value("y") }), 11),
            change(event(12, 4, Happened::Deleted), 12),
        ],
    );
    check(&told, &[(3, None)]);
    let (epoch, barrier) = (Epoch(4), Epoch(4));
    let error = o.take(change(event(13, 4, Happened::Granted { epoch, barrier }), 13)).unwrap_err();
    assert_eq!(error, NotAnElection { key: Key::new("e").unwrap() });
    let held = WatchItem::Row(event(14, 4, Happened::Held { epoch, barrier, ending: false }));
    assert_eq!(Observer::new().take(held), Err(error));
}

#[test]
fn the_cursor_stays_behind_what_has_not_been_read() {
    let mut o = Observer::new();
    o.take(change(elected(10, 1, "a"), 10)).unwrap();
    o.take(WatchItem::Progress { cursor: cursor(20) }).unwrap();
    assert_eq!(o.cursor(), None);
    check(&[o.poll().unwrap()], &[(1, Some("a"))]);
    assert_eq!(o.cursor(), Some(&cursor(10)));
    o.take(WatchItem::Progress { cursor: cursor(30) }).unwrap();
    assert_eq!(o.cursor(), Some(&cursor(30)));
    o.take(change(released(40, 1), 39)).unwrap();
    assert_eq!(o.cursor(), Some(&cursor(30)), "the end of revision 40 has not been seen");
}

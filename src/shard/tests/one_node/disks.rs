//! What a shard makes of a disk that fails or is full.

use palisade_shard::Stop;
use palisade_wal::DiskFault;

use super::*;

/// C7: after a failed sync nobody knows what is on the disk: nothing is answered, the process ends.
#[test]
fn a_failed_sync_stops_the_shard_and_answers_nobody() {
    let mut node = Node::start();
    let session = node.open(1, 0);
    let mut out = Actions::default();
    let request = acquire(session, 1, "k", Wait::No);
    node.shard.handle(node.now, Input::Request { conn: CONN, id: RequestId(500), request }, &mut out);
    node.shard.finish_turn(node.now, &mut out);
    let op = out.disk.remove(0);
    let id = op.id();
    node.disk.begin(op);
    node.disk.fail_in(0, 5);
    let result = node.disk.complete(id);
    node.shard.handle(node.now, Input::Disk { id, result }, &mut out);
    assert!(matches!(out.stop, Some(Stop::Disk(DiskFault::Io { errno: 5, .. }))), "{:?}", out.stop);
    node.shard.finish_turn(node.now, &mut out);
    node.shard.apply_turn(node.now, &mut out);
    assert!(out.replies.is_empty() && out.disk.is_empty(), "neither an answer nor another try");
    // The next process goes by what the disk holds: the grant is there as a whole or not at all.
    node.restart();
    node.ask(Request::Attach { token: SessionToken(1), session });
    assert_eq!(node.epoch(session, 1, "k"), 1);
}

/// C9: there is no room for the next segment.
#[test]
fn a_full_disk_takes_nothing_more_gives_up_the_lead_and_goes_on_when_there_is_room() {
    let mut node = Node::start();
    let session = node.open(1, 0);
    assert_eq!(node.epoch(session, 1, "k"), 1);
    node.disk.set_quota(Some(node.disk.used()));
    let value = [7; 16_384];
    let mut ticket = 1;
    let stuck = loop {
        ticket += 1;
        assert!(ticket < 100, "the segments that are there are full at last");
        node.next_id += 1;
        let id = RequestId(node.next_id);
        let request = put(session, ticket, "v", &value);
        node.input(Some(Input::Request { conn: CONN, id, request }));
        node.pass(Duration::from_millis(20));
        match node.replies.iter().position(|r| r.1 == id) {
            Some(at) => assert!(matches!(node.replies.remove(at).2, Reply::PutDone { .. })),
            None => break id,
        }
    };
    node.pass(Duration::from_secs(5));
    assert!(!node.shard.is_serving(), "others would lead, whose disks have room");
    let told: Vec<_> = node.replies.iter().filter(|r| r.1 == stuck).map(|r| &r.2).collect();
    assert!(matches!(told[..], [Reply::Refused(Refusal::Interrupted { .. })]), "{told:?}");
    let key = Key::new("k").expect("a valid test value");
    let query = Query::Describe { key };
    let seen = node.ask(Request::Read { consistency: Consistency::Stale, query });
    assert!(matches!(seen, Reply::Described { .. }), "what needs no disk is answered: {seen:?}");

    node.disk.set_quota(None);
    node.lead();
    let attached = node.ask(Request::Attach { token: SessionToken(1), session });
    assert!(matches!(attached, Reply::Attached { .. }), "nobody was ended meanwhile: {attached:?}");
    assert_eq!(node.epoch(session, 1, "k"), 1, "the lock is held still");
    assert!(matches!(node.ask(put(session, ticket + 1, "v", &value)), Reply::PutDone { .. }));
}

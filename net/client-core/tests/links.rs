//! Connections: finding the leader, leaving who is silent, and reads.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::time::Duration;

use kit::{CLUSTER, World, endpoint, key, refused};
use palisade_client_core::{CallRequest, Core, CoreConfig, Event, LinkError, NoEndpoints, Query, ReadFrom};
use palisade_types::reply::{Consistency, NodeStatus, ReadMark};
use palisade_types::{ClusterId, LogIndex, NodeId, Refusal, Reply, Term, Time};
use palisade_wire::{HelloRefused, RefusedReason, Request, Wait};

const TTL: u64 = 30_000;

fn locks() -> Reply {
    let read = ReadMark { consistency: Consistency::Linearizable, revision: LogIndex(4) };
    Reply::Locks { read, rows: vec![], more: false }
}

fn page() -> Query {
    Query::ListLocks { after: None, rows: 10 }
}

fn list() -> CallRequest {
    CallRequest::Read { query: page(), from: ReadFrom::Leader }
}

fn asked(consistency: Consistency) -> Request {
    Request::Read { consistency, query: page() }
}

fn down(w: &World) -> &LinkError {
    let Some(Event::LinkDown { error, .. }) = w.log.last() else { panic!("{:?}", w.log) };
    error
}

#[test]
fn a_client_without_endpoints_is_refused_and_one_with_nothing_to_do_does_not_connect() {
    assert!(matches!(Core::new(CoreConfig::new(vec![]), 1, Time::ZERO), Err(NoEndpoints)));
    let mut w = World::new();
    w.advance(10_000);
    assert_eq!(w.dials, []);
    assert_eq!(w.core.next_deadline(), Time::FAR);
}

#[test]
fn a_hint_is_followed_at_once() {
    let mut w = World::new();
    w.core.call(w.now, list());
    let start = w.now;
    let first = w.await_dial();
    let leader = first % 3 + 1;
    assert_eq!(w.greet(Some(leader)), first);
    assert_eq!(w.greet(Some(leader)), leader);
    assert_eq!(w.now, start);
    assert_eq!(w.request().1, asked(Consistency::Linearizable));
}

#[test]
fn without_a_leader_the_nodes_are_asked_in_turn_with_growing_pauses() {
    let mut w = World::new();
    w.core.call(w.now, list());
    let mut nodes = Vec::new();
    for _ in 0..30 {
        nodes.push(w.greet(None));
    }
    for three in nodes.chunks(3) {
        assert!([1, 2, 3].iter().all(|n| three.contains(n)), "{nodes:?}");
    }
    let pauses: Vec<Duration> = w.dials.windows(2).map(|two| two[1].0.since(two[0].0)).collect();
    assert!(pauses[..3].iter().all(|p| *p < Duration::from_millis(40)), "{pauses:?}");
    let (least, most) = (Duration::from_millis(250), Duration::from_millis(510));
    assert!(pauses[20..].iter().all(|p| (least..most).contains(p)), "{pauses:?}");
    assert!(pauses[20..].windows(2).any(|two| two[0] != two[1]), "no jitter: {pauses:?}");
}

#[test]
fn nodes_that_hint_at_each_other_are_not_asked_without_end() {
    let mut w = World::new();
    w.core.call(w.now, list());
    let start = w.now;
    for _ in 0..40 {
        let node = w.await_dial();
        w.greet(Some(node % 3 + 1));
    }
    assert!(w.now.since(start) > Duration::from_secs(2));
}

#[test]
fn a_hint_at_a_server_that_has_just_failed_is_not_followed_at_once() {
    let mut w = World::new();
    w.open(TTL);
    w.cut();
    for _ in 0..2 {
        let node = w.await_dial();
        assert_ne!(node, 1, "{:?}", w.dials);
        w.greet(Some(1));
    }
}

#[test]
fn the_other_nodes_are_learnt_from_the_first() {
    let mut w = World::with(CoreConfig::new(vec![endpoint(2)]));
    w.core.call(w.now, list());
    assert_eq!(w.greet(Some(3)), 2);
    assert_eq!(w.greet(Some(3)), 3);
    let mut seen = Vec::new();
    w.cut();
    for _ in 0..3 {
        seen.push(w.await_dial());
        w.fail_dial();
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
}

#[test]
fn a_silent_server_is_left_while_it_owes_an_answer_and_only_then() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    w.advance(9_000);
    assert!(w.link.is_some(), "it owes nothing");
    w.acquire(handle, Wait::Forever);
    w.acquire_request();
    w.advance(1_999);
    assert!(w.link.is_some());
    w.advance(1);
    assert_eq!(*down(&w), LinkError::Silent);
    w.connect(2);
    w.reattach(session, 30_000);
    w.acquire_request();
}

#[test]
fn a_server_that_answers_others_but_never_one_is_left_in_the_end() {
    let mut w = World::new();
    w.core.call(w.now, list());
    w.connect(1);
    w.request();
    for _ in 0..9 {
        w.advance(1_000);
        let query = Query::Describe { key: key("k") };
        w.core.call(w.now, CallRequest::Read { query, from: ReadFrom::Leader });
        let (id, _) = w.request();
        w.reply(id, refused(Refusal::BadRequest { reason: "no".to_string() }));
    }
    assert!(w.link.is_some());
    w.advance(1_000);
    assert_eq!(*down(&w), LinkError::Silent);
}

#[test]
fn a_connection_that_is_not_made_or_not_greeted_in_time_is_given_up() {
    let mut w = World::new();
    w.core.call(w.now, list());
    w.await_dial();
    w.advance(1_000);
    assert_eq!(*down(&w), LinkError::Timeout);
    w.await_dial();
    w.accept();
    assert_eq!(w.greetings.len(), 1);
    w.advance(1_000);
    assert_eq!(*down(&w), LinkError::Timeout);
    assert_eq!(w.log.len(), 2);
}

#[test]
fn a_server_that_will_not_talk_is_reported_and_the_next_one_asked() {
    let mut w = World::new();
    w.core.call(w.now, list());
    let first = w.await_dial();
    w.accept();
    let (reason, text) = (RefusedReason::Version, "version 9 only".to_string());
    let mut bytes = Vec::new();
    HelloRefused { reason, text: text.clone() }.encode(&mut bytes);
    w.bytes(&bytes);
    assert_eq!(*down(&w), LinkError::Refused { reason, text });
    assert_ne!(w.await_dial(), first);
}

#[test]
fn another_cluster_is_not_mistaken_for_the_one_meant_or_the_one_seen_first() {
    let mut config = CoreConfig::new(vec![endpoint(1)]);
    config.cluster = Some(ClusterId(5));
    let mut w = World::with(config);
    w.core.call(w.now, list());
    w.greet(Some(1));
    assert_eq!(*down(&w), LinkError::OtherCluster);
    assert_eq!(w.greetings[0].cluster, Some(ClusterId(5)));

    let mut w = World::new();
    w.open(TTL);
    w.cut();
    let node = w.await_dial();
    w.accept();
    assert_eq!(w.greetings.last().unwrap().cluster, Some(CLUSTER));
    let mut hello = World::hello(node, Some(node));
    hello.cluster = ClusterId(6);
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    w.bytes(&bytes);
    assert_eq!(*down(&w), LinkError::OtherCluster);
}

#[test]
fn what_is_not_the_protocol_ends_the_connection() {
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &[0xff; 64]] {
        let mut w = World::new();
        w.core.call(w.now, list());
        w.await_dial();
        w.accept();
        w.bytes(garbage);
        assert!(matches!(down(&w), LinkError::Protocol(_)));
    }
    let mut w = World::new();
    w.core.call(w.now, list());
    w.connect(1);
    let (id, _) = w.request();
    w.reply(id, kit::renewed());
    assert!(matches!(down(&w), LinkError::Protocol(_)), "an answer to another question");
    w.connect(1);
    let (id, _) = w.request();
    w.reply(id, locks());
    w.reply(id, locks());
    assert!(matches!(down(&w), LinkError::Protocol(_)), "two answers to one question");
}

#[test]
fn frames_may_arrive_byte_by_byte() {
    let mut w = World::new();
    let call = w.core.call(w.now, list());
    let node = w.await_dial();
    w.accept();
    let mut bytes = Vec::new();
    World::hello(node, Some(node)).encode(&mut bytes);
    bytes.iter().for_each(|byte| w.bytes(&[*byte]));
    let (id, _) = w.request();
    let mut bytes = Vec::new();
    palisade_wire::encode_reply(&locks(), id, &mut bytes);
    bytes.iter().for_each(|byte| w.bytes(&[*byte]));
    assert_eq!(w.take_events(), [Event::CallDone { call, result: Ok(Box::new(locks())) }]);
}

#[test]
fn a_read_is_repeated_while_it_is_refused_for_now_and_reported_when_it_is_refused_for_good() {
    let mut w = World::new();
    let call = w.core.call(w.now, list());
    w.connect(1);
    let (id, _) = w.request();
    w.reply(id, refused(Refusal::Busy { retry_after_ms: 100 }));
    w.advance(99);
    w.no_request();
    w.advance(102);
    let (id, _) = w.request();
    w.reply(id, refused(Refusal::NotLeader { leader: Some(NodeId(2)) }));
    assert_eq!(w.greet(Some(2)), 2);
    let (id, _) = w.request();
    w.cut();
    w.connect(3);
    let (again, _) = w.request();
    assert_ne!(id, again);
    let bad = Refusal::BadRequest { reason: "rows".to_string() };
    w.reply(again, refused(bad.clone()));
    assert_eq!(w.take_events(), [Event::CallDone { call, result: Err(bad) }]);
    assert!(w.core.is_idle());
}

#[test]
fn a_call_that_there_is_no_room_for_is_reported_and_not_mistaken_for_an_outage() {
    let mut w = World::new();
    let call = w.core.call(w.now, list());
    w.connect(1);
    let (id, _) = w.request();
    let full = Refusal::QuotaExceeded { what: "the log".to_string(), limit: 1 };
    w.reply(id, refused(full.clone()));
    assert_eq!(w.take_events(), [Event::CallDone { call, result: Err(full) }]);
    assert!(w.core.is_idle());
}

#[test]
fn a_dropped_read_is_not_reported() {
    let mut w = World::new();
    let call = w.core.call(w.now, list());
    w.connect(1);
    let (id, _) = w.request();
    w.core.drop_call(call);
    assert!(w.core.is_idle());
    w.reply(id, locks());
    w.no_event();
    w.no_request();
}

#[test]
fn any_node_answers_for_its_own_status_and_the_rest_waits_for_the_leader() {
    let mut w = World::new();
    let call = w.core.call(w.now, CallRequest::Status);
    let first = w.await_dial();
    let leader = first % 3 + 1;
    w.greet(Some(leader));
    w.core.call(w.now, list());
    let (id, request) = w.request();
    assert_eq!(request, Request::Status);
    w.no_request();
    let status = NodeStatus {
        node: NodeId(first),
        role: "follower".to_string(),
        term: Term(1),
        leader: Some(NodeId(leader)),
        last: LogIndex(1),
        durable: LogIndex(1),
        commit: LogIndex(1),
        applied: LogIndex(1),
        sessions: 0,
        keys: 0,
        log_bytes: 0,
        snapshot: LogIndex(0),
        boot: 1,
        cluster: None,
    };
    let status = Reply::Status(Box::new(status));
    w.reply(id, status.clone());
    assert_eq!(w.take_events(), [Event::CallDone { call, result: Ok(Box::new(status)) }]);
    assert_eq!(w.greet(Some(leader)), leader);
    assert_eq!(w.request().1, asked(Consistency::Linearizable));
}

/// U17: a crowd whose leader died does not come back in step.
#[test]
fn clients_of_a_leader_that_died_spread_their_retries() {
    let clients = 300;
    let mut retries: Vec<Vec<Duration>> = vec![Vec::new(); 12];
    for seed in 0..clients {
        let mut w = World::new();
        w.core = Core::new(CoreConfig::new((1..=3).map(endpoint).collect()), seed, w.now).unwrap();
        w.core.call(w.now, list());
        w.connect(1);
        let died = w.now;
        w.cut();
        for nth in &mut retries {
            w.greet(None);
            nth.push(w.dials.last().unwrap().0.since(died));
        }
    }
    for (nth, times) in retries.iter_mut().enumerate().skip(3) {
        times.sort();
        let in_step = |from: &Duration| {
            times.iter().filter(|t| (*from..*from + Duration::from_millis(5)).contains(*t)).count()
        };
        let busiest = times.iter().map(in_step).max().unwrap();
        assert!(busiest < clients as usize / 4, "retry {nth}: {busiest} of {clients} within 5 ms");
    }
}

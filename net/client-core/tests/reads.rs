//! Reads: who is asked, how new the answer must be, and that nobody who needs the leader waits for
//! those who do not.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use kit::{World, key, refused, session_id};
use palisade_client_core::{CallId, CallRequest, Event, LinkError, Query, ReadFrom};
use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::{LogIndex, NodeId, Refusal, Reply};
use palisade_wire::Request;

fn page() -> Query {
    Query::ListLocks { after: None, rows: 10 }
}

fn any() -> CallRequest {
    CallRequest::Read { query: page(), from: ReadFrom::Any }
}

fn stale() -> CallRequest {
    CallRequest::ReadStale { query: page() }
}

fn by_lease() -> CallRequest {
    CallRequest::ReadByLease { query: page() }
}

fn asked(consistency: Consistency) -> Request {
    Request::Read { consistency, query: page() }
}

fn locks(consistency: Consistency) -> Reply {
    let read = ReadMark { consistency, revision: LogIndex(4) };
    Reply::Locks { read, rows: vec![], more: false }
}

fn done(w: &mut World, call: CallId, consistency: Consistency) {
    let events = w.take_events();
    assert_eq!(events, [Event::CallDone { call, result: Ok(Box::new(locks(consistency))) }]);
}

#[test]
fn a_stale_read_is_asked_of_any_node_and_needs_no_leader() {
    let mut w = World::new();
    let call = w.core.call(w.now, stale());
    w.greet(None);
    let (id, request) = w.request();
    assert_eq!(request, asked(Consistency::Stale));
    w.reply(id, locks(Consistency::Stale));
    done(&mut w, call, Consistency::Stale);
}

#[test]
fn a_linearizable_read_may_be_asked_of_any_node_and_follows_the_hint_of_one_that_refuses() {
    let mut w = World::new();
    let call = w.core.call(w.now, any());
    let first = w.await_dial();
    let leader = first % 3 + 1;
    w.greet(Some(leader));
    let (id, request) = w.request();
    assert_eq!(request, asked(Consistency::Linearizable));
    w.reply(id, refused(Refusal::NotLeader { leader: Some(NodeId(leader)) }));
    assert_eq!(w.greet(Some(leader)), leader);
    let (id, _) = w.request();
    w.reply(id, locks(Consistency::Linearizable));
    done(&mut w, call, Consistency::Linearizable);
}

#[test]
fn a_read_by_lease_is_for_the_leader_and_takes_a_round_for_an_answer() {
    for given in [Consistency::Lease, Consistency::Linearizable] {
        let mut w = World::new();
        let call = w.core.call(w.now, by_lease());
        w.connect(2);
        let (id, request) = w.request();
        assert_eq!(request, asked(Consistency::Lease));
        w.reply(id, locks(given));
        done(&mut w, call, given);
    }
}

#[test]
fn an_answer_older_than_was_asked_for_is_no_answer() {
    for (call, given) in
        [(any(), Consistency::Stale), (any(), Consistency::Lease), (by_lease(), Consistency::Stale)]
    {
        let mut w = World::new();
        w.core.call(w.now, call);
        w.connect(1);
        let (id, _) = w.request();
        w.reply(id, locks(given));
        w.no_event();
        let Some(Event::LinkDown { error: LinkError::Protocol(_), .. }) = w.log.last() else {
            panic!("{:?}", w.log);
        };
    }
}

#[test]
fn reads_of_any_node_without_end_do_not_keep_a_session_from_the_leader() {
    let mut w = World::new();
    w.core.call(w.now, stale());
    let first = w.await_dial();
    let leader = first % 3 + 1;
    w.greet(Some(leader));
    let (first_id, _) = w.request();
    // A session wants to be opened, and reads go on meanwhile.
    w.begin_open(30_000);
    let second = w.core.call(w.now, stale());
    w.run();
    let (second_id, _) = w.request();
    assert!(w.link.is_some(), "the first read was there before");
    w.reply(first_id, locks(Consistency::Stale));
    assert_eq!(w.greet(Some(leader)), leader, "the second does not keep it");
    assert_ne!(second_id, first_id);
    let requests = [w.request(), w.request()];
    let open = requests.iter().find(|(_, r)| matches!(r, Request::OpenSession { .. })).unwrap().0;
    let read = requests.iter().find(|(_, r)| *r == asked(Consistency::Stale)).unwrap().0;
    w.opened(open, session_id(5), 30_000);
    w.take_events();
    w.reply(read, locks(Consistency::Stale));
    done(&mut w, second, Consistency::Stale);
}

#[test]
fn a_read_of_any_node_that_was_cut_off_is_asked_again_wherever_the_next_connection_leads() {
    let mut w = World::new();
    let query = Query::Describe { key: key("k") };
    w.core.call(w.now, CallRequest::ReadStale { query: query.clone() });
    let first = w.greet(None);
    w.request();
    w.cut();
    assert_ne!(w.greet(None), first);
    assert_eq!(w.request().1, Request::Read { consistency: Consistency::Stale, query });
}

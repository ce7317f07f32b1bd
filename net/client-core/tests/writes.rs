//! Puts and deletes of ephemeral keys: done once, whatever the connection does.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use kit::{World, refused, session_id};
use palisade_client_core::{
    CallRequest, Event, LostReason, Query, ReadFrom, SessionHandle, WriteId, WriteSpec,
};
use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::{Cause, Key, LogIndex, NodeId, Outcome, Refusal, Reply, RequestId, SessionId, Ticket};
use palisade_wire::{Push, Request};

const TTL: u64 = 30_000;

fn key() -> Key {
    Key::new("svc/a").unwrap()
}

fn put(w: &mut World, handle: SessionHandle, value: &[u8]) -> WriteId {
    w.core.write(w.now, handle, WriteSpec::Put { key: key(), value: value.into() })
}

/// The put that is asked next.
fn put_request(w: &mut World) -> (RequestId, Ticket, Vec<u8>) {
    match w.request() {
        (id, Request::Put { ticket, value, .. }) => (id, ticket, value.to_vec()),
        (_, other) => panic!("{other:?}"),
    }
}

fn done(session: SessionId, ticket: Ticket) -> Reply {
    Reply::PutDone { session, ticket, revision: LogIndex(9) }
}

fn finished(ticket: Ticket, outcome: Outcome) -> Reply {
    refused(Refusal::TicketFinished { ticket, outcome })
}

fn leader_read(query: Query) -> CallRequest {
    CallRequest::Read { query, from: ReadFrom::Leader }
}

fn asked(query: Query) -> Request {
    Request::Read { consistency: Consistency::Linearizable, query }
}

#[test]
fn a_put_made_early_is_sent_when_its_session_is_open_and_reported_when_it_is_done() {
    let mut w = World::new();
    let handle = w.begin_open(TTL);
    let write = put(&mut w, handle, b"v");
    w.connect(1);
    let (id, _) = w.request();
    w.no_request();
    w.opened(id, session_id(5), 30_000);
    let (id, ticket, value) = put_request(&mut w);
    assert_eq!((ticket, value), (Ticket(1), b"v".to_vec()));
    w.take_events();
    w.reply(id, done(session_id(5), ticket));
    assert_eq!(w.take_events(), [Event::WriteDone { write, result: Ok(()) }]);
    w.no_request();
}

#[test]
fn a_put_whose_answer_got_lost_is_repeated_under_its_ticket_and_known_to_be_done() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let write = put(&mut w, handle, b"v");
    let (_, ticket, _) = put_request(&mut w);
    w.cut();
    w.connect(2);
    w.reattach(session, 30_000);
    let (id, again, value) = put_request(&mut w);
    assert_eq!((again, value), (ticket, b"v".to_vec()));
    w.reply(id, finished(ticket, Outcome::Done));
    assert_eq!(w.take_events(), [Event::WriteDone { write, result: Ok(()) }]);
    w.no_request();
}

#[test]
fn a_put_whose_refusal_got_lost_is_asked_anew_under_a_new_ticket() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let write = put(&mut w, handle, b"v");
    let (_, ticket, _) = put_request(&mut w);
    w.cut();
    w.connect(2);
    w.reattach(session, 30_000);
    let (id, ..) = put_request(&mut w);
    w.reply(id, finished(ticket, Outcome::Refused));
    w.advance(200);
    let (id, again, _) = put_request(&mut w);
    assert_eq!(again, Ticket(ticket.0 + 1));
    w.reply(id, done(session, again));
    assert_eq!(w.take_events(), [Event::WriteDone { write, result: Ok(()) }]);
}

#[test]
fn a_busy_server_is_asked_again_and_an_interrupted_put_repeated_at_the_new_leader() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    put(&mut w, handle, b"v");
    let (id, ticket, _) = put_request(&mut w);
    w.reply(id, refused(Refusal::Busy { retry_after_ms: 50 }));
    w.no_request();
    w.advance(200);
    let (id, again, _) = put_request(&mut w);
    assert_eq!(again, ticket);
    w.reply(id, refused(Refusal::Interrupted { leader: Some(NodeId(2)) }));
    assert_eq!(w.greet(Some(2)), 2);
    w.reattach(session, 30_000);
    assert_eq!(put_request(&mut w).1, ticket);
}

#[test]
fn a_refused_put_says_why_and_its_ticket_is_finished() {
    for refusal in [
        Refusal::OwnedByOther { session: session_id(77), owner: None },
        Refusal::SessionFull { what: "keys".to_string(), limit: 1000 },
        Refusal::QuotaExceeded { what: "state".to_string(), limit: 1 },
    ] {
        let mut w = World::new();
        let (handle, session) = w.open(TTL);
        let write = put(&mut w, handle, b"v");
        let (id, ticket, _) = put_request(&mut w);
        w.reply(id, refused(refusal.clone()));
        assert_eq!(w.take_events(), [Event::WriteDone { write, result: Err(refusal) }]);
        let (id, request) = w.request();
        assert_eq!(request, Request::Release { session, ticket });
        w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Refused });
        w.no_request();
        w.no_event();
    }
}

#[test]
fn a_put_nobody_waits_for_is_given_up_before_the_next_one_and_never_reported() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let old = put(&mut w, handle, b"old");
    let (_, ticket, _) = put_request(&mut w);
    w.core.drop_write(w.now, old);
    assert_eq!(w.request().1, Request::Release { session, ticket });
    put(&mut w, handle, b"new");
    w.cut();
    w.connect(1);
    w.reattach(session, 30_000);
    let (id, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket });
    w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Done });
    assert_eq!(put_request(&mut w).2, b"new");
    w.no_event();
    let unsent = w.begin_open(TTL);
    let write = put(&mut w, unsent, b"never sent");
    w.core.drop_write(w.now, write);
    w.no_event();
}

#[test]
fn a_delete_is_done_whether_or_not_the_key_was_there() {
    for existed in [true, false] {
        let mut w = World::new();
        let (handle, session) = w.open(TTL);
        let write = w.core.write(w.now, handle, WriteSpec::Delete { key: key() });
        let (id, request) = w.request();
        assert_eq!(request, Request::Delete { session, ticket: Ticket(1), key: key() });
        w.reply(id, Reply::Deleted { session, ticket: Ticket(1), existed });
        assert_eq!(w.take_events(), [Event::WriteDone { write, result: Ok(()) }]);
    }
}

#[test]
fn a_session_that_ends_takes_its_puts_with_it() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let write = put(&mut w, handle, b"v");
    put_request(&mut w);
    let cause = Cause::Expired { silent_ms: 31_000 };
    w.push(Push::SessionEnded { session, cause });
    let reason = LostReason::Ended(cause);
    let lost = [Event::WriteLost { write, reason: reason.clone() }, Event::SessionLost { handle, reason }];
    assert_eq!(w.take_events(), lost);
    let late = put(&mut w, handle, b"late");
    assert_eq!(w.take_events(), [Event::WriteLost { write: late, reason: LostReason::NoSession }]);
}

#[test]
fn reads_of_ephemeral_keys_are_calls_like_others() {
    let mut w = World::new();
    w.open(TTL);
    let read = ReadMark { consistency: Consistency::Linearizable, revision: LogIndex(9) };
    let call = w.core.call(w.now, leader_read(Query::Get { key: key() }));
    let (id, request) = w.request();
    assert_eq!(request, asked(Query::Get { key: key() }));
    let reply = Reply::Value { read, row: None };
    w.reply(id, reply.clone());
    assert_eq!(w.take_events(), [Event::CallDone { call, result: Ok(Box::new(reply)) }]);
    let call =
        w.core.call(w.now, leader_read(Query::ListValues { prefix: None, after: Some(key()), rows: 7 }));
    let (id, request) = w.request();
    assert_eq!(request, asked(Query::ListValues { prefix: None, after: Some(key()), rows: 7 }));
    let reply = Reply::Values { read, rows: Vec::new(), more: false };
    w.reply(id, reply.clone());
    assert_eq!(w.take_events(), [Event::CallDone { call, result: Ok(Box::new(reply)) }]);
}

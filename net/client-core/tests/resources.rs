//! Claims to resources: each pair is put on record once, beside the first acquire, and no acquire waits for it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use kit::{World, fence, key, refused};
use palisade_client_core::{AcquireSpec, ClaimId, Conflict, Event, SessionHandle};
use palisade_types::{Class, Key, LogIndex, Outcome, Refusal, Reply, RequestId, SessionId, Ticket};
use palisade_wire::Request;

const TTL: u64 = 30_000;

fn acquire(w: &mut World, session: SessionHandle, on: &str) -> ClaimId {
    let spec = AcquireSpec { resource: Some(key("db")), ..AcquireSpec::new(key(on), Class::Fenced) };
    let claim = w.core.acquire(w.now, session, spec);
    w.run();
    claim
}

/// Expects that a key claims the resource.
fn posted(w: &mut World, on: &str) -> RequestId {
    let (id, request) = w.request();
    assert_eq!(request, Request::ClaimResource { resource: key("db"), key: key(on) });
    id
}

fn answer(other: Option<Key>) -> Reply {
    Reply::ResourceClaimed { revision: LogIndex(9), keys: 1 + u32::from(other.is_some()), other }
}

fn conflict() -> Conflict {
    Conflict { resource: key("db"), other: key("other"), keys: 2 }
}

fn grant(w: &mut World, session: SessionId, claim: ClaimId) {
    let (id, ticket) = w.acquire_request();
    w.reply(id, Reply::Granted { session, ticket, fence: fence(3) });
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim, fence: fence(3) }]);
}

/// An acquire whose claim to the resource is on its way.
fn asking(w: &mut World) -> (SessionHandle, SessionId, ClaimId, RequestId) {
    let (handle, session) = w.open(TTL);
    let claim = acquire(w, handle, "k");
    assert!(matches!(w.requests[0].1, Request::Acquire { .. }), "the acquire goes first");
    grant(w, session, claim);
    let id = posted(w, "k");
    (handle, session, claim, id)
}

#[test]
fn a_pair_is_claimed_once_beside_its_first_acquire() {
    let mut w = World::new();
    let (handle, session, _, id) = asking(&mut w);
    w.reply(id, answer(None));
    w.no_event();
    let again = acquire(&mut w, handle, "k");
    grant(&mut w, session, again);
    w.no_request();
    let other = acquire(&mut w, handle, "l");
    grant(&mut w, session, other);
    posted(&mut w, "l");
    w.no_request();
}

#[test]
fn a_conflict_is_told_after_the_grant_and_of_later_acquires_at_once_but_logged_once() {
    let mut w = World::new();
    let (handle, _, claim, id) = asking(&mut w);
    let second = acquire(&mut w, handle, "k");
    w.acquire_request();
    w.no_request();
    w.reply(id, answer(Some(key("other"))));
    let told = |claim| Event::ClaimConflict { claim, conflict: conflict() };
    let logged = Event::ResourceConflict { key: key("k"), conflict: conflict() };
    assert_eq!(w.take_events(), [logged, told(claim), told(second)]);
    let third = acquire(&mut w, handle, "k");
    assert_eq!(w.take_events(), [told(third)]);
    w.acquire_request();
    w.no_request();
}

#[test]
fn a_claim_that_is_not_answered_is_made_again_on_the_next_connection_and_when_the_server_is_busy() {
    let mut w = World::new();
    let (_, session, _, _) = asking(&mut w);
    w.cut();
    w.connect(1);
    let (attach, request) = w.request();
    assert!(matches!(request, Request::Attach { .. }));
    let id = posted(&mut w, "k");
    w.reply(attach, Reply::Attached { session, ttl_ms: TTL as u32 });
    w.reply(id, refused(Refusal::Busy { retry_after_ms: 250 }));
    let (renew, request) = w.request();
    assert_eq!(request, Request::Renew { sessions: vec![session] });
    w.reply(renew, kit::renewed());
    w.no_request();
    w.advance(600);
    posted(&mut w, "k");
}

#[test]
fn a_registry_without_room_warns_nobody_and_is_asked_again_with_the_next_acquire() {
    let mut w = World::new();
    let (handle, session, _, id) = asking(&mut w);
    w.reply(id, refused(Refusal::QuotaExceeded { what: "the state in bytes".to_string(), limit: 1 }));
    w.no_event();
    w.advance(5_000);
    w.no_request();
    let again = acquire(&mut w, handle, "k");
    grant(&mut w, session, again);
    posted(&mut w, "k");
}

#[test]
fn an_acquire_that_is_abandoned_leaves_nothing_behind() {
    let mut w = World::new();
    // Before it is sent.
    let handle = w.begin_open(TTL);
    let claim = acquire(&mut w, handle, "k");
    w.core.abandon(w.now, claim);
    w.connect(1);
    let (id, _) = w.request();
    let session = kit::session_id(5);
    w.opened(id, session, TTL as u32);
    w.take_events();
    w.no_request();
    // While the claim is on its way: its answer is heard and told to nobody, but remembered.
    let claim = acquire(&mut w, handle, "k");
    w.acquire_request();
    let id = posted(&mut w, "k");
    w.core.abandon(w.now, claim);
    let (release, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket: Ticket(1) });
    w.reply(release, Reply::Finished { session, ticket: Ticket(1), outcome: Outcome::Released });
    w.reply(id, answer(None));
    w.no_event();
    // On a connection that is lost: it is not made again.
    let claim = acquire(&mut w, handle, "l");
    w.acquire_request();
    posted(&mut w, "l");
    w.core.abandon(w.now, claim);
    w.cut();
    w.connect(1);
    w.reattach(session, TTL as u32);
    let (_, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket: Ticket(2) });
    w.no_request();
}

#[test]
fn with_the_session_go_the_claims_that_are_not_answered() {
    let mut w = World::new();
    let (handle, ..) = asking(&mut w);
    w.cut();
    w.core.forget_session(w.now, handle);
    w.take_events();
    assert!(w.core.is_idle());
    let (second, _) = w.open(TTL);
    w.no_request();
    acquire(&mut w, second, "k");
    w.acquire_request();
    posted(&mut w, "k");
}

#[test]
fn so_many_answers_are_remembered_and_the_oldest_is_asked_for_again() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let acquired = |w: &mut World, n: usize| {
        let on = format!("k{n}");
        let claim = acquire(w, handle, &on);
        grant(w, session, claim);
        let asked = w.requests.pop_front();
        if let Some((id, request)) = &asked {
            assert_eq!(*request, Request::ClaimResource { resource: key("db"), key: key(&on) });
            w.reply(*id, answer(None));
        }
        asked.is_some()
    };
    assert!((0..1_025).all(|n| acquired(&mut w, n)), "each pair is new");
    assert!(!acquired(&mut w, 1_024) && !acquired(&mut w, 1));
    assert!(acquired(&mut w, 0), "the oldest was forgotten");
}

//! Claims: granted, queued, given up, whatever the connection does.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::time::Duration;

use kit::{World, fence, holder, refused, session_id};
use palisade_client_core::{ClaimResult, Event, LostReason};
use palisade_types::{Class, NodeId, Outcome, Refusal, Reply, Ticket};
use palisade_wire::{Push, Request, Wait};

const TTL: u64 = 30_000;

#[test]
fn a_claim_made_early_is_sent_when_its_session_is_open_and_tickets_count_from_one() {
    let mut w = World::new();
    let handle = w.begin_open(TTL);
    let claims = [w.acquire(handle, Wait::No), w.acquire(handle, Wait::Forever)];
    w.connect(1);
    let (id, _) = w.request();
    w.no_request();
    w.opened(id, session_id(5), 30_000);
    for (claim, number) in claims.into_iter().zip(1..) {
        assert_eq!(w.acquire_request().1, Ticket(number));
        assert_eq!(w.core.ticket(claim), Some(Ticket(number)));
    }
}

#[test]
fn a_denied_claim_says_who_holds_and_is_over() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let claim = w.acquire(handle, Wait::No);
    let (id, ticket) = w.acquire_request();
    w.reply(id, Reply::Denied { session, ticket, waiting: 2, holder: holder() });
    let result = ClaimResult::Denied { holder: Some(holder()), waiting: 2 };
    assert_eq!(w.take_events(), [Event::ClaimDone { claim, result }]);
    w.no_request();
}

#[test]
fn a_grant_pushed_to_a_waiting_claim_is_reported_once() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.queued(handle, session, Wait::Forever);
    w.push(Push::Granted { session, ticket, fence: fence(8) });
    w.push(Push::Granted { session, ticket, fence: fence(8) });
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim, fence: fence(8) }]);
}

#[test]
fn a_grant_that_came_while_the_connection_was_down_is_learnt_by_repeating_the_acquire() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.queued(handle, session, Wait::Forever);
    w.cut();
    w.connect(2);
    w.reattach(session, 30_000);
    let (id, again) = w.acquire_request();
    assert_eq!(again, ticket);
    w.reply(id, Reply::Granted { session, ticket, fence: fence(8) });
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim, fence: fence(8) }]);
    w.cut();
    w.connect(2);
    w.reattach(session, 30_000);
    w.no_request();
}

#[test]
fn an_acquire_interrupted_by_a_change_of_leader_is_repeated_under_its_ticket() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let claim = w.acquire(handle, Wait::No);
    let (id, ticket) = w.acquire_request();
    w.reply(id, refused(Refusal::Interrupted { leader: Some(NodeId(2)) }));
    assert_eq!(w.greet(Some(2)), 2);
    w.reattach(session, 30_000);
    let (id, again) = w.acquire_request();
    assert_eq!(again, ticket);
    w.reply(id, Reply::Granted { session, ticket, fence: fence(1) });
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim, fence: fence(1) }]);
}

#[test]
fn a_release_is_reported_when_it_is_answered_and_repeated_until_then() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.granted(handle, session);
    w.core.release(w.now, claim);
    assert_eq!(w.request().1, Request::Release { session, ticket });
    w.cut();
    w.no_event();
    w.connect(3);
    w.reattach(session, 30_000);
    let (id, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket });
    w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Released });
    assert_eq!(w.take_events(), [Event::ClaimDone { claim, result: ClaimResult::Released }]);
    w.no_request();
}

#[test]
fn a_waiting_claim_that_is_abandoned_is_released_until_that_is_answered_and_never_reported() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.queued(handle, session, Wait::Forever);
    w.core.abandon(w.now, claim);
    assert_eq!(w.request().1, Request::Release { session, ticket });
    w.push(Push::Granted { session, ticket, fence: fence(2) });
    w.cut();
    w.connect(1);
    w.reattach(session, 30_000);
    let (id, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket });
    w.reply(id, refused(Refusal::Busy { retry_after_ms: 50 }));
    w.advance(200);
    let (id, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket });
    w.reply(id, refused(Refusal::TicketFinished { ticket, outcome: Outcome::Cancelled }));
    w.advance(1_000);
    w.no_request();
    w.no_event();
    assert_eq!(w.core.ticket(claim), None);
}

#[test]
fn a_claim_abandoned_while_its_grant_is_on_the_way_is_released() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let claim = w.acquire(handle, Wait::No);
    let (id, ticket) = w.acquire_request();
    w.core.abandon(w.now, claim);
    let (release, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket });
    w.reply(id, Reply::Granted { session, ticket, fence: fence(2) });
    w.no_event();
    w.reply(release, Reply::Finished { session, ticket, outcome: Outcome::Released });
    w.no_event();
    w.no_request();
}

#[test]
fn a_claim_abandoned_while_the_connection_is_down_is_released_on_the_next() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let claim = w.acquire(handle, Wait::Forever);
    let (_, ticket) = w.acquire_request();
    w.cut();
    w.core.abandon(w.now, claim);
    w.connect(2);
    w.reattach(session, 30_000);
    assert_eq!(w.request().1, Request::Release { session, ticket });
    w.no_request();
}

#[test]
fn a_claim_abandoned_before_it_was_sent_draws_no_ticket() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    w.cut();
    let claim = w.acquire(handle, Wait::Forever);
    w.core.abandon(w.now, claim);
    let claim = w.acquire(handle, Wait::Forever);
    w.connect(2);
    w.reattach(session, 30_000);
    assert_eq!(w.acquire_request().1, Ticket(1));
    assert_eq!(w.core.ticket(claim), Some(Ticket(1)));
    w.no_event();
}

#[test]
fn a_wait_that_runs_out_is_cancelled_and_timed_out_only_when_that_is_answered() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.queued(handle, session, Wait::Millis(5_000));
    w.advance(4_999);
    w.no_request();
    w.advance(1);
    assert_eq!(w.request().1, Request::Cancel { session, ticket });
    w.no_event();
    w.cut();
    w.connect(2);
    w.reattach(session, 30_000);
    let (id, request) = w.request();
    assert_eq!(request, Request::Cancel { session, ticket });
    w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Cancelled });
    assert_eq!(w.take_events(), [Event::ClaimDone { claim, result: ClaimResult::TimedOut }]);
    w.no_request();
}

#[test]
fn a_lock_taken_by_an_operator_before_its_grant_was_heard_of_did_not_time_out() {
    for time_is_over in [false, true] {
        let mut w = World::new();
        let (handle, session) = w.open(TTL);
        let (claim, ticket) = w.queued(handle, session, Wait::Millis(5_000));
        if time_is_over {
            w.advance(5_000);
            let (id, request) = w.request();
            assert_eq!(request, Request::Cancel { session, ticket });
            w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Forced });
        } else {
            w.push(Push::Finished { session, ticket, outcome: Outcome::Forced });
        }
        assert_eq!(w.take_events(), [Event::ClaimDone { claim, result: ClaimResult::Taken }]);
        w.no_request();
    }
}

#[test]
fn a_grant_that_came_before_the_cancel_is_the_answer() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.queued(handle, session, Wait::Millis(5_000));
    w.advance(5_000);
    let (id, _) = w.request();
    w.push(Push::Granted { session, ticket, fence: fence(4) });
    w.reply(id, Reply::Granted { session, ticket, fence: fence(4) });
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim, fence: fence(4) }]);
    w.no_request();
}

#[test]
fn a_wait_ended_by_the_server_is_over() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.queued(handle, session, Wait::Millis(5_000));
    w.push(Push::Finished { session, ticket, outcome: Outcome::TimedOut });
    assert_eq!(w.take_events(), [Event::ClaimDone { claim, result: ClaimResult::TimedOut }]);
    w.advance(6_000);
    w.no_request();
}

#[test]
fn an_acquire_that_is_repeated_waits_only_for_what_is_left() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let start = w.now;
    w.queued(handle, session, Wait::Millis(5_000));
    w.advance(2_000);
    w.cut();
    w.connect(1);
    w.reattach(session, 30_000);
    let left = 5_000 - w.now.since(start).as_millis() as u32;
    let (_, request) = w.request();
    assert!(matches!(request, Request::Acquire { wait: Wait::Millis(ms), .. } if ms == left), "{request:?}");
}

#[test]
fn a_wait_that_runs_out_before_anything_was_sent_times_out_at_once() {
    let mut w = World::new();
    let (handle, _) = w.open(TTL);
    w.cut();
    let claim = w.acquire(handle, Wait::Millis(3));
    w.advance(3);
    assert_eq!(w.take_events(), [Event::ClaimDone { claim, result: ClaimResult::TimedOut }]);
}

#[test]
fn a_claim_refused_for_good_is_reported_and_its_ticket_finished() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let claim = w.acquire(handle, Wait::Forever);
    let (id, ticket) = w.acquire_request();
    let refusal = Refusal::ClassMismatch { has: Class::Fenced };
    w.reply(id, refused(refusal.clone()));
    assert_eq!(w.take_events(), [Event::ClaimDone { claim, result: ClaimResult::Refused(refusal) }]);
    let (id, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket });
    w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Refused });
    w.no_request();
    w.no_event();
}

#[test]
fn a_busy_server_is_asked_again_under_the_same_ticket_not_before_it_said() {
    let mut w = World::new();
    let (handle, _) = w.open(TTL);
    w.acquire(handle, Wait::No);
    let (id, ticket) = w.acquire_request();
    w.reply(id, refused(Refusal::Busy { retry_after_ms: 300 }));
    w.advance(299);
    w.no_request();
    w.advance(302);
    assert_eq!(w.acquire_request().1, ticket);
    w.no_event();
}

#[test]
fn a_full_session_delays_who_waits_and_refuses_who_does_not() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let full = Refusal::SessionFull { what: "keys".to_string(), limit: 1000 };
    let patient = w.acquire(handle, Wait::Forever);
    let (id, first) = w.acquire_request();
    w.reply(id, refused(full.clone()));
    assert_eq!(w.take_events(), [Event::ClaimDelayed { claim: patient, refusal: full.clone() }]);
    let impatient = w.acquire(handle, Wait::No);
    let (id, ticket) = w.acquire_request();
    w.reply(id, refused(full.clone()));
    let result = ClaimResult::Refused(full);
    assert_eq!(w.take_events(), [Event::ClaimDone { claim: impatient, result }]);
    let (id, request) = w.request();
    assert_eq!(request, Request::Release { session, ticket });
    w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Refused });

    // The refusal finished the first ticket, so the claim goes on under another one.
    w.advance(100);
    let (id, ticket) = w.acquire_request();
    assert_eq!(ticket, first);
    w.reply(id, refused(Refusal::TicketFinished { ticket, outcome: Outcome::Refused }));
    w.advance(1_000);
    let (id, ticket) = w.acquire_request();
    assert_eq!(ticket, Ticket(3));
    w.reply(id, Reply::Granted { session, ticket, fence: fence(2) });
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim: patient, fence: fence(2) }]);
}

#[test]
fn an_answer_that_got_lost_is_told_by_the_finished_ticket() {
    for (outcome, result) in [
        (Outcome::Denied, ClaimResult::Denied { holder: None, waiting: 0 }),
        (Outcome::TimedOut, ClaimResult::TimedOut),
        (Outcome::Cancelled, ClaimResult::Cancelled),
        (Outcome::Forced, ClaimResult::Taken),
    ] {
        let mut w = World::new();
        let (handle, session) = w.open(TTL);
        let claim = w.acquire(handle, Wait::No);
        w.acquire_request();
        w.cut();
        w.connect(1);
        w.reattach(session, 30_000);
        let (id, ticket) = w.acquire_request();
        w.reply(id, refused(Refusal::TicketFinished { ticket, outcome }));
        assert_eq!(w.take_events(), [Event::ClaimDone { claim, result }]);
        w.no_request();
    }
}

#[test]
fn a_claim_of_a_session_that_is_not_attached_goes_on_after_it_is() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    w.acquire(handle, Wait::No);
    let (id, ticket) = w.acquire_request();
    w.reply(id, refused(Refusal::NotAttached { session }));
    w.advance(50);
    w.reattach(session, 30_000);
    w.advance(50);
    assert_eq!(w.acquire_request().1, ticket);
}

#[test]
fn a_held_claim_that_the_cluster_ends_is_lost() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.granted(handle, session);
    w.push(Push::Finished { session, ticket, outcome: Outcome::Released });
    let reason = LostReason::Finished(Outcome::Released);
    assert_eq!(w.take_events(), [Event::ClaimLost { claim, reason }]);
}

#[test]
fn requests_beyond_what_the_server_takes_wait_and_renewals_do_not() {
    let mut w = World::new();
    let handle = w.begin_open(TTL);
    let node = w.await_dial();
    w.accept();
    let mut hello = World::hello(node, Some(node));
    hello.inflight_max = 2;
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    w.bytes(&bytes);
    let (id, _) = w.request();
    let session = session_id(5);
    w.opened(id, session, 30_000);
    for _ in 0..3 {
        w.acquire(handle, Wait::Forever);
    }
    let (first, ticket) = w.acquire_request();
    w.acquire_request();
    w.no_request();
    w.freeze(TTL / 3);
    w.core.handle(w.now, palisade_client_core::Input::Received { link: w.link.unwrap(), bytes: &[] });
    assert!(matches!(w.request().1, Request::Renew { .. }));
    w.reply(first, Reply::Queued { session, ticket, place: 0, holder: holder() });
    w.no_request();
    let deadline = w.core.deadline(handle).unwrap();
    assert!(deadline > w.now + Duration::from_secs(1));
}

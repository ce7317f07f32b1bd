//! Sessions: opening, renewing, losing, closing.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::time::Duration;

use kit::{World, refused, renewed, session_id, spec};
use palisade_client_core::{Event, Input, LostReason, SessionSpec, margin};
use palisade_types::{Cause, NodeId, Refusal, Reply, SessionToken, Time};
use palisade_wire::{Push, Request, Wait, encode_reply};

const TTL: u64 = 30_000;

fn after(start: Time, ms: u64) -> Time {
    start + Duration::from_millis(ms)
}

#[test]
fn the_margin_is_a_tenth_and_at_most_a_second() {
    assert_eq!(margin(Duration::from_millis(500)), Duration::from_millis(50));
    assert_eq!(margin(Duration::from_secs(30)), Duration::from_secs(1));
}

#[test]
fn an_open_that_was_not_answered_is_repeated_under_the_same_token_and_the_lease_runs_from_its_first_try() {
    let mut w = World::new();
    let handle = w.begin_open(TTL);
    w.connect(1);
    let (_, first) = w.request();
    let sent = w.now;
    w.advance(900);
    w.cut();
    w.connect(2);
    let (id, again) = w.request();
    assert_eq!(first, again);
    assert!(matches!(first, Request::OpenSession { token: SessionToken(9), ttl_ms: 30_000, .. }));
    w.opened(id, session_id(5), 30_000);
    let ttl = Duration::from_millis(TTL);
    let gone_within = Duration::from_secs(40);
    let event = Event::SessionOpened { handle, session: session_id(5), ttl, gone_within, short_ttl: false };
    assert_eq!(w.take_events(), [event]);
    assert_eq!(w.core.deadline(handle), Some(after(sent, TTL - 1000)));
}

#[test]
fn an_open_answered_so_late_that_a_renewal_is_due_counts_only_once_that_is_acknowledged() {
    let mut w = World::new();
    let handle = w.begin_open(TTL);
    let claim = w.acquire(handle, Wait::No);
    w.connect(1);
    w.request();
    w.cut();
    w.freeze(TTL + 5_000);
    w.connect(1);
    let (id, _) = w.request();
    w.opened(id, session_id(5), 30_000);
    w.no_event();
    assert_eq!(w.core.deadline(handle), None);
    let (id, request) = w.request();
    assert_eq!(request, Request::Renew { sessions: vec![session_id(5)] });
    w.no_request();
    let sent = w.now;
    w.advance(100);
    w.reply(id, renewed());
    assert!(matches!(w.take_events()[..], [Event::SessionOpened { .. }]));
    assert_eq!(w.core.deadline(handle), Some(after(sent, TTL - 1000)));
    let (_, ticket) = w.acquire_request();
    assert_eq!(w.core.ticket(claim), Some(ticket));
}

#[test]
fn a_session_renews_at_a_third_and_the_acknowledgement_counts_from_when_it_was_sent() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let opened = w.now;
    w.advance(TTL / 3 - 1);
    w.no_request();
    w.advance(1);
    let (id, request) = w.request();
    assert_eq!(request, Request::Renew { sessions: vec![session] });
    assert_eq!(w.core.deadline(handle), Some(after(opened, TTL - 1000)));
    w.advance(700);
    w.reply(id, renewed());
    let deadline = after(opened, TTL / 3 + TTL - 1000);
    assert_eq!(w.take_events(), [Event::Renewed { handle, deadline }]);
    assert_eq!(w.core.deadline(handle), Some(deadline));
    w.advance(TTL / 3 - 700);
    assert!(matches!(w.request().1, Request::Renew { .. }));
}

#[test]
fn nothing_but_a_renewal_lengthens_the_lease() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let deadline = w.core.deadline(handle);
    w.advance(2_000);
    w.granted(handle, session);
    w.cut();
    w.connect(2);
    let (id, _) = w.request();
    w.reply(id, Reply::Attached { session, ttl_ms: 30_000 });
    assert_eq!(w.core.deadline(handle), deadline);
    let sent = w.now;
    let (id, _) = w.request();
    w.reply(id, renewed());
    assert_eq!(w.core.deadline(handle), Some(after(sent, TTL - 1000)));
}

#[test]
fn all_sessions_of_a_connection_are_renewed_in_one_frame() {
    let mut w = World::new();
    w.open(TTL);
    w.advance(3_000);
    let spec = SessionSpec { ttl: Duration::from_millis(TTL), owner: None, incarnation: None };
    let second = w.core.open_session(w.now, spec, SessionToken(10));
    let (id, _) = w.request();
    w.opened(id, session_id(6), 30_000);
    w.take_events();
    let sent = w.now;
    w.advance(7_000);
    let (_, request) = w.request();
    assert_eq!(request, Request::Renew { sessions: vec![session_id(5), session_id(6)] });
    assert_eq!(w.core.deadline(second), Some(after(sent, TTL - 1000)));
    w.no_request();
}

#[test]
fn a_session_nobody_renews_is_lost_with_its_claims_a_margin_before_its_lease_ends() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (held, _) = w.granted(handle, session);
    let (waiting, _) = w.queued(handle, session, Wait::Forever);
    w.cut();
    let deadline = w.core.deadline(handle).unwrap();
    w.now = Time(deadline.0 - 1);
    w.input(Input::Tick);
    w.no_event();
    w.now = deadline;
    w.input(Input::Tick);
    let reason = LostReason::DeadlinePassed;
    let lost = [
        Event::ClaimLost { claim: held, reason: reason.clone() },
        Event::ClaimLost { claim: waiting, reason: reason.clone() },
        Event::SessionLost { handle, reason },
    ];
    assert_eq!(w.take_events(), lost);
    assert!(w.core.is_idle(), "it is never silently replaced");
    assert_eq!(w.core.deadline(handle), None);
}

#[test]
fn a_process_that_was_stopped_learns_of_the_loss_before_anything_that_arrived_meanwhile() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, ticket) = w.queued(handle, session, Wait::Forever);
    w.advance(TTL / 3);
    let (renewal, _) = w.request();
    w.freeze(TTL);
    let mut bytes = Vec::new();
    encode_reply(&renewed(), renewal, &mut bytes);
    Push::Granted { session, ticket, fence: kit::fence(2) }.encode(&mut bytes);
    w.bytes(&bytes);
    let reason = LostReason::DeadlinePassed;
    let lost = [Event::ClaimLost { claim, reason: reason.clone() }, Event::SessionLost { handle, reason }];
    assert_eq!(w.take_events(), lost);
}

#[test]
fn calls_notice_a_passed_deadline_too() {
    let mut w = World::new();
    let (handle, _) = w.open(TTL);
    w.freeze(TTL);
    let claim = w.core.acquire(w.now, handle, spec(Wait::No));
    let lost = [
        Event::SessionLost { handle, reason: LostReason::DeadlinePassed },
        Event::ClaimLost { claim, reason: LostReason::NoSession },
    ];
    assert_eq!(w.take_events(), lost);
}

#[test]
fn a_change_of_leader_is_followed_at_once_and_the_session_renewed_there() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    w.advance(1_000);
    let changed = w.now;
    w.push(Push::LeaderChanged { leader: Some(NodeId(3)) });
    assert_eq!(w.greet(Some(3)), 3);
    assert_eq!(w.now, changed);
    w.reattach(session, 30_000);
    assert_eq!(w.core.deadline(handle), Some(after(changed, TTL - 1000)));
}

#[test]
fn a_leader_elected_anew_is_renewed_at_without_a_new_connection() {
    let mut w = World::new();
    let (_, session) = w.open(TTL);
    w.advance(1_000);
    w.push(Push::LeaderChanged { leader: Some(NodeId(1)) });
    let (_, request) = w.request();
    assert_eq!(request, Request::Renew { sessions: vec![session] });
}

#[test]
fn a_renewal_refused_by_a_deposed_leader_is_repeated_at_the_new_one_at_once() {
    let mut w = World::new();
    let (_, session) = w.open(TTL);
    w.advance(TTL / 3);
    let (id, _) = w.request();
    let refusal = Refusal::NotLeader { leader: Some(NodeId(2)) };
    let at = w.now;
    w.reply(id, refused(refusal));
    assert_eq!(w.greet(Some(2)), 2);
    w.reattach(session, 30_000);
    assert_eq!(w.now, at);
}

#[test]
fn a_session_the_server_does_not_know_as_attached_is_attached_again() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    w.advance(TTL / 3);
    let (id, _) = w.request();
    let before = w.core.deadline(handle);
    w.reply(id, Reply::Renewed { refused: vec![Refusal::NotAttached { session }] });
    w.no_event();
    assert_eq!(w.core.deadline(handle), before);
    w.advance(100);
    w.reattach(session, 30_000);
}

#[test]
fn the_end_of_a_session_is_reported_with_its_cause_however_it_is_learnt() {
    let cause = Cause::Expired { silent_ms: 31_000 };
    let ended = |session| Refusal::SessionEnded { session, cause };
    for way in 0..4 {
        let mut w = World::new();
        let (handle, session) = w.open(TTL);
        match way {
            0 => w.push(Push::SessionEnded { session, cause }),
            1 => {
                w.advance(TTL / 3);
                let (id, _) = w.request();
                w.reply(id, Reply::Renewed { refused: vec![ended(session)] });
            }
            2 => {
                w.cut();
                w.connect(1);
                let (id, _) = w.request();
                w.reply(id, refused(ended(session)));
            }
            _ => {
                w.acquire(handle, Wait::No);
                let (id, _) = w.request();
                w.reply(id, refused(ended(session)));
                assert!(matches!(w.events.remove(0), Event::ClaimLost { .. }));
            }
        }
        let lost = Event::SessionLost { handle, reason: LostReason::Ended(cause) };
        assert_eq!(w.take_events(), [lost], "way {way}");
        assert!(w.core.is_idle());
    }
}

#[test]
fn one_session_that_ended_does_not_keep_another_from_being_renewed() {
    let mut w = World::new();
    let (first, session) = w.open(TTL);
    let spec = SessionSpec { ttl: Duration::from_millis(TTL), owner: None, incarnation: None };
    let second = w.core.open_session(w.now, spec, SessionToken(10));
    let (id, _) = w.request();
    w.opened(id, session_id(6), 30_000);
    w.take_events();
    w.advance(TTL / 3);
    let deadline = after(w.now, TTL - 1000);
    let (id, _) = w.request();
    let cause = Cause::Closed;
    w.reply(id, Reply::Renewed { refused: vec![Refusal::SessionEnded { session, cause }] });
    let events = [
        Event::SessionLost { handle: first, reason: LostReason::Ended(cause) },
        Event::Renewed { handle: second, deadline },
    ];
    assert_eq!(w.take_events(), events);
}

#[test]
fn a_renewal_that_is_refused_as_a_whole_is_repeated_soon() {
    let mut w = World::new();
    let (_, session) = w.open(TTL);
    w.advance(TTL / 3);
    let (id, _) = w.request();
    w.reply(id, refused(Refusal::Busy { retry_after_ms: 200 }));
    w.advance(199);
    w.no_request();
    w.advance(202);
    assert_eq!(w.request().1, Request::Renew { sessions: vec![session] });
}

#[test]
fn an_open_refused_for_good_fails_and_one_refused_for_now_is_repeated() {
    let mut w = World::new();
    let handle = w.begin_open(1);
    w.connect(1);
    let (id, _) = w.request();
    let full = Refusal::QuotaExceeded { what: "sessions".to_string(), limit: 10 };
    w.reply(id, refused(full.clone()));
    assert_eq!(w.take_events(), [Event::SessionDelayed { handle, refusal: full }]);
    w.advance(100);
    let (id, _) = w.request();
    w.reply(id, refused(Refusal::Busy { retry_after_ms: 500 }));
    w.no_event();
    w.advance(499);
    w.no_request();
    w.advance(502);
    let (id, _) = w.request();
    let bad = Refusal::BadRequest { reason: "a TTL has at least 500 ms".to_string() };
    w.reply(id, refused(bad.clone()));
    assert_eq!(w.take_events(), [Event::SessionFailed { handle, reason: LostReason::Refused(bad) }]);
    assert!(w.core.is_idle());
}

#[test]
fn an_open_whose_session_has_ended_meanwhile_fails_with_the_cause() {
    let mut w = World::new();
    let handle = w.begin_open(TTL);
    w.connect(1);
    let (id, _) = w.request();
    let cause = Cause::Expired { silent_ms: 1 };
    w.reply(id, refused(Refusal::SessionEnded { session: session_id(3), cause }));
    assert_eq!(w.take_events(), [Event::SessionFailed { handle, reason: LostReason::Ended(cause) }]);
}

#[test]
fn a_close_is_answered_and_loses_the_claims_at_once() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, _) = w.granted(handle, session);
    w.core.close_session(w.now, handle);
    assert_eq!(w.take_events(), [Event::ClaimLost { claim, reason: LostReason::Closed }]);
    let (id, request) = w.request();
    assert_eq!(request, Request::CloseSession { session });
    w.reply(id, Reply::SessionClosed { session });
    assert_eq!(w.take_events(), [Event::SessionClosed { handle }]);
    assert!(w.core.is_idle());
}

#[test]
fn a_close_is_repeated_until_it_is_answered_and_renews_nothing() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    w.core.close_session(w.now, handle);
    w.request();
    w.cut();
    w.connect(2);
    let (id, request) = w.request();
    assert!(matches!(request, Request::Attach { .. }));
    w.reply(id, Reply::Attached { session, ttl_ms: 30_000 });
    let (id, request) = w.request();
    assert_eq!(request, Request::CloseSession { session });
    w.no_request();
    let cause = Cause::Closed;
    w.reply(id, refused(Refusal::SessionEnded { session, cause }));
    assert_eq!(w.take_events(), [Event::SessionClosed { handle }]);
}

#[test]
fn a_close_that_reaches_nobody_is_over_when_the_lease_is() {
    let mut w = World::new();
    let (handle, _) = w.open(TTL);
    let start = w.now;
    w.cut();
    w.core.close_session(w.now, handle);
    while w.now < after(start, TTL - 1) {
        w.await_dial();
        w.fail_dial();
        w.no_event();
        w.now = w.now.max(after(start, TTL - 400));
        w.advance(100);
    }
    w.advance(1);
    assert_eq!(w.take_events(), [Event::SessionClosed { handle }]);
    assert!(w.core.is_idle());
}

#[test]
fn a_session_closed_before_its_open_left_is_closed_and_one_after_that_is_opened_to_be_closed() {
    let mut w = World::new();
    let handle = w.begin_open(TTL);
    w.core.close_session(w.now, handle);
    assert_eq!(w.take_events(), [Event::SessionClosed { handle }]);
    w.fail_dial();

    let handle = w.begin_open(TTL);
    w.connect(1);
    let (id, _) = w.request();
    w.core.close_session(w.now, handle);
    w.opened(id, session_id(5), 30_000);
    w.no_event();
    let (id, request) = w.request();
    assert_eq!(request, Request::CloseSession { session: session_id(5) });
    w.reply(id, Reply::SessionClosed { session: session_id(5) });
    assert_eq!(w.take_events(), [Event::SessionClosed { handle }]);
}

#[test]
fn a_session_that_is_forgotten_is_neither_renewed_nor_closed() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, _) = w.granted(handle, session);
    w.core.forget_session(w.now, handle);
    assert_eq!(w.take_events(), [Event::ClaimLost { claim, reason: LostReason::Closed }]);
    w.advance(TTL);
    w.no_request();
    w.no_event();
    assert!(w.core.is_idle());
}

#[test]
fn a_session_renewed_no_more_can_still_let_go_and_is_lost_when_its_lease_is_over() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (first, _) = w.granted(handle, session);
    let (second, _) = w.granted(handle, session);
    let deadline = w.core.deadline(handle).unwrap();
    w.core.stop_renewing(w.now, handle);
    w.advance(TTL / 2);
    w.no_request();
    // Neither does a new connection renew it.
    w.cut();
    w.connect(2);
    let (id, request) = w.request();
    assert!(matches!(request, Request::Attach { .. }));
    w.reply(id, Reply::Attached { session, ttl_ms: 30_000 });
    w.no_request();
    w.core.release(w.now, first);
    w.run();
    let (_, request) = w.request();
    assert!(matches!(request, Request::Release { .. }));
    w.no_event();
    assert_eq!(w.core.deadline(handle), Some(deadline));
    w.now = deadline;
    w.input(Input::Tick);
    let reason = LostReason::DeadlinePassed;
    let lost = [first, second].map(|claim| Event::ClaimLost { claim, reason: reason.clone() });
    let over = Event::SessionLost { handle, reason: reason.clone() };
    assert_eq!(w.take_events(), lost.into_iter().chain([over]).collect::<Vec<_>>());
}

#[test]
fn of_a_session_that_was_lost_nothing_is_ever_sent_again() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, _) = w.granted(handle, session);
    w.now = w.core.deadline(handle).unwrap();
    w.input(Input::Tick);
    assert_eq!(w.take_events().len(), 2, "claim and session");
    w.requests.clear();
    w.core.release(w.now, claim);
    w.core.close_session(w.now, handle);
    w.core.stop_renewing(w.now, handle);
    w.run();
    w.advance(TTL);
    w.no_request();
    w.no_event();
    assert!(w.core.is_idle());
}

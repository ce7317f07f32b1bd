//! Shared claims, downgrades and campaigns: what is asked, and that both tickets of a downgrade are
//! finished whichever way it ends.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use kit::{World, fence, key};
use palisade_client_core::{AcquireSpec, ClaimId, Event, LostReason, WriteSpec};
use palisade_types::{Class, Mode, OnDeath, Outcome, Refusal, Reply, RequestId, SessionId, Ticket};
use palisade_wire::{Push, Request, Wait};

const TTL: u64 = 30_000;

/// A claim that holds its key under ticket 1, and the request that downgrades it.
fn downgrading(w: &mut World) -> (ClaimId, SessionId, RequestId) {
    let (handle, session) = w.open(TTL);
    let (claim, holds) = w.granted(handle, session);
    w.core.downgrade(w.now, claim);
    w.run();
    let (id, request) = w.request();
    assert_eq!(request, Request::Downgrade { session, ticket: Ticket(2), holds });
    (claim, session, id)
}

/// Takes the requests on their way, which must be releases of these tickets, in any order.
fn released(w: &mut World, session: SessionId, tickets: &[u64]) {
    let mut seen = Vec::new();
    for _ in tickets {
        let (id, request) = w.request();
        let Request::Release { ticket, .. } = request else { panic!("{request:?}") };
        seen.push(ticket.0);
        w.reply(id, Reply::Finished { session, ticket, outcome: Outcome::Released });
    }
    seen.sort_unstable();
    assert_eq!(seen, tickets);
    w.no_request();
}

#[test]
fn mode_and_quarantine_are_asked_for() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let spec = AcquireSpec {
        mode: Mode::Shared,
        on_death: OnDeath::Quarantine,
        ..AcquireSpec::new(key("k"), Class::Advisory)
    };
    w.core.acquire(w.now, handle, spec);
    w.run();
    let (_, request) = w.request();
    let expected = Request::Acquire {
        session,
        ticket: Ticket(1),
        key: key("k"),
        class: Class::Advisory,
        resource: None,
        mode: Mode::Shared,
        wait: Wait::Forever,
        on_death: OnDeath::Quarantine,
    };
    assert_eq!(request, expected);
}

#[test]
fn a_downgrade_gives_the_new_fence_and_release_names_the_new_ticket() {
    let mut w = World::new();
    let (claim, session, id) = downgrading(&mut w);
    w.reply(id, Reply::Granted { session, ticket: Ticket(2), fence: fence(4) });
    assert_eq!(w.take_events(), [Event::ClaimDowngraded { claim, fence: fence(4) }]);
    w.core.abandon(w.now, claim);
    w.run();
    released(&mut w, session, &[2]);
}

#[test]
fn a_downgrade_is_asked_again_on_another_connection_under_its_ticket() {
    let mut w = World::new();
    let (claim, session, _) = downgrading(&mut w);
    w.cut();
    w.connect(2);
    w.reattach(session, 30_000);
    let (id, request) = w.request();
    assert!(matches!(request, Request::Downgrade { ticket: Ticket(2), holds: Ticket(1), .. }), "{request:?}");
    w.reply(id, Reply::Granted { session, ticket: Ticket(2), fence: fence(4) });
    assert_eq!(w.take_events(), [Event::ClaimDowngraded { claim, fence: fence(4) }]);
}

#[test]
fn a_downgrade_that_is_given_up_leaves_neither_ticket_behind() {
    let mut w = World::new();
    let (claim, session, _) = downgrading(&mut w);
    w.core.abandon(w.now, claim);
    w.run();
    released(&mut w, session, &[1, 2]);
    assert_eq!(w.take_events(), []);
}

#[test]
fn a_refused_downgrade_keeps_the_claim_as_it_was() {
    let mut w = World::new();
    let (claim, session, id) = downgrading(&mut w);
    let refusal = Refusal::BadRequest { reason: "no".into() };
    w.reply(id, Reply::Refused(refusal.clone()));
    assert_eq!(w.take_events(), [Event::ClaimKept { claim, refusal }]);
    released(&mut w, session, &[2]);
    w.core.abandon(w.now, claim);
    w.run();
    released(&mut w, session, &[1]);
}

#[test]
fn a_claim_that_is_taken_away_while_it_is_downgraded_is_lost() {
    let mut w = World::new();
    let (claim, session, id) = downgrading(&mut w);
    w.push(Push::Finished { session, ticket: Ticket(1), outcome: Outcome::Forced });
    let reason = LostReason::Finished(Outcome::Forced);
    assert_eq!(w.take_events(), [Event::ClaimLost { claim, reason: reason.clone() }]);
    released(&mut w, session, &[2]);

    let mut w = World::new();
    let (claim, _, id_too) = downgrading(&mut w);
    assert_eq!(id, id_too);
    w.reply(id, Reply::Refused(Refusal::TicketFinished { ticket: Ticket(1), outcome: Outcome::Forced }));
    assert_eq!(w.take_events(), [Event::ClaimLost { claim, reason }]);
}

#[test]
fn a_shared_claim_and_one_that_waits_are_not_downgraded() {
    let mut w = World::new();
    let (claim, session, id) = downgrading(&mut w);
    w.reply(id, Reply::Granted { session, ticket: Ticket(2), fence: fence(4) });
    w.take_events();
    w.core.downgrade(w.now, claim);
    w.run();
    assert!(matches!(w.take_events()[..], [Event::ClaimKept { .. }]));
    w.no_request();
}

#[test]
fn a_campaign_says_its_value_and_a_proclamation_names_its_ticket() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let value = (*b"me").into();
    let spec = AcquireSpec { value: Some(value), ..AcquireSpec::new(key("e"), Class::Election) };
    let claim = w.core.acquire(w.now, handle, spec);
    w.run();
    let (id, request) = w.request();
    assert!(matches!(&request, Request::Campaign { value, .. } if **value == *b"me"), "{request:?}");
    let early = w.core.proclaim(w.now, claim, (*b"too early").into());
    w.run();
    let reason = LostReason::NoClaim;
    assert_eq!(w.take_events(), [Event::WriteLost { write: early, reason }]);
    w.reply(id, Reply::Granted { session, ticket: Ticket(1), fence: fence(3) });
    w.take_events();

    let write = w.core.proclaim(w.now, claim, (*b"ready").into());
    w.run();
    let (id, request) = w.request();
    let value = (*b"ready").into();
    assert_eq!(request, Request::Proclaim { session, ticket: Ticket(2), leads: Ticket(1), value });
    w.reply(id, Reply::Finished { session, ticket: Ticket(2), outcome: Outcome::Done });
    assert_eq!(w.take_events(), [Event::WriteDone { write, result: Ok(()) }]);
}

#[test]
fn a_proclamation_of_a_leadership_that_is_over_is_refused_and_not_asked_anew() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let spec = WriteSpec::Proclaim { leads: Ticket(7), value: (*b"late").into() };
    let write = w.core.write(w.now, handle, spec);
    w.run();
    let (id, _) = w.request();
    let refusal = Refusal::TicketFinished { ticket: Ticket(7), outcome: Outcome::Released };
    w.reply(id, Reply::Refused(refusal.clone()));
    assert_eq!(w.take_events(), [Event::WriteDone { write, result: Err(refusal) }]);
    released(&mut w, session, &[1]);
}

//! Elections: campaigns, proclamations, resigning (DESIGN section 4).

use super::*;
use palisade_types::{Epoch, Happened, Value};

fn value(text: &str) -> Value {
    Value::from(text.as_bytes())
}

fn campaign(session: SessionId, ticket: u64, said: &str) -> Command {
    let (ticket, key) = (Ticket(ticket), name("e"));
    Command::Campaign { session, ticket, key, value: value(said), wait: true }
}

fn proclaim(session: SessionId, ticket: u64, leads: u64, said: &str) -> Command {
    Command::Proclaim { session, ticket: Ticket(ticket), leads: Ticket(leads), value: value(said) }
}

fn leader(w: &World) -> Option<(SessionId, Value)> {
    let seen = w.describe("e");
    Some((seen.holders.first()?.session, seen.value?))
}

#[test]
fn the_first_leads_the_next_follow_in_order_and_each_brings_its_own_value() {
    let mut w = World::new();
    let [a, b, c] = [1, 2, 3].map(|n| w.open(n));
    assert!(matches!(w.reply(&campaign(a, 1, "a")), Reply::Granted { .. }));
    assert!(matches!(w.reply(&campaign(b, 1, "b")), Reply::Queued { place: 0, .. }));
    assert!(matches!(w.reply(&campaign(c, 1, "c")), Reply::Queued { place: 1, .. }));
    assert_eq!(leader(&w), Some((a, value("a"))));
    assert_eq!(w.release(a, 1), [(b, Ticket(1))], "resigning is a release");
    assert!(matches!(w.reply(&campaign(a, 2, "a again")), Reply::Queued { place: 1, .. }), "at the tail");
    assert_eq!(leader(&w), Some((b, value("b"))));
    w.end(b, Cause::Expired { silent_ms: 1 }, 50);
    assert_eq!(leader(&w), Some((c, value("c"))));
    w.release(c, 1);
    assert_eq!(leader(&w), Some((a, value("a again"))));
    w.release(a, 2);
    assert_eq!(leader(&w), None, "vacant");
}

#[test]
fn only_the_leader_proclaims_and_a_repetition_changes_nothing() {
    let mut w = World::new();
    let [a, b] = [1, 2].map(|n| w.open(n));
    w.apply(&campaign(a, 1, "a"));
    w.apply(&campaign(b, 1, "b"));
    let first = proclaim(a, 2, 1, "a2");
    let outcome = Outcome::Done;
    assert_eq!(w.reply(&first), Reply::Finished { session: a, ticket: Ticket(2), outcome });
    assert_eq!(leader(&w), Some((a, value("a2"))));
    w.apply(&proclaim(a, 3, 1, "a3"));
    assert_eq!(w.refusal(&first), Refusal::TicketFinished { ticket: Ticket(2), outcome });
    assert_eq!(leader(&w), Some((a, value("a3"))), "a late repetition does not bring the old value back");
    assert!(matches!(w.refusal(&proclaim(b, 2, 1, "x")), Refusal::BadRequest { .. }), "b still waits");
    w.release(a, 1);
    let late = w.refusal(&proclaim(a, 4, 1, "x"));
    assert_eq!(late, Refusal::TicketFinished { ticket: Ticket(1), outcome: Outcome::Released });
    assert_eq!(leader(&w), Some((b, value("b"))));
}

#[test]
fn a_repeated_campaign_must_say_the_same_also_after_a_proclamation() {
    let mut w = World::new();
    let a = w.open(1);
    let granted = w.reply(&campaign(a, 1, "a"));
    w.apply(&proclaim(a, 2, 1, "a2"));
    assert_eq!(w.reply(&campaign(a, 1, "a")), granted);
    assert_eq!(w.refusal(&campaign(a, 1, "a2")), Refusal::TicketMismatch { ticket: Ticket(1) });
}

#[test]
fn elections_and_locks_share_their_names_and_are_told_apart_by_class() {
    let mut w = World::new();
    let a = w.open(1);
    w.apply(&campaign(a, 1, "a"));
    let mismatch = Refusal::ClassMismatch { has: Class::Election };
    assert_eq!(w.refusal(&acquire(a, 2, "e", true)), mismatch);
    w.take(a, 3, "k");
    let not_an_election = Refusal::ClassMismatch { has: Class::Advisory };
    assert_eq!(w.refusal(&proclaim(a, 4, 3, "x")), not_an_election);
    let downgrade = Command::Downgrade { session: a, ticket: Ticket(5), holds: Ticket(1) };
    assert!(matches!(w.refusal(&downgrade), Refusal::BadRequest { .. }));
}

#[test]
fn a_candidate_whose_session_has_ended_never_leads_and_observers_see_the_next_or_none() {
    let mut w = World::new();
    let [a, b, c] = [1, 2, 3].map(|n| w.open(n));
    for (session, said) in [(a, "a"), (b, "b"), (c, "c")] {
        w.apply(&campaign(session, 1, said));
    }
    let news = |w: &World| -> Vec<Happened> {
        let of_keys = w.machine.news().iter().filter(|event| event.key.is_some());
        of_keys.map(|event| event.what.clone()).collect()
    };
    w.end(b, Cause::Expired { silent_ms: 1 }, 50);
    assert_eq!(news(&w), [], "who waits changes nothing that is observed");
    w.release(a, 1);
    let elected = Happened::Elected { epoch: Epoch(2), value: value("c") };
    assert!(matches!(&news(&w)[..], [Happened::Released { .. }, next] if *next == elected));
    w.end(c, Cause::Expired { silent_ms: 1 }, 50);
    assert!(matches!(&news(&w)[..], [Happened::Released { .. }]), "vacant");
    assert_eq!(leader(&w), None);
}

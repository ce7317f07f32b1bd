//! DESIGN section 9: every limit answers with itself, and finishes the ticket of the claim.

use super::*;

fn finished_as_refused(w: &mut World, session: SessionId, ticket: u64) {
    let outcome = Outcome::Refused;
    let expected = Refusal::TicketFinished { ticket: Ticket(ticket), outcome };
    assert_eq!(w.refusal(&acquire(session, ticket, "k", true)), expected);
}

#[test]
fn live_sessions_are_limited_and_an_end_makes_room() {
    let mut w = World::with(ClusterLimits { sessions: 2, ..ClusterLimits::default() });
    let a = w.open(1);
    w.open(2);
    let open = Command::OpenSession { token: SessionToken(3), ttl_ms: 0, owner: None, incarnation: None };
    assert!(matches!(w.refusal(&open), Refusal::QuotaExceeded { limit: 2, .. }));
    w.open(2);
    w.end(a, Cause::Closed, 50);
    w.open(3);
    w.compare(&[]);
}

#[test]
fn a_session_holds_and_awaits_so_many_keys() {
    let mut w = World::with(ClusterLimits { keys_per_session: 2, ..ClusterLimits::default() });
    let (a, b) = (w.open(1), w.open(2));
    w.take(b, 1, "held");
    w.take(a, 1, "x");
    w.queue(a, 2, "held");
    for (ticket, key) in [(3, "free"), (4, "held")] {
        assert!(matches!(w.refusal(&acquire(a, ticket, key, true)), Refusal::SessionFull { limit: 2, .. }));
        finished_as_refused(&mut w, a, ticket);
    }
    assert_eq!(w.describe("free").class, None);
    assert!(
        matches!(w.reply(&acquire(a, 5, "held", false)), Reply::Denied { .. }),
        "who would not wait is denied"
    );
    w.release(a, 1);
    w.take(a, 6, "free");
    w.compare(&[name("held"), name("x"), name("free")]);
}

#[test]
fn all_claims_together_are_limited() {
    let mut w = World::with(ClusterLimits { claims: 2, ..ClusterLimits::default() });
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "x");
    w.queue(b, 1, "x");
    assert!(matches!(w.refusal(&acquire(b, 2, "y", true)), Refusal::QuotaExceeded { limit: 2, .. }));
    finished_as_refused(&mut w, b, 2);
    w.end(a, Cause::Closed, 50);
    w.take(b, 3, "y");
    w.compare(&[name("x"), name("y")]);
}

#[test]
fn the_queue_of_a_key_is_limited() {
    let mut w = World::with(ClusterLimits { waiters_per_key: 1, ..ClusterLimits::default() });
    let a = w.open(1);
    w.take(a, 1, "x");
    w.queue(a, 2, "x");
    assert!(matches!(w.refusal(&acquire(a, 3, "x", true)), Refusal::QuotaExceeded { limit: 1, .. }));
    finished_as_refused(&mut w, a, 3);
    w.release(a, 1);
    assert_eq!(w.queue(a, 4, "x"), 0);
    w.compare(&[name("x")]);
}

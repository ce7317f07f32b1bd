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

fn put(session: SessionId, ticket: u64, key: &str, bytes: usize) -> Command {
    Command::Put { session, ticket: Ticket(ticket), key: name(key), value: std::vec![7; bytes].into() }
}

fn fenced(session: SessionId, ticket: u64, key: &str, resource: &str) -> Command {
    let (ticket, resource) = (Ticket(ticket), Some(name(resource)));
    let (key, class, mode, on_death) = (name(key), Class::Fenced, Mode::Exclusive, OnDeath::Release);
    Command::Acquire { session, ticket, key, class, resource, mode, wait: true, on_death }
}

#[test]
fn the_account_of_the_state_is_a_fixed_cost_a_record_and_the_bytes_of_names_and_values() {
    let mut w = World::new();
    let account = |w: &World| {
        w.machine.check();
        w.machine.state_bytes()
    };
    assert_eq!(account(&w), 0);
    let (a, b) = (w.open(1), w.open(2));
    let sessions = 2 * (256 + "owner 1".len() as u64);
    assert_eq!(account(&w), sessions);
    w.reply(&fenced(a, 1, "key", "db"));
    assert_eq!(account(&w), sessions + (448 + 3 + 2) + (96 + 2));
    w.reply(&fenced(b, 1, "key", "other"));
    assert_eq!(account(&w), sessions + (448 + 3 + 2) + (96 + 2) + (96 + 5));
    w.release(a, 1);
    assert_eq!(account(&w), sessions + (448 + 3 + 5) + (96 + 5), "the record names the last resource");
    w.reply(&put(a, 2, "svc", 10));
    w.reply(&put(a, 3, "svc", 4));
    assert_eq!(account(&w), sessions + (448 + 3 + 5) + (96 + 5) + (192 + 3 + 4));
    w.end(a, Cause::Closed, 0);
    assert_eq!(account(&w), sessions / 2 + (448 + 3 + 5) + (96 + 5) + (192 + 3 + 4));
    w.apply(&Command::Sweep { releases: 1 });
    w.end(b, Cause::Closed, 50);
    assert_eq!(account(&w), 448 + 3 + 5, "an idle key keeps its record");
    let act = palisade_types::OperatorAct::Retire { key: name("key"), epoch: w.describe("key").epoch };
    w.apply(&Command::Operator { by: name("o"), reason: name("r"), act, release_now: 0 });
    assert_eq!(account(&w), 0);
    w.compare(&[name("key"), name("svc")]);
}

#[test]
fn beyond_the_quota_nothing_new_is_taken_and_what_frees_or_repeats_passes() {
    let account = 2 * (256 + 7) + (448 + 3 + 2) + (96 + 2) + (192 + 3 + 10);
    let limits = ClusterLimits { state_bytes: account, ..ClusterLimits::default() };
    let mut w = World::with(limits);
    let (a, b) = (w.open(1), w.open(2));
    w.reply(&fenced(a, 1, "key", "db"));
    assert!(matches!(w.refusal(&put(a, 2, "svc", 11)), Refusal::QuotaExceeded { .. }), "one byte too many");
    assert!(matches!(w.reply(&put(a, 3, "svc", 10)), Reply::PutDone { .. }));
    assert_eq!(w.machine.state_bytes(), account);

    let full = |refusal| assert!(matches!(refusal, Refusal::QuotaExceeded { limit, .. } if limit == account));
    let open = Command::OpenSession { token: SessionToken(3), ttl_ms: 0, owner: None, incarnation: None };
    full(w.refusal(&open));
    full(w.refusal(&fenced(b, 1, "new", "db")));
    finished_as_refused(&mut w, b, 1);
    full(w.refusal(&put(b, 2, "new", 0)));
    full(w.refusal(&put(a, 4, "svc", 11)));

    w.open(2);
    assert!(matches!(w.reply(&put(a, 5, "svc", 10)), Reply::PutDone { .. }), "no more than before");
    assert!(matches!(w.reply(&fenced(b, 3, "key", "db")), Reply::Queued { .. }), "a key that is known");
    assert_eq!(w.release(a, 1), [(b, Ticket(3))]);
    let delete = Command::Delete { session: a, ticket: Ticket(6), key: name("svc") };
    assert!(matches!(w.reply(&delete), Reply::Deleted { existed: true, .. }));
    w.end(a, Cause::Closed, 50);
    assert!(matches!(w.reply(&open), Reply::Opened { .. }), "an end has made room");
    w.compare(&[name("key"), name("new"), name("svc")]);
}

//! DESIGN section 3: tickets make every retry harmless.

use super::*;
use palisade_types::Epoch;

fn cancel(session: SessionId, ticket: u64, timeout: bool) -> Command {
    Command::Cancel { session, ticket: Ticket(ticket), timeout }
}

fn release(session: SessionId, ticket: u64) -> Command {
    Command::Release { session, ticket: Ticket(ticket) }
}

fn finished(session: SessionId, ticket: u64, outcome: Outcome) -> Reply {
    Reply::Finished { session, ticket: Ticket(ticket), outcome }
}

fn ticket_finished(ticket: u64, outcome: Outcome) -> Refusal {
    Refusal::TicketFinished { ticket: Ticket(ticket), outcome }
}

#[test]
fn repeating_an_open_ticket_repeats_its_answer_with_the_present_place() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    let fence = w.take(a, 1, "k");
    w.queue(a, 2, "k");
    assert_eq!(w.queue(b, 1, "k"), 1);
    assert_eq!(w.take(a, 1, "k"), fence, "the same grant, no new epoch");
    assert_eq!(w.queue(b, 1, "k"), 1);
    assert_eq!(w.describe("k").waiting, 2);
    w.release(a, 1);
    assert_eq!(w.queue(b, 1, "k"), 0);
    w.release(a, 2);
    let Reply::Granted { fence, .. } = w.reply(&acquire(b, 1, "k", true)) else {
        panic!("granted meanwhile")
    };
    assert_eq!(fence.epoch(), Epoch(3));
}

#[test]
fn an_open_ticket_with_other_parameters_is_a_mismatch_and_changes_nothing() {
    let mut w = World::new();
    let a = w.open(1);
    let make = |ticket, key: &str, class, resource: Option<&str>, wait| {
        let (key, resource) = (name(key), resource.map(name));
        Command::Acquire {
            session: a,
            ticket: Ticket(ticket),
            key,
            class,
            resource,
            mode: Mode::Exclusive,
            wait,
            on_death: OnDeath::Release,
        }
    };
    for (ticket, wait) in [(1, false), (2, true)] {
        w.apply(&make(ticket, "k", Class::Fenced, Some("r"), wait));
        let before = w.describe("k");
        for other in [
            make(ticket, "l", Class::Fenced, Some("r"), wait),
            make(ticket, "k", Class::Advisory, Some("r"), wait),
            make(ticket, "k", Class::Fenced, Some("s"), wait),
            make(ticket, "k", Class::Fenced, None, wait),
            make(ticket, "k", Class::Fenced, Some("r"), !wait),
        ] {
            assert_eq!(w.refusal(&other), Refusal::TicketMismatch { ticket: Ticket(ticket) });
        }
        assert_eq!(w.describe("k"), before);
        assert_eq!(w.describe("l").class, None);
    }
}

#[test]
fn every_other_answer_finishes_the_ticket_and_says_how() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "k");
    w.reply(&acquire(b, 1, "k", false));
    w.queue(b, 2, "k");
    w.reply(&cancel(b, 2, true));
    w.queue(b, 3, "k");
    w.reply(&cancel(b, 3, false));
    w.queue(b, 4, "k");
    assert_eq!(w.reply(&release(b, 4)), finished(b, 4, Outcome::Cancelled), "a waiter's release is a cancel");
    let (key, class) = (name("k"), Class::Fenced);
    w.refusal(&Command::Acquire {
        session: b,
        ticket: Ticket(5),
        key,
        class,
        resource: None,
        mode: Mode::Exclusive,
        wait: true,
        on_death: OnDeath::Release,
    });
    w.take(b, 6, "free");
    w.release(b, 6);
    w.release(a, 1);
    let outcomes = [
        (1, Outcome::Denied),
        (2, Outcome::TimedOut),
        (3, Outcome::Cancelled),
        (4, Outcome::Cancelled),
        (5, Outcome::Refused),
        (6, Outcome::Released),
    ];
    for (ticket, outcome) in outcomes {
        for command in [acquire(b, ticket, "k", true), acquire(b, ticket, "elsewhere", false)] {
            assert_eq!(w.refusal(&command), ticket_finished(ticket, outcome));
        }
        for command in [release(b, ticket), cancel(b, ticket, true), cancel(b, ticket, false)] {
            assert_eq!(w.reply(&command), finished(b, ticket, outcome), "giving up again is no refusal");
        }
    }
    assert_eq!(w.holder("k"), None);
    assert_eq!(w.describe("elsewhere").class, None);
}

#[test]
fn an_acquire_that_arrives_after_its_own_release_or_cancel_is_refused() {
    let mut w = World::new();
    let a = w.open(1);
    assert_eq!(w.reply(&release(a, 1)), finished(a, 1, Outcome::Cancelled));
    assert_eq!(w.reply(&cancel(a, 3, false)), finished(a, 3, Outcome::Cancelled));
    for ticket in [1, 3] {
        assert_eq!(w.refusal(&acquire(a, ticket, "k", true)), ticket_finished(ticket, Outcome::Cancelled));
    }
    assert_eq!(w.describe("k").class, None);
    w.take(a, 2, "k");
}

#[test]
fn a_late_release_cannot_free_a_newer_grant() {
    let mut w = World::new();
    let a = w.open(1);
    w.take(a, 1, "k");
    w.release(a, 1);
    w.take(a, 2, "k");
    assert_eq!(w.reply(&release(a, 1)), finished(a, 1, Outcome::Released));
    assert_eq!(w.holder("k"), Some(a));
    let b = w.open(2);
    w.reply(&release(b, 2));
    assert_eq!(w.holder("k"), Some(a), "tickets are their session's own");
}

#[test]
fn a_cancel_or_timeout_that_comes_after_the_grant_is_answered_by_the_grant() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "k");
    w.queue(b, 1, "k");
    w.release(a, 1);
    for timeout in [true, false] {
        let Reply::Granted { session, ticket, fence } = w.reply(&cancel(b, 1, timeout)) else {
            panic!("granted")
        };
        assert_eq!((session, ticket, fence.epoch()), (b, Ticket(1), Epoch(2)));
    }
    assert_eq!(w.holder("k"), Some(b), "and the claim still holds");
}

#[test]
fn numbers_that_are_no_tickets_are_refused_and_not_recorded() {
    let mut w = World::new();
    let a = w.open(1);
    for ticket in [0, crate::TICKET_MAX.0 + 1, u64::MAX] {
        for command in [acquire(a, ticket, "k", true), release(a, ticket), cancel(a, ticket, false)] {
            assert!(matches!(w.refusal(&command), Refusal::BadRequest { .. }));
        }
    }
    w.take(a, crate::TICKET_MAX.0, "k");
    w.release(a, crate::TICKET_MAX.0);
    w.compare(&[name("k")]);
}

#[test]
fn ranges_and_open_tickets_number_at_most_2000_and_beyond_only_new_numbers_are_refused() {
    let mut w = World::with(ClusterLimits { keys_per_session: 5_000, ..ClusterLimits::default() });
    let a = w.open(1);
    // Tickets 2, 4 … 3000 finished and 3002, 3004 … 4000 open: 1500 ranges and 500 claims.
    for ticket in (2..=3000).step_by(2) {
        w.reply(&release(a, ticket));
    }
    for ticket in (3002..=4000).step_by(2) {
        w.take(a, ticket, &alloc::format!("k{ticket}"));
    }
    assert!(matches!(w.refusal(&acquire(a, 9_999, "k", false)), Refusal::SessionFull { limit: 2_000, .. }));
    for command in [release(a, 9_999), cancel(a, 9_999, false)] {
        assert!(matches!(w.refusal(&command), Refusal::SessionFull { limit: 2_000, .. }));
    }
    assert_eq!(
        w.refusal(&acquire(a, 2, "k", false)),
        ticket_finished(2, Outcome::Unknown),
        "known numbers pass"
    );
    assert!(matches!(w.reply(&acquire(a, 4000, "k4000", false)), Reply::Granted { .. }));
    w.release(a, 4000);
    w.machine.check();
    assert!(
        matches!(w.refusal(&acquire(a, 9_999, "k", false)), Refusal::SessionFull { .. }),
        "a range for a claim"
    );
    assert_eq!(
        w.reply(&cancel(a, 3, false)),
        finished(a, 3, Outcome::Cancelled),
        "it joins two ranges to one"
    );
    assert!(
        matches!(w.reply(&acquire(a, 9_999, "k", false)), Reply::Granted { .. }),
        "the refusal left no trace"
    );
    w.machine.check();
}

#[test]
fn the_outcomes_of_the_last_256_are_kept() {
    let mut w = World::new();
    let a = w.open(1);
    for ticket in 1..=257 {
        w.reply(&release(a, ticket));
    }
    assert_eq!(w.reply(&release(a, 1)), finished(a, 1, Outcome::Unknown));
    assert_eq!(w.reply(&release(a, 2)), finished(a, 2, Outcome::Cancelled));
    assert_eq!(w.refusal(&acquire(a, 1, "k", true)), ticket_finished(1, Outcome::Unknown));
}

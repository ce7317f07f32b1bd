//! Shared mode, barriers, downgrade (DESIGN sections 1 and 3).

use super::*;
use palisade_types::{TransitionKind, limits::SHARED_GRANTS_PER_ENTRY};

const SHARED: Mode = Mode::Shared;
const EXCLUSIVE: Mode = Mode::Exclusive;

fn share(w: &mut World, session: SessionId, ticket: u64) -> Fence {
    match w.reply(&acquire_as(session, ticket, "k", SHARED, true)) {
        Reply::Granted { fence, .. } => fence,
        other => panic!("expected a grant, not {other:?}"),
    }
}

fn wait(w: &mut World, session: SessionId, ticket: u64, mode: Mode) -> u32 {
    match w.reply(&acquire_as(session, ticket, "k", mode, true)) {
        Reply::Queued { place, .. } => place,
        other => panic!("expected a place in the queue, not {other:?}"),
    }
}

fn pair(fence: &Fence) -> (u64, u64) {
    (fence.epoch().0, fence.barrier().0)
}

#[test]
fn those_who_share_do_not_shut_each_other_out_and_do_shut_out_whoever_left_before_the_oldest_came() {
    let mut w = World::new();
    let [a, b, c] = [1, 2, 3].map(|n| w.open(n));
    assert_eq!(pair(&share(&mut w, a, 1)), (1, 1));
    assert_eq!(pair(&share(&mut w, b, 1)), (2, 1), "the oldest holder's epoch is the barrier");
    w.release(a, 1);
    assert_eq!(pair(&share(&mut w, c, 1)), (3, 2), "a is out, and the barrier says so");
    w.release(b, 1);
    w.release(c, 1);
    assert_eq!(pair(&w.take(a, 2, "k")), (4, 4), "who holds alone shuts out everybody before");
}

#[test]
fn repeating_a_shared_acquire_repeats_its_fence_whoever_came_and_went_since() {
    let mut w = World::new();
    let [a, b, c] = [1, 2, 3].map(|n| w.open(n));
    share(&mut w, a, 1);
    let fence = share(&mut w, b, 1);
    w.release(a, 1);
    share(&mut w, c, 1);
    assert_eq!(share(&mut w, b, 1), fence);
    let other_mode = w.refusal(&acquire_as(b, 1, "k", EXCLUSIVE, true));
    assert_eq!(other_mode, Refusal::TicketMismatch { ticket: Ticket(1) });
}

#[test]
fn a_writer_that_waits_is_overtaken_by_nobody_and_the_readers_behind_it_enter_together() {
    let mut w = World::new();
    let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|n| w.open(n));
    share(&mut w, a, 1);
    assert_eq!(wait(&mut w, b, 1, EXCLUSIVE), 0);
    assert_eq!(wait(&mut w, c, 1, SHARED), 1, "who comes later stands behind the writer");
    assert_eq!(wait(&mut w, d, 1, SHARED), 2);
    assert_eq!(wait(&mut w, e, 1, EXCLUSIVE), 3);
    assert!(matches!(w.reply(&acquire_as(e, 2, "k", SHARED, false)), Reply::Denied { .. }));
    assert_eq!(w.release(a, 1), [(b, Ticket(1))]);
    assert_eq!(w.release(b, 1), [(c, Ticket(1)), (d, Ticket(1))]);
    assert_eq!(w.release(d, 1), [], "one who shares is left");
    assert_eq!(w.release(c, 1), [(e, Ticket(1))]);
}

#[test]
fn a_writer_that_gives_up_lets_in_those_who_waited_for_it_only() {
    let mut w = World::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|n| w.open(n));
    share(&mut w, a, 1);
    wait(&mut w, b, 1, EXCLUSIVE);
    wait(&mut w, c, 1, SHARED);
    let effects = w.apply(&Command::Cancel { session: b, ticket: Ticket(1), timeout: true });
    assert_eq!(granted(&effects), [(c, Ticket(1))]);
    wait(&mut w, b, 2, EXCLUSIVE);
    wait(&mut w, d, 1, SHARED);
    let effects = w.end(b, Cause::Expired { silent_ms: 1 }, 50);
    assert_eq!(granted(&effects), [(d, Ticket(1))], "a dead writer costs the living nothing");
}

#[test]
fn an_entry_lets_in_so_many_at_most_and_sweeps_go_on_before_anybody_behind_enters() {
    let limits = ClusterLimits { keys_per_session: 3_000, ..ClusterLimits::default() };
    let mut w = World::with(limits);
    let [a, b] = [1, 2].map(|n| w.open(n));
    w.take(a, 1, "k");
    let waiters = u64::from(SHARED_GRANTS_PER_ENTRY) + 101;
    for ticket in 1..=waiters {
        wait(&mut w, b, ticket, SHARED);
    }
    let effects = w.apply(&Command::Release { session: a, ticket: Ticket(1) });
    assert_eq!(granted(&effects).len(), SHARED_GRANTS_PER_ENTRY as usize + 1, "the first, and as many more");
    assert!(w.machine.has_backlog());
    assert_eq!(wait(&mut w, a, 2, SHARED), 100, "behind those who are still to enter");
    let effects = w.apply(&Command::Sweep { releases: 0 });
    assert_eq!(granted(&effects).len(), 101);
    assert!(!w.machine.has_backlog() && w.describe("k").waiting == 0);
    assert_eq!(w.describe("k").holding as u64, waiters + 1);
}

#[test]
fn a_downgrade_is_a_new_grant_that_lets_in_readers_and_its_repetition_repeats_the_fence() {
    let mut w = World::new();
    let [a, b, c] = [1, 2, 3].map(|n| w.open(n));
    let first = w.take(a, 1, "k");
    wait(&mut w, b, 1, SHARED);
    wait(&mut w, c, 1, EXCLUSIVE);
    let downgrade = Command::Downgrade { session: a, ticket: Ticket(2), holds: Ticket(1) };
    let effects = w.apply(&downgrade);
    let Effect::Reply(Reply::Granted { fence, ticket: Ticket(2), .. }) = &effects[0] else {
        panic!("{effects:?}")
    };
    assert_eq!(pair(fence), (2, 2), "exclusive writes still under way are shut out once anyone acts");
    assert!(fence.barrier() > first.epoch());
    assert_eq!(granted(&effects), [(b, Ticket(1))]);
    assert_eq!(w.apply(&downgrade), effects[..1], "repeated, it changes nothing");
    assert_eq!(w.describe("k").transitions[2].kind, TransitionKind::Downgraded);
    let outcome = Outcome::Downgraded;
    let release = Command::Release { session: a, ticket: Ticket(1) };
    assert_eq!(w.reply(&release), Reply::Finished { session: a, ticket: Ticket(1), outcome });
    assert_eq!(w.release(a, 2), [], "release names the new ticket");
    assert_eq!(w.release(b, 1), [(c, Ticket(1))]);
}

#[test]
fn only_an_exclusive_holder_can_downgrade_and_a_refusal_finishes_the_new_ticket() {
    let mut w = World::new();
    let [a, b] = [1, 2].map(|n| w.open(n));
    w.take(a, 1, "k");
    wait(&mut w, b, 1, EXCLUSIVE);
    let downgrade =
        |session, ticket, holds| Command::Downgrade { session, ticket: Ticket(ticket), holds: Ticket(holds) };
    assert!(matches!(w.refusal(&downgrade(b, 2, 1)), Refusal::BadRequest { .. }), "it still waits");
    assert!(matches!(w.refusal(&downgrade(b, 3, 9)), Refusal::BadRequest { .. }), "there is no such claim");
    assert!(matches!(w.refusal(&downgrade(b, 3, 1)), Refusal::TicketFinished { .. }));
    assert!(matches!(w.reply(&downgrade(a, 2, 1)), Reply::Granted { .. }));
    assert!(matches!(w.refusal(&downgrade(a, 3, 2)), Refusal::BadRequest { .. }), "it is shared already");
    let again = w.refusal(&downgrade(a, 4, 1));
    assert_eq!(again, Refusal::TicketFinished { ticket: Ticket(1), outcome: Outcome::Downgraded });
    let reused = w.refusal(&acquire(a, 2, "k", false));
    assert_eq!(reused, Refusal::TicketMismatch { ticket: Ticket(2) }, "no acquire made that claim");
}

#[test]
fn keys_shared_with_the_dead_stay_closed_to_writers_until_swept_and_open_to_nobody_behind() {
    let mut w = World::new();
    let [a, b, c, d] = [1, 2, 3, 4].map(|n| w.open(n));
    share(&mut w, a, 1);
    share(&mut w, b, 1);
    share(&mut w, b, 2);
    w.end(b, Cause::Closed, 0);
    wait(&mut w, c, 1, EXCLUSIVE);
    w.release(a, 1);
    assert_eq!(w.describe("k").holders.iter().filter(|h| h.standing == Standing::Ending).count(), 2);
    assert_eq!(wait(&mut w, d, 1, SHARED), 1);
    assert_eq!(granted(&w.apply(&Command::Sweep { releases: 1 })), []);
    assert_eq!(granted(&w.apply(&Command::Sweep { releases: 1 })), [(c, Ticket(1))]);
}

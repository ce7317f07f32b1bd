//! DESIGN section 2: how sessions open and end, and what becomes of their keys.

use super::*;
use palisade_types::{Epoch, Mutant};

const EXPIRED: Cause = Cause::Expired { silent_ms: 31_000 };

fn open(token: u128, ttl_ms: u32) -> Command {
    Command::OpenSession { token: SessionToken(token), ttl_ms, owner: None, incarnation: Some(name("pod")) }
}

fn session_ended(session: SessionId, cause: Cause) -> Refusal {
    Refusal::SessionEnded { session, cause }
}

#[test]
fn an_open_gives_shard_and_revision_as_id_and_a_repeated_token_the_same_session() {
    let mut w = World::new();
    w.open(9);
    let effects = w.apply(&open(1, 2_500));
    let session = SessionId { shard: SHARD, opened: LogIndex(2) };
    let reply = Reply::Opened { session, ttl_ms: 2_500, gone_within_ms: 0, short_ttl: false };
    assert_eq!(effects, [Effect::Reply(reply.clone()), Effect::SessionOpened { session, ttl_ms: 2_500 }]);
    assert_eq!(
        w.apply(&open(1, 9_000)),
        [Effect::Reply(reply)],
        "no second session, the TTL as granted first"
    );
    let view = w.machine.session_by_token(SessionToken(1)).unwrap();
    assert_eq!((view.session, view.ttl_ms, view.incarnation), (session, 2_500, Some(&name("pod"))));
    assert_eq!(w.machine.session(session), Some(view));
    let ids: Vec<u64> = w.machine.sessions_iter().map(|s| s.session.opened.0).collect();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn a_ttl_has_a_default_and_bounds() {
    let mut w = World::new();
    for (token, asked, granted) in [(1, 0, 30_000), (2, 500, 500), (3, 3_600_000, 3_600_000)] {
        let Reply::Opened { ttl_ms, .. } = w.reply(&open(token, asked)) else { panic!("opened") };
        assert_eq!(ttl_ms, granted);
    }
    for asked in [1, 499, 3_600_001, u32::MAX] {
        assert!(matches!(w.refusal(&open(4, asked)), Refusal::BadRequest { .. }));
    }
}

#[test]
fn an_end_frees_everything_in_one_step_and_is_said_once() {
    let mut w = World::new();
    let (a, b, c) = (w.open(1), w.open(2), w.open(3));
    w.take(a, 1, "held");
    w.take(b, 1, "other");
    w.queue(a, 2, "other");
    w.queue(c, 1, "other");
    w.queue(b, 2, "held");
    let effects = w.end(a, EXPIRED, 50);
    assert_eq!(
        effects[..2],
        [
            Effect::Reply(Reply::SessionClosed { session: a }),
            Effect::SessionEnded { session: a, cause: EXPIRED }
        ]
    );
    assert_eq!(granted(&effects), [(b, Ticket(2))]);
    assert_eq!(w.describe("other").waiting, 1, "the dead leave the queues at once");
    assert_eq!(w.queue(c, 1, "other"), 0);
    assert_eq!(w.release(b, 1), [(c, Ticket(1))], "a grant only ever goes to a live session");
    assert_eq!(w.machine.backlog_len(), 0);
    assert_eq!(w.end(a, EXPIRED, 50).len(), 1, "an end happens once");
    w.compare(&[name("held"), name("other")]);
}

#[test]
fn the_dead_are_told_why_and_never_get_a_new_session_silently() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "k");
    w.end(a, EXPIRED, 50);
    w.end(b, Cause::Closed, 50);
    for (session, cause) in [(a, EXPIRED), (b, Cause::Closed)] {
        assert_eq!(w.machine.ended(session), Some(cause));
        assert_eq!(w.machine.session(session), None);
        for command in [
            acquire(session, 1, "k", true),
            acquire(session, 7, "k", true),
            Command::Release { session, ticket: Ticket(1) },
            Command::Cancel { session, ticket: Ticket(1), timeout: false },
        ] {
            assert_eq!(w.refusal(&command), session_ended(session, cause));
        }
    }
    assert_eq!(w.refusal(&open(1, 0)), session_ended(a, EXPIRED));
    assert_eq!(w.refusal(&open(2, 0)), session_ended(b, Cause::Closed));
    let end = |session, cause| Command::EndSession { session, cause, release_now: 0 };
    assert_eq!(w.refusal(&end(a, Cause::Closed)), session_ended(a, EXPIRED), "closing what has expired");
    assert_eq!(w.reply(&end(b, Cause::Closed)), Reply::SessionClosed { session: b }, "closing again");
    assert_eq!(w.machine.counts().sessions, 0);
}

#[test]
fn an_id_that_is_not_or_no_longer_known_is_forgotten() {
    let mut w = World::with(ClusterLimits { ended_sessions: 2, ..ClusterLimits::default() });
    let sessions: Vec<SessionId> = (0..3).map(|n| w.open(n)).collect();
    for &s in &sessions {
        w.end(s, EXPIRED, 50);
    }
    assert_eq!(w.refusal(&acquire(sessions[0], 1, "k", true)), session_ended(sessions[0], Cause::Forgotten));
    assert_eq!(w.refusal(&acquire(sessions[1], 1, "k", true)), session_ended(sessions[1], EXPIRED));
    assert_eq!(w.machine.ended(sessions[0]), None);
    let end = Command::EndSession { session: sessions[0], cause: Cause::Closed, release_now: 0 };
    assert_eq!(w.refusal(&end), session_ended(sessions[0], Cause::Forgotten));
    let never = SessionId { shard: SHARD, opened: LogIndex(1_000) };
    let elsewhere = SessionId { shard: ShardId(SHARD.0 + 1), opened: sessions[2].opened };
    for id in [never, elsewhere] {
        assert_eq!(w.refusal(&acquire(id, 1, "k", true)), session_ended(id, Cause::Forgotten));
        assert_eq!((w.machine.ended(id), w.machine.session(id)), (None, None));
    }
    w.compare(&[]);
}

#[test]
fn a_session_that_waits_for_its_own_key_does_not_inherit_it_from_itself() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "k");
    w.queue(a, 2, "k");
    w.queue(b, 1, "k");
    assert_eq!(granted(&w.end(a, EXPIRED, 50)), [(b, Ticket(1))]);
    assert_eq!(w.holder("k"), Some(b));
}

#[test]
fn what_is_not_released_at_once_stays_closed_until_a_sweep_keys_with_waiters_first() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    for (ticket, key) in [(1, "k1"), (2, "k2"), (3, "k3"), (4, "k4")] {
        w.take(a, ticket, key);
    }
    w.queue(b, 1, "k3");
    w.queue(b, 2, "k4");
    assert_eq!(
        granted(&w.end(a, EXPIRED, 1)),
        [(b, Ticket(1))],
        "of those that fit, who is awaited goes first"
    );
    assert_eq!(w.machine.backlog_len(), 3);
    let Reply::Denied { holder, .. } = w.reply(&acquire(b, 3, "k1", false)) else {
        panic!("closed to everybody")
    };
    assert!(
        holder.standing == Standing::Ending && holder.session == a && holder.owner == Some(name("owner 1"))
    );
    assert_eq!(w.queue(b, 4, "k2"), 0, "one can queue for it, which moves it ahead");
    assert_eq!(granted(&w.apply(&Command::Sweep { releases: 1 })), [(b, Ticket(2))]);
    assert_eq!(granted(&w.apply(&Command::Sweep { releases: 1 })), [(b, Ticket(4))]);
    assert_eq!(w.describe("k2").holders[0].epoch, Epoch(2));
    assert!(w.describe("k1").holders[0].standing == Standing::Ending);
    assert_eq!(w.apply(&Command::Sweep { releases: 9 }), []);
    assert_eq!((w.machine.backlog_len(), w.holder("k1")), (0, None));
    assert_eq!(w.apply(&Command::Sweep { releases: 9 }), [], "with nothing left a sweep does nothing");
    w.compare(&[name("k1"), name("k2"), name("k3"), name("k4")]);
}

#[test]
fn a_key_of_the_backlog_that_is_no_longer_awaited_steps_back() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "k1");
    w.take(a, 2, "k2");
    w.queue(b, 1, "k1");
    w.queue(b, 2, "k2");
    w.end(a, EXPIRED, 0);
    w.reply(&Command::Cancel { session: b, ticket: Ticket(1), timeout: true });
    w.machine.check();
    assert_eq!(granted(&w.apply(&Command::Sweep { releases: 1 })), [(b, Ticket(2))]);
    assert!(w.describe("k1").holders[0].standing == Standing::Ending);
}

#[test]
fn one_entry_releases_at_most_fifty_keys() {
    let mut w = World::new();
    let a = w.open(1);
    for ticket in 1..=160 {
        w.take(a, ticket, &alloc::format!("k{ticket}"));
    }
    w.end(a, EXPIRED, u32::MAX);
    let mut backlog = std::vec![w.machine.backlog_len()];
    while w.machine.backlog_len() > 0 {
        w.machine.check();
        w.apply(&Command::Sweep { releases: u32::MAX });
        backlog.push(w.machine.backlog_len());
    }
    assert_eq!(backlog, [110, 60, 10, 0]);
    assert_eq!(w.machine.counts().claims, 0);
}

#[test]
fn a_waiter_of_a_dying_session_in_front_of_an_ending_key_leaves_it_consistent() {
    let mut w = World::new();
    let (a, b, c) = (w.open(1), w.open(2), w.open(3));
    w.take(a, 1, "k1");
    w.take(a, 2, "k2");
    w.queue(b, 1, "k1");
    w.queue(b, 2, "k2");
    w.queue(c, 1, "k2");
    w.end(a, EXPIRED, 0);
    w.end(b, EXPIRED, 0);
    w.compare(&[name("k1"), name("k2")]);
    assert_eq!(granted(&w.apply(&Command::Sweep { releases: 2 })), [(c, Ticket(1))]);
    w.compare(&[name("k1"), name("k2")]);
}

/// A machine with the bug, in the state that provokes it: the holder is about to release, and who
/// waits for the key is dead.
fn dead_waiter() -> (Machine, SessionId, SessionId) {
    let mut machine = Machine::new(ClusterLimits::default(), SHARD, 1, Mutants::only(Mutant::B22));
    let id = |n| SessionId { shard: SHARD, opened: LogIndex(n) };
    let end = Command::EndSession { session: id(2), cause: EXPIRED, release_now: 50 };
    let commands = [open(1, 0), open(2, 0), acquire(id(1), 1, "k", true), acquire(id(2), 1, "k", true), end];
    for (i, command) in commands.iter().enumerate() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let at = Applied { index: LogIndex(i as u64 + 1), clock_ms: 0 };
        machine.apply(at, &bytes, &mut Vec::new()).unwrap();
    }
    (machine, id(1), id(2))
}

#[test]
fn the_bug_of_granting_to_the_dead_is_really_there_when_switched_on() {
    let (mut machine, alive, dead) = dead_waiter();
    let mut bytes = Vec::new();
    Command::Release { session: alive, ticket: Ticket(1) }.encode(&mut bytes);
    let mut effects = Vec::new();
    machine.apply(Applied { index: LogIndex(6), clock_ms: 0 }, &bytes, &mut effects).unwrap();
    assert_eq!(granted(&effects), [(dead, Ticket(1))]);
}

#[test]
#[should_panic(expected = "S3")]
fn the_check_notices_a_dead_waiter() {
    dead_waiter().0.check();
}

//! What operators do: it meets whom it names and nobody else, can be repeated, and is on record.

use super::*;
use palisade_types::limits::OPERATOR_ACTS_KEPT;
use palisade_types::{Epoch, OperatorAct, TransitionKind};

fn order(act: OperatorAct) -> Command {
    let release_now = act.ends().map_or(0, |_| 50);
    Command::Operator { by: name("ops@host"), reason: name("on fire"), act, release_now }
}

fn force(key: &str, epoch: u64) -> Command {
    order(OperatorAct::ForceRelease { key: name(key), epoch: Epoch(epoch) })
}

fn retire(key: &str, epoch: u64) -> Command {
    order(OperatorAct::Retire { key: name(key), epoch: Epoch(epoch) })
}

fn done(action: u64) -> Reply {
    Reply::OperatorDone { action: LogIndex(action) }
}

#[test]
fn a_death_report_frees_everything_at_once_and_says_so_to_whoever_asks() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    w.take(a, 1, "k");
    w.queue(b, 1, "k");
    let effects = w.apply(&order(OperatorAct::ReportDead { session: a }));
    let action = w.index;
    let cause = Cause::ReportedDead { action: LogIndex(action) };
    assert_eq!(effects[0], Effect::Reply(done(action)));
    assert_eq!(effects[1], Effect::SessionEnded { session: a, cause });
    assert_eq!(granted(&effects), [(b, Ticket(1))]);
    assert_eq!(w.refusal(&acquire(a, 2, "k", true)), Refusal::SessionEnded { session: a, cause });
    // A retry, or another report, of what has ended so is answered with the first action.
    assert_eq!(w.reply(&order(OperatorAct::ReportDead { session: a })), done(action));
    assert_eq!(w.reply(&order(OperatorAct::Evict { session: a })), done(action));
    assert_eq!(w.holder("k"), Some(b), "no successor is met");
}

#[test]
fn an_evicted_waiter_is_never_granted_and_the_next_one_is() {
    let mut w = World::new();
    let (holder, evicted, next) = (w.open(1), w.open(2), w.open(3));
    let epoch = w.take(holder, 1, "k").epoch().0;
    w.queue(evicted, 1, "k");
    w.queue(next, 1, "k");
    let effects = w.apply(&order(OperatorAct::Evict { session: evicted }));
    let cause = Cause::Evicted { action: LogIndex(w.index) };
    assert_eq!(effects[1], Effect::SessionEnded { session: evicted, cause });
    assert_eq!(granted(&effects), []);
    assert_eq!(w.release(holder, 1), [(next, Ticket(1))]);
    assert_eq!(w.describe("k").epoch.0, epoch + 1, "no epoch was spent on the evicted");
}

#[test]
fn evicted_readers_and_writers_in_a_queue_are_never_granted_and_those_behind_them_are() {
    let mut w = World::new();
    let [holder, reader, writer, second, third] = [1, 2, 3, 4, 5].map(|n| w.open(n));
    let epoch = w.take(holder, 1, "k").epoch().0;
    let waits =
        [(reader, Mode::Shared), (writer, Mode::Exclusive), (second, Mode::Shared), (third, Mode::Exclusive)];
    for (session, mode) in waits {
        let reply = w.reply(&acquire_as(session, 1, "k", mode, true));
        assert!(matches!(reply, Reply::Queued { .. }), "{reply:?}");
    }
    for evicted in [reader, writer] {
        let effects = w.apply(&order(OperatorAct::Evict { session: evicted }));
        assert_eq!(granted(&effects), [], "the key is held alone");
        assert!(matches!(w.refusal(&acquire(evicted, 2, "k", true)), Refusal::SessionEnded { .. }));
    }
    assert_eq!(w.release(holder, 1), [(second, Ticket(1))], "one reader that lives, and no writer beside it");
    assert_eq!(w.describe("k").epoch.0, epoch + 1, "no epoch was spent on the evicted");
    assert_eq!(w.release(second, 1), [(third, Ticket(1))]);
    w.compare(&[name("k")]);
}

#[test]
fn a_report_about_a_session_that_ended_otherwise_tells_how() {
    let mut w = World::new();
    let a = w.open(1);
    w.end(a, Cause::Closed, 50);
    let refusal = w.refusal(&order(OperatorAct::Evict { session: a }));
    assert_eq!(refusal, Refusal::SessionEnded { session: a, cause: Cause::Closed });
    assert_eq!(w.machine.list_operator_acts(LogIndex(0), 10, 0), (Vec::new(), false), "nothing was done");
}

#[test]
fn a_forced_release_takes_the_key_and_leaves_the_session() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    let epoch = w.take(a, 1, "k").epoch().0;
    w.take(a, 2, "other");
    w.queue(b, 1, "k");
    let effects = w.apply(&force("k", epoch));
    let action = w.index;
    assert_eq!(effects[0], Effect::Reply(done(action)));
    assert_eq!(effects[1], Effect::Forced { session: a, ticket: Ticket(1) });
    assert_eq!(granted(&effects), [(b, Ticket(1))]);
    assert_eq!(w.machine.forced(a).collect::<Vec<_>>(), [Ticket(1)]);
    assert_eq!(w.holder("other"), Some(a));
    let outcome = Outcome::Forced;
    let again = w.refusal(&acquire(a, 1, "k", false));
    assert_eq!(again, Refusal::TicketFinished { ticket: Ticket(1), outcome });
    // The old holder's late release frees nobody's key.
    let late = w.reply(&Command::Release { session: a, ticket: Ticket(1) });
    assert_eq!(late, Reply::Finished { session: a, ticket: Ticket(1), outcome });
    assert_eq!(w.holder("k"), Some(b));
    let last = w.describe("k").transitions;
    assert_eq!((last[1].kind, last[1].revision), (TransitionKind::Forced, LogIndex(action)));
}

#[test]
fn a_retry_of_a_forced_release_never_evicts_the_next_holder() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    let epoch = w.take(a, 1, "k").epoch().0;
    w.queue(b, 1, "k");
    assert_eq!(
        w.refusal(&force("k", epoch + 1)),
        Refusal::NotHeld { asked: Epoch(epoch + 1), last: Epoch(epoch) }
    );
    w.apply(&force("k", epoch));
    let first = w.index;
    assert_eq!(w.reply(&force("k", epoch)), done(first), "repeated, it repeats its answer");
    assert_eq!(w.holder("k"), Some(b));
    // After so many grants that the record of it is gone, it is refused.
    w.release(b, 1);
    for ticket in 2..8 {
        w.take(b, ticket, "k");
        w.release(b, ticket);
    }
    assert!(matches!(w.refusal(&force("k", epoch)), Refusal::NotHeld { .. }));
    assert_eq!(w.refusal(&force("new", 1)), Refusal::NotHeld { asked: Epoch(1), last: Epoch(0) });
}

#[test]
fn a_forced_release_reaches_keys_of_the_dead_too() {
    let mut w = World::new();
    let (a, b) = (w.open(1), w.open(2));
    let (awaited, free) = (w.take(a, 1, "awaited").epoch().0, w.take(a, 2, "free").epoch().0);
    w.queue(b, 1, "awaited");
    w.end(a, Cause::Closed, 0);
    assert_eq!(w.machine.backlog_len(), 2);
    assert_eq!(granted(&w.apply(&force("awaited", awaited))), [(b, Ticket(1))]);
    w.apply(&force("free", free));
    assert_eq!((w.machine.backlog_len(), w.holder("free")), (0, None));
    w.compare(&[name("awaited"), name("free")]);
}

#[test]
fn retiring_forgets_an_idle_key_and_its_class_but_never_its_epoch() {
    let mut w = World::new();
    let a = w.open(1);
    let epoch = w.take(a, 1, "k").epoch();
    let retire = retire("k", epoch.0);
    assert_eq!(w.refusal(&retire), Refusal::InUse);
    w.release(a, 1);
    assert!(matches!(w.reply(&retire), Reply::OperatorDone { .. }));
    assert_eq!(w.describe("k").class, None);
    let fenced = Command::Acquire {
        session: a,
        ticket: Ticket(2),
        key: name("k"),
        class: Class::Fenced,
        resource: Some(name("db")),
        mode: Mode::Exclusive,
        on_death: OnDeath::Release,
        wait: false,
    };
    match w.reply(&fenced) {
        Reply::Granted { fence, .. } => assert!(fence.epoch() > epoch),
        other => panic!("expected a grant under the new class, not {other:?}"),
    }
}

#[test]
fn a_late_repeat_of_a_retirement_spares_the_next_record_and_is_answered_as_the_first() {
    let mut w = World::new();
    let a = w.open(1);
    let epoch = w.take(a, 1, "k").epoch().0;
    w.release(a, 1);
    let first = w.reply(&retire("k", epoch));
    let done = done(w.index);
    assert_eq!(first, done);
    assert_eq!(w.reply(&retire("k", epoch)), done, "the record is gone");
    let later = w.take(a, 2, "k").epoch().0;
    assert_eq!(w.reply(&retire("k", epoch)), done, "the key is held anew");
    w.release(a, 2);
    assert_eq!(w.reply(&retire("k", epoch)), done, "another record is idle");
    assert_eq!(w.describe("k").class, Some(Class::Advisory), "and was not forgotten");
    let (rows, _) = w.machine.list_operator_acts(LogIndex(0), 10, 0);
    assert_eq!(rows.len(), 1, "one action, one record, however often it is asked for");
    assert!(matches!(w.reply(&retire("k", later)), Reply::OperatorDone { .. }));
}

#[test]
fn a_transfer_is_put_on_record_once_for_a_term_and_a_node() {
    let mut w = World::new();
    let transfer = |term, to: Option<u32>| {
        let to = to.map(palisade_types::NodeId);
        order(OperatorAct::Transfer { term: palisade_types::Term(term), to })
    };
    let first = w.reply(&transfer(3, None));
    assert_eq!(first, done(w.index));
    assert_eq!(w.reply(&transfer(3, None)), first, "repeated, it is answered as it was");
    for another in [transfer(4, None), transfer(3, Some(1)), transfer(3, Some(2))] {
        assert_eq!(w.reply(&another), done(w.index));
    }
    assert_eq!(w.machine.list_operator_acts(LogIndex(0), 10, 0).0.len(), 4);
}

#[test]
fn a_retirement_that_fits_no_record_is_refused_and_leaves_none() {
    let mut w = World::new();
    let a = w.open(1);
    let unknown = Refusal::NotAtEpoch { asked: Epoch(1), last: Epoch(0) };
    assert_eq!(w.refusal(&retire("nosuch", 1)), unknown);
    assert!(matches!(w.refusal(&retire("nosuch", 0)), Refusal::NotAtEpoch { .. }), "0 is no grant");
    let epoch = w.take(a, 1, "k").epoch().0;
    w.release(a, 1);
    for asked in [epoch - 1, epoch + 1] {
        let refusal = Refusal::NotAtEpoch { asked: Epoch(asked), last: Epoch(epoch) };
        assert_eq!(w.refusal(&retire("k", asked)), refusal);
    }
    let unknown = SessionId { shard: ShardId(0), opened: LogIndex(999) };
    assert!(matches!(
        w.refusal(&order(OperatorAct::Evict { session: unknown })),
        Refusal::SessionEnded { .. }
    ));
    assert_eq!(w.machine.list_operator_acts(LogIndex(0), 10, 0), (Vec::new(), false));
}

#[test]
fn the_record_keeps_the_last_actions_in_order_and_is_bounded() {
    let mut w = World::new();
    let a = w.open(1);
    let mut done = Vec::new();
    for ticket in 1..=OPERATOR_ACTS_KEPT as u64 + 3 {
        let epoch = w.take(a, ticket, "k").epoch().0;
        w.apply(&force("k", epoch));
        done.push((LogIndex(w.index), w.clock_ms));
    }
    let (rows, more) = w.machine.list_operator_acts(LogIndex(0), 5_000, w.clock_ms + 7);
    assert_eq!((rows.len(), more), (OPERATOR_ACTS_KEPT, false));
    assert_eq!((rows[0].revision, rows[0].ago_ms), (done[3].0, w.clock_ms + 7 - done[3].1));
    assert_eq!((rows[0].by.as_str(), rows[0].reason.as_str()), ("ops@host", "on fire"));
    let (page, more) = w.machine.list_operator_acts(rows[1].revision, 2, 0);
    assert_eq!((page[0].revision, page.len(), more), (rows[2].revision, 2, true));
    w.compare(&[name("k")]);
}

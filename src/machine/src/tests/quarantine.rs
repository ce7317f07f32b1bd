//! Quarantine: a key whose holder fell silent stays closed until somebody knows that it is dead (DESIGN
//! section 3).

use super::*;
use palisade_types::{Epoch, OperatorAct, TransitionKind};

const EXPIRED: Cause = Cause::Expired { silent_ms: 40_000 };

fn closed(session: SessionId, ticket: u64, key: &str) -> Command {
    let (ticket, key, class, on_death) = (Ticket(ticket), name(key), Class::Advisory, OnDeath::Quarantine);
    Command::Acquire {
        session,
        ticket,
        key,
        class,
        resource: None,
        mode: Mode::Exclusive,
        wait: true,
        on_death,
    }
}

fn order(act: OperatorAct) -> Command {
    let release_now = if act.ends().is_some() { 50 } else { 0 };
    Command::Operator { by: name("ops"), reason: name("seen dead"), act, release_now }
}

/// A world in which the holder of `k` and `l` has expired, and another waits for `k`.
fn silent_holder() -> (World, SessionId, SessionId) {
    let mut w = World::new();
    let [a, b] = [1, 2].map(|n| w.open(n));
    w.apply(&closed(a, 1, "k"));
    w.apply(&closed(a, 2, "l"));
    w.take(a, 3, "free");
    w.queue(b, 1, "k");
    let effects = w.end(a, EXPIRED, 50);
    assert_eq!(granted(&effects), [], "nobody is let in");
    (w, a, b)
}

#[test]
fn silence_closes_the_key_and_says_who_held_it() {
    let (mut w, a, b) = silent_holder();
    let holder = w.describe("k").holders.remove(0);
    assert_eq!((holder.session, holder.standing, holder.epoch), (a, Standing::Quarantined, Epoch(1)));
    assert_eq!(holder.owner, Some(name("owner 1")));
    assert_eq!(w.holder("free"), None, "what did not ask for it is freed");
    assert_eq!(w.machine.backlog_len(), 0, "no sweep opens it");
    assert_eq!(w.apply(&Command::Sweep { releases: 50 }), []);
    assert!(matches!(w.reply(&acquire(b, 2, "l", false)), Reply::Denied { .. }));
    let (rows, _) = w.machine.list_sessions(None, 10);
    let row = rows.iter().find(|row| row.session == a).unwrap();
    assert!(row.quarantined && row.held == 2 && row.owner == Some(name("owner 1")), "a report finds it");
}

#[test]
fn a_death_report_opens_all_that_is_closed_once() {
    let (mut w, a, b) = silent_holder();
    let report = order(OperatorAct::ReportDead { session: a });
    let effects = w.apply(&report);
    assert_eq!(granted(&effects), [(b, Ticket(1))]);
    assert_eq!(w.holder("l"), None);
    let Effect::Reply(Reply::OperatorDone { action }) = effects[0] else { panic!("{effects:?}") };
    assert_eq!(
        w.describe("l").transitions[0].kind,
        TransitionKind::SessionEnded(Cause::ReportedDead { action })
    );
    assert_eq!(w.machine.ended(a), Some(EXPIRED), "why it ended does not change");
    assert_eq!(w.reply(&report), Reply::OperatorDone { action }, "repeated, it is answered as it was");
}

#[test]
fn a_report_with_little_room_leaves_the_rest_to_sweeps() {
    let (mut w, a, _) = silent_holder();
    let (by, reason) = (name("ops"), name("seen dead"));
    let act = OperatorAct::ReportDead { session: a };
    w.apply(&Command::Operator { by, reason, act, release_now: 1 });
    assert_eq!(w.machine.backlog_len(), 1);
    w.apply(&Command::Sweep { releases: 1 });
    assert_eq!((w.holder("l"), w.machine.backlog_len()), (None, 0));
    assert!(w.machine.list_sessions(None, 10).0.iter().all(|row| row.session != a));
}

#[test]
fn a_forced_release_opens_one_key_and_the_last_of_them_ends_the_quarantine() {
    let (mut w, a, b) = silent_holder();
    let force = |key: &str| order(OperatorAct::ForceRelease { key: name(key), epoch: Epoch(1) });
    assert_eq!(granted(&w.apply(&force("k"))), [(b, Ticket(1))]);
    assert_eq!(w.machine.counts().quarantined_sessions, 1);
    w.apply(&force("l"));
    assert_eq!((w.holder("l"), w.machine.counts().quarantined_sessions), (None, 0));
    let report = order(OperatorAct::ReportDead { session: a });
    assert!(matches!(w.refusal(&report), Refusal::SessionEnded { cause: EXPIRED, .. }));
}

#[test]
fn an_eviction_closes_too_and_whoever_closes_or_is_reported_dead_frees_at_once() {
    for (act, is_closed) in [(Some(false), true), (Some(true), false), (None, false)] {
        let mut w = World::new();
        let a = w.open(1);
        w.apply(&closed(a, 1, "k"));
        match act {
            Some(true) => w.apply(&order(OperatorAct::ReportDead { session: a })),
            Some(false) => w.apply(&order(OperatorAct::Evict { session: a })),
            None => w.end(a, Cause::Closed, 50),
        };
        assert_eq!(w.holder("k").is_some(), is_closed);
    }
}

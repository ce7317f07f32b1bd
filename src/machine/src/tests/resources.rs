//! The registry of resources: DESIGN section 1, "one lock per resource".

use super::*;
use palisade_types::limits::RESOURCE_KEYS_SHOWN;
use palisade_types::{Epoch, OperatorAct, ResourceRow};

fn claim(resource: &str, key: &str) -> Command {
    Command::ClaimResource { resource: name(resource), key: name(key) }
}

/// Claims; gives how many keys the resource has, and another one.
fn claimed(w: &mut World, resource: &str, key: &str) -> (u32, Option<Key>) {
    match w.reply(&claim(resource, key)) {
        Reply::ResourceClaimed { revision, keys, other } => {
            assert_eq!(revision.0, w.index);
            (keys, other)
        }
        other => panic!("expected a claim, not {other:?}"),
    }
}

fn retire(w: &mut World, key: &str) -> Reply {
    let act = OperatorAct::Retire { key: name(key), epoch: w.describe(key).epoch };
    w.reply(&Command::Operator { by: name("ops"), reason: name("test"), act, release_now: 0 })
}

fn listed(w: &World, conflicts: bool) -> Vec<(Name, u32, Vec<Key>)> {
    w.compare(&[]);
    let (rows, more) = w.machine.list_resources(conflicts, None, 1_000);
    assert!(!more);
    rows.into_iter().map(|ResourceRow { resource, count, keys }| (resource, count, keys)).collect()
}

#[test]
fn a_second_key_of_a_resource_is_told_of_the_first_and_the_first_when_it_claims_again() {
    let mut w = World::new();
    assert_eq!(claimed(&mut w, "db", "b"), (1, None));
    assert_eq!(claimed(&mut w, "db", "b"), (1, None), "the same claim again is no conflict");
    assert_eq!(claimed(&mut w, "bucket", "b"), (1, None), "a key may protect several resources");
    assert_eq!(listed(&w, true), []);
    assert_eq!(claimed(&mut w, "db", "a"), (2, Some(name("b"))));
    assert_eq!(claimed(&mut w, "db", "b"), (2, Some(name("a"))));
    assert_eq!(listed(&w, true), [(name("db"), 2, std::vec![name("a"), name("b")])]);
    assert_eq!(listed(&w, false).len(), 2);
    let counts = w.machine.counts();
    assert_eq!((counts.resources, counts.resource_conflicts, counts.resource_claims), (2, 1, 3));
}

#[test]
fn a_row_names_only_the_first_keys_and_says_how_many_there_are() {
    let mut w = World::new();
    for n in 0..RESOURCE_KEYS_SHOWN + 4 {
        claimed(&mut w, "db", &std::format!("key {n:03}"));
    }
    let rows = listed(&w, true);
    assert_eq!((rows[0].1 as usize, rows[0].2.len()), (RESOURCE_KEYS_SHOWN + 4, RESOURCE_KEYS_SHOWN));
    assert_eq!(rows[0].2[0], name("key 000"));
}

#[test]
fn retiring_a_key_withdraws_its_claims_and_leaves_those_of_others() {
    let mut w = World::new();
    let a = w.open(1);
    w.take(a, 1, "k");
    for (resource, key) in [("db", "k"), ("bucket", "k"), ("db", "l")] {
        claimed(&mut w, resource, key);
    }
    assert_eq!(retire(&mut w, "k"), Reply::Refused(Refusal::InUse));
    assert_eq!(listed(&w, true).len(), 1, "a key in use keeps its claims");
    w.release(a, 1);
    assert!(matches!(retire(&mut w, "k"), Reply::OperatorDone { .. }));
    assert_eq!(listed(&w, false), [(name("db"), 1, std::vec![name("l")])]);
}

#[test]
fn claims_of_a_key_whose_record_was_reclaimed_can_be_withdrawn_once() {
    let mut w = World::with(ClusterLimits { idle_keys: 0, ..ClusterLimits::default() });
    let a = w.open(1);
    w.take(a, 1, "k");
    claimed(&mut w, "db", "k");
    w.release(a, 1);
    let floor = w.describe("k").epoch;
    assert_eq!((w.describe("k").class, floor), (None, w.machine.epoch_floor()));
    let at = |epoch| OperatorAct::Retire { key: name("k"), epoch };
    let order = |act| Command::Operator { by: name("ops"), reason: name("test"), act, release_now: 0 };
    assert!(!w.machine.frees(&at(Epoch(floor.0 + 1))) && w.machine.frees(&at(floor)));
    assert!(matches!(w.refusal(&order(at(Epoch(floor.0 + 1)))), Refusal::NotAtEpoch { .. }));
    let done = w.reply(&order(at(floor)));
    assert_eq!(done, Reply::OperatorDone { action: LogIndex(w.index) });
    assert_eq!(listed(&w, false), []);
    claimed(&mut w, "db", "k");
    assert_eq!(w.reply(&order(at(floor))), done, "a late repeat is answered as the first");
    assert_eq!(listed(&w, false).len(), 1, "and spares what was claimed since");
}

#[test]
fn above_the_limit_the_claim_not_made_again_for_longest_is_reclaimed() {
    let mut w = World::with(ClusterLimits { resource_claims: 3, ..ClusterLimits::default() });
    for key in ["a", "b", "c", "a"] {
        claimed(&mut w, "db", key);
    }
    assert_eq!(claimed(&mut w, "bucket", "d"), (1, None));
    let keys = std::vec![name("a"), name("c")];
    assert_eq!(listed(&w, false), [(name("bucket"), 1, std::vec![name("d")]), (name("db"), 2, keys)]);
}

#[test]
fn a_claim_is_fresh_while_half_the_limit_can_be_claimed_before_it_goes() {
    let mut w = World::with(ClusterLimits { resource_claims: 4, ..ClusterLimits::default() });
    let fresh = |w: &World, key: &str| w.machine.fresh_claim("db", key);
    assert_eq!(fresh(&w, "a"), None, "what is not on record is not fresh");
    claimed(&mut w, "db", "a");
    claimed(&mut w, "db", "b");
    let (revision, other) = (LogIndex(w.index), Some(name("b")));
    assert_eq!(fresh(&w, "a"), Some(Reply::ResourceClaimed { revision, keys: 2, other }));
    claimed(&mut w, "db", "c");
    assert_eq!(fresh(&w, "a"), None, "it should be made again");
    for (n, key) in ["x", "y"].into_iter().enumerate() {
        claimed(&mut w, "bucket", key);
        let kept = listed(&w, false).iter().any(|row| row.2.contains(&name("a")));
        assert_eq!(kept, n == 0);
    }
}

#[test]
fn over_the_quota_a_new_claim_is_refused_and_nothing_else() {
    let mut w = World::new();
    let a = w.open(1);
    let used = w.machine.state_bytes();
    let limits = ClusterLimits { state_bytes: used + 448 + 1 + 96 + 256 + 2 + 1, ..ClusterLimits::default() };
    let mut w = World::with(limits);
    assert_eq!(w.open(1), a);
    w.take(a, 1, "k");
    assert!(matches!(w.refusal(&claim("db", "kk")), Refusal::QuotaExceeded { .. }));
    assert_eq!(claimed(&mut w, "d", "k"), (1, None));
    assert!(matches!(w.refusal(&claim("d", "l")), Refusal::QuotaExceeded { .. }));
    assert_eq!(claimed(&mut w, "d", "k"), (1, None), "what is on record can be claimed again");
    w.release(a, 1);
    w.take(a, 2, "k");
    assert_eq!(listed(&w, false).len(), 1);
}

#[test]
fn a_key_claims_a_hundred_resources_at_most() {
    let mut w = World::new();
    for n in 0..100 {
        assert_eq!(claimed(&mut w, &std::format!("db-{n}"), "k"), (1, None));
    }
    let refused = w.refusal(&claim("one more", "k"));
    assert!(matches!(refused, Refusal::QuotaExceeded { limit: 100, .. }), "{refused}");
    assert_eq!(claimed(&mut w, "db-7", "k"), (1, None), "what is on record can be claimed again");
    assert_eq!(claimed(&mut w, "one more", "l"), (1, None), "and others claim what they like");
}

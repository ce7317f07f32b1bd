//! Snapshots: what they hold, that commands meanwhile do not show, and that damage is refused.

use super::*;
use crate::{Restore, SnapshotFault};
use alloc::{format, vec};
use palisade_types::{Mutant, OperatorAct, Rng, SNAPSHOT_CHUNK_MAX};

pub(super) fn chunks(machine: &mut Machine) -> Vec<Vec<u8>> {
    machine.freeze();
    rest(machine)
}

fn rest(machine: &mut Machine) -> Vec<Vec<u8>> {
    let chunks: Vec<Vec<u8>> = core::iter::from_fn(|| machine.next_chunk()).collect();
    assert!(!machine.is_frozen());
    assert!(chunks.iter().all(|chunk| chunk.len() <= SNAPSHOT_CHUNK_MAX));
    chunks
}

pub(super) fn restore(
    limits: ClusterLimits,
    chunks: &[Vec<u8>],
    seed: u64,
    mutants: Mutants,
) -> Result<Machine, SnapshotFault> {
    let mut restore = Restore::new(limits, SHARD, seed, mutants);
    for chunk in chunks {
        restore.push(chunk)?;
    }
    restore.finish()
}

/// A log of random commands, recorded with the limits under which they were made.
fn logs() -> Vec<(ClusterLimits, random::Log)> {
    random::logs(3)
}

fn apply(machine: &mut Machine, (at, bytes): &(Applied, Vec<u8>)) -> Vec<Effect> {
    let mut effects = Vec::new();
    machine.apply(*at, bytes, &mut effects).unwrap();
    effects
}

pub(super) fn new(limits: ClusterLimits, mutants: Mutants) -> Machine {
    Machine::new(limits, SHARD, 1, mutants)
}

/// Whether a machine that is restored now and then stays equal to one that never is.
fn same_after_restores(mutants: Mutants) -> bool {
    let mut rng = Rng::new(9);
    for (limits, log) in logs() {
        let (mut a, mut b) = (new(limits, mutants), new(limits, mutants));
        for entry in &log {
            if apply(&mut a, entry) != apply(&mut b, entry) || a.news() != b.news() {
                return false;
            }
            if !rng.per_mille(40) {
                continue;
            }
            let (of_a, of_b) = (chunks(&mut a), chunks(&mut b));
            if of_a != of_b {
                return false;
            }
            b = restore(limits, &of_b, rng.next_u64(), mutants).unwrap();
            b.check();
            if a.digest() != b.digest() || a.counts() != b.counts() {
                return false;
            }
        }
    }
    true
}

/// Whether a snapshot that is taken while commands go on is the one that is taken at once.
fn same_meanwhile(mutants: Mutants) -> bool {
    let mut rng = Rng::new(4);
    for (limits, log) in logs() {
        let (mut a, mut b) = (new(limits, mutants), new(limits, Mutants::NONE));
        let mut expected = Vec::new();
        let mut given = Vec::new();
        for entry in &log {
            if !a.is_frozen() && rng.per_mille(100) {
                expected = chunks(&mut b);
                a.freeze();
                given.clear();
            }
            assert_eq!(apply(&mut a, entry), apply(&mut b, entry));
            if a.is_frozen() && rng.per_mille(300) {
                match a.next_chunk() {
                    Some(chunk) => given.push(chunk),
                    None if given != expected => return false,
                    None => {}
                }
            }
        }
    }
    true
}

#[test]
fn a_restored_machine_goes_on_like_the_one_that_was_archived() {
    assert!(same_after_restores(Mutants::NONE));
}

#[test]
fn a_snapshot_is_of_the_moment_of_the_freeze_whatever_comes_meanwhile() {
    assert!(same_meanwhile(Mutants::NONE));
}

#[test]
fn no_chunk_is_too_long_when_every_name_is_as_long_as_may_be() {
    let long = |kind: char, n: u32| name(&format!("{kind}{n:0511}"));
    let mut w = World::new();
    let session = w.open(1);
    for n in 0..900_u32 {
        let ticket = Ticket(2 * u64::from(n) + 1);
        let (key, resource) = (long('k', n), long('r', n));
        let class = Class::Fenced;
        let taken = Command::Acquire {
            session,
            ticket,
            key: key.clone(),
            class,
            resource: Some(resource.clone()),
            mode: Mode::Exclusive,
            wait: false,
            on_death: OnDeath::Release,
        };
        let Reply::Granted { fence, .. } = w.reply(&taken) else { panic!("not granted") };
        w.apply(&Command::ClaimResource { resource, key: key.clone() });
        let act = OperatorAct::ForceRelease { key, epoch: fence.epoch() };
        w.apply(&Command::Operator { by: long('b', n), reason: long('w', n), act, release_now: 0 });
        let owner = Some(long('o', n));
        let token = SessionToken(u128::from(n) + 2);
        w.apply(&Command::OpenSession { token, ttl_ms: 0, owner: owner.clone(), incarnation: owner });
        let value = vec![n as u8; if n % 10 == 0 { 16 << 10 } else { 700 }].into();
        let ticket = Ticket(2 * u64::from(n) + 2);
        w.apply(&Command::Put { session, ticket, key: long('v', n), value });
    }
    let all = chunks(&mut w.machine);
    let restored = restore(ClusterLimits::default(), &all, 5, Mutants::NONE).unwrap();
    assert_eq!(restored.digest(), w.machine.digest());
}

#[test]
fn what_is_left_out_or_taken_too_late_is_found() {
    for mutant in [Mutant::B12, Mutant::P1, Mutant::P2, Mutant::P3] {
        assert!(!same_after_restores(Mutants::only(mutant)), "{mutant:?}");
    }
    assert!(!same_meanwhile(Mutants::only(Mutant::P4)));
}

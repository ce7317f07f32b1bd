//! Snapshots that are not what was written: refused, or a machine that is sound. And the bytes of a small one.

use super::snapshot::{chunks, new, restore};
use super::*;
use crate::{Restore, SnapshotFault};
use palisade_types::Rng;

const HEADER: usize = 20;

/// Makes the checksum of a chunk that was changed fit again.
fn seal(chunk: &mut [u8]) {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&chunk[..16]);
    hasher.update(&chunk[HEADER..]);
    let crc = hasher.finalize();
    chunk[16..HEADER].copy_from_slice(&crc.to_le_bytes());
}

/// A machine in the middle of a random log.
fn machine_at(world: usize, share: usize) -> (ClusterLimits, Machine) {
    let (limits, log) = random::logs(1).swap_remove(world);
    let mut machine = new(limits, Mutants::NONE);
    for (at, bytes) in &log[..log.len() * share / 8] {
        machine.apply(*at, bytes, &mut Vec::new()).unwrap();
    }
    (limits, machine)
}

#[test]
fn a_changed_archive_is_refused_or_gives_a_sound_machine() {
    let mut rng = Rng::new(21);
    let (mut refused, mut sound) = (0, 0);
    for (world, share) in [(0, 4), (1, 7), (2, 3), (3, 6)] {
        let (limits, mut machine) = machine_at(world, share);
        let whole = chunks(&mut machine);
        for _ in 0..1_500 {
            let mut changed = whole.clone();
            let at = rng.below(changed.len() as u64) as usize;
            let chunk = &mut changed[at];
            for _ in 0..rng.between(1, 3) {
                if chunk.len() > HEADER {
                    let byte = HEADER + rng.below((chunk.len() - HEADER) as u64) as usize;
                    chunk[byte] = match rng.below(4) {
                        0 => rng.below(256) as u8,
                        1 => chunk[byte] ^ (1 << rng.below(8)),
                        2 => chunk[byte].wrapping_add(1),
                        _ => 0xff,
                    };
                }
            }
            seal(chunk);
            match restore(limits, &changed, 5, Mutants::NONE) {
                Ok(machine) => {
                    machine.check();
                    sound += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 1_000 && sound > 100, "{refused} refused, {sound} sound");
}

#[test]
fn any_bytes_and_any_order_of_chunks_are_refused_without_a_panic() {
    let mut rng = Rng::new(22);
    let (limits, mut machine) = machine_at(3, 7);
    let whole = chunks(&mut machine);
    for _ in 0..2_000 {
        let mut chunk: Vec<u8> = (0..rng.below(200)).map(|_| rng.below(256) as u8).collect();
        if chunk.len() >= HEADER && rng.per_mille(700) {
            chunk[..6].copy_from_slice(&whole[0][..6]);
            chunk[6..8].copy_from_slice(&(rng.below(21) as u16).to_le_bytes());
            let len = (chunk.len() - HEADER) as u32;
            chunk[12..16].copy_from_slice(&len.to_le_bytes());
            seal(&mut chunk);
        }
        let mut restore = Restore::new(limits, SHARD, 1, Mutants::NONE);
        let is_with_head = rng.per_mille(500);
        if is_with_head {
            restore.push(&whole[0]).unwrap();
        }
        if restore.push(&chunk).is_ok() {
            assert!(restore.finish().is_err());
        }
    }
    for missing in 0..whole.len() {
        let mut fewer = whole.clone();
        fewer.remove(missing);
        assert!(matches!(restore(limits, &fewer, 1, Mutants::NONE), Err(SnapshotFault::Misplaced { .. })));
        let mut twice = whole.clone();
        twice.insert(missing, whole[missing].clone());
        assert!(restore(limits, &twice, 1, Mutants::NONE).is_err());
    }
}

#[test]
fn what_is_wrong_with_a_chunk_is_said() {
    let (limits, mut machine) = machine_at(3, 4);
    let whole = chunks(&mut machine);
    let restore = || Restore::new(limits, SHARD, 1, Mutants::NONE);
    let mut flipped = whole[0].clone();
    flipped[HEADER] ^= 1;
    assert!(matches!(restore().push(&flipped), Err(SnapshotFault::Damaged { chunk: 0, .. })));
    let mut newer = whole[0].clone();
    newer[4] = 2;
    seal(&mut newer);
    assert_eq!(restore().push(&newer), Err(SnapshotFault::Newer { chunk: 0, format: 2 }));
    let mut other = Restore::new(limits, ShardId(5), 1, Mutants::NONE);
    assert_eq!(other.push(&whole[0]), Err(SnapshotFault::Foreign("its shard")));
    let limits = ClusterLimits { sessions: limits.sessions + 1, ..limits };
    let mut other = Restore::new(limits, SHARD, 1, Mutants::NONE);
    assert_eq!(other.push(&whole[0]), Err(SnapshotFault::Foreign("a limit of its cluster")));
}

#[test]
fn a_freeze_that_is_given_up_leaves_nothing_behind() {
    let (_, mut machine) = machine_at(3, 6);
    let (digest, whole) = (machine.digest(), chunks(&mut machine));
    machine.freeze();
    machine.next_chunk();
    machine.thaw();
    assert!(!machine.is_frozen() && machine.next_chunk().is_none());
    assert_eq!((machine.digest(), chunks(&mut machine)), (digest, whole));
}

/// The bytes of format 1 are released: the file, made by this crate when it was new, is read and written again as it is
/// for as long as the format is.
#[test]
fn the_bytes_of_format_1_are_those_of_the_golden_file() {
    let limits = ClusterLimits {
        sessions: 6,
        keys_per_session: 5,
        waiters_per_key: 4,
        idle_keys: 3,
        claims: 18,
        ended_sessions: 5,
        state_bytes: 20_000,
        resource_claims: 6,
    };
    let golden = include_bytes!("snapshot_v1.golden");
    let mut restore = Restore::new(limits, SHARD, 3, Mutants::NONE);
    let mut rest = &golden[..];
    while !rest.is_empty() {
        let len = u32::from_le_bytes([rest[12], rest[13], rest[14], rest[15]]) as usize + HEADER;
        restore.push(&rest[..len]).unwrap();
        rest = &rest[len..];
    }
    let mut machine = restore.finish().unwrap();
    machine.check();
    assert!(chunks(&mut machine).concat() == golden, "the bytes of a released format changed");
}

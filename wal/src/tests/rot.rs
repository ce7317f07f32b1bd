//! Snapshots and logs that do not fit, rot, and leftovers: the same state or a refusal.

use alloc::vec;
use alloc::vec::Vec;
use palisade_types::{Block, Edge, LogIndex, Mutants, Term};

use super::damage::near_content;
use super::snapshots::{chunks_of, edge_of, state_of};
use super::{Run, SHARD, identity, recover};
use crate::archive::{Place, SnapshotHeader, Sum, chunk_buffers, chunk_offset, unfinished};
use crate::*;

/// A file as a finished snapshot is.
fn put_snapshot(disk: &mut SimDisk, edge: Edge, place: Place) {
    let owner = identity().owner(SHARD);
    let mut sum = Sum::default();
    let mut file = vec![0; PAGE];
    for (number, chunk) in chunks_of(&edge, 3).into_iter().enumerate() {
        sum.add(&chunk);
        let at = chunk_offset(number as u32) as usize;
        file.resize(at, 0);
        chunk_buffers(&owner, 5, number as u32, chunk).iter().for_each(|b| file.extend_from_slice(b));
    }
    let header = SnapshotHeader { id: sum.id(edge), salt: 5, place, durable_upto: 0 };
    file[..PAGE].copy_from_slice(&header.encode(&owner));
    disk.put(&snapshot_file(SHARD, edge.index), &file);
}

/// A log that begins behind one edge, of blocks of one command each, in one segment.
fn log_behind(base: u64, len: u64) -> Run {
    let mut run = Run::fresh();
    if base > 0 {
        run.grow(1, base as usize);
        let edge = edge_of(&run.log[base as usize - 1]);
        // Another history, so that the log has to be begun anew.
        let mut other = run.log.clone();
        run = Run::fresh();
        let id = run.hand_snapshot(edge, 3);
        run.settle();
        run.persist += 1;
        run.wal.install(run.persist, id);
        run.settle();
        run.log.append(&mut other);
    }
    run.grow(1, len as usize);
    run
}

/// Every snapshot index, log range and match or mismatch of up to six entries.
fn combinations(mutants: Mutants) -> Result<usize, alloc::string::String> {
    let mut cases = 0;
    for (base, len) in (0..5).flat_map(|b| (0..=6 - b).map(move |l| (b, l))) {
        let run = log_behind(base, len);
        let end = base + len;
        for snapshot in 1..=7 {
            for matches in [true, false] {
                let mut disk = run.disk.clone();
                disk.remove(&snapshot_file(SHARD, LogIndex(base)));
                let own = run.log.get(snapshot as usize - 1).map(edge_of);
                let other = Edge { index: LogIndex(snapshot), term: Term(1), chain: 99, clock_ms: 3 };
                let edge = own.filter(|_| matches).unwrap_or(other);
                if matches && own.is_none() && snapshot <= end {
                    continue;
                }
                put_snapshot(&mut disk, edge, Place::START);
                let what = std::format!("log {base}+{len}, snapshot {snapshot}, matches {matches}");
                let result = recover_with(&disk, &identity(), SHARD, mutants);
                cases += 1;
                if snapshot < base {
                    match result {
                        Err(RecoverError::Hole { from, to, .. })
                            if (from.0, to.0) == (snapshot + 1, base) => {}
                        other => return Err(std::format!("{what}: {other:?}")),
                    }
                    continue;
                }
                let r = result.map_err(|e| std::format!("{what}: {e}"))?;
                let kept = matches && snapshot <= end;
                let (begins, log): (Edge, &[Block]) = if kept {
                    let edge = (base > 0).then(|| edge_of(&run.log[base as usize - 1]));
                    (edge.unwrap_or_default(), &run.log[base as usize..])
                } else {
                    (edge, &[])
                };
                if (r.base, &r.blocks[..], r.snapshot.map(|s| s.edge())) != (begins, log, Some(edge)) {
                    return Err(std::format!("{what}: {r:?}"));
                }
            }
        }
    }
    Ok(cases)
}

#[test]
fn snapshot_and_log_go_together_or_one_of_them_goes() {
    assert!(combinations(Mutants::NONE).unwrap() > 200);
}

/// A shard with two snapshots and a log that begins behind a place; sealed at the end.
fn shard() -> Run {
    let mut run = Run::fresh();
    for _ in 0..3 {
        run.grow(1, 6);
        run.snapshot();
        run.wal.compact(LogIndex(u64::MAX));
        run.settle();
    }
    run.grow(1, 1);
    run.pass(20);
    assert!(run.recovered().base.index > LogIndex(0));
    run
}

/// Recovers: the same state, if it is one.
fn same_or_refused(run: &Run, disk: &SimDisk, mutants: Mutants) -> Result<bool, alloc::string::String> {
    let Ok(r) = recover_with(disk, &identity(), SHARD, mutants) else { return Ok(false) };
    let Some(id) = r.snapshot else { return Err("no snapshot".into()) };
    let edge = run.log[id.last.0 as usize - 1].clone();
    let mut bytes = vec![];
    read_snapshot(disk, &identity(), SHARD, id, |c| bytes.extend_from_slice(c))
        .map_err(|e| std::format!("{e}"))?;
    let behind: Vec<&Block> = r.blocks.iter().filter(|b| b.first() > id.last).collect();
    let wanted: Vec<&Block> = run.log.iter().filter(|b| b.first() > id.last).collect();
    if bytes != state_of(&edge_of(&edge)) || behind != wanted {
        return Err("another state".into());
    }
    Ok(true)
}

/// Flips bits: all of them in headers, of the rest every `stride`th byte one.
fn flip_bits(stride: u64, mutants: Mutants) -> Result<[u64; 2], alloc::string::String> {
    let run = shard();
    let mut met = [0, 0];
    for file in run.disk.files() {
        let bytes = run.disk.read(&file).unwrap();
        for at in 0..bytes.len() as u64 {
            let record = &bytes[(at as usize / PAGE * PAGE)..][..4];
            let header = record[0] == b'P' && at % PAGE as u64 <= 240;
            let written = near_content(&bytes, at);
            if !header && (at % stride != 0 || (!written && at % 97 != 0)) {
                continue;
            }
            let all = header || (stride == 1 && written);
            let bits = if all { 0..8 } else { at % 8..at % 8 + 1 };
            for bit in bits {
                let mut disk = run.disk.clone();
                assert!(disk.flip(&file, at * 8 + bit));
                let same = same_or_refused(&run, &disk, mutants)
                    .map_err(|e| std::format!("{file} byte {at} bit {bit}: {e}"))?;
                met[usize::from(same)] += 1;
            }
        }
    }
    Ok(met)
}

#[test]
fn a_flipped_bit_leaves_the_same_state_or_is_refused() {
    let [refused, same] = flip_bits(19, Mutants::NONE).unwrap();
    assert!(refused > 1000 && same > 1000, "{refused} refused, {same} the same");
}

#[test]
#[ignore = "every bit that was written: minutes; .ci/run asks for it"]
fn every_flipped_bit_leaves_the_same_state_or_is_refused() {
    flip_bits(1, Mutants::NONE).unwrap();
}

#[test]
fn a_snapshot_cut_anywhere_gives_way_to_the_one_before() {
    let run = shard();
    let id = run.recovered().snapshot.unwrap();
    let file = snapshot_file(SHARD, id.last);
    let bytes = run.disk.read(&file).unwrap();
    let mut met = [0, 0];
    for at in 0..bytes.len() as u64 {
        if at % PAGE as u64 > 100 && at % 89 != 0 && bytes.len() as u64 - at > 5000 {
            continue;
        }
        let mut disk = run.disk.clone();
        disk.cut(&file, at);
        assert_eq!(same_or_refused(&run, &disk, Mutants::NONE), Ok(true), "cut at {at}");
        let used = recover(&disk).unwrap().snapshot.unwrap();
        met[usize::from(used == id)] += 1;
        assert!(used == id || matches!(recover(&disk).unwrap().notes[..], [Note::SnapshotDamaged { .. }]));
    }
    assert!(met.iter().all(|n| *n > 50), "{met:?}");
}

#[test]
fn a_rotten_snapshot_is_refused_if_the_log_does_not_reach_it_and_replaced_if_it_does() {
    let mut run = shard();
    let newest = run.recovered().snapshot.unwrap();
    let file = snapshot_file(SHARD, newest.last);
    run.disk.flip(&file, (chunk_offset(1) + 900) * 8);
    let again = Run::start(run.disk.clone(), 4);
    assert!(again.wal.snapshot().unwrap().last < newest.last, "the one before");
    let mut again = Run { log: run.log.clone(), ..again };
    again.settle();
    again.grow(2, 1);
    again.snapshot();
    again.settle();
    assert!(!again.disk.files().contains(&file), "removed with the next");
    assert_eq!(again.recovered().notes, []);
    // The same with the older gone: its name is in the refusal.
    run.disk.remove(&snapshot_file(SHARD, LogIndex(12)));
    let fault = recover(&run.disk).unwrap_err();
    assert!(
        matches!(&fault, RecoverError::Damaged { file: f, offset, .. } if *f == file && *offset == chunk_offset(1)),
        "{fault}"
    );
}

#[test]
fn leftovers_of_ours_are_removed_and_others_left_and_named() {
    let run = shard();
    let mut disk = run.disk.clone();
    let owner = identity().owner(SHARD);
    let ours = ["snap-0000000000000099.0123abcd.tmp", "snap-0000000000000098.0123abcd.tmp"];
    disk.put(&std::format!("shard-0000/{}", ours[0]), &unfinished(&owner, LogIndex(99)));
    disk.put(&std::format!("shard-0000/{}", ours[1]), &[]);
    let mut other = identity();
    other.incarnation.0 += 1;
    let theirs = ["snap-0000000000000097.0123abcd.tmp", "snap-12", "snap-0000000000000099.tmp", "old"];
    for name in theirs {
        disk.put(&std::format!("shard-0000/{name}"), &unfinished(&other.owner(SHARD), LogIndex(97)));
    }
    let mut again = Run::start(disk, 3);
    again.settle();
    let names = again.names();
    assert!(ours.iter().all(|n| !names.contains(&(*n).into())), "{names:?}");
    assert!(theirs.iter().all(|n| names.contains(&(*n).into())), "{names:?}");
    let unknown = again.recovered().notes.iter().filter(|n| matches!(n, Note::Unknown { .. })).count();
    assert_eq!(unknown, theirs.len());
    assert_eq!(same_or_refused(&run, &again.disk, Mutants::NONE), Ok(true));
}

/// An old segment put back below the log's beginning.
fn with_leftover() -> (Run, SimDisk) {
    let mut run = Run::fresh();
    run.grow(1, 6);
    let old = segment_file(SHARD, 1);
    let bytes = run.disk.read(&old).unwrap();
    for _ in 0..3 {
        run.grow(1, 6);
        run.snapshot();
        run.wal.compact(LogIndex(u64::MAX));
        run.settle();
    }
    let mut disk = run.disk.clone();
    disk.put(&old, &bytes);
    (run, disk)
}

fn leftover_is_no_part(mutants: Mutants) -> bool {
    let (run, disk) = with_leftover();
    let clean = run.recovered();
    let Ok(r) = recover_with(&disk, &identity(), SHARD, mutants) else { return false };
    r.base == clean.base
        && r.blocks == clean.blocks
        && r.notes == [Note::Leftover { file: segment_file(SHARD, 1) }]
}

#[test]
fn a_segment_below_the_logs_beginning_is_removed_and_not_read() {
    assert!(leftover_is_no_part(Mutants::NONE));
    let (_, disk) = with_leftover();
    let mut again = Run::start(disk, 3);
    again.settle();
    assert!(!again.names().contains(&"wal-0000000000000001".into()));
}

#[test]
fn a_missing_segment_that_a_snapshot_needs_is_refused_by_name() {
    let run = shard();
    let segments: Vec<_> = run.disk.files().into_iter().filter(|f| f.contains("wal-")).collect();
    for (n, file) in segments.iter().enumerate().skip(1).take(segments.len() - 2) {
        let mut disk = run.disk.clone();
        disk.remove(file);
        match recover(&disk) {
            Err(RecoverError::Missing { file: named }) => assert_eq!(named, *file, "segment {n}"),
            // Needed by the older snapshot alone.
            Ok(_) => assert_eq!(same_or_refused(&run, &disk, Mutants::NONE), Ok(true)),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Each bug is found by what is tested above and beside.
mod mutants {
    use palisade_types::Mutant;

    use super::super::keep::history;
    use super::*;

    #[test]
    fn a_snapshot_taken_by_its_length_is_found() {
        assert!(flip_bits(19, Mutants::only(Mutant::C5)).is_err());
    }

    #[test]
    fn removal_before_the_name_is_durable_is_found() {
        let found = (0..150).find(|seed| {
            let result = std::panic::catch_unwind(|| history(*seed, 6, Mutants::only(Mutant::C10)));
            result.map_or(true, |r| r.is_err())
        });
        assert!(found.is_some());
    }

    #[test]
    fn a_conflicting_tail_that_is_kept_is_found() {
        assert!(combinations(Mutants::only(Mutant::C12)).is_err());
    }

    #[test]
    fn a_hole_that_is_bridged_is_found() {
        assert!(combinations(Mutants::only(Mutant::C13)).is_err());
    }

    #[test]
    fn a_leftover_that_is_read_is_found() {
        assert!(!leftover_is_no_part(Mutants::only(Mutant::C14)));
    }
}

/// A driver that reports a rename done without a synced directory loses a snapshot that counts.
#[test]
fn a_directory_that_is_not_synced_is_found() {
    let mut run = Run::fresh();
    run.grow(1, 3);
    run.disk.forget_directory_syncs();
    run.hand_snapshot(edge_of(&run.log[2]), 3);
    run.settle();
    // What is read again is not there: it never counts.
    assert_eq!(run.wal.snapshot(), None);
}

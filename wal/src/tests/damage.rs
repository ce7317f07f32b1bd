//! Damage: the same state or a refusal, never a different state.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_types::{ClusterId, Incarnation, NodeId, ShardId};

use super::{Run, SHARD, formatted, identity, recover};
use crate::*;

/// A log of two starts and several segments, sealed at the end.
fn sealed_log() -> Run {
    let mut run = Run::fresh();
    for len in [10, 200, 4100, 30, 500] {
        run.append(1, len);
        run.settle();
    }
    let mut run = Run::start(run.disk, 2);
    for len in [50, 60] {
        run.append(2, len);
        run.settle();
    }
    run.pass(20);
    run
}

fn refused_or_same(run: &Run, disk: &SimDisk, what: &str) -> Result<(), RecoverError> {
    let recovered = recover(disk)?;
    assert_eq!(recovered.blocks, run.log, "{what}");
    assert_eq!((recovered.hard_state.term.0, recovered.hard_state.vote), (2, Some(NodeId(1))), "{what}");
    Ok(())
}

/// Whether a byte is not zero, or within 8 bytes of one.
pub(crate) fn near_content(bytes: &[u8], at: u64) -> bool {
    let at = at as usize;
    bytes[at.saturating_sub(8)..bytes.len().min(at + 8)].iter().any(|b| *b != 0)
}

#[test]
fn every_flipped_bit_leaves_the_same_state_or_is_refused() {
    let run = sealed_log();
    assert!(run.disk.files().len() >= 4, "hard state and three segments at least");
    let (mut same, mut refused) = (0, 0);
    for file in run.disk.files() {
        let bytes = run.disk.read(&file).unwrap();
        for at in 0..bytes.len() as u64 {
            // Every bit near what is written, and some of the zeros ahead.
            if !near_content(&bytes, at) && at % 29 != 0 {
                continue;
            }
            let bits = if near_content(&bytes, at) { 0..8 } else { at % 8..at % 8 + 1 };
            for bit in bits {
                let mut disk = run.disk.clone();
                assert!(disk.flip(&file, at * 8 + bit));
                match refused_or_same(&run, &disk, &std::format!("{file} byte {at} bit {bit}")) {
                    Ok(()) => same += 1,
                    Err(RecoverError::Damaged { .. }) => refused += 1,
                    Err(other) => panic!("{file} byte {at} bit {bit}: {other}"),
                }
            }
        }
    }
    assert!(same > 10_000 && refused > 10_000, "{same} the same, {refused} refused");
}

#[test]
fn a_file_cut_at_any_byte_leaves_the_same_state_or_is_refused() {
    let run = sealed_log();
    let last = run.disk.files().pop().unwrap();
    for file in run.disk.files() {
        let bytes = run.disk.read(&file).unwrap();
        // A last segment cut back into its marks looks like one whose creation was never finished:
        // no fault of single sectors does that.
        let from = if file == last { DATA_START } else { 0 };
        for at in (from..bytes.len() as u64).filter(|at| near_content(&bytes, *at) || at % 61 == 0) {
            let mut disk = run.disk.clone();
            disk.cut(&file, at);
            let _ = refused_or_same(&run, &disk, &std::format!("{file} cut at {at}"));
        }
    }
}

/// The last two batches end in a batch that was never sealed: dropping that one is allowed (nothing
/// tells it from a torn write), dropping more is not.
#[test]
fn cutting_into_the_last_batches_drops_at_most_the_unsealed_one() {
    let mut run = Run::fresh();
    for len in [3000, 3500] {
        run.append(1, len);
        run.settle();
    }
    let file = segment_file(SHARD, 1);
    let (first, second) = (DATA_START, DATA_START + PAGE as u64);
    let all = run.log.clone();
    // Where the body of each ends: header of the batch, header of the block, length, command.
    let (first_end, second_end) = (first + 168 + 64 + 4 + 3000, second + 168 + 64 + 4 + 3500);
    for at in first..=second + PAGE as u64 {
        let mut disk = run.disk.clone();
        disk.cut(&file, at);
        match recover(&disk) {
            Err(RecoverError::Damaged { file: f, offset, .. }) => {
                assert!(at < first_end, "cut at {at}");
                assert_eq!((f, offset), (file.clone(), first));
            }
            Err(other) => panic!("cut at {at}: {other}"),
            Ok(r) if r.blocks == all => assert!(at >= second_end, "cut at {at}"),
            Ok(r) => {
                assert!(at >= first_end && r.blocks == all[..1], "cut at {at}");
                assert!(matches!(r.notes[..], [Note::SuspectTail { batch: 2, .. }]), "cut at {at}");
            }
        }
    }
}

#[test]
fn a_sealed_last_batch_is_damaged_not_torn() {
    let mut run = Run::fresh();
    run.append(1, 100);
    run.settle();
    let mut rotten = run.disk.clone();
    rotten.flip(&segment_file(SHARD, 1), (DATA_START + 300) * 8);
    rotten.flip(&segment_file(SHARD, 1), (DATA_START + 200) * 8);
    assert!(recover(&rotten).unwrap().blocks.is_empty(), "unsealed: cannot be told from a torn write");
    run.pass(20);
    run.disk.flip(&segment_file(SHARD, 1), (DATA_START + 200) * 8);
    let fault = recover(&run.disk).unwrap_err();
    assert!(matches!(fault, RecoverError::Damaged { offset: DATA_START, .. }), "{fault}");
}

#[test]
fn a_restart_seals_what_it_found() {
    let mut run = Run::fresh();
    run.append(1, 100);
    run.settle();
    let mut run = Run::start(run.disk, 2);
    run.settle();
    run.disk.flip(&segment_file(SHARD, 1), (DATA_START + 200) * 8);
    let fault = recover(&run.disk).unwrap_err();
    assert!(
        matches!(&fault, RecoverError::Damaged { file, offset: DATA_START, .. }
        if *file == segment_file(SHARD, 1)),
        "{fault}"
    );
}

#[test]
fn a_batch_copied_over_another_is_never_taken_for_it() {
    let run = sealed_log();
    let pages: Vec<(String, u64, Vec<u8>)> = run
        .disk
        .files()
        .into_iter()
        .flat_map(|f| {
            let bytes = run.disk.read(&f).unwrap();
            let pages: Vec<Vec<u8>> = bytes.chunks(PAGE).map(<[u8]>::to_vec).collect();
            pages.into_iter().enumerate().map(move |(i, p)| (f.clone(), (i * PAGE) as u64, p))
        })
        .collect();
    for (file, offset, _) in &pages {
        for (from, at, page) in &pages {
            let mut disk = run.disk.clone();
            disk.overwrite(file, *offset, page);
            let _ = refused_or_same(&run, &disk, &std::format!("{from} at {at} over {file} at {offset}"));
        }
    }
}

#[test]
fn missing_segments_are_refused() {
    let run = sealed_log();
    for number in 1..run.disk.files().len() as u64 - 1 {
        let mut disk = run.disk.clone();
        disk.remove(&segment_file(SHARD, number));
        let fault = recover(&disk).unwrap_err();
        if number == 1 {
            let RecoverError::Hole { file, from, to } = fault else { panic!("{fault}") };
            assert_eq!((file, from.0, to.0), (segment_file(SHARD, 2), 1, 3), "four batches of a block each");
        } else {
            assert_eq!(fault, RecoverError::Missing { file: segment_file(SHARD, number) });
        }
    }
    let mut disk = run.disk.clone();
    for file in run.disk.files().iter().filter(|f| f.contains("wal-")) {
        disk.remove(file);
    }
    assert_eq!(recover(&disk).unwrap_err(), RecoverError::Missing { file: segment_file(SHARD, 1) });
    disk.remove(&hard_state_file(SHARD));
    assert_eq!(recover(&disk).unwrap_err(), RecoverError::Missing { file: hard_state_file(SHARD) });
}

#[test]
fn segments_in_the_wrong_place_are_refused() {
    let run = sealed_log();
    let (one, two) = (segment_file(SHARD, 1), segment_file(SHARD, 2));
    let mut disk = run.disk.clone();
    disk.put(&one, &run.disk.read(&two).unwrap());
    disk.put(&two, &run.disk.read(&one).unwrap());
    assert!(matches!(recover(&disk), Err(RecoverError::Damaged { file, offset: 0, .. }) if file == one));
}

#[test]
fn a_damaged_header_is_refused_if_the_segment_was_used_and_made_anew_if_not() {
    let mut run = Run::start(formatted(), 1);
    run.settle();
    let file = segment_file(SHARD, 1);
    let mut unused = run.disk.clone();
    unused.flip(&file, 400);
    assert_eq!(recover(&unused).unwrap().notes, vec![Note::Unfinished { file: file.clone() }]);
    let mut again = Run::start(unused, 3);
    again.append(1, 10);
    again.settle();
    assert_eq!(again.recovered().blocks, again.log);

    run.append(1, 10);
    run.settle();
    run.disk.flip(&file, 400);
    assert!(matches!(recover(&run.disk), Err(RecoverError::Damaged { offset: 0, .. })));
}

#[test]
fn another_identity_is_refused() {
    let run = sealed_log();
    let cases = [
        (Identity { cluster: ClusterId(9), ..identity() }, "cluster"),
        (Identity { node: NodeId(9), ..identity() }, "node"),
        (Identity { incarnation: Incarnation(9), ..identity() }, "incarnation of this node"),
    ];
    for (other, whose) in cases {
        let fault = recover_shard(&run.disk, &other, SHARD).unwrap_err();
        assert_eq!(fault, RecoverError::Foreign { file: hard_state_file(SHARD), whose });
        // The same for the segments alone.
        let mut disk = run.disk.clone();
        disk.put(&hard_state_file(SHARD), &initial_hard_state(&other, SHARD));
        let fault = recover_shard(&disk, &other, SHARD).unwrap_err();
        assert_eq!(fault, RecoverError::Foreign { file: segment_file(SHARD, 1), whose });
    }
}

#[test]
fn files_of_another_shard_are_refused() {
    let run = sealed_log();
    let other = ShardId(1);
    let mut disk = SimDisk::new();
    for file in run.disk.files() {
        disk.put(&file.replace("shard-0000", "shard-0001"), &run.disk.read(&file).unwrap());
    }
    let foreign = |file| RecoverError::Foreign { file, whose: "shard" };
    let fault = recover_shard(&disk, &identity(), other).unwrap_err();
    assert_eq!(fault, foreign(hard_state_file(other)));
    disk.put(&hard_state_file(other), &initial_hard_state(&identity(), other));
    let fault = recover_shard(&disk, &identity(), other).unwrap_err();
    assert_eq!(fault, foreign(segment_file(other, 1)));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    for file in sealed_log().disk.files() {
        let mut run = sealed_log();
        let mut page = run.disk.read_start(&file, PAGE).unwrap();
        page[4] = 2;
        let crc = crc32fast::hash(&page[..PAGE - 4]);
        page[PAGE - 4..].copy_from_slice(&crc.to_le_bytes());
        run.disk.overwrite(&file, 0, &page);
        assert_eq!(recover(&run.disk).unwrap_err(), RecoverError::Newer { file, format: 2 });
    }
}

#[test]
fn unknown_files_are_left_alone_and_named() {
    let mut run = sealed_log();
    for junk in ["wal-17", "wal-00000000000000ab", "core", "HARDSTATE.tmp"] {
        run.disk.put(&std::format!("shard-0000/{junk}"), b"junk");
    }
    assert_eq!(recover(&run.disk).unwrap().notes.len(), 4);
    assert_eq!(recover(&run.disk).unwrap().blocks, run.log);
}

#[test]
fn an_unreadable_file_is_no_empty_one() {
    let mut run = sealed_log();
    for file in run.disk.files() {
        run.disk.set_unreadable(&file, true);
        assert!(matches!(recover(&run.disk), Err(RecoverError::Source(SourceError::Io { .. }))), "{file}");
        run.disk.set_unreadable(&file, false);
    }
}

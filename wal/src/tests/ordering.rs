//! What is written, when, and in which order.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{Block, HardState, LogIndex, Mutant, Mutants, NodeId, Term, Time};

use super::{Run, SHARD, block, config, formatted, hard, recover};
use crate::*;

/// Performs everything, one operation after the other, and lists the files.
fn files_written(run: &mut Run) -> Vec<String> {
    let mut files = vec![];
    while let Some(op) = run.wal.poll_op(run.now) {
        let id = op.id();
        files.push(String::from(op.file().rsplit('/').next().unwrap()));
        run.disk.begin(op);
        run.disk.complete(id).unwrap();
        run.wal.on_done(run.now, id, Ok(Bytes::new())).unwrap();
    }
    files
}

#[test]
fn nothing_is_durable_before_the_new_segment_is() {
    let mut run = Run::start(formatted(), 1);
    run.append(1, 10);
    let op = run.wal.poll_op(run.now).unwrap();
    assert!(matches!(op, DiskOp::Create { .. }));
    assert!(run.wal.poll_op(run.now).is_none(), "neither hard state nor batch while it is created");
    assert!(!run.wal.is_idle());
    assert_eq!(run.wal.durable(), 0);
}

#[test]
fn a_new_term_is_durable_in_both_copies_before_its_blocks_are_submitted() {
    let mut run = Run::fresh();
    run.append(7, 10);
    let files = files_written(&mut run);
    assert_eq!(files, ["HARDSTATE", "HARDSTATE", "wal-0000000000000001"]);
    // The same term and vote again need no write.
    run.append(7, 10);
    assert_eq!(files_written(&mut run), ["wal-0000000000000001"]);
}

#[test]
fn the_mutant_writes_blocks_before_their_term_and_recovery_says_so() {
    let recovered = recover(&formatted()).unwrap();
    let config = WalConfig { mutants: Mutants::only(Mutant::B9), ..config(1) };
    let mut run = Run::start(formatted(), 1);
    run.wal = Wal::open(config, recovered.tail, Time::ZERO);
    run.settle();
    run.append(7, 10);
    run.begin();
    assert!(run.end_one());
    let recovered = run.recovered();
    assert_eq!(recovered.blocks.len(), 1);
    assert_eq!(recovered.hard_state, HardState { term: Term(7), vote: None, commit: LogIndex(0) });
    assert_eq!(recovered.notes, [Note::TermRaised { from: Term(0), to: Term(7) }]);
}

#[test]
fn what_arrives_during_a_flight_becomes_one_batch() {
    let mut run = Run::fresh();
    run.append(1, 10);
    run.settle();
    run.append(1, 10);
    run.begin();
    let used = run.wal.log_bytes();
    for _ in 0..20 {
        run.append(1, 10);
        assert!(run.wal.poll_op(run.now).is_none(), "one flight at a time");
    }
    assert_eq!(run.wal.durable(), 1);
    run.end_one();
    assert_eq!(run.wal.durable(), 2);
    run.settle();
    assert_eq!(run.wal.log_bytes(), used + 2 * PAGE as u64, "two batches of a page");
    assert_eq!(run.wal.durable(), 22);
    assert!(run.wal.is_idle());
    assert_eq!(run.recovered().blocks, run.log);
}

#[test]
fn a_cut_of_the_log_is_never_gathered_behind_blocks() {
    let mut run = Run::fresh();
    run.append(1, 10);
    run.begin();
    run.append(1, 10);
    let used = run.wal.log_bytes();
    let other = block(&run.log[..1], 2, 1, 5);
    run.persist += 1;
    run.wal.append(run.persist, Some(hard(2, 0)), Some(LogIndex(1)), vec![other.clone()], LogIndex(1));
    run.settle();
    assert_eq!(run.wal.durable(), 3);
    assert_eq!(run.wal.log_bytes(), used + 3 * PAGE as u64, "three batches");
    let recovered = run.recovered();
    assert_eq!(recovered.blocks, [run.log[0].clone(), other]);
    assert_eq!((recovered.hard_state.term, recovered.hard_state.vote), (Term(2), None));
}

#[test]
fn an_append_larger_than_a_batch_is_durable_only_as_a_whole() {
    let mut run = Run::fresh();
    let mut blocks: Vec<Block> = vec![];
    for _ in 0..4 {
        blocks.push(block(&blocks, 1, 1, 4000));
    }
    run.wal.append(1, Some(hard(1, 1)), None, blocks.clone(), LogIndex(0));
    for _ in 0..3 {
        run.begin();
        run.end_one();
        assert_eq!(run.wal.durable(), 0);
    }
    run.settle();
    assert_eq!(run.wal.durable(), 1);
    assert_eq!(run.recovered().blocks, blocks);
}

#[test]
fn a_block_larger_than_a_segment_grows_its_file() {
    let mut run = Run::fresh();
    run.append(1, 10);
    run.append(1, 60_000);
    run.append(1, 60_000);
    run.settle();
    let mut again = Run::start(run.disk, 2);
    assert_eq!(again.log, run.log);
    again.append(1, 70_000);
    again.settle();
    assert_eq!(again.recovered().blocks, again.log);
}

#[test]
fn a_persist_of_nothing_is_durable_at_once_but_never_out_of_turn() {
    let mut run = Run::fresh();
    run.wal.append(1, None, None, vec![], LogIndex(0));
    assert_eq!(run.wal.durable(), 1);
    run.persist = 1;
    run.append(1, 10);
    run.begin();
    run.wal.append(3, None, None, vec![], LogIndex(0));
    assert_eq!(run.wal.durable(), 1);
    run.settle();
    assert_eq!(run.wal.durable(), 3);
}

#[test]
fn an_idle_log_seals_its_last_batch_once() {
    let mut run = Run::fresh();
    run.append(1, 10);
    run.settle();
    let used = run.wal.log_bytes();
    assert_eq!(run.wal.next_deadline(), Time::from_millis(10));
    run.pass(9);
    assert_eq!(run.wal.log_bytes(), used);
    run.pass(1);
    assert_eq!(run.wal.log_bytes(), used + PAGE as u64);
    assert_eq!(run.wal.next_deadline(), Time::FAR);
    run.pass(1000);
    assert_eq!(run.wal.log_bytes(), used + PAGE as u64);
    assert_eq!(run.recovered().notes, []);
}

#[test]
fn a_busy_log_needs_no_seal() {
    let mut run = Run::fresh();
    for _ in 0..10 {
        run.append(1, 10);
        run.settle();
        run.pass(9);
    }
    assert_eq!(run.wal.log_bytes(), run.used_by_batches(10));
}

impl Run {
    /// What the log takes up with so many batches of one page, in segments of four.
    fn used_by_batches(&self, batches: u64) -> u64 {
        batches.div_ceil(4) * DATA_START + batches * PAGE as u64
    }
}

#[test]
fn the_spare_is_made_before_it_is_needed_and_old_segments_are_cut_after_a_start() {
    let mut run = Run::fresh();
    for _ in 0..2 {
        run.append(1, 10);
        run.settle();
    }
    assert_eq!(run.disk.files().len(), 2, "hard state and one segment, less than half full");
    run.append(1, 10);
    run.settle();
    assert_eq!(run.disk.files().len(), 3, "a spare beside it");
    let mut run = Run::start(run.disk, 2);
    run.settle();
    let used = DATA_START + 3 * PAGE as u64;
    assert_eq!(run.disk.read(&segment_file(SHARD, 1)).unwrap().len() as u64, used, "three batches, then cut");
    assert_eq!(run.disk.files().len(), 3, "the empty spare was made anew as the segment of this start");
    assert_eq!(run.wal.log_bytes(), used + DATA_START);
}

#[test]
fn the_commit_hint_never_exceeds_what_is_durable_here() {
    let mut run = Run::fresh();
    run.append(1, 10);
    run.settle();
    // The cluster is far ahead of this log.
    let next = block(&run.log, 2, 1, 10);
    let state = HardState { term: Term(2), vote: Some(NodeId(3)), commit: LogIndex(500) };
    run.wal.append(2, Some(state), None, vec![next.clone()], LogIndex(900));
    run.settle();
    run.pass(20);
    let recovered = run.recovered();
    assert_eq!(recovered.blocks.last(), Some(&next));
    assert_eq!(recovered.hard_state, HardState { commit: LogIndex(2), ..state });
}

#[test]
fn a_log_shorter_than_a_commit_index_on_record_is_refused() {
    let mut run = Run::fresh();
    run.append(1, 10);
    run.settle();
    run.wal.append(2, Some(hard(2, 3)), None, vec![], LogIndex(1));
    run.settle();
    let file = segment_file(SHARD, 1);
    run.disk.overwrite(&file, PAGE as u64, &[0; 8 * PAGE]);
    run.disk.overwrite(&file, DATA_START, &[0; PAGE]);
    assert!(matches!(recover(&run.disk), Err(RecoverError::Damaged { offset: DATA_START, .. })));
}

#[test]
#[should_panic(expected = "blocks continue the log")]
fn a_gap_in_the_log_is_a_bug() {
    let mut run = Run::fresh();
    let log = [block(&[], 1, 1, 1)];
    run.wal.append(1, None, None, vec![block(&log, 1, 1, 1)], LogIndex(0));
}

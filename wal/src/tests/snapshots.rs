//! Snapshots written, kept, read back; and the log behind them.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{Block, Edge, LogIndex, SnapshotId, Term};

use super::{Run, SHARD, block, hard, identity};
use crate::snapshots::SnapshotLost;
use crate::*;

/// Chunks that stand for the state after an index: any two differ.
pub(crate) fn chunks_of(edge: &Edge, count: usize) -> Vec<Bytes> {
    (0..count).map(|n| Bytes::from(vec![(edge.index.0 as u8) ^ (n as u8) | 1; 3000 + 2000 * n])).collect()
}

pub(crate) fn edge_of(block: &Block) -> Edge {
    Edge { index: block.last(), term: block.term(), chain: block.chain(), clock_ms: block.clock_ms() }
}

impl Run {
    /// Appends and commits blocks of one command.
    pub(crate) fn grow(&mut self, term: u64, blocks: usize) {
        for _ in 0..blocks {
            let next = block(&self.log, term, 1, 200);
            self.log.push(next.clone());
            self.persist += 1;
            let commit = next.first().prev();
            self.wal.append(self.persist, Some(hard(term, 1)), None, vec![next], commit);
            self.settle();
        }
    }

    /// Hands the wal a whole snapshot at an edge, without performing anything.
    pub(crate) fn hand_snapshot(&mut self, edge: Edge, chunks: usize) -> SnapshotId {
        self.wal.snapshot_begin(edge.index, edge.term, edge.chain, edge.clock_ms);
        for chunk in chunks_of(&edge, chunks) {
            self.wal.snapshot_push(chunk);
        }
        self.wal.snapshot_finish().unwrap()
    }

    /// Writes a snapshot of the end of the log.
    pub(crate) fn snapshot(&mut self) -> SnapshotId {
        let edge = self.log.last().map(edge_of).unwrap();
        let id = self.hand_snapshot(edge, 3);
        self.settle();
        assert_eq!(self.wal.take_snapshot_end(), Some(Ok(id)));
        id
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let short = |f: String| String::from(f.rsplit('/').next().unwrap());
        self.disk.files().into_iter().map(short).collect()
    }
}

/// The bytes of the snapshot that recovery names.
pub(crate) fn state(source: &dyn Source, id: SnapshotId) -> Vec<u8> {
    let mut bytes = vec![];
    read_snapshot(source, &identity(), SHARD, id, |chunk| bytes.extend_from_slice(chunk)).unwrap();
    bytes
}

pub(crate) fn state_of(edge: &Edge) -> Vec<u8> {
    chunks_of(edge, 3).concat()
}

#[test]
fn a_snapshot_is_there_after_a_restart_with_the_log_behind_it() {
    let mut run = Run::fresh();
    run.grow(1, 5);
    let edge = edge_of(run.log.last().unwrap());
    let id = run.snapshot();
    assert_eq!(run.wal.snapshot(), Some(id));
    run.grow(1, 3);
    let recovered = run.recovered();
    assert_eq!((recovered.snapshot, recovered.notes), (Some(id), vec![]));
    assert_eq!((recovered.base, recovered.blocks), (Edge::default(), run.log.clone()));
    assert_eq!(recovered.hard_state.commit, LogIndex(7));
    assert_eq!(state(&run.disk, id), state_of(&edge));
    let again = Run::start(run.disk, 2);
    assert_eq!(again.wal.snapshot(), Some(id));
}

#[test]
fn segments_go_once_two_snapshots_do_without_them() {
    let mut run = Run::fresh();
    let mut ids = vec![];
    for _ in 0..4 {
        run.grow(1, 9);
        ids.push(run.snapshot());
        let before = run.wal.log_bytes();
        run.wal.compact(LogIndex(u64::MAX));
        run.settle();
        assert_eq!(run.wal.log_bytes() < before, ids.len() > 1, "one snapshot alone lets nothing go");
    }
    let names = run.names();
    let kept: Vec<&String> = names.iter().filter(|n| n.starts_with("snap-")).collect();
    assert_eq!(kept, ["snap-0000000000000027", "snap-0000000000000036"]);
    let recovered = run.recovered();
    assert_eq!((recovered.snapshot, recovered.notes), (Some(ids[3]), vec![]));
    let base = recovered.base.index;
    assert!(base > LogIndex(18) && base <= LogIndex(27), "{base}: the log reaches the older snapshot");
    assert_eq!(recovered.blocks, run.log[base.0 as usize..]);
    assert_eq!(recovered.base, edge_of(&run.log[base.0 as usize - 1]));
    // The same again after a restart, and the log goes on.
    let mut again = Run::start(run.disk, 9);
    again.log = run.log;
    again.settle();
    again.grow(2, 9);
    let id = again.snapshot();
    again.wal.compact(LogIndex(u64::MAX));
    again.settle();
    let recovered = again.recovered();
    assert_eq!(recovered.snapshot, Some(id));
    assert!(recovered.base.index > base);
    assert_eq!(recovered.blocks, again.log[recovered.base.index.0 as usize..]);
}

#[test]
fn what_a_slow_follower_needs_stays() {
    let mut run = Run::fresh();
    for _ in 0..3 {
        run.grow(1, 9);
        run.snapshot();
    }
    run.wal.compact(LogIndex(10));
    run.settle();
    assert!(run.names().contains(&"wal-0000000000000003".into()), "{:?}", run.names());
    assert!(!run.names().contains(&"wal-0000000000000001".into()), "{:?}", run.names());
    // Nothing is queued twice, and what was held back goes later.
    run.wal.compact(LogIndex(10));
    run.wal.compact(LogIndex(100));
    run.wal.compact(LogIndex(100));
    run.settle();
    assert!(!run.names().contains(&"wal-0000000000000003".into()), "{:?}", run.names());
    let recovered = run.recovered();
    assert_eq!(recovered.blocks, run.log[recovered.base.index.0 as usize..]);
}

#[test]
fn an_installed_snapshot_replaces_the_log_and_nothing_older_returns() {
    let mut run = Run::fresh();
    run.grow(3, 9);
    run.snapshot();
    run.grow(3, 9);
    // The leader's history is another one.
    let edge = Edge { index: LogIndex(40), term: Term(3), chain: 77, clock_ms: 5 };
    let id = run.hand_snapshot(edge, 3);
    run.settle();
    assert_eq!(run.wal.snapshot(), Some(id));
    run.persist += 1;
    run.wal.install(run.persist, id);
    assert!(run.wal.durable() < run.persist);
    run.settle();
    assert_eq!(run.wal.durable(), run.persist);
    let recovered = run.recovered();
    assert_eq!((recovered.base, recovered.blocks, recovered.snapshot), (edge, vec![], Some(id)));
    assert_eq!((recovered.hard_state.term, recovered.hard_state.commit), (Term(3), LogIndex(40)));
    assert_eq!(recovered.tail.last(), LogIndex(40));
    assert!(!run.names().contains(&"snap-0000000000000009".into()), "{:?}", run.names());
    // It goes on behind.
    let behind = behind(&edge, 3);
    run.persist += 1;
    run.wal.append(run.persist, Some(hard(4, 2)), None, vec![behind.clone()], LogIndex(40));
    run.settle();
    let recovered = run.recovered();
    assert_eq!((recovered.base, recovered.blocks), (edge, vec![behind]));
    // Without that snapshot there is nothing to go back to.
    run.disk.remove(&snapshot_file(SHARD, LogIndex(40)));
    let fault = super::recover(&run.disk).unwrap_err();
    assert!(matches!(fault, RecoverError::Hole { from: LogIndex(1), to: LogIndex(40), .. }), "{fault}");
}

/// A block of one command behind an edge.
pub(crate) fn behind(edge: &Edge, term: u64) -> Block {
    let mut builder = palisade_types::BlockBuilder::new();
    builder.push(|v| v.extend_from_slice(b"behind"));
    let seal = palisade_types::block::Seal {
        shard: SHARD,
        term: Term(term),
        first: edge.index.next(),
        clock_ms: 9,
        prev_chain: edge.chain,
    };
    builder.seal(seal)
}

#[test]
fn a_snapshot_beyond_the_log_restarts_it_behind_and_says_so() {
    for matches in [false, true] {
        let mut run = Run::fresh();
        run.grow(3, 5);
        let edge = Edge { index: LogIndex(6), term: Term(3), chain: 77, clock_ms: 5 };
        let id = run.hand_snapshot(edge, 3);
        run.settle();
        if matches {
            run.grow(3, 0);
        }
        // The process ends before the install.
        let recovered = run.recovered();
        assert_eq!((recovered.base, recovered.blocks.len(), recovered.snapshot), (edge, 0, Some(id)));
        assert_eq!(recovered.notes, [Note::Restarted { snapshot: LogIndex(6), log: LogIndex(5) }]);
        let mut again = Run::start(run.disk, 2);
        again.settle();
        let next = behind(&edge, 3);
        again.wal.append(1, None, None, vec![next.clone()], LogIndex(6));
        again.settle();
        let recovered = again.recovered();
        assert_eq!((recovered.base, recovered.blocks, recovered.notes), (edge, vec![next], vec![]));
    }
}

/// A run in which a snapshot is given up with an operation under way, after so many were done.
fn aborted_after(ops: usize) -> Run {
    let mut run = Run::fresh();
    run.grow(1, 3);
    let edge = edge_of(run.log.last().unwrap());
    run.wal.snapshot_begin(edge.index, edge.term, edge.chain, edge.clock_ms);
    let mut given = chunks_of(&edge, 3).into_iter();
    for _ in 0..ops {
        run.begin();
        run.end_one();
        if run.wal.snapshot_wants_chunk() {
            given.next().into_iter().for_each(|c| run.wal.snapshot_push(c));
        }
    }
    run.begin();
    run.wal.snapshot_abort();
    assert!(!run.wal.is_writing_snapshot() && !run.wal.snapshot_wants_chunk());
    run
}

#[test]
fn an_aborted_snapshot_leaves_nothing_and_another_can_be_written() {
    for ops in 0..6 {
        let mut run = aborted_after(ops);
        run.settle();
        assert!(!run.names().iter().any(|n| n.starts_with("snap-")), "{:?}", run.names());
        assert_eq!((run.wal.take_snapshot_end(), run.wal.snapshot()), (None, None));
        let id = run.snapshot();
        assert_eq!(run.recovered().snapshot, Some(id));
    }
}

/// Found by the simulator: the end of the old one's operation was taken for a step of the new one.
#[test]
fn another_snapshot_can_be_begun_while_an_operation_of_an_aborted_one_is_under_way() {
    for ops in 0..6 {
        let mut run = aborted_after(ops);
        let id = run.snapshot();
        assert_eq!(run.recovered().snapshot, Some(id));
        assert_eq!(run.names().iter().filter(|n| n.starts_with("snap-")).count(), 1);
    }
}

#[test]
fn a_full_disk_gives_the_snapshot_up_and_not_the_log() {
    for room in 0..8 {
        let mut run = Run::fresh();
        run.grow(1, 1);
        let edge = edge_of(run.log.last().unwrap());
        run.disk.set_quota(Some(run.disk.used() + room * PAGE as u64));
        run.hand_snapshot(edge, 3);
        loop {
            run.begin();
            let Some(id) = run.open_ops.pop_front() else { break };
            let result = run.disk.complete(id);
            run.wal.on_done(run.now, id, result).unwrap();
        }
        assert_eq!(run.wal.take_snapshot_end(), Some(Err(SnapshotLost::NoSpace)), "room {room}");
        assert!(!run.names().iter().any(|n| n.starts_with("snap-")), "{:?}", run.names());
        run.grow(1, 1);
        run.disk.set_quota(None);
        let id = run.snapshot();
        assert_eq!(run.recovered().snapshot, Some(id));
    }
}

#[test]
fn chunks_are_read_for_peers_and_checked() {
    let mut run = Run::fresh();
    run.grow(1, 3);
    let edge = edge_of(run.log.last().unwrap());
    let id = run.snapshot();
    for chunk in [2, 0, 3] {
        run.wal.read_chunk(u64::from(chunk) + 10, id, chunk);
    }
    run.settle();
    let chunks = chunks_of(&edge, 3);
    let mut got = vec![];
    while let Some((tag, result)) = run.wal.take_chunk() {
        got.push((tag, result.ok()));
    }
    got.sort_by_key(|g| g.0);
    assert_eq!(got, [(10, Some(chunks[0].clone())), (12, Some(chunks[2].clone())), (13, None)]);
    // Rot, and a disk that cannot read, are told; the log goes on.
    let file = snapshot_file(SHARD, edge.index);
    run.disk.flip(&file, (archive::chunk_offset(1) + 500) * 8);
    for unreadable in [false, true] {
        run.disk.set_unreadable(&file, unreadable);
        run.wal.read_chunk(1, id, 1);
        run.begin();
        let op = run.open_ops.pop_front().unwrap();
        let result = run.disk.complete(op);
        run.wal.on_done(run.now, op, result).unwrap();
        assert!(matches!(run.wal.take_chunk(), Some((1, Err(_)))));
    }
    run.grow(1, 1);
}

#[test]
fn what_reads_back_otherwise_is_no_snapshot_and_lets_nothing_go() {
    let mut run = Run::fresh();
    for _ in 0..2 {
        run.grow(1, 9);
        run.snapshot();
    }
    run.grow(1, 9);
    let before = run.wal.snapshot();
    run.hand_snapshot(edge_of(run.log.last().unwrap()), 3);
    let file = snapshot_file(SHARD, LogIndex(27));
    while !run.disk.files().contains(&file) {
        run.begin();
        run.end_one();
    }
    run.disk.flip(&file, (archive::chunk_offset(2) + 100) * 8);
    run.settle();
    assert!(matches!(run.wal.take_snapshot_end(), Some(Err(SnapshotLost::Unverified(_)))));
    assert_eq!(run.wal.snapshot(), before);
    assert!(run.names().contains(&"snap-0000000000000009".into()) && !run.disk.files().contains(&file));
    run.snapshot();
}

#[test]
fn a_snapshot_waits_for_what_was_accepted_before_it_was_whole() {
    let mut run = Run::fresh();
    run.grow(1, 3);
    let next = block(&run.log, 2, 1, 10);
    run.log.push(next.clone());
    run.persist += 1;
    run.wal.append(run.persist, Some(hard(2, 1)), None, vec![next.clone()], LogIndex(3));
    run.hand_snapshot(edge_of(&next), 1);
    run.begin();
    // The hard state's first copy is under way; everything of the snapshot goes on without it.
    let first = run.open_ops.pop_front().unwrap();
    while run.end_one() {
        run.begin();
    }
    assert!(!run.disk.files().iter().any(|f| *f == snapshot_file(SHARD, LogIndex(4))));
    run.open_ops.push_back(first);
    run.settle();
    assert!(run.disk.files().iter().any(|f| *f == snapshot_file(SHARD, LogIndex(4))));
}

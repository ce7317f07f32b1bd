//! Snapshots as the log's caller sees them, and what they let go of the log.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{Edge, LogIndex, SnapshotId, Term};

use super::{Accepted, Job, Queued, Wal, draw_salt};
use crate::archive::Place;
use crate::op::{DiskOp, DiskResult, OpId};
use crate::scan::Begin;
use crate::segment::segment_file;
use crate::snapshots::{LogEnd, Removal, SnapshotLost};

impl Wal {
    /// Begins to write a snapshot, one's own or a leader's, of the state after `last`, the end of a
    /// block of this term, chain hash and clock. Its chunks follow by [`Wal::snapshot_push`].
    ///
    /// # Panics
    /// While another is being written, and on one that is not newer than [`Wal::snapshot`].
    pub fn snapshot_begin(&mut self, last: LogIndex, term: Term, chain: u128, clock_ms: u64) {
        let salt = draw_salt(&mut self.salts, last.0, self.seq);
        self.snapshots.begin(Edge { index: last, term, chain, clock_ms }, salt);
    }

    /// Whether there is room for another chunk. Never more than a few wait for the disk.
    pub fn snapshot_wants_chunk(&self) -> bool {
        self.snapshots.wants_chunk()
    }

    /// Takes the next chunk. Those of a snapshot that was given up are dropped: see
    /// [`Wal::take_snapshot_end`].
    ///
    /// # Panics
    /// On an empty chunk or one above [`palisade_types::SNAPSHOT_CHUNK_MAX`], or after
    /// [`Wal::snapshot_finish`].
    pub fn snapshot_push(&mut self, chunk: Bytes) {
        self.snapshots.push(chunk);
    }

    /// All chunks are in. Returns the name that they add up to, or `None` if the snapshot was given up
    /// meanwhile. A leader's that has another name is to be aborted: it is not what was sent.
    ///
    /// The snapshot is durable under its name only after all that was accepted until now is.
    ///
    /// # Panics
    /// On a snapshot without a chunk.
    pub fn snapshot_finish(&mut self) -> Option<SnapshotId> {
        self.snapshots.finish(self.accepted.persist)
    }

    /// Gives up the snapshot being written; what is on the disk of it is removed. Without effect once
    /// it is being given its name: it is then a snapshot like any other.
    pub fn snapshot_abort(&mut self) {
        self.snapshots.abort();
    }

    /// A snapshot is being written: until it is durable and checked, or given up.
    pub fn is_writing_snapshot(&self) -> bool {
        self.snapshots.is_writing()
    }

    /// How the last snapshot ended, once: durable and read again, or lost. Nothing after an abort.
    pub fn take_snapshot_end(&mut self) -> Option<Result<SnapshotId, SnapshotLost>> {
        self.snapshots.take_end()
    }

    /// The newest durable snapshot: synced, its name as well, and read again.
    pub fn snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.newest()
    }

    /// Lets whole segments go whose batches all end at or before `keep_after`: never what the newest
    /// snapshot needs, nor what the one before it would need should the newest rot. In the background,
    /// the oldest first.
    pub fn compact(&mut self, keep_after: LogIndex) {
        let floor = self.snapshots.floor();
        let below = |b: &Begin| b.segment <= floor && b.edge.is_some_and(|e| e.index <= keep_after);
        let Some(first) = self.begins.iter().rev().find(|b| below(b)).map(|b| b.segment) else { return };
        let queued = |number| {
            self.snapshots.removals.iter().any(|r| matches!(r, Removal::Segment(n, _) if *n == number))
        };
        let under_way = |number| matches!(&self.background, Some((_, Job::Remove(Removal::Segment(n, _)))) if *n == number);
        let go: Vec<u64> = self
            .begins
            .iter()
            .map(|b| b.segment)
            .take_while(|n| *n < first)
            .filter(|n| !queued(*n) && !under_way(*n))
            .collect();
        for number in go {
            let file = segment_file(self.config.shard, number);
            self.snapshots.removals.push_back(Removal::Segment(number, file));
        }
    }

    /// A leader's snapshot, durable here, replaces the log: all of it goes, and it goes on behind the
    /// snapshot's end. Ordered with the persists; [`Wal::durable`] reaches `persist` when it is so. Not for
    /// a log that has that edge: it holds what follows, and nothing need be written.
    ///
    /// # Panics
    /// Unless the snapshot is [`Wal::snapshot`], and on a persist number that does not rise.
    pub fn install(&mut self, persist: u64, id: SnapshotId) {
        assert!(self.snapshot() == Some(id), "a snapshot is used once it is durable and checked");
        assert!(persist > self.accepted.persist, "persist numbers rise");
        let edge = id.edge();
        self.accepted = Accepted { persist, last: edge.index, chain: Some(edge.chain), term: edge.term };
        self.committed = self.committed.max(edge.index);
        self.queue.push_back(Queued {
            persist,
            hard_state: None,
            truncate_after: None,
            restart: Some(edge),
            blocks: VecDeque::new(),
            commit_hint: LogIndex(0),
        });
    }

    /// Wants a chunk of a snapshot for a peer. It comes by [`Wal::take_chunk`] under the same tag.
    pub fn read_chunk(&mut self, tag: u64, id: SnapshotId, chunk: u32) {
        self.snapshots.read_chunk(tag, id, chunk);
    }

    /// The next chunk that was read and checked, or why it could not be: then the snapshot is not to be
    /// sent any more.
    pub fn take_chunk(&mut self) -> Option<(u64, DiskResult)> {
        self.snapshots.take_chunk()
    }

    pub(super) fn snapshot_op(&mut self) -> Option<DiskOp> {
        if !self.is_open() {
            return None;
        }
        let Wal { snapshots, next_op, begins, committed, durable, seq, .. } = self;
        let mut op_id = || {
            *next_op += 1;
            OpId(*next_op)
        };
        let place = |edge: Edge| place_before(begins, edge.index.min(*committed));
        let end = LogEnd { durable: *durable, seq: *seq };
        snapshots.poll(end, place, &mut op_id).or_else(|| snapshots.poll_read(&mut op_id))
    }

    pub(super) fn removed(&mut self, removal: &Removal) {
        match removal {
            Removal::Snapshot(file) => self.snapshots.removed(file),
            Removal::Segment(number, _) => self.begins.retain(|b| b.segment != *number),
        }
    }
}

/// The last segment that begins at or before an index that no cut goes below.
fn place_before(begins: &VecDeque<Begin>, index: LogIndex) -> Place {
    let fits = |b: &&Begin| b.edge.is_some_and(|e| e.index <= index);
    let place = |b: &Begin| b.edge.map(|edge| Place { segment: b.segment, seq: b.seq, chain: b.chain, edge });
    let found = begins.iter().rev().find(fits).and_then(place);
    found.expect("a log begins at or before what is committed")
}

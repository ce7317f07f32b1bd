//! Snapshots of the shard: when one is taken, how it gets onto the disk in slices between requests, how
//! a leader's is received, checked and put in the place of the state.
//!
//! The log on disk says how a snapshot is written, the machine what is in it, Raft what it means for
//! the log and when which chunk is sent. Here is what joins them:
//!
//! - Own snapshots are taken at *marks*: the ends of blocks at which the bytes of blocks since the last
//!   mark reach a configured number. All nodes count alike from any mark on, so they take theirs at
//!   the same places; who cannot take one at a mark takes the next.
//! - A leader's snapshot goes before an own one. Its chunks are written and read into a new state side
//!   by side; that is complete and right before the file gets its name.
//! - Then Raft adopts it, and the state is exchanged in the order in which blocks are applied.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};

use bytes::Bytes;
use palisade_machine::{Machine, Restore, SnapshotFault};
use palisade_raft::{ChunkReceived, ChunkWanted};
use palisade_types::{Block, Edge, LogIndex, Mutant, SnapshotId, Time};
use palisade_wal::{Identity, RecoverError, Source, read_snapshot};

use crate::action::{Actions, Note};
use crate::config::ShardConfig;
use crate::shard::Shard;

/// Why no state could be made of a snapshot on the own disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Its file cannot be read.
    #[error(transparent)]
    Disk(#[from] RecoverError),
    /// What is in it makes no state, or this build does not know its format.
    #[error("the snapshot at {last} cannot be used: {fault}")]
    State {
        /// Of the state after this index.
        last: LogIndex,
        /// What is wrong with it.
        fault: SnapshotFault,
    },
    /// It holds the state of another index.
    #[error("the snapshot at {last} holds the state of {found}")]
    Other {
        /// The index it is named after.
        last: LogIndex,
        /// That of its state.
        found: LogIndex,
    },
}

/// The state that a snapshot holds which recovery has named: what [`Shard::new`] starts from.
///
/// # Errors
/// [`StateError`]; the node must not start.
pub fn read_state(
    source: &dyn Source,
    identity: &Identity,
    config: &ShardConfig,
    id: SnapshotId,
) -> Result<Machine, StateError> {
    let mut restore = Restore::new(config.limits, config.shard, config.hash_seed, config.mutants);
    let last = id.last;
    let mut read = Ok(());
    read_snapshot(source, identity, config.shard, id, |chunk| {
        if read.is_ok() {
            read = restore.push(chunk);
        }
    })?;
    let machine = read.and_then(|()| restore.finish()).map_err(|fault| StateError::State { last, fault })?;
    match machine.applied() == last {
        true => Ok(machine),
        false => Err(StateError::Other { last, found: machine.applied() }),
    }
}

/// A leader's snapshot on its way here.
struct Receiving {
    id: SnapshotId,
    /// Arrived, not yet written.
    queue: VecDeque<Bytes>,
    /// Its file was begun.
    begun: bool,
    /// Chunks handed to the disk.
    written: u32,
    restore: Option<Restore>,
}

/// A state made of a leader's snapshot, whose file is being finished, or is.
struct Ready {
    id: SnapshotId,
    machine: Machine,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Bytes of blocks applied since the last mark.
    since: u64,
    /// One is to be taken at the next edge, mark or not.
    overdue: bool,
    /// The index of an own snapshot whose chunks are not all made.
    taking: Option<LogIndex>,
    receiving: Option<Receiving>,
    ready: Option<Ready>,
    /// Chunks that are being read for other nodes.
    reads: BTreeMap<u64, ChunkWanted>,
    last_read: u64,
}

impl Shard {
    /// Counts a block that was applied, and begins a snapshot at a mark. `before` is the edge before it.
    pub(crate) fn mark_block(&mut self, now: Time, block: &Block, before: Edge) {
        self.snapshots.since += block.bytes().len() as u64;
        let is_mark = self.snapshots.since >= self.config.snapshot_bytes;
        if is_mark {
            self.snapshots.since = 0;
        }
        if (is_mark || self.snapshots.overdue) && self.may_take_snapshot() {
            let label = if self.config.mutants.has(Mutant::B25) { before } else { block.edge() };
            self.begin_snapshot(now, label);
        }
    }

    /// One at a time, and none that a transfer under way would have to begin anew for.
    fn may_take_snapshot(&self) -> bool {
        let is_held =
            self.raft.is_sending_snapshot() && self.wal.log_bytes() < self.config.snapshot_hold_bytes;
        let is_busy = self.machine.is_frozen() || self.wal.is_writing_snapshot();
        !is_held && !is_busy && self.snapshots.receiving.is_none() && self.snapshots.ready.is_none()
    }

    fn begin_snapshot(&mut self, now: Time, edge: Edge) {
        if self.wal.snapshot().is_some_and(|newest| newest.last >= edge.index) || edge.index.0 == 0 {
            return;
        }
        self.snapshots.overdue = false;
        self.machine.freeze();
        self.wal.snapshot_begin(edge.index, edge.term, edge.chain, edge.clock_ms);
        self.snapshots.taking = Some(edge.index);
        if self.config.mutants.has(Mutant::S3) {
            let Edge { index: last, term, chain, clock_ms } = edge;
            let id = SnapshotId { last, term, chain, clock_ms, bytes: 1, chunks: 1, digest: 0 };
            self.raft.on_snapshot_durable(now, id);
        }
    }

    /// Whether a turn would move a snapshot on.
    pub(crate) fn has_slices(&self) -> bool {
        let s = &self.snapshots;
        let takes =
            s.taking.is_some() || s.receiving.as_ref().is_some_and(|r| r.begun && !r.queue.is_empty());
        let waits = s.receiving.as_ref().is_some_and(|r| !r.begun && !r.queue.is_empty());
        (takes && self.wal.snapshot_wants_chunk()) || (waits && !self.wal.is_writing_snapshot())
    }

    /// Moves a snapshot on by as many chunks as a turn may.
    pub(crate) fn take_slices(&mut self, now: Time, out: &mut Actions) {
        for _ in 0..self.config.snapshot_slices {
            if !self.has_slices() {
                break;
            }
            match self.snapshots.taking {
                Some(last) => self.take_slice(last),
                None => self.receive_slice(now, out),
            }
        }
        while let Some(op) = self.wal.poll_op(now) {
            out.disk.push(op);
        }
    }

    fn take_slice(&mut self, last: LogIndex) {
        self.counters.snapshot_slices += 1;
        match self.machine.next_chunk() {
            Some(chunk) => self.wal.snapshot_push(chunk.into()),
            None => {
                self.snapshots.taking = None;
                let name = self.wal.snapshot_finish();
                assert!(name.is_none_or(|id| id.last == last), "the snapshot that was begun is finished");
            }
        }
    }

    /// What disk and Raft have to say about snapshots. Whether anything moved.
    pub(crate) fn tend_snapshots(&mut self, now: Time, out: &mut Actions) -> bool {
        let mut moved = false;
        while let Some((tag, result)) = self.wal.take_chunk() {
            moved = true;
            let Some(want) = self.snapshots.reads.remove(&tag) else { continue };
            match result {
                Ok(data) => {
                    self.counters.snapshot_chunks_sent += 1;
                    self.raft.on_chunk_read(now, want.to, want.id, want.chunk, data);
                }
                // One that was replaced meanwhile is no loss.
                Err(fault) if self.wal.snapshot() == Some(want.id) => {
                    self.raft.on_snapshot_lost(want.id);
                    self.snapshots.overdue = true;
                    out.notes.push(Note::SnapshotUnreadable { last: want.id.last, fault });
                }
                Err(_) => {}
            }
        }
        if let Some(end) = self.wal.take_snapshot_end() {
            moved = true;
            match end {
                Ok(id) => self.snapshot_durable(now, id, out),
                Err(lost) => self.give_up_snapshot(lost.to_string(), out),
            }
        }
        self.drop_outrun();
        moved
    }

    /// A snapshot is written, named and was read again.
    fn snapshot_durable(&mut self, now: Time, id: SnapshotId, out: &mut Actions) {
        match &self.snapshots.ready {
            Some(ready) if ready.id == id => self.raft.on_snapshot_complete(now, id),
            // A leader's that was outrun by another one of its after it had got its name.
            _ if id.last > self.applied => {}
            _ => {
                self.counters.snapshots_taken += 1;
                out.notes.push(Note::SnapshotTaken(id));
                self.raft.on_snapshot_durable(now, id);
            }
        }
        self.compact_log();
    }

    /// The log on disk need not reach further back than that in memory, which is kept for those who are
    /// a little behind.
    pub(crate) fn compact_log(&mut self) {
        self.wal.compact(self.raft.base().index.min(self.raft.durable()));
    }

    /// What was being written came to nothing.
    fn give_up_snapshot(&mut self, why: String, out: &mut Actions) {
        let received = self.snapshots.receiving.take().map(|r| r.id);
        let received = received.or(self.snapshots.ready.take().map(|r| r.id));
        let taking = self.snapshots.taking.take();
        if taking.is_some() && self.machine.is_frozen() {
            self.machine.thaw();
        }
        if let Some(id) = received {
            self.raft.on_snapshot_failed(id);
        }
        let last = received.map(|id| id.last).or(taking).unwrap_or(self.applied);
        out.notes.push(Note::SnapshotGivenUp { last, why });
    }

    /// Reads chunks for other nodes.
    pub(crate) fn read_chunks(&mut self, wanted: alloc::vec::Vec<ChunkWanted>) {
        for want in wanted {
            self.snapshots.last_read += 1;
            let tag = self.snapshots.last_read;
            self.snapshots.reads.insert(tag, want);
            self.wal.read_chunk(tag, want.id, want.chunk);
        }
    }

    /// Chunks of a leader's snapshot arrived.
    pub(crate) fn receive_chunks(&mut self, received: alloc::vec::Vec<ChunkReceived>) {
        for ChunkReceived { id, chunk, data } in received {
            if chunk == 0 {
                self.begin_receiving(id);
            }
            let receiving = self.snapshots.receiving.as_mut().filter(|r| r.id == id);
            if let Some(receiving) = receiving {
                receiving.queue.push_back(data);
            }
        }
    }

    fn begin_receiving(&mut self, id: SnapshotId) {
        self.abandon();
        self.snapshots.ready = None;
        let config = &self.config;
        let restore = Restore::new(config.limits, config.shard, config.hash_seed, config.mutants);
        let queue = VecDeque::new();
        self.snapshots.receiving =
            Some(Receiving { id, queue, begun: false, written: 0, restore: Some(restore) });
    }

    /// Gives up whatever is being written, unless it has its name already.
    fn abandon(&mut self) {
        if self.snapshots.taking.take().is_some() && self.machine.is_frozen() {
            self.machine.thaw();
        }
        self.snapshots.receiving = None;
        self.wal.snapshot_abort();
    }

    /// Raft no longer waits for the snapshot that is being received: the log has come to hold it.
    fn drop_outrun(&mut self) {
        let waits = self.raft.receiving();
        if self.snapshots.receiving.as_ref().is_some_and(|r| waits != Some(r.id)) {
            self.abandon();
        }
        let is_of_use = |r: &Ready| waits == Some(r.id) || self.raft.has_install();
        if self.snapshots.ready.as_ref().is_some_and(|r| !is_of_use(r)) {
            self.snapshots.ready = None;
            // If it has its name by now, it is one like its own.
            self.wal.snapshot_abort();
        }
    }

    fn receive_slice(&mut self, now: Time, out: &mut Actions) {
        self.counters.snapshot_slices += 1;
        let Some(receiving) = &mut self.snapshots.receiving else { return };
        let id = receiving.id;
        if !receiving.begun {
            receiving.begun = true;
            if self.wal.snapshot().is_some_and(|newest| newest.last >= id.last) {
                return self.refuse_received("a newer one is here".to_string(), out);
            }
            self.wal.snapshot_begin(id.last, id.term, id.chain, id.clock_ms);
            return;
        }
        let Some(chunk) = receiving.queue.pop_front() else { return };
        let read = receiving.restore.as_mut().map_or(Ok(()), |restore| restore.push(&chunk));
        if let Err(fault) = read {
            return self.refuse_received(fault.to_string(), out);
        }
        receiving.written += 1;
        let written = receiving.written;
        self.wal.snapshot_push(chunk);
        self.raft.on_chunks_written(now, id, written);
        if written == id.chunks {
            self.finish_received(out);
        }
    }

    /// All chunks are in. They make a state and are those that the leader named, or nothing comes of it.
    fn finish_received(&mut self, out: &mut Actions) {
        let Some(mut receiving) = self.snapshots.receiving.take() else { return };
        let id = receiving.id;
        let Some(restore) = receiving.restore.take() else { return };
        self.snapshots.receiving = Some(receiving);
        let machine = match restore.finish() {
            Ok(machine) => machine,
            Err(fault) => return self.refuse_received(fault.to_string(), out),
        };
        if machine.applied() != id.last {
            let what =
                alloc::format!("its state is that after {}, it is named {}", machine.applied(), id.last);
            return self.refuse_received(what, out);
        }
        match self.wal.snapshot_finish() {
            Some(name) if name == id => {
                self.snapshots.receiving = None;
                self.snapshots.ready = Some(Ready { id, machine });
            }
            Some(_) => self.refuse_received("its chunks are not those it is named after".to_string(), out),
            None => self.refuse_received("the disk gave it up".to_string(), out),
        }
    }

    fn refuse_received(&mut self, why: String, out: &mut Actions) {
        self.wal.snapshot_abort();
        self.give_up_snapshot(why, out);
    }

    /// The snapshot takes the place of the state. What was known of the old one is void: clocks and
    /// attachments are a leader's, watchers are told that they missed something.
    pub(crate) fn install_snapshot(&mut self, now: Time, id: SnapshotId, out: &mut Actions) {
        assert!(self.leading.is_none(), "a leader has what is committed");
        assert!(id.last > self.applied, "a state never goes back");
        let ready = self.snapshots.ready.take().filter(|ready| ready.id == id);
        let ready = ready.expect("a snapshot is adopted once a state was made of it");
        self.machine = ready.machine;
        (self.applied, self.applied_chain) = (id.last, id.chain);
        self.applied_term = id.term;
        self.clock.observe(now, id.clock_ms);
        self.watches.begin_behind(id.last);
        self.snapshots.since = 0;
        self.counters.snapshots_installed += 1;
        out.notes.push(Note::SnapshotInstalled(id));
    }
}

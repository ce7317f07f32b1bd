//! The snapshots of one shard while its log runs: one that is being written, those that are kept, and
//! reads of their chunks for peers.
//!
//! Everything here is background work: one operation at a time for the snapshot being written and one
//! for reads. The order is what makes it safe: chunks and header synced under the temporary name,
//! renamed, read again and checked; only then is the snapshot one, and only then may what it replaces
//! be removed.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::snapshot::{Edge, SNAPSHOT_CHUNK_MAX, SnapshotId};
use palisade_types::{Mutant, Mutants};

use crate::archive::{
    Place, SLOT, SnapshotHeader, Sum, chunk_buffers, chunk_offset, open_chunk, read_header, snapshot_file,
    temporary_file, unfinished,
};
use crate::op::{DiskFault, DiskOp, DiskResult, OpId, Part};
use crate::page::{Owner, PAGE};

/// The most bytes of one write.
const WRITE_MAX: usize = 256 << 10;
/// Chunks taken ahead of the disk.
const QUEUE_MAX: usize = 4;
/// How many snapshots are kept: the newest, and one in case that rots. The log reaches back to the older.
pub(crate) const KEPT: usize = 2;
/// Linux's numbers for a file that does not exist and for one that cannot be read.
const ENOENT: i32 = 2;
const EIO: i32 = 5;

/// Why a snapshot that was begun came to nothing. What was written of it is removed; the log goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotLost {
    /// The disk is full.
    #[error("no space for the snapshot; it is tried again with the next")]
    NoSpace,
    /// What was written reads back as something else.
    #[error("the snapshot was written, but what is read back differs: {0}")]
    Unverified(String),
}

/// What a file is removed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// A snapshot that is not needed, or what is left of one.
    Snapshot(String),
    /// A segment below all that is needed.
    Segment(u64, String),
}

/// What a snapshot is named after and where the log stands, for its header.
#[derive(Clone, Copy)]
pub(crate) struct LogEnd {
    /// The highest durable persist number and batch.
    pub(crate) durable: u64,
    pub(crate) seq: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    Create,
    Chunks,
    Header,
    Rename,
    CheckHeader,
    CheckChunk,
}

struct Writing {
    edge: Edge,
    salt: u128,
    temporary: String,
    step: Step,
    queue: VecDeque<(u32, Bytes)>,
    pushed: Sum,
    /// Set when all chunks are in: the name, and the persist number that must be durable first.
    finish: Option<(SnapshotId, u64)>,
    header: Option<SnapshotHeader>,
    checked: Sum,
}

/// A wanted chunk: for whom, and where it is.
struct Wanted {
    tag: u64,
    header: SnapshotHeader,
    chunk: u32,
}

/// See the module.
pub(crate) struct Snapshots {
    owner: Owner,
    mutants: Mutants,
    /// Whole and durable, by rising index.
    kept: Vec<SnapshotHeader>,
    /// The log was replaced: what is older than the oldest kept is of no use.
    replaced: bool,
    /// Rotten ones, to be removed with the next that is whole.
    stale: Vec<String>,
    writing: Option<Writing>,
    op: Option<OpId>,
    /// That operation is of a snapshot that was given up while it was under way: its end is no step of the next.
    op_is_orphan: bool,
    /// What is left of one that was given up; whether its removal has begun.
    scrap: Option<(String, bool)>,
    pub(crate) removals: VecDeque<Removal>,
    ended: Option<Result<SnapshotId, SnapshotLost>>,
    wanted: VecDeque<Wanted>,
    reading: Option<(OpId, Wanted)>,
    read: VecDeque<(u64, DiskResult)>,
}

impl Snapshots {
    pub(crate) fn new(
        owner: Owner,
        mutants: Mutants,
        kept: Vec<SnapshotHeader>,
        stale: Vec<String>,
        removals: VecDeque<Removal>,
    ) -> Snapshots {
        Snapshots {
            owner,
            mutants,
            kept,
            replaced: false,
            stale,
            writing: None,
            op: None,
            op_is_orphan: false,
            scrap: None,
            removals,
            ended: None,
            wanted: VecDeque::new(),
            reading: None,
            read: VecDeque::new(),
        }
    }

    pub(crate) fn newest(&self) -> Option<SnapshotId> {
        self.kept.last().map(|h| h.id)
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    pub(crate) fn take_end(&mut self) -> Option<Result<SnapshotId, SnapshotLost>> {
        self.ended.take()
    }

    /// No segment from this one on is removed: the older of the kept snapshots needs it.
    pub(crate) fn floor(&self) -> u64 {
        let needed = match self.kept.as_slice() {
            [.., before, _] => before.place.segment,
            [only] if self.replaced => only.place.segment,
            _ => Place::START.segment,
        };
        match self.kept.last() {
            // The bug to be found: what goes before the newest is durable is what it replaces.
            Some(newest) if self.mutants.has(Mutant::C10) => newest.place.segment,
            _ => needed,
        }
    }

    pub(crate) fn begin(&mut self, edge: Edge, salt: u128) {
        assert!(self.writing.is_none(), "one snapshot is written at a time");
        assert!(self.newest().is_none_or(|n| n.last < edge.index), "a snapshot is newer than the last");
        self.ended = None;
        self.writing = Some(Writing {
            edge,
            salt,
            temporary: temporary_file(self.owner.shard, edge.index, salt),
            step: Step::Create,
            queue: VecDeque::new(),
            pushed: Sum::default(),
            finish: None,
            header: None,
            checked: Sum::default(),
        });
    }

    pub(crate) fn wants_chunk(&self) -> bool {
        self.writing.as_ref().is_some_and(|w| w.finish.is_none() && w.queue.len() < QUEUE_MAX)
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        // One that was given up for lack of space takes its chunks in silence.
        let Some(writing) = &mut self.writing else { return };
        assert!(writing.finish.is_none(), "chunks come before the end");
        assert!(!chunk.is_empty() && chunk.len() <= SNAPSHOT_CHUNK_MAX, "a chunk has a size");
        writing.queue.push_back((writing.pushed.chunks, chunk.clone()));
        writing.pushed.add(&chunk);
    }

    /// All chunks are in. The header is written once persist `after` is durable.
    pub(crate) fn finish(&mut self, after: u64) -> Option<SnapshotId> {
        let writing = self.writing.as_mut()?;
        assert!(writing.pushed.chunks > 0, "a snapshot has a chunk");
        let id = writing.pushed.id(writing.edge);
        writing.finish = Some((id, after));
        Some(id)
    }

    /// Gives up what is being written, unless it has its name already.
    pub(crate) fn abort(&mut self) {
        let named = |w: &Writing| w.step > Step::Rename || (w.step == Step::Rename && self.op.is_some());
        if self.writing.as_ref().is_some_and(|w| !named(w)) {
            self.give_up();
        }
    }

    /// The file of what was being written goes as soon as nothing works on it.
    fn give_up(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        self.op_is_orphan = self.op.is_some();
        if writing.step > Step::Rename {
            self.scrap = Some((snapshot_file(self.owner.shard, writing.edge.index), false));
        } else if writing.step > Step::Create || self.op.is_some() {
            self.scrap = Some((writing.temporary, false));
        }
    }

    /// The log begins behind a snapshot that replaced another log: nothing older is of use.
    pub(crate) fn log_restarted(&mut self) {
        self.replaced = true;
    }

    /// The log was replaced by this snapshot: no older one, and nothing it needs, is of use again.
    pub(crate) fn replaced_by(&mut self, edge: Edge) {
        let shard = self.owner.shard;
        self.replaced = true;
        for old in self.kept.extract_if(.., |k| k.id.last < edge.index) {
            self.removals.push_back(Removal::Snapshot(snapshot_file(shard, old.id.last)));
        }
    }

    /// What is to be removed next; a file being worked on waits.
    pub(crate) fn next_removal(&mut self) -> Option<Removal> {
        if self.op.is_none()
            && let Some((file, begun)) = &mut self.scrap
            && !*begun
        {
            *begun = true;
            return Some(Removal::Snapshot(file.clone()));
        }
        self.removals.pop_front()
    }

    /// A file is gone.
    pub(crate) fn removed(&mut self, file: &str) {
        self.scrap.take_if(|(scrap, _)| scrap == file);
    }

    /// The next step of the snapshot being written. `place` says where the log can be begun with it.
    pub(crate) fn poll(
        &mut self,
        end: LogEnd,
        place: impl FnOnce(Edge) -> Place,
        op_id: impl FnOnce() -> OpId,
    ) -> Option<DiskOp> {
        if self.op.is_some() || self.scrap.is_some() {
            return None;
        }
        let owner = self.owner;
        let w = self.writing.as_mut()?;
        let to = snapshot_file(owner.shard, w.edge.index);
        if w.step == Step::Chunks && w.queue.is_empty() {
            let (id, after) = w.finish?;
            if end.durable < after {
                return None;
            }
            w.header = Some(SnapshotHeader { id, salt: w.salt, place: place(w.edge), durable_upto: end.seq });
            w.step = Step::Header;
        }
        let id = op_id();
        self.op = Some(id);
        Some(match w.step {
            Step::Create => {
                let header = Bytes::from(unfinished(&owner, w.edge.index));
                DiskOp::Create { id, file: w.temporary.clone(), size: PAGE as u64, header, ahead: false }
            }
            Step::Chunks => DiskOp::Write { id, file: w.temporary.clone(), parts: w.next_parts(&owner) },
            Step::Header => {
                let page = w.header.as_ref().map(|h| h.encode(&owner)).expect("the header was made");
                DiskOp::Write { id, file: w.temporary.clone(), parts: vec![(0, vec![Bytes::from(page)])] }
            }
            Step::Rename => DiskOp::Rename { id, file: w.temporary.clone(), to },
            Step::CheckHeader => DiskOp::Read { id, file: to, offset: 0, len: PAGE },
            Step::CheckChunk => {
                DiskOp::Read { id, file: to, offset: chunk_offset(w.checked.chunks), len: SLOT }
            }
        })
    }

    /// Whether the operation is one of these; then its end is taken in.
    ///
    /// # Errors
    /// The fault of a write that leaves it unknown what the disk holds.
    pub(crate) fn on_done(&mut self, id: OpId, result: &DiskResult) -> Result<bool, DiskFault> {
        if let Some((_, wanted)) = self.reading.take_if(|(op, _)| *op == id) {
            self.chunk_read(wanted, result.clone());
            return Ok(true);
        }
        if self.op != Some(id) {
            return Ok(false);
        }
        self.op = None;
        if core::mem::take(&mut self.op_is_orphan) {
            // Its file is removed next.
            return Ok(true);
        }
        let Some(w) = &mut self.writing else { return Ok(true) };
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(DiskFault::NoSpace { .. }) if w.step <= Step::Rename => {
                // The create may have left a file.
                w.step = w.step.max(Step::Chunks);
                self.give_up();
                self.ended = Some(Err(SnapshotLost::NoSpace));
                return Ok(true);
            }
            Err(fault) if w.step > Step::Rename => {
                self.unverified(alloc::format!("{fault}"));
                return Ok(true);
            }
            Err(fault) => return Err(fault.clone()),
        };
        self.step_done(bytes);
        Ok(true)
    }

    fn step_done(&mut self, bytes: &Bytes) {
        let owner = self.owner;
        let early = self.mutants.has(Mutant::C10);
        let Some(w) = &mut self.writing else { return };
        match w.step {
            Step::Create => w.step = Step::Chunks,
            Step::Chunks => {}
            Step::Header => {
                w.step = Step::Rename;
                if early {
                    self.keep();
                }
            }
            Step::Rename => w.step = Step::CheckHeader,
            Step::CheckHeader => {
                let file = snapshot_file(owner.shard, w.edge.index);
                let read = read_header(&file, bytes, &owner).ok().flatten();
                if read == w.header {
                    w.step = Step::CheckChunk;
                } else {
                    self.unverified("its header".into());
                }
            }
            Step::CheckChunk => {
                let number = w.checked.chunks;
                let Some(chunk) = open_chunk(bytes, &owner, w.salt, number) else {
                    self.unverified(alloc::format!("chunk {number}"));
                    return;
                };
                w.checked.add(chunk);
                if w.checked.chunks < w.pushed.chunks {
                    return;
                }
                let id = w.checked.id(w.edge);
                if w.header.is_none_or(|h| h.id != id) {
                    self.unverified("its digest".into());
                    return;
                }
                if !early {
                    self.keep();
                }
                self.writing = None;
                self.ended = Some(Ok(id));
            }
        }
    }

    fn unverified(&mut self, what: String) {
        self.give_up();
        self.ended = Some(Err(SnapshotLost::Unverified(what)));
    }

    /// The snapshot is whole, durable under its name and was read again: what it replaces may go.
    fn keep(&mut self) {
        let Some(header) = self.writing.as_ref().and_then(|w| w.header) else { return };
        let shard = self.owner.shard;
        let file = snapshot_file(shard, header.id.last);
        self.kept.push(header);
        let surplus = self.kept.len().saturating_sub(if self.mutants.has(Mutant::C10) { 1 } else { KEPT });
        for old in self.kept.drain(..surplus) {
            self.removals.push_back(Removal::Snapshot(snapshot_file(shard, old.id.last)));
        }
        let stale = core::mem::take(&mut self.stale);
        self.removals.extend(stale.into_iter().filter(|s| *s != file).map(Removal::Snapshot));
    }

    /// Queues the read of a chunk for a peer.
    pub(crate) fn read_chunk(&mut self, tag: u64, id: SnapshotId, chunk: u32) {
        let header = self.kept.iter().find(|h| h.id == id && chunk < id.chunks);
        match header {
            Some(header) => self.wanted.push_back(Wanted { tag, header: *header, chunk }),
            None => {
                let file = snapshot_file(self.owner.shard, id.last);
                let fault = DiskFault::Io { file, op: "find the snapshot", errno: ENOENT };
                self.read.push_back((tag, Err(fault)));
            }
        }
    }

    pub(crate) fn take_chunk(&mut self) -> Option<(u64, DiskResult)> {
        self.read.pop_front()
    }

    pub(crate) fn poll_read(&mut self, op_id: impl FnOnce() -> OpId) -> Option<DiskOp> {
        if self.reading.is_some() {
            return None;
        }
        let wanted = self.wanted.pop_front()?;
        let file = snapshot_file(self.owner.shard, wanted.header.id.last);
        let (id, offset) = (op_id(), chunk_offset(wanted.chunk));
        self.reading = Some((id, wanted));
        Some(DiskOp::Read { id, file, offset, len: SLOT })
    }

    fn chunk_read(&mut self, wanted: Wanted, result: DiskResult) {
        let Wanted { tag, header, chunk } = wanted;
        let result = result.and_then(|slot| match open_chunk(&slot, &self.owner, header.salt, chunk) {
            Some(bytes) => Ok(slot.slice_ref(bytes)),
            None => {
                let file = snapshot_file(self.owner.shard, header.id.last);
                Err(DiskFault::Io { file, op: "check a chunk of the snapshot", errno: EIO })
            }
        });
        self.read.push_back((tag, result));
    }
}

impl Writing {
    /// The chunks that the next write takes: at least one.
    fn next_parts(&mut self, owner: &Owner) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut bytes = 0;
        while let Some((number, chunk)) =
            self.queue.pop_front_if(|(_, c)| bytes == 0 || bytes + c.len() <= WRITE_MAX - 2 * PAGE)
        {
            bytes += chunk.len();
            parts.push((chunk_offset(number), chunk_buffers(owner, self.salt, number, chunk)));
        }
        parts
    }
}

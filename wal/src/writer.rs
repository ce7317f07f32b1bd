//! The writer: gathers appends into batches and says what to write next.
//!
//! One *flight* is under way at a time: hard state first where there is a new one (its two copies
//! one after the other), then one batch with its mark, then one sync. What arrives meanwhile is the
//! next flight. Beside it one background operation may run: the next spare segment, or else the removal
//! of a file or the cut of an old segment to its used length; and, apart from these, one step of a
//! snapshot and one read of a chunk (`snapshots.rs`).

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use palisade_types::hash::hash128;
use palisade_types::{Block, Edge, HardState, LogIndex, Mutant, Rng, Term, Time};

use crate::batch::{self, BATCH_HEADER, BatchHeader};
use crate::config::WalConfig;
use crate::flight::{Flight, Step, Written, batch_parts, restart_body};
use crate::hard::{HardRecord, hard_state_file};
use crate::op::{DiskFault, DiskOp, DiskResult, OpId};
use crate::page::{Owner, padded};
use crate::recover::Tail;
use crate::scan::{Begin, edge_of};
use crate::segment::{DATA_START, Opening, SegmentHeader, segment_file};
use crate::slots::Slots;
use crate::snapshots::{Removal, Snapshots};

mod behind;

/// How long after the last batch an idle log writes the seal that proves it durable.
const SEAL_AFTER: Duration = Duration::from_millis(10);
/// The next segment is made once this part of the active one is full: early, so that it can be made
/// slowly. Nodes make theirs at the same time, and on a shared disk the zeros of all would hold up
/// every batch.
const SPARE_AT: u64 = 2;
/// How long after a lack of space a segment is tried again.
const RETRY_SPACE: Duration = Duration::from_secs(1);

/// The writer of one shard's log. See the module.
pub struct Wal {
    config: WalConfig,
    owner: Owner,
    salts: Rng,
    next_op: u64,

    /// The segment being written, and where its next batch goes.
    active: SegmentHeader,
    offset: u64,
    spare: Option<SegmentHeader>,
    /// Where each segment there is begins, the active one last.
    begins: VecDeque<Begin>,
    snapshots: Snapshots,
    /// Old segments to be cut: file and length.
    trims: VecDeque<(String, u64)>,

    /// What is durable: the last batch, its chain hash, the end of the log.
    seq: u64,
    chain: u128,
    last: LogIndex,
    /// The same with term and chain, unless it is a cut that nothing has followed yet.
    edge: Option<Edge>,
    hard: Slots<HardRecord>,
    durable: u64,

    /// What was accepted by [`Wal::append`].
    accepted: Accepted,
    queue: VecDeque<Queued>,
    commit_hint: LogIndex,
    /// Known to be committed: no cut goes below it.
    committed: LogIndex,

    flight: Option<Flight>,
    background: Option<(OpId, Job)>,
    starved: bool,
    /// The last attempt to make a segment found no space; when to try again.
    no_space: bool,
    retry_at: Option<Time>,
    seal_at: Option<Time>,
}

/// The end of the log as the caller sees it.
#[derive(Clone, Copy)]
struct Accepted {
    persist: u64,
    last: LogIndex,
    /// Chain hash of the block that ends at `last`; unknown after a cut.
    chain: Option<u128>,
    term: Term,
}

struct Queued {
    persist: u64,
    hard_state: Option<HardState>,
    truncate_after: Option<LogIndex>,
    restart: Option<Edge>,
    blocks: VecDeque<Block>,
    /// Committed when this was accepted. On record no sooner: a cut that comes before it in the queue
    /// may reach below.
    commit_hint: LogIndex,
}

enum Job {
    Spare(SegmentHeader),
    Remove(Removal),
    Trim,
}

impl Wal {
    /// Goes on where recovery left off. The first operation creates a new segment; nothing counts as
    /// durable before that is done.
    ///
    /// # Panics
    /// On a configuration that makes no log.
    pub fn open(config: WalConfig, tail: Tail, _now: Time) -> Wal {
        config.check();
        let owner = config.owner();
        let mut salts = Rng::new(config.seed);
        let opening = Opening { first_seq: tail.next_seq, prev_chain: tail.chain };
        let active = SegmentHeader {
            number: tail.segment,
            salt: draw_salt(&mut salts, tail.segment, tail.next_seq),
            size: config.segment_bytes,
            durable_upto: tail.next_seq - 1,
            opening: Some(opening),
        };
        let mut flight = Flight { steps: VecDeque::from([Step::Open]), ..Flight::default() };
        if tail.hard.is_incomplete() {
            let record = HardRecord { batch: tail.next_seq - 1, ..*tail.hard.value() };
            flight.staged = Some(tail.hard.stage(record));
            flight.steps.extend([Step::HardFirst, Step::HardSecond]);
        }
        if let Some(edge) = tail.restart {
            flight.restart = Some(edge);
            flight.steps.push_back(Step::Batch);
        }
        let mut begins = VecDeque::from(tail.begins);
        begins.push_back(Begin {
            segment: active.number,
            seq: tail.next_seq - 1,
            chain: tail.chain,
            edge: Some(tail.edge),
            used: DATA_START,
        });
        let mut snapshots = Snapshots::new(owner, config.mutants, tail.kept, tail.stale, tail.removals);
        if tail.restarted {
            snapshots.log_restarted();
        }
        Wal {
            owner,
            salts,
            next_op: 0,
            active,
            offset: DATA_START,
            spare: None,
            begins,
            snapshots,
            trims: tail.trims.into(),
            seq: tail.next_seq - 1,
            chain: tail.chain,
            last: tail.edge.index,
            edge: Some(tail.edge),
            hard: tail.hard,
            durable: 0,
            accepted: Accepted {
                persist: 0,
                last: tail.edge.index,
                chain: Some(tail.edge.chain),
                term: tail.edge.term,
            },
            queue: VecDeque::new(),
            commit_hint: LogIndex(0),
            committed: tail.committed,
            flight: Some(flight),
            background: None,
            starved: false,
            no_space: false,
            retry_at: None,
            seal_at: None,
            config,
        }
    }

    /// Accepts what persist number `persist` is to make durable: the hard state, then the cut of the
    /// log behind `truncate_after`, then the blocks. Numbers rise. `commit_hint` is any commit index
    /// known; it is recorded as far as this log is durable.
    ///
    /// # Panics
    /// When numbers do not rise, or the blocks do not continue the log.
    pub fn append(
        &mut self,
        persist: u64,
        hard_state: Option<HardState>,
        truncate_after: Option<LogIndex>,
        blocks: Vec<Block>,
        commit_hint: LogIndex,
    ) {
        let end = &mut self.accepted;
        assert!(persist > end.persist, "persist numbers rise");
        end.persist = persist;
        let truncate_after = truncate_after.filter(|t| *t < end.last);
        if let Some(keep) = truncate_after {
            (end.last, end.chain, end.term) = (keep, None, Term(0));
        }
        for block in &blocks {
            assert!(block.shard() == self.config.shard, "the block belongs to this shard");
            assert!(block.first() == end.last.next() && block.term() >= end.term, "blocks continue the log");
            assert!(end.chain.is_none_or(|c| c == block.prev_chain()), "blocks continue the chain");
            (end.last, end.chain, end.term) = (block.last(), Some(block.chain()), block.term());
        }
        self.committed = self.committed.max(commit_hint);
        let blocks = blocks.into();
        self.queue.push_back(Queued {
            persist,
            hard_state,
            truncate_after,
            restart: None,
            blocks,
            commit_hint,
        });
        self.skip_empty();
    }

    /// The next operation to begin, if there is one. Ask until there is none.
    pub fn poll_op(&mut self, now: Time) -> Option<DiskOp> {
        self.start_flight(now);
        if let Some(op) = self.flight_op(now) {
            return Some(op);
        }
        self.background_op(now).or_else(|| self.snapshot_op())
    }

    /// An operation is over.
    ///
    /// # Errors
    /// The fault, when the log cannot go on: what is on the disk is unknown, and the process must
    /// end. A segment that found no space is tried again instead, a snapshot that did is given up, and
    /// a read that failed is told to whoever wanted it.
    ///
    /// # Panics
    /// When no such operation is under way.
    pub fn on_done(&mut self, now: Time, id: OpId, result: DiskResult) -> Result<(), DiskFault> {
        if let Some(flight) = &mut self.flight
            && flight.issued == Some(id)
        {
            flight.issued = None;
            let step = flight.steps[0];
            match result {
                Ok(_) => self.step_done(now, step),
                Err(DiskFault::NoSpace { .. }) if step == Step::Open => self.lacks_space(now),
                Err(fault) => return Err(fault),
            }
            return Ok(());
        }
        if self.snapshots.on_done(id, &result)? {
            return Ok(());
        }
        let Some((_, job)) = self.background.take_if(|(background, _)| *background == id) else {
            panic!("operation {id:?} is not under way");
        };
        match (job, result) {
            (Job::Spare(header), Ok(_)) => {
                self.spare = Some(header);
                self.no_space = false;
            }
            (Job::Spare(_), Err(DiskFault::NoSpace { .. })) => self.lacks_space(now),
            (Job::Remove(removal), Ok(_)) => self.removed(&removal),
            (Job::Trim, Ok(_)) => {}
            (_, Err(fault)) => return Err(fault),
        }
        Ok(())
    }

    /// The highest persist number that is durable, with all below it.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Nothing is under way and nothing waits: what is appended now is written at once.
    pub fn is_idle(&self) -> bool {
        self.flight.is_none() && self.queue.is_empty()
    }

    /// The last attempt to make a segment found no space. It is tried again every second; until it
    /// succeeds, appends go on as far as the present segment has room.
    pub fn is_out_of_space(&self) -> bool {
        self.no_space
    }

    /// When [`Wal::poll_op`] may have something to do although nothing was reported or appended.
    pub fn next_deadline(&self) -> Time {
        let seal = self.seal_at.filter(|_| self.is_idle());
        let retry = self.retry_at.filter(|_| self.background.is_none());
        seal.unwrap_or(Time::FAR).min(retry.unwrap_or(Time::FAR))
    }

    /// Bytes of the log: what its batches take up, not what is allocated ahead.
    pub fn log_bytes(&self) -> u64 {
        let before: u64 = self.begins.iter().map(|b| b.used).sum();
        let active = self.begins.back().map_or(0, |b| b.used);
        before - active + self.offset
    }

    fn lacks_space(&mut self, now: Time) {
        self.no_space = true;
        self.retry_at = Some(now + RETRY_SPACE);
    }

    fn op_id(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    /// Starts the next flight if none is under way: what waits, or the seal if it is due.
    fn start_flight(&mut self, now: Time) {
        self.skip_empty();
        if self.flight.is_some() {
            return;
        }
        if !self.queue.is_empty() {
            self.flight = Some(self.gather());
        } else if self.seal_at.is_some_and(|at| at <= now) {
            let steps = VecDeque::from([Step::Batch]);
            self.flight = Some(Flight { steps, seal: true, ..Flight::default() });
        }
    }

    /// What has nothing to write is durable as soon as everything before it is.
    fn skip_empty(&mut self) {
        let in_force = self.hard.value().state;
        let writes = |q: &Queued| {
            let hard_state = q.hard_state.is_some_and(|h| (h.term, h.vote) != (in_force.term, in_force.vote));
            hard_state || q.truncate_after.is_some() || q.restart.is_some() || !q.blocks.is_empty()
        };
        while self.flight.is_none()
            && let Some(queued) = self.queue.pop_front_if(|q| !writes(q))
        {
            self.commit_hint = self.commit_hint.max(queued.commit_hint);
            self.durable = queued.persist;
        }
    }

    /// Takes from the queue what fits into one batch. A cut of the log starts a batch of its own.
    fn gather(&mut self) -> Flight {
        let room = self.config.segment_bytes - DATA_START - BATCH_HEADER as u64;
        let room =
            usize::try_from(room).map_or(self.config.batch_bytes_max, |r| r.min(self.config.batch_bytes_max));
        let mut flight = Flight::default();
        let mut hard_state = None;
        while let Some(queued) = self.queue.front_mut() {
            if (queued.truncate_after.is_some() || queued.restart.is_some())
                && (flight.truncate_after.is_some() || !flight.blocks.is_empty())
            {
                break;
            }
            self.commit_hint = self.commit_hint.max(queued.commit_hint);
            if queued.restart.is_some() {
                flight.restart = queued.restart.take();
                flight.persist = Some(queued.persist);
                self.queue.pop_front();
                break;
            }
            hard_state = queued.hard_state.take().or(hard_state);
            flight.truncate_after = queued.truncate_after.take().or(flight.truncate_after);
            while let Some(block) = queued.blocks.front() {
                let len = block.bytes().len();
                if !flight.blocks.is_empty() && flight.body_len + len > room {
                    break;
                }
                flight.body_len += len;
                flight.blocks.extend(queued.blocks.pop_front());
            }
            if !queued.blocks.is_empty() {
                break;
            }
            flight.persist = Some(queued.persist);
            self.queue.pop_front();
        }
        let in_force = self.hard.value().state;
        let hard_state = hard_state.filter(|h| (h.term, h.vote) != (in_force.term, in_force.vote));
        let batch = flight.truncate_after.is_some() || flight.restart.is_some() || !flight.blocks.is_empty();
        if let Some(state) = hard_state {
            let kept = flight.truncate_after.unwrap_or(self.last);
            let commit = state.commit.max(self.commit_hint).min(self.last).min(kept);
            let record = HardRecord { state: HardState { commit, ..state }, batch: self.seq };
            flight.staged = Some(self.hard.stage(record));
            flight.steps.extend([Step::HardFirst, Step::HardSecond]);
        }
        if batch && self.config.mutants.has(Mutant::B9) {
            flight.steps.push_front(Step::Batch);
        } else if batch {
            flight.steps.push_back(Step::Batch);
        }
        flight
    }

    fn flight_op(&mut self, now: Time) -> Option<DiskOp> {
        let flight = self.flight.as_ref()?;
        if flight.issued.is_some() {
            return None;
        }
        let op = match flight.steps[0] {
            Step::Open => {
                if self.retry_at.is_some_and(|at| now < at) {
                    return None;
                }
                let header = self.active;
                self.create_op(header, false)
            }
            Step::HardFirst => self.hard_op(0),
            Step::HardSecond => self.hard_op(1),
            Step::Batch => self.batch_op()?,
        };
        if let Some(flight) = &mut self.flight {
            flight.issued = Some(op.id());
        }
        Some(op)
    }

    fn create_op(&mut self, header: SegmentHeader, ahead: bool) -> DiskOp {
        self.retry_at = None;
        let id = self.op_id();
        let file = segment_file(self.config.shard, header.number);
        DiskOp::Create { id, file, size: header.size, header: Bytes::from(header.encode(&self.owner)), ahead }
    }

    fn hard_op(&mut self, copy: usize) -> DiskOp {
        let id = self.op_id();
        let staged =
            self.flight.as_ref().and_then(|f| f.staged.as_ref()).expect("these steps stage a hard state");
        let (offset, page) = staged.copies[copy].clone();
        DiskOp::Write { id, file: hard_state_file(self.config.shard), parts: vec![(offset, vec![page])] }
    }

    /// The batch of the flight, unless it needs a segment that is not there yet.
    fn batch_op(&mut self) -> Option<DiskOp> {
        let flight = self.flight.as_ref()?;
        let restart = flight.restart;
        let body: Vec<Bytes> = match &restart {
            Some(edge) => vec![restart_body(edge)],
            None => flight.blocks.iter().map(|b| b.bytes().clone()).collect(),
        };
        let body_len: usize = body.iter().map(Bytes::len).sum();
        let span = padded((BATCH_HEADER + body_len) as u64);
        if !self.make_room(span) {
            return None;
        }
        let id = self.op_id();
        let flight = self.flight.as_mut()?;
        let mut crc = crc32fast::Hasher::new();
        body.iter().for_each(|b| crc.update(b));
        let cut = flight.truncate_after.map(|t| t.min(self.last));
        let kept = restart.map_or(cut.unwrap_or(self.last), |r| r.index);
        let term = restart.map_or(Term(0), |r| r.term);
        let end = flight.blocks.last().map(edge_of);
        let header = BatchHeader {
            owner: self.owner,
            salt: self.active.salt,
            segment: self.active.number,
            offset: self.offset,
            seq: self.seq + 1,
            first: flight.blocks.first().map_or(LogIndex(0), Block::first),
            last: end.map_or(kept, |e| e.index),
            last_term: end.map_or(term, |e| e.term),
            truncate_after: flight.truncate_after,
            restart: restart.is_some(),
            durable_upto: self.seq,
            commit_hint: self.commit_hint.min(kept),
            prev_chain: self.chain,
            body_len: u32::try_from(body_len).expect("the configuration bounds a batch"),
            blocks: flight.blocks.len() as u32,
            body_crc: crc.finalize(),
        };
        let (head, chain) = batch::encode(&header);
        let unchanged = self.edge.filter(|e| e.index == kept);
        flight.written = Some(Written {
            seq: header.seq,
            chain,
            cut,
            restart: restart.is_some(),
            last: header.last,
            edge: end.or(restart).or(unchanged),
            next_offset: self.offset + span,
        });
        self.seal_at = None;
        Some(DiskOp::Write {
            id,
            file: segment_file(self.config.shard, self.active.number),
            parts: batch_parts(&header, head, &body, span),
        })
    }

    /// Sees to it that a batch of so many bytes fits behind the last; moves on to the spare if not.
    /// The first batch of a segment always fits: the file grows if it must.
    fn make_room(&mut self, span: u64) -> bool {
        if self.offset + span <= self.active.size || self.offset == DATA_START {
            return true;
        }
        let Some(spare) = self.spare.take() else {
            self.starved = true;
            return false;
        };
        if let Some(full) = self.begins.back_mut() {
            full.used = self.offset;
        }
        self.begins.push_back(Begin {
            segment: spare.number,
            seq: self.seq,
            chain: self.chain,
            edge: self.edge,
            used: DATA_START,
        });
        self.active = spare;
        self.offset = DATA_START;
        self.starved = false;
        true
    }

    fn step_done(&mut self, now: Time, step: Step) {
        let Some(flight) = &mut self.flight else { return };
        flight.steps.pop_front();
        match step {
            Step::Open => self.no_space = false,
            Step::HardFirst => {}
            Step::HardSecond => {
                let staged = flight.staged.take().expect("these steps stage a hard state");
                self.hard.commit(staged);
            }
            Step::Batch => {
                let written = flight.written.take().expect("a batch was issued");
                assert!(written.seq == self.seq + 1, "batches are written one after the other");
                (self.seq, self.chain, self.last) = (written.seq, written.chain, written.last);
                self.edge = written.edge;
                if let Some(keep) = written.cut {
                    self.begins.iter_mut().for_each(|b| b.cut(keep));
                }
                if let Some(edge) = self.edge.filter(|_| written.restart) {
                    self.snapshots.replaced_by(edge);
                }
                self.offset = written.next_offset;
                self.seal_at = (!flight.seal).then(|| now + SEAL_AFTER);
            }
        }
        if flight.steps.is_empty() {
            let persist = flight.persist.unwrap_or(self.durable);
            assert!(persist >= self.durable, "persist numbers become durable in order");
            self.durable = persist;
            self.flight = None;
            self.skip_empty();
        }
    }

    fn is_open(&self) -> bool {
        self.flight.as_ref().is_none_or(|f| f.steps.front() != Some(&Step::Open))
    }

    fn background_op(&mut self, now: Time) -> Option<DiskOp> {
        if self.background.is_some() || !self.is_open() {
            return None;
        }
        let due = self.offset - DATA_START > (self.active.size - DATA_START) / SPARE_AT;
        if self.spare.is_none() && (due || self.starved) && self.retry_at.is_none_or(|at| at <= now) {
            let number = self.active.number + 1;
            let salt = draw_salt(&mut self.salts, number, self.seq);
            let size = self.config.segment_bytes;
            let header = SegmentHeader { number, salt, size, durable_upto: self.seq, opening: None };
            let op = self.create_op(header, !self.starved);
            self.background = Some((op.id(), Job::Spare(header)));
            return Some(op);
        }
        if let Some(removal) = self.snapshots.next_removal() {
            let id = self.op_id();
            let (Removal::Snapshot(file) | Removal::Segment(_, file)) = removal.clone();
            self.trims.retain(|(trim, _)| *trim != file);
            self.background = Some((id, Job::Remove(removal)));
            return Some(DiskOp::Remove { id, file });
        }
        let (file, len) = self.trims.pop_front()?;
        let id = self.op_id();
        self.background = Some((id, Job::Trim));
        Some(DiskOp::Truncate { id, file, len })
    }
}

/// A salt for one segment. The draws differ between starts because the seed does; number and
/// sequence keep segments apart even if a caller repeats a seed.
fn draw_salt(salts: &mut Rng, number: u64, seq: u64) -> u128 {
    let mut bytes = [0; 32];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip([salts.next_u64(), salts.next_u64(), number, seq]) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    hash128(&bytes)
}

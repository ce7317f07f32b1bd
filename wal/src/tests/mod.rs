//! Tests over the simulated disk. Shared here: a node's directory, a maker of blocks, and a driver
//! that performs the log's operations.

mod crash;
mod damage;
mod format;
mod keep;
mod ordering;
mod rot;
mod slots;
mod snapshots;
mod space;
mod table;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use palisade_types::block::Seal;
use palisade_types::{
    Block, BlockBuilder, ClusterId, ClusterLimits, HardState, Incarnation, LogIndex, Mutants, Name, NodeId,
    Rng, ShardId, Term, Time,
};

use crate::*;

pub(crate) const SHARD: ShardId = ShardId(0);
/// Room for four pages of batches, so that segments change often.
pub(crate) const SMALL_SEGMENT: u64 = DATA_START + 4 * PAGE as u64;

pub(crate) fn identity() -> Identity {
    Identity {
        cluster: ClusterId(0xC1),
        cluster_name: Name::new("tests").unwrap(),
        node: NodeId(2),
        incarnation: Incarnation(0x1C),
        shards: 1,
        voters: vec![NodeId(1), NodeId(2), NodeId(3)],
        limits: ClusterLimits::default(),
    }
}

pub(crate) fn formatted() -> SimDisk {
    let mut disk = SimDisk::new();
    disk.put(&hard_state_file(SHARD), &initial_hard_state(&identity(), SHARD));
    disk
}

pub(crate) fn config(seed: u64) -> WalConfig {
    WalConfig {
        segment_bytes: SMALL_SEGMENT,
        batch_bytes_max: 8192,
        mutants: Mutants::NONE,
        ..WalConfig::new(&identity(), SHARD, seed)
    }
}

pub(crate) fn recover(source: &dyn Source) -> Result<Recovered, RecoverError> {
    recover_shard(source, &identity(), SHARD)
}

/// A block that continues `log`: `count` commands of `len` bytes each.
pub(crate) fn block(log: &[Block], term: u64, count: usize, len: usize) -> Block {
    let mut builder = BlockBuilder::new();
    let first = log.last().map_or(LogIndex(1), |b| b.last().next());
    for i in 0..count {
        builder.push(|v| v.resize(v.len() + len, (first.0 as u8).wrapping_mul(31).wrapping_add(i as u8) | 1));
    }
    let prev_chain = log.last().map_or(0, Block::chain);
    builder.seal(Seal { shard: SHARD, term: Term(term), first, clock_ms: 0, prev_chain })
}

pub(crate) fn hard(term: u64, vote: u32) -> HardState {
    let vote = (vote > 0).then_some(NodeId(vote));
    HardState { term: Term(term), vote, commit: LogIndex(0) }
}

/// A log under way: the writer, its disk, and what was appended.
pub(crate) struct Run {
    pub(crate) disk: SimDisk,
    pub(crate) wal: Wal,
    pub(crate) now: Time,
    pub(crate) log: Vec<Block>,
    pub(crate) persist: u64,
    pub(crate) open_ops: VecDeque<OpId>,
}

impl Run {
    pub(crate) fn start(disk: SimDisk, seed: u64) -> Run {
        let recovered = recover(&disk).unwrap();
        let wal = Wal::open(config(seed), recovered.tail, Time::ZERO);
        Run { disk, wal, now: Time::ZERO, log: recovered.blocks, persist: 0, open_ops: VecDeque::new() }
    }

    /// A new directory, opened.
    pub(crate) fn fresh() -> Run {
        let mut run = Run::start(formatted(), 1);
        run.settle();
        run
    }

    /// Appends a block of one command of `len` bytes, and the term with it.
    pub(crate) fn append(&mut self, term: u64, len: usize) {
        let next = block(&self.log, term, 1, len);
        self.log.push(next.clone());
        self.persist += 1;
        self.wal.append(self.persist, Some(hard(term, 1)), None, vec![next], LogIndex(0));
    }

    /// Begins what there is to begin.
    pub(crate) fn begin(&mut self) {
        while let Some(op) = self.wal.poll_op(self.now) {
            self.open_ops.push_back(op.id());
            self.disk.begin(op);
        }
    }

    /// Ends the oldest operation; false if there is none.
    pub(crate) fn end_one(&mut self) -> bool {
        let Some(id) = self.open_ops.pop_front() else { return false };
        let result = self.disk.complete(id);
        self.wal.on_done(self.now, id, result).unwrap();
        true
    }

    /// Performs everything until nothing is left to do at this time.
    pub(crate) fn settle(&mut self) {
        loop {
            self.begin();
            if !self.end_one() {
                return;
            }
        }
    }

    /// Lets so much time pass, and performs what becomes due.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.settle();
    }

    pub(crate) fn recovered(&self) -> Recovered {
        recover(&self.disk.platter()).unwrap()
    }
}

#[test]
fn what_was_durable_is_read_back_after_every_restart() {
    let mut disk = formatted();
    let mut log = vec![];
    for start in 0..5 {
        let mut run = Run::start(disk, start);
        assert_eq!(run.log, log);
        for len in [10, 5000, 1, 9000, 300] {
            run.append(start + 1, len);
            run.settle();
            assert_eq!(run.wal.durable(), run.persist);
        }
        log = run.log;
        disk = run.disk;
    }
    let recovered = recover(&disk).unwrap();
    assert_eq!((recovered.blocks, recovered.notes), (log, vec![]));
    assert_eq!(recovered.hard_state, hard(5, 1));
}

#[test]
fn a_random_history_with_cuts_is_replayed_as_a_vector_would_hold_it() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut run = Run::fresh();
        for term in 1..60 {
            let keep = run.log.len() - rng.below(3).min(run.log.len() as u64) as usize;
            let cut = (keep < run.log.len()).then(|| run.log[..keep].last().map_or(LogIndex(0), Block::last));
            run.log.truncate(keep);
            let mut blocks = vec![];
            for _ in 0..rng.below(4) {
                let next = block(&run.log, term, 1 + rng.below(3) as usize, rng.below(3000) as usize);
                run.log.push(next.clone());
                blocks.push(next);
            }
            run.persist += 1;
            run.wal.append(run.persist, Some(hard(term, 0)), cut, blocks, LogIndex(0));
            if rng.per_mille(400) {
                run.settle();
            }
        }
        run.settle();
        assert_eq!(run.wal.durable(), run.persist);
        let recovered = run.recovered();
        assert_eq!(recovered.blocks, run.log, "seed {seed}");
        assert_eq!(recovered.hard_state.term, Term(59));
        assert_eq!(recovered.tail.last(), run.log.last().map_or(LogIndex(0), Block::last));
    }
}

//! What the log costs besides the disk: laying blocks of 256 commands out in batches, and reading a log
//! back after a restart. The figures are of one command each.

#[allow(dead_code, reason = "no bench needs all of it")]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{BLOCK_COMMANDS, Cycle, SHARD};
use criterion::{Criterion, Throughput};
use palisade_types::{LogIndex, Time};
use palisade_wal::{DiskOp, SimDisk, Wal, WalConfig, recover_shard};

/// Blocks of the log that is recovered: a few MiB.
const RECOVERED_BLOCKS: u64 = 256;

/// A log, and what it is given to write.
struct Log {
    disk: SimDisk,
    wal: Wal,
    cycle: Cycle,
    persists: u64,
}

impl Log {
    fn new() -> Log {
        let (identity, disk) = common::formatted();
        let recovered = recover_shard(&disk, &identity, SHARD).expect("an empty log");
        let wal = Wal::open(WalConfig::new(&identity, SHARD, 1), recovered.tail, Time::from_millis(1));
        Log { disk, wal, cycle: Cycle::new(1_000, 8), persists: 0 }
    }

    /// Appends a block and does what the log asks of the disk; returns what that cost besides `disk`.
    fn block(&mut self, mut disk: impl FnMut(&mut SimDisk, DiskOp)) -> Duration {
        let block = self.cycle.block();
        let now = Time::from_millis(1);
        self.persists += 1;
        let mut begin = Instant::now();
        let mut spent = Duration::ZERO;
        self.wal.append(self.persists, None, None, vec![block], LogIndex(0));
        while let Some(op) = self.wal.poll_op(now) {
            let id = op.id();
            spent += begin.elapsed();
            disk(&mut self.disk, op);
            begin = Instant::now();
            self.wal.on_done(now, id, Ok(Default::default())).expect("the disk is well");
        }
        spent += begin.elapsed();
        assert_eq!(self.wal.durable(), self.persists);
        spent
    }
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("wal");
    group.throughput(Throughput::Elements(1));
    let mut log = Log::new();
    group.bench_function("append", |b| {
        b.iter_custom(|count| {
            let blocks = count.div_ceil(BLOCK_COMMANDS);
            let spent: Duration = (0..blocks).map(|_| log.block(|_, op| drop(black_box(op)))).sum();
            spent.mul_f64(count as f64 / (blocks * BLOCK_COMMANDS) as f64)
        });
    });
}

fn recover(c: &mut Criterion) {
    let mut group = c.benchmark_group("wal");
    group.throughput(Throughput::Elements(RECOVERED_BLOCKS * BLOCK_COMMANDS));
    let mut log = Log::new();
    for _ in 0..RECOVERED_BLOCKS {
        log.block(|disk, op| {
            let id = op.id();
            disk.begin(op);
            disk.complete(id).expect("the disk is well");
        });
    }
    let (identity, _) = common::formatted();
    group.bench_function(format!("recover {} MiB", log.wal.log_bytes() >> 20), |b| {
        b.iter(|| recover_shard(&log.disk, &identity, SHARD).expect("a whole log"));
    });
}

fn main() {
    common::run(&[append, recover]);
}

//! What it costs to apply one command: acquires and releases of free keys, in blocks, as a shard
//! applies them. The machines differ in how much of their state the caches hold.

#[allow(dead_code, reason = "no bench needs all of it")]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{BLOCK_COMMANDS, Cycle, SHARD};
use criterion::{Criterion, Throughput};
use palisade_machine::{Applied, Effect, Machine};
use palisade_types::{Block, ClusterLimits, LogIndex, Mutants, Reply};

/// A machine, and what a shard keeps beside it to apply blocks.
struct Node {
    machine: Machine,
    effects: Vec<Effect>,
    replies: Vec<Reply>,
}

impl Node {
    fn new(seed: u64) -> Node {
        let machine = Machine::new(ClusterLimits::default(), SHARD, seed, Mutants::NONE);
        Node { machine, effects: Vec::new(), replies: Vec::new() }
    }

    /// As `Shard::apply_block` does it on a leader: the replies leave together, after the block.
    fn apply(&mut self, block: &Block) {
        let mut ahead = block.commands();
        let mut warmed = 0;
        for (place, command) in block.commands().enumerate() {
            if place == warmed {
                warmed += self.machine.warm(&mut ahead);
            }
            let index = LogIndex(block.first().0 + place as u64);
            let at = Applied { index, clock_ms: block.clock_ms() };
            self.effects.clear();
            self.machine.apply(at, command, &mut self.effects).expect("a command");
            for effect in self.effects.drain(..) {
                if let Effect::Reply(reply) = effect {
                    self.replies.push(reply);
                }
            }
        }
        black_box(&mut self.replies).clear();
    }
}

/// Applies so many commands to each of the nodes; the time is that of one node.
fn commands(cycle: &mut Cycle, nodes: &mut [Node], count: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let blocks = count.div_ceil(BLOCK_COMMANDS);
    for _ in 0..blocks {
        let block = cycle.block();
        let begin = Instant::now();
        for node in nodes.iter_mut() {
            node.apply(&block);
        }
        spent += begin.elapsed();
    }
    spent.mul_f64(count as f64 / (blocks * BLOCK_COMMANDS * nodes.len() as u64) as f64)
}

fn apply(c: &mut Criterion) {
    let mut group = c.benchmark_group("machine/apply");
    group.throughput(Throughput::Elements(1));
    for (name, sessions, keys, nodes) in [
        ("512 keys", 64, 8, 1),
        ("8k keys", 1_000, 8, 1),
        ("8k keys, three nodes in turn", 1_000, 8, 3),
        ("100k keys", 1_000, 100, 1),
    ] {
        let mut cycle = Cycle::new(sessions, keys);
        let mut nodes: Vec<Node> = (0..nodes).map(Node::new).collect();
        // Five times round, so that records and their histories have grown to what they stay at.
        let mut blocks = cycle.opens();
        for _ in 0..5 {
            blocks.extend(cycle.lap());
        }
        for node in &mut nodes {
            blocks.iter().for_each(|block| node.apply(block));
        }
        drop(blocks);
        group.bench_function(name, |b| b.iter_custom(|count| commands(&mut cycle, &mut nodes, count)));
    }
}

fn main() {
    common::run(&[apply]);
}

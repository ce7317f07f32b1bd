//! What consensus costs of a block of 256 commands: a leader of three proposes it (the checksum and the
//! chain hash are made here), sends it, hears that its own disk and one follower have it, and commits; a
//! follower takes it and answers. The figures are of one command each.

#[allow(dead_code, reason = "no bench needs all of it")]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{BLOCK_COMMANDS, Cycle, SHARD, gather};
use criterion::{Criterion, Throughput};
use palisade_raft::{Config, Message, Raft, Ready, Restored, Role};
use palisade_types::{BlockBuilder, NodeId, Time};

/// After so many blocks a pair starts anew: a log stays in memory.
const BLOCKS_MAX: u32 = 1_000;

const LEADER: NodeId = NodeId(1);
const FOLLOWER: NodeId = NodeId(2);
const ABSENT: NodeId = NodeId(3);

/// A leader and one of its two followers. Disks and network take no time.
struct Pair {
    leader: Raft,
    follower: Raft,
    now: Time,
    cycle: Cycle,
    blocks: u32,
    spent: [Duration; 2],
}

fn start(node: NodeId, now: Time) -> Raft {
    let config = Config::new(node, SHARD, vec![LEADER, FOLLOWER, ABSENT]);
    Raft::new(config, Restored::default(), u64::from(node.0), now).expect("a configuration")
}

/// Takes what is ready until nothing is; the disk is done at once. Returns what the other is sent.
fn settle(raft: &mut Raft, now: Time, other: NodeId) -> Vec<Message> {
    let mut messages = Vec::new();
    while raft.has_ready() {
        let Ready { messages: sent, persist, committed, .. } = raft.take_ready();
        if let Some(persist) = persist {
            raft.on_persisted(now, persist.number);
        }
        black_box(committed);
        messages.extend(sent.into_iter().filter(|(to, _)| *to == other).map(|(_, message)| message));
    }
    messages
}

impl Pair {
    fn new() -> Pair {
        let now = Time::from_millis(1);
        let (leader, follower) = (start(LEADER, now), start(FOLLOWER, now));
        let cycle = Cycle::new(1_000, 8);
        let mut pair = Pair { leader, follower, now, cycle, blocks: 0, spent: [Duration::ZERO; 2] };
        pair.now = pair.leader.next_deadline();
        pair.leader.tick(pair.now);
        pair.exchange();
        assert_eq!(pair.leader.status().role, Role::Leader, "the first to stand is elected");
        pair.spent = [Duration::ZERO; 2];
        pair
    }

    /// Carries messages to and fro until there are none.
    fn exchange(&mut self) {
        loop {
            let begin = Instant::now();
            let sent = settle(&mut self.leader, self.now, FOLLOWER);
            let between = Instant::now();
            self.spent[0] += between - begin;
            if sent.is_empty() {
                return;
            }
            let begin = Instant::now();
            for message in sent {
                self.follower.step(self.now, LEADER, message);
            }
            let answers = settle(&mut self.follower, self.now, LEADER);
            let between = Instant::now();
            self.spent[1] += between - begin;
            for message in answers {
                self.leader.step(self.now, FOLLOWER, message);
            }
            self.spent[0] += between.elapsed();
        }
    }

    fn block(&mut self) {
        let builder: BlockBuilder = gather(self.cycle.commands().iter());
        let begin = Instant::now();
        self.leader.propose(builder, 1).expect("a leader");
        self.spent[0] += begin.elapsed();
        self.exchange();
        self.blocks += 1;
        assert_eq!(self.leader.commit(), self.leader.durable(), "it is committed");
    }
}

/// What so many commands cost one side.
fn commands(pair: &mut Pair, side: usize, count: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let blocks = count.div_ceil(BLOCK_COMMANDS);
    for _ in 0..blocks {
        if pair.blocks == BLOCKS_MAX {
            *pair = Pair::new();
        }
        pair.spent = [Duration::ZERO; 2];
        pair.block();
        spent += pair.spent[side];
    }
    spent.mul_f64(count as f64 / (blocks * BLOCK_COMMANDS) as f64)
}

fn replication(c: &mut Criterion) {
    let mut group = c.benchmark_group("raft");
    group.throughput(Throughput::Elements(1));
    let mut pair = Pair::new();
    for (side, name) in ["leader: propose, send, commit", "follower: append, answer"].into_iter().enumerate()
    {
        group.bench_function(name, |b| b.iter_custom(|count| commands(&mut pair, side, count)));
    }
}

fn main() {
    common::run(&[replication]);
}

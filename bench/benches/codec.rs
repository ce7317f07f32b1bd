//! What it costs to read and write bytes: frames, requests, replies, blocks. 256 at a time; the figures
//! are of one command each.

#[allow(dead_code, reason = "no bench needs all of it")]
mod common;

use std::hint::black_box;

use common::{BLOCK_COMMANDS, Cycle, SHARD, gather};
use criterion::{BatchSize, Criterion, Throughput};
use palisade_machine::Command;
use palisade_types::block::Seal;
use palisade_types::{Block, Epoch, Fence, LogIndex, Reply, RequestId, Term};
use palisade_wire::{Frames, Request, encode_reply};

/// As many acquires as releases.
fn commands() -> Vec<Command> {
    Cycle::new(BLOCK_COMMANDS / 2, 1).commands()
}

fn wire(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec/wire");
    group.throughput(Throughput::Elements(BLOCK_COMMANDS));
    let mut bytes = Vec::new();
    let mut replies = Vec::new();
    for (n, command) in commands().into_iter().enumerate() {
        if let Command::Acquire { session, ticket, ref key, .. } = command {
            let fence = Fence::new(key.clone(), Epoch(7), Epoch(7)).expect("a fence");
            replies.push(Reply::Granted { session, ticket, fence });
        } else if let Command::Release { session, ticket } = command {
            let outcome = palisade_types::Outcome::Released;
            replies.push(Reply::Finished { session, ticket, outcome });
        }
        common::request(command).encode(RequestId(n as u64), &mut bytes);
    }
    group.bench_function("check frames", |b| {
        b.iter(|| {
            let mut frames = Frames::new(black_box(&bytes));
            while let Some(frame) = frames.next_frame().expect("whole frames") {
                black_box(frame);
            }
        });
    });
    group.bench_function("check frames, decode requests", |b| {
        b.iter(|| {
            let mut frames = Frames::new(black_box(&bytes));
            while let Some(frame) = frames.next_frame().expect("whole frames") {
                black_box(Request::decode(&frame).expect("a request"));
            }
        });
    });
    let mut out = Vec::new();
    group.bench_function("encode replies", |b| {
        b.iter(|| {
            out.clear();
            for (n, reply) in black_box(&replies).iter().enumerate() {
                encode_reply(reply, RequestId(n as u64), &mut out);
            }
            black_box(&out);
        });
    });
}

fn blocks(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec/block");
    group.throughput(Throughput::Elements(BLOCK_COMMANDS));
    let commands = commands();
    let seal = Seal { shard: SHARD, term: Term(1), first: LogIndex(1), clock_ms: 1, prev_chain: 1 };
    group.bench_function("gather and seal", |b| b.iter(|| gather(black_box(&commands).iter()).seal(seal)));
    let bytes = gather(commands.iter()).seal(seal).bytes().clone();
    group.bench_function("check", |b| {
        b.iter_batched(
            || bytes.clone(),
            |bytes| Block::decode(bytes).expect("a block"),
            BatchSize::SmallInput,
        );
    });
}

fn main() {
    common::run(&[wire, blocks]);
}

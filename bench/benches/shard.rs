//! What a whole turn of a shard costs: 256 requests of clients go in, the disk (which takes no time) is
//! done, 256 replies come out. One voter: there is nobody to send to. The figures are of one request.

#[allow(dead_code, reason = "no bench needs all of it")]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{BLOCK_COMMANDS, Cycle, SHARD};
use criterion::{Criterion, Throughput};
use palisade_raft::Config;
use palisade_shard::{Actions, Input, Shard, ShardConfig};
use palisade_types::{ConnId, Reply, RequestId, SessionId, SessionToken, Time};
use palisade_wal::{WalConfig, recover_shard};
use palisade_wire::Request;

const CONN: ConnId = ConnId(1);
const SESSIONS: usize = 1_000;
const KEYS: usize = 8;
/// After so many turns a shard starts anew: its log stays in memory.
const TURNS_MAX: u32 = 2_000;

struct Server {
    shard: Shard,
    now: Time,
    cycle: Cycle,
    turns: u32,
}

fn boot(now: Time) -> Shard {
    let (identity, disk) = common::formatted();
    let recovered = recover_shard(&disk, &identity, SHARD).expect("an empty log");
    let raft = Config::new(identity.node, SHARD, identity.voters.clone());
    let wal = WalConfig::new(&identity, SHARD, 1);
    let config = ShardConfig::new(identity.node, raft, wal, identity.limits);
    Shard::new(config, recovered, None, 1, now).expect("a configuration")
}

impl Server {
    /// A shard that leads, with all sessions open and all keys known.
    fn new() -> Server {
        let now = Time::from_millis(1);
        let mut server = Server { shard: boot(now), now, cycle: Cycle::of(Vec::new(), KEYS), turns: 0 };
        while !server.shard.is_serving() {
            server.turn(Vec::new(), Duration::from_millis(100));
        }
        let open = |n| Request::OpenSession {
            token: SessionToken(n as u128),
            ttl_ms: 3_600_000,
            owner: None,
            incarnation: None,
        };
        let opened = |reply: &Reply| match reply {
            Reply::Opened { session, .. } => *session,
            other => panic!("expected a session, not {other:?}"),
        };
        let (_, replies) = server.turn((0..SESSIONS).map(open).collect(), Duration::from_millis(2));
        let sessions: Vec<SessionId> = replies.iter().map(opened).collect();
        assert_eq!(sessions.len(), SESSIONS);
        server.cycle = Cycle::of(sessions, KEYS);
        for _ in 0..(2 * SESSIONS * KEYS).div_ceil(BLOCK_COMMANDS as usize) {
            server.requests();
        }
        server.turns = 0;
        server
    }

    /// A turn with the next requests of the clients.
    fn requests(&mut self) -> Duration {
        let requests: Vec<Request> = self.cycle.commands().into_iter().map(common::request).collect();
        let (spent, replies) = self.turn(requests, Duration::from_millis(2));
        let is_done = |reply: &Reply| matches!(reply, Reply::Granted { .. } | Reply::Finished { .. });
        assert!(replies.len() == BLOCK_COMMANDS as usize && replies.iter().all(is_done), "{replies:?}");
        self.turns += 1;
        spent
    }

    fn turn(&mut self, requests: Vec<Request>, pass: Duration) -> (Duration, Vec<Reply>) {
        self.now = self.now + pass;
        let mut out = Actions::default();
        let mut replies = Vec::new();
        let begin = Instant::now();
        for (n, request) in requests.into_iter().enumerate() {
            let input = Input::Request { conn: CONN, id: RequestId(n as u64), request };
            self.shard.handle(self.now, input, &mut out);
        }
        loop {
            self.shard.finish_turn(self.now, &mut out);
            self.shard.apply_turn(self.now, &mut out);
            replies.append(&mut out.replies);
            let ops = std::mem::take(&mut out.disk);
            if ops.is_empty() {
                break;
            }
            for op in ops {
                self.shard.handle(
                    self.now,
                    Input::Disk { id: op.id(), result: Ok(Default::default()) },
                    &mut out,
                );
            }
        }
        let spent = begin.elapsed();
        assert!(out.stop.is_none(), "{:?}", out.stop);
        (spent, black_box(replies).into_iter().map(|(_, _, reply)| reply).collect())
    }
}

fn turn(c: &mut Criterion) {
    let mut group = c.benchmark_group("shard");
    group.throughput(Throughput::Elements(1));
    let mut server = Server::new();
    group.bench_function("turn of 256 requests", |b| {
        b.iter_custom(|count| {
            let turns = count.div_ceil(BLOCK_COMMANDS);
            let mut spent = Duration::ZERO;
            for _ in 0..turns {
                if server.turns == TURNS_MAX {
                    server = Server::new();
                }
                spent += server.requests();
            }
            spent.mul_f64(count as f64 / (turns * BLOCK_COMMANDS) as f64)
        });
    });
}

fn main() {
    common::run(&[turn]);
}

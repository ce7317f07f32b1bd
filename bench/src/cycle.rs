//! The `cycle` mix: every session acquires a key of its own, releases it, and takes the next.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;
use palisade_types::{Class, Key, Reply, RequestId, SessionId, SessionToken, Ticket};
use palisade_wire::{Push, Request, Wait};

use crate::Load;
use crate::connection::{BenchError, Connection, Said};

/// Renewals leave at least this often; the TTL is three times that.
const RENEW_SECONDS: u64 = 10;
/// The id of a renewal's request; sessions have theirs from 0.
const RENEWAL: RequestId = RequestId(u64::MAX);
/// The most sessions opened at once on a connection.
const OPEN_AT_ONCE: usize = 256;

/// What a run found.
pub(crate) struct Report {
    acquisitions: u64,
    seconds: f64,
    /// From the request to the grant, in microseconds.
    latency: Histogram<u64>,
    load: Load,
}

impl Report {
    fn quantiles(&self) -> [(&'static str, u64); 5] {
        let at = |q| self.latency.value_at_quantile(q);
        [
            ("p50", at(0.5)),
            ("p90", at(0.9)),
            ("p99", at(0.99)),
            ("p99.9", at(0.999)),
            ("max", self.latency.max()),
        ]
    }

    fn per_second(&self) -> f64 {
        self.acquisitions as f64 / self.seconds
    }

    /// One line of JSON.
    pub(crate) fn json(&self) -> String {
        let mut line = serde_json::json!({
            "mix": "cycle",
            "sessions": self.load.sessions,
            "connections": self.load.connections,
            "seconds": self.seconds,
            "acquisitions_per_s": self.per_second().round(),
        });
        for (name, micros) in self.quantiles() {
            line[format!("{name}_us")] = micros.into();
        }
        line.to_string()
    }

    /// A table for people.
    pub(crate) fn table(&self) -> String {
        let mut table = format!(
            "{:.0} acquisitions a second ({} sessions over {} connections, {:.1} s)\nacquire to grant:",
            self.per_second(),
            self.load.sessions,
            self.load.connections,
            self.seconds,
        );
        for (name, micros) in self.quantiles() {
            table.push_str(&format!(" {name} {micros} us"));
        }
        table
    }
}

/// Runs the load.
pub(crate) fn run(load: &Load) -> Result<Report, BenchError> {
    let leader = find_leader(&load.endpoints)?;
    let ready = Arc::new(Barrier::new(load.connections as usize));
    let run = u32::from_le_bytes(random()?);
    let workers: Vec<_> = (0..load.connections)
        .map(|n| {
            let (load, leader, ready) = (load.clone(), leader.clone(), ready.clone());
            let share = load.sessions / load.connections + u32::from(n < load.sessions % load.connections);
            thread::spawn(move || {
                Worker::start(&format!("bench-{run:08x}-{n}"), share, &leader, &load, &ready)?.run(&load)
            })
        })
        .collect();
    let mut latency = new_histogram();
    let mut acquisitions = 0;
    for worker in workers {
        let (count, histogram) = worker.join().map_err(|_| BenchError::Thread)??;
        acquisitions += count;
        // Both histograms have the same bounds.
        latency += histogram;
    }
    Ok(Report { acquisitions, seconds: load.duration().as_secs_f64(), latency, load: load.clone() })
}

/// Random bytes: tokens, and names that no other run uses.
fn random<const N: usize>() -> Result<[u8; N], BenchError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| BenchError::Protocol(e.to_string()))?;
    Ok(bytes)
}

fn find_leader(endpoints: &[String]) -> Result<String, BenchError> {
    for endpoint in endpoints {
        let Ok((_, hello)) = Connection::open(endpoint) else { continue };
        if let Some(member) = hello.members.iter().find(|m| Some(m.node) == hello.leader) {
            return Ok(member.address.clone());
        }
    }
    Err(BenchError::NoLeader(endpoints.to_vec()))
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order")
}

struct Member {
    session: SessionId,
    keys: Vec<Key>,
    turn: usize,
    ticket: u64,
    asked: Instant,
}

/// One connection and its sessions.
struct Worker {
    connection: Connection,
    members: Vec<Member>,
    renewed: Instant,
}

impl Worker {
    fn start(
        name: &str,
        share: u32,
        leader: &str,
        load: &Load,
        ready: &Barrier,
    ) -> Result<Worker, BenchError> {
        let opened = Connection::open(leader)
            .and_then(|(connection, _)| Worker::open_sessions(connection, name, share, load));
        // Whoever failed must not leave the others waiting.
        ready.wait();
        opened
    }

    fn open_sessions(
        mut connection: Connection,
        name: &str,
        share: u32,
        load: &Load,
    ) -> Result<Worker, BenchError> {
        let mut members = Vec::new();
        let mut said = Vec::new();
        let mut asked = 0;
        while members.len() < share as usize {
            while asked < share as usize && asked - members.len() < OPEN_AT_ONCE {
                let request = Request::OpenSession {
                    token: SessionToken(u128::from_le_bytes(random()?)),
                    ttl_ms: (RENEW_SECONDS * 3000) as u32,
                    owner: None,
                    incarnation: None,
                };
                connection.ask(RequestId(asked as u64), &request);
                asked += 1;
            }
            connection.flush()?;
            connection.listen(&mut said)?;
            for said in said.drain(..) {
                match said {
                    Said::Reply(_, Reply::Opened { session, .. }) => {
                        members.push(Member::new(session, name, members.len(), load.keys)?);
                    }
                    Said::Reply(_, Reply::Refused(refusal)) => return Err(refusal.into()),
                    _ => {}
                }
            }
        }
        Ok(Worker { connection, members, renewed: Instant::now() })
    }

    fn run(mut self, load: &Load) -> Result<(u64, Histogram<u64>), BenchError> {
        let mut latency = new_histogram();
        let mut count = 0;
        let begin = Instant::now() + load.warmup();
        let end = begin + load.duration();
        let mut said = Vec::new();
        for n in 0..self.members.len() {
            self.acquire(n);
        }
        self.connection.flush()?;
        loop {
            self.connection.listen(&mut said)?;
            let now = Instant::now();
            for said in said.drain(..) {
                match said {
                    Said::Reply(id, Reply::Granted { .. }) => {
                        if now >= begin {
                            count += 1;
                            let asked = self.members[id.0 as usize].asked;
                            latency.saturating_record(now.duration_since(asked).as_micros() as u64);
                        }
                        self.release(id.0 as usize);
                    }
                    Said::Reply(id, Reply::Finished { .. }) => self.acquire(id.0 as usize),
                    Said::Reply(RENEWAL, Reply::Renewed { refused }) => {
                        if let Some(refusal) = refused.into_iter().next() {
                            return Err(refusal.into());
                        }
                    }
                    Said::Reply(_, Reply::Refused(refusal)) => return Err(refusal.into()),
                    Said::Reply(_, Reply::Denied { .. }) => {
                        return Err(BenchError::Protocol(
                            "a key of this run alone is held by another".to_owned(),
                        ));
                    }
                    Said::Push(Push::LeaderChanged { .. }) => {
                        return Err(BenchError::Protocol("the leader changed during the run".to_owned()));
                    }
                    other => drop(other),
                }
            }
            if now >= end {
                self.close_sessions()?;
                return Ok((count, latency));
            }
            self.renew_if_due(now);
            self.connection.flush()?;
        }
    }

    /// What is still held goes with the sessions. Nobody waits for the answers.
    fn close_sessions(&mut self) -> Result<(), BenchError> {
        for n in 0..self.members.len() {
            let session = self.members[n].session;
            self.connection.ask(RequestId(n as u64), &Request::CloseSession { session });
        }
        self.connection.flush()
    }

    fn acquire(&mut self, n: usize) {
        let member = &mut self.members[n];
        member.turn += 1;
        member.ticket += 1;
        member.asked = Instant::now();
        let request = Request::Acquire {
            session: member.session,
            ticket: Ticket(member.ticket),
            key: member.keys[member.turn % member.keys.len()].clone(),
            class: Class::Advisory,
            resource: None,
            wait: Wait::No,
        };
        self.connection.ask(RequestId(n as u64), &request);
    }

    fn release(&mut self, n: usize) {
        let member = &self.members[n];
        let request = Request::Release { session: member.session, ticket: Ticket(member.ticket) };
        self.connection.ask(RequestId(n as u64), &request);
    }

    fn renew_if_due(&mut self, now: Instant) {
        if now.duration_since(self.renewed).as_secs() < RENEW_SECONDS {
            return;
        }
        self.renewed = now;
        for sessions in self.members.chunks(palisade_wire::RENEW_SESSIONS_MAX) {
            let sessions = sessions.iter().map(|m| m.session).collect();
            self.connection.ask(RENEWAL, &Request::Renew { sessions });
        }
    }
}

impl Member {
    fn new(session: SessionId, name: &str, n: usize, keys: u32) -> Result<Member, BenchError> {
        let keys = (0..keys.max(1))
            .map(|k| Key::new(&format!("{name}-{n}-{k}")))
            .collect::<Result<_, _>>()
            .map_err(|e| BenchError::Protocol(e.to_string()))?;
        Ok(Member { session, keys, turn: 0, ticket: 0, asked: Instant::now() })
    }
}

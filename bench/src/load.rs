//! `load`: a run against a cluster.

use std::time::Duration;

use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::fleet::{Fleet, Outcome};
use crate::hello;
use crate::host::Sampler;
use crate::observer::{self, Observer, Seen, Watch};
use crate::options::{LoadOptions, Target};
use crate::pace::{Clock, Pacer};
use crate::poller::Poller;
use crate::report::{Report, host};
use crate::work::Measured;

/// How long the leader is looked for at the start.
const FIND_TIME: Duration = Duration::from_secs(5);
/// How long it is looked for when it was lost.
const RECOVERY_TIME: Duration = Duration::from_secs(60);

/// Does the work and reports what it found. Call from the main thread: a cluster started for the run
/// ends with the thread that started it.
pub(crate) fn run(options: &LoadOptions) -> Result<Report, BenchError> {
    options.check()?;
    let cluster = start_cluster(&options.target)?;
    let endpoints = cluster.as_ref().map_or(&options.target.endpoints, |c| &c.endpoints);
    let sampler = match &cluster {
        Some(cluster) => Sampler::children_of(cluster.keeper()),
        None => Sampler::new(&options.target.pids),
    };
    let mut run = Run::start(options, endpoints)?;
    let seen = run.measure(options, sampler)?;
    let nodes = run.nodes.len();
    let outcome = run.close()?;
    Ok(report(options, nodes, seen, outcome))
}

fn start_cluster(target: &Target) -> Result<Option<Cluster>, BenchError> {
    let Some(nodes) = target.nodes else { return Ok(None) };
    let palisade = cluster::palisade_path(target.palisade.as_deref())?;
    match &target.dir {
        Some(dir) => Cluster::start(nodes, dir, target.port, &palisade).map(Some),
        None => Cluster::start_in_scratch(nodes, target.port, &palisade).map(Some),
    }
}

fn report(options: &LoadOptions, nodes: usize, seen: Seen, outcome: Outcome) -> Report {
    let work = options.work();
    let measured = Measured {
        operations: outcome.operations,
        seconds: work.duration.as_secs_f64(),
        latency: outcome.latency,
    };
    Report {
        work,
        rate: options.rate,
        nodes,
        measured,
        usage: seen.usage,
        cluster: seen.cluster,
        errors: outcome.errors,
        backlog: outcome.backlog,
        grants_judged: outcome.grants_judged,
        recoveries: outcome.recoveries,
        host: host(),
    }
}

/// Random bits: names and tokens that no other run uses.
fn seed() -> Result<u64, BenchError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| BenchError::Protocol(e.to_string()))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Sessions at work on a cluster.
struct Run {
    clock: Clock,
    poller: Poller,
    fleet: Fleet,
    /// The addresses of all nodes.
    nodes: Vec<String>,
    connections: u32,
}

impl Run {
    /// Connects and opens the sessions.
    fn start(options: &LoadOptions, endpoints: &[String]) -> Result<Run, BenchError> {
        let clock = Clock::start();
        let (poller, leader) = hello::connect(endpoints, options.connections, clock, FIND_TIME)?;
        let fleet = Fleet::new(options, seed()?, clock.now())?;
        let mut run = Run { clock, poller, fleet, nodes: leader.members, connections: options.connections };
        run.fleet.open(run.clock.now(), &mut run.poller.out);
        run.drive()?;
        Ok(run)
    }

    /// Warms up, and counts what ends in the window.
    fn measure(&mut self, options: &LoadOptions, sampler: Sampler) -> Result<Seen, BenchError> {
        let now = self.clock.now();
        let begin = now + options.warmup.as_nanos() as u64;
        let end = begin + options.duration.as_nanos() as u64;
        let pacer = match options.rate {
            Some(rate) => Pacer::open(rate, options.tick_us * 1_000, options.connections, now),
            None => Pacer::closed(),
        };
        let observer = Observer::start(Watch {
            begin: self.clock.instant(begin),
            end: self.clock.instant(end),
            sampler,
            nodes: self.nodes.clone(),
            operations: self.fleet.meter().shared(),
            progress: options.progress || observer::on_a_terminal(),
        });
        self.fleet.begin(pacer, (begin, end), now, &mut self.poller.out);
        self.drive()?;
        observer.finish()
    }

    fn close(mut self) -> Result<Outcome, BenchError> {
        self.fleet.close(self.clock.now(), &mut self.poller.out);
        match self.poller.drive(&mut self.fleet) {
            // The work is done: sessions that cannot be closed expire.
            Ok(()) | Err(BenchError::Lost(_)) => Ok(self.fleet.into_outcome()),
            Err(error) => Err(error),
        }
    }

    /// Goes on until the sessions have nothing more to do in this part of the run.
    fn drive(&mut self) -> Result<(), BenchError> {
        loop {
            let why = match self.poller.drive(&mut self.fleet) {
                Err(BenchError::Lost(why)) if self.fleet.survives() => why,
                end => return end,
            };
            eprintln!("palisade-bench: {why}: connecting anew");
            let (poller, leader) = hello::connect(&self.nodes, self.connections, self.clock, RECOVERY_TIME)?;
            self.poller = poller;
            eprintln!("palisade-bench: {} leads", leader.address);
            self.fleet.reconnected(self.clock.now(), &mut self.poller.out);
        }
    }
}

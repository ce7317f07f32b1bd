//! Palisade beside its peers on one machine: one system at a time, fresh servers in every round, and the
//! order of the systems turned from round to round.

#[cfg(feature = "peers")]
mod peer;
#[cfg(not(feature = "peers"))]
#[path = "peer_absent.rs"]
mod peer;
mod results;
mod systems;
mod table;
mod works;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cluster;
use crate::error::BenchError;
use crate::host::Usage;
use crate::told::Told;
use crate::work::Measured;
use results::{Row, Telling};
use systems::{Palisade, System, SystemError};
use works::{Arrangement, PRESETS, Preset, Task};

pub(crate) use works::Peer;

/// What `compare` does.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompareOptions {
    /// The systems beside Palisade. One that cannot be measured here is named and skipped.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "etcd,zookeeper,redis")]
    peers: Vec<Peer>,
    /// Where the peers are unpacked: see bench/peers.md.
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    /// Palisade's server [default: palisade beside this executable].
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
    /// Palisade's node i listens on this port plus i.
    #[arg(long, default_value_t = 7900)]
    port: u16,
    /// Where all servers keep their data while they run: on a disk [default: in the user's cache].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The works by name, such as cycle-1000x4 [default: all but session-32 and renew-256].
    #[arg(long, value_delimiter = ',', value_parser = works::parse)]
    works: Vec<&'static Preset>,
    /// In each round every system starts afresh and does every work.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each work before anything is counted.
    #[arg(long, default_value_t = 2)]
    warmup: u64,
    /// Seconds of each work that are counted.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    duration: u64,
    /// Writes one line of JSON for each system, work and round to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the rounds and prints the tables.
pub(crate) fn run(options: &CompareOptions) -> Result<(), BenchError> {
    let program = cluster::palisade_path(options.palisade.as_deref())?;
    let mut systems: Vec<Box<dyn System>> = vec![Box::new(Palisade { program, port: options.port })];
    for peer in &options.peers {
        match systems::find(*peer, options.peers_dir.as_deref()) {
            Ok(system) => systems.push(system),
            Err(why) => println!("skipped: {why}"),
        }
    }
    let mut comparison = Comparison::new(options)?;
    let done = comparison.run(&systems, options.rounds);
    if options.dir.is_none() {
        // It is empty by now; if it is not, nothing is lost.
        let _ = fs::remove_dir(&comparison.dir);
    }
    done
}

/// The order of a round: each system comes first in turn.
fn order(systems: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..systems).map(move |n| (n + round as usize - 1) % systems)
}

/// The rounds so far.
struct Comparison {
    dir: PathBuf,
    warmup: Duration,
    duration: Duration,
    works: Vec<&'static Preset>,
    json: Option<(File, PathBuf)>,
    rows: Vec<Row>,
    failed: u32,
}

impl Comparison {
    fn new(options: &CompareOptions) -> Result<Comparison, BenchError> {
        let dir = options.dir.clone().map_or_else(cluster::scratch_dir, Ok)?;
        let json = match &options.json {
            Some(path) => {
                let file = File::create(path).map_err(|e| BenchError::io(path.display(), e))?;
                Some((file, path.clone()))
            }
            None => None,
        };
        Ok(Comparison {
            dir,
            warmup: Duration::from_secs(options.warmup),
            duration: Duration::from_secs(options.duration),
            works: if options.works.is_empty() { PRESETS.iter().collect() } else { options.works.clone() },
            json,
            rows: Vec::new(),
            failed: 0,
        })
    }

    fn run(&mut self, systems: &[Box<dyn System>], rounds: u32) -> Result<(), BenchError> {
        for round in 1..=rounds {
            for n in order(systems.len(), round) {
                self.measure(systems[n].as_ref(), round)?;
            }
        }
        println!("{}", table::render(&self.rows));
        match self.failed {
            0 => Ok(()),
            failed => Err(BenchError::Failed(failed)),
        }
    }

    /// One system's part of a round, on a directory of its own that is removed afterwards. What fails
    /// is told and counted, and the rest goes on; but a broken promise ends everything.
    fn measure(&mut self, system: &dyn System, round: u32) -> Result<(), BenchError> {
        println!("round {round}: {} {}", system.name(), system.version());
        let dir = self.dir.join(format!("compare-{}-{round}-{}", std::process::id(), system.name()));
        let done = self.measure_in(dir.clone(), system, round);
        // Data left behind costs room, and is no reason to fail a run that is done.
        let _ = fs::remove_dir_all(&dir);
        done
    }

    fn measure_in(&mut self, dir: PathBuf, system: &dyn System, round: u32) -> Result<(), BenchError> {
        let mut running = match system.start(dir) {
            Ok(running) => running,
            Err(error) => return self.fail(system, "start", error),
        };
        for preset in self.works.clone() {
            let arrangements = match preset.plan(system.peer()) {
                Ok(arrangements) => arrangements,
                Err(why) => {
                    println!("  {:<14} skipped: {why}", preset.name);
                    continue;
                }
            };
            for at in arrangements {
                let done = match preset.task(self.warmup, self.duration) {
                    Task::Work(work) => running
                        .measure(&work, *at)
                        .map(|(measured, usage)| row(system, preset, *at, round, &measured, &usage)),
                    Task::Watch(watching) => running.watch(&watching, *at).map(|(told, usage)| {
                        let row = row(system, preset, *at, round, &events(&told, &usage), &usage);
                        Row { telling: Some(Telling::of(&told)), ..row }
                    }),
                };
                match done {
                    Ok(row) => self.note(row)?,
                    Err(error) => self.fail(system, preset.name, error)?,
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, system: &dyn System, what: &str, error: SystemError) -> Result<(), BenchError> {
        if let SystemError::Bench(violation @ BenchError::Violation(_)) = error {
            return Err(violation);
        }
        eprintln!("palisade-bench: {}, {what}: {error}", system.name());
        self.failed += 1;
        Ok(())
    }

    fn note(&mut self, row: Row) -> Result<(), BenchError> {
        println!(
            "  {:<14} {:<10} {:>8.0}/s  p50 {} us  p99 {} us  servers {:.1} us/op  others {:.2} cores  \
             stolen {:.2}{}{}",
            row.work,
            row.arrangement.name(),
            row.operations_per_s,
            row.p50_us,
            row.p99_us,
            row.server_cpu_us_per_op,
            row.others_cores,
            row.steal_cores,
            row.telling.as_ref().map_or_else(String::new, Telling::text),
            if row.counts() { "" } else { ": not counted" },
        );
        if let Some((file, path)) = &mut self.json {
            writeln!(file, "{}", row.json()).map_err(|e| BenchError::io(path.display(), e))?;
        }
        self.rows.push(row);
        Ok(())
    }
}

/// What watchers were told, as operations: an event each, from when its change was due.
fn events(told: &Told, usage: &Usage) -> Measured {
    Measured { operations: told.events, seconds: usage.seconds, latency: told.delays.clone() }
}

/// What a run found, as a row. Where the machine does not say who used it, the row counts as disturbed.
fn row(
    system: &dyn System,
    preset: &Preset,
    arrangement: Arrangement,
    round: u32,
    measured: &Measured,
    usage: &Usage,
) -> Row {
    let per_operation = |seconds: f64| seconds * 1e6 / measured.operations as f64;
    Row {
        system: system.name(),
        version: system.version().to_owned(),
        arrangement,
        work: preset.name,
        round,
        operations_per_s: measured.operations as f64 / measured.seconds,
        p50_us: measured.latency.value_at_quantile(0.5),
        p99_us: measured.latency.value_at_quantile(0.99),
        server_cpu_us_per_op: per_operation(usage.servers.unwrap_or(f64::NAN)),
        own_cpu_us_per_op: per_operation(usage.own),
        others_cores: usage.others_cores().unwrap_or(f64::INFINITY),
        steal_cores: usage.steal_cores(),
        telling: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_comes_first_in_turn() {
        let orders: Vec<Vec<_>> = (1..=4).map(|round| order(3, round).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }

    #[test]
    fn a_peer_that_cannot_be_measured_is_named() {
        let nowhere = PathBuf::from("/nonexistent");
        let why = systems::find(Peer::Etcd, Some(&nowhere)).map(|s| s.name()).unwrap_err();
        assert!(why.starts_with("etcd: not "), "{why}");
    }
}

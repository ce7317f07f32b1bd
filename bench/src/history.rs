//! `record`: the standard works on a cluster of this commit, as one line for `bench/history`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::error::BenchError;
use crate::load;
use crate::options::LoadOptions;
use crate::report::host;
use crate::work::{Mix, Work};

/// What `record` does.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordOptions {
    /// The file the line is added to.
    #[arg(long, value_name = "FILE", default_value = "bench/history/measured.jsonl")]
    file: PathBuf,
    /// Times each work is measured; the median by rate is kept.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How many nodes.
    #[arg(long, default_value_t = 3)]
    nodes: u32,
    /// The server's executable [default: palisade beside this one].
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
    /// Node i listens on this port plus i.
    #[arg(long, default_value_t = 7900)]
    port: u16,
}

/// A work of every line.
struct Standard {
    name: &'static str,
    mix: Mix,
    sessions: u32,
    connections: u32,
    rate: Option<u64>,
}

const fn work(name: &'static str, mix: Mix, sessions: u32, connections: u32, rate: Option<u64>) -> Standard {
    Standard { name, mix, sessions, connections, rate }
}

const STANDARD: [Standard; 9] = [
    work("cycle-1000x4", Mix::Cycle, 1000, 4, None),
    work("cycle-1000x4-at-50k", Mix::Cycle, 1000, 4, Some(50_000)),
    work("cycle-1000x4-at-100k", Mix::Cycle, 1000, 4, Some(100_000)),
    work("cycle-1000", Mix::Cycle, 1000, 1000, None),
    work("cycle-64", Mix::Cycle, 64, 64, None),
    work("contend-32", Mix::Contend, 32, 32, None),
    work("read-256", Mix::Read, 256, 256, None),
    work("read-256x4", Mix::Read, 256, 4, None),
    work("solo", Mix::Cycle, 1, 1, None),
];

/// What is kept of a measurement.
const KEPT: [&str; 7] = [
    "operations_per_s",
    "p50_us",
    "p99_us",
    "server_cpu_us_per_op",
    "client_cpu_us_per_op",
    "fsyncs_per_op",
    "others_cores",
];

/// Measures, and adds the line to the file.
pub(crate) fn run(options: &RecordOptions) -> Result<(), BenchError> {
    let mut works = Map::new();
    for standard in &STANDARD {
        let mut rounds = Vec::new();
        for _ in 0..options.rounds.max(1) {
            rounds.push(measure(options, standard)?);
        }
        let median = median(rounds);
        eprintln!("{}: {median}", standard.name);
        works.insert(standard.name.to_owned(), median);
    }
    let line = json!({
        "commit": git(&["rev-parse", "--short=12", "HEAD"]),
        "committed": git(&["show", "-s", "--format=%cI", "HEAD"]),
        "changed": git(&["status", "--porcelain", "--untracked-files=no"]).map(|s| !s.is_empty()),
        "nodes": options.nodes,
        "rounds": options.rounds,
        "host": host(),
        "works": works,
    });
    let file = || options.file.display();
    let mut out = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&options.file)
        .map_err(|e| BenchError::io(file(), e))?;
    writeln!(out, "{line}").map_err(|e| BenchError::io(file(), e))
}

fn measure(options: &RecordOptions, standard: &Standard) -> Result<Value, BenchError> {
    let work = Work {
        mix: standard.mix,
        sessions: standard.sessions,
        connections: standard.connections,
        warmup: Duration::from_secs(2),
        duration: Duration::from_secs(options.seconds.max(1)),
    };
    let mut load = LoadOptions::of(&work, &[], &[]);
    load.rate = standard.rate;
    load.target.nodes = Some(options.nodes);
    load.target.port = options.port;
    load.target.palisade.clone_from(&options.palisade);
    Ok(kept(&load::run(&load)?.to_json()))
}

fn kept(report: &Value) -> Value {
    KEPT.iter().map(|&name| (name.to_owned(), report[name].clone())).collect::<Map<_, _>>().into()
}

/// The measurement in the middle when they are ordered by rate.
fn median(mut rounds: Vec<Value>) -> Value {
    let rate = |round: &Value| round["operations_per_s"].as_f64().unwrap_or(0.0);
    rounds.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    let middle = rounds.len() / 2;
    rounds.swap_remove(middle)
}

/// What git says; `None` outside a clone.
fn git(arguments: &[&str]) -> Option<String> {
    let out = Command::new("git").args(arguments).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_round_is_kept_with_what_a_line_holds() {
        let round = |rate: f64| kept(&json!({"operations_per_s": rate, "p50_us": 7, "mix": "cycle"}));
        let median = median(vec![round(3.0), round(1.0), round(2.0)]);
        assert_eq!((&median["operations_per_s"], &median["p50_us"]), (&json!(2.0), &json!(7)));
        assert!(median.get("mix").is_none());
        assert_eq!(median["fsyncs_per_op"], Value::Null);
    }

    #[test]
    fn works_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = STANDARD.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), STANDARD.len());
    }
}

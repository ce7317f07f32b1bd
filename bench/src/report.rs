//! What a run found, for people and for programs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::host::Usage;
use crate::scrape::ClusterWork;
use crate::work::{Measured, Mix, Work};

/// What a run found.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// What was to be done.
    pub(crate) work: Work,
    /// Operations a second that were to begin; `None`: as fast as the answers came.
    pub(crate) rate: Option<u64>,
    /// How many nodes the cluster has.
    pub(crate) nodes: usize,
    /// What was done, and how long it took.
    pub(crate) measured: Measured,
    /// Who used the CPU.
    pub(crate) usage: Usage,
    /// What the nodes counted; `None` when they could not be asked.
    pub(crate) cluster: Option<ClusterWork>,
    /// Requests the server put off (busy) or that had to be repeated, in the whole run.
    pub(crate) errors: u64,
    /// Operations that were due at the end and not begun.
    pub(crate) backlog: u64,
    /// Grants judged by the ledger, in the whole run.
    pub(crate) grants_judged: u64,
    /// Times the leader or a connection was lost.
    pub(crate) recoveries: u64,
    /// The machine, in short.
    pub(crate) host: String,
}

/// This machine in one line, as `palisade doctor` sees it. The disk is not measured: a run has used it.
pub(crate) fn host() -> String {
    let options = palisade_tuning::Options { measure_disk: false, iterations: 1 };
    palisade_tuning::examine(Path::new("."), options).short()
}

/// The names of a run's latencies, and the share of operations at or below each.
const QUANTILES: [(&str, f64); 4] = [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999)];

impl Report {
    fn operations_per_s(&self) -> f64 {
        self.measured.operations as f64 / self.measured.seconds
    }

    fn acquires(&self) -> bool {
        matches!(self.work.mix, Mix::Cycle | Mix::Contend)
    }

    /// A total of the window, for each operation of it.
    fn per_operation(&self, total: f64) -> Option<f64> {
        (self.measured.operations > 0).then(|| total / self.measured.operations as f64)
    }

    /// CPU seconds as microseconds an operation.
    fn us_per_operation(&self, seconds: f64) -> Option<f64> {
        self.per_operation(seconds * 1e6)
    }

    fn counted(&self, field: impl Fn(&ClusterWork) -> u64) -> Option<f64> {
        self.per_operation(field(self.cluster.as_ref()?) as f64)
    }

    fn server_us(&self) -> Option<f64> {
        self.us_per_operation(self.usage.servers?)
    }

    /// One line of JSON. What is unknown is null.
    pub(crate) fn json(&self) -> String {
        self.to_json().to_string()
    }

    /// The same, not yet text.
    pub(crate) fn to_json(&self) -> Value {
        let work = &self.work;
        let per_s = self.operations_per_s().round();
        let latency = &self.measured.latency;
        let mut line = json!({
            "mix": mix_name(work.mix),
            "sessions": work.sessions,
            "connections": work.connections,
            "nodes": self.nodes,
            "rate": self.rate,
            "warmup": rounded(Some(work.warmup.as_secs_f64())),
            "seconds": rounded(Some(self.measured.seconds)),
            "operations": self.measured.operations,
            "operations_per_s": per_s,
            "acquisitions_per_s": self.acquires().then_some(per_s),
            "max_us": latency.max(),
            "server_cpu_us_per_op": rounded(self.server_us()),
            "client_cpu_us_per_op": rounded(self.us_per_operation(self.usage.own)),
            "kernel_cpu_us_per_op": rounded(self.us_per_operation(self.usage.kernel)),
            "bytes_per_op": rounded(self.counted(|c| c.synced_bytes)),
            "fsyncs_per_op": rounded(self.counted(|c| c.syncs)),
            "entries_per_op": rounded(self.counted(|c| c.entries)),
            "blocks_per_op": rounded(self.counted(|c| c.blocks)),
            "others_cores": rounded(self.usage.others_cores()),
            "steal_cores": rounded(Some(self.usage.steal_cores())),
            "errors": self.errors,
            "backlog": self.backlog,
            "recoveries": self.recoveries,
            "grants_judged": self.grants_judged,
            "host": self.host,
        });
        for (name, quantile) in QUANTILES {
            line[name] = latency.value_at_quantile(quantile).into();
        }
        line
    }

    /// A table for people.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        let work = &self.work;
        let pace = self.rate.map_or("closed loop".to_owned(), |rate| format!("{rate}/s asked"));
        row(&mut table, "mix", &format!("{}, {pace}", mix_name(work.mix)));
        row(
            &mut table,
            "load",
            &format!(
                "{} sessions, {} connections, {} nodes, {:.1} s",
                work.sessions, work.connections, self.nodes, self.measured.seconds
            ),
        );
        let what = if self.acquires() { "acquisitions/s" } else { "operations/s" };
        row(&mut table, what, &format!("{:.0}", self.operations_per_s()));
        let latency = &self.measured.latency;
        let mut line = String::new();
        for (name, quantile) in QUANTILES {
            let name = name.trim_end_matches("_us").replace("p999", "p99.9");
            // Writing to a String cannot fail.
            let _ = write!(line, "{name} {}  ", latency.value_at_quantile(quantile));
        }
        row(&mut table, "latency us", &format!("{line}max {}", latency.max()));
        row(
            &mut table,
            "CPU us/op",
            &format!(
                "servers {}  generator {}  kernel threads {}",
                shown(self.server_us()),
                shown(self.us_per_operation(self.usage.own)),
                shown(self.us_per_operation(self.usage.kernel)),
            ),
        );
        row(
            &mut table,
            "cores",
            &format!(
                "others {}  stolen {}",
                shown(self.usage.others_cores()),
                shown(Some(self.usage.steal_cores()))
            ),
        );
        row(
            &mut table,
            "log, per op",
            &format!(
                "fsyncs {}  bytes {} (all nodes)  entries {}",
                shown(self.counted(|c| c.syncs)),
                shown(self.counted(|c| c.synced_bytes)),
                shown(self.counted(|c| c.entries)),
            ),
        );
        row(
            &mut table,
            "errors",
            &format!("{}  left waiting {}  recoveries {}", self.errors, self.backlog, self.recoveries),
        );
        row(&mut table, "host", &self.host);
        table.truncate(table.trim_end().len());
        table
    }

    /// Writes the distribution of latencies as text: a line for each step, with its upper end in
    /// microseconds, the share of operations at or below it, and how many those are.
    pub(crate) fn write_histogram(&self, path: &Path) -> Result<(), BenchError> {
        fs::write(path, percentiles(&self.measured.latency)).map_err(|e| BenchError::io(path.display(), e))
    }
}

/// The name of a mix on the command line.
fn mix_name(mix: Mix) -> String {
    mix.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

fn percentiles(histogram: &Histogram<u64>) -> String {
    let mut text = format!(
        "# latency in microseconds, {} operations, mean {:.1}, max {}\n# us quantile count_to_here\n",
        histogram.len(),
        histogram.mean(),
        histogram.max()
    );
    let mut sum = 0;
    for step in histogram.iter_quantiles(5) {
        sum += step.count_since_last_iteration();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {:.6} {sum}", step.value_iterated_to(), step.quantile());
    }
    text
}

fn row(table: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(table, "{name:<15} {value}");
}

/// Four digits behind the point are more than any of these figures is good for.
fn rounded(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |v| ((v * 1e4).round() / 1e4).into())
}

fn shown(value: Option<f64>) -> String {
    match value {
        None => "unknown".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::new_histogram;
    use std::time::Duration;

    fn report() -> Report {
        let mut latency = new_histogram();
        for micros in 1..=1000 {
            latency.record(micros).unwrap();
        }
        Report {
            work: Work {
                mix: Mix::Cycle,
                sessions: 10,
                connections: 2,
                warmup: Duration::ZERO,
                duration: Duration::from_secs(2),
            },
            rate: Some(500),
            nodes: 3,
            measured: Measured { operations: 1000, seconds: 2.0, latency },
            usage: Usage {
                seconds: 2.0,
                servers: Some(0.01),
                own: 0.002,
                kernel: 0.001,
                busy: 0.02,
                steal: 0.0,
            },
            cluster: Some(ClusterWork { syncs: 30, synced_bytes: 160_000, entries: 2000, blocks: 10 }),
            errors: 1,
            backlog: 0,
            grants_judged: 1000,
            recoveries: 0,
            host: "a machine".to_owned(),
        }
    }

    #[test]
    fn json_has_all_fields_on_one_line() {
        let text = report().json();
        assert!(!text.contains('\n'));
        let json: Value = serde_json::from_str(&text).unwrap();
        for (field, expected) in [
            ("mix", json!("cycle")),
            ("sessions", json!(10)),
            ("connections", json!(2)),
            ("nodes", json!(3)),
            ("rate", json!(500)),
            ("seconds", json!(2.0)),
            ("operations_per_s", json!(500.0)),
            ("acquisitions_per_s", json!(500.0)),
            ("p50_us", json!(500)),
            ("p90_us", json!(900)),
            ("p99_us", json!(990)),
            ("p999_us", json!(999)),
            ("max_us", json!(1000)),
            ("server_cpu_us_per_op", json!(10.0)),
            ("client_cpu_us_per_op", json!(2.0)),
            ("kernel_cpu_us_per_op", json!(1.0)),
            ("bytes_per_op", json!(160.0)),
            ("fsyncs_per_op", json!(0.03)),
            ("entries_per_op", json!(2.0)),
            ("others_cores", json!(0.0035)),
            ("steal_cores", json!(0.0)),
            ("errors", json!(1)),
            ("host", json!("a machine")),
        ] {
            assert_eq!(json.get(field), Some(&expected), "{field}");
        }
    }

    #[test]
    fn what_is_unknown_is_null() {
        let mut report = report();
        report.usage.servers = None;
        report.cluster = None;
        report.work.mix = Mix::Read;
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        for field in [
            "acquisitions_per_s",
            "server_cpu_us_per_op",
            "others_cores",
            "fsyncs_per_op",
            "bytes_per_op",
            "entries_per_op",
        ] {
            assert_eq!(json.get(field), Some(&Value::Null), "{field}");
        }
        assert!(report.table().contains("unknown"));
    }

    #[test]
    fn the_histogram_ends_with_all_operations() {
        let text = percentiles(&report().measured.latency);
        assert!(text.ends_with("1000 1.000000 1000\n"), "{text}");
    }
}

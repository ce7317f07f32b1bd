//! Scripted scenarios: each file in `tests/data` holds commands and, after `----`, what happens.
//! `UPDATE=1 cargo test -p palisade-raft` writes what happens now; read the difference before it
//! is committed.
//!
//! ```text
//! cluster LOG...          nodes 1..n; a log is the terms of its blocks (1,1,2) or -; also
//!                         inflight=N append_bytes=N
//! elapse MS               time passes, nobody notices
//! tick ID                 a node does what is due
//! ready ID                a node hands out its work
//! persist ID [COUNT]      its disk finishes all, or the oldest COUNT
//! deliver FROM TO         everything under way on that link arrives
//! drop FROM TO            everything under way on that link is lost
//! propose ID TEXT, round ID, restart ID
//! settle ID...            all of the above among these nodes until nothing moves
//! run MS ID...            the same while time passes
//! status                  every node in a line
//! ```
//! `quiet` before a command shows only its outcome.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use palisade_types::Time;

use crate::cluster::Cluster;

struct Script {
    cluster: Cluster,
}

fn number(word: &str) -> u32 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn numbers(words: &[&str]) -> Vec<u32> {
    words.iter().map(|w| number(w)).collect()
}

impl Script {
    fn cluster(words: &[&str]) -> Cluster {
        let (options, logs): (Vec<&str>, Vec<&str>) = words.iter().partition(|w| w.contains('='));
        let logs: Vec<Vec<u64>> =
            logs.iter().map(|log| log.split(',').filter_map(|t| t.parse().ok()).collect()).collect();
        let logs: Vec<&[u64]> = logs.iter().map(Vec::as_slice).collect();
        Cluster::with_logs(&logs, 1, |config| {
            for option in &options {
                let (key, value) = option.split_once('=').expect("an option has a value");
                match key {
                    "inflight" => config.inflight_messages_max = number(value) as usize,
                    "append_bytes" => config.append_bytes_max = number(value) as usize,
                    _ => panic!("no option {key}"),
                }
            }
        })
    }

    /// Executes a command; what it answers, besides what the nodes do.
    fn execute(&mut self, words: &[&str]) -> Result<(), String> {
        let c = &mut self.cluster;
        match *words {
            ["cluster", ref rest @ ..] => *c = Script::cluster(rest),
            ["elapse", ms] => c.now = Time(c.now.0 + u64::from(number(ms)) * 1_000_000),
            ["tick", id] => c.tick(number(id)),
            ["ready", id] => drop(c.ready(number(id))),
            ["persist", id] => drop(c.persist(number(id), usize::MAX)),
            ["persist", id, count] => drop(c.persist(number(id), number(count) as usize)),
            ["deliver", from, to] => {
                for packet in c.take_packets(Some(number(from)), Some(number(to))) {
                    c.deliver(packet);
                }
            }
            ["drop", from, to] => drop(c.take_packets(Some(number(from)), Some(number(to)))),
            ["propose", id, text] => drop(c.propose(number(id), text).map_err(|e| format!("{e:?}"))?),
            ["round", id] => {
                let round = c.round(number(id)).map_err(|e| format!("{e:?}"))?;
                let (term, counter) = (round.id.term, round.id.counter);
                c.trace.push(format!("  round {term}.{counter} read index {}", round.read_index));
            }
            ["restart", id] => c.restart(number(id)),
            ["settle", ref ids @ ..] => c.settle(&numbers(ids)),
            ["run", ms, ref ids @ ..] => c.run(&numbers(ids), u64::from(number(ms))),
            ["status"] => self.status(),
            _ => panic!("no command {words:?}"),
        }
        Ok(())
    }

    fn status(&mut self) {
        for id in self.cluster.ids() {
            let s = self.cluster.status(id);
            let vote = s.vote.map_or_else(|| "none".into(), |v| v.to_string());
            let mut line = format!("  {id} {:?} term {} vote {vote} ", s.role, s.term);
            let _ = write!(line, "last {}@{} durable {} commit {}", s.last, s.last_term, s.durable, s.commit);
            for v in &s.voters {
                let _ = write!(line, "; {} match {} next {} {:?}", v.node, v.match_index, v.next, v.state);
            }
            self.cluster.trace.push(line);
        }
    }

    fn run(text: &str) -> String {
        let mut script = Script { cluster: Cluster::new(1) };
        let mut out = String::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line.starts_with('#') || line.trim().is_empty() {
                out += &format!("{line}\n");
                continue;
            }
            if line == "----" {
                // What was expected before: up to the next empty line.
                while lines.peek().is_some_and(|l| !l.trim().is_empty()) {
                    lines.next();
                }
                continue;
            }
            out += &format!("{line}\n");
            let mut words: Vec<&str> = line.split_whitespace().collect();
            let quiet = words[0] == "quiet";
            if quiet {
                words.remove(0);
            }
            let before = script.cluster.trace.len();
            let outcome = script.execute(&words);
            let trace = script.cluster.trace.split_off(before.min(script.cluster.trace.len()));
            if lines.peek() == Some(&"----") {
                out += "----\n";
            }
            if let Err(refusal) = outcome {
                out += &format!("  {refusal}\n");
            }
            if !quiet {
                trace.iter().for_each(|l| out += &format!("{l}\n"));
            }
        }
        out
    }
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut all: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder of scenarios")
        .map(|entry| entry.expect("an entry of the folder").path())
        .collect();
    all.sort();
    all
}

#[test]
fn scripted_scenarios_happen_as_written() {
    let scripts = scripts();
    assert!(scripts.len() >= 9, "the scenarios are there");
    for path in scripts {
        let expected = fs::read_to_string(&path).unwrap();
        let happened = Script::run(&expected);
        if happened == expected {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, happened).unwrap();
            continue;
        }
        let differs = happened.lines().zip(expected.lines()).position(|(a, b)| a != b);
        let at = differs.unwrap_or(happened.lines().count().min(expected.lines().count()));
        panic!(
            "{}, line {}: expected\n{}\nbut what happens is\n{}",
            path.display(),
            at + 1,
            expected.lines().nth(at).unwrap_or("the end"),
            happened.lines().nth(at).unwrap_or("the end")
        );
    }
}

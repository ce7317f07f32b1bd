//! `palisade check` inside commands that hold something: held, lost, and what it cannot know.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Cluster, Finished, Process, finish, one_cluster, palisade};

const BINARY: &str = env!("CARGO_BIN_EXE_palisade");
/// Checks once for every line of a file that grows, and prints what came of it; ends when the file is gone.
const CHECKS: &str = "trap '' TERM; echo up; n=0; while :; do \
    m=$(wc -l < \"$1\") || exit; \
    if [ $n -lt $m ]; then n=$((n+1)); out=$(\"$0\" --timeout 2s check --remaining 2>&1); echo $? $out; \
    else sleep 0.02; fi; done";

/// A command under a lock that checks whenever it is asked.
struct Checker {
    process: Process,
    asked: std::path::PathBuf,
}

impl Checker {
    fn start(cluster: &Cluster, lock: &[&str]) -> Checker {
        let asked = cluster.path("asked");
        std::fs::write(&asked, "").expect("a file");
        let mut command = cluster.command(lock);
        command.args(["--", "sh", "-c", CHECKS, BINARY]).arg(&asked);
        let mut process = Process::start(&mut command);
        assert_eq!(process.line(), "up");
        Checker { process, asked }
    }

    /// The status of a check, and what it said.
    fn check(&mut self) -> (String, String) {
        let before = std::fs::read_to_string(&self.asked).expect("the file");
        std::fs::write(&self.asked, before + "\n").expect("the file");
        let line = self.process.line();
        let (status, said) = line.split_once(' ').expect("a status and what was said");
        (status.to_owned(), said.to_owned())
    }
}

fn inside(cluster: &Cluster, wrapper: &[&str], script: &str) -> Finished {
    finish(cluster.command(wrapper).args(["--", "sh", "-c", script, BINARY]))
}

#[test]
fn inside_a_command_it_says_what_is_held_and_how_much_is_left() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let script = "\"$0\" check && \"$0\" --json check && \"$0\" check --remaining";
    for wrapper in [
        &["lock", "--advisory", "--ttl", "60s", "k"][..],
        &["lock", "-s", "--resource", "db", "--ttl", "60s", "shared"],
        &["elect", "e", "--value", "v", "--ttl", "60s"],
        &["put", "--ttl", "60s", "svc/a", "v"],
    ] {
        let end = inside(&cluster, wrapper, script);
        assert_eq!(end.code, Some(0), "{wrapper:?}: {}", end.stderr);
        let (json, left) = end.stdout.split_once('\n').expect("a check that is not asked says nothing");
        let seen: Value = serde_json::from_str(json).expect("JSON");
        let ms = seen["remaining_ms"].as_u64().expect("a number");
        assert!(seen["held"] == true && (1..=59_000).contains(&ms), "{json}");
        assert_eq!(seen["epoch"].is_null(), wrapper[0] == "put", "{json}");
        let seconds: f64 =
            left.strip_suffix('s').and_then(|s| s.parse().ok()).expect("as timeout(1) reads it");
        assert!(seconds > 0.0 && seconds <= 59.0, "{left}");
    }
    // Each says of the innermost, and of that alone.
    let nested = "\"$0\" lock --advisory inner -- sh -c '\"$0\" --json check' \"$0\" && \
                  \"$0\" put p v -- \"$0\" --json check && \"$0\" --json check";
    let end = inside(&cluster, &["lock", "--advisory", "outer"], nested);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let keys: Vec<Value> = end.stdout.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let keys: Vec<&str> = keys.iter().filter_map(|row| row["key"].as_str()).collect();
    assert_eq!(keys, ["inner", "p", "outer"]);
    // The cluster is the one the lock is in, also when that was said by a flag.
    let mut command = palisade();
    command.args(["lock", "--endpoints", &cluster.endpoints().join(","), "--advisory", "k", "--"]);
    assert_eq!(finish(command.args([BINARY, "check"])).code, Some(0));
    assert_eq!(finish(&mut cluster.command(["check"])).code, Some(64), "outside a command");
}

#[test]
fn a_lock_that_an_operator_took_is_lost_although_the_session_lives() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let lock = ["lock", "--advisory", "--kill-after", "60s", "k"];
    let mut checker = Checker::start(&cluster, &lock);
    assert_eq!(checker.check().0, "0");
    let end = finish(&mut cluster.command(["force-release", "k", "--epoch", "1", "--reason", "a drill"]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let (status, said) = checker.check();
    assert_eq!(status, "84", "{said}");
    assert!(said.contains("lost k under epoch 1"), "{said}");
}

#[test]
fn a_wrapper_that_is_stopped_leaves_it_open_and_one_that_was_killed_has_lost_the_lock() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut checker =
        Checker::start(&cluster, &["lock", "--advisory", "--ttl", "10m", "--kill-after", "60s", "k"]);
    assert_eq!(checker.check().0, "0");
    checker.process.signal(Signal::STOP);
    let (status, said) = checker.check();
    assert_eq!(status, "69", "{said}");
    assert!(said.contains("does not answer"), "{said}");
    checker.process.signal(Signal::CONT);
    assert_eq!(checker.check().0, "0", "nothing was lost meanwhile");

    checker.process.signal(Signal::KILL);
    // The cluster believes in the session for ten minutes more; nobody renews it. The command has been told
    // to end, but does not heed it.
    let (status, said) = checker.check();
    assert_eq!(status, "84", "{said}");
    assert!(said.contains("is gone"), "{said}");
}

#[test]
fn without_a_quorum_it_is_unknown_unless_the_wrapper_says_that_it_is_lost() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let mut checker =
        Checker::start(&cluster, &["lock", "--advisory", "--ttl", "10m", "--kill-after", "60s", "k"]);
    assert_eq!(checker.check().0, "0");
    for node in 1..=3 {
        cluster.kill_node(node);
    }
    let (status, said) = checker.check();
    assert_eq!(status, "69", "{said}");
    assert!(said.contains("no usable cluster"), "{said}");
    checker.process.signal(Signal::KILL);
    assert_eq!(checker.check().0, "84");
}

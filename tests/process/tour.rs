//! The README's tour: a cluster in one command, a lock from another terminal, the cluster killed and
//! started again.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Finished, Process, finish, free_ports, one_cluster, palisade, until};

fn dev(dir: &Path, base: u16) -> Command {
    let mut command = palisade();
    command.args(["dev", "--port", &base.to_string(), "--dir"]).arg(dir);
    command
}

fn endpoints(base: u16) -> String {
    (1..=3).map(|n| format!("127.0.0.1:{}", base + n)).collect::<Vec<_>>().join(",")
}

fn ready(dev: &mut Process, base: u16) {
    assert_eq!(dev.line(), format!("ready: {}", endpoints(base)));
}

fn ask(base: u16, arguments: &[&str]) -> Finished {
    finish(palisade().env("PALISADE_ENDPOINTS", endpoints(base)).args(arguments))
}

fn epoch(base: u16) -> u64 {
    let end = ask(base, &["lock", "-n", "--advisory", "demo", "--", "sh", "-c", "echo $PALISADE_EPOCH"]);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    end.stdout.parse().expect("an epoch")
}

/// The processes whose parent is this one.
fn children(parent: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn the_epoch_rises_also_after_dev_and_its_nodes_were_killed() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let mut first = Process::start(&mut dev(dir.path(), base));
    ready(&mut first, base);
    assert_eq!(epoch(base), 1);
    assert_eq!(epoch(base), 2);

    let nodes = children(first.pid().as_raw_pid().unsigned_abs());
    assert_eq!(nodes.len(), 3);
    first.kill();
    until("the nodes die with dev", || {
        nodes.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });

    let mut second = Process::start(&mut dev(dir.path(), base));
    ready(&mut second, base);
    assert_eq!(epoch(base), 3);
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code(), Some(0));
}

#[test]
fn dev_restarts_a_node_that_dies_says_so_and_shares_its_directory_with_nobody() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let mut cluster = Process::start(&mut dev(dir.path(), base));
    ready(&mut cluster, base);
    let before = epoch(base);

    let second = finish(&mut dev(dir.path(), base));
    assert_eq!(second.code, Some(78), "{}", second.stderr);
    assert!(second.stderr.contains("in use by another"), "{}", second.stderr);

    let elsewhere = tempfile::tempdir().unwrap();
    let same_ports = finish(&mut dev(elsewhere.path(), base));
    assert_eq!(same_ports.code, Some(71), "{}", same_ports.stderr);
    assert!(same_ports.stdout.is_empty(), "the other cluster's answers are not ours");

    let dev_pid = cluster.pid().as_raw_pid().unsigned_abs();
    let victim = children(dev_pid)[0];
    let pid = rustix::process::Pid::from_raw(victim.cast_signed()).expect("a process id");
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    until("a new node in its place", || {
        let now = children(dev_pid);
        (now.len() == 3 && !now.contains(&victim)).then_some(())
    });
    assert!(cluster.stderr().contains("was killed by signal 9"), "{}", cluster.stderr());
    assert!(epoch(base) > before);
    cluster.signal(Signal::INT);
    let status = cluster.wait();
    assert_eq!(status.code(), Some(0));
    let end = cluster.finished(status);
    assert_eq!(end.stdout, format!("ready: {}", endpoints(base)), "stdout is for ready: alone");
}

#[test]
fn the_reading_verbs_show_what_is_held_and_page() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let mut cluster = Process::start(&mut dev(dir.path(), base));
    ready(&mut cluster, base);
    let mut holders = Vec::new();
    for key in ["a", "b", "c"] {
        let mut command = palisade();
        command.env("PALISADE_ENDPOINTS", endpoints(base));
        command.args(["lock", "--owner", "tester", "--resource", "db", "--hold", key]);
        let mut holder = Process::start(&mut command);
        let line: serde_json::Value = serde_json::from_str(&holder.line()).expect("one line of JSON");
        assert_eq!(
            (&line["key"], &line["epoch"], &line["class"]),
            (&key.into(), &1.into(), &"fenced".into())
        );
        holders.push((holder, line));
    }

    let described = ask(base, &["describe", "--json", "a"]);
    let described: serde_json::Value = serde_json::from_str(&described.stdout).expect("JSON");
    assert_eq!(described["holders"][0]["session"], holders[0].1["session"]);
    assert_eq!((&described["holders"][0]["owner"], &described["resource"]), (&"tester".into(), &"db".into()));

    let keys = |end: Finished| -> Vec<String> {
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        let rows = end.stdout.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).expect("JSON"));
        rows.map(|r| r["key"].as_str().map_or(r.to_string(), str::to_owned)).collect()
    };
    assert_eq!(keys(ask(base, &["locks", "--json", "--page", "1"])), ["a", "b", "c"]);
    assert_eq!(keys(ask(base, &["locks", "--json", "--limit", "2"])), ["a", "b", r#"{"next":"b"}"#]);
    assert_eq!(keys(ask(base, &["locks", "--json", "--after", "b"])), ["c"]);

    let sessions = ask(base, &["sessions", "--json"]);
    let with_owner = sessions.stdout.lines().filter(|l| l.contains(r#""owner":"tester""#)).count();
    assert_eq!(with_owner, 3, "{}", sessions.stdout);

    let status = ask(base, &["status", "--json"]);
    let nodes: Vec<serde_json::Value> =
        status.stdout.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(nodes.iter().filter(|n| n["role"] == "leader").count(), 1, "{}", status.stdout);
    assert_eq!(nodes.len(), 3);

    let (mut holder, _) = holders.remove(0);
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait().code(), Some(0));
    let described = ask(base, &["describe", "--json", "a"]);
    assert!(described.stdout.contains(r#""holding":0"#), "released and closed at exit: {}", described.stdout);
}

#[test]
fn a_cluster_of_two_runs_and_whoever_starts_it_learns_what_it_does_not_survive() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let mut two = Process::start(dev(dir.path(), base).args(["--nodes", "2"]));
    let endpoints = format!("127.0.0.1:{},127.0.0.1:{}", base + 1, base + 2);
    assert_eq!(two.line(), format!("ready: {endpoints}"));
    assert!(two.stderr().contains("two nodes survive no failure"), "{}", two.stderr());
    two.signal(Signal::TERM);
    assert_eq!(two.wait().code(), Some(0));

    let format = ["format", "--cluster", "c", "--node", "1", "--peers", "1=127.0.0.1:1,2=127.0.0.1:2"];
    let end = finish(palisade().args(format).arg(dir.path().join("by-hand")));
    assert!(end.code == Some(0) && end.stderr.contains("survive no failure"), "{}", end.stderr);
}

#[test]
fn status_shows_who_answers_at_once_and_waits_little_for_who_does_not() {
    let _one = one_cluster();
    let cluster = crate::support::Cluster::start();
    // It accepts and says nothing; it comes first, and the patience asked for is longer than that of this test.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let endpoints = format!("{silent},{}", cluster.endpoints().join(","));
    let mut status = palisade();
    status.args(["--json", "--timeout", "10m", "--endpoints", &endpoints, "status"]);
    let end = finish(&mut status);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let rows: Vec<serde_json::Value> =
        end.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((rows.len(), &rows[3]["endpoint"], &rows[3]["reachable"]), (4, &silent.into(), &false.into()));
    let mut answered: Vec<&str> = rows[..3].iter().filter_map(|row| row["endpoint"].as_str()).collect();
    answered.sort_unstable();
    assert_eq!(answered, cluster.endpoints());
}

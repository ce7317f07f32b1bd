//! What operators do, from the command line, to the real holders of real locks.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Cluster, Process, finish, one_cluster, until};

/// Far longer than a test takes: whatever ends sooner was not ended by silence.
const LONG_TTL: &str = "10m";

fn hold(cluster: &Cluster, owner: &str, key: &str) -> (Process, Value) {
    let flags = ["lock", "--ttl", LONG_TTL, "--owner", owner, "--advisory", "--hold", key];
    let mut holder = Process::start(&mut cluster.command(flags));
    let line = serde_json::from_str(&holder.line()).expect("one line of JSON");
    (holder, line)
}

fn waits(cluster: &Cluster, key: &str) {
    until("somebody waits", || {
        let end = finish(&mut cluster.command(["--json", "describe", key]));
        let description: Value = serde_json::from_str(&end.stdout).expect("JSON");
        (description["waiting"] == 1).then_some(())
    });
}

fn waiter(cluster: &Cluster, key: &str) -> Process {
    let flags = ["lock", "--owner", "next", "--advisory", key, "--", "echo", "mine"];
    let process = Process::start(&mut cluster.command(flags));
    waits(cluster, key);
    process
}

#[test]
fn a_forced_release_hands_over_and_the_old_holder_stops() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut holder, line) = hold(&cluster, "first", "k");
    let epoch = line["epoch"].to_string();
    let mut next = waiter(&cluster, "k");
    let force = ["force-release", "k", "--epoch", &epoch, "--reason", "stuck", "--by", "tester"];
    let end = finish(&mut cluster.command(force));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert_eq!(next.line(), "mine");
    assert_eq!(next.wait().code(), Some(0));
    assert_eq!(holder.wait().code(), Some(84), "{}", holder.stderr());
    assert!(holder.stderr().contains("by force"), "{}", holder.stderr());

    // Repeated, it is done; meant for a grant that never was, it is refused and changes nothing.
    let again = finish(&mut cluster.command(force));
    assert_eq!((again.code, again.stdout), (Some(0), end.stdout), "{}", again.stderr);
    let wrong = ["force-release", "k", "--epoch", "77", "--reason", "stuck"];
    let wrong = finish(&mut cluster.command(wrong));
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("last epoch granted is 2"), "{}", wrong.stderr);

    let acts = finish(&mut cluster.command(["--json", "acts"]));
    let act: Value = serde_json::from_str(&acts.stdout).expect("one line of JSON: one action was done");
    assert_eq!((&act["what"], &act["key"], &act["epoch"]), (&"force-release".into(), &"k".into(), &1.into()));
    assert_eq!((&act["by"], &act["reason"]), (&"tester".into(), &"stuck".into()));
}

#[test]
fn a_death_report_frees_the_locks_of_a_killed_owner_and_spares_its_successor() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut dead, line) = hold(&cluster, "worker-3", "k");
    let (mut other, _) = hold(&cluster, "worker-4", "other");
    dead.kill();
    let mut next = waiter(&cluster, "k");
    let sessions = finish(&mut cluster.command(["--json", "describe", "k"]));
    let as_of = serde_json::from_str::<Value>(&sessions.stdout).expect("JSON")["revision"].to_string();
    let (mut successor, _) = hold(&cluster, "worker-3", "its successor's");

    let report = ["--json", "report-dead", "--owner", "worker-3", "--as-of", &as_of, "--evidence", "kill -9"];
    let end = finish(&mut cluster.command(report));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let lines: Vec<Value> =
        end.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{}", end.stdout);
    assert_eq!(lines[0]["ended"], line["session"]);
    assert!(end.stderr.contains(&format!("--as-of {as_of}")), "said before it acts: {}", end.stderr);
    assert_eq!((&lines[1]["sessions"], lines[1]["as_of"].to_string()), (&1.into(), as_of));
    assert_eq!(next.line(), "mine");
    for survivor in [&mut other, &mut successor] {
        assert!(survivor.ended().is_none(), "{}", survivor.stderr());
    }

    let early = ["report-dead", "--owner", "worker-3", "--as-of", "99999999", "--evidence", "kill -9"];
    let early = finish(&mut cluster.command(early));
    assert_eq!(early.code, Some(64), "{}", early.stderr);
    assert!(early.stderr.contains("beyond the end of the log"), "{}", early.stderr);
    assert!(successor.ended().is_none(), "nobody was reported");

    let why = finish(&mut cluster.command(["describe", "k"]));
    assert!(why.stdout.contains("reported dead by an operator"), "{}", why.stdout);
    let session = line["session"].as_str().expect("a session").to_owned();
    let again = ["report-dead", "--session", &session, "--evidence", "kill -9"];
    assert_eq!(finish(&mut cluster.command(again)).code, Some(0), "a repeat is harmless");
}

#[test]
fn an_evicted_owner_learns_it_and_an_idle_key_can_change_its_class() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut holder, line) = hold(&cluster, "first", "k");
    let retire = ["retire", "k"];
    assert_eq!(finish(&mut cluster.command(retire)).code, Some(1), "it is held");
    let session = line["session"].as_str().expect("a session");
    let end = finish(&mut cluster.command(["evict", session, "--reason", "maintenance"]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert_eq!(holder.wait().code(), Some(84), "{}", holder.stderr());
    assert!(holder.stderr().contains("evicted"), "{}", holder.stderr());

    let fenced = ["lock", "-n", "--resource", "db", "k", "--", "true"];
    assert_eq!(finish(&mut cluster.command(fenced)).code, Some(64), "the key is advisory");
    let end = finish(&mut cluster.command(retire));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert_eq!(finish(&mut cluster.command(fenced)).code, Some(0));
    // The same retirement again: it spares the record that has come since, and adds nothing to the record.
    let acts = |cluster: &Cluster| finish(&mut cluster.command(["--json", "acts"])).stdout;
    let before = acts(&cluster);
    let retired = before.lines().last().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let retired = retired.expect("an action");
    assert_eq!((&retired["what"], &retired["epoch"]), (&"retire".into(), &1.into()));
    let late = finish(&mut cluster.command(["retire", "k", "--epoch", "1"]));
    assert_eq!(late.code, Some(0), "{}", late.stderr);
    assert!(late.stdout.ends_with(&format!("(action {})", retired["action"])), "{}", late.stdout);
    assert_eq!(finish(&mut cluster.command(fenced)).code, Some(0), "the fenced record is still there");
    let wrong = finish(&mut cluster.command(["retire", "k", "--epoch", "2"]));
    assert_eq!(wrong.code, Some(1), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("last epoch granted is 3"), "{}", wrong.stderr);
    assert_eq!(acts(&cluster).lines().count(), before.lines().count());
    let closed = finish(&mut cluster.command(["evict", "0-999999", "--reason", "none such"]));
    assert_eq!(closed.code, Some(1), "{}", closed.stderr);
}

#[test]
fn who_was_out_of_reach_when_its_key_was_taken_learns_it_on_coming_back() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let (mut holder, line) = hold(&cluster, "first", "k");
    holder.signal(Signal::STOP);
    let epoch = line["epoch"].to_string();
    let end = finish(&mut cluster.command(["force-release", "k", "--epoch", &epoch, "--reason", "stuck"]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    // Its connection dies with the nodes, and the news that was on it.
    for node in 1..=3 {
        cluster.kill_and_restart(node);
    }
    holder.signal(Signal::CONT);
    assert_eq!(holder.wait().code(), Some(84), "{}; {}", holder.stderr(), cluster.logs());
}

//! Shared locks, quarantine and elections between real processes.

use std::time::Duration;

use palisade_client::blocking::Client;
use palisade_client::{ClientConfig, Mode};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Cluster, Process, finish, one_cluster, until};

fn describe(cluster: &Cluster, key: &str) -> Value {
    let end = finish(&mut cluster.command(["--json", "describe", key]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    serde_json::from_str(&end.stdout).expect("JSON")
}

fn start(cluster: &Cluster, flags: &[&str]) -> (Process, Value) {
    let mut process = Process::start(cluster.command(flags).arg("--json"));
    let line = serde_json::from_str(&process.line()).expect("one line of JSON");
    (process, line)
}

#[test]
fn readers_share_a_writer_excludes_them_and_nobody_overtakes_it() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let reader = ["lock", "-s", "--advisory", "--hold", "k"];
    let (mut first, a) = start(&cluster, &reader);
    let (mut second, b) = start(&cluster, &reader);
    assert_eq!((&a["epoch"], &a["barrier"], &a["mode"]), (&1.into(), &1.into(), &"shared".into()));
    assert_eq!((&b["epoch"], &b["barrier"]), (&2.into(), &1.into()), "they do not shut each other out");
    let writer = ["lock", "--advisory", "k", "--", "sh", "-c", "echo $PALISADE_FENCE"];
    let mut writer = Process::start(&mut cluster.command(writer));
    until("the writer waits", || (describe(&cluster, "k")["waiting"] == 1).then_some(()));
    let late = finish(&mut cluster.command(["lock", "-n", "-s", "--advisory", "k", "--", "true"]));
    assert_eq!(late.code, Some(1), "a reader that comes later stands behind the writer: {}", late.stderr);
    let seen = describe(&cluster, "k");
    assert_eq!((&seen["holding"], &seen["holders"][1]["epoch"]), (&2.into(), &2.into()));
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(0));
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code(), Some(0));
    assert_eq!(writer.line(), "k@3/3");
    assert_eq!(writer.wait().code(), Some(0));
}

#[test]
fn a_downgrade_lets_readers_in_and_dropping_it_midway_leaves_nothing_behind() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let client = Client::connect(ClientConfig::new(cluster.endpoints())).expect("a client");
    let session = client.session().open().expect("a session");
    let guard = session.advisory("k").acquire().expect("nobody holds it");
    let mut reader =
        Process::start(&mut cluster.command(["lock", "-s", "--advisory", "k", "--", "echo", "in"]));
    until("the reader waits", || (describe(&cluster, "k")["waiting"] == 1).then_some(()));
    let before = guard.fence().epoch();
    let shared = guard.downgrade().expect("it was exclusive");
    assert!(shared.mode() == Mode::Shared && shared.fence().barrier() > before);
    assert_eq!(reader.line(), "in");
    assert_eq!(reader.wait().code(), Some(0));
    let refused = shared.downgrade().expect_err("it is shared already");
    drop(refused.guard.expect("it is held still"));

    client.wait_for(async |client| {
        let session = client.session().open().await.expect("a session");
        let guard = session.advisory("k").acquire().await.expect("nobody holds it");
        let mut asked = Box::pin(guard.downgrade());
        // Polled once: the order is out, its answer is not.
        let _ = tokio::time::timeout(Duration::ZERO, &mut asked).await;
    });
    until("the key is free", || (describe(&cluster, "k")["holding"] == 0).then_some(()));
}

#[test]
fn a_key_in_quarantine_opens_to_nobody_until_the_death_is_reported() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let flags = ["lock", "--ttl", "500ms", "--owner", "job-7", "--quarantine", "--advisory", "--hold", "k"];
    let (mut dead, _) = start(&cluster, &flags);
    let mut next = Process::start(&mut cluster.command(["lock", "--advisory", "k", "--", "echo", "mine"]));
    dead.kill();
    until("silence has closed the key", || {
        (describe(&cluster, "k")["holders"][0]["standing"] == "quarantined").then_some(())
    });
    let denied = finish(&mut cluster.command(["lock", "-n", "--advisory", "k", "--", "true"]));
    assert!(denied.code == Some(1) && denied.stderr.contains("quarantine"), "{}", denied.stderr);
    let listed = finish(&mut cluster.command(["sessions"]));
    assert!(listed.stdout.contains("in quarantine"), "{}", listed.stdout);
    let report = ["report-dead", "--owner", "job-7", "--evidence", "kill -9"];
    let end = finish(&mut cluster.command(report));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert_eq!(next.line(), "mine");
    assert_eq!(next.wait().code(), Some(0));
}

#[test]
fn an_election_goes_to_the_next_candidate_when_its_leader_is_killed_or_resigns() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut first, a) = start(&cluster, &["elect", "--ttl", "1s", "--value", "one", "e"]);
    let seen = describe(&cluster, "e");
    assert_eq!((&seen["value"], &seen["class"]), (&"one".into(), &"election".into()));
    let mut second = Process::start(cluster.command(["elect", "--value", "two", "e"]).arg("--json"));
    until("the second waits", || (describe(&cluster, "e")["waiting"] == 1).then_some(()));
    first.kill();
    let b: Value = serde_json::from_str(&second.line()).expect("one line of JSON");
    assert!(b["epoch"].as_u64() > a["epoch"].as_u64());
    assert_eq!(describe(&cluster, "e")["value"], "two");

    let client = Client::connect(ClientConfig::new(cluster.endpoints())).expect("a client");
    let session = client.session().open().expect("a session");
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code(), Some(0));
    let leader = session.campaign("e", "three").lead().expect("the election is vacant");
    leader.proclaim("three, ready").expect("it leads");
    let seen = client.leader("e").expect("an answer").value.expect("somebody leads");
    assert_eq!((&*seen.value, seen.fence.epoch()), (&b"three, ready"[..], leader.fence().epoch()));
    leader.resign().expect("it leads");
    assert_eq!(client.leader("e").expect("an answer").value, None);
}

//! Ephemeral keys of real processes: there while they run, gone when they end, however they end.

use palisade_client::ClientConfig;
use palisade_client::blocking::Client;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Cluster, Process, finish, one_cluster, until};

#[allow(dead_code, reason = "its main is not run here")]
#[path = "../../net/client/examples/service_discovery.rs"]
mod service_discovery;

/// The value of a key, or none.
fn get(cluster: &Cluster, key: &str) -> Option<String> {
    let end = finish(&mut cluster.command(["get", key]));
    match end.code {
        Some(0) => Some(end.stdout),
        Some(1) => None,
        other => panic!("{other:?}: {}", end.stderr),
    }
}

fn put(cluster: &Cluster, arguments: &[&str]) -> (Process, Value) {
    let mut process = Process::start(cluster.command(["put", "--json"]).args(arguments));
    let line = serde_json::from_str(&process.line()).expect("one line of JSON");
    (process, line)
}

#[test]
fn a_key_is_there_while_its_process_runs_and_gone_at_once_when_it_stops() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut first, line) = put(&cluster, &["--owner", "first", "svc/a", "10.0.0.7:80"]);
    let (mut second, _) = put(&cluster, &["svc/b", "line\nbreak"]);
    assert_eq!(get(&cluster, "svc/a").as_deref(), Some("10.0.0.7:80"));
    assert_eq!(get(&cluster, "svc/none"), None);

    let rows = finish(&mut cluster.command(["--json", "ls", "svc/"])).stdout;
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    assert_eq!((&rows[0]["key"], &rows[0]["session"]), (&"svc/a".into(), &line["session"]));
    assert_eq!((rows.len(), &rows[1]["value"]), (2, &"line\nbreak".into()));
    let text = finish(&mut cluster.command(["ls", "svc/", "--limit", "1"])).stdout;
    assert!(text.starts_with("svc/a ") && text.ends_with("go on with --after svc/a"), "{text}");
    until("every node counts them", || {
        let counted = |node| cluster.metric(node, "palisade_ephemeral_keys") == 2;
        (1..=3).all(counted).then_some(())
    });
    let (bytes, state) = ("palisade_ephemeral_bytes", "palisade_state_bytes");
    assert_eq!(cluster.metric(1, bytes), "svc/a10.0.0.7:80svc/bline_break".len() as u64);
    assert!(cluster.metric(1, state) > 2 * (256 + 192), "two sessions and two keys");

    let taken = finish(&mut cluster.command(["put", "svc/a", "other"]));
    assert_eq!(taken.code, Some(1), "{}", taken.stderr);
    assert!(
        taken.stderr.contains("belongs to session") && taken.stderr.contains("of first"),
        "{}",
        taken.stderr
    );

    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(get(&cluster, "svc/a"), None);
    second.signal(Signal::INT);
    assert_eq!(second.wait().code(), Some(0));
    assert_eq!(finish(&mut cluster.command(["ls"])).stdout, "");
}

#[test]
fn with_a_command_the_key_lasts_as_long_as_that_and_the_status_is_the_commands() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let script = "echo $PALISADE_KEY; exec \"$0\" get svc/a";
    let binary = env!("CARGO_BIN_EXE_palisade");
    let end = finish(&mut cluster.command(["put", "svc/a", "here", "--", "sh", "-c", script, binary]));
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "svc/a\nhere"), "{}", end.stderr);
    assert_eq!(get(&cluster, "svc/a"), None);
    let end = finish(&mut cluster.command(["put", "svc/a", "here", "--", "sh", "-c", "exit 5"]));
    assert_eq!(end.code, Some(5), "{}", end.stderr);

    let script = "trap 'echo caught; exit 42' TERM; echo up; while :; do sleep 0.01; done";
    let mut job = Process::start(&mut cluster.command(["put", "svc/a", "here", "--", "sh", "-c", script]));
    assert_eq!(job.line(), "up");
    job.signal(Signal::TERM);
    assert_eq!(job.line(), "caught");
    assert_eq!(job.wait().code(), Some(42));
    let long = "v".repeat(16_385);
    assert_eq!(finish(&mut cluster.command(["put", "svc/a", &long])).code, Some(64));
}

#[test]
fn a_killed_process_leaves_its_key_until_its_ttl_or_a_death_report() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut silent, _) = put(&cluster, &["--ttl", "1s", "silent", "v"]);
    let (mut reported, line) = put(&cluster, &["--ttl", "10m", "reported", "v"]);
    silent.kill();
    reported.kill();
    until("its session expires", || get(&cluster, "silent").is_none().then_some(()));
    assert_eq!(get(&cluster, "reported").as_deref(), Some("v"), "nobody has said that it is dead");
    let session = line["session"].as_str().expect("a session");
    let report = ["report-dead", "--session", session, "--evidence", "kill -9"];
    assert_eq!(finish(&mut cluster.command(report)).code, Some(0));
    assert_eq!(get(&cluster, "reported"), None, "gone with the report");
    let (mut successor, _) = put(&cluster, &["reported", "w"]);
    assert_eq!(get(&cluster, "reported").as_deref(), Some("w"));
    assert!(successor.ended().is_none());
}

#[test]
fn a_key_outlives_the_nodes_but_not_an_evicted_session_whose_command_is_ended() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let (mut owner, line) = put(&cluster, &["svc/a", "v"]);
    for node in 1..=3 {
        cluster.kill_and_restart(node);
    }
    assert_eq!(get(&cluster, "svc/a").as_deref(), Some("v"), "{}", cluster.logs());
    let session = line["session"].as_str().expect("a session");
    let end = finish(&mut cluster.command(["evict", session, "--reason", "maintenance"]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert_eq!(owner.wait().code(), Some(84), "{}", owner.stderr());
    assert!(owner.stderr().contains("lost the key svc/a"), "{}", owner.stderr());
    assert_eq!(get(&cluster, "svc/a"), None);
}

#[test]
fn the_service_discovery_example_finds_who_runs() {
    use service_discovery::{instances, register};
    let _one = one_cluster();
    let cluster = Cluster::start();
    let client = || Client::connect(ClientConfig::new(cluster.endpoints())).expect("a client");
    let (consumer, one, two) = (client(), client(), client());
    let found = || instances(&consumer, "web").expect("a list");
    assert_eq!(found(), []);
    let first = register(&one, "web", "1", "10.0.0.7:8080").expect("registered");
    let second = register(&two, "web", "2", "10.0.0.8:8080").expect("registered");
    let _other = register(&two, "web-admin", "1", "10.0.0.9:8080").expect("registered");
    let pair = |instance: &str, address: &str| (instance.to_owned(), address.to_owned());
    assert_eq!(found(), [pair("1", "10.0.0.7:8080"), pair("2", "10.0.0.8:8080")]);
    assert!(register(&two, "web", "1", "10.0.0.8:8081").is_err(), "the name is taken");
    first.close().expect("closed");
    assert_eq!(found(), [pair("2", "10.0.0.8:8080")]);
    drop(second);
    until("the dropped session is closed", || found().is_empty().then_some(()));
}

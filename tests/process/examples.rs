//! The client's examples, run as they stand against a real cluster.

use std::time::Duration;

use palisade_client::{Client, ClientConfig};
use rustix::process::Signal;

use crate::support::{Cluster, Process, finish, one_cluster, until};

#[allow(dead_code, reason = "its main is not run here")]
#[path = "../../net/client/examples/leader_election.rs"]
mod leader_election;

#[allow(dead_code, reason = "its main is not run here")]
#[path = "../../net/client/examples/protected_writer.rs"]
mod protected_writer;

const ENDPOINTS: &str = "TEST_CANDIDATE_ENDPOINTS";
const NAME: &str = "TEST_CANDIDATE_NAME";
/// Longer than this test may take.
const TTL: Duration = Duration::from_secs(600);

/// Not a test by itself: a candidate's process.
#[test]
fn candidate() {
    let (Ok(endpoints), Ok(name)) = (std::env::var(ENDPOINTS), std::env::var(NAME)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!();
    runtime.block_on(async {
        let client = Client::connect(ClientConfig::new(endpoints.split(','))).expect("a client");
        let end = leader_election::run(&client, "e", &name, TTL, |said| println!("{said}")).await;
        end.expect("an end in order");
    });
}

fn start(cluster: &Cluster, name: &str) -> Process {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this executable"));
    command.args(["--exact", "examples::candidate", "--nocapture", "--test-threads=1"]);
    command.env(ENDPOINTS, cluster.endpoints().join(",")).env(NAME, name);
    Process::start(&mut command)
}

/// The rest of the next line of its stdout that begins so.
fn line(process: &mut Process, start: &str) -> String {
    loop {
        let line = process.line();
        if let Some(rest) = line.strip_prefix(start) {
            return rest.to_owned();
        }
    }
}

#[test]
fn a_leader_that_is_told_to_end_resigns_and_the_next_leads_long_before_the_ttl() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut first = start(&cluster, "first");
    assert_eq!(line(&mut first, "leading under "), "e@1/1");
    let mut second = start(&cluster, "second");
    until("the second stands in the queue", || {
        let seen = finish(&mut cluster.command(["describe", "--json", "e"])).stdout;
        seen.contains(r#""waiting":1"#).then_some(())
    });
    first.signal(Signal::TERM);
    assert_eq!(line(&mut second, "leading under "), "e@2/2");
    assert_eq!(line(&mut first, "stopped: "), "the session is being shut down here");
    assert!(first.wait().success());
    let sessions = finish(&mut cluster.command(["sessions", "--json"])).stdout;
    assert!(!sessions.contains("\"first\""), "the first has closed its session: {sessions}");

    // An operator ends the session of the leader: it campaigns anew in another one.
    let seen: serde_json::Value = serde_json::from_str(&sessions).expect("one row of JSON");
    let session = seen["session"].as_str().expect("a session");
    let end = finish(&mut cluster.command(["evict", session, "--reason", "a drill"]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert!(line(&mut second, "no longer the leader: ").contains("evicted"));
    assert_eq!(line(&mut second, "leading under "), "e@3/3");
    second.signal(Signal::INT);
    assert!(second.wait().success());
    assert_eq!(finish(&mut cluster.command(["sessions", "--json"])).stdout, "");
}

#[test]
fn a_candidate_that_is_told_to_end_leaves_the_queue() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut leader = start(&cluster, "leader");
    line(&mut leader, "leading under ");
    let mut candidate = start(&cluster, "candidate");
    let waiting = |n: u32| {
        until("the length of the queue", || {
            let seen = finish(&mut cluster.command(["describe", "--json", "e"])).stdout;
            seen.contains(&format!(r#""waiting":{n}"#)).then_some(())
        });
    };
    waiting(1);
    candidate.signal(Signal::TERM);
    assert!(candidate.wait().success());
    waiting(0);
    assert!(leader.ended().is_none());
}

#[test]
fn the_protected_writer_refuses_the_late_write() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let client = palisade_client::blocking::Client::connect(ClientConfig::new(cluster.endpoints()));
    let account = protected_writer::Account::default();
    let refused = protected_writer::meet(&client.expect("a client"), &account).expect("a refusal");
    assert_eq!((refused.epoch.0, refused.floor), (1, 2));
    assert_eq!(account.balance(), 70, "what the second wrote stands");
}

//! Observers of an election of real clusters: who leads and what the leader says, through deaths of leaders and
//! restarts of nodes.

use std::time::Duration;

use palisade_client::{Client, ClientConfig, Listing, Observed, Observer};
use serde_json::Value;

use crate::support::{Cluster, PATIENCE, Process, finish, one_cluster, until};

fn json(process: &mut Process) -> Value {
    serde_json::from_str(&process.line()).expect("one line of JSON")
}

/// A line of `observe`: what, epoch, value.
fn brief(line: &Value) -> (&str, u64, &str) {
    let text = |field: &str| line[field].as_str().unwrap_or_default();
    assert!(line["cursor"].is_string(), "{line}");
    if text("what") == "leader" {
        assert_eq!(text("fence"), format!("e@{}/{}", line["epoch"], line["epoch"]));
    }
    (text("what"), line["epoch"].as_u64().unwrap_or(u64::MAX), text("value"))
}

fn candidate(cluster: &Cluster, value: &str) -> Process {
    Process::start(&mut cluster.command(["--json", "elect", "--ttl", "1s", "--value", value, "e"]))
}

#[test]
fn a_killed_leader_leaves_a_vacancy_or_its_successor_and_a_cursor_goes_on_after_everything_was_restarted() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let observe = ["--json", "--timeout", "60s", "observe", "e"];
    let mut seen = Process::start(&mut cluster.command(observe));
    let first = json(&mut seen);
    assert_eq!((brief(&first), &first["present"]), (("vacant", 0, ""), &"asked".into()));
    let mut one = candidate(&cluster, "one");
    assert_eq!(brief(&json(&mut seen)), ("leader", 1, "one"));
    let mut two = candidate(&cluster, "two");
    until("the second waits", || {
        let described = finish(&mut cluster.command(["--json", "describe", "e"]));
        let described: Value = serde_json::from_str(&described.stdout).ok()?;
        (described["waiting"] == 1).then_some(())
    });
    one.kill();
    assert_eq!(brief(&json(&mut seen)), ("leader", 2, "two"), "in one step: nobody could find it vacant");
    two.kill();
    let vacant = json(&mut seen);
    assert_eq!(brief(&vacant), ("vacant", 2, ""));
    seen.kill();

    let mut three = candidate(&cluster, "three");
    json(&mut three);
    for node in 1..=3 {
        cluster.kill_and_restart(node);
    }
    three.kill();
    let _four = candidate(&cluster, "four");
    let cursor = vacant["cursor"].as_str().expect("a cursor");
    let flags = ["--json", "--timeout", "60s", "observe", "e", "--from", cursor];
    let mut seen = Process::start(&mut cluster.command(flags));
    let line = json(&mut seen);
    assert_eq!((brief(&line), &line["present"]), (("leader", 3, "three"), &Value::Null));
    // Nobody waited when it was killed, unless the fourth was there before its session had expired.
    let mut line = json(&mut seen);
    if line["what"] == "vacant" {
        assert_eq!(brief(&line), ("vacant", 3, ""));
        line = json(&mut seen);
    }
    assert_eq!(brief(&line), ("leader", 4, "four"));
    let mut human = Process::start(&mut cluster.command(["observe", "e"]));
    // It may be asked of a node that comes back and is a little behind: then that is what it begins with.
    let text = std::iter::repeat_with(|| human.line()).find(|line| line.contains("e@4/4"));
    let text = text.expect("lines go on");
    assert!(text.contains("e is led by") && text.contains("fence e@4/4: four  (cursor "), "{text}");
}

#[test]
fn what_makes_no_sense_to_observe_is_refused_and_says_why() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut lock = Process::start(&mut cluster.command([
        "lock",
        "--advisory",
        "k",
        "--",
        "sh",
        "-c",
        "echo held; exec sleep 600",
    ]));
    assert_eq!(lock.line(), "held");
    let end = finish(&mut cluster.command(["observe", "k"]));
    assert_eq!(end.code, Some(1), "{}", end.stderr);
    assert!(end.stderr.contains("k is a lock, and no election"), "{}", end.stderr);
    let end = finish(&mut cluster.command(["observe", "e", "--from", "nonsense"]));
    assert_eq!(end.code, Some(64), "{}", end.stderr);
}

async fn next(observer: &mut Observer) -> Observed {
    let told = tokio::time::timeout(PATIENCE, observer.next()).await.expect("something is told");
    told.expect("the stream goes on")
}

/// The epoch, and what the leader says.
fn said(told: &Observed) -> (u64, Option<String>) {
    let value = |leader: &palisade_client::Leader| String::from_utf8_lossy(&leader.value).into_owned();
    (told.epoch.0, told.leader.as_ref().map(value))
}

#[test]
fn an_observer_misses_no_leader_and_no_proclamation_while_every_node_is_restarted() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut config = ClientConfig::new(cluster.endpoints());
        config.call_timeout = PATIENCE;
        let client = Client::connect(config).expect("a client");
        let session = client.session().ttl(Duration::from_secs(60)).open().await.expect("a session");
        let mut observer = client.observe("e").expect("a name").start();
        let first = next(&mut observer).await;
        assert_eq!((said(&first), first.present), ((0, None), Some(Listing::Asked)));
        for node in 1..=3_u16 {
            let leads = session.campaign("e", format!("{node}")).lead().await.expect("it leads");
            leads.proclaim(format!("{node} before")).await.expect("it leads");
            cluster.kill_and_restart(node);
            leads.proclaim(format!("{node} after")).await.expect("it leads");
            let fence = leads.fence().clone();
            leads.resign().await.expect("it led");
            let epoch = u64::from(node);
            for value in [format!("{node}"), format!("{node} before"), format!("{node} after")] {
                let told = next(&mut observer).await;
                assert_eq!(said(&told), (epoch, Some(value)));
                let leader = told.leader.expect("somebody leads");
                assert_eq!((leader.fence, leader.session), (fence.clone(), session.id()));
            }
            let told = next(&mut observer).await;
            assert_eq!((said(&told), told.present, told.coalesced), ((epoch, None), None, false));
        }
    });
}

//! Reads of every consistency from real nodes: one that follows, one whose quorum is gone, one that
//! was stopped while it led.

use std::time::{Duration, Instant};

use palisade_client::{Client, ClientConfig, Consistency, LogIndex, Session};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Cluster, PATIENCE, finish, one_cluster, until};

/// A client that knows these nodes at first.
fn client(endpoints: Vec<String>) -> Client {
    let mut config = ClientConfig::new(endpoints);
    config.call_timeout = PATIENCE;
    Client::connect(config).expect("a client")
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test());
}

/// The node that leads, and says so.
fn leader(cluster: &Cluster) -> u16 {
    until("a leader", || (1..=3).find(|n| cluster.metric(*n, "palisade_leads") == 1))
}

/// Acquires and releases a key once and gives the epoch of the grant.
async fn grant(session: &Session, key: &str) -> u64 {
    let guard = session.advisory(key).acquire().await.expect("a grant");
    let epoch = guard.fence().epoch().0;
    guard.release().await.expect("a release");
    epoch
}

#[test]
fn a_follower_shows_what_was_acknowledged_before_it_was_asked() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    run(async || {
        let writer = client(cluster.endpoints());
        let session = writer.session().owner("writer").open().await.expect("a session");
        let follower = leader(&cluster) % 3 + 1;
        let reader = client(vec![cluster.endpoint(follower)]).read_anywhere();
        for wanted in 1..=20 {
            assert_eq!(grant(&session, "k").await, wanted);
            let seen = reader.describe("k").await.expect("a read");
            assert_eq!((seen.value.epoch.0, seen.read.consistency), (wanted, Consistency::Linearizable));
        }
        until("the follower says that it answered", || {
            (cluster.metric(follower, "palisade_follower_reads_total") > 0).then_some(())
        });
    });
}

#[test]
fn a_node_without_a_quorum_shows_the_past_to_who_asks_for_it_and_nothing_to_others() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    run(async || {
        let writer = client(cluster.endpoints());
        let session = writer.session().owner("writer").open().await.expect("a session");
        assert_eq!(grant(&session, "k").await, 1);
        session.close().await.expect("a close");
    });
    let survivor = leader(&cluster) % 3 + 1;
    let endpoint = cluster.endpoint(survivor);
    let ask = |cluster: &Cluster, words: &[&str]| {
        finish(cluster.command(words).args(["--endpoints", &endpoint, "--timeout", "2s"]))
    };
    // A follower learns a little later what is committed.
    until("the follower has applied the grant", || {
        let end = ask(&cluster, &["describe", "k", "--stale", "--json"]);
        let seen: Value = serde_json::from_str(&end.stdout).expect("JSON");
        assert_eq!(seen["consistency"], "stale");
        (seen["epoch"] == 1 && seen["holder"].is_null()).then_some(())
    });
    for node in (1..=3).filter(|n| *n != survivor) {
        cluster.kill_node(node);
    }
    let seen = ask(&cluster, &["describe", "k", "--stale"]);
    assert_eq!(seen.code, Some(0), "{}", seen.stderr);
    assert!(
        seen.stdout.contains("epoch     1") && seen.stdout.contains("(stale, revision "),
        "{}",
        seen.stdout
    );
    for verb in ["locks", "sessions", "acts"] {
        let listed = ask(&cluster, &[verb, "--stale"]);
        assert_eq!(listed.code, Some(0), "{verb}: {}", listed.stderr);
        assert!(listed.stdout.starts_with("(stale, revision "), "{verb}: {}", listed.stdout);
    }
    let refused = ask(&cluster, &["describe", "k"]);
    assert_eq!(refused.code, Some(69), "{}", refused.stdout);
}

#[test]
fn a_leader_that_was_stopped_shows_nothing_old_by_its_lease() {
    let _one = one_cluster();
    let cluster = Cluster::start_with("lease_reads = true");
    run(async || {
        let writer = client(cluster.endpoints());
        let session =
            writer.session().owner("writer").ttl(Duration::from_secs(60)).open().await.expect("a session");
        assert_eq!(grant(&session, "k").await, 1);
        let led = leader(&cluster);
        let reader = client(vec![cluster.endpoint(led)]).read_by_lease();
        let deadline = Instant::now() + PATIENCE;
        while reader.describe("k").await.expect("a read").read.consistency != Consistency::Lease {
            assert!(Instant::now() < deadline, "the lease of a healthy leader holds");
        }

        cluster.signal_node(led, Signal::STOP);
        // Another leads by now, and more was granted.
        assert_eq!(grant(&session, "k").await, 2);
        // The question waits in the socket of the old one when it goes on.
        let mut asked = std::pin::pin!(reader.describe("k"));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut asked).await;
        assert!(early.is_err(), "a stopped process answers nobody");
        cluster.signal_node(led, Signal::CONT);
        let seen = asked.await.expect("a read");
        assert_eq!(seen.value.epoch.0, 2, "{:?}", seen.read);
        assert!(seen.read.revision > LogIndex(0));
    });
}

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
    let listed = ask(&cluster, &["ls", "--stale"]);
    assert!(listed.code == Some(0) && listed.stdout.starts_with("(stale, revision "), "{}", listed.stdout);
    let none = ask(&cluster, &["get", "svc/a", "--stale"]);
    assert!(none.code == Some(1) && none.stderr.contains("(stale, revision "), "{}", none.stderr);
    for how in [&[][..], &["--any-node"], &["--by-lease"]] {
        let refused = ask(&cluster, &[&["describe", "k"][..], how].concat());
        assert_eq!(refused.code, Some(69), "{how:?}: {}", refused.stdout);
    }
}

#[test]
fn every_verb_that_looks_asks_any_node_or_trusts_the_lease_where_it_is_told_to() {
    let _one = one_cluster();
    let cluster = Cluster::start_with("lease_reads = true");
    let put = ["put", "svc/a", "here", "--", env!("CARGO_BIN_EXE_palisade")];
    let inside = |words: &[&str]| finish(cluster.command(put).args(words));
    assert_eq!(inside(&["get", "svc/a"]).stdout, "here");
    let led = leader(&cluster);
    let (led, follower) = (cluster.endpoint(led), cluster.endpoint(led % 3 + 1));
    for verb in [&["describe", "k"][..], &["locks"], &["sessions"], &["acts"], &["ls"]] {
        let by_lease = [verb, &["--by-lease", "--endpoints", &led]].concat();
        until("the lease of a healthy leader holds", || {
            let seen = inside(&by_lease);
            assert_eq!(seen.code, Some(0), "{verb:?}: {}", seen.stderr);
            seen.stdout.contains("(lease, revision ").then_some(())
        });
        let any = inside(&[verb, &["--any-node", "--endpoints", &follower]].concat());
        assert_eq!(any.code, Some(0), "{verb:?}: {}", any.stderr);
        assert!(!any.stdout.contains("lease") && !any.stdout.contains("stale"), "{verb:?}: {}", any.stdout);
    }
    for how in ["--any-node", "--by-lease", "--stale"] {
        let value =
            until("the node has it", || Some(inside(&["get", "svc/a", how])).filter(|e| e.code == Some(0)));
        assert_eq!(value.stdout, "here", "the value and nothing else");
    }
    for (how, consistency) in [(&["--stale"][..], "stale"), (&[], "linearizable")] {
        let seen = inside(&[&["get", "svc/a", "--json"][..], how].concat()).stdout;
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        assert_eq!((&seen["value"], &seen["consistency"]), (&"here".into(), &consistency.into()));
        assert!(seen["revision"].as_u64() >= seen["modified"].as_u64(), "{seen}");
    }
    assert!((1..=3).map(|n| cluster.metric(n, "palisade_follower_reads_total")).sum::<u64>() > 0);
    assert_eq!(inside(&["ls", "--stale", "--by-lease"]).code, Some(64), "one or the other");
}

#[test]
fn programs_without_an_executor_have_readers_of_every_strength() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut config = ClientConfig::new(cluster.endpoints());
    config.call_timeout = PATIENCE;
    let client = palisade_client::blocking::Client::connect(config).expect("a client");
    let session = client.session().owner("writer").open().expect("a session");
    session.put("svc/a", "here").expect("a put");
    let led = session.campaign("e", "me").lead().expect("a leadership");
    let linearizable = Consistency::Linearizable;
    for reader in [client.read(), client.read_anywhere()] {
        assert_eq!(reader.describe("e").expect("a read").read.consistency, linearizable);
        assert_eq!(reader.locks(None, 10).expect("a page").rows.len(), 1);
        assert_eq!(reader.sessions(None, 10).expect("a page").rows[0].session, session.id());
        assert_eq!(reader.get("svc/a").expect("a read").value.expect("it is there").value[..], *b"here");
        assert_eq!(reader.values("svc/", None, 10).expect("a page").rows.len(), 1);
        assert_eq!(reader.operator_acts(LogIndex(0), 10).expect("a page").rows.len(), 0);
        let leader = reader.leader("e").expect("a read").value.expect("somebody leads");
        assert_eq!(leader.fence, *led.fence());
    }
    let by_lease = client.read_by_lease().get("svc/a").expect("a read");
    assert_eq!(by_lease.read.consistency, linearizable, "these nodes allow no other");
    let stale = client.read_stale().describe("e").expect("a read");
    assert_eq!(stale.read.consistency, Consistency::Stale);
    led.resign().expect("a resignation");
    session.close().expect("a close");
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

//! Snapshots with real nodes: the log stays short, a node that was away for longer than the log reaches is
//! made whole by a snapshot, and nodes that are killed all at once start from theirs.

use std::collections::BTreeMap;
use std::time::Instant;

use palisade_client::{Client, ClientConfig, Epoch, Session};

use crate::kill::{eventually, everybody_caught_up, status};
use crate::support::{Cluster, PATIENCE, one_cluster};

/// A snapshot every quarter of a megabyte, in segments of one.
const SETTINGS: &str = "snapshot_bytes = 262144\nsegment_bytes = 1048576";
/// Of a value; it is what the log is made of here.
const VALUE: usize = 15_000;

fn client(endpoints: Vec<String>) -> Client {
    let mut config = ClientConfig::new(endpoints);
    config.call_timeout = PATIENCE;
    Client::connect(config).expect("a client")
}

/// What a worker has been told: the epoch of its newest grant of each key, and the value it put last.
#[derive(Default)]
struct Told {
    epochs: BTreeMap<String, Epoch>,
    round: u64,
}

/// Acquires and releases a key and puts a value, so many times.
async fn work(session: &Session, told: &mut Told, rounds: u64) {
    for _ in 0..rounds {
        told.round += 1;
        let key = format!("k{}", told.round % 16);
        let guard = session.advisory(&key).acquire().await.expect("a grant");
        let epoch = guard.fence().epoch();
        guard.release().await.expect("a release");
        let before = told.epochs.insert(key, epoch);
        assert!(before.is_none_or(|before| before < epoch), "{before:?} then {epoch:?}");
        session.put("value", value(told.round)).await.expect("a put");
    }
}

fn value(round: u64) -> Vec<u8> {
    let mut bytes = vec![round as u8; VALUE];
    bytes[..8].copy_from_slice(&round.to_le_bytes());
    bytes
}

/// Whether of a log of some nine megabytes, or more, a part is kept.
async fn is_cut(cluster: &Cluster, node: u16) -> bool {
    let seen = eventually("a node answers", || status(cluster, node)).await;
    seen.snapshot.0 > 1_000 && seen.log_bytes < 5 << 20
}

/// A linearizable read at this node shows all that was told.
async fn nothing_is_lost(cluster: &Cluster, node: u16, told: &Told) {
    let reader = client(vec![cluster.endpoint(node)]).read_anywhere();
    for (key, epoch) in &told.epochs {
        assert_eq!(reader.describe(key).await.expect("a read").value.epoch, *epoch, "node {node}: {key}");
    }
    let row = reader.get("value").await.expect("a read").value.expect("it is there");
    assert!(row.value[..] == value(told.round)[..], "node {node}: the value of an earlier round");
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test)
}

#[test]
fn a_node_that_was_away_for_longer_than_the_log_reaches_is_made_whole_by_a_snapshot() {
    let _one = one_cluster();
    let mut cluster = Cluster::start_with(SETTINGS);
    run(async {
        let session = client(cluster.endpoints()).session().owner("worker").open().await.expect("a session");
        let mut told = Told::default();
        work(&session, &mut told, 20).await;
        everybody_caught_up(&cluster).await;
        cluster.kill_node(3);
        work(&session, &mut told, 600).await;
        // Snapshots wait a while for whoever was just being sent one; while work goes on their turn comes.
        let deadline = Instant::now() + PATIENCE;
        while !is_cut(&cluster, 1).await || !is_cut(&cluster, 2).await {
            assert!(Instant::now() < deadline, "the log is cut behind snapshots\n{}", cluster.logs());
            work(&session, &mut told, 20).await;
        }
        cluster.start_node(3);
        eventually("the snapshot is installed", || async {
            status(&cluster, 3).await?;
            (cluster.metric(3, "palisade_snapshots_installed_total") > 0).then_some(())
        })
        .await;
        everybody_caught_up(&cluster).await;
        nothing_is_lost(&cluster, 3, &told).await;
        // It goes on with the log as the others do.
        work(&session, &mut told, 40).await;
        everybody_caught_up(&cluster).await;
        for node in 1..=3 {
            nothing_is_lost(&cluster, node, &told).await;
        }
        session.close().await.expect("a close");
    });
}

#[test]
fn nodes_killed_all_at_once_start_from_their_snapshots() {
    let _one = one_cluster();
    let mut cluster = Cluster::start_with(SETTINGS);
    run(async {
        let session = client(cluster.endpoints()).session().owner("worker").open().await.expect("a session");
        let mut told = Told::default();
        for _ in 0..4 {
            work(&session, &mut told, 75).await;
            for node in 1..=3 {
                cluster.kill_node(node);
            }
            for node in 1..=3 {
                cluster.start_node(node);
            }
        }
        everybody_caught_up(&cluster).await;
        for node in 1..=3 {
            let seen = eventually("a node answers", || status(&cluster, node)).await;
            assert!(seen.snapshot.0 > 0, "node {node} has no snapshot");
            nothing_is_lost(&cluster, node, &told).await;
        }
        session.close().await.expect("the session lived through all of it");
    });
}

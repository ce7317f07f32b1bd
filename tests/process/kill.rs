//! Nodes killed with SIGKILL, over and over, under a client that acquires and releases 200 times a
//! second: no acknowledged grant is lost, no epoch repeats or falls, no interruption is long.
//! PALISADE_KILL_ROUNDS sets how many rounds; a few by default.

use std::collections::BTreeMap;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use palisade_client::{Client, ClientConfig, Epoch, NodeStatus, Session};
use palisade_types::Rng;
use rustix::fs::{major, minor};

use crate::support::{Cluster, PATIENCE, one_cluster};

const ROUNDS: &str = "PALISADE_KILL_ROUNDS";
const ROUNDS_DEFAULT: u32 = 5;
/// Workers, each of which starts a cycle so often: 200 cycles a second together.
const WORKERS: usize = 4;
const PERIOD: Duration = Duration::from_millis(20);
/// Grants after a kill before the next one.
const GRANTS_BETWEEN: u64 = 50;
/// The longest time without an acknowledged grant.
const INTERRUPTION_MAX: Duration = Duration::from_secs(5);

/// What was acknowledged, and when.
#[derive(Default)]
struct Ledger(Mutex<Acknowledged>);

#[derive(Default)]
struct Acknowledged {
    epochs: BTreeMap<String, Epoch>,
    grants: u64,
    last: Option<Instant>,
    longest_gap: Duration,
}

impl Ledger {
    /// Records an acknowledged grant; epochs of a key must rise.
    fn grant(&self, key: &str, epoch: Epoch) {
        let mut a = self.0.lock().expect("nobody panics with it");
        let now = Instant::now();
        let gap = a.last.map_or(Duration::ZERO, |last| now - last);
        a.longest_gap = a.longest_gap.max(gap);
        a.last = Some(now);
        a.grants += 1;
        let before = a.epochs.insert(key.to_owned(), epoch);
        assert!(before.is_none_or(|b| b < epoch), "{key}: epoch {epoch:?} after {before:?}");
    }

    fn read<T>(&self, look: impl FnOnce(&Acknowledged) -> T) -> T {
        look(&self.0.lock().expect("nobody panics with it"))
    }
}

/// Acquires and releases at a fixed pace, for ever.
async fn work(session: Session, worker: usize, ledger: &Ledger) {
    let mut pace = tokio::time::interval(PERIOD);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for cycle in 0_u64.. {
        pace.tick().await;
        let key = format!("worker-{worker}/{}", cycle % 8);
        let guard = session.advisory(&key).acquire().await.expect("the session lives through every failover");
        ledger.grant(&key, guard.fence().epoch());
        guard.release().await.expect("the session lives through every failover");
    }
}

pub(crate) async fn status(cluster: &Cluster, node: u16) -> Option<NodeStatus> {
    let mut config = ClientConfig::new([cluster.endpoint(node)]);
    config.call_timeout = Duration::from_secs(1);
    Client::connect(config).expect("a client").status().await.ok()
}

/// Asks until there is an answer to like.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn leader(cluster: &Cluster) -> u16 {
    eventually("a leader", || async {
        for node in 1..=3 {
            if status(cluster, node).await.is_some_and(|s| s.role == "leader") {
                return Some(node);
            }
        }
        None
    })
    .await
}

/// All nodes are up and have applied what was committed when this was asked.
pub(crate) async fn everybody_caught_up(cluster: &Cluster) {
    let led = leader(cluster).await;
    let goal = eventually("the leader's commit", || async { Some(status(cluster, led).await?.commit) }).await;
    for node in 1..=3 {
        eventually("a restarted node catches up", || async {
            (status(cluster, node).await?.applied >= goal).then_some(())
        })
        .await;
    }
}

/// A grant acknowledged right before a kill, still held after it.
async fn rounds(cluster: &mut Cluster, client: &Client, ledger: &Ledger, rounds: u32) -> u32 {
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut leaders_killed = 0;
    for round in 0..rounds {
        everybody_caught_up(cluster).await;
        let led = leader(cluster).await;
        // Every other round takes the leader, the others one of its followers.
        let followers: Vec<u16> = (1..=3).filter(|n| *n != led).collect();
        let victim = if round % 2 == 0 { led } else { followers[usize::from(rng.per_mille(500))] };
        leaders_killed += u32::from(victim == led);
        let session = client.session().owner("witness").open().await.expect("a session");
        let key = format!("witness-{round}");
        let held = session.fenced(&key, "nothing").acquire().await.expect("a grant");
        let before = ledger.read(|a| a.grants);
        cluster.kill_and_restart(victim);
        eventually("acquires go on", || async {
            ledger.read(|a| a.grants > before + GRANTS_BETWEEN).then_some(())
        })
        .await;
        let seen = client.describe(&key).await.expect("a read").value;
        let holder = seen.holders.first().unwrap_or_else(|| panic!("{key}: an acknowledged grant is lost"));
        assert_eq!((holder.session, holder.epoch), (session.id(), held.fence().epoch()), "{key}");
        assert!(held.is_valid());
        held.release().await.expect("a release");
        session.close().await.expect("a close");
    }
    leaders_killed
}

#[test]
fn nothing_acknowledged_is_lost_when_nodes_are_killed() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let wanted =
        std::env::var(ROUNDS).ok().map_or(ROUNDS_DEFAULT, |r| r.parse().expect("a number of rounds"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ledger = Ledger::default();
    runtime.block_on(async {
        let mut config = ClientConfig::new(cluster.endpoints());
        config.call_timeout = PATIENCE;
        let client = Client::connect(config).expect("a client");
        let session = client.session().owner("worker").open().await.expect("a session");
        let workers: Vec<_> = (0..WORKERS).map(|w| Box::pin(work(session.clone(), w, &ledger))).collect();
        let killed = {
            let mut working = std::pin::pin!(all(workers));
            let mut killing = std::pin::pin!(rounds(&mut cluster, &client, &ledger, wanted));
            tokio::select! {
                () = &mut working => unreachable!("workers work for ever"),
                killed = &mut killing => killed,
            }
        };
        let (grants, gap, epochs) = ledger.read(|a| (a.grants, a.longest_gap, a.epochs.clone()));
        println!(
            "{wanted} rounds, {killed} of them the leader; {grants} grants; longest interruption {gap:?}"
        );
        assert!(killed * 5 >= wanted * 2, "the leader was killed in {killed} of {wanted} rounds");
        assert!(gap < INTERRUPTION_MAX, "an interruption of {gap:?}\n{}", cluster.logs());
        for (key, epoch) in epochs {
            let seen = client.describe(&key).await.expect("a read").value.epoch;
            // The worker may have been stopped between a grant and its record.
            assert!(seen >= epoch && seen.0 <= epoch.0 + 1, "{key}: {seen:?}, acknowledged {epoch:?}");
        }
    });
}

/// Drives all of them; ends when one of them does.
async fn all(mut futures: Vec<std::pin::Pin<Box<impl Future<Output = ()>>>>) {
    std::future::poll_fn(|cx| {
        for future in &mut futures {
            if future.as_mut().poll(cx).is_ready() {
                return std::task::Poll::Ready(());
            }
        }
        std::task::Poll::Pending
    })
    .await;
}

/// Flushes completed by the device that holds this path, if the kernel counts them.
fn flushes(path: &Path) -> Option<u64> {
    let device = std::fs::metadata(path).ok()?.st_dev();
    let base = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // A partition's flushes are counted by its disk.
    let stat = [format!("{base}/../stat"), format!("{base}/stat")]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .find(|text| text.split_ascii_whitespace().count() >= 17)?;
    // The 16th number (Documentation/block/stat.rst).
    stat.split_ascii_whitespace().nth(15)?.parse().ok()
}

/// A number of all nodes together.
fn sum(cluster: &Cluster, name: &str) -> u64 {
    (1..=3).map(|node| cluster.metric(node, name)).sum()
}

#[test]
fn every_acknowledged_command_was_flushed_to_the_device() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cycles = 100;
    let device = || flushes(&cluster.node_dir(1)).unwrap_or(0);
    let batches = || sum(&cluster, "palisade_log_batches_total");
    let syncs = || sum(&cluster, "palisade_device_syncs_total");
    // Nodes also seal their logs when nothing comes, between any two looks. So at the beginning batches are counted
    // last, and at the end first.
    let first_look = || (device(), syncs(), batches());
    let last_look = || {
        let batches = batches();
        (device(), syncs(), batches)
    };
    let (before, after) = runtime.block_on(async {
        let client = Client::connect(ClientConfig::new(cluster.endpoints())).expect("a client");
        let session = client.session().open().await.expect("a session");
        let before = first_look();
        for _ in 0..cycles {
            let guard = session.advisory("k").acquire().await.expect("a grant");
            guard.release().await.expect("a release");
        }
        (before, last_look())
    });
    let (device, syncs, batches) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    println!("{} commands: {batches} batches, {syncs} syncs, {device} flushes of the device", 2 * cycles);
    // Each of the two commands of a cycle is acknowledged before the next is sent, and only when two
    // nodes have written it in a batch of its own and synced that.
    assert!(batches >= 4 * cycles, "{batches} batches for {} commands, one after the other", 2 * cycles);
    assert!(syncs >= batches, "{syncs} syncs for {batches} batches");
    if after.0 == 0 {
        println!(
            "the device of the temporary directory counts no flushes: only the nodes' own word was checked"
        );
        return;
    }
    // However the kernel merges the flushes of the three nodes, each command needs at least one.
    assert!(device >= 2 * cycles, "{device} flushes for {} commands, one after the other", 2 * cycles);
}

//! Leadership that is handed over: by an operator, and by nodes that are stopped in order, one after the
//! other, under writers. How long these were interrupted is printed, not asserted.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use palisade_client::{Client, ClientConfig, Epoch, Session};
use rustix::process::Signal;
use serde_json::Value;

use crate::kill::{eventually, everybody_caught_up, leader, status};
use crate::support::{Cluster, Process, finish, format_alone, one_cluster, palisade};

/// Writers, each of which starts a cycle so often.
const WRITERS: usize = 4;
const PERIOD: Duration = Duration::from_millis(10);
/// Grants of each writer before and after a restart.
const GRANTS_BETWEEN: u64 = 30;

/// What one writer was told.
#[derive(Clone, Copy, Default)]
struct Told {
    epoch: Epoch,
    grants: u64,
    last: Option<Instant>,
    longest_gap: Duration,
}

#[derive(Default)]
struct Ledger([Mutex<Told>; WRITERS]);

impl Ledger {
    fn grant(&self, writer: usize, epoch: Epoch) {
        let mut told = self.0[writer].lock().expect("nobody panics with it");
        let now = Instant::now();
        assert!(told.epoch < epoch, "epoch {epoch} after {}: an acknowledged grant is lost", told.epoch);
        let gap = told.last.map_or(Duration::ZERO, |last| now - last);
        *told =
            Told { epoch, grants: told.grants + 1, last: Some(now), longest_gap: told.longest_gap.max(gap) };
    }

    fn read(&self) -> [Told; WRITERS] {
        core::array::from_fn(|writer| *self.0[writer].lock().expect("nobody panics with it"))
    }

    /// The longest time any writer has waited since the last call.
    fn take_longest_gap(&self) -> Duration {
        let gaps = self
            .0
            .iter()
            .map(|told| std::mem::take(&mut told.lock().expect("nobody panics with it").longest_gap));
        gaps.max().unwrap_or_default()
    }

    async fn all_go_on(&self) {
        let before = self.read();
        eventually("every writer goes on", || async {
            let now = self.read();
            let past = |(now, before): (&Told, &Told)| now.grants > before.grants + GRANTS_BETWEEN;
            now.iter().zip(&before).all(past).then_some(())
        })
        .await;
    }
}

async fn write(session: Session, writer: usize, ledger: &Ledger) {
    let mut pace = tokio::time::interval(PERIOD);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let guard = session.advisory(format!("writer-{writer}")).acquire().await.expect("the session lives");
        ledger.grant(writer, guard.fence().epoch());
        guard.release().await.expect("the session lives");
    }
}

/// Stops each node by SIGTERM and starts it again, the leader of the moment in every round but the last.
async fn rounds(cluster: &mut Cluster, ledger: &Ledger) {
    for round in 0..6 {
        everybody_caught_up(cluster).await;
        ledger.all_go_on().await;
        let quiet = ledger.take_longest_gap();
        let led = leader(cluster).await;
        let victim = if round < 5 { led } else { led % 3 + 1 };
        let term = status(cluster, led).await.expect("it runs").term;
        let (begun, given_up) = hand_overs(cluster, victim);
        assert_eq!((begun, given_up), (0, 0), "it has just been started, or never handed over");
        let stopped_at = Instant::now();
        let log = cluster.stop_node(victim);
        let stopped_in = stopped_at.elapsed();
        cluster.start_node(victim);
        ledger.all_go_on().await;
        let new = leader(cluster).await;
        if victim == led {
            assert!(log.contains("handing the leadership over"), "{log}");
            assert!(!log.contains("nobody has taken the leadership over"), "{log}");
            assert_ne!(new, led, "another leads");
            let now = status(cluster, new).await.expect("it runs").term;
            assert_eq!(now, term.next(), "one election, at the first try");
        } else {
            assert_eq!(new, led, "a follower takes no leadership with it");
        }
        println!(
            "restart {round} of node {victim}, {}: writers interrupted for {:?} (at rest {quiet:?}), stopped in {stopped_in:?}",
            if victim == led { "the leader" } else { "a follower" },
            ledger.take_longest_gap(),
        );
    }
}

fn hand_overs(cluster: &Cluster, node: u16) -> (u64, u64) {
    let count = |name: &str| cluster.metric(node, name);
    (count("palisade_hand_overs_total"), count("palisade_hand_overs_given_up_total"))
}

#[test]
fn a_rolling_restart_hands_over_and_loses_nothing() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ledger = Ledger::default();
    runtime.block_on(async {
        let client = Client::connect(ClientConfig::new(cluster.endpoints())).expect("a client");
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let session = client.session().open().await.expect("a session");
            writers.push(Box::pin(write(session, writer, &ledger)));
        }
        let mut writers = writers.into_iter();
        let mut next = || writers.next().expect("counted");
        let (mut a, mut b, mut c, mut d) = (next(), next(), next(), next());
        tokio::select! {
            () = rounds(&mut cluster, &ledger) => {}
            () = &mut a => unreachable!("a writer never ends"),
            () = &mut b => unreachable!("a writer never ends"),
            () = &mut c => unreachable!("a writer never ends"),
            () = &mut d => unreachable!("a writer never ends"),
        }
        for (writer, told) in ledger.read().iter().enumerate() {
            let seen = client.describe(&format!("writer-{writer}")).await.expect("a read").value;
            assert!(seen.epoch >= told.epoch, "writer {writer}: {} was acknowledged", told.epoch);
        }
    });
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn an_operator_hands_leadership_to_a_node_and_it_is_on_record() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let led = runtime.block_on(leader(&cluster));
    let to = led % 3 + 1;

    let done = finish(&mut cluster.command(["--json", "transfer", "--to", &to.to_string(), "--by", "ann"]));
    assert_eq!(done.code, Some(0), "{}{}", done.stderr, cluster.logs());
    let line = json(&done.stdout);
    assert_eq!(line["leader"], u64::from(to));
    assert_eq!(runtime.block_on(leader(&cluster)), to);
    let acts = finish(&mut cluster.command(["--json", "acts"]));
    let act = json(acts.stdout.lines().find(|l| l.contains("transfer")).expect("it is on record"));
    assert_eq!((&act["to"], &act["by"], &act["action"]), (&line["leader"], &"ann".into(), &line["action"]));

    let again = finish(&mut cluster.command(["transfer", "--to", &to.to_string()]));
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stdout.contains("nothing was to be done"), "{}", again.stdout);

    let away = finish(&mut cluster.command(["transfer"]));
    assert_eq!(away.code, Some(0), "{}", away.stderr);
    assert_ne!(runtime.block_on(leader(&cluster)), to);

    let stranger = finish(&mut cluster.command(["transfer", "--to", "9"]));
    assert_eq!(stranger.code, Some(1), "{}", stranger.stderr);
    assert!(stranger.stderr.contains("node 9 is not a voter"), "{}", stranger.stderr);
    let nonsense = finish(&mut cluster.command(["transfer", "--to", "0"]));
    assert_eq!(nonsense.code, Some(64), "{}", nonsense.stderr);
}

#[test]
fn a_leader_that_nobody_follows_stops_without_handing_over() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let led = runtime.block_on(leader(&cluster));
    for node in (1..=3).filter(|node| *node != led) {
        cluster.kill_node(node);
    }
    let log = cluster.stop_node(led);
    assert!(log.contains("stopped"), "{log}");
}

#[test]
fn a_node_alone_stops_at_once_and_has_nobody_to_hand_over_to() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().expect("a directory for temporary files");
    let endpoint = format_alone(dir.path());
    let mut node = Process::start(palisade().arg("serve").arg(dir.path()));
    let transfer = finish(palisade().env("PALISADE_ENDPOINTS", &endpoint).args(["transfer"]));
    assert_eq!(transfer.code, Some(64), "{}", transfer.stderr);
    assert!(transfer.stderr.contains("no other voter"), "{}", transfer.stderr);
    node.signal(Signal::TERM);
    let status = node.wait();
    let log = node.finished(status).stderr;
    assert!(status.success() && !log.contains("handing"), "{log}");
}

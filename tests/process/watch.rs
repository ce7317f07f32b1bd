//! Watches of real clusters: whatever is restarted, the stream has no gap and repeats nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade_client::{Client, ClientConfig, Epoch, Happened, Listing, Selector, Session, Watch, WatchItem};
use serde_json::Value;

use crate::support::{Cluster, PATIENCE, Process, finish, one_cluster};

const KEYS: [&str; 3] = ["jobs/a", "jobs/b", "jobs/c"];

/// What a watch has told, held against the rules as it comes in.
#[derive(Default)]
struct Seen {
    /// The last epoch of each key, and whether it is held.
    keys: BTreeMap<String, (Epoch, bool)>,
    changes: u64,
    revision: u64,
}

impl Seen {
    fn take(&mut self, item: WatchItem) {
        match item {
            WatchItem::Listing(why) => {
                assert_eq!((why, self.changes), (Listing::Asked, 0), "the stream has a gap");
            }
            WatchItem::Row(event) => panic!("nothing is held at the beginning, but {event:?}"),
            WatchItem::Listed { .. } | WatchItem::Progress { .. } => {}
            WatchItem::Change { event, coalesced, .. } => {
                assert!(!coalesced && event.revision.0 >= self.revision, "{event:?}");
                self.revision = event.revision.0;
                self.changes += 1;
                let key = event.key.as_deref().expect("a key").to_owned();
                let before = self.keys.insert(key.clone(), (Epoch(0), false)).unwrap_or((Epoch(0), false));
                let now = match event.what {
                    Happened::Granted { epoch, .. } => (epoch, true),
                    Happened::Released { epoch, .. } => (epoch, false),
                    other => panic!("{other:?}"),
                };
                // One grant after the other, each released before the next: an event that is missing or
                // comes twice breaks this.
                let next = if before.1 { (before.0, false) } else { (Epoch(before.0.0 + 1), true) };
                assert_eq!(now, next, "{key} after {before:?}");
                self.keys.insert(key, now);
            }
        }
    }

    /// Reads on until this key is held under this epoch.
    async fn until_held(&mut self, watch: &mut Watch, key: &str, epoch: Epoch) {
        let reading = async {
            while self.keys.get(key) != Some(&(epoch, true)) {
                self.take(watch.next().await.expect("the watch goes on"));
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the event arrives");
    }
}

async fn churn(session: &Session, times: usize) {
    for n in 0..times {
        let guard = session.advisory(KEYS[n % KEYS.len()]).acquire().await.expect("a grant");
        guard.release().await.expect("released");
    }
}

async fn restart_all(cluster: &mut Cluster, session: &Session) {
    for node in 1..=3 {
        churn(session, 10).await;
        cluster.kill_and_restart(node);
        churn(session, 10).await;
    }
}

#[test]
fn a_watch_survives_the_restart_of_every_node_without_a_gap_or_a_repeat() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut config = ClientConfig::new(cluster.endpoints());
        config.call_timeout = PATIENCE;
        let client = Client::connect(config).expect("a client");
        let session = client.session().ttl(Duration::from_secs(60)).open().await.expect("a session");
        let mut watch = client.watch(Selector::prefix("jobs/").expect("a name")).start();
        let mut seen = Seen::default();
        while !matches!(watch.next().await, Ok(WatchItem::Listed { .. })) {}

        restart_all(&mut cluster, &session).await;
        let mark = session.advisory("jobs/mark").acquire().await.expect("a grant");
        seen.until_held(&mut watch, "jobs/mark", mark.fence().epoch()).await;
        assert_eq!(seen.changes, 121);
        mark.release().await.expect("released");

        // Nobody reads the stream while everything is restarted once more; then all of it arrives.
        restart_all(&mut cluster, &session).await;
        for node in 1..=3 {
            cluster.kill_node(node);
        }
        for node in 1..=3 {
            cluster.start_node(node);
        }
        churn(&session, 10).await;
        let mark = session.advisory("jobs/mark").acquire().await.expect("a grant");
        seen.until_held(&mut watch, "jobs/mark", mark.fence().epoch()).await;
        assert_eq!(seen.changes, 263);
    });
}

fn json(process: &mut Process) -> Value {
    serde_json::from_str(&process.line()).expect("one line of JSON")
}

fn lock(cluster: &Cluster, key: &str) {
    let end = finish(&mut cluster.command(["lock", "--owner", "w", "--advisory", key, "--", "true"]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
}

#[test]
fn the_command_prints_changes_and_goes_on_from_a_cursor_after_everything_was_restarted() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    let mut watch = Process::start(&mut cluster.command(["--json", "--timeout", "60s", "watch", "jobs/"]));
    assert_eq!(json(&mut watch)["what"], "listing");
    assert!(json(&mut watch)["cursor"].is_string());
    lock(&cluster, "other");
    lock(&cluster, "jobs/1");
    let (granted, released) = (json(&mut watch), json(&mut watch));
    assert_eq!((&granted["what"], &granted["key"]), (&"granted".into(), &"jobs/1".into()));
    assert_eq!((&granted["owner"], &granted["epoch"]), (&"w".into(), &1.into()));
    assert_eq!((&released["what"], &released["cause"]), (&"released".into(), &"released".into()));
    watch.kill();

    lock(&cluster, "jobs/2");
    for node in 1..=3 {
        cluster.kill_and_restart(node);
    }
    lock(&cluster, "jobs/1");
    let cursor = granted["cursor"].as_str().expect("a cursor");
    let flags = ["--json", "--timeout", "60s", "watch", "jobs/", "--from", cursor];
    let mut watch = Process::start(&mut cluster.command(flags));
    assert_eq!(json(&mut watch), released, "what followed the cursor, though no node has lived through it");
    let rest: Vec<Value> = (0..4).map(|_| json(&mut watch)).collect();
    let told: Vec<(&str, &str, u64)> = rest
        .iter()
        .map(|line| {
            let text = |field: &str| line[field].as_str().unwrap_or_default();
            (text("what"), text("key"), line["epoch"].as_u64().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("granted", "jobs/2", 1),
            ("released", "jobs/2", 1),
            ("granted", "jobs/1", 2),
            ("released", "jobs/1", 2)
        ]
    );
    watch.kill();

    let other = format!("{}{}{}", &cursor[..2], "0123456789abcdef", &cursor[18..]);
    let end = finish(&mut cluster.command(["watch", "jobs/", "--from", &other]));
    assert_eq!(end.code, Some(1));
    assert!(end.stderr.contains("another one, or was restored"), "{}", end.stderr);
    let end = finish(&mut cluster.command(["watch", "jobs/", "--from", "nonsense"]));
    assert_eq!(end.code, Some(64), "{}", end.stderr);
}

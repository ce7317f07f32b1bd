//! The zombie writer: a holder that is stopped past its lease wakes up, learns that the lock is lost,
//! and its late write is refused by a resource that applies the rule. The holder is this test's own
//! executable, started again with the variables below.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use palisade_client::{Client, ClientConfig, Epoch, Fence, Floor, LostReason, Refused};
use rustix::process::Signal;

use crate::support::{Cluster, PATIENCE, Process, one_cluster};

const ENDPOINTS: &str = "TEST_ZOMBIE_ENDPOINTS";
const RESOURCE: &str = "TEST_ZOMBIE_RESOURCE";

/// A resource that applies the rule: a file whose first line is the floor. Check, raise and write are
/// one step under the file's lock, durable before the lock is given up.
struct Resource(File);

impl Resource {
    fn open(path: &Path) -> Resource {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        Resource(file.expect("the resource's file"))
    }

    fn write(&mut self, fence: &Fence, text: &str) -> Result<(), Refused> {
        self.0.lock().expect("the lock of the file");
        let mut old = String::new();
        self.0.seek(SeekFrom::Start(0)).and_then(|_| self.0.read_to_string(&mut old)).expect("reading");
        let floor = old.lines().next().map_or(0, |line| line.parse().expect("a floor"));
        let verdict = Floor(floor).admit(fence).map(|floor| {
            let mut new = format!("{}\n", floor.0);
            old.lines().skip(1).chain([text]).for_each(|line| {
                new.push_str(line);
                new.push('\n');
            });
            self.0.seek(SeekFrom::Start(0)).and_then(|_| self.0.write_all(new.as_bytes())).expect("writing");
            self.0.sync_all().expect("syncing");
        });
        self.0.unlock().expect("the lock of the file");
        verdict
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Not a test by itself: the holder's process.
#[test]
fn holder() {
    let (Ok(endpoints), Ok(path)) = (std::env::var(ENDPOINTS), std::env::var(RESOURCE)) else { return };
    runtime().block_on(async {
        let client = Client::connect(ClientConfig::new(endpoints.split(','))).expect("a client");
        let session = client.session().ttl(Duration::from_secs(1)).open().await.expect("a session");
        let guard = session.fenced("job", "ledger").acquire().await.expect("the lock");
        let mut resource = Resource::open(Path::new(&path));
        resource.write(guard.fence(), "first").expect("the holder's own write");
        println!("\nholding {}", guard.fence());
        let reason = guard.lost().await;
        let verdict = resource.write(guard.fence(), "late");
        println!("lost {}", matches!(reason, LostReason::DeadlinePassed | LostReason::Ended(_)));
        println!("valid {}", guard.is_valid());
        println!("late {verdict:?}");
    });
}

#[test]
fn the_late_write_of_a_stopped_holder_is_refused() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let path = cluster.path("ledger");
    let mut command = std::process::Command::new(std::env::current_exe().expect("this executable"));
    command.args(["--exact", "zombie::holder", "--nocapture", "--test-threads=1"]);
    command.env(ENDPOINTS, cluster.endpoints().join(",")).env(RESOURCE, &path);
    let mut zombie = Process::start(&mut command);
    let line = |zombie: &mut Process, start: &str| loop {
        let line = zombie.line();
        if let Some(rest) = line.strip_prefix(start) {
            return rest.to_owned();
        }
    };
    assert_eq!(line(&mut zombie, "holding "), "job@1/1");
    zombie.signal(Signal::STOP);

    let fence = runtime().block_on(async {
        let client = Client::connect(ClientConfig::new(cluster.endpoints())).unwrap();
        let session = client.session().open().await.unwrap();
        // Waits in the queue until the zombie's session has expired.
        let next = session.fenced("job", "ledger").acquire();
        let guard = tokio::time::timeout(PATIENCE, next).await.expect("granted in time").unwrap();
        assert!(guard.fence().epoch() > Epoch(1));
        let mut resource = Resource::open(&path);
        resource.write(guard.fence(), "second").unwrap();
        let fence = guard.fence().clone();
        guard.release().await.unwrap();
        fence
    });

    zombie.signal(Signal::CONT);
    assert_eq!(line(&mut zombie, "lost "), "true");
    assert_eq!(line(&mut zombie, "valid "), "false");
    let floor = fence.barrier().0;
    assert_eq!(line(&mut zombie, "late "), format!("Err(Refused {{ epoch: 1, floor: {floor} }})"));
    assert!(zombie.wait().success());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{floor}\nfirst\nsecond\n"));
}

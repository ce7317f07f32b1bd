//! The servers that recipes are tested against: started for a test, reachable from this machine alone, gone with it.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

/// A program on the path, or where Debian keeps PostgreSQL's; else says what is SKIPPED.
fn find(program: &str, package: &str) -> Option<PathBuf> {
    let mut places: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        places.extend(versions.filter_map(Result::ok).map(|v| v.path().join("bin")));
    }
    let found = places.into_iter().map(|dir| dir.join(program)).find(|path| path.is_file());
    if found.is_none() {
        // Not by `eprintln`, of which a test that passes shows nothing: whoever runs the tests is to see it.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {program} is not installed ({package})");
    }
    found
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !ready() {
        assert!(Instant::now() < until, "{what} is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A PostgreSQL of its own on a socket in its directory.
pub(crate) struct Postgres {
    child: Child,
    dir: TempDir,
}

impl Postgres {
    pub(crate) fn start() -> Option<Postgres> {
        let initdb = find("initdb", "the Debian package postgresql")?;
        let server = initdb.with_file_name("postgres");
        let dir = tempfile::tempdir().unwrap();
        // It refuses to run as root, and must be able to enter its directory.
        if geteuid().is_root() {
            let id = |flag| -> u32 {
                let out = Command::new("id").args([flag, "postgres"]).output().unwrap();
                String::from_utf8(out.stdout).unwrap().trim().parse().unwrap()
            };
            chown(dir.path(), Some(id("-u")), Some(id("-g"))).unwrap();
        }
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let data = dir.path().join("data");
        let made = Postgres::unprivileged(&initdb)
            .args(["--auth=trust", "--username=palisade", "--no-instructions", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        let child = Postgres::unprivileged(&server)
            .args(["-c", "listen_addresses=", "-D"])
            .arg(&data)
            .arg("-k")
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Postgres { child, dir };
        wait_until("PostgreSQL", || postgres::Client::connect(&server.address(), postgres::NoTls).is_ok());
        Some(server)
    }

    /// Ends with this test, and does not run as root.
    fn unprivileged(program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if geteuid().is_root() {
            command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
        }
        command.arg(program).current_dir("/");
        command
    }

    pub(crate) fn address(&self) -> String {
        format!("host={} user=palisade dbname=postgres", self.dir.path().display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _ = self.child.wait();
    }
}

/// An object store that speaks S3 and heeds the conditions of a put.
pub(crate) struct ObjectStore {
    child: Child,
    port: u16,
}

impl ObjectStore {
    pub(crate) fn start() -> Option<ObjectStore> {
        let program = find("moto_server", "net/fence/recipes/requirements.txt, by pip")?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = ObjectStore { child, port };
        wait_until("the object store", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(store)
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

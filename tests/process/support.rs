//! Processes, clusters and waiting.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::network::{Host, run_at};

/// Longer than anything here takes on a busy machine; nothing waits so long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at something that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

static ONE_CLUSTER: Mutex<()> = Mutex::new(());

/// Only one test at a time runs a cluster.
pub(crate) fn one_cluster() -> MutexGuard<'static, ()> {
    ONE_CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says something that is seen also when the test passes.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Looks until there is something to see.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The `palisade` of this build, without anything of the user's environment that would change it.
pub(crate) fn palisade() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PALISADE_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// What a finished process left.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end, which must come.
pub(crate) fn finish(command: &mut Command) -> Finished {
    let mut process = Process::start(command);
    let status = process.wait();
    process.finished(status)
}

/// Who runs with this variable in the environment it was started with.
pub(crate) fn marked(name: &str, value: &str) -> Vec<Pid> {
    let mark = format!("{name}={value}");
    let entries = std::fs::read_dir("/proc").expect("proc").flatten();
    let pids = entries.filter_map(|e| Pid::from_raw(e.file_name().to_str()?.parse().ok()?));
    let marked = |pid: &Pid| {
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        // Of who has ended and is not reaped nothing is read.
        environment.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()))
    };
    pids.filter(marked).collect()
}

/// A running process: killed when dropped, its output gathered.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    /// Starts it without stdin.
    pub(crate) fn start(command: &mut Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdout = child.stdout.take().expect("stdout is piped");
        let (line_in, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line_in.send(line).is_err() {
                    break;
                }
            }
        });
        let mut errors = child.stderr.take().expect("stderr is piped");
        let stderr = Arc::new(Mutex::new(String::new()));
        let gathered = stderr.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = errors.read(&mut bytes) {
                gathered
                    .lock()
                    .expect("nobody panics with it")
                    .push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Process { child, lines, seen: Vec::new(), stderr }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it has written to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().expect("nobody panics with it").clone()
    }

    /// The next line of its stdout.
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                line
            }
            Err(e) => panic!("no line on stdout: {e}; before: {:?}; stderr: {}", self.seen, self.stderr()),
        }
    }

    /// Sends a signal to it alone.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal)
            .expect("a child that is not reaped can be signalled");
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "does not end; stderr: {}", self.stderr());
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// SIGKILL, and gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The rest of its output, once it has ended.
    pub(crate) fn finished(&mut self, status: ExitStatus) -> Finished {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        // The other thread ends with the pipe; its last bytes may take a moment.
        until("the end of stderr", || (Arc::strong_count(&self.stderr) == 1).then_some(()));
        Finished { code: status.code(), stdout: self.seen.join("\n"), stderr: self.stderr() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port P such that P+1 to P+9 and P+101 to P+109 were free a moment ago, below the range from
/// which the kernel draws.
pub(crate) fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let start = 12_000 + u16::try_from(std::process::id() % 80).unwrap_or(0) * 220;
    for _ in 0..80 {
        let base = 12_000 + (start - 12_000 + NEXT.fetch_add(220, Ordering::Relaxed)) % 17_600;
        if (1..=9).all(|n| free(base + n) && free(base + 100 + n)) {
            return base;
        }
    }
    panic!("no free ports");
}

/// Three nodes formatted by hand, each a `palisade serve` of its own.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    /// The address under which the nodes listen.
    address: String,
    /// The host they run on, if it is not this one.
    host: Option<String>,
    base: u16,
    nodes: Vec<Option<Process>>,
}

impl Cluster {
    /// Formats and starts three nodes.
    pub(crate) fn start() -> Cluster {
        Cluster::start_with("")
    }

    /// The same with these lines in each node's configuration.
    pub(crate) fn start_with(settings: &str) -> Cluster {
        Cluster::start_at(None, "127.0.0.1", settings)
    }

    /// The same on another host, under an address that it has.
    pub(crate) fn start_within(host: &Host, address: &str) -> Cluster {
        Cluster::start_at(Some(host.name().to_owned()), address, "")
    }

    fn start_at(host: Option<String>, address: &str, settings: &str) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory for temporary files");
        let base = free_ports();
        let mut cluster = Cluster { dir, address: address.to_owned(), host, base, nodes: Vec::new() };
        for node in 1..=3 {
            let mut format = format_at(address, &cluster.node_dir(node), base, node);
            if cluster.host.is_some() {
                format.arg("--insecure");
            }
            let end = finish(&mut format);
            assert_eq!(end.code, Some(0), "{}", end.stderr);
            let file = cluster.node_dir(node).join("palisade.toml");
            let text = std::fs::read_to_string(&file).expect("format wrote it");
            std::fs::write(&file, format!("{settings}\n{text}")).expect("a configuration");
            cluster.nodes.push(None);
        }
        for node in 1..=3 {
            cluster.start_node(node);
        }
        cluster
    }

    /// Starts a node that does not run.
    pub(crate) fn start_node(&mut self, node: u16) {
        let mut serve = palisade();
        serve.arg("serve").arg(self.node_dir(node));
        let process = match &self.host {
            Some(host) => Process::start(&mut run_at(host, &serve)),
            None => Process::start(&mut serve),
        };
        let place = &mut self.nodes[usize::from(node) - 1];
        assert!(place.is_none(), "node {node} runs");
        *place = Some(process);
    }

    /// Kills a node with SIGKILL and starts it again.
    pub(crate) fn kill_and_restart(&mut self, node: u16) {
        self.kill_node(node);
        self.start_node(node);
    }

    /// Kills a node with SIGKILL.
    pub(crate) fn kill_node(&mut self, node: u16) {
        self.nodes[usize::from(node) - 1].take().expect("the node runs").kill();
    }

    /// Stops a node with SIGTERM, which must end well. Returns what it has logged.
    pub(crate) fn stop_node(&mut self, node: u16) -> String {
        let mut process = self.nodes[usize::from(node) - 1].take().expect("the node runs");
        process.signal(Signal::TERM);
        let status = process.wait();
        let end = process.finished(status);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        format!("{}{}", end.stdout, end.stderr)
    }

    /// What a node that runs has written to stderr.
    pub(crate) fn log_of(&self, node: u16) -> String {
        self.nodes[usize::from(node) - 1].as_ref().expect("the node runs").stderr()
    }

    /// The port from which those of the nodes count.
    pub(crate) fn base(&self) -> u16 {
        self.base
    }

    /// Sends a signal to a node that runs.
    pub(crate) fn signal_node(&self, node: u16, signal: Signal) {
        self.nodes[usize::from(node) - 1].as_ref().expect("the node runs").signal(signal);
    }

    /// Where a node keeps its files.
    pub(crate) fn node_dir(&self, node: u16) -> PathBuf {
        self.dir.path().join(format!("node-{node}"))
    }

    /// A path of one's own beside the nodes.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where clients connect to a node.
    pub(crate) fn endpoint(&self, node: u16) -> String {
        format!("{}:{}", self.address, self.base + node)
    }

    /// Where all nodes listen.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        (1..=3).map(|n| self.endpoint(n)).collect()
    }

    /// A number that a node's administration port reports, summed over its labels.
    pub(crate) fn metric(&self, node: u16, name: &str) -> u64 {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.base + 100 + node)).expect("the admin port");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let values = answer.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            (series.split('{').next() == Some(name)).then(|| value.parse::<u64>().expect("a whole number"))
        });
        let values: Vec<u64> = values.collect();
        assert!(!values.is_empty(), "{name} is not in: {answer}");
        values.iter().sum()
    }

    /// `palisade` with this cluster as its endpoints.
    pub(crate) fn command<I, S>(&self, arguments: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = palisade();
        command.env("PALISADE_ENDPOINTS", self.endpoints().join(",")).args(arguments);
        command
    }

    /// What the nodes have written to stderr, for messages.
    pub(crate) fn logs(&self) -> String {
        let logs = self.nodes.iter().enumerate().filter_map(|(i, node)| {
            let all = node.as_ref()?.stderr();
            let tail: Vec<&str> = all.lines().rev().take(15).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            Some(format!("--- node {}\n{}", i + 1, tail.join("\n")))
        });
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// Formats a node of a cluster of one. Returns where it will listen.
pub(crate) fn format_alone(dir: &Path) -> String {
    let endpoint = format!("127.0.0.1:{}", free_ports() + 1);
    let mut command = palisade();
    command.args(["format", "--cluster", "test", "--node", "1", "--peers", &format!("1={endpoint}")]);
    let end = finish(command.arg(dir));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    endpoint
}

/// `palisade format` of one of three nodes.
pub(crate) fn format(dir: &Path, base: u16, node: u16) -> Command {
    format_at("127.0.0.1", dir, base, node)
}

fn format_at(address: &str, dir: &Path, base: u16, node: u16) -> Command {
    let peers: Vec<String> = (1..=3).map(|n| format!("{n}={address}:{}", base + n)).collect();
    let mut command = palisade();
    command
        .args(["format", "--cluster", "test", "--node", &node.to_string(), "--peers", &peers.join(",")])
        .arg(dir);
    command
}

//! The nodes of a cluster on this machine, for `dev` and `demo`: `serve` processes of this executable, bound
//! to our life, restarted when they die.

use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use palisade::clock;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::connect;
use super::dev_dir::Layout;
use super::exit::{self, Failure};
use super::sys;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A node that ran so long starts again at the shortest back-off.
const SETTLED: Duration = Duration::from_secs(10);
/// Where glibc reads how its allocator is to behave.
const MALLOC_TUNABLES: &str = "GLIBC_TUNABLES";
/// So many ends in a row before the cluster was ever ready, and we give up.
const FIRST_TRIES: u32 = 5;
/// How long a node may take to hand over and stop.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Nodes that run until they are stopped. When this process ends, whatever ends it, they are killed.
pub(crate) struct Nodes {
    /// Who started them, as it calls itself on stderr.
    name: &'static str,
    stop: watch::Sender<bool>,
    keepers: JoinSet<()>,
    reports: mpsc::UnboundedReceiver<Report>,
}

impl Nodes {
    /// Starts those of a layout whose directories are prepared. `log`: what they log, where it is not what
    /// their configuration and the environment say. To be called on the main thread.
    pub(crate) fn start(name: &'static str, layout: &Layout, log: Option<&'static str>) -> Nodes {
        let (stop, stopping) = watch::channel(false);
        let (report, reports) = mpsc::unbounded_channel();
        let program = own_program();
        let mut keepers = JoinSet::new();
        for node in 1..=layout.nodes {
            let (program, report) = (program.clone(), report.clone());
            let keeper = Keeper { node, dir: layout.node_dir(node), program, log, report };
            keepers.spawn(keeper.run(stopping.clone()));
        }
        Nodes { name, stop, keepers, reports }
    }

    /// Returns once the cluster answers.
    ///
    /// # Errors
    /// When a node ends again and again, with its own exit code.
    pub(crate) async fn ready(&mut self, layout: &Layout) -> Result<(), Failure> {
        let mut ready =
            std::pin::pin!(connect::until_usable(self.name, layout.endpoints(), layout.cluster()));
        loop {
            tokio::select! {
                end = &mut ready => return end,
                Some(report) = self.reports.recv() => {
                    self.say(&report);
                    if report.ends_in_a_row >= FIRST_TRIES {
                        return Err(report.failure());
                    }
                }
            }
        }
    }

    /// Says on stderr what happens to nodes, for ever. May be dropped at any point.
    pub(crate) async fn watch(&mut self) -> std::convert::Infallible {
        loop {
            match self.reports.recv().await {
                Some(report) => self.say(&report),
                // No keeper ends before it is told to.
                None => std::future::pending().await,
            }
        }
    }

    fn say(&self, report: &Report) {
        let Report { node, end, after, again, .. } = report;
        eprintln!(
            "{}: node {node} {end} after {:.1} s; starting it again in {:.1} s",
            self.name,
            after.as_secs_f64(),
            again.as_secs_f64(),
            end = describe_end(end)
        );
    }

    /// Stops them all and returns when they have ended.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
    }
}

fn describe_end(end: &Result<ExitStatus, std::io::Error>) -> String {
    match end {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with status {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(e) => format!("could not be started: {e}"),
    }
}

/// This executable, also when its file has been replaced meanwhile.
pub(crate) fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

/// A node ended and will be started again.
struct Report {
    node: u32,
    end: Result<ExitStatus, std::io::Error>,
    after: Duration,
    ends_in_a_row: u32,
    again: Duration,
}

impl Report {
    /// What it means for a cluster that was never ready.
    fn failure(&self) -> Failure {
        let code = self.end.as_ref().ok().and_then(ExitStatus::code).and_then(|c| u8::try_from(c).ok());
        let message = format!("node {} does not start: see its messages above", self.node);
        Failure::new(code.filter(|c| *c != 0).unwrap_or(exit::SOFTWARE), message)
    }
}

/// Keeps one node running.
struct Keeper {
    node: u32,
    dir: PathBuf,
    program: PathBuf,
    log: Option<&'static str>,
    report: mpsc::UnboundedSender<Report>,
}

impl Keeper {
    async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut ends_in_a_row = 0;
        let mut again = BACKOFF_MIN;
        while !*stopping.borrow() {
            let started = clock::now();
            let end = match spawn(&self.program, &self.dir, self.log) {
                Ok(mut child) => {
                    let ended = tokio::select! {
                        end = child.wait() => Some(end),
                        () = told(&mut stopping) => None,
                    };
                    let Some(end) = ended else { return stop(&mut child).await };
                    end
                }
                Err(e) => Err(e),
            };
            if clock::now().since(started) >= SETTLED {
                (ends_in_a_row, again) = (0, BACKOFF_MIN);
            }
            ends_in_a_row += 1;
            let report =
                Report { node: self.node, end, after: clock::now().since(started), ends_in_a_row, again };
            // Once nobody listens we are being stopped.
            let _ = self.report.send(report);
            tokio::select! {
                () = tokio::time::sleep(again) => (),
                () = told(&mut stopping) => (),
            }
            again = (again * 2).min(BACKOFF_MAX);
        }
    }
}

/// Returns once everything is to stop.
async fn told(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|s| *s).await;
}

/// Starts a node. It lives in a process group of its own, so that Ctrl-C reaches us alone, and dies with us.
/// Its stdout goes to our stderr: stdout is for what we say.
fn spawn(program: &Path, dir: &Path, log: Option<&str>) -> std::io::Result<Child> {
    let mut command = std::process::Command::new(program);
    command.arg0("palisade").arg("serve").arg(dir).process_group(0).stdin(Stdio::null());
    if let Some(log) = log {
        command.args(["--log", log]);
    }
    // Tables in huge pages, where the host allows it to those who ask: see tuning/README.md.
    if std::env::var_os(MALLOC_TUNABLES).is_none() {
        command.env(MALLOC_TUNABLES, "glibc.malloc.hugetlb=1");
    }
    command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
    sys::die_with_parent(&mut command);
    Command::from(command).spawn()
}

/// Asks a node to stop, and kills it if it does not.
async fn stop(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(STOP_TIME, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

//! `palisade dev`: a durable cluster on loopback. Three `serve` processes of this executable, bound
//! to our life, restarted when they die.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use palisade::clock;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::args::DevArgs;
use super::connect;
use super::dev_dir::{self, Layout};
use super::exit::{self, Failure};
use super::sys;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A node that ran so long starts again at the shortest back-off.
const SETTLED: Duration = Duration::from_secs(10);
/// Where glibc reads how its allocator is to behave.
const MALLOC_TUNABLES: &str = "GLIBC_TUNABLES";
/// So many ends in a row before the cluster was ever ready, and `dev` gives up.
const FIRST_TRIES: u32 = 5;
/// How long ports may be taken by what is on its way out.
const PORTS_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node may take to hand over and stop.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Runs the cluster until a signal ends it.
pub(crate) async fn run(args: DevArgs) -> Result<u8, Failure> {
    let layout = Layout { dir: dev_dir::locate(args.dir)?, nodes: args.nodes, port: args.port };
    let _claim: File = dev_dir::claim(&layout.dir)?;
    if args.fresh {
        dev_dir::wipe(&layout)?;
    }
    dev_dir::prepare(&layout)?;
    ports_are_free(&layout).await?;

    let mut ends = Ends::listen()?;
    let (stop, stopping) = watch::channel(false);
    let (report, mut reports) = mpsc::unbounded_channel();
    let program = own_program();
    let mut nodes = tokio::task::JoinSet::new();
    for node in 1..=layout.nodes {
        let keeper =
            Keeper { node, dir: layout.node_dir(node), program: program.clone(), report: report.clone() };
        nodes.spawn(keeper.run(stopping.clone()));
    }
    let end = tokio::select! {
        end = announce(&layout, &mut reports) => end,
        () = ends.next() => Ok(0),
    };
    stop.send_replace(true);
    while nodes.join_next().await.is_some() {}
    end
}

/// Another cluster on our ports would answer in place of ours. Nodes of a `dev` that was killed a
/// moment ago may still be on their way out.
async fn ports_are_free(layout: &Layout) -> Result<(), Failure> {
    let patience = clock::now() + PORTS_PATIENCE;
    for address in layout.addresses() {
        while let Err(error) = TcpListener::bind(address) {
            if clock::now() >= patience {
                let message =
                    format!("{address}: {error}: is another cluster running? Choose another --port");
                return Err(Failure::new(exit::OS, message));
            }
            tokio::time::sleep(BACKOFF_MIN).await;
        }
    }
    Ok(())
}

/// Says `ready:` when the cluster is, then reports what happens to nodes, for ever.
async fn announce(layout: &Layout, reports: &mut mpsc::UnboundedReceiver<Report>) -> Result<u8, Failure> {
    let endpoints = layout.endpoints();
    let mut ready = std::pin::pin!(connect::until_usable(endpoints.clone(), layout.cluster()));
    let mut is_ready = false;
    loop {
        tokio::select! {
            end = &mut ready, if !is_ready => {
                end?;
                is_ready = true;
                let mut out = std::io::stdout();
                writeln!(out, "ready: {}", endpoints.join(","))
                    .and_then(|()| out.flush())
                    .map_err(|e| Failure::new(exit::OS, format!("cannot write to stdout: {e}")))?;
            }
            Some(report) = reports.recv() => {
                let Report { node, end, after, ends_in_a_row, again } = report;
                eprintln!(
                    "palisade dev: node {node} {end} after {:.1} s; starting it again in {:.1} s",
                    after.as_secs_f64(), again.as_secs_f64(), end = describe_end(&end)
                );
                if !is_ready && ends_in_a_row >= FIRST_TRIES {
                    let code = end.as_ref().ok().and_then(ExitStatus::code).and_then(|c| u8::try_from(c).ok());
                    let message = format!("node {node} does not start: see its messages above");
                    return Err(Failure::new(code.filter(|c| *c != 0).unwrap_or(exit::SOFTWARE), message));
                }
            }
        }
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
fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

/// The signals that end `dev`.
struct Ends {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Ends {
    fn listen() -> Result<Ends, Failure> {
        let on =
            |kind| signal(kind).map_err(|e| Failure::new(exit::OS, format!("cannot watch signals: {e}")));
        Ok(Ends {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hang_up: on(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
            _ = self.hang_up.recv() => (),
        }
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

/// Keeps one node running.
struct Keeper {
    node: u32,
    dir: PathBuf,
    program: PathBuf,
    report: mpsc::UnboundedSender<Report>,
}

impl Keeper {
    async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut ends_in_a_row = 0;
        let mut again = BACKOFF_MIN;
        while !*stopping.borrow() {
            let started = clock::now();
            let end = match spawn(&self.program, &self.dir) {
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

/// Starts a node. It lives in a process group of its own, so that Ctrl-C reaches `dev` alone, and
/// dies with `dev`. Its stdout goes to our stderr: stdout is for `ready:`.
fn spawn(program: &Path, dir: &Path) -> std::io::Result<Child> {
    let mut command = std::process::Command::new(program);
    command.arg0("palisade").arg("serve").arg(dir).process_group(0).stdin(Stdio::null());
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

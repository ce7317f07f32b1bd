//! A cluster of our own: `palisade dev` on loopback with its data on a disk, for the life of a run.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::BenchError;
use crate::{host, sys};

/// How long the nodes may take to elect a leader.
const READY_TIME: Duration = Duration::from_secs(60);
/// How long they may take to stop; `dev` itself kills its nodes after five seconds.
const STOP_TIME: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);
/// Where the nodes' messages go, in the cluster's directory.
const LOG_FILE: &str = "bench-cluster.log";
/// A directory nobody named is called this and the number of our process.
const SCRATCH_PREFIX: &str = "run-";
/// How much of that an error shows.
const LOG_LINES_SHOWN: usize = 12;
/// File systems in memory: their fsync costs nothing, and figures from there mean nothing.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A running cluster. Dropping it stops it.
pub(crate) struct Cluster {
    /// Where clients connect.
    pub(crate) endpoints: Vec<String>,
    /// The server processes, one a node, as they were at the start.
    pub(crate) pids: Vec<u32>,
    dev: Child,
    /// Removed at the end: nobody named it.
    scratch: Option<PathBuf>,
}

impl Cluster {
    /// Starts so many nodes at the ports behind `port`, on a fresh directory, and waits until they
    /// have a leader. Call from the main thread: the cluster ends with the thread that started it.
    pub(crate) fn start(nodes: u32, dir: &Path, port: u16, palisade: &Path) -> Result<Cluster, BenchError> {
        fs::create_dir_all(dir).map_err(|e| BenchError::io(dir.display(), e))?;
        refuse_memory(dir)?;
        let log_path = dir.join(LOG_FILE);
        let log = File::create(&log_path).map_err(|e| BenchError::io(log_path.display(), e))?;
        let mut command = Command::new(palisade);
        command.arg("dev").args(["--nodes", &nodes.to_string()]).arg("--dir").arg(dir).arg("--fresh");
        command.args(["--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        sys::stop_with_parent(&mut command);
        let mut dev = command.spawn().map_err(|e| BenchError::io(palisade.display(), e))?;
        let stdout = dev.stdout.take();
        // From here on, dropping stops it.
        let mut cluster = Cluster { endpoints: Vec::new(), pids: Vec::new(), dev, scratch: None };
        let ready = stdout.and_then(wait_until_ready);
        let Some(endpoints) = ready else {
            return Err(BenchError::Cluster(last_lines(&log_path)));
        };
        cluster.endpoints = endpoints;
        cluster.pids = host::children(cluster.dev.id());
        if cluster.pids.len() != nodes as usize {
            let found = cluster.pids.len();
            return Err(BenchError::Cluster(format!(
                "{found} of {nodes} nodes run: {}",
                last_lines(&log_path)
            )));
        }
        Ok(cluster)
    }

    /// The same on a directory nobody named, which is removed at the end.
    pub(crate) fn start_in_scratch(nodes: u32, port: u16, palisade: &Path) -> Result<Cluster, BenchError> {
        let dir = scratch_dir()?;
        let started = Cluster::start(nodes, &dir, port, palisade);
        if started.is_err() {
            // The error has quoted the messages in there.
            let _ = fs::remove_dir_all(&dir);
        }
        let mut cluster = started?;
        cluster.scratch = Some(dir);
        Ok(cluster)
    }

    /// The process that keeps the nodes running, restarting those that die.
    pub(crate) fn keeper(&self) -> u32 {
        self.dev.id()
    }

    fn stop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.dev.id().cast_signed()) {
            // One that ended by itself is still ours to reap: the number cannot be another's.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIME;
        while matches!(self.dev.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.dev.kill();
                let _ = self.dev.wait();
                return;
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
        if let Some(dir) = &self.scratch {
            // Data left behind costs room, and is no reason to fail a run that is done.
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Reads the endpoints off the `ready:` line; `None` when it does not come.
fn wait_until_ready(stdout: ChildStdout) -> Option<Vec<String>> {
    let (tell, told) = mpsc::channel();
    // Reads on to the end, so that `dev` never meets a closed pipe.
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(endpoints) = parse_ready(&line) {
                // Whoever waited may have given up.
                let _ = tell.send(endpoints);
            }
        }
    });
    told.recv_timeout(READY_TIME).ok()
}

fn parse_ready(line: &str) -> Option<Vec<String>> {
    let list = line.strip_prefix("ready: ")?;
    Some(list.split(',').map(|endpoint| endpoint.trim().to_owned()).collect())
}

fn last_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
    format!("the end of {}:\n{}", path.display(), shown.join("\n"))
}

/// Refuses a directory whose file system lives in memory.
pub(crate) fn refuse_memory(dir: &Path) -> Result<(), BenchError> {
    let stat = rustix::fs::statfs(dir).map_err(|e| BenchError::io(dir.display(), e))?;
    let kind = u64::try_from(stat.f_type).unwrap_or_default();
    if IN_MEMORY.contains(&kind) {
        return Err(BenchError::Usage(format!(
            "{} is in memory, where an fsync costs nothing: name a directory on a disk with --dir",
            dir.display()
        )));
    }
    Ok(())
}

/// A new directory for a cluster, in the user's cache directory, or beside this executable.
pub(crate) fn scratch_dir() -> Result<PathBuf, BenchError> {
    let base = scratch_base(|name| std::env::var_os(name).map(PathBuf::from))
        .or_else(|| Some(std::env::current_exe().ok()?.parent()?.join("palisade-bench-data")))
        .ok_or_else(|| BenchError::Usage("no place for data: name a directory with --dir".to_owned()))?;
    remove_abandoned(&base);
    let dir = base.join(format!("{SCRATCH_PREFIX}{}", std::process::id()));
    fs::create_dir_all(&dir).map_err(|e| BenchError::io(dir.display(), e))?;
    Ok(dir)
}

/// Removes the directories of runs that were killed: they are named after processes that are no more.
fn remove_abandoned(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(SCRATCH_PREFIX));
        if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
            // What cannot be removed costs room and nothing else.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// XDG base directories: relative paths are to be ignored.
fn scratch_base(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("palisade-bench"))
}

/// The server's executable: the one given, or the one beside ours.
pub(crate) fn palisade_path(given: Option<&Path>) -> Result<PathBuf, BenchError> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let own = std::env::current_exe().map_err(|e| BenchError::io("this executable", e))?;
    let path = own.with_file_name("palisade");
    if path.exists() {
        return Ok(path);
    }
    Err(BenchError::Usage(format!("{} is not there: say --palisade PATH", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_names_the_endpoints() {
        let ready = parse_ready("ready: 127.0.0.1:7901,127.0.0.1:7902");
        assert_eq!(ready, Some(vec!["127.0.0.1:7901".to_owned(), "127.0.0.1:7902".to_owned()]));
        assert_eq!(parse_ready("palisade dev: node 1 ended"), None);
    }

    #[test]
    fn data_goes_to_the_cache_directory_and_relative_paths_are_ignored() {
        let base = |xdg: &str, home: &str| {
            scratch_base(|name| match name {
                "XDG_CACHE_HOME" => Some(PathBuf::from(xdg)),
                _ => Some(PathBuf::from(home)),
            })
        };
        assert_eq!(base("/c", "/h"), Some(PathBuf::from("/c/palisade-bench")));
        assert_eq!(base("c", "/h"), Some(PathBuf::from("/h/.cache/palisade-bench")));
        assert_eq!(base("c", "h"), None);
    }

    #[test]
    fn directories_of_runs_that_were_killed_are_removed_and_nothing_else() {
        let base = std::env::temp_dir().join(format!("bench-abandoned-{}", std::process::id()));
        let own = format!("{SCRATCH_PREFIX}{}", std::process::id());
        // No process has this number: it is above the kernel's limit.
        for name in ["run-4194305", own.as_str(), "run-x", "other"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        remove_abandoned(&base);
        let mut left: Vec<String> =
            fs::read_dir(&base).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        fs::remove_dir_all(&base).unwrap();
        let mut expected = vec!["other".to_owned(), own, "run-x".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_file_system_in_memory_is_refused() {
        // Every Linux has one there.
        let refused = refuse_memory(Path::new("/dev/shm"));
        assert!(matches!(refused, Err(BenchError::Usage(_))), "{refused:?}");
    }

    #[test]
    fn a_program_that_is_no_server_is_an_error() {
        let dir = std::env::temp_dir().join(format!("bench-cluster-test-{}", std::process::id()));
        let started = Cluster::start(3, &dir, 7900, Path::new("/bin/false"));
        let _ = fs::remove_dir_all(&dir);
        assert!(matches!(started, Err(BenchError::Cluster(_) | BenchError::Usage(_))));
    }
}

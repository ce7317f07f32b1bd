//! Who used the machine's CPU in a window: the servers, this process, the kernel's own threads on
//! their behalf (completion of disk blocks), and whoever else shared the machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use crate::error::BenchError;

/// The unit of /proc's CPU times (USER_HZ), which every architecture of Linux shows as 100.
const TICKS_PER_SECOND: f64 = 100.0;
/// The parent of all kernel threads.
const KTHREADD: u32 = 2;

/// Whose CPU time is the servers'.
#[derive(Clone, Debug)]
enum Servers {
    /// These processes.
    Pids(Vec<u32>),
    /// Whatever children this process has at the time: they may be restarted.
    ChildrenOf(u32),
}

/// Takes samples of the CPU time used so far.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    servers: Servers,
}

impl Sampler {
    /// The servers are these processes; none, and their share is unknown.
    pub(crate) fn new(pids: &[u32]) -> Sampler {
        Sampler { servers: Servers::Pids(pids.to_vec()) }
    }

    /// The servers are the children of a process, which may restart them.
    pub(crate) fn children_of(parent: u32) -> Sampler {
        Sampler { servers: Servers::ChildrenOf(parent) }
    }

    /// What has been used until now. The servers come first, as they are what is measured.
    pub(crate) fn sample(&self) -> Result<Sample, BenchError> {
        let pids = match &self.servers {
            Servers::Pids(pids) => pids.clone(),
            Servers::ChildrenOf(parent) => children(*parent),
        };
        let at = Instant::now();
        let servers = pids.iter().filter_map(|&pid| Some((pid, process(pid)?.ticks))).collect();
        let own = process(std::process::id()).map_or(0, |p| p.ticks);
        let stat = fs::read_to_string("/proc/stat").map_err(|e| BenchError::io("/proc/stat", e))?;
        let machine = Machine::parse(&stat)
            .ok_or_else(|| BenchError::Usage("/proc/stat does not read as expected".to_owned()))?;
        Ok(Sample { at, servers, own, machine, kernel: kernel_threads() })
    }
}

/// CPU time used up to a moment, in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    at: Instant,
    servers: BTreeMap<u32, u64>,
    own: u64,
    machine: Machine,
    kernel: BTreeMap<u32, u64>,
}

impl Sample {
    /// What was used between this sample and a later one. A process that was not there at the
    /// beginning counts whole, one that is gone at the end not at all.
    pub(crate) fn until(&self, later: &Sample) -> Usage {
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND;
        let grown = |from: &BTreeMap<u32, u64>, to: &BTreeMap<u32, u64>| {
            seconds(
                to.iter().map(|(pid, ticks)| ticks.saturating_sub(from.get(pid).copied().unwrap_or(0))).sum(),
            )
        };
        Usage {
            seconds: later.at.duration_since(self.at).as_secs_f64(),
            servers: (!later.servers.is_empty()).then(|| grown(&self.servers, &later.servers)),
            own: seconds(later.own.saturating_sub(self.own)),
            kernel: grown(&self.kernel, &later.kernel),
            busy: seconds(later.machine.busy.saturating_sub(self.machine.busy)),
            steal: seconds(later.machine.steal.saturating_sub(self.machine.steal)),
        }
    }
}

/// CPU time used in a window, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// The length of the window.
    pub(crate) seconds: f64,
    /// By the servers; unknown when no process of theirs was named.
    pub(crate) servers: Option<f64>,
    /// By this process.
    pub(crate) own: f64,
    /// By the threads of the kernel.
    pub(crate) kernel: f64,
    /// By all together.
    pub(crate) busy: f64,
    /// Taken by the hypervisor for other guests.
    pub(crate) steal: f64,
}

impl Usage {
    /// How many cores everybody else kept busy: more than a few hundredths, and the run was disturbed.
    /// Unknown when the servers' share is.
    pub(crate) fn others_cores(&self) -> Option<f64> {
        let known = self.servers? + self.own + self.kernel;
        Some(((self.busy - known) / self.seconds).max(0.0))
    }

    /// How many cores the hypervisor took.
    pub(crate) fn steal_cores(&self) -> f64 {
        self.steal / self.seconds
    }
}

/// The first line of /proc/stat: all CPUs together, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Machine {
    busy: u64,
    steal: u64,
}

impl Machine {
    /// Fields: user nice system idle iowait irq softirq steal.
    fn parse(stat: &str) -> Option<Machine> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|f| f.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else { return None };
        Some(Machine { busy: user + nice + system + irq + softirq, steal })
    }
}

/// What /proc/PID/stat says of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    parent: u32,
    /// User and system time of all its threads, those of io_uring among them.
    ticks: u64,
}

impl Process {
    /// The second field, the command's name in parentheses, may hold anything.
    fn parse(stat: &str) -> Option<Process> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let user: u64 = fields.nth(9)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some(Process { parent, ticks: user + system })
    }
}

fn process(pid: u32) -> Option<Process> {
    Process::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn kernel_threads() -> BTreeMap<u32, u64> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, process(pid)?)))
        .filter(|(_, process)| process.parent == KTHREADD)
        .map(|(pid, process)| (pid, process.ticks))
        .collect()
}

/// The children of a process, whichever of its threads started them.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| parse_pids(&text))
        .collect()
}

fn parse_pids(text: &str) -> Vec<u32> {
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_process_are_found_behind_any_name() {
        let stat = "4242 (a) b (c d)) S 17 4242 4242 0 -1 4194304 1500 0 3 0 250 125 7 9 20 0 11 0 100 1 2";
        assert_eq!(Process::parse(stat), Some(Process { parent: 17, ticks: 375 }));
        assert_eq!(Process::parse("4242 (short) S 17 1"), None);
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn idle_and_waiting_cpus_are_not_busy() {
        let stat =
            "cpu  100 20 300 9000 500 6 70 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 123 0 0\nctxt 456789\n";
        assert_eq!(Machine::parse(stat), Some(Machine { busy: 496, steal: 8 }));
        assert_eq!(Machine::parse("intr 1 2 3"), None);
        assert_eq!(Machine::parse("cpu  100 20 300"), None);
    }

    #[test]
    fn children_are_a_list_of_numbers() {
        assert_eq!(parse_pids("12 34 56 \n"), [12, 34, 56]);
        assert!(parse_pids("").is_empty());
    }

    fn sample(servers: &[(u32, u64)], own: u64, kernel: &[(u32, u64)], busy: u64, steal: u64) -> Sample {
        Sample {
            at: Instant::now(),
            servers: servers.iter().copied().collect(),
            own,
            machine: Machine { busy, steal },
            kernel: kernel.iter().copied().collect(),
        }
    }

    #[test]
    fn a_restarted_server_counts_from_its_start() {
        let before = sample(&[(1, 1000), (2, 500)], 10, &[(9, 5)], 4000, 0);
        let mut after = sample(&[(1, 1100), (3, 40)], 30, &[(9, 8), (10, 2)], 4300, 50);
        after.at = before.at + std::time::Duration::from_secs(2);
        let usage = before.until(&after);
        assert_eq!(
            usage,
            Usage { seconds: 2.0, servers: Some(1.4), own: 0.2, kernel: 0.05, busy: 3.0, steal: 0.5 }
        );
        assert!((usage.others_cores().unwrap() - 0.675).abs() < 1e-9);
        assert!((usage.steal_cores() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn without_servers_their_share_and_that_of_others_are_unknown() {
        let before = sample(&[], 0, &[], 0, 0);
        let usage = before.until(&sample(&[], 1, &[], 5, 0));
        assert_eq!(usage.servers, None);
        assert_eq!(usage.others_cores(), None);
    }

    #[test]
    fn others_are_never_below_nothing() {
        let usage = Usage { seconds: 1.0, servers: Some(1.0), own: 0.5, kernel: 0.0, busy: 1.4, steal: 0.0 };
        assert_eq!(usage.others_cores(), Some(0.0));
    }

    #[test]
    fn this_process_can_be_sampled() {
        let sample = Sampler::new(&[std::process::id()]).sample().unwrap();
        assert_eq!(sample.servers.len(), 1);
    }
}

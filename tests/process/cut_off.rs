//! A holder whose host loses the network: nothing that it has started runs when the command of the next holder
//! starts. The hosts are network namespaces; each process of the first holder writes down, by CLOCK_MONOTONIC,
//! when it was last alive.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};

use crate::network::{Cut, NODES, Network};
use crate::supervisor::rounds;
use crate::support::{Cluster, Process, marked, note, one_cluster, until};

/// Where the processes of the first holder write to; they are known by it.
const DIR: &str = "TEST_CUT_OFF_DIR";
/// How often they write, and for how long at most: nobody is left if the test is killed.
const BEAT: Duration = Duration::from_millis(1);
const BEATS: u32 = 300_000;
/// A command that no polite signal ends, a child of it, and a daemon: in another session, its parent gone.
const JOB: &str = "trap '' TERM HUP INT QUIT; alive='--exact cut_off::descendant --nocapture'; \
    ( setsid \"$0\" $alive > /dev/null 2>&1 & ); \"$0\" $alive > /dev/null 2>&1 & exec \"$0\" $alive";
const PROCESSES: usize = 3;
/// What the next holder runs: it says when it started, and who of the first one's still runs.
const NEXT: &str = "read -r stat < /proc/$$/stat; echo \"$stat\"; \
    for file in \"$0\"/*; do kill -0 \"${file##*/}\" 2> /dev/null && echo \"$file runs\"; done; exit 0";
/// The kernel counts the starts of processes in hundredths of a second, rounded down.
const TICK: u64 = 10_000_000;

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Not a test by itself: a process of the first holder. It writes what time it is, over and over.
#[test]
fn descendant() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let file = Path::new(&dir).join(std::process::id().to_string());
    let file = std::fs::File::create(file).expect("a file");
    for _ in 0..BEATS {
        file.write_all_at(&nanoseconds(ClockId::Monotonic).to_le_bytes(), 0).expect("a time");
        std::thread::sleep(BEAT);
    }
}

/// When it was that its processes were last alive: how many, and the latest.
fn last_signs(dir: &Path) -> (usize, u64) {
    let files = std::fs::read_dir(dir).expect("a directory").flatten();
    let stamps =
        files.filter_map(|file| Some(u64::from_le_bytes(std::fs::read(file.path()).ok()?.try_into().ok()?)));
    stamps.fold((0, 0), |(count, last), stamp| (count + 1, last.max(stamp)))
}

/// By CLOCK_MONOTONIC, when a process began whose line in /proc is this: not later than it really was.
fn start_of(stat: &str) -> u64 {
    let fields = stat.rsplit_once(") ").expect("the name of the program in parentheses").1;
    let ticks: u64 = fields.split(' ').nth(19).and_then(|ticks| ticks.parse().ok()).expect("a start");
    // That counts the time in suspension too.
    let suspended = nanoseconds(ClockId::Boottime).saturating_sub(nanoseconds(ClockId::Monotonic));
    ticks * TICK - suspended / TICK * TICK
}

/// What happens to the first holder's wrapper, besides losing the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapper {
    Runs,
    IsStopped,
    IsKilled,
}

/// The wrapper of the first holder, and where its processes write to.
struct Holder {
    wrapper: Process,
    dir: PathBuf,
}

impl Holder {
    fn start(network: &Network, cluster: &Cluster, name: &str) -> Holder {
        let dir = cluster.path(name);
        std::fs::create_dir(&dir).expect("a directory");
        let lock = ["lock", "--ttl", "3s", "--kill-after", "60s", "--advisory", "k", "--", "sh", "-c", JOB];
        let mut command = cluster.command(lock);
        command.arg(std::env::current_exe().expect("this executable")).env(DIR, &dir);
        let wrapper = Process::start(&mut network.first.runs(&command));
        let holder = Holder { wrapper, dir };
        until("all its processes are alive", || (last_signs(&holder.dir).0 == PROCESSES).then_some(()));
        holder
    }

    fn running(&self) -> Vec<Pid> {
        marked(DIR, self.dir.to_str().expect("a path of ours"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        for pid in self.running() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// The next holder, in the queue.
fn next(network: &Network, cluster: &Cluster, dir: &Path) -> Process {
    let mut command = cluster.command(["lock", "--advisory", "k", "--", "sh", "-c", NEXT]);
    let waiter = Process::start(&mut network.second.runs(command.arg(dir)));
    let look: Command = cluster.command(["describe", "--json", "k"]);
    until("it stands in the queue", || network.asked(&look).contains(r#""waiting":1"#).then_some(()));
    waiter
}

/// How long nobody held it, and what came before, in seconds.
#[derive(Clone, Copy, Debug)]
struct Figures {
    from_cut_to_last_sign: f64,
    from_last_sign_to_next: f64,
}

/// One holder is cut off while another one waits.
fn round(network: &Network, cluster: &Cluster, number: u32, fate: Wrapper) -> Figures {
    let mut holder = Holder::start(network, cluster, &format!("{fate:?}-{number}"));
    let mut waiter = next(network, cluster, &holder.dir);
    let wrapper = holder.wrapper.pid();
    let cut = nanoseconds(ClockId::Monotonic);
    network.cut(if number.is_multiple_of(2) { Cut::Near } else { Cut::Far });
    match fate {
        Wrapper::Runs => (),
        Wrapper::IsStopped => holder.wrapper.signal(Signal::STOP),
        Wrapper::IsKilled => holder.wrapper.kill(),
    }
    let end = waiter.wait();
    let end = waiter.finished(end);
    let (processes, last) = last_signs(&holder.dir);
    let left = holder.running();
    network.mend();
    assert_eq!((end.code, processes), (Some(0), PROCESSES), "{}", end.stderr);
    let (stat, still) = end.stdout.split_once('\n').unwrap_or((&end.stdout, ""));
    assert_eq!(still, "", "round {number}");
    let start = start_of(stat);
    assert!(last < start, "round {number}: one lived at {last}, the next command began at {start}");
    match fate {
        Wrapper::Runs => {
            assert_eq!(holder.wrapper.wait().code(), Some(84), "{}", holder.wrapper.stderr());
        }
        Wrapper::IsStopped => {
            assert_eq!(left, [wrapper], "only the wrapper, which is stopped");
            holder.wrapper.signal(Signal::CONT);
            assert_eq!(holder.wrapper.wait().code(), Some(84), "{}", holder.wrapper.stderr());
        }
        Wrapper::IsKilled => assert_eq!(left, []),
    }
    assert_eq!(holder.running(), [], "nobody is left");
    let seconds = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from)).as_secs_f64();
    Figures { from_cut_to_last_sign: seconds(cut, last), from_last_sign_to_next: seconds(last, start) }
}

fn rounds_of(fate: Wrapper) {
    let _one = one_cluster();
    let Some(network) = Network::make() else { return };
    let cluster = Cluster::start_within(&network.nodes, NODES);
    let figures: Vec<Figures> = (0..rounds()).map(|number| round(&network, &cluster, number, fate)).collect();
    let latest = figures.iter().map(|f| f.from_cut_to_last_sign).fold(0.0, f64::max);
    let closest = figures.iter().map(|f| f.from_last_sign_to_next).fold(f64::INFINITY, f64::min);
    note(&format!(
        "cut off, the wrapper {fate:?}: {} rounds; last sign of life at most {latest:.3} s after the cut, and at \
         least {closest:.3} s before the next command began",
        figures.len()
    ));
}

#[test]
fn a_holder_without_network_has_ended_with_all_it_started_when_the_next_one_starts() {
    rounds_of(Wrapper::Runs);
}

#[test]
fn a_holder_without_network_whose_wrapper_is_stopped_has_ended_too_when_the_next_one_starts() {
    rounds_of(Wrapper::IsStopped);
}

#[test]
fn a_holder_without_network_whose_wrapper_is_killed_leaves_nothing_behind() {
    rounds_of(Wrapper::IsKilled);
}

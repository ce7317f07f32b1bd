//! No process of a command outlives what the command was given, whatever happens to the cluster, the wrapper or
//! the supervisor. Everything that was started is known by a variable in its environment, and nothing under
//! that mark may run when the next holder's command starts.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal};

use crate::support::{Cluster, Finished, Process, finish, marked, one_cluster, until};

const MARK: &str = "TEST_SUPERVISOR_MARK";
/// How often the races are run: twice, or as this variable says.
const ROUNDS: &str = "TEST_SUPERVISOR_ROUNDS";

/// Says that it is up when its daemon is: a process of another session, whose parent has ended. The daemon
/// writes down what time it is as long as it runs, and no polite signal ends it.
const DAEMON: &str = "( setsid sh -c 'trap \"\" TERM HUP INT QUIT; echo $$ >> \"$0/pids\"; echo up; \
    while :; do read t rest < /proc/uptime; echo \"$t\" >> \"$0/stamps\"; sleep 0.02; done' \"$0\" & )";
/// The command itself, which writes down its process id too.
const WORK: &str = "echo $$ >> \"$0/pids\"; while :; do sleep 0.02; done";
/// What the next holder runs: it says when it started, and who of the first one's still runs.
const NEXT: &str = "read t rest < /proc/uptime; echo \"$t\"; \
    while read p; do kill -0 \"$p\" 2> /dev/null && echo \"$p runs\"; done < \"$0/pids\"; exit 0";

pub(crate) fn rounds() -> u32 {
    std::env::var(ROUNDS).map_or(2, |n| n.parse().expect("a number of rounds"))
}

/// Seconds of CLOCK_BOOTTIME, to the hundredth, as the scripts read them.
fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("proc");
    text.split(' ').next().and_then(|t| t.parse().ok()).expect("seconds")
}

/// A wrapper, and all that it has started.
struct Tree {
    wrapper: Process,
    dir: PathBuf,
    mark: String,
}

impl Tree {
    /// Starts a wrapper whose command says "up".
    fn start(cluster: &Cluster, name: &str, wrapper: &[&str], script: &str) -> Tree {
        let dir = cluster.path(name);
        std::fs::create_dir(&dir).expect("a directory");
        let mark = format!("{name}-{}", std::process::id());
        let mut command = cluster.command(wrapper);
        command.args(["--", "sh", "-c", script]).arg(&dir).env(MARK, &mark);
        let mut wrapper = Process::start(&mut command);
        assert_eq!(wrapper.line(), "up");
        Tree { wrapper, dir, mark }
    }

    /// One whose command and daemon ignore every polite signal.
    fn stubborn(cluster: &Cluster, name: &str, wrapper: &[&str]) -> Tree {
        let tree = Tree::start(cluster, name, wrapper, &format!("trap '' TERM HUP; {DAEMON}; {WORK}"));
        tree.both_are_known();
        tree
    }

    fn both_are_known(&self) {
        let pids = self.dir.join("pids");
        until("command and daemon have written down who they are", || {
            (std::fs::read_to_string(&pids).ok()?.lines().count() == 2).then_some(())
        });
    }

    /// Who runs under the mark, the wrapper included.
    fn running(&self) -> Vec<Pid> {
        marked(MARK, &self.mark)
    }

    fn supervisor(&self) -> Pid {
        let pid = self.wrapper.pid().as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("proc");
        let only = children.trim().parse().ok().and_then(Pid::from_raw);
        only.unwrap_or_else(|| panic!("one child: {children:?}"))
    }

    /// The last sign of life of the daemon.
    fn last_stamp(&self) -> f64 {
        let text = std::fs::read_to_string(self.dir.join("stamps")).expect("the daemon has written");
        text.lines().filter_map(|line| line.parse().ok()).fold(0.0, f64::max)
    }

    /// What the next holder's command must see: nobody. `next` ran [`NEXT`].
    fn nobody_ran_when(&self, next: &Finished) {
        assert_eq!(next.code, Some(0), "{}", next.stderr);
        let started: f64 = next.stdout.parse().unwrap_or_else(|_| panic!("somebody runs: {}", next.stdout));
        let last = self.last_stamp();
        assert!(last <= started, "the daemon lived at {last}, the next command began at {started}");
        assert_eq!(self.running(), [], "and nobody is left");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for pid in self.running() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Somebody who waits for the key, in the queue.
fn next(cluster: &Cluster, tree: &Tree, wrapper: &[&str]) -> Process {
    let key = wrapper.last().expect("a key").to_owned();
    let waiter = Process::start(cluster.command(wrapper).args(["--", "sh", "-c", NEXT]).arg(&tree.dir));
    until("it stands in the queue", || {
        let seen = finish(&mut cluster.command(["describe", "--json", key])).stdout;
        seen.contains(r#""waiting":1"#).then_some(())
    });
    waiter
}

fn end_of(process: &mut Process) -> Finished {
    let status = process.wait();
    process.finished(status)
}

const LOCK: [&str; 7] = ["lock", "--ttl", "3s", "--kill-after", "60s", "--advisory", "k"];
const WAIT: [&str; 3] = ["lock", "--advisory", "k"];

#[test]
fn a_holder_that_is_cut_off_has_ended_with_all_it_started_when_the_next_one_starts() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    for round in 0..rounds() {
        let mut tree = Tree::stubborn(&cluster, &format!("cut-{round}"), &LOCK);
        let mut waiter = next(&cluster, &tree, &WAIT);
        (1..=3).for_each(|node| cluster.signal_node(node, Signal::STOP));
        let cut = uptime();
        assert_eq!(tree.wrapper.wait().code(), Some(84), "{}", tree.wrapper.stderr());
        assert_eq!(tree.running(), [], "all of it is gone when the wrapper is");
        // No renewal was acknowledged after the cut. So long the cluster waits at least.
        assert!(tree.last_stamp() <= cut + 3.0 * 1.01 + 1.0);
        (1..=3).for_each(|node| cluster.signal_node(node, Signal::CONT));
        tree.nobody_ran_when(&end_of(&mut waiter));
    }
}

#[test]
fn a_wrapper_that_is_stopped_does_not_keep_its_command_past_the_lease() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    for round in 0..rounds() {
        let mut tree = Tree::stubborn(&cluster, &format!("stopped-{round}"), &LOCK);
        let mut waiter = next(&cluster, &tree, &WAIT);
        let wrapper = tree.wrapper.pid();
        tree.wrapper.signal(Signal::STOP);
        let end = end_of(&mut waiter);
        assert_eq!(tree.running(), [wrapper], "only the wrapper, which is stopped");
        tree.wrapper.signal(Signal::CONT);
        assert_eq!(tree.wrapper.wait().code(), Some(84), "{}", tree.wrapper.stderr());
        tree.nobody_ran_when(&end);
    }
}

#[test]
fn a_wrapper_that_is_killed_takes_everything_with_it() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let lock = ["lock", "--ttl", "3s", "--kill-after", "200ms", "--advisory", "k"];
    let elect = ["elect", "--ttl", "3s", "--kill-after", "200ms", "--value", "v", "e"];
    for (name, first, second) in
        [("lock", &lock[..], &WAIT[..]), ("elect", &elect[..], &["elect", "--value", "w", "e"][..])]
    {
        let mut tree = Tree::stubborn(&cluster, name, first);
        let mut waiter = next(&cluster, &tree, second);
        tree.wrapper.kill();
        tree.nobody_ran_when(&end_of(&mut waiter));
    }
    // Neither the cluster nor the lease has to do with it.
    let lock = ["lock", "--ttl", "10m", "--kill-after", "200ms", "--advisory", "long"];
    let mut tree = Tree::stubborn(&cluster, "long", &lock);
    tree.wrapper.kill();
    until("nothing is left", || tree.running().is_empty().then_some(()));
    let put = ["put", "--ttl", "10m", "--kill-after", "200ms", "p", "v"];
    let mut tree = Tree::stubborn(&cluster, "put", &put);
    tree.wrapper.kill();
    until("nothing is left", || tree.running().is_empty().then_some(()));
}

#[test]
fn a_supervisor_that_is_killed_or_stopped_leaves_nothing_behind() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let lock = ["lock", "--ttl", "10m", "--kill-after", "200ms", "--advisory", "k"];
    let mut tree = Tree::stubborn(&cluster, "killed", &lock);
    let mut waiter = next(&cluster, &tree, &WAIT);
    rustix::process::kill_process(tree.supervisor(), Signal::KILL).expect("it runs");
    assert_eq!(tree.wrapper.wait().code(), Some(71));
    assert!(tree.wrapper.stderr().contains("supervisor was killed"), "{}", tree.wrapper.stderr());
    tree.nobody_ran_when(&end_of(&mut waiter));

    // One that is stopped cannot hold the deadline: the wrapper does.
    let mut tree = Tree::stubborn(&cluster, "stopped", &LOCK);
    rustix::process::kill_process(tree.supervisor(), Signal::STOP).expect("it runs");
    (1..=3).for_each(|node| cluster.signal_node(node, Signal::STOP));
    assert_eq!(tree.wrapper.wait().code(), Some(84), "{}", tree.wrapper.stderr());
    assert_eq!(tree.running(), []);
    (1..=3).for_each(|node| cluster.signal_node(node, Signal::CONT));
}

#[test]
fn who_flees_by_forking_and_ending_all_the_time_is_caught() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    // Each generation starts the next and ends; without its file the last one ends too.
    let flee = cluster.path("flee");
    std::fs::write(&flee, "trap '' TERM; sh \"$0\" &\n").expect("a script");
    let lock = ["lock", "--ttl", "10m", "--kill-after", "200ms", "--advisory", "k"];
    let script = format!("( setsid sh '{}' & ); echo up; exec sleep 1000", flee.display());
    let mut tree = Tree::start(&cluster, "fleeing", &lock, &script);
    until("they are on the run", || (tree.running().len() > 3).then_some(()));
    tree.wrapper.signal(Signal::TERM);
    assert_eq!(tree.wrapper.wait().code(), Some(128 + 15), "{}", tree.wrapper.stderr());
    // A look at /proc may miss one of them, so look more than once.
    (0..20).for_each(|_| assert_eq!(tree.running(), []));
}

#[test]
fn a_forced_release_ends_the_command_with_all_it_started() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let lock = ["lock", "--ttl", "10m", "--kill-after", "200ms", "--advisory", "k"];
    let mut tree = Tree::stubborn(&cluster, "forced", &lock);
    let end = finish(&mut cluster.command(["force-release", "k", "--epoch", "1", "--reason", "a drill"]));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert_eq!(tree.wrapper.wait().code(), Some(84), "{}", tree.wrapper.stderr());
    assert_eq!(tree.running(), []);
}

#[test]
fn a_signal_that_ends_the_command_ends_its_daemons_before_the_next_one_starts() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let lock = ["lock", "--ttl", "10m", "--kill-after", "200ms", "--advisory", "k"];
    for (name, signal) in
        [("term", Signal::TERM), ("int", Signal::INT), ("hup", Signal::HUP), ("quit", Signal::QUIT)]
    {
        // The command dies of the signal, its daemon does not.
        let mut tree = Tree::start(&cluster, name, &lock, &format!("{DAEMON}; {WORK}"));
        tree.both_are_known();
        let mut waiter = next(&cluster, &tree, &WAIT);
        tree.wrapper.signal(signal);
        assert_eq!(tree.wrapper.wait().code(), Some(128 + signal.as_raw()), "{}", tree.wrapper.stderr());
        tree.nobody_ran_when(&end_of(&mut waiter));
    }
}

#[test]
fn what_a_command_leaves_behind_may_finish_and_is_ended_when_it_does_not() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let lock = ["lock", "--kill-after", "60s", "--advisory", "k"];
    let script = "( sleep 0.2; echo late ) & exit 7";
    let end = finish(cluster.command(lock).args(["--", "sh", "-c", script]));
    assert_eq!((end.code, end.stdout.as_str(), end.stderr.as_str()), (Some(7), "late", ""));

    let lock = ["lock", "--kill-after", "200ms", "--advisory", "k"];
    let mut tree = Tree::start(&cluster, "left", &lock, &format!("{DAEMON}; exit 7"));
    let end = end_of(&mut tree.wrapper);
    assert_eq!(end.code, Some(7));
    assert!(end.stderr.contains("left behind"), "{}", end.stderr);
    assert_eq!(tree.running(), []);
}

#[test]
fn every_signal_but_those_that_nobody_catches_is_handed_on() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let numbers = [1, 2, 3, 10, 12, 14, 15, 26, 27, 29, 30, 34, 50, 64];
    let traps: Vec<String> = numbers.iter().map(|n| format!("trap 'echo {n}' {n}")).collect();
    let script = format!("{}; echo up; while [ ! -e \"$0/end\" ]; do sleep 0.01; done", traps.join("; "));
    let mut tree = Tree::start(&cluster, "signals", &["lock", "--advisory", "k"], &script);
    let pid = tree.wrapper.pid().as_raw_nonzero().to_string();
    for number in numbers {
        let sent = Command::new("kill").args([&format!("-{number}"), &pid]).status().expect("kill(1)");
        assert!(sent.success());
        assert_eq!(tree.wrapper.line(), number.to_string());
    }
    std::fs::write(tree.dir.join("end"), "").expect("a file");
    assert_eq!(tree.wrapper.wait().code(), Some(0));
}

#[test]
fn words_after_the_dashes_and_what_is_piped_in_reach_the_command_as_they_are() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let words = ["-n", "--ttl", "-E", "9", "--", "--help", "", "a  b", "__supervise"];
    let mut command = cluster.command(["lock", "--advisory", "k", "--", "printf", "[%s]\\n"]);
    let end = finish(command.args(words));
    let expected: Vec<String> = words.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!((end.code, end.stdout), (Some(0), expected.join("\n")), "{}", end.stderr);

    let piped = "printf 'one\\ntwo\\n' | \"$0\" lock --advisory k -- cat";
    let mut shell = Command::new("sh");
    shell.args(["-c", piped, env!("CARGO_BIN_EXE_palisade")]);
    shell.env("PALISADE_ENDPOINTS", cluster.endpoints().join(","));
    let end = finish(&mut shell);
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "one\ntwo"), "{}", end.stderr);
}

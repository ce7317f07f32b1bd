//! `palisade lock` with real commands: environment, statuses, signals, and the end of a command whose
//! lock is lost.

use rustix::process::{Pid, Signal};

use crate::support::{Cluster, Process, finish, one_cluster, until};

/// Whether a process runs whose command line holds this.
fn runs(mark: &str) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    entries.flatten().any(|e| {
        let cmdline = std::fs::read(e.path().join("cmdline")).unwrap_or_default();
        // Our own test process holds the mark in no argument.
        String::from_utf8_lossy(&cmdline).split('\0').any(|word| word == mark)
    })
}

#[test]
fn statuses_environment_signals_and_refusals() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let status = |arguments: &[&str]| {
        let end = finish(cluster.command(["lock"]).args(arguments));
        (end.code, end.stdout, end.stderr)
    };

    let (code, out, err) = status(&[
        "--resource",
        "db",
        "orders@eu",
        "--",
        "sh",
        "-c",
        "echo $PALISADE_KEY $PALISADE_EPOCH $PALISADE_BARRIER $PALISADE_FENCE ${PALISADE_SESSION%%-*}; exit 5",
    ]);
    assert_eq!((code, out.as_str()), (Some(5), "orders@eu 1 1 orders@eu@1/1 0"), "{err}");
    assert_eq!(status(&["--advisory", "k", "--", "sh", "-c", "kill -USR1 $$"]).0, Some(128 + 10));
    assert_eq!(status(&["--advisory", "k", "--", "/nonexistent"]).0, Some(127));
    assert_eq!(status(&["--advisory", "k", "--", "/etc/passwd"]).0, Some(126));
    assert_eq!(status(&["k", "--", "true"]).0, Some(64), "neither --resource nor --advisory");
    assert_eq!(status(&["--advisory", "k"]).0, Some(64), "neither a command nor --hold");
    assert_eq!(status(&["--advisory", "--ttl", "1ms", "k", "--", "true"]).0, Some(64));
    assert_eq!(status(&["--resource", "db", "k", "--", "true"]).0, Some(64), "k is advisory");

    let mut holder = Process::start(&mut cluster.command(["lock", "--advisory", "--hold", "k"]));
    holder.line();
    assert_eq!(status(&["-n", "--advisory", "k", "--", "true"]).0, Some(1));
    assert_eq!(status(&["-n", "-E", "9", "--advisory", "k", "--", "true"]).0, Some(9));
    let (code, _, err) = status(&["-w", "0.2", "-E", "8", "--advisory", "k", "--", "true"]);
    assert_eq!(code, Some(8), "{err}");
    let mut waiter = Process::start(&mut cluster.command(["lock", "--advisory", "k", "--", "echo", "mine"]));
    until("the waiter stands in the queue", || {
        finish(&mut cluster.command(["describe", "--json", "k"]))
            .stdout
            .contains(r#""waiting":1"#)
            .then_some(())
    });
    holder.signal(Signal::INT);
    assert_eq!(holder.wait().code(), Some(0));
    assert_eq!(waiter.line(), "mine");
    assert_eq!(waiter.wait().code(), Some(0));

    // A signal to the wrapper reaches the command, whose status is then ours.
    let script = "trap 'echo caught; exit 42' TERM; echo up; while :; do sleep 0.01; done";
    let mut job = Process::start(&mut cluster.command(["lock", "--advisory", "k", "--", "sh", "-c", script]));
    assert_eq!(job.line(), "up");
    job.signal(Signal::TERM);
    assert_eq!(job.line(), "caught");
    assert_eq!(job.wait().code(), Some(42));
}

#[test]
fn a_waiter_that_is_interrupted_leaves_the_queue() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut holder = Process::start(&mut cluster.command(["lock", "--advisory", "--hold", "k"]));
    holder.line();
    let mut waiter = Process::start(&mut cluster.command(["lock", "--advisory", "k", "--", "true"]));
    let waiting = |n: u32| {
        until("the length of the queue", || {
            let out = finish(&mut cluster.command(["describe", "--json", "k"])).stdout;
            out.contains(&format!(r#""waiting":{n}"#)).then_some(())
        });
    };
    waiting(1);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.wait().code(), Some(128 + 15));
    waiting(0);
}

#[test]
fn losing_the_lock_ends_the_whole_group_before_the_lease_does() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    // The leading process ignores SIGTERM and has a child: both must be gone.
    let mark = format!("73{}", std::process::id());
    let script = format!("trap '' TERM; sleep {mark} & echo up; while :; do sleep {mark}; done");
    let mut job = Process::start(&mut cluster.command([
        "lock",
        "--advisory",
        "--ttl",
        "2s",
        "--kill-after",
        "60s",
        "k",
        "--",
        "sh",
        "-c",
        &script,
    ]));
    assert_eq!(job.line(), "up");
    // It says so before its child has become a `sleep`.
    until("its child runs", || runs(&mark).then_some(()));
    // Without a quorum nobody renews.
    cluster.kill_node(1);
    cluster.kill_node(2);
    cluster.kill_node(3);
    assert_eq!(job.wait().code(), Some(84));
    assert!(!runs(&mark), "the group is gone when the wrapper ends");
    assert!(job.stderr().contains("lost the lock k@1/1"), "{}", job.stderr());
}

#[test]
fn a_wrapper_stopped_past_its_lease_ends_the_command_on_waking() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mark = format!("74{}", std::process::id());
    let mut job = Process::start(&mut cluster.command([
        "lock",
        "--advisory",
        "--ttl",
        "1s",
        "k",
        "--",
        "sh",
        "-c",
        &format!("echo up; exec sleep {mark}"),
    ]));
    assert_eq!(job.line(), "up");
    job.signal(Signal::STOP);
    let next =
        finish(&mut cluster.command(["lock", "--advisory", "k", "--", "sh", "-c", "echo $PALISADE_EPOCH"]));
    assert_eq!((next.code, next.stdout.as_str()), (Some(0), "2"), "{}", next.stderr);
    job.signal(Signal::CONT);
    assert_eq!(job.wait().code(), Some(84));
    assert!(!runs(&mark));
}

/// What a command under a lock says once it runs: its process id.
fn job(cluster: &Cluster, ttl: &str) -> (Process, Pid) {
    let script = "echo $$; exec sleep 1000";
    let mut job = Process::start(&mut cluster.command([
        "lock",
        "--advisory",
        "--ttl",
        ttl,
        "k",
        "--",
        "sh",
        "-c",
        script,
    ]));
    let pid = job.line().parse().ok().and_then(Pid::from_raw).expect("a process id");
    (job, pid)
}

fn epoch_of_next(cluster: &Cluster) -> String {
    let next = ["lock", "--advisory", "k", "--", "sh", "-c", "echo $PALISADE_EPOCH"];
    let end = finish(&mut cluster.command(next));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    end.stdout
}

#[test]
fn when_the_wrapper_is_killed_nothing_renews_its_lock_and_its_command_ends() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut job, command) = job(&cluster, "1s");
    job.kill();
    // Waits in the queue until the session has expired: it would never, were it renewed by anything.
    assert_eq!(epoch_of_next(&cluster), "2");
    assert!(rustix::process::test_kill_process(command).is_err(), "and the command was ended before that");
    let seen = finish(&mut cluster.command(["describe", "k"])).stdout;
    assert!(seen.contains("expired"), "{seen}");
}

#[test]
fn when_the_command_is_killed_its_lock_is_free_at_once() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut job, command) = job(&cluster, "10m");
    rustix::process::kill_process(command, Signal::KILL).expect("it runs");
    assert_eq!(job.wait().code(), Some(128 + 9));
    assert_eq!(epoch_of_next(&cluster), "2");
    assert_eq!(finish(&mut cluster.command(["sessions", "--json"])).stdout, "", "the session is closed");
}

//! Every exit status has its meaning, the same for `lock`, `elect` and `put`: tests/EXIT_STATUSES.md.

use std::process::Command;

use rustix::process::Signal;

use crate::support::{Cluster, Finished, Process, finish, one_cluster, palisade, until};

/// The three that run a command, each with a key of its own.
const WRAPPERS: [&[&str]; 3] =
    [&["lock", "--advisory", "k"], &["elect", "--value", "v", "e"], &["put", "p", "v"]];

/// A command under a wrapper, run to its end.
fn under(cluster: &Cluster, wrapper: &[&str], command: &[&str]) -> Finished {
    finish(cluster.command(wrapper).arg("--").args(command))
}

fn sh(cluster: &Cluster, wrapper: &[&str], script: &str) -> Finished {
    under(cluster, wrapper, &["sh", "-c", script])
}

fn is(end: &Finished, code: i32, what: &dyn std::fmt::Debug) {
    assert_eq!(end.code, Some(code), "{what:?}: {}", end.stderr);
}

#[test]
fn the_status_is_the_commands_own_or_128_and_the_signal_it_died_of() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    for wrapper in WRAPPERS {
        // Also those that mean something else when they are ours.
        for code in [0, 1, 37, 64, 69, 84, 126, 127, 255] {
            let end = sh(&cluster, wrapper, &format!("exit {code}"));
            is(&end, code, &wrapper);
            assert_eq!(end.stderr, "", "{wrapper:?}: it is not our failure");
        }
        for (name, number) in [("HUP", 1), ("INT", 2), ("KILL", 9), ("TERM", 15)] {
            is(&sh(&cluster, wrapper, &format!("kill -{name} $$")), 128 + number, &wrapper);
        }
    }
}

#[test]
fn a_command_that_cannot_be_run_is_126_and_one_that_is_not_there_127() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    for wrapper in WRAPPERS {
        for (command, code) in
            [("/etc/passwd", 126), ("/etc", 126), ("/nonexistent", 127), ("nonexistent-command", 127)]
        {
            let end = under(&cluster, wrapper, &[command]);
            is(&end, code, &wrapper);
            assert!(end.stderr.contains(command), "{}", end.stderr);
        }
    }
}

#[test]
fn who_does_not_get_it_ends_with_1_or_what_was_asked_for() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let holding: [&[&str]; 3] =
        [&["lock", "--advisory", "--hold", "k"], &["elect", "--value", "v", "e"], &["put", "p", "v"]];
    let mut holders: Vec<Process> =
        holding.map(|words| Process::start(&mut cluster.command(words))).into_iter().collect();
    holders.iter_mut().for_each(|holder| drop(holder.line()));
    for wrapper in &WRAPPERS[..2] {
        for wait in [&["-n"][..], &["-w", "100ms"]] {
            let asked =
                |more: &[&str]| finish(cluster.command(*wrapper).args(wait).args(more).args(["--", "true"]));
            is(&asked(&[]), 1, wrapper);
            for code in [0, 9, 255] {
                is(&asked(&["-E", &code.to_string()]), code, wrapper);
            }
        }
    }
    is(&sh(&cluster, WRAPPERS[2], "true"), 1, &"the key is another session's");
}

#[test]
fn a_loss_is_84_whatever_the_command_makes_of_it() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let evict_all = || {
        let sessions = finish(&mut cluster.command(["--json", "sessions"])).stdout;
        for row in sessions.lines() {
            let row: serde_json::Value = serde_json::from_str(row).expect("JSON");
            let session = row["session"].as_str().expect("a session");
            is(&finish(&mut cluster.command(["evict", session, "--reason", "a drill"])), 0, &"evict");
        }
    };
    for wrapper in WRAPPERS {
        let script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done";
        let mut job = Process::start(cluster.command(wrapper).args(["--", "sh", "-c", script]));
        assert_eq!(job.line(), "up");
        evict_all();
        assert_eq!(job.wait().code(), Some(84), "{wrapper:?}: {}", job.stderr());
        assert!(job.stderr().contains("evicted"), "it says why: {}", job.stderr());
    }
    let holding: [&[&str]; 3] =
        [&["lock", "--advisory", "--hold", "k"], &["elect", "--value", "v", "e"], &["put", "p", "v"]];
    for words in holding {
        let mut holder = Process::start(&mut cluster.command(words));
        holder.line();
        evict_all();
        assert_eq!(holder.wait().code(), Some(84), "{words:?}: {}", holder.stderr());
    }
}

#[test]
fn without_a_quorum_nothing_is_given_and_the_status_is_69() {
    let _one = one_cluster();
    let mut cluster = Cluster::start();
    // It has been usable.
    is(&sh(&cluster, WRAPPERS[0], "true"), 0, &"a cluster");
    cluster.kill_node(1);
    cluster.kill_node(2);
    for wrapper in WRAPPERS {
        let end = finish(cluster.command(["--timeout", "1s"]).args(wrapper).args(["--", "echo", "ran"]));
        is(&end, 69, &wrapper);
        assert_eq!(end.stdout, "", "its command has not run");
    }
    for verb in [&["describe", "k"][..], &["locks"], &["get", "p"], &["evict", "0-1", "--reason", "x"]] {
        is(&finish(cluster.command(["--timeout", "1s"]).args(verb)), 69, &verb);
    }
    is(&finish(&mut cluster.command(["describe", "--stale", "k"])), 0, &"what needs no quorum");
}

#[test]
fn wrong_usage_of_what_runs_a_command_is_64() {
    let nobody = |words: &[&str]| finish(palisade().args(["--endpoints", "127.0.0.1:1"]).args(words));
    for words in [
        &["lock", "k", "--", "true"][..],
        &["lock", "--advisory", "k"],
        &["lock", "--advisory", "--resource", "r", "k", "--", "true"],
        &["lock", "--advisory", "--hold", "k", "--", "true"],
        &["lock", "--advisory", "-E", "256", "k", "--", "true"],
        &["lock", "--advisory", "-E", "-1", "k", "--", "true"],
        &["lock", "--advisory", "-n", "-w", "1", "k", "--", "true"],
        &["lock", "--advisory", "--ttl", "2h", "k", "--", "true"],
        &["lock", "--advisory", "", "--", "true"],
        &["lock", "--advisory", "a\u{202e}b", "--", "true"],
        &["lock", "--advisory", "k", "true"],
        &["elect", "e", "--", "true"],
        &["elect", "--value", "v", "-n", "-w", "1", "e", "--", "true"],
        &["elect", "--value", "v", "--ttl", "1ms", "e", "--", "true"],
        &["put", "p", "--", "true"],
        &["put", "p", "v", "--ttl", "1ms", "--", "true"],
        &["put", "p", "v", "w", "--", "true"],
    ] {
        let end = nobody(words);
        is(&end, 64, &words);
        assert!(!end.stderr.is_empty() && end.stdout.is_empty(), "{words:?}");
    }
    let long = "x".repeat(16 * 1024 + 1);
    is(&nobody(&["put", "p", &long]), 64, &"a value that is too long");
    is(&nobody(&["elect", "--value", &long, "e"]), 64, &"a value that is too long");
}

#[test]
fn who_is_interrupted_before_it_is_given_anything_ends_with_128_and_the_signal() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut holder = Process::start(&mut cluster.command(["elect", "--value", "v", "e"]));
    holder.line();
    let interrupted = |waiter: &mut Process, signal: Signal| {
        waiter.signal(signal);
        assert_eq!(waiter.wait().code(), Some(128 + signal.as_raw()), "{}", waiter.stderr());
    };
    let mut waiter = Process::start(&mut cluster.command(["elect", "--value", "w", "e", "--", "true"]));
    let look = || finish(&mut cluster.command(["describe", "--json", "e"])).stdout;
    until("it stands in the queue", || look().contains(r#""waiting":1"#).then_some(()));
    interrupted(&mut waiter, Signal::INT);
    // Nobody there: it tries until it is told to end.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = silent.local_addr().expect("an address").to_string();
    for wrapper in WRAPPERS {
        let mut command: Command = palisade();
        let trying =
            Process::start(command.args(["--endpoints", &endpoint]).args(wrapper).args(["--", "true"]));
        let mut trying = trying;
        drop(silent.accept().expect("it has come so far"));
        interrupted(&mut trying, Signal::TERM);
    }
}

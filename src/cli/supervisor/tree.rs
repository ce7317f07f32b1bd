//! All that descends from a process, found in /proc. What is found is held by a descriptor while it is looked
//! at, so that no signal ever meets a stranger who got the number of one that ended.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;

/// Sends signals, one after the other, to everything that descends from `root`, but not to `root`, and not to
/// what descends from `spared`. `group`: processes of this group are passed over, because it was signalled
/// as a whole. Who forks meanwhile may be missed: repeat until nothing is left.
pub(crate) fn signal(root: Pid, spared: &[Pid], group: Option<Pid>, signals: &[Signal]) {
    let mut all = Vec::new();
    // First all are found: the children of one that is killed meanwhile would be nobody's.
    below(root, None, spared, &mut all);
    // Parents before their children, who might be replaced.
    for found in all.iter().rev() {
        if found.ended || group.is_some_and(|group| group.as_raw_pid() == found.group) {
            continue;
        }
        for signal in signals {
            // It has just ended, or it is another user's.
            let _ = pidfd_send_signal(&found.handle, *signal);
        }
    }
}

/// The children of a process, those that have ended and are not reaped included.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let tasks = match std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_pid())) {
        Ok(tasks) => tasks,
        Err(_) => return Vec::new(),
    };
    let lists: std::io::Result<Vec<String>> =
        tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children"))).collect();
    match lists {
        Ok(lists) => {
            let numbers = lists.iter().flat_map(|list| list.split_ascii_whitespace());
            numbers.filter_map(pid).collect()
        }
        // It ended meanwhile, or the kernel keeps no such lists.
        Err(_) => children_of_all(parent),
    }
}

/// The same for kernels without lists of children: asks every process for its parent.
fn children_of_all(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let all = entries.flatten().filter_map(|entry| pid(entry.file_name().to_str()?));
    all.filter(|pid| Stat::read(*pid).is_some_and(|stat| stat.parent == parent.as_raw_pid())).collect()
}

fn pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

/// A descendant.
struct Found {
    handle: OwnedFd,
    group: i32,
    ended: bool,
}

/// Finds all below `parent`, children before their parents. `handle`: the parent's, if it is not the root,
/// which lives.
fn below(parent: Pid, handle: Option<&OwnedFd>, spared: &[Pid], all: &mut Vec<Found>) {
    for pid in children(parent) {
        if spared.contains(&pid) {
            continue;
        }
        let Ok(child) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let Some(stat) = Stat::read(pid) else { continue };
        // In this order: while the parent lives its number is its own, and then this is its child, or the
        // handle is that of a process that has ended.
        if stat.parent != parent.as_raw_pid() || handle.is_some_and(has_ended) {
            continue;
        }
        let ended = matches!(stat.state, 'Z' | 'X');
        if !ended {
            below(pid, Some(&child), spared, all);
        }
        all.push(Found { handle: child, group: stat.group, ended });
    }
}

fn has_ended(handle: &OwnedFd) -> bool {
    let mut one = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
    poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// What /proc/PID/stat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    group: i32,
}

impl Stat {
    fn read(pid: Pid) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
    }

    /// The second field, in parentheses, may hold anything.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        Some(Stat { state, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use palisade::clock;

    #[test]
    fn the_fields_of_stat_are_found_behind_any_command_name() {
        let stat = Stat { state: 'S', parent: 1, group: 34 };
        assert_eq!(Stat::parse("12 (a) b (c) S 1 34 34 0"), Some(stat));
        assert_eq!(Stat::parse("nonsense"), None);
    }

    /// A shell, and the process ids that it says descend from it.
    fn tree(script: &str, count: usize) -> (Child, Pid, Vec<Pid>) {
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let pids = lines.take(count).map(|line| pid(line.unwrap().trim()).unwrap()).collect();
        let root = Pid::from_child(&shell);
        (shell, root, pids)
    }

    fn runs(pid: Pid) -> bool {
        Stat::read(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    fn wait_until_ended(pids: &[Pid]) {
        let until = clock::lease_now() + Duration::from_secs(30);
        while pids.iter().any(|pid| runs(*pid)) {
            assert!(clock::lease_now() < until, "one of {pids:?} runs on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn children_of_children_in_other_groups_and_sessions_are_found() {
        let script = "sh -c 'echo $$; setsid sh -c \"echo \\$\\$; exec sleep 1000\" & wait' & wait";
        let (mut shell, root, pids) = tree(script, 2);
        assert_eq!(children(root), [pids[0]]);
        assert_eq!(children_of_all(root), [pids[0]]);
        signal(root, &[pids[0]], None, &[Signal::KILL]);
        assert!(pids.iter().all(|pid| runs(*pid)), "what is spared is left alone with all below it");
        signal(root, &[], None, &[Signal::KILL]);
        wait_until_ended(&pids);
        assert!(shell.wait().unwrap().code().is_some(), "the root itself was not signalled");
    }

    #[test]
    fn a_group_that_was_signalled_as_a_whole_is_passed_over() {
        let (mut shell, root, pids) = tree("sleep 1000 & echo $!; wait", 1);
        let group = Stat::read(pids[0]).and_then(|stat| Pid::from_raw(stat.group));
        signal(root, &[], group, &[Signal::KILL]);
        assert!(runs(pids[0]));
        signal(root, &[], None, &[Signal::TERM, Signal::CONT]);
        wait_until_ended(&pids);
        shell.wait().unwrap();
    }
}

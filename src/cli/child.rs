//! The command under a lock: its own process group, its signals, its terminal, its end.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::answers;
use super::exit::{self, Failure};
use super::sys;
use super::terminal::Terminal;

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended, with this status as a shell would report it.
    Ended(u8),
    /// It was stopped.
    Stopped,
}

/// The variables that say what a command was given.
const OF_A_GRANT: [&str; 6] = [
    "PALISADE_KEY",
    "PALISADE_EPOCH",
    "PALISADE_BARRIER",
    "PALISADE_FENCE",
    "PALISADE_SESSION",
    answers::VARIABLE,
];

/// A running command with its process group.
pub(crate) struct Job {
    /// Process id of the command and id of its group. The command is not reaped before the job is
    /// dropped, so the number cannot come to mean another group while we may still send signals.
    group: Pid,
    terminal: Terminal,
    lent: bool,
}

impl Job {
    /// Runs the command in a process group of its own, with these additions to its environment.
    ///
    /// # Errors
    /// With exit code 127 when there is no such command and 126 when it cannot be run.
    pub(crate) fn spawn(words: &[OsString], environment: &[(&str, String)]) -> Result<Job, Failure> {
        let (program, arguments) = words.split_first().expect("the caller checked that there is a command");
        let terminal = Terminal::open();
        let lent = terminal.is_ours();
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        // Of a grant around this one, nothing may be taken for this one's.
        for name in OF_A_GRANT {
            command.env_remove(name);
        }
        for (name, value) in environment {
            command.env(name, value);
        }
        if let Some(handle) = terminal.handle().filter(|_| lent) {
            sys::take_terminal(&mut command, handle);
        }
        let child = command.spawn().map_err(|e| {
            let code = match e.kind() {
                io::ErrorKind::NotFound => exit::NO_COMMAND,
                _ => exit::CANNOT_RUN,
            };
            Failure::new(code, format!("cannot run {}: {e}", program.to_string_lossy()))
        });
        match child {
            Ok(child) => {
                let group = Pid::from_child(&child);
                if lent {
                    // The child does this too; whoever comes first, the command finds it done.
                    terminal.give(group);
                }
                Ok(Job { group, terminal, lent })
            }
            Err(failure) => {
                if lent {
                    // The child may have taken the terminal before its exec failed.
                    terminal.give(rustix::process::getpgrp());
                }
                Err(failure)
            }
        }
    }

    /// Looks, without waiting, whether the command ended or stopped. Call after each SIGCHLD.
    pub(crate) fn change(&mut self) -> Option<Change> {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(status)) = rustix::process::waitid(WaitId::Pid(self.group), ended) {
            let code = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
                (None, Some(signal)) => exit::of_signal(signal),
                (None, None) => exit::SOFTWARE,
            };
            return Some(Change::Ended(code));
        }
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::Pid(self.group), stopped) {
            Ok(Some(_)) => Some(Change::Stopped),
            _ => None,
        }
    }

    /// The command was stopped (Ctrl-Z, or it wanted the keyboard from the background): stops this
    /// process as well, so that the shell sees a stopped job, and goes on when the shell says so.
    /// Nobody renews the session meanwhile; a lease that runs out is found on waking.
    pub(crate) fn stop_with_it(&mut self) {
        if self.lent {
            self.terminal.take_back(self.group);
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        // Continued: in the foreground by `fg`, in the background by `bg`.
        self.lent = self.terminal.is_ours();
        if self.lent {
            self.terminal.give(self.group);
        }
        self.signal(Signal::CONT);
    }

    /// Sends a signal to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        // A group that is gone needs no signal.
        let _ = rustix::process::kill_process_group(self.group, signal);
    }

    /// Whether any process of the group still runs.
    pub(crate) fn group_runs(&self) -> bool {
        let Ok(entries) = std::fs::read_dir("/proc") else { return true };
        entries
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
            .any(|stat| {
                state_and_group(&stat)
                    .is_some_and(|(s, g)| g == self.group.as_raw_pid() && !matches!(s, 'Z' | 'X'))
            })
    }
}

/// State and process group out of /proc/PID/stat, whose second field may hold anything.
fn state_and_group(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some((state, group))
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.lent {
            self.terminal.take_back(self.group);
        }
        let _ =
            rustix::process::waitid(WaitId::Pid(self.group), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<Job, Failure> {
        Job::spawn(
            &words.iter().map(OsString::from).collect::<Vec<_>>(),
            &[("PALISADE_TEST", "7".to_owned())],
        )
    }

    fn end_of(mut job: Job) -> u8 {
        loop {
            match job.change() {
                Some(Change::Ended(code)) => return code,
                _ => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn the_status_is_the_commands_own_or_that_of_its_signal() {
        assert_eq!(end_of(run(&["sh", "-c", "exit $PALISADE_TEST"]).unwrap()), 7);
        assert_eq!(end_of(run(&["sh", "-c", "kill -TERM $$"]).unwrap()), 128 + 15);
    }

    #[test]
    fn a_command_that_cannot_be_run_is_told_apart_from_one_that_is_not_there() {
        assert_eq!(run(&["/nonexistent/command"]).err().map(|f| f.code), Some(exit::NO_COMMAND));
        assert_eq!(run(&["/etc/passwd"]).err().map(|f| f.code), Some(exit::CANNOT_RUN));
    }

    #[test]
    fn a_signal_reaches_the_whole_group() {
        let job = run(&["sh", "-c", "sleep 1000 & sleep 1000"]).unwrap();
        while !job.group_runs() {}
        job.signal(Signal::KILL);
        while job.group_runs() {}
        assert_eq!(end_of(job), 128 + 9);
    }

    #[test]
    fn the_fields_of_stat_are_found_behind_any_command_name() {
        assert_eq!(state_and_group("12 (a) b (c) S 1 34 34 0"), Some(('S', 34)));
        assert_eq!(state_and_group("nonsense"), None);
    }
}

//! The command under a lock, seen from the wrapper: its supervisor, its signals, its terminal, its end.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use palisade::clock;
use palisade_types::Time;
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::answers;
use super::exit::{self, Failure};
use super::supervisor::protocol::{FRAME, Inbox, Message, Order, Reach, Report};
use super::supervisor::task::Task;
use super::supervisor::tree;
use super::sys;
use super::terminal::Terminal;

/// How often what is being ended is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long after a SIGKILL was due the supervisor may take to say that all are gone.
const TAKE_OVER: Duration = Duration::from_millis(50);
/// How long the kernel may take to end what was killed before we report anyway.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// The variables that say what a command was given.
const OF_A_GRANT: [&str; 7] = [
    "PALISADE_KEY",
    "PALISADE_EPOCH",
    "PALISADE_BARRIER",
    "PALISADE_FENCE",
    "PALISADE_SIGNATURE",
    "PALISADE_SESSION",
    answers::VARIABLE,
];

/// A command with all that descends from it, under its supervisor. When this is dropped, or this process ends,
/// the supervisor ends what is left.
pub(crate) struct Job {
    supervisor: Child,
    /// What the supervisor says.
    reports: UnixStream,
    /// The same socket, to write to it at once.
    orders: net::UnixStream,
    inbox: Inbox,
    /// Process id of the command and id of its group. Only the supervisor sends signals there: only it knows
    /// that the number still is the command's.
    group: Option<Pid>,
    /// Nothing of it is left.
    gone: bool,
    program: OsString,
    terminal: Terminal,
    lent: bool,
    /// Children this process had before: no part of the command.
    spared: Vec<Pid>,
}

impl Job {
    /// Starts a supervisor that runs the command in a process group of its own, with these additions to its
    /// environment, no longer than the lease reaches. Whether it runs is reported: [`Job::next`].
    ///
    /// # Errors
    /// With 71 when the system refuses.
    pub(crate) fn start(
        words: &[OsString],
        environment: &[(&str, String)],
        reach: Reach,
        kill_after: Duration,
    ) -> Result<Job, Failure> {
        let program = words.first().cloned().unwrap_or_default();
        let terminal = Terminal::open();
        let lent = terminal.is_ours();
        let start = || -> io::Result<_> {
            let (ours, theirs) = net::UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            // Should the supervisor be killed, what it supervised becomes ours.
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            let spared = tree::children(rustix::process::getpid());
            let (socket, words) = (theirs.as_raw_fd(), words.to_vec());
            let task = Task { socket, reach, kill_after, terminal: lent, words };
            // Also when the file has been replaced meanwhile.
            let mut command = Command::new("/proc/self/exe");
            command.arg0("palisade").args(task.arguments());
            // Of a grant around this one, nothing may be taken for this one's.
            for name in OF_A_GRANT {
                command.env_remove(name);
            }
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            // Whoever stops or signals our group does not mean the supervisor.
            command.process_group(0);
            sys::hand_down(&mut command, OwnedFd::from(theirs));
            let supervisor = command.spawn()?;
            Ok((supervisor, UnixStream::from_std(ours.try_clone()?)?, ours, spared))
        };
        let (supervisor, reports, orders, spared) = start()
            .map_err(|e| Failure::new(exit::OS, format!("cannot start the command's supervisor: {e}")))?;
        let (inbox, group, gone) = (Inbox::default(), None, false);
        Ok(Job { supervisor, reports, orders, inbox, group, gone, program, terminal, lent, spared })
    }

    /// What the supervisor says next; none when it is gone without having said that nothing is left. May be
    /// dropped at any point without losing a report.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        loop {
            if let Some(report) = self.inbox.next() {
                self.note(report);
                return Some(report);
            }
            let mut bytes = [0; 8 * FRAME];
            match self.reports.read(&mut bytes).await {
                Ok(n @ 1..) => self.inbox.take(&bytes[..n]),
                Ok(0) | Err(_) => return None,
            }
        }
    }

    fn note(&mut self, report: Report) {
        match report {
            Report::Started(pid) => self.group = Pid::from_raw(pid),
            // Whoever is at the keyboard is to reach us while the rest of it ends.
            Report::Ended(_) => self.take_terminal_back(),
            Report::Failed(_) => {
                self.gone = true;
                if self.lent {
                    // The command may have taken the terminal before its exec failed.
                    self.terminal.give(rustix::process::getpgrp());
                }
            }
            Report::Gone => self.gone = true,
            _ => (),
        }
    }

    /// Why the command could not be run: 127 when there is none, or 126.
    pub(crate) fn cannot_run(&self, error: i32) -> Failure {
        let error = io::Error::from_raw_os_error(error);
        let code = match error.kind() {
            io::ErrorKind::NotFound => exit::NO_COMMAND,
            _ => exit::CANNOT_RUN,
        };
        Failure::new(code, format!("cannot run {}: {error}", self.program.to_string_lossy()))
    }

    /// Tells the supervisor. One that reads no more, since it is stopped or gone, needs no order.
    pub(crate) fn order(&mut self, order: Order) {
        let _ = self.orders.write_all(&order.encode());
    }

    /// Sends a signal to the command's group.
    pub(crate) fn signal(&mut self, signal: Signal) {
        self.order(Order::Signal(signal.as_raw()));
    }

    /// The command was stopped (Ctrl-Z, or it wanted the keyboard from the background): stops this
    /// process as well, so that the shell sees a stopped job, and goes on when the shell says so.
    /// Nobody renews the session meanwhile: when the lease runs out the supervisor ends the command.
    pub(crate) fn stop_with_it(&mut self) {
        self.take_terminal_back();
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        // Continued: in the foreground by `fg`, in the background by `bg`.
        self.lent = self.terminal.is_ours();
        if let Some(group) = self.group.filter(|_| self.lent) {
            self.terminal.give(group);
        }
        self.signal(Signal::CONT);
    }

    fn take_terminal_back(&mut self) {
        if let Some(group) = self.group.filter(|_| self.lent) {
            self.terminal.take_back(group);
        }
    }

    /// Ends all of the command: SIGTERM, and SIGKILL at the time given. Whether nothing is left.
    pub(crate) async fn end(&mut self, kill_at: Time) -> bool {
        self.order(Order::End { kill_at });
        let patience = kill_at.since(clock::lease_now()) + TAKE_OVER;
        let gone = async {
            while !self.gone {
                if self.next().await.is_none() {
                    return;
                }
            }
        };
        // A supervisor that is stopped ends nothing.
        let _ = tokio::time::timeout(patience, gone).await;
        self.gone || self.end_alone(kill_at).await
    }

    /// Ends all of the command without the supervisor, which is killed if it lives. Whether nothing is left.
    pub(crate) async fn end_alone(&mut self, kill_at: Time) -> bool {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        // Now everything below it has become ours.
        let ourselves = rustix::process::getpid();
        tree::signal(ourselves, &self.spared, None, &[Signal::TERM, Signal::CONT]);
        while self.anything_left() {
            let now = clock::lease_now();
            if now >= kill_at + AFTER_KILL {
                return false;
            }
            if now >= kill_at {
                tree::signal(ourselves, &self.spared, None, &[Signal::KILL]);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.gone = true;
        true
    }

    /// Reaps who has ended, and looks for the rest.
    fn anything_left(&self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => (),
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        tree::children(rustix::process::getpid()).iter().any(|pid| !self.spared.contains(pid))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.take_terminal_back();
        if self.gone {
            // It is at its end; it must not outlive us.
            let _ = self.supervisor.kill();
            let _ = self.supervisor.wait();
        }
    }
}

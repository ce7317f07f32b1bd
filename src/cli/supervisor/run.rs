//! The supervisor's process. It has one thread and no runtime, blocks every signal, and sleeps until its
//! socket, its children or its timer have something to say.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use palisade::clock;
use palisade_types::Time;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::protocol::{FRAME, Inbox, Message, Order, Reach, Report};
use super::task::Task;
use super::tree;
use crate::cli::terminal::Terminal;
use crate::cli::{exit, sys};

/// How long after a SIGKILL to send the next one, at least and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// For so long a SIGKILL may have no effect before that is worth a word.
const STUCK_AFTER: Duration = Duration::from_secs(2);
const NANOS: u64 = 1_000_000_000;

/// Supervises, if that is what the arguments ask for: gives the exit status when nothing is left.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let task = Task::parse(arguments)?;
    Some(match Supervisor::new(&task) {
        Ok(supervisor) => supervisor.run(&task),
        Err(e) => {
            // Without a socket nobody hears it elsewhere.
            let _ = writeln!(io::stderr(), "palisade: cannot supervise: {e}");
            exit::OS
        }
    })
}

/// The command is being ended.
#[derive(Clone, Copy)]
struct Ending {
    /// When SIGKILL is due.
    kill_at: Time,
    /// When the first was sent.
    first_kill: Option<Time>,
    /// When the next one is due, in later and later intervals where they have no effect.
    next_kill: Time,
    /// It was said that they have no effect.
    stuck: bool,
}

struct Supervisor {
    /// None: the wrapper is gone.
    socket: Option<UnixStream>,
    inbox: Inbox,
    timer: OwnedFd,
    children: OwnedFd,
    mask: sys::Mask,
    /// The command, which is the leader of its group, until it is reaped: so long the number is its own.
    command: Option<Pid>,
    /// It ended at this time; what it left behind is left alone until then.
    patience: Option<Time>,
    reach: Reach,
    overdue: bool,
    kill_after: Duration,
    ending: Option<Ending>,
}

impl Supervisor {
    fn new(task: &Task) -> io::Result<Supervisor> {
        let socket = UnixStream::from(sys::handed_down(task.socket)?);
        socket.set_nonblocking(true)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (children, mask) = sys::block_signals()?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        // For `ps` and `top`; nothing depends on it.
        let _ = std::fs::write("/proc/self/comm", "palisade");
        Ok(Supervisor {
            socket: Some(socket),
            inbox: Inbox::default(),
            timer: timerfd_create(TimerfdClockId::Boottime, flags)?,
            children,
            mask,
            command: None,
            patience: None,
            reach: task.reach,
            overdue: false,
            kill_after: task.kill_after,
            ending: None,
        })
    }

    fn run(mut self, task: &Task) -> u8 {
        if clock::lease_now() >= self.reach.deadline {
            // Too late to begin.
            self.report(Report::Overdue);
        } else if let Err(error) = self.start(task) {
            self.report(Report::Failed(error.raw_os_error().unwrap_or(libc::EINVAL)));
            return 0;
        }
        // Whatever becomes a child of ours descends from the command: without children, nothing is left.
        while self.reap() {
            self.judge();
            if let Err(e) = self.sleep() {
                // Without poll or timer no deadline is held: nothing may run on.
                let _ = writeln!(io::stderr(), "palisade: the supervisor cannot sleep: {e}");
                self.end(Time::ZERO);
                std::thread::sleep(LOOK_AGAIN.0);
            }
            // Before the clock is asked: what arrived while we were stopped counts.
            self.orders();
        }
        self.report(Report::Gone);
        0
    }

    fn start(&mut self, task: &Task) -> io::Result<()> {
        let (program, arguments) = task.words.split_first().ok_or(ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        // Should wrapper and supervisor be killed at once, the command at least does not run on.
        sys::die_with_parent(&mut command);
        if let Some(terminal) = task.terminal.then(|| Terminal::open().handle()).flatten() {
            sys::take_terminal(&mut command, terminal);
        }
        sys::with_mask(&mut command, self.mask);
        let pid = Pid::from_child(&command.spawn()?);
        self.command = Some(pid);
        self.report(Report::Started(pid.as_raw_pid()));
        Ok(())
    }

    /// Says it, if anybody listens. A wrapper that is stopped for long may miss some; not the last ones, for
    /// few are ever said.
    fn report(&mut self, report: Report) {
        if let Some(socket) = &mut self.socket {
            let _ = socket.write_all(&report.encode());
        }
    }

    /// Takes all orders that have arrived.
    fn orders(&mut self) {
        let mut bytes = [0; 64 * FRAME];
        while let Some(socket) = &mut self.socket {
            match socket.read(&mut bytes) {
                Ok(n @ 1..) => self.inbox.take(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // Nobody renews any more, and nobody releases.
                Ok(0) | Err(_) => self.socket = None,
            }
        }
        while let Some(order) = self.inbox.next() {
            match order {
                Order::Renewed(reach) => self.reach = reach,
                Order::End { kill_at } => self.end(kill_at),
                Order::Signal(number) => self.pass_on(number),
            }
        }
        if self.socket.is_none() {
            self.end(self.kill_at());
        }
    }

    fn pass_on(&mut self, number: i32) {
        match self.command {
            Some(group) => sys::signal_group(group, number),
            None if matches!(number, libc::SIGCONT | libc::SIGWINCH | libc::SIGTSTP) => (),
            // The command has ended: no more patience with what it left behind.
            None => self.end(self.kill_at()),
        }
    }

    /// Reaps who has ended. Whether anybody is left.
    fn reap(&mut self) -> bool {
        let mut bytes = [0; 128];
        // All that one signal stands for is looked at below.
        while rustix::io::read(&self.children, &mut bytes).is_ok() {}
        loop {
            match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if self.command == Some(pid) => self.command_changed(status),
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => (),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn command_changed(&mut self, status: WaitStatus) {
        let code = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            (None, Some(signal)) => exit::of_signal(signal),
            (None, None) if status.stopped() => return self.report(Report::Stopped),
            (None, None) => return,
        };
        self.command = None;
        self.patience = Some(clock::lease_now() + self.kill_after);
        self.report(Report::Ended(code));
    }

    /// Does what is due.
    fn judge(&mut self) {
        let now = clock::lease_now();
        if now >= self.reach.deadline && !self.overdue {
            self.overdue = true;
            self.report(Report::Overdue);
            self.end(self.kill_at());
        }
        if self.ending.is_none() && self.patience.is_some_and(|end| now >= end) {
            self.report(Report::LeftBehind);
            self.end(self.kill_at());
        }
        let Some(ending) = self.ending.filter(|ending| now >= ending.kill_at) else { return };
        self.signal(&[Signal::KILL]);
        let first = ending.first_kill.unwrap_or(now);
        let stuck = now.since(first) >= STUCK_AFTER;
        if stuck && !ending.stuck {
            self.report(Report::Stuck);
        }
        let pause = (now.since(first) / 4).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1);
        self.ending = Some(Ending { first_kill: Some(first), next_kill: now + pause, stuck, ..ending });
    }

    /// When SIGKILL is due if SIGTERM is sent now.
    fn kill_at(&self) -> Time {
        self.reach.kill_at(clock::lease_now(), self.kill_after)
    }

    /// Ends all of the command; if that is under way, it may only come sooner.
    fn end(&mut self, kill_at: Time) {
        match &mut self.ending {
            Some(ending) => ending.kill_at = ending.kill_at.min(kill_at),
            None => {
                self.ending = Some(Ending { kill_at, first_kill: None, next_kill: kill_at, stuck: false });
                // A stopped process acts on SIGTERM only once it goes on.
                self.signal(&[Signal::TERM, Signal::CONT]);
            }
        }
    }

    fn signal(&self, signals: &[Signal]) {
        if let Some(group) = self.command {
            // As a whole, so that nobody in it escapes by a fork.
            signals.iter().for_each(|signal| sys::signal_group(group, signal.as_raw()));
        }
        tree::signal(rustix::process::getpid(), &[], self.command, signals);
    }

    /// Sleeps until there is something to do.
    fn sleep(&self) -> io::Result<()> {
        let at = match &self.ending {
            Some(ending) if ending.first_kill.is_some() => ending.next_kill,
            Some(ending) if self.overdue => ending.kill_at,
            Some(ending) => ending.kill_at.min(self.reach.deadline),
            None => self.patience.unwrap_or(Time::FAR).min(self.reach.deadline),
        };
        let it_value = Timespec {
            tv_sec: i64::try_from(at.0 / NANOS).unwrap_or(i64::MAX),
            // All zero would switch it off.
            tv_nsec: i64::try_from(at.0 % NANOS).unwrap_or(0).max(1),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        let mut all = vec![
            PollFd::from_borrowed_fd(self.timer.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN),
        ];
        all.extend(self.socket.as_ref().map(|s| PollFd::from_borrowed_fd(s.as_fd(), PollFlags::IN)));
        match poll(&mut all, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

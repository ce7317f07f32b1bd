//! The controlling terminal: lent to the command while it runs, so that Ctrl-C, Ctrl-Z and reading
//! from the keyboard work as they do without the wrapper.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;

use super::sys;

/// The terminal, if this process has one.
pub(crate) struct Terminal {
    tty: Option<File>,
    ours: Pid,
}

impl Terminal {
    /// Looks for the controlling terminal.
    pub(crate) fn open() -> Terminal {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok();
        Terminal { tty, ours: rustix::process::getpgrp() }
    }

    /// Whether our own process group has the keyboard.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground_group() == Some(self.ours)
    }

    fn foreground_group(&self) -> Option<Pid> {
        rustix::termios::tcgetpgrp(self.tty.as_ref()?).ok()
    }

    /// A handle for a child that takes the terminal before it runs its command.
    pub(crate) fn handle(&self) -> Option<OwnedFd> {
        self.tty.as_ref()?.as_fd().try_clone_to_owned().ok()
    }

    /// Gives the keyboard to another group. A terminal that is gone is nobody's loss.
    pub(crate) fn give(&self, group: Pid) {
        if let Some(tty) = &self.tty {
            let _ = sys::foreground(tty.as_fd(), group);
        }
    }

    /// Takes the keyboard back from a group we gave it to; leaves it alone if somebody else has it.
    pub(crate) fn take_back(&self, from: Pid) {
        if self.foreground_group() == Some(from) {
            self.give(self.ours);
        }
    }
}

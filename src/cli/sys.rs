//! What must happen in a child between fork and exec: the only unsafe code of the command line.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal};

/// Binds the child's life to the thread that spawns it: when that thread ends, for whatever
/// reason, the kernel kills the child. Spawn from the main thread only.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let set_up = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above: then the signal never comes.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it allocates
    // nothing and takes no lock.
    unsafe { command.pre_exec(set_up) };
}

/// Makes the child's process group the foreground group of the terminal before the command runs.
/// The group must have been asked for with [`CommandExt::process_group`].
pub(crate) fn take_terminal(command: &mut Command, terminal: OwnedFd) {
    let set_up = move || {
        foreground(terminal.as_fd(), rustix::process::getpid())?;
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes system calls only; it allocates
    // nothing and takes no lock.
    unsafe { command.pre_exec(set_up) };
}

/// Makes a process group the foreground group of the terminal, also when the caller is in the
/// background, where the kernel would stop it otherwise (SIGTTOU).
pub(crate) fn foreground(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    let mut only_ttou = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are live and large enough; sigemptyset initialises the one that is read,
    // pthread_sigmask the other. All calls are safe between fork and exec.
    let masked = unsafe {
        libc::sigemptyset(only_ttou.as_mut_ptr());
        libc::sigaddset(only_ttou.as_mut_ptr(), libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, only_ttou.as_ptr(), before.as_mut_ptr())
    };
    if masked != 0 {
        return Err(io::Error::from_raw_os_error(masked));
    }
    let end = rustix::termios::tcsetpgrp(terminal, group);
    // SAFETY: the call above succeeded, so `before` holds the mask to restore.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    Ok(end?)
}

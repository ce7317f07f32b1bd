//! What must happen in a child between fork and exec, signals by number, and a descriptor that was handed
//! down: the only unsafe code of the command line.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
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

/// Hands a descriptor down to the child, where it has the same number: see [`handed_down`].
pub(crate) fn hand_down(command: &mut Command, descriptor: OwnedFd) {
    let set_up = move || Ok(fcntl_setfd(&descriptor, FdFlags::empty())?);
    // SAFETY: the closure runs between fork and exec and makes one system call; it allocates nothing and
    // takes no lock.
    unsafe { command.pre_exec(set_up) };
}

/// Takes over a descriptor that [`hand_down`] gave this process; its own children do not get it. To be called
/// before anything else opens or closes descriptors, and once.
///
/// # Errors
/// When there is no such descriptor.
pub(crate) fn handed_down(number: i32) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the call touches no memory, and fails when the descriptor is not open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nothing in this process owns it: it came through exec.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The signals a process had blocked.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

/// Blocks every signal that can be blocked, and gives a descriptor from which SIGCHLD is read instead, without
/// waiting. Also what was blocked before. For a process with one thread.
///
/// # Errors
/// When the system gives no descriptor.
pub(crate) fn block_signals() -> io::Result<(OwnedFd, Mask)> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut child = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the three sets are live and large enough; the first two are initialised before they are read.
    let (blocked, descriptor) = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigemptyset(child.as_mut_ptr());
        libc::sigaddset(child.as_mut_ptr(), libc::SIGCHLD);
        let blocked = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        (blocked, libc::signalfd(-1, child.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC))
    };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, for us alone; and pthread_sigmask succeeded, so
    // `before` is initialised.
    Ok(unsafe { (OwnedFd::from_raw_fd(descriptor), Mask(before.assume_init())) })
}

/// The child starts with these signals blocked, and not with those of this process.
pub(crate) fn with_mask(command: &mut Command, mask: Mask) {
    let set_up = move || {
        // SAFETY: the set is initialised and lives as long as the closure; the call is safe after fork.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: the closure runs between fork and exec and makes one system call; it allocates nothing and
    // takes no lock.
    unsafe { command.pre_exec(set_up) };
}

/// Sends a signal, by its number, to a process group. A group that is gone needs none.
pub(crate) fn signal_group(group: Pid, number: i32) {
    // SAFETY: the call touches no memory. A process id is positive, so this means one group.
    unsafe { libc::kill(-group.as_raw_pid(), number) };
}

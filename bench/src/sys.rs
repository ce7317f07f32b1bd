//! What must happen in a child between fork and exec: the only unsafe code of the load generator.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

/// Asks the child to stop when the thread that spawns it ends, for whatever reason: a cluster must
/// not outlive a generator that was killed. Spawn from the main thread only.
pub(crate) fn stop_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let set_up = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        // The parent may have died before the line above: then the signal never comes.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it allocates
    // nothing and takes no lock.
    unsafe { command.pre_exec(set_up) };
}

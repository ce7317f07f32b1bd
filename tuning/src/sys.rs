//! The one system call the standard library does not offer. The only module with unsafe code.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Whether this process may use io_uring: sets up a small ring and closes it.
///
/// # Errors
/// What the kernel answered.
pub fn try_io_uring() -> io::Result<()> {
    // struct io_uring_params is 120 bytes; zero means defaults.
    let mut params = [0u64; 16];
    // SAFETY: the kernel reads and writes 120 bytes of the 128 that live here.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr()) };
    let fd = i32::try_from(result).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else; it is closed at once.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

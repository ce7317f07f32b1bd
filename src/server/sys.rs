//! The system calls the standard library does not offer. The only module of the server with unsafe
//! code; everything here is a thin, checked wrapper.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Turns the result of a system call into a `Result`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Readable, or the other side is done.
pub(crate) const READ: u32 = libc::EPOLLIN as u32;
/// Writable.
pub(crate) const WRITE: u32 = libc::EPOLLOUT as u32;
/// Failed or hung up; reported whether asked for or not.
pub(crate) const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// One readiness: the token given at registration, and what is ready.
pub(crate) type Event = libc::epoll_event;

/// A level-triggered epoll set.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: no pointers are passed; the descriptor returned is new and owned by nobody else.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(&self, op: libc::c_int, fd: RawFd, interest: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest, u64: token };
        // SAFETY: the event lives until the call returns, the kernel copies it; a descriptor that is
        // not open is answered with EBADF.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &raw mut event) })?;
        Ok(())
    }

    /// Adds a descriptor.
    pub(crate) fn add(&self, fd: &impl AsRawFd, interest: u32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), interest, token)
    }

    /// Changes what a descriptor is watched for.
    pub(crate) fn modify(&self, fd: &impl AsRawFd, interest: u32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), interest, token)
    }

    /// Waits until something is ready, a signal or the end of something in the kernel interrupts, or
    /// the time is over, and fills `events` with what is ready, at most its length. Returns how many.
    pub(crate) fn wait(&self, events: &mut [Event], timeout: Duration) -> io::Result<usize> {
        match self.wait_once(events, timeout) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            result => result,
        }
    }

    fn wait_once(&self, events: &mut [Event], timeout: Duration) -> io::Result<usize> {
        let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
        let (fd, to) = (self.0.as_raw_fd(), events.as_mut_ptr());
        if !timeout.is_zero() {
            let seconds = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
            let spec =
                libc::timespec { tv_sec: seconds, tv_nsec: libc::c_long::from(timeout.subsec_nanos()) };
            let no_mask: *const libc::sigset_t = std::ptr::null();
            // SAFETY: the kernel writes at most `room` events into the slice and reads the timespec,
            // which both live until it returns; without a mask the size of one is not looked at.
            let n =
                unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, to, room, &raw const spec, no_mask, 0) };
            match check(n as libc::c_int) {
                // Before Linux 5.11: by milliseconds, below.
                Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {}
                result => return result.map(|n| n as usize),
            }
        }
        // Up, not down: a wait that ends early is taken up again and again.
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel writes at most `room` events into the slice, which lives that long.
        check(unsafe { libc::epoll_wait(fd, to, room, millis) }).map(|n| n as usize)
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// An event to fill an array with.
pub(crate) const NO_EVENT: Event = libc::epoll_event { events: 0, u64: 0 };

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::gettid() }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Makes SIGUSR2 interrupt system calls and do nothing else.
pub(crate) fn install_wake_signal() -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid (no flags, empty mask); the handler does nothing, so it is
    // safe at any moment. Without SA_RESTART the interrupted call returns EINTR, which is the point.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        check(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()))?;
    }
    Ok(())
}

/// Interrupts a thread of this process in whatever system call it sleeps.
pub(crate) fn wake_thread(thread: i32) -> io::Result<()> {
    // SAFETY: no pointers are passed; a thread that is gone is answered with ESRCH.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2) };
    check(result as libc::c_int).map(|_| ())
}

/// Which limit of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// Open descriptors.
    Files,
    /// Bytes of locked memory.
    LockedMemory,
}

/// Raises the soft limit to the hard one and returns what then holds.
pub(crate) fn raise_limit(which: Limit) -> io::Result<u64> {
    let resource = match which {
        Limit::Files => libc::RLIMIT_NOFILE,
        Limit::LockedMemory => libc::RLIMIT_MEMLOCK,
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct, which lives here.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        // SAFETY: the kernel only reads the struct.
        if check(unsafe { libc::setrlimit(resource, &raw const raised) }).is_ok() {
            return Ok(raised.rlim_cur);
        }
    }
    Ok(limit.rlim_cur)
}

/// Whether a path lies in memory (tmpfs or ramfs), where nothing outlives the host.
pub(crate) fn is_in_memory(path: &Path) -> io::Result<bool> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a terminated string and the kernel fills the struct; both live here.
    let kind = unsafe {
        let mut fs: libc::statfs = std::mem::zeroed();
        check(libc::statfs(text.as_ptr(), &raw mut fs))?;
        fs.f_type
    };
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    Ok(kind == libc::TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_time_or_when_something_is_ready() {
        let set = Epoll::new().unwrap();
        let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
        set.add(&reader, READ, 7).unwrap();
        let mut events = [NO_EVENT; 4];
        assert_eq!(set.wait(&mut events, Duration::ZERO).unwrap(), 0);
        assert_eq!(set.wait(&mut events, Duration::from_micros(300)).unwrap(), 0);
        io::Write::write_all(&mut writer, &[1]).unwrap();
        for timeout in [Duration::ZERO, Duration::from_micros(300), Duration::from_secs(3_600)] {
            // Level-triggered: ready for as long as the byte is unread.
            assert_eq!(set.wait(&mut events, timeout).unwrap(), 1);
            assert_eq!({ events[0].u64 }, 7);
        }
    }
}

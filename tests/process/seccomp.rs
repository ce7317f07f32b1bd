//! A command that the kernel refuses io_uring: the filter a hardened container runtime would set.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `offsetof(struct seccomp_data, nr)`.
const NUMBER: u32 = 0;

const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Makes io_uring_setup fail with EPERM in the command and everything it starts.
pub(crate) fn without_io_uring(command: &mut Command) -> &mut Command {
    let set_up = || {
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER),
            libc::sock_filter {
                code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                jt: 0,
                jf: 1,
                k: libc::SYS_io_uring_setup as u32,
            },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its filter live until the calls return; the kernel copies them.
        let ends = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0),
            ]
        };
        if ends == [0, 0] { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure runs between fork and exec, makes two system calls and allocates nothing.
    unsafe { command.pre_exec(set_up) }
}

/// Limits the memory that the command may lock, as a host with a stingy configuration would.
pub(crate) fn with_memlock(command: &mut Command, bytes: u64) -> &mut Command {
    let set_up = move || {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the limit lives until the call returns.
        if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: the closure runs between fork and exec, makes one system call and allocates nothing.
    unsafe { command.pre_exec(set_up) }
}

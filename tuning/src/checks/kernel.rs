//! The kernel, and whether it lets us have a ring.

use super::names;
use crate::check::Check;
use crate::parse;
use crate::root::{Root, Unread};

/// What glommio asks for.
const RELEASE_MIN: (u32, u32) = (5, 8);

/// The release of the kernel.
pub(super) fn release(root: &Root) -> Check {
    const WHY: &str = "the executor needs io_uring as of Linux 5.8";
    let text = match root.read("/proc/sys/kernel/osrelease") {
        Ok(text) => text,
        Err(error) => return Check::unread(names::KERNEL, &error, WHY),
    };
    match parse::release(&text) {
        Some(release) if release >= RELEASE_MIN => Check::good(names::KERNEL, text, WHY),
        Some(_) => {
            Check::bad(names::KERNEL, text, WHY).remedy("boot Linux 5.8 or later", "boot the old kernel")
        }
        None => Check::unread(names::KERNEL, &Unread::strange("/proc/sys/kernel/osrelease", &text), WHY),
    }
}

/// Whether io_uring is allowed: the attempt decides, the setting explains.
pub(super) fn io_uring(root: &Root, attempt: &Result<(), String>) -> Check {
    const WHY: &str = "disk, timers and sockets of the server go through io_uring; there is no other way in";
    const NAME: &str = names::IO_URING;
    let setting = match root.read("/proc/sys/kernel/io_uring_disabled") {
        Ok(text) => format!("kernel.io_uring_disabled = {text}"),
        // The setting came with Linux 6.6.
        Err(Unread::Absent(_)) => "no kernel.io_uring_disabled".to_owned(),
        Err(error) => error.to_string(),
    };
    let allow = "sysctl -w kernel.io_uring_disabled=0";
    let undo = "sysctl -w kernel.io_uring_disabled=2 (or what it was)";
    match attempt {
        Err(error) => {
            let remedy =
                format!("{allow}; in a container let seccomp pass io_uring_setup, _enter and _register");
            Check::bad(NAME, format!("refused: {error}; {setting}"), WHY).remedy(remedy, undo)
        }
        Ok(()) if setting.ends_with("= 1") || setting.ends_with("= 2") => {
            let why = "this process may make rings, another user may not: only members of \
                       kernel.io_uring_group, or privileged processes (1), or nobody (2)";
            let remedy = format!("{allow}, or put the server's group into kernel.io_uring_group");
            Check::advice(NAME, format!("works here; {setting}"), why).remedy(remedy, undo)
        }
        Ok(()) => Check::good(NAME, format!("works; {setting}"), WHY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    #[test]
    fn releases() {
        let verdict = |text| release(&Fixture::new(&[("/proc/sys/kernel/osrelease", text)]).root()).verdict;
        assert_eq!(verdict("6.18.44-generic\n"), Verdict::Good);
        assert_eq!(verdict("5.8.0\n"), Verdict::Good);
        assert_eq!(verdict("5.4.0-200\n"), Verdict::Bad);
        assert_eq!(verdict("4.19\n"), Verdict::Bad);
        assert_eq!(verdict("strange\n"), Verdict::Advice);
        assert_eq!(release(&Fixture::new(&[]).root()).verdict, Verdict::Advice);
    }

    #[test]
    fn rings() {
        let no = Err("Operation not permitted".to_owned());
        for (setting, works, without) in [
            ("0", Verdict::Good, Verdict::Bad),
            ("1", Verdict::Advice, Verdict::Bad),
            ("2", Verdict::Advice, Verdict::Bad),
        ] {
            let fixture = Fixture::new(&[("/proc/sys/kernel/io_uring_disabled", setting)]);
            assert_eq!(io_uring(&fixture.root(), &Ok(())).verdict, works, "{setting}");
            let check = io_uring(&fixture.root(), &no);
            assert_eq!(check.verdict, without, "{setting}");
            assert!(check.found.contains("not permitted"));
        }
        let before = Fixture::new(&[]);
        assert_eq!(io_uring(&before.root(), &Ok(())).verdict, Verdict::Good);
    }
}

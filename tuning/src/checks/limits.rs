//! The limits of the process. A service may have others than the shell that asks.

use crate::check::Check;
use crate::parse::{self, Limit};
use crate::root::{Root, Unread};

/// glommio refuses to build an executor below this.
const LOCKED_MIN: u64 = 512 << 10;
/// Enough for what 21 executors register (1 MiB each, three times), whatever else the user runs.
const LOCKED_WANTED: u64 = 64 << 20;
/// The number of CAP_IPC_LOCK, which lifts the limit.
const CAP_IPC_LOCK: u32 = 14;

/// Below this a node refuses clients in ordinary use: it keeps 64 descriptors for itself.
const FILES_MIN: u64 = 1_024;
/// 10,000 clients, and the same again while they reconnect and the old connections linger.
const FILES_WANTED: u64 = 20_000;

const LIMITS: &str = "/proc/self/limits";

fn limit(root: &Root, name: &str) -> Result<Limit, Unread> {
    root.parse(LIMITS, |text| parse::limit(text, name))
}

/// How much memory may be locked. The server raises its soft limit to the hard one by itself.
pub(super) fn locked_memory(root: &Root) -> Check {
    const NAME: &str = "locked memory";
    let why = "each executor registers 1 MiB three times. Below 512 KiB it is not built at all; from \
               there on it works, with a warning and unregistered buffers where the limit, which counts \
               per user over all processes, is used up. 64 MiB is enough, unless CAP_IPC_LOCK lifts the \
               limit";
    let limit = match limit(root, "Max locked memory") {
        Ok(limit) => limit,
        Err(error) => return Check::unread(NAME, &error, why),
    };
    let status = root.read("/proc/self/status").unwrap_or_default();
    let (privileged, known) = match parse::capability(&status, CAP_IPC_LOCK) {
        Some(true) => (true, ", CAP_IPC_LOCK"),
        Some(false) => (false, ""),
        None => (false, ", capabilities unknown"),
    };
    let found = format!("soft {}, hard {}{known}", parse::bytes(limit.soft), parse::bytes(limit.hard));
    let remedy = "LimitMEMLOCK=64M in the unit, or limits-palisade.conf in /etc/security/limits.d";
    let undo = "remove the line, start again";
    if limit.hard < LOCKED_MIN {
        Check::bad(NAME, found, why).remedy(remedy, undo)
    } else if privileged || limit.hard >= LOCKED_WANTED {
        Check::good(NAME, found, why)
    } else {
        Check::advice(NAME, found, why).remedy(remedy, undo)
    }
}

/// How many files may be open. The server raises its soft limit to the hard one by itself.
pub(super) fn open_files(root: &Root) -> Check {
    const NAME: &str = "open files";
    let why = "a connection is an open file. Below 1,024 a node refuses clients in ordinary use; below \
               20,000 it has no room for 10,000 clients that all reconnect";
    let limit = match limit(root, "Max open files") {
        Ok(limit) => limit,
        Err(error) => return Check::unread(NAME, &error, why),
    };
    let count = |n: u64| if n == u64::MAX { "unlimited".to_owned() } else { n.to_string() };
    let found = format!("soft {}, hard {}", count(limit.soft), count(limit.hard));
    let check = match limit.hard {
        n if n < FILES_MIN => Check::bad(NAME, found, why),
        n if n < FILES_WANTED => Check::advice(NAME, found, why),
        _ => return Check::good(NAME, found, why),
    };
    check.remedy(
        "LimitNOFILE=131072 in the unit, or limits-palisade.conf in /etc/security/limits.d",
        "remove the line, start again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    fn host(limits: &str, capabilities: &str) -> Fixture {
        Fixture::new(&[(LIMITS, limits), ("/proc/self/status", &format!("CapEff:\t{capabilities}\n"))])
    }

    fn locked(hard: &str, capabilities: &str) -> Verdict {
        let text = format!("Max locked memory    65536    {hard}    bytes\n");
        locked_memory(&host(&text, capabilities).root()).verdict
    }

    #[test]
    fn memory_to_lock() {
        let (none, lock) = ("0000000000000000", "0000000000004000");
        assert_eq!(locked("524287", none), Verdict::Bad);
        assert_eq!(locked("524287", lock), Verdict::Bad, "glommio asks the limit, not the capability");
        assert_eq!(locked("524288", none), Verdict::Advice);
        assert_eq!(locked("524288", lock), Verdict::Good);
        assert_eq!(locked("67108864", none), Verdict::Good);
        assert_eq!(locked("unlimited", none), Verdict::Good);
        assert_eq!(locked("8388608", "strange"), Verdict::Advice);
        assert_eq!(locked_memory(&Fixture::new(&[]).root()).verdict, Verdict::Advice);
    }

    #[test]
    fn files_to_open() {
        let verdict = |hard: &str| {
            let text = format!("Max open files    256    {hard}    files\n");
            open_files(&host(&text, "0").root()).verdict
        };
        assert_eq!(verdict("1023"), Verdict::Bad);
        assert_eq!(verdict("1024"), Verdict::Advice);
        assert_eq!(verdict("19999"), Verdict::Advice);
        assert_eq!(verdict("20000"), Verdict::Good);
        assert_eq!(verdict("unlimited"), Verdict::Good);
        assert_eq!(verdict("strange"), Verdict::Advice);
    }
}

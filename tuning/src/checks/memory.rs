//! Memory: huge pages and swap.

use crate::check::Check;
use crate::parse;
use crate::root::{Root, Unread};

/// From which value on the kernel swaps rather eagerly.
const SWAPPINESS_WANTED: u64 = 10;

/// Transparent huge pages.
pub(super) fn huge_pages(root: &Root) -> Check {
    const NAME: &str = "huge pages";
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let why = "with always the kernel may stop a thread to put a huge page together; with madvise and \
               never it leaves alone who does not ask, and the server does not ask";
    match root.parse(PATH, parse::chosen).as_deref() {
        Ok("always") => Check::advice(NAME, "always", why)
            .remedy(format!("echo madvise > {PATH}"), format!("echo always > {PATH}")),
        Ok(setting @ ("madvise" | "never")) => Check::good(NAME, setting, why),
        Ok(other) => Check::unread(NAME, &Unread::strange(PATH, other), why),
        Err(Unread::Absent(_)) => Check::not_applicable(NAME, "none", "the kernel is built without them"),
        Err(error) => Check::unread(NAME, error, why),
    }
}

/// Swap, and how eagerly it is used.
pub(super) fn swap(root: &Root) -> Check {
    const NAME: &str = "swap";
    let why = "a page of the server that was swapped out must be read back before the next request goes \
               on: a pause of the whole executor";
    let swaps = match root.read("/proc/swaps") {
        Ok(text) => text.lines().skip(1).filter(|line| !line.trim().is_empty()).count(),
        Err(Unread::Absent(_)) => {
            return Check::not_applicable(NAME, "none", "the kernel is built without it");
        }
        Err(error) => return Check::unread(NAME, &error, why),
    };
    if swaps == 0 {
        return Check::good(NAME, "none", why);
    }
    match root.parse("/proc/sys/vm/swappiness", |text| text.parse::<u64>().ok()) {
        Ok(swappiness) => {
            let found = format!("{swaps} in use, vm.swappiness = {swappiness}");
            if swappiness <= SWAPPINESS_WANTED {
                return Check::good(NAME, found, why);
            }
            Check::advice(NAME, found, why).remedy(
                "sysctl -w vm.swappiness=1, or MemorySwapMax=0 in the unit",
                format!("sysctl -w vm.swappiness={swappiness}"),
            )
        }
        Err(error) => Check::unread(NAME, &error, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    #[test]
    fn pages() {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        let verdict = |text| huge_pages(&Fixture::new(&[(path, text)]).root()).verdict;
        assert_eq!(verdict("[always] madvise never\n"), Verdict::Advice);
        assert_eq!(verdict("always [madvise] never\n"), Verdict::Good);
        assert_eq!(verdict("always madvise [never]\n"), Verdict::Good);
        assert_eq!(verdict("[sometimes]\n"), Verdict::Advice);
        assert_eq!(huge_pages(&Fixture::new(&[]).root()).verdict, Verdict::NotApplicable);
    }

    #[test]
    fn swaps() {
        let none = "Filename\tType\tSize\tUsed\tPriority\n";
        let one = format!("{none}/dev/vdb partition 1 0 -2\n");
        let verdict = |swaps: &str, swappiness: &str| {
            let files = [("/proc/swaps", swaps), ("/proc/sys/vm/swappiness", swappiness)];
            swap(&Fixture::new(&files).root()).verdict
        };
        assert_eq!(verdict(none, "60\n"), Verdict::Good);
        assert_eq!(verdict(&one, "60\n"), Verdict::Advice);
        assert_eq!(verdict(&one, "1\n"), Verdict::Good);
        assert_eq!(verdict(&one, "strange\n"), Verdict::Advice);
        assert_eq!(swap(&Fixture::new(&[]).root()).verdict, Verdict::NotApplicable);
    }
}

//! Which CPUs there are, and which of them share a core.

use crate::parse;
use crate::root::{Root, Unread};

/// The CPUs of a host as far as placement cares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The CPUs this process may run on, in ascending order.
    pub cores: Vec<usize>,
    /// Those of them that share one physical core, one list each; empty lists do not occur.
    pub siblings: Vec<Vec<usize>>,
}

impl Topology {
    /// The CPUs of this host; `None` when the kernel does not say.
    #[must_use]
    pub fn of_host() -> Option<Topology> {
        Topology::read(&Root::host()).ok()
    }

    /// The CPUs of a host. A CPU whose siblings cannot be read counts as a core of its own.
    ///
    /// # Errors
    /// When the list of CPUs cannot be read.
    pub(crate) fn read(root: &Root) -> Result<Topology, Unread> {
        const STATUS: &str = "/proc/self/status";
        let status = root.read(STATUS)?;
        let cores = parse::field(&status, "Cpus_allowed_list")
            .and_then(parse::cpu_list)
            .ok_or_else(|| Unread::strange(STATUS, "no Cpus_allowed_list"))?;
        let mut siblings: Vec<Vec<usize>> = Vec::new();
        for &cpu in cores.iter().filter(|_| root.has("/sys/devices/system/cpu")) {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let mut group = root.parse(&path, parse::cpu_list).unwrap_or_else(|_| vec![cpu]);
            group.retain(|c| cores.contains(c));
            if !siblings.iter().any(|known| known.contains(&cpu)) {
                siblings.push(if group.contains(&cpu) { group } else { vec![cpu] });
            }
        }
        Ok(Topology { cores, siblings })
    }

    /// Whether some CPUs share a core.
    pub(crate) fn shares(&self) -> bool {
        self.siblings.iter().any(|group| group.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Fixture;

    #[test]
    fn siblings_are_grouped_and_only_what_is_allowed_counts() {
        let list = |n: usize| format!("/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list");
        let fixture = Fixture::new(&[("/proc/self/status", "Cpus_allowed_list:\t0-2\n")]);
        fixture.write(&list(0), "0,2\n");
        fixture.write(&list(1), "1,3\n");
        fixture.write(&list(2), "0,2\n");
        let topology = Topology::read(&fixture.root()).unwrap();
        assert_eq!(topology.cores, [0, 1, 2]);
        assert_eq!(topology.siblings, [vec![0, 2], vec![1]]);
        assert!(topology.shares());
    }

    #[test]
    fn a_host_that_says_nothing_of_siblings_shares_nothing() {
        let fixture = Fixture::new(&[("/proc/self/status", "Cpus_allowed_list:\t0-1\n")]);
        let topology = Topology::read(&fixture.root()).unwrap();
        assert!(topology.siblings.is_empty() && !topology.shares());
        assert!(Topology::read(&Fixture::new(&[]).root()).is_err());
    }
}

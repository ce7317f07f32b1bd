//! The checks, in the order of a report.

mod cpu;
mod disk;
mod kernel;
mod limits;
mod memory;
mod network;
mod virt;

use std::path::Path;

use crate::Options;
use crate::check::Check;
use crate::report::Report;
use crate::root::{self, Root, Unread};
use crate::topology::Topology;

/// The names of checks that are referred to elsewhere.
pub(crate) mod names {
    /// The kernel's release.
    pub(crate) const KERNEL: &str = "kernel";
    /// Whether io_uring is allowed.
    pub(crate) const IO_URING: &str = "io_uring";
    /// How many CPUs, and what they are.
    pub(crate) const CPUS: &str = "cpus";
    /// The file system of the data directory.
    pub(crate) const FILE_SYSTEM: &str = "file system";
    /// What a durable write costs.
    pub(crate) const FDATASYNC: &str = "fdatasync";
    /// The clock source.
    pub(crate) const CLOCK: &str = "clock source";
    /// How much there is to run.
    pub(crate) const LOAD: &str = "load";
    /// The CPU frequency governor.
    pub(crate) const GOVERNOR: &str = "cpu governor";
}

/// All checks of one host.
pub(crate) fn run(root: &Root, ring: &Result<(), String>, dir: &Path, options: Options) -> Report {
    let topology = Topology::read(root);
    // First of all: the measurements that follow are load themselves.
    let load = cpu::load(root, &topology);
    let mut checks = vec![
        kernel::release(root),
        kernel::io_uring(root, ring),
        limits::locked_memory(root),
        limits::open_files(root),
    ];
    match root::nearest(dir) {
        Ok(path) => checks.extend(disk::checks(root, dir, &path, options)),
        Err(error) => checks.push(disk::unreachable(dir, &error)),
    }
    checks.extend([cpu::clock_source(root), cpu::governor(root), cpu::cpus(root, &topology), load]);
    checks.extend([cpu::smt(&topology), cpu::numa(root)]);
    checks.extend([virt::machine(root), virt::steal(root), virt::quota(root, &topology)]);
    checks.extend([memory::huge_pages(root), memory::swap(root)]);
    checks.extend(network::checks(root, topology.as_ref().map_or(1, |t| t.cores.len())));
    Report { checks }
}

/// Topology that could not be read, as a check.
fn unknown_cpus(name: &'static str, error: &Unread) -> Check {
    Check::unread(name, error, "without the list of CPUs nothing can be said of them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    #[test]
    fn a_host_that_says_nothing_at_all_is_examined_without_panic() {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Fixture::new(&[]);
        let options = Options { measure_disk: false, iterations: 0 };
        let report = run(&fixture.root(), &Err("no".to_owned()), dir.path(), options);
        assert!(!report.is_fit(), "no ring, no service");
        assert!(report.count(Verdict::Advice) >= 5, "what cannot be read is said: {report}");
    }

    #[test]
    fn this_host_is_examined_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { measure_disk: true, iterations: 3 };
        let report = crate::examine(&dir.path().join("not/there/yet"), options);
        let found: Vec<_> = report.checks.iter().map(|c| c.name).collect();
        for name in [names::KERNEL, names::IO_URING, names::FILE_SYSTEM, names::FDATASYNC, names::CLOCK] {
            assert!(found.contains(&name), "{name} in {found:?}");
        }
        let distinct: std::collections::BTreeSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), found.len(), "names are unique: {found:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(report.checks.iter().all(|c| !c.found.is_empty() && !c.why.is_empty()));
        let remedied = |c: &&Check| matches!(c.verdict, Verdict::Advice | Verdict::Bad);
        for check in report.checks.iter().filter(remedied) {
            assert!(check.remedy.is_some() && check.undo.is_some(), "{} has no remedy", check.name);
        }
        assert_eq!(report.to_json()["checks"].as_array().map(Vec::len), Some(report.checks.len()));
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_bad() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let report = run(&Fixture::new(&[]).root(), &Ok(()), &file, Options::default());
        assert!(report.checks.iter().any(|c| c.name == "data directory" && c.verdict == Verdict::Bad));
    }
}

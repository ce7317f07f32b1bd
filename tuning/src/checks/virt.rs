//! What stands between this machine and the hardware.

use crate::check::Check;
use crate::parse;
use crate::root::{Root, Unread};
use crate::topology::Topology;

/// Per cent of stolen time since the start from which it is worth a word.
const STEAL_NOTED: f64 = 1.0;
/// Per cent from which a node cannot keep its promises of time: one of ten moments is gone.
const STEAL_MAX: f64 = 10.0;

/// Whether this is a virtual machine.
pub(super) fn machine(root: &Root) -> Check {
    const NAME: &str = "machine";
    let info = match root.read("/proc/cpuinfo") {
        Ok(info) => info,
        Err(error) => {
            return Check::unread(NAME, &error, "whether a hypervisor is below decides what to trust");
        }
    };
    let flags = parse::cpuinfo(&info, "flags");
    let vendor = root.read("/sys/class/dmi/id/sys_vendor").or_else(|_| root.read("/sys/hypervisor/type"));
    let vendor = vendor.unwrap_or_else(|_| "vendor not told".to_owned());
    let guest = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    match guest {
        Some(true) => {
            let why = "its host decides what fdatasync means and when the CPUs run: see that the virtual \
                       disk's cache is not set to unsafe, and how much time is stolen";
            Check::good(NAME, format!("virtual ({vendor})"), why)
        }
        Some(false) => Check::good(NAME, format!("no hypervisor ({vendor})"), "nothing stands in between"),
        // Other architectures have no such flag.
        None => Check::not_applicable(NAME, format!("unknown ({vendor})"), "the CPU does not say"),
    }
}

/// How much of its time the host took from this machine.
pub(super) fn steal(root: &Root) -> Check {
    const NAME: &str = "stolen time";
    let why = "stolen time is a pause of everything at once, and leases and elections live from time. 1 \
               % since the start is worth a word, 10 % is too much";
    match root.parse("/proc/stat", parse::stolen) {
        Ok(percent) => {
            let found = format!("{percent:.2} % since the start");
            let check = match percent {
                p if p >= STEAL_MAX => Check::bad(NAME, found, why),
                p if p >= STEAL_NOTED => Check::advice(NAME, found, why),
                _ => return Check::good(NAME, found, why),
            };
            check.remedy("use a machine with dedicated CPUs", "nothing to undo")
        }
        Err(error) => Check::unread(NAME, &error, why),
    }
}

/// Whether a control group stops the process when it has used its share.
pub(super) fn quota(root: &Root, topology: &Result<Topology, Unread>) -> Check {
    const NAME: &str = "cpu quota";
    let why = "a group that has used its share stands still until the next period, executors and all";
    let groups = match root.read("/proc/self/cgroup") {
        Ok(groups) => groups,
        Err(Unread::Absent(_)) => return Check::not_applicable(NAME, "no control groups", why),
        Err(error) => return Check::unread(NAME, &error, why),
    };
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Check::not_applicable(NAME, "unknown", "only control groups of version 2 are read");
    };
    let mut least: Option<(f64, String)> = None;
    for above in std::path::Path::new(group).ancestors() {
        let path = format!("/sys/fs/cgroup{}/cpu.max", above.to_string_lossy().trim_end_matches('/'));
        match root.parse(&path, parse::cpu_max) {
            Ok(Some(cpus)) if least.as_ref().is_none_or(|(l, _)| cpus < *l) => least = Some((cpus, path)),
            Ok(_) | Err(Unread::Absent(_)) => {}
            Err(error) => return Check::unread(NAME, &error, why),
        }
    }
    let cores = topology.as_ref().map_or(0, |t| t.cores.len());
    match least {
        None => Check::good(NAME, "none", why),
        Some((cpus, _)) if cores > 0 && cpus >= cores as f64 => {
            Check::good(NAME, format!("{cpus:.2} CPUs of {cores}"), why)
        }
        Some((cpus, path)) => Check::advice(NAME, format!("{cpus:.2} CPUs of {cores} ({path})"), why).remedy(
            "give whole CPUs, not a share: AllowedCPUs= in the unit, not CPUQuota=; no --cpus in a container",
            "set the quota again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    #[test]
    fn machines() {
        let check = |info| machine(&Fixture::new(&[("/proc/cpuinfo", info)]).root());
        let guest = check("flags\t: fpu hypervisor lahf_lm\n");
        assert!(guest.verdict == Verdict::Good && guest.found.starts_with("virtual"));
        assert!(check("flags\t: fpu lahf_lm\n").found.starts_with("no hypervisor"));
        assert_eq!(check("processor\t: 0\n").verdict, Verdict::NotApplicable);
        assert_eq!(machine(&Fixture::new(&[]).root()).verdict, Verdict::Advice);
    }

    #[test]
    fn stolen_time() {
        let verdict = |text| steal(&Fixture::new(&[("/proc/stat", text)]).root()).verdict;
        assert_eq!(verdict("cpu  500 0 0 495 0 0 0 5 0 0\n"), Verdict::Good);
        assert_eq!(verdict("cpu  500 0 0 490 0 0 0 10 0 0\n"), Verdict::Advice);
        assert_eq!(verdict("cpu  500 0 0 400 0 0 0 100 0 0\n"), Verdict::Bad);
        assert_eq!(verdict("strange\n"), Verdict::Advice);
    }

    #[test]
    fn quotas() {
        let topology = Ok(Topology { cores: vec![0, 1], siblings: Vec::new() });
        let verdict = |files: &[(&str, &str)]| quota(&Fixture::new(files).root(), &topology).verdict;
        let own = ("/proc/self/cgroup", "0::/system.slice/palisade.service\n");
        let max = "/sys/fs/cgroup/system.slice/palisade.service/cpu.max";
        assert_eq!(verdict(&[]), Verdict::NotApplicable);
        assert_eq!(verdict(&[("/proc/self/cgroup", "4:cpu:/\n")]), Verdict::NotApplicable);
        assert_eq!(verdict(&[own]), Verdict::Good);
        assert_eq!(verdict(&[own, (max, "max 100000\n")]), Verdict::Good);
        assert_eq!(verdict(&[own, (max, "200000 100000\n")]), Verdict::Good);
        assert_eq!(verdict(&[own, (max, "150000 100000\n")]), Verdict::Advice);
        assert_eq!(verdict(&[own, (max, "strange\n")]), Verdict::Advice);
        let above = "/sys/fs/cgroup/system.slice/cpu.max";
        assert_eq!(verdict(&[own, (max, "max 100000\n"), (above, "50000 100000\n")]), Verdict::Advice);
    }
}

//! The CPUs: their clock, their frequency, their cores.

use std::collections::BTreeSet;

use super::{names, unknown_cpus};
use crate::check::Check;
use crate::parse;
use crate::placement::plan;
use crate::root::{Root, Unread};
use crate::topology::Topology;

/// Read without leaving the process.
const FAST: &[&str] = &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
/// A device is asked at every reading.
const SLOW: &[&str] = &["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];

/// What a reading of the clock costs.
pub(super) fn clock_source(root: &Root) -> Check {
    const DIR: &str = "/sys/devices/system/clocksource/clocksource0";
    let why = "the clock is read at every turn of the loop; with hpet, acpi_pm and the like each reading \
               asks a device";
    let current = match root.read(&format!("{DIR}/current_clocksource")) {
        Ok(current) => current,
        Err(error) => return Check::unread(names::CLOCK, &error, why),
    };
    if FAST.contains(&current.as_str()) {
        return Check::good(names::CLOCK, current, why);
    }
    let available = root.read(&format!("{DIR}/available_clocksource")).unwrap_or_default();
    let better = FAST.iter().find(|fast| available.split_whitespace().any(|a| a == **fast));
    let (remedy, undo) = match better {
        Some(fast) => (
            format!("echo {fast} > {DIR}/current_clocksource (for good: clocksource={fast} for the kernel)"),
            format!("echo {current} > {DIR}/current_clocksource"),
        ),
        None => (
            "none that is better is offered: dmesg says why (tsc marked unstable?)".to_owned(),
            "nothing to undo".to_owned(),
        ),
    };
    let check = if SLOW.contains(&current.as_str()) { Check::bad } else { Check::advice };
    check(names::CLOCK, format!("{current} (offered: {available})"), why).remedy(remedy, undo)
}

/// Whether CPUs slow down when they have little to do.
pub(super) fn governor(root: &Root) -> Check {
    const CPUS: &str = "/sys/devices/system/cpu";
    let why =
        "a CPU that has slowed down takes its time to wake: the first requests after a lull wait for it";
    let cpus = match root.names(CPUS) {
        Ok(names) => names,
        Err(error) => return Check::unread(names::GOVERNOR, &error, why),
    };
    let mut governors = BTreeSet::new();
    for cpu in cpus.iter().filter(|c| c.starts_with("cpu")) {
        match root.read(&format!("{CPUS}/{cpu}/cpufreq/scaling_governor")) {
            Ok(governor) => drop(governors.insert(governor)),
            Err(Unread::Absent(_)) => {}
            Err(error) => return Check::unread(names::GOVERNOR, &error, why),
        }
    }
    let found = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if governors.is_empty() {
        Check::not_applicable(
            names::GOVERNOR,
            "none",
            "no frequencies to govern, as in most virtual machines",
        )
    } else if found == "performance" {
        Check::good(names::GOVERNOR, found, why)
    } else {
        let undo = format!("cpupower frequency-set -g {}", governors.first().map_or("", String::as_str));
        Check::advice(names::GOVERNOR, found, why).remedy("cpupower frequency-set -g performance", undo)
    }
}

/// How many CPUs, and what they are.
pub(super) fn cpus(root: &Root, topology: &Result<Topology, Unread>) -> Check {
    let why = "an executor, the administration and the kernel's own work want two CPUs at least";
    let topology = match topology {
        Ok(topology) => topology,
        Err(error) => return unknown_cpus(names::CPUS, error),
    };
    let info = root.read("/proc/cpuinfo").unwrap_or_default();
    let model = parse::cpuinfo(&info, "model name").unwrap_or("model unknown");
    let found = format!("{} x {model}", topology.cores.len());
    if topology.cores.len() < 2 {
        let remedy = "give the process more CPUs (taskset, AllowedCPUs=, a larger machine)";
        Check::advice(names::CPUS, found, why).remedy(remedy, "give it one again")
    } else {
        Check::good(names::CPUS, found, why)
    }
}

/// Whether the host has other work, which a measurement would include.
pub(super) fn load(root: &Root, topology: &Result<Topology, Unread>) -> Check {
    let why = "with more to run than CPUs everything waits its turn: what is measured now is a busy host";
    let topology = match topology {
        Ok(topology) => topology,
        Err(error) => return unknown_cpus(names::LOAD, error),
    };
    let first = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    match root.parse("/proc/loadavg", first) {
        Ok(load) => {
            let cpus = topology.cores.len();
            let found = format!("{load:.2} on {cpus} CPUs");
            if load <= cpus as f64 {
                return Check::good(names::LOAD, found, why);
            }
            let remedy = "let the host do nothing else, and examine it again";
            Check::advice(names::LOAD, found, why).remedy(remedy, "nothing to undo")
        }
        Err(error) => Check::unread(names::LOAD, &error, why),
    }
}

/// Whether CPUs share cores.
pub(super) fn smt(topology: &Result<Topology, Unread>) -> Check {
    const NAME: &str = "smt";
    let why = "two executors on one core share its pipeline and caches: pin them to different cores";
    let topology = match topology {
        Ok(topology) => topology,
        Err(error) => return unknown_cpus(NAME, error),
    };
    if topology.siblings.is_empty() {
        let why = "the kernel does not say which CPUs share a core; each counts as one";
        return Check::not_applicable(NAME, "unknown", why);
    }
    if !topology.shares() {
        return Check::good(NAME, "no CPUs share a core", why);
    }
    let pairs: Vec<String> = topology.siblings.iter().map(|group| parse::ranges(group)).collect();
    let found = format!("on: {}", pairs.join(" | "));
    let executors = topology.siblings.len().saturating_sub(1).max(1);
    let cores = plan(&topology.cores, &topology.siblings, executors, false).cores();
    if cores.is_empty() {
        return Check::good(NAME, found, "too few CPUs to pin anything: leave it to the kernel");
    }
    Check::advice(NAME, found, why).remedy(
        format!("in palisade.toml, up to as many as there are shards: cores = {cores:?}"),
        "cores = [] in palisade.toml",
    )
}

/// Whether memory is near to some CPUs and far from others.
pub(super) fn numa(root: &Root) -> Check {
    const NAME: &str = "numa";
    const NODES: &str = "/sys/devices/system/node/online";
    let why = "memory of another node is slower to reach: the executors belong on one node, best that of the \
               network card";
    match root.parse(NODES, parse::cpu_list) {
        Ok(nodes) if nodes.len() == 1 => Check::good(NAME, "1 node", why),
        Ok(nodes) => {
            let of = |node: &usize| {
                let cpus = root.read(&format!("/sys/devices/system/node/node{node}/cpulist"));
                format!("node {node}: {}", cpus.unwrap_or_else(|e| e.to_string()))
            };
            let found = format!("{} nodes", nodes.len());
            let remedy = format!(
                "in palisade.toml choose cores of one node ({})",
                nodes.iter().map(of).collect::<Vec<_>>().join("; ")
            );
            Check::advice(NAME, found, why).remedy(remedy, "cores = [] in palisade.toml")
        }
        Err(Unread::Absent(_)) => Check::not_applicable(NAME, "none", "the kernel knows of no nodes"),
        Err(error) => Check::unread(NAME, &error, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    fn topology(cores: usize, siblings: Vec<Vec<usize>>) -> Result<Topology, Unread> {
        Ok(Topology { cores: (0..cores).collect(), siblings })
    }

    #[test]
    fn clock_sources() {
        let dir = "/sys/devices/system/clocksource/clocksource0";
        let check = |current: &str, available: &str| {
            let fixture = Fixture::new(&[
                (&format!("{dir}/current_clocksource"), current),
                (&format!("{dir}/available_clocksource"), available),
            ]);
            clock_source(&fixture.root())
        };
        assert_eq!(check("tsc\n", "tsc\n").verdict, Verdict::Good);
        assert_eq!(check("kvm-clock\n", "kvm-clock\n").verdict, Verdict::Good);
        assert_eq!(check("xen\n", "xen tsc\n").verdict, Verdict::Advice);
        let hpet = check("hpet\n", "tsc hpet\n");
        assert_eq!(hpet.verdict, Verdict::Bad);
        assert!(hpet.remedy.unwrap().starts_with("echo tsc") && hpet.undo.unwrap().starts_with("echo hpet"));
        let stuck = check("acpi_pm\n", "acpi_pm\n");
        assert!(stuck.verdict == Verdict::Bad && stuck.remedy.unwrap().contains("dmesg"));
        assert_eq!(clock_source(&Fixture::new(&[]).root()).verdict, Verdict::Advice);
    }

    #[test]
    fn governors() {
        let verdict = |governors: &[&str]| {
            let fixture = Fixture::new(&[("/sys/devices/system/cpu/online", "0-1")]);
            for (n, governor) in governors.iter().enumerate() {
                fixture.write(&format!("/sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor"), governor);
            }
            governor(&fixture.root()).verdict
        };
        assert_eq!(verdict(&[]), Verdict::NotApplicable);
        assert_eq!(verdict(&["performance\n", "performance\n"]), Verdict::Good);
        assert_eq!(verdict(&["performance\n", "powersave\n"]), Verdict::Advice);
        assert_eq!(governor(&Fixture::new(&[]).root()).verdict, Verdict::Advice);
    }

    #[test]
    fn numbers_of_cpus() {
        let fixture = Fixture::new(&[("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\n")]);
        let check = cpus(&fixture.root(), &topology(2, vec![]));
        assert_eq!((check.verdict, check.found.as_str()), (Verdict::Good, "2 x Some CPU"));
        let one = cpus(&Fixture::new(&[]).root(), &topology(1, vec![]));
        assert_eq!((one.verdict, one.found.as_str()), (Verdict::Advice, "1 x model unknown"));
        let none = cpus(&fixture.root(), &Err(Unread::Absent("x".to_owned())));
        assert_eq!(none.verdict, Verdict::Advice);
    }

    #[test]
    fn loads() {
        let verdict = |text| {
            let fixture = Fixture::new(&[("/proc/loadavg", text)]);
            load(&fixture.root(), &topology(2, vec![])).verdict
        };
        assert_eq!(verdict("2.00 9.00 9.00 1/99 7\n"), Verdict::Good);
        assert_eq!(verdict("2.01 0.00 0.00 1/99 7\n"), Verdict::Advice);
        assert_eq!(verdict("strange\n"), Verdict::Advice);
    }

    #[test]
    fn shared_cores() {
        let pairs = |n: usize| (0..n).map(|c| vec![c, c + n]).collect::<Vec<_>>();
        assert_eq!(smt(&topology(2, vec![])).verdict, Verdict::NotApplicable);
        assert_eq!(smt(&topology(2, vec![vec![0], vec![1]])).verdict, Verdict::Good);
        assert_eq!(smt(&topology(2, pairs(1))).verdict, Verdict::Good, "nothing to pin on two CPUs");
        let eight = smt(&topology(8, pairs(4)));
        assert_eq!(eight.verdict, Verdict::Advice);
        assert!(eight.remedy.unwrap().ends_with("cores = [1, 2, 3]"));
        assert_eq!(smt(&Err(Unread::Absent("x".to_owned()))).verdict, Verdict::Advice);
    }

    #[test]
    fn nodes_of_memory() {
        let nodes = |text| Fixture::new(&[("/sys/devices/system/node/online", text)]);
        assert_eq!(numa(&nodes("0\n").root()).verdict, Verdict::Good);
        assert_eq!(numa(&nodes("strange\n").root()).verdict, Verdict::Advice);
        assert_eq!(numa(&Fixture::new(&[]).root()).verdict, Verdict::NotApplicable);
        let two = nodes("0-1\n");
        two.write("/sys/devices/system/node/node0/cpulist", "0-7\n");
        let check = numa(&two.root());
        assert_eq!(check.verdict, Verdict::Advice);
        let remedy = check.remedy.unwrap();
        assert!(remedy.contains("node 0: 0-7") && remedy.contains("node1/cpulist is not there"), "{remedy}");
    }
}

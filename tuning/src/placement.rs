//! Which thread belongs on which CPU.

use std::collections::BTreeSet;

use serde::Serialize;

/// A plan. Nothing is pinned by making it: the executors' CPUs go into `cores` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The CPU of each executor; `None` where the kernel places it.
    pub executors: Vec<Option<usize>>,
    /// The CPUs left to a load generator on the same host; empty where the kernel places it.
    pub generator: Vec<usize>,
    /// The CPU of the administration thread: always `None`, it works rarely and anywhere.
    pub administration: Option<usize>,
    /// Why it is like this.
    pub why: String,
}

impl Placement {
    fn unpinned(executors: usize, why: impl Into<String>) -> Placement {
        Placement {
            executors: vec![None; executors],
            generator: Vec::new(),
            administration: None,
            why: why.into(),
        }
    }

    /// The value of `cores` in the configuration: empty when nothing is pinned.
    #[must_use]
    pub fn cores(&self) -> Vec<usize> {
        self.executors.iter().copied().flatten().collect()
    }
}

/// Places executors on `cores`; `siblings` lists those that share a physical core (none: no two do).
///
/// Up to two CPUs nothing is pinned: on two, pinning was measured to be within the noise, and a thread
/// pinned to a busy CPU waits for a tick of the scheduler at every wake. On more, executors take
/// distinct physical cores first and second siblings after; the first core stays free as long as there
/// are others, because the kernel's own work lands there. At least one CPU must remain for everything
/// else, or nothing is pinned. A generator gets what remains, without the siblings of executors if
/// that leaves anything.
#[must_use]
pub fn plan(cores: &[usize], siblings: &[Vec<usize>], executors: usize, with_generator: bool) -> Placement {
    let cores: BTreeSet<usize> = cores.iter().copied().collect();
    if cores.len() <= 2 {
        let why = "two CPUs or fewer: pinning was measured to be within the noise";
        return Placement::unpinned(executors, why);
    }
    if executors == 0 {
        return Placement::unpinned(0, "no executors");
    }
    if executors >= cores.len() {
        let why = format!(
            "{executors} executors leave no CPU of {} for anything else: a pinned one would wait for a tick \
             at every wake",
            cores.len()
        );
        return Placement::unpinned(executors, why);
    }
    let groups = physical(&cores, siblings);
    let taken: Vec<usize> = order(&groups, executors).into_iter().take(executors).collect();
    let generator = if with_generator { left(&groups, &taken) } else { Vec::new() };
    let shared = groups.iter().filter(|group| group.iter().filter(|c| taken.contains(c)).count() > 1).count();
    let why = if shared == 0 {
        "each executor has a physical core of its own".to_owned()
    } else {
        format!("{} physical cores for {executors} executors: {shared} hold two or more", groups.len())
    };
    Placement { executors: taken.into_iter().map(Some).collect(), generator, administration: None, why }
}

/// The physical cores, each with its CPUs, in ascending order of the first.
fn physical(cores: &BTreeSet<usize>, siblings: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &core in cores {
        if groups.iter().any(|group| group.contains(&core)) {
            continue;
        }
        let mut group: BTreeSet<usize> = BTreeSet::from([core]);
        for list in siblings.iter().filter(|list| list.contains(&core)) {
            group.extend(list.iter().filter(|c| cores.contains(c)));
        }
        groups.push(group.into_iter().collect());
    }
    groups
}

/// The CPUs in the order in which executors take them.
fn order(groups: &[Vec<usize>], executors: usize) -> Vec<usize> {
    let spared = usize::from(executors < groups.len());
    let deepest = groups.iter().map(Vec::len).max().unwrap_or(0);
    let mut order = Vec::new();
    for depth in 0..deepest {
        let skip = if depth == 0 { spared } else { 0 };
        order.extend(groups.iter().skip(skip).filter_map(|group| group.get(depth)));
    }
    order
}

/// The CPUs that no executor took, without executors' siblings if that leaves any.
fn left(groups: &[Vec<usize>], taken: &[usize]) -> Vec<usize> {
    let free = |group: &&Vec<usize>| !group.iter().any(|c| taken.contains(c));
    let mut apart: Vec<usize> = groups.iter().filter(free).flatten().copied().collect();
    if apart.is_empty() {
        apart = groups.iter().flatten().copied().filter(|c| !taken.contains(c)).collect();
    }
    apart.sort_unstable();
    apart
}

/// Pins the calling thread to one CPU. For threads that are not glommio's: its executors are pinned as
/// they are built. False when there is no such CPU or the process may not use it.
#[must_use]
pub fn pin_current_thread(core: usize) -> bool {
    let possible = usize::try_from(libc::CPU_SETSIZE).is_ok_and(|size| core < size);
    possible && core_affinity::set_for_current(core_affinity::CoreId { id: core })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(physical: usize) -> Vec<Vec<usize>> {
        (0..physical).map(|c| vec![c, c + physical]).collect()
    }

    fn cores(count: usize) -> Vec<usize> {
        (0..count).collect()
    }

    #[test]
    fn one_and_two_cpus_stay_unpinned() {
        for (count, siblings) in [(1, vec![]), (2, vec![]), (2, pairs(1))] {
            for executors in 0..4 {
                let placement = plan(&cores(count), &siblings, executors, true);
                assert_eq!(placement.executors, vec![None; executors]);
                assert!(placement.generator.is_empty() && placement.cores().is_empty());
                assert!(placement.why.contains("noise"));
            }
        }
    }

    #[test]
    fn four_cpus_without_siblings() {
        let placement = plan(&cores(4), &[], 1, true);
        assert_eq!((placement.cores(), placement.generator), (vec![1], vec![0, 2, 3]));
        let placement = plan(&cores(4), &[], 3, true);
        assert_eq!((placement.cores(), placement.generator), (vec![1, 2, 3], vec![0]));
        let placement = plan(&cores(4), &[], 4, true);
        assert!(placement.cores().is_empty(), "a CPU must remain: {}", placement.why);
    }

    #[test]
    fn four_cpus_on_two_cores() {
        let placement = plan(&cores(4), &pairs(2), 1, true);
        assert_eq!((placement.cores(), placement.generator), (vec![1], vec![0, 2]));
        let placement = plan(&cores(4), &pairs(2), 2, true);
        assert_eq!((placement.cores(), placement.generator), (vec![0, 1], vec![2, 3]));
        let placement = plan(&cores(4), &pairs(2), 3, true);
        assert_eq!((placement.cores(), placement.generator), (vec![0, 1, 2], vec![3]));
        assert!(placement.why.contains("1 hold two"), "{}", placement.why);
    }

    #[test]
    fn eight_cpus_without_siblings() {
        let placement = plan(&cores(8), &[], 4, true);
        assert_eq!((placement.cores(), placement.generator), (vec![1, 2, 3, 4], vec![0, 5, 6, 7]));
        assert!(plan(&cores(8), &[], 4, false).generator.is_empty());
    }

    #[test]
    fn eight_cpus_on_four_cores() {
        let placement = plan(&cores(8), &pairs(4), 2, true);
        assert_eq!((placement.cores(), placement.generator), (vec![1, 2], vec![0, 3, 4, 7]));
        let placement = plan(&cores(8), &pairs(4), 4, true);
        assert_eq!((placement.cores(), placement.generator), (vec![0, 1, 2, 3], vec![4, 5, 6, 7]));
        let placement = plan(&cores(8), &pairs(4), 6, true);
        assert_eq!((placement.cores(), placement.generator), (vec![0, 1, 2, 3, 4, 5], vec![6, 7]));
    }

    #[test]
    fn whatever_the_host_no_cpu_is_given_twice() {
        for count in 0..10 {
            for siblings in [vec![], pairs(count / 2), vec![vec![7, 900], vec![], vec![1, 2, 3]]] {
                for executors in 0..12 {
                    let placement = plan(&cores(count), &siblings, executors, true);
                    let taken = placement.cores();
                    assert_eq!(placement.executors.len(), executors);
                    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len());
                    assert!(taken.is_empty() || taken.len() == executors);
                    assert!(taken.iter().all(|c| *c < count && !placement.generator.contains(c)));
                    assert!(taken.is_empty() || !placement.generator.is_empty());
                    assert_eq!(placement.administration, None);
                }
            }
        }
    }

    #[test]
    fn a_thread_is_pinned_where_it_may_run_and_nowhere_else() {
        let allowed = crate::Topology::of_host().expect("Linux says which CPUs there are").cores;
        let pinned = std::thread::spawn(move || {
            let first = allowed[0];
            assert!(pin_current_thread(first));
            core_affinity::get_core_ids().map(|ids| ids.iter().map(|c| c.id).collect::<Vec<_>>())
                == Some(vec![first])
        });
        assert!(pinned.join().unwrap());
        assert!(!pin_current_thread(1 << 20), "and does not panic");
    }
}

//! A seed is a run: the same events, the same bytes, the same hash, every time.

use palisade_sim::options::Profile;
use palisade_sim::runner::{Job, run_all};

#[test]
fn seeds_run_twice_give_equal_traces() {
    let mut jobs: Vec<Job> = (500..508).map(|seed| Job::new(Profile::Swarm, seed)).collect();
    jobs.push(Job::new(Profile::Watches, 500));
    jobs.push(Job::new(Profile::Rough, 500));
    for profile in [Profile::SlowDisk, Profile::Elections, Profile::Pauses, Profile::Replays, Profile::Leases]
    {
        jobs.extend((500..503).map(|seed| Job::new(profile, seed)));
    }
    // Side by side and on one thread, so that neither threads nor addresses play a part.
    let (once, twice) = (run_all(&jobs, 2), run_all(&jobs, 1));
    assert_eq!((once.len(), twice.len()), (jobs.len(), jobs.len()));
    let mut hashes = std::collections::BTreeSet::new();
    for ((job, a), (_, b)) in once.into_iter().zip(twice) {
        let (a, b) = (a.expect("no rule is broken"), b.expect("no rule is broken"));
        assert_eq!(a, b, "{job}");
        hashes.insert(a.hash);
    }
    assert_eq!(hashes.len(), jobs.len(), "different seeds are different runs");
}

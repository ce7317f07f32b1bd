//! A seed is a run: the same events, the same bytes, the same hash, every time.

use palisade_sim::options::Profile;
use palisade_sim::runner::{Job, run_all};

#[test]
fn twenty_seeds_run_twice_give_equal_traces() {
    let mut jobs: Vec<Job> = (500..508).map(|seed| Job::new(Profile::Swarm, seed)).collect();
    jobs.push(Job::new(Profile::Watches, 500));
    for profile in [Profile::SlowDisk, Profile::Elections, Profile::Pauses, Profile::Replays] {
        jobs.extend((500..503).map(|seed| Job::new(profile, seed)));
    }
    assert_eq!(jobs.len(), 21);
    // Side by side and on one thread, so that neither threads nor addresses play a part.
    let (once, twice) = (run_all(&jobs, 2), run_all(&jobs, 1));
    assert_eq!((once.len(), twice.len()), (21, 21));
    let mut hashes = std::collections::BTreeSet::new();
    for ((job, a), (_, b)) in once.into_iter().zip(twice) {
        let (a, b) = (a.expect("no rule is broken"), b.expect("no rule is broken"));
        assert_eq!(a, b, "{job}");
        hashes.insert(a.hash);
    }
    assert_eq!(hashes.len(), 21, "different seeds are different runs");
}

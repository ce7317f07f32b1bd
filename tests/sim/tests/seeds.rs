//! The seeds that every run of the tests plays: whole clusters and Raft alone, with no rule broken;
//! and enough happens in them to mean something.

use std::time::Duration;

use palisade_sim::check::outcomes::{OUTCOMES, RARE, SERVED, scarcest, shortcomings};
use palisade_sim::options::Profile;
use palisade_sim::report::Report;
use palisade_sim::runner::{Ended, Job, run, run_all};
use palisade_sim::trace::Story;

const SWARM: u64 = 360;
const EACH_OTHER: u64 = 40;
/// Of clients that keep no rule: enough for each answer.
const ROUGH: u64 = 60;
const RAFT_EACH: u64 = 60;
/// Each command must have got each of its answers so often, all seeds together.
const EACH_ANSWER: u64 = 100;
/// Lines of the story shown for a failing seed.
const LINES: usize = 60;

/// Seeds that failed once, kept for good.
const KEPT: [Job; 2] = [
    // S1 blamed a client that was told of its grant only after an operator had evicted it.
    Job::new(Profile::Pauses, 77),
    // Readers asked for more than nodes with little room could answer, and were not done in time.
    Job::new(Profile::Leases, 85),
];

fn reports(ended: Vec<Ended>) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut failed = String::new();
    for (job, outcome) in ended {
        match outcome {
            Ok(report) => reports.push(report),
            Err(failure) => {
                let story = run(job, Story::Keep).err().map(|f| f.story).unwrap_or_default();
                let from = story.len().saturating_sub(LINES);
                failed += &format!("{}\n{failure}\n  replay: {job}\n", story[from..].join("\n"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed}");
    reports
}

#[test]
fn whole_clusters_break_no_rule() {
    let mut jobs: Vec<Job> = (0..SWARM).map(|seed| Job::new(Profile::Swarm, seed)).collect();
    for profile in [
        Profile::SlowDisk,
        Profile::Elections,
        Profile::Pauses,
        Profile::Replays,
        Profile::Leases,
        Profile::Watches,
    ] {
        jobs.extend((0..EACH_OTHER).map(|seed| Job::new(profile, seed)));
    }
    jobs.extend((0..ROUGH).map(|seed| Job::new(Profile::Rough, seed)));
    jobs.extend(KEPT);
    let reports = reports(run_all(&jobs, 2));
    assert!(reports.len() >= 500, "only {} seeds", reports.len());
    for r in &reports {
        assert!(r.simulated >= Duration::from_secs(60), "too short: {r}");
        assert!(r.committed >= 150, "too little committed: {r}");
        assert!(r.fault_kinds >= 2, "too few kinds of fault: {r}");
    }
    // The first leader is no change of leader.
    let changed = reports.iter().filter(|r| r.leader_changes >= 2).count();
    assert!(
        changed * 5 >= reports.len() * 4,
        "the leader changed in {changed} of {} seeds only",
        reports.len()
    );
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let (zombies, refused) = (sum(|r| r.zombie_writes), sum(|r| r.zombies_refused));
    println!(
        "{} seeds, {} simulated s, {} committed, {} leader changes, {} strikes, {} grants, {} ousted, {} puts, {} over the quota, {} expired, {} reads \
         ({} by followers, {} by lease, {} stale), {} answers compared, {} writes, {refused} of {zombies} zombie writes refused",
        reports.len(),
        reports.iter().map(|r| r.simulated.as_secs()).sum::<u64>(),
        sum(|r| r.committed),
        sum(|r| r.leader_changes),
        sum(|r| r.strikes),
        sum(|r| r.grants),
        sum(|r| r.ousted),
        sum(|r| r.puts),
        sum(|r| r.over_quota),
        sum(|r| r.expired),
        sum(|r| r.reads),
        sum(|r| r.follower_reads),
        sum(|r| r.lease_reads),
        sum(|r| r.stale_reads),
        sum(|r| r.answers),
        sum(|r| r.writes),
    );
    assert!(refused > 0, "no zombie was refused: the runs prove nothing about fences");
    assert!(sum(|r| r.told) > 10_000 && sum(|r| r.coalesced) > 50, "watchers were told too little");
    assert!((20..2_000).contains(&sum(|r| r.anew)), "watches began anew {} times", sum(|r| r.anew));
    assert!(
        sum(|r| r.snapshots) > 5_000 && sum(|r| r.installs) > 100,
        "snapshots were taken or installed too seldom"
    );
    assert!(sum(|r| r.observed) > 100, "observers of elections were told too little");
    assert!(sum(|r| r.ousted) > 500, "operators did too little");
    assert!(sum(|r| r.puts) > 5_000, "too little was put");
    assert!(sum(|r| r.claims) > 10_000, "too few claims to resources");
    let read = sum(|r| r.claims_read);
    assert!(read > 2_000 && sum(|r| r.claims) - read > 2_000, "{read} claims were answered by a read");
    assert!(sum(|r| r.over_quota) > 500, "the quota was hardly ever reached");
    assert!(sum(|r| r.follower_reads) > 1_000, "followers answered too little");
    assert!(sum(|r| r.lease_reads) > 10_000, "leases answered too little");
    assert!(sum(|r| r.stale_reads) > 1_000, "too few stale reads");
    let (outcomes, served) = Report::counts(&reports);
    println!("seen most seldom: {:?} {:?}", scarcest(&outcomes, OUTCOMES, 4), scarcest(&served, SERVED, 4));
    let mut short = shortcomings(&outcomes, OUTCOMES, RARE, EACH_ANSWER);
    short.extend(shortcomings(&served, SERVED, &[], EACH_ANSWER));
    assert!(short.is_empty(), "answers of the log and of nodes:\n{}", short.join("\n"));
    assert!(sum(|r| r.expired) > 500 && sum(|r| r.reads) > 10_000, "too little happened");
}

#[test]
fn raft_alone_breaks_no_rule() {
    let mut jobs = Vec::new();
    for profile in Profile::ALL {
        jobs.extend((1_000..1_000 + RAFT_EACH).map(|seed| Job::raft(profile, seed)));
    }
    let reports = reports(run_all(&jobs, 1));
    assert_eq!(reports.len(), jobs.len());
    let changes: u64 = reports.iter().map(|r| r.leader_changes).sum();
    assert!(changes > reports.len() as u64 * 5, "only {changes} leader changes");
    let (snapshots, installs) = (reports.iter().map(|r| r.snapshots), reports.iter().map(|r| r.installs));
    let (snapshots, installs): (u64, u64) = (snapshots.sum(), installs.sum());
    assert!(snapshots > reports.len() as u64 * 20, "only {snapshots} snapshots");
    assert!(installs > reports.len() as u64, "only {installs} snapshots were installed");
}

//! What a run that broke no rule has to tell.

use core::fmt;
use core::time::Duration;

use crate::check::outcomes::Counts;

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The hash of its trace: equal seeds, equal hashes.
    pub hash: u128,
    /// Events.
    pub events: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Committed commands.
    pub committed: u64,
    /// How often a node became leader.
    pub leader_changes: u64,
    /// Kinds of fault that could strike.
    pub fault_kinds: usize,
    /// Strikes of faults.
    pub strikes: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Linearizable ones among them that a node answered which did not lead.
    pub follower_reads: u64,
    /// Those answered by lease.
    pub lease_reads: u64,
    /// Stale ones.
    pub stale_reads: u64,
    /// Different grants that clients were told of.
    pub grants: u64,
    /// Sessions that ended by silence.
    pub expired: u64,
    /// Writes the resource accepted.
    pub writes: u64,
    /// Writes of clients that were paused past their lease.
    pub zombie_writes: u64,
    /// Those of them that were refused.
    pub zombies_refused: u64,
    /// Answers compared with the model.
    pub answers: u64,
    /// Grants that operators ended.
    pub ousted: u64,
    /// Different puts that were acknowledged.
    pub puts: u64,
    /// How often the log answered each command in each way.
    pub outcomes: Counts,
    /// How often requests got each kind of answer that does not come from the log.
    pub served: Counts,
    /// Claims to resources that were acknowledged.
    pub claims: u64,
    /// Those of them that were on record, and answered without a command in the log.
    pub claims_read: u64,
    /// Requests that the quota on the state refused.
    pub over_quota: u64,
    /// Changes that watchers were told.
    pub told: u64,
    /// Those of them that stood for others.
    pub coalesced: u64,
    /// How often a watch began anew with the present state.
    pub anew: u64,
    /// What observers of elections were told.
    pub observed: u64,
    /// Snapshots that nodes took of their own state.
    pub snapshots: u64,
    /// Snapshots that took the place of a node's state.
    pub installs: u64,
}

impl Report {
    /// The sums of [`Report::outcomes`] and [`Report::served`]. The order does not matter.
    pub fn counts<'a>(reports: impl IntoIterator<Item = &'a Report>) -> (Counts, Counts) {
        let (mut outcomes, mut served) = (Counts::new(), Counts::new());
        for report in reports {
            for (sum, counts) in [(&mut outcomes, &report.outcomes), (&mut served, &report.served)] {
                for (&pair, times) in counts {
                    *sum.entry(pair).or_default() += times;
                }
            }
        }
        (outcomes, served)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} ok: {:.1} s, {} events, {} committed, {} leader changes, {} strikes of {} kinds, {} grants, \
             {} ousted, {} puts, {} claims to resources ({} read), {} over the quota, {} expired, {} reads ({} by followers, {} by lease, {} stale), {} answers, {} writes, {} of {} zombie writes refused, {} changes told, {} coalesced, {} times anew, {} observed, {} snapshots, {} installed, trace {:032x}",
            self.seed,
            self.simulated.as_secs_f64(),
            self.events,
            self.committed,
            self.leader_changes,
            self.strikes,
            self.fault_kinds,
            self.grants,
            self.ousted,
            self.puts,
            self.claims,
            self.claims_read,
            self.over_quota,
            self.expired,
            self.reads,
            self.follower_reads,
            self.lease_reads,
            self.stale_reads,
            self.answers,
            self.writes,
            self.zombies_refused,
            self.zombie_writes,
            self.told,
            self.coalesced,
            self.anew,
            self.observed,
            self.snapshots,
            self.installs,
            self.hash
        )
    }
}

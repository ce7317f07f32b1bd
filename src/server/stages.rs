//! Where an operation spends its time: HDR histograms of the stages of a leader. Blocks are recorded
//! and not commands, each with the weight of its commands, so that it costs next to nothing.

use std::time::Duration;

use hdrhistogram::Histogram;
use palisade_shard::{Passed, Stage};
use palisade_types::Time;

use super::metrics::{Metrics, QUANTILES, STAGES};
use crate::clock;

/// How often quantiles are stated.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// How long a window of recording is, at most.
const WINDOW: Duration = Duration::from_secs(10);
/// The longest time told apart, in microseconds.
const LONGEST_US: u64 = 60_000_000;
/// Which of [`STAGES`] is the sending of answers.
const REPLY: usize = 4;

/// The histograms of one core.
pub(crate) struct Stages {
    windows: [Histogram<u64>; STAGES.len()],
    /// Microseconds and operations since the start.
    sums: [u64; STAGES.len()],
    counts: [u64; STAGES.len()],
    started: Time,
    published: Time,
}

impl Stages {
    /// Nothing recorded.
    pub(crate) fn new(now: Time) -> Stages {
        let empty =
            Histogram::new_with_bounds(1, LONGEST_US, 2).expect("the bounds are in order and the digits few");
        Stages {
            windows: std::array::from_fn(|_| empty.clone()),
            sums: [0; STAGES.len()],
            counts: [0; STAGES.len()],
            started: now,
            published: now,
        }
    }

    /// Records what passed in the turn that began at `turn`, and returns the time: from here on the
    /// answers are on their way.
    pub(crate) fn take(&mut self, turn: Time, passed: &mut Vec<Passed>) -> Option<Time> {
        if passed.is_empty() {
            return None;
        }
        let now = clock::now();
        for Passed { stage, took, commands } in passed.drain(..) {
            let (at, took) = match stage {
                Stage::Queue => (0, took),
                Stage::Disk => (1, took),
                Stage::Replicate => (2, took),
                // The shard has no clock: what it did in this turn is added.
                Stage::Apply => (3, took + now.since(turn)),
            };
            self.record(at, took, u64::from(commands));
        }
        Some(now)
    }

    /// The answers that were decided at `decided` are sent.
    pub(crate) fn replied(&mut self, decided: Option<Time>, replies: usize) {
        if let (Some(decided), 1..) = (decided, replies) {
            self.record(REPLY, clock::now().since(decided), replies as u64);
        }
    }

    fn record(&mut self, stage: usize, took: Duration, commands: u64) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(LONGEST_US).min(LONGEST_US);
        // Within the bounds by the line above.
        let _ = self.windows[stage].record_n(micros.max(1), commands);
        self.sums[stage] += micros * commands;
        self.counts[stage] += commands;
    }

    /// States the quantiles for others to read, once a second.
    pub(crate) fn publish(&mut self, now: Time, metrics: &Metrics) {
        if now < self.published + PUBLISH_EVERY {
            return;
        }
        self.published = now;
        for (at, shown) in metrics.stages.iter().enumerate() {
            for (quantile, metric) in QUANTILES.iter().zip(&shown.quantiles) {
                metric.set(self.windows[at].value_at_quantile(*quantile));
            }
            shown.sum.set(self.sums[at]);
            shown.count.set(self.counts[at]);
        }
        if now >= self.started + WINDOW {
            self.started = now;
            self.windows.iter_mut().for_each(Histogram::reset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_weigh_as_much_as_their_commands() {
        let (mut stages, metrics) = (Stages::new(Time(0)), Metrics::default());
        let passed =
            |micros, commands| Passed { stage: Stage::Disk, took: Duration::from_micros(micros), commands };
        let decided = stages.take(Time(0), &mut vec![passed(100, 999), passed(9_000, 1)]);
        stages.replied(decided, 0);
        stages.publish(Time(2_000_000_000), &metrics);
        let disk = &metrics.stages[1];
        assert_eq!((disk.count.get(), disk.sum.get()), (1_000, 108_900));
        assert_eq!(disk.quantiles[2].get(), 100);
        assert!(disk.quantiles[3].get() <= 101, "the block of one does not make a thousandth");
        assert_eq!(metrics.stages[REPLY].count.get(), 0);
    }
}

//! When the next block is sealed. What costs a leader and its followers is the block, not the command
//! in it: a block is a write and a sync on every node and half a dozen wakes. So under load blocks keep
//! a distance, and the slower the disk the greater, since each block then costs more of what is left.

use core::time::Duration;

use palisade_types::Time;
use palisade_types::time::nanos;

/// The distance of blocks under load, in times of what one takes to become durable here …
const PER_ROUND: u32 = 3;
/// … but no more than so many times the configured gap.
const GAP_MAX: u32 = 2;

/// The pace of a leader's blocks.
#[derive(Debug)]
pub(crate) struct Pace {
    bounds: Bounds,
    sealed_at: Time,
    /// What a gap gathers at the rate commands arrive, smoothed, in thousandths of a command.
    gathers: u64,
    /// A sealed block is on its way to this node's disk.
    under_way: bool,
    /// What a block takes to become durable here, smoothed.
    round: Duration,
}

/// What the pace is bounded by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// While a gap would gather fewer commands than this, load is light and nothing waits.
    pub(crate) light: u32,
    /// With so many commands a block is full.
    pub(crate) full: u32,
    /// The least distance of blocks under load.
    pub(crate) gap: Duration,
}

impl Pace {
    /// Nothing sealed yet.
    pub(crate) fn new(bounds: Bounds, now: Time) -> Pace {
        Pace { bounds, sealed_at: now, gathers: 0, under_way: false, round: Duration::ZERO }
    }

    /// A new leadership: the first block does not wait.
    pub(crate) fn restart(&mut self) {
        self.gathers = 0;
        self.under_way = false;
    }

    /// A block with so many commands was sealed.
    pub(crate) fn sealed(&mut self, now: Time, commands: u32) {
        let since = nanos(now.since(self.sealed_at)).max(1);
        let gathers = u64::from(commands).saturating_mul(1_000).saturating_mul(nanos(self.gap())) / since;
        // An eighth of the news, as below; and no more than a full block's worth, so that a burst is
        // forgotten within a few blocks.
        self.gathers = (self.gathers * 7 + gathers.min(u64::from(self.bounds.full) * 1_000)) / 8;
        (self.sealed_at, self.under_way) = (now, true);
    }

    /// All that was handed to this node's disk is durable.
    pub(crate) fn durable(&mut self, now: Time) {
        if core::mem::take(&mut self.under_way) {
            // An eighth of the news: one hiccup of the disk does not slow everybody down.
            self.round = (self.round * 7 + now.since(self.sealed_at)) / 8;
        }
    }

    /// Whether a block with so many commands may be sealed, the disk being free. `all_in` says that
    /// whoever could send a command waits for one already, so that waiting gathers nothing.
    pub(crate) fn may_seal(&self, now: Time, commands: u32, all_in: bool) -> bool {
        let light = self.gathers < u64::from(self.bounds.light) * 1_000;
        light || all_in || commands >= self.bounds.full || now >= self.next()
    }

    /// When a block may be sealed at the latest.
    pub(crate) fn next(&self) -> Time {
        self.sealed_at + self.gap()
    }

    fn gap(&self) -> Duration {
        let gap = self.bounds.gap;
        (self.round * PER_ROUND).clamp(gap, gap * GAP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { light: 64, full: 256, gap: Duration::from_millis(1) };

    fn at(us: u64) -> Time {
        Time(us * 1_000)
    }

    /// A pace under so many commands a millisecond, in blocks half a millisecond apart; the last was
    /// sealed at the time returned.
    fn under(commands_per_ms: u32) -> (Pace, u64) {
        let mut pace = Pace::new(BOUNDS, at(0));
        let mut now = 0;
        for _ in 0..100 {
            now += 500;
            pace.sealed(at(now), commands_per_ms / 2);
        }
        (pace, now)
    }

    #[test]
    fn a_gap_that_would_gather_little_is_not_waited_for() {
        let (pace, now) = under(62);
        assert!(pace.may_seal(at(now + 1), 1, false));
        let (pace, now) = under(70);
        assert!(!pace.may_seal(at(now + 1), 1, false));
        // The rate decides, not the size of one block: a hiccup that fills one changes nothing.
        let (mut pace, now) = under(40);
        pace.sealed(at(now + 3_000), 120);
        assert!(pace.may_seal(at(now + 3_001), 1, false));
    }

    #[test]
    fn full_blocks_a_gap_past_and_nobody_left_to_wait_for_seal_at_once() {
        let (mut pace, now) = under(200);
        assert!(!pace.may_seal(at(now + 1), 255, false));
        assert!(pace.may_seal(at(now + 1), 256, false));
        assert!(pace.may_seal(at(now + 1), 1, true));
        assert!(!pace.may_seal(at(now + 999), 1, false));
        assert!(pace.may_seal(at(now + 1_000), 1, false));
        pace.restart();
        assert!(pace.may_seal(at(now + 1), 1, false));
    }

    #[test]
    fn a_burst_is_forgotten_within_a_few_blocks() {
        let (mut pace, now) = under(1_000_000);
        for i in 1..=16 {
            pace.sealed(at(now + i * 5_000), 10);
        }
        assert!(pace.may_seal(at(now + 80_001), 1, false));
    }

    #[test]
    fn the_distance_follows_the_disk_within_bounds() {
        let mut pace = Pace::new(BOUNDS, at(0));
        let mut now = 0;
        let mut distance_with = |round: u64| {
            for _ in 0..100 {
                pace.sealed(at(now), 100);
                pace.durable(at(now + round));
                now += 100_000;
            }
            pace.sealed(at(now), 100);
            (pace.next().0 - at(now).0) / 1_000
        };
        assert_eq!(distance_with(100), 1_000, "never below the configured gap");
        assert!((1_490..=1_500).contains(&distance_with(500)));
        assert_eq!(distance_with(50_000), 2_000, "never above twice as much");
        assert_eq!(distance_with(100), 1_000, "and back");
    }

    #[test]
    fn what_is_durable_without_a_block_says_nothing() {
        let mut pace = Pace::new(BOUNDS, at(0));
        pace.durable(at(1_000_000));
        assert_eq!(pace.next(), at(1_000));
    }
}

//! The cluster clock: milliseconds that rise across leaders, written into each block for
//! information only (how long a lock has been held). Nothing is decided by it.

use palisade_types::Time;

/// Follows what blocks say and carries on by this node's own clock in between, so that a new leader
/// goes on where the old one stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClusterClock {
    base_ms: u64,
    base_at: Time,
}

impl ClusterClock {
    /// What the clock shows.
    pub(crate) fn now_ms(&self, now: Time) -> u64 {
        self.base_ms + now.since(self.base_at).as_millis() as u64
    }

    /// A block was applied that showed this; the clock never goes back.
    pub(crate) fn observe(&mut self, now: Time, block_ms: u64) {
        let shown = self.now_ms(now);
        if block_ms > shown || self.base_at == Time::ZERO {
            *self = ClusterClock { base_ms: block_ms.max(shown), base_at: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_from_a_block_and_never_back() {
        let mut c = ClusterClock::default();
        c.observe(Time::from_millis(1000), 50);
        assert!(c.now_ms(Time::from_millis(1000)) >= 50);
        let shown = c.now_ms(Time::from_millis(1500));
        c.observe(Time::from_millis(1500), 10);
        assert_eq!(c.now_ms(Time::from_millis(1500)), shown);
        c.observe(Time::from_millis(1600), 90_000);
        assert_eq!(c.now_ms(Time::from_millis(1700)), 90_100);
    }
}

//! How many keys a second the end of sessions may release: one budget for `EndSession` and `Sweep`
//! (DESIGN section 2), so that thousands of sessions that die together delay releases a little and
//! never stall replication.

use palisade_types::Time;

/// A token bucket filled by time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    per_second: u64,
    burst: u64,
    tokens: u64,
    filled_at: Time,
}

impl Budget {
    /// A full bucket.
    pub(crate) fn new(per_second: u64, now: Time) -> Budget {
        let burst = (per_second / 20).max(1);
        Budget { per_second, burst, tokens: burst, filled_at: now }
    }

    /// Takes up to `most` tokens.
    pub(crate) fn take(&mut self, now: Time, most: u32) -> u32 {
        self.fill(now);
        let taken = self.tokens.min(u64::from(most));
        self.tokens -= taken;
        taken as u32
    }

    fn fill(&mut self, now: Time) {
        let ms = now.since(self.filled_at).as_millis() as u64;
        let new = (ms * self.per_second) / 1000;
        if new > 0 {
            self.tokens = (self.tokens + new).min(self.burst);
            self.filled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_no_more_than_the_rate_over_time() {
        let mut b = Budget::new(20_000, Time::ZERO);
        let mut taken = 0;
        for ms in 0..=10_000 {
            taken += u64::from(b.take(Time::from_millis(ms), 50));
        }
        assert!((190_000..=201_000).contains(&taken), "{taken}");
    }
}

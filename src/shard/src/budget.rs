//! How many keys a second the end of sessions may release: one budget for `EndSession` and `Sweep`
//! (DESIGN section 2), so that thousands of sessions that die together delay releases a little and
//! never stall replication.

use core::time::Duration;

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
        let passed = now.since(self.filled_at).as_micros() as u64;
        let new = passed.saturating_mul(self.per_second) / 1_000_000;
        if new == 0 {
            return;
        }
        self.tokens = (self.tokens + new).min(self.burst);
        // What has passed and made no whole token yet counts the next time.
        let whole = Duration::from_micros(new.saturating_mul(1_000_000) / self.per_second);
        self.filled_at = self.filled_at + whole;
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
        assert!((199_000..=201_000).contains(&taken), "{taken}");
    }

    #[test]
    fn gives_the_rate_however_often_it_is_asked() {
        for step in [37, 700, 1_700, 9_300] {
            let mut b = Budget::new(20_000, Time::ZERO);
            let times = (0..10_000_000).step_by(step).map(|micros| Time(micros * 1_000));
            let taken: u64 = times.map(|now| u64::from(b.take(now, 1_000))).sum();
            assert!((199_000..=201_000).contains(&taken), "{taken} asked every {step} us");
        }
    }
}

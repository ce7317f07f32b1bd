//! Clocks that run fast or slow. True time is known to the world only; every node and client has
//! its own clock: an offset, and a rate within the promised bound.

use palisade_types::{Rng, Time};

/// Clocks stay within so many parts per million of true time (half a percent): what the leases
/// are promised to survive.
pub const RATE_PPM_MAX: u64 = 5_000;

/// One machine's monotonic clock. It never goes back and never jumps while the machine runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: u64,
    ppm: i64,
}

impl Clock {
    /// A clock drawn at random: any offset up to a day, any rate within `ppm_max`.
    pub fn draw(rng: &mut Rng, ppm_max: u64) -> Clock {
        let ppm_max = ppm_max.min(RATE_PPM_MAX);
        let ppm = rng.between(0, 2 * ppm_max) as i64 - ppm_max as i64;
        Clock { offset: rng.below(86_400_000_000_000), ppm }
    }

    /// A clock like this that starts from another origin, as after a reboot. The crystal stays.
    pub fn rebooted(self, rng: &mut Rng) -> Clock {
        Clock { offset: rng.below(86_400_000_000_000), ppm: self.ppm }
    }

    /// What it shows at a true time.
    pub fn local(self, truth: Time) -> Time {
        let drift = i128::from(truth.0) * i128::from(self.ppm) / 1_000_000;
        Time((i128::from(self.offset) + i128::from(truth.0) + drift) as u64)
    }

    /// The first true time at which it shows `local` or more; [`Time::FAR`] stays far.
    pub fn truth(self, local: Time) -> Time {
        if local.0 >= u64::MAX / 2 {
            return Time::FAR;
        }
        let since = i128::from(local.0) - i128::from(self.offset);
        if since <= 0 {
            return Time::ZERO;
        }
        let mut truth = Time((since * 1_000_000 / (1_000_000 + i128::from(self.ppm))) as u64);
        while self.local(truth) < local {
            truth.0 += 1;
        }
        truth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_due_when_the_world_reaches_it_and_not_before() {
        let mut rng = Rng::new(7);
        for _ in 0..1000 {
            let clock = Clock::draw(&mut rng, RATE_PPM_MAX);
            let local = clock.local(Time(rng.below(100_000_000_000)));
            let truth = clock.truth(local);
            assert!(clock.local(truth) >= local);
            assert!(truth == Time::ZERO || clock.local(Time(truth.0 - 1)) < local);
        }
    }
}

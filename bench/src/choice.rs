//! Which key is next.

use palisade_types::Rng;

/// Picks numbers below a bound.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    bound: u32,
    /// For Zipf's law: the share of numbers up to each, of 2^64. Empty when all are alike.
    shares: Vec<u64>,
}

impl Choice {
    /// Picks below `bound`, which is above 0; the nth is 1/n^exponent times as likely as the first.
    pub(crate) fn new(bound: u32, exponent: f64) -> Choice {
        assert!(bound > 0, "there is nothing to pick from");
        if exponent == 0.0 {
            return Choice { bound, shares: Vec::new() };
        }
        let weight = |n: u32| (f64::from(n) + 1.0).powf(-exponent);
        let all: f64 = (0..bound).map(weight).sum();
        let mut sum = 0.0;
        let shares = (0..bound)
            .map(|n| {
                sum += weight(n);
                // The cast saturates.
                (sum / all * 2f64.powi(64)) as u64
            })
            .collect();
        Choice { bound, shares }
    }

    /// The next number.
    pub(crate) fn pick(&self, rng: &mut Rng) -> u32 {
        if self.bound == 1 {
            return 0;
        }
        if self.shares.is_empty() {
            return rng.below(u64::from(self.bound)) as u32;
        }
        let draw = rng.next_u64();
        // The last share may have been rounded to just below everything.
        (self.shares.partition_point(|&share| share <= draw) as u32).min(self.bound - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(choice: &Choice, bound: usize) -> Vec<u32> {
        let mut rng = Rng::new(1);
        let mut counts = vec![0; bound];
        for _ in 0..100_000 {
            counts[choice.pick(&mut rng) as usize] += 1;
        }
        counts
    }

    #[test]
    fn without_an_exponent_all_are_alike() {
        let counts = counts(&Choice::new(8, 0.0), 8);
        assert!(counts.iter().all(|n| (12_000..13_000).contains(n)), "{counts:?}");
    }

    #[test]
    fn zipf_prefers_the_first_as_the_law_says() {
        // 1 : 1/2 : 1/3 : 1/4 of 25/12 in all.
        let counts = counts(&Choice::new(4, 1.0), 4);
        for (count, expected) in counts.iter().zip([48_000, 24_000, 16_000, 12_000]) {
            assert!(count.abs_diff(expected) < 700, "{counts:?}");
        }
    }

    #[test]
    fn one_key_is_always_picked() {
        let mut rng = Rng::new(1);
        assert_eq!(Choice::new(1, 1.2).pick(&mut rng), 0);
        assert_eq!(Choice::new(1, 0.0).pick(&mut rng), 0);
    }

    #[test]
    fn steep_laws_stay_within_the_bound() {
        let counts = counts(&Choice::new(3, 50.0), 3);
        assert_eq!(counts, [100_000, 0, 0]);
    }
}

//! The generator behind every deterministic draw: the simulator's choices and Raft's election
//! timeouts. Ours, so that no seed is invalidated by the upgrade of a library, and integers only.

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014,
/// section 5). Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator from a seed; equal seeds give equal draws.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if the bound is 0. The bias is below 2^-32 for bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range has no number");
        low + self.below((high - low).saturating_add(1))
    }

    /// True so many times in a thousand.
    pub fn per_mille(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }

    /// A generator of its own for a part of the world, so that draws there do not disturb draws here.
    pub fn fork(&mut self) -> Rng {
        Rng(self.next_u64())
    }
}

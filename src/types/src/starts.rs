//! The starts of a node: how often its directory was started, and a random number of each start.

use alloc::vec::Vec;

use crate::{NodeId, StartNonce};

/// How many starts a node can prove, this one included.
pub const STARTS_MAX: usize = 32;

/// One start of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Start {
    /// Which one of its directory, from 1.
    pub number: u64,
    /// What was drawn for it.
    pub nonce: StartNonce,
}

/// A node's present start, and the nonces of those before it: what it shows to its peers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Starts {
    /// How often the directory was started.
    pub number: u64,
    /// Of the last starts without a gap, the present one's last; at most [`STARTS_MAX`]. Empty when the present start
    /// was one of a version that drew none.
    pub nonces: Vec<StartNonce>,
}

impl Starts {
    /// Counts one more start; the oldest nonce goes when there are too many.
    pub fn begin(&mut self, nonce: StartNonce) {
        self.number += 1;
        if self.nonces.len() >= STARTS_MAX {
            self.nonces.drain(..=self.nonces.len() - STARTS_MAX);
        }
        self.nonces.push(nonce);
    }

    /// The present start, where it has a nonce.
    pub fn present(&self) -> Option<Start> {
        self.nonces.last().map(|nonce| Start { number: self.number, nonce: *nonce })
    }

    /// The nonce of a start, if it is among those shown.
    pub fn nonce_of(&self, number: u64) -> Option<StartNonce> {
        let back = usize::try_from(self.number.checked_sub(number)?).ok()?;
        let at = self.nonces.len().checked_sub(back.checked_add(1)?)?;
        self.nonces.get(at).copied()
    }
}

/// What a node knows of another's starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquaintance {
    /// Whose.
    pub node: NodeId,
    /// The latest start of it that was let in.
    pub start: Start,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_starts_are_kept_and_found_by_their_number() {
        let mut starts = Starts { number: 5, nonces: Vec::new() };
        assert_eq!((starts.present(), starts.nonce_of(5)), (None, None));
        for n in 6..=60u64 {
            starts.begin(StartNonce(n.into()));
            assert_eq!(starts.present(), Some(Start { number: n, nonce: StartNonce(n.into()) }));
        }
        assert_eq!(starts.nonces.len(), STARTS_MAX);
        for n in 0..=70u64 {
            let shown = (29..=60).contains(&n).then_some(StartNonce(n.into()));
            assert_eq!(starts.nonce_of(n), shown, "{n}");
        }
    }
}

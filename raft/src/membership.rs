//! Who votes, and what a quorum of them has reached.
//!
//! A joint configuration is two of these of which every answer is needed from both, so nothing
//! outside this module counts votes or compares with a majority.

use alloc::vec::Vec;

use palisade_types::NodeId;

/// The voters of a shard, in order of their numbers, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    voters: Vec<NodeId>,
}

/// How a vote stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// A quorum said yes.
    Won,
    /// A quorum of yes is out of reach.
    Lost,
    /// Still open.
    Open,
}

impl Membership {
    /// A membership of these voters.
    ///
    /// # Panics
    /// Without any voter.
    pub fn new(mut voters: Vec<NodeId>) -> Membership {
        voters.sort_unstable();
        voters.dedup();
        assert!(!voters.is_empty(), "a membership needs a voter");
        Membership { voters }
    }

    /// The voters, by number.
    pub fn voters(&self) -> &[NodeId] {
        &self.voters
    }

    /// Whether a node votes.
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.binary_search(&node).is_ok()
    }

    /// How many make a quorum: more than half.
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// The highest value that a quorum has reached, when each voter has reached the value given
    /// for it and all below. Used for match indexes, rounds, and times of contact.
    pub fn reached<T: Copy + Ord>(&self, value: impl Fn(NodeId) -> T) -> T {
        let mut best = None;
        for &voter in &self.voters {
            let candidate = value(voter);
            let count = self.voters.iter().filter(|&&v| value(v) >= candidate).count();
            if count >= self.majority() && best.is_none_or(|b| candidate > b) {
                best = Some(candidate);
            }
        }
        best.expect("the lowest value is reached by all voters")
    }

    /// How a vote stands; `answer` gives each voter's answer, if there is one yet.
    pub fn tally(&self, answer: impl Fn(NodeId) -> Option<bool>) -> Tally {
        let yes = self.voters.iter().filter(|&&v| answer(v) == Some(true)).count();
        let no = self.voters.iter().filter(|&&v| answer(v) == Some(false)).count();
        if yes >= self.majority() {
            return Tally::Won;
        }
        if self.voters.len() - no < self.majority() {
            return Tally::Lost;
        }
        Tally::Open
    }
}

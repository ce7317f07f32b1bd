//! L1 and L2: once a quorum is healed, somebody leads and commands commit, though the other nodes
//! stay broken. (L3 to L5 are judged when everything is healed and at rest.)

use palisade_types::{LogIndex, Time};

use super::{Checked, demand};

/// Progress of the healed core.
#[derive(Debug, Default)]
pub struct LivenessCheck {
    since: Time,
    committed: LogIndex,
}

impl LivenessCheck {
    /// A quorum is healed.
    pub fn on_calm(&mut self, now: Time, committed: LogIndex) {
        self.since = now;
        self.committed = committed;
    }

    /// The time for progress is over.
    ///
    /// # Errors
    /// L1 without a leader, L2 when nothing was committed.
    pub fn on_core_judged(&self, now: Time, committed: LogIndex, leader: Option<usize>) -> Checked {
        let span = now.since(self.since);
        demand(leader.is_some(), "L1", || format!("nobody leads {span:?} after a quorum was healed"))?;
        demand(committed > self.committed, "L2", || {
            format!("nothing was committed in {span:?} after a quorum was healed; {committed} is the last")
        })
    }
}

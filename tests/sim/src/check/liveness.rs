//! L2 and L6: once a quorum is healed commands commit, though the other nodes stay broken; and at
//! rest nothing travels but heartbeats. (L1 and L3 to L5 are judged where the run ends.)

use palisade_types::{LogIndex, Time};

use super::{Checked, demand};

/// So many commands at least are committed while a quorum is whole and clients are busy.
const PROGRESS_MIN: u64 = 10;

/// Progress of the healed core.
#[derive(Debug, Default)]
pub struct LivenessCheck {
    since: Time,
    committed: LogIndex,
    installs: u64,
    carried: u64,
}

impl LivenessCheck {
    /// A quorum is healed.
    pub fn on_calm(&mut self, now: Time, committed: LogIndex, installs: u64) {
        self.since = now;
        self.installs = installs;
        self.committed = committed;
    }

    /// Everything should be at rest; so many messages have travelled.
    pub fn on_rest(&mut self, carried: u64) {
        self.carried = carried;
    }

    /// The rest is over. `heartbeats` and their answers alone should have travelled.
    ///
    /// # Errors
    /// L6 when there were many more messages: something is repeated without end.
    pub fn on_end(&self, carried: u64, heartbeats: u64) -> Checked {
        let sent = carried - self.carried;
        demand(sent <= heartbeats + heartbeats / 2 + 50, "L6", || {
            format!("{sent} messages travelled at rest, where {heartbeats} are enough")
        })
    }

    /// The time for progress is over. A quorum that had to wait for a snapshot to be installed may have made none; that it
    /// comes to some in the end is judged by L3.
    ///
    /// # Errors
    /// L2 when next to nothing was committed.
    pub fn on_core_judged(&self, now: Time, committed: LogIndex, installs: u64) -> Checked {
        let span = now.since(self.since);
        let waited = installs > self.installs;
        demand(waited || committed.0 >= self.committed.0 + PROGRESS_MIN, "L2", || {
            format!(
                "{} to {committed} is all that was committed in {span:?} after a quorum was healed",
                self.committed
            )
        })
    }
}

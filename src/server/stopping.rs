//! How a core stops: one that leads hands over first (DESIGN section 8), so that nobody waits for an
//! election timeout. That takes no longer than the shortest of these, and is not tried, or given up, where
//! there is nobody to take over: a node alone stops at once, and so does one whose peers stop with it.

use std::time::Duration;

use palisade_shard::{Actions, Input, Shard};
use palisade_types::Time;

/// A core that was told to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    /// Since then nothing but the disk is waited for.
    since: Time,
    /// A hand-over is under way, until then at the latest.
    hands_over_until: Option<Time>,
}

impl Stopping {
    /// Told to stop: begins to hand over, if this node leads and has a peer to hand over to.
    pub(crate) fn begin(
        now: Time,
        shard: Option<&mut Shard>,
        is_linked: bool,
        election_min: Duration,
        actions: &mut Actions,
    ) -> Stopping {
        let mut stopping = Stopping { since: now, hands_over_until: None };
        if let Some(shard) = shard.filter(|shard| is_linked && shard.is_leading()) {
            shard.handle(now, Input::HandOver, actions);
            stopping.hands_over_until = shard.is_handing_over().then(|| now + election_min);
        }
        stopping
    }

    /// Since when the disk alone is waited for, if nothing else is.
    pub(crate) fn waits_for_disk_since(
        &mut self,
        now: Time,
        shard: Option<&Shard>,
        is_linked: bool,
    ) -> Option<Time> {
        let Some(until) = self.hands_over_until else { return Some(self.since) };
        // Once it no longer leads, its vote may be needed until another does.
        let goes_on =
            |shard: &Shard| shard.is_handing_over() || !shard.is_leading() && shard.leader().is_none();
        if now < until && is_linked && shard.is_some_and(goes_on) {
            return None;
        }
        let leader = shard.and_then(Shard::leader);
        tracing::info!(leader = ?leader.map(|node| node.0), "done with handing over");
        *self = Stopping { since: now, hands_over_until: None };
        Some(now)
    }

    /// When to look again, if the disk may take so long.
    pub(crate) fn next_deadline(&self, disk_patience: Duration) -> Time {
        self.hands_over_until.unwrap_or(self.since + disk_patience)
    }
}

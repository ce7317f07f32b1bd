//! The mark of this core that its sockets are drained (DESIGN section 2): what was readable when the
//! shard asked has been read, so that nobody is ended for silence whose renewal lies in a buffer here.
//! Bounded in looks and in time: who never stops sending, or never reads, holds up nobody.

use std::time::Duration;

use palisade_shard::DrainId;
use palisade_types::{ConnId, Time};

/// Receives that empty the largest buffer the system keeps for a connection.
const RECEIVES_MAX: usize = 32;
/// How long clients count that are not read because they have much in flight. Part of the time that a
/// session's slack leaves for its end.
const HELD_MAX: Duration = Duration::from_millis(250);

/// A mark under way.
#[derive(Debug)]
pub(crate) struct Mark {
    drain: DrainId,
    looks_left: usize,
    /// Clients that were not read when the mark began, and are not since.
    held: Vec<ConnId>,
    until: Time,
}

impl Mark {
    /// Begins, with so many connections, of which one look takes so many. Epoll tells of those that are
    /// ready in turn, so within the looks allowed each is read until its buffer was empty once.
    pub(crate) fn begin(drain: DrainId, now: Time, held: Vec<ConnId>, conns: usize, per_look: usize) -> Mark {
        let looks_left = (conns / per_look.max(1) + 1) * RECEIVES_MAX;
        Mark { drain, looks_left, held, until: now + HELD_MAX }
    }

    /// Whether the next look should not be waited for.
    pub(crate) fn wants_look(&self) -> bool {
        self.held.is_empty()
    }

    /// When to look in any case.
    pub(crate) fn next_deadline(&self) -> Time {
        if self.held.is_empty() { Time::FAR } else { self.until }
    }

    /// A look at the sockets is over; `complete` says that nothing that was readable is left. Returns the
    /// mark's number once all is read that was readable when it began.
    pub(crate) fn looked(
        &mut self,
        now: Time,
        complete: bool,
        is_held: impl Fn(ConnId) -> bool,
        held_now: impl FnOnce() -> Vec<ConnId>,
    ) -> Option<DrainId> {
        let was_free = self.held.is_empty();
        self.looks_left = self.looks_left.saturating_sub(1);
        if self.looks_left == 0 {
            return Some(self.drain);
        }
        let late = now >= self.until;
        if complete && was_free {
            // A burst in this very look may have held up a client whose renewal lies behind it.
            if !late {
                self.held = held_now();
            }
            return self.held.is_empty().then_some(self.drain);
        }
        match late {
            true => self.held.clear(),
            false => self.held.retain(|id| is_held(*id)),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(5_000);

    #[test]
    fn one_complete_look_is_a_mark() {
        let mut mark = Mark::begin(DrainId(3), NOW, Vec::new(), 10, 48);
        assert!(mark.wants_look());
        assert_eq!(mark.looked(NOW, false, |_| false, Vec::new), None);
        assert_eq!(mark.looked(NOW, true, |_| false, Vec::new), Some(DrainId(3)));
    }

    #[test]
    fn clients_that_never_stop_sending_hold_up_nobody_for_ever() {
        let mut mark = Mark::begin(DrainId(1), NOW, Vec::new(), 480, 48);
        let looks = (1..100_000).find(|_| mark.looked(NOW, false, |_| false, Vec::new).is_some());
        assert_eq!(looks, Some(11 * RECEIVES_MAX));
    }

    #[test]
    fn a_client_held_back_is_read_first_and_only_for_so_long() {
        let (busy, stuck) = (ConnId(1), ConnId(2));
        let mut mark = Mark::begin(DrainId(1), NOW, vec![busy, stuck], 2, 48);
        assert_eq!(mark.looked(NOW, true, |_| true, Vec::new), None);
        assert!(!mark.wants_look());
        assert_eq!(mark.looked(NOW, true, |id| id == stuck, Vec::new), None);
        assert_eq!(mark.next_deadline(), NOW + HELD_MAX);
        let late = mark.next_deadline();
        let both = || vec![busy, stuck];
        assert_eq!(mark.looked(late, true, |_| true, both), None, "what was freed is read first");
        assert!(mark.wants_look());
        assert_eq!(
            mark.looked(late, true, |_| true, both),
            Some(DrainId(1)),
            "nobody holds it up for longer"
        );
    }

    #[test]
    fn a_client_that_was_held_up_by_its_own_burst_in_the_last_look_is_read_first() {
        let burst = ConnId(7);
        let mut mark = Mark::begin(DrainId(1), NOW, Vec::new(), 2, 48);
        assert_eq!(mark.looked(NOW, true, |_| true, || vec![burst]), None);
        assert!(!mark.wants_look());
        assert_eq!(mark.looked(NOW, true, |_| false, Vec::new), None);
        assert_eq!(mark.looked(NOW, true, |_| false, Vec::new), Some(DrainId(1)));
    }
}

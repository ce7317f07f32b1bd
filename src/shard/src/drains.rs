//! Marks of the cores that own clients' sockets (DESIGN section 2): before silence ends a session,
//! all that had arrived when its deadline passed is read. Each core says of a mark that what was
//! readable when it was asked has been handed in; one mark is under way at a time, and who falls due
//! meanwhile waits for the next.

use alloc::vec::Vec;
use core::mem::take;

use palisade_types::SessionId;

/// The number of a mark; rises with each of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainId(pub u64);

/// A core that owns sockets of clients, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoreId(pub u16);

/// Sessions that are due and wait for marks.
#[derive(Debug)]
pub(crate) struct Drains {
    cores: u16,
    last: DrainId,
    /// They fell due after the mark under way was asked for.
    gathering: Vec<SessionId>,
    /// They wait for the mark under way, …
    waiting: Vec<SessionId>,
    /// … which these cores still owe.
    missing: Vec<CoreId>,
}

impl Drains {
    /// For so many cores with sockets of clients.
    pub(crate) fn new(cores: u16) -> Drains {
        Drains { cores, last: DrainId(0), gathering: Vec::new(), waiting: Vec::new(), missing: Vec::new() }
    }

    /// These are due: they wait for a mark that begins after this.
    pub(crate) fn suspect(&mut self, mut sessions: Vec<SessionId>) {
        self.gathering.append(&mut sessions);
    }

    /// A mark to be asked of every core now, if one is wanted and none is under way.
    pub(crate) fn start(&mut self) -> Option<DrainId> {
        if self.gathering.is_empty() || !self.waiting.is_empty() {
            return None;
        }
        self.waiting = take(&mut self.gathering);
        self.missing = (0..self.cores).map(CoreId).collect();
        self.last.0 += 1;
        Some(self.last)
    }

    /// A core has handed in all that was readable when it was asked. Returns whom the mark was for,
    /// once it was the last core to do so.
    pub(crate) fn drained(&mut self, core: CoreId, drain: DrainId) -> Vec<SessionId> {
        if drain != self.last {
            return Vec::new();
        }
        self.missing.retain(|c| *c != core);
        if self.missing.is_empty() { take(&mut self.waiting) } else { Vec::new() }
    }

    /// Leadership was lost: nobody waits any more, and an answer still under way means nothing.
    pub(crate) fn clear(&mut self) {
        self.gathering.clear();
        self.waiting.clear();
        self.missing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use palisade_types::{LogIndex, ShardId};

    fn session(n: u64) -> SessionId {
        SessionId { shard: ShardId(0), opened: LogIndex(n) }
    }

    #[test]
    fn all_cores_answer_one_mark_and_who_falls_due_meanwhile_waits_for_the_next() {
        let mut d = Drains::new(2);
        assert_eq!(d.start(), None, "nobody is due");
        d.suspect(vec![session(1)]);
        let first = d.start().unwrap();
        d.suspect(vec![session(2)]);
        assert_eq!(d.start(), None, "one at a time");
        assert_eq!(d.drained(CoreId(1), first), []);
        assert_eq!(d.drained(CoreId(1), first), [], "a core counts once");
        assert_eq!(d.drained(CoreId(0), first), [session(1)]);
        let second = d.start().unwrap();
        assert_eq!(d.drained(CoreId(0), first), [], "an old mark says nothing");
        assert_eq!(d.drained(CoreId(0), second), []);
        assert_eq!(d.drained(CoreId(1), second), [session(2)]);
    }

    #[test]
    fn a_mark_of_an_earlier_leadership_is_none() {
        let mut d = Drains::new(1);
        d.suspect(vec![session(1)]);
        let old = d.start().unwrap();
        d.clear();
        d.suspect(vec![session(1)]);
        let new = d.start().unwrap();
        assert_eq!(d.drained(CoreId(0), old), []);
        assert_eq!(d.drained(CoreId(0), new), [session(1)]);
    }
}

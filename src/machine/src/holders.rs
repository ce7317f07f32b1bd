//! The holders of keys that are held in shared mode: per key a list in the order of the grants, so that
//! the first has the lowest epoch, which is the barrier of whoever joins (DESIGN section 1).
//!
//! A key that is held by one alone has no group: its record and its claim say all, and it pays nothing
//! for the others.

use palisade_types::{Epoch, Ticket};

use crate::slab::{NONE, Slab, Slot};

/// One of several holders.
pub(crate) struct Hold {
    pub(crate) claim: Slot,
    pub(crate) epoch: Epoch,
    pub(crate) barrier: Epoch,
    /// The ticket of the exclusive claim that this was; 0 if it was none.
    pub(crate) was: Ticket,
    prev: Slot,
    next: Slot,
}

/// The holders of one key; never empty.
pub(crate) struct Group {
    head: Slot,
    tail: Slot,
    pub(crate) len: u32,
    /// Those of them that stand in the backlog.
    pub(crate) ending: u32,
}

impl Hold {
    pub(crate) fn restored(claim: Slot, numbers: [u64; 3], prev: Slot, next: Slot) -> Hold {
        let [epoch, barrier, was] = numbers;
        Hold { claim, epoch: Epoch(epoch), barrier: Epoch(barrier), was: Ticket(was), prev, next }
    }

    pub(crate) fn links(&self) -> (Slot, Slot) {
        (self.prev, self.next)
    }
}

impl Group {
    pub(crate) fn restored(head: Slot, tail: Slot, len: u32, ending: u32) -> Group {
        Group { head, tail, len, ending }
    }

    pub(crate) fn ends(&self) -> (Slot, Slot) {
        (self.head, self.tail)
    }
}

pub(crate) struct Holders {
    holds: Slab<Hold>,
    groups: Slab<Group>,
}

impl Holders {
    pub(crate) fn new() -> Holders {
        Holders { holds: Slab::new(), groups: Slab::new() }
    }

    pub(crate) fn holds(&self) -> &Slab<Hold> {
        &self.holds
    }

    pub(crate) fn holds_mut(&mut self) -> &mut Slab<Hold> {
        &mut self.holds
    }

    pub(crate) fn groups_slab(&self) -> &Slab<Group> {
        &self.groups
    }

    pub(crate) fn groups_mut(&mut self) -> &mut Slab<Group> {
        &mut self.groups
    }

    pub(crate) fn freeze(&mut self, is_leaky: bool) {
        self.holds.freeze(is_leaky);
        self.groups.freeze(is_leaky);
    }

    pub(crate) fn thaw(&mut self) {
        self.holds.thaw();
        self.groups.thaw();
    }

    pub(crate) fn restored(holds: Slab<Hold>, groups: Slab<Group>) -> Holders {
        Holders { holds, groups }
    }

    pub(crate) fn hold(&self, hold: Slot) -> &Hold {
        &self.holds[hold]
    }

    pub(crate) fn hold_mut(&mut self, hold: Slot) -> &mut Hold {
        &mut self.holds[hold]
    }

    pub(crate) fn group(&self, group: Slot) -> &Group {
        &self.groups[group]
    }

    pub(crate) fn group_mut(&mut self, group: Slot) -> &mut Group {
        &mut self.groups[group]
    }

    /// A group for a key that nobody holds.
    pub(crate) fn create(&mut self) -> Slot {
        self.groups.insert(Group { head: NONE, tail: NONE, len: 0, ending: 0 })
    }

    /// Adds the newest grant to a group; returns its place, and the barrier it gets.
    pub(crate) fn join(&mut self, group: Slot, claim: Slot, epoch: Epoch) -> (Slot, Epoch) {
        let (head, tail) = (self.groups[group].head, self.groups[group].tail);
        let barrier = if head == NONE { epoch } else { self.holds[head].epoch };
        let hold = self.holds.insert(Hold { claim, epoch, barrier, was: Ticket(0), prev: tail, next: NONE });
        match tail {
            NONE => self.groups[group].head = hold,
            tail => {
                assert!(self.holds[tail].epoch < epoch, "holders stand in the order of their epochs");
                self.holds[tail].next = hold;
            }
        }
        let group = &mut self.groups[group];
        group.tail = hold;
        group.len += 1;
        (hold, barrier)
    }

    /// Takes a holder out; returns the claim that is first now, [`NONE`] when the group is gone.
    pub(crate) fn leave(&mut self, group: Slot, hold: Slot) -> Slot {
        let Hold { prev, next, .. } = self.holds.remove(hold);
        match prev {
            NONE => self.groups[group].head = next,
            prev => self.holds[prev].next = next,
        }
        match next {
            NONE => self.groups[group].tail = prev,
            next => self.holds[next].prev = prev,
        }
        self.groups[group].len -= 1;
        if self.groups[group].len == 0 {
            self.groups.remove(group);
            return NONE;
        }
        self.holds[self.groups[group].head].claim
    }

    /// From the lowest epoch to the highest.
    pub(crate) fn iter(&self, group: Slot) -> impl Iterator<Item = &Hold> {
        let first = self.groups.get(group).map_or(NONE, |group| group.head);
        self.walk(first, |hold| hold.next)
    }

    /// From the highest epoch to the lowest.
    pub(crate) fn newest_first(&self, group: Slot) -> impl Iterator<Item = &Hold> {
        let first = self.groups.get(group).map_or(NONE, |group| group.tail);
        self.walk(first, |hold| hold.prev)
    }

    fn walk(&self, first: Slot, step: impl Fn(&Hold) -> Slot) -> impl Iterator<Item = &Hold> {
        let mut at = first;
        core::iter::from_fn(move || {
            let hold = self.holds.get(at)?;
            at = step(hold);
            Some(hold)
        })
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn check(&self, group: Slot) {
        let record = &self.groups[group];
        assert!(record.len > 0 && record.ending <= record.len, "a group is never empty");
        assert_eq!(self.iter(group).count(), record.len as usize);
        assert_eq!(self.newest_first(group).count(), record.len as usize);
        assert!(self.iter(group).is_sorted_by(|a, b| a.epoch < b.epoch), "in the order of the grants");
        let first = self.iter(group).next().map_or(Epoch(0), |hold| hold.epoch);
        for hold in self.iter(group) {
            assert!(hold.barrier <= first, "S2: nobody who holds is below another holder's barrier");
        }
    }
}

//! The open tickets of a session.

use alloc::boxed::Box;
use alloc::vec::Vec;

use palisade_types::Ticket;

use crate::slab::Slot;

/// Open tickets in ascending order, each with its claim. Those of an ended session are its keys in the
/// backlog. The highest is the one that came last and mostly the one that goes next; it stands here,
/// and the others, of sessions that have more than one, elsewhere.
#[derive(Default)]
pub(crate) struct Open {
    /// Above all others; 0 when there is none here.
    highest: Ticket,
    claim: Slot,
    /// How many hold their key.
    pub(crate) held: u32,
    others: Option<Box<Others>>,
}

#[derive(Default)]
struct Others {
    claims: Vec<(Ticket, Slot)>,
}

impl Open {
    fn others(&self) -> &[(Ticket, Slot)] {
        self.others.as_ref().map_or(&[], |others| &others.claims)
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.highest != Ticket(0)) + self.others().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn find(&self, ticket: Ticket) -> Option<Slot> {
        if ticket == self.highest && ticket > Ticket(0) {
            return Some(self.claim);
        }
        let others = self.others();
        let at = others.binary_search_by_key(&ticket, |&(t, _)| t).ok()?;
        Some(others[at].1)
    }

    pub(crate) fn add(&mut self, ticket: Ticket, claim: Slot) {
        assert!(ticket > Ticket(0), "tickets count from 1");
        let below = if self.highest > Ticket(0) {
            self.highest
        } else {
            self.others().last().map_or(Ticket(0), |&(last, _)| last)
        };
        if ticket > below {
            if self.highest > Ticket(0) {
                let before = (self.highest, self.claim);
                self.others.get_or_insert_default().claims.push(before);
            }
            (self.highest, self.claim) = (ticket, claim);
            return;
        }
        let others = &mut self.others.get_or_insert_default().claims;
        let at = others.partition_point(|&(t, _)| t < ticket);
        let is_new = ticket != below && others.get(at).is_none_or(|&(t, _)| t != ticket);
        assert!(is_new, "a ticket opens once");
        others.insert(at, (ticket, claim));
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) {
        if ticket == self.highest && ticket > Ticket(0) {
            self.highest = Ticket(0);
            return;
        }
        let claims = &mut self.others.get_or_insert_default().claims;
        let at = claims.binary_search_by_key(&ticket, |&(t, _)| t);
        claims.remove(at.expect("an open claim is on its session's list"));
    }

    /// In ascending order of the tickets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, Slot)> {
        let highest = (self.highest, self.claim);
        let highest = Some(highest).filter(|&(ticket, _)| ticket > Ticket(0));
        self.others().iter().copied().chain(highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use palisade_types::Rng;

    #[test]
    fn open_tickets_are_those_of_a_plain_map() {
        let mut rng = Rng::new(5);
        let (mut open, mut map) = (Open::default(), BTreeMap::new());
        for round in 0..20_000_u32 {
            let ticket = Ticket(rng.between(1, 9));
            assert_eq!(open.find(ticket), map.get(&ticket).copied());
            if map.remove(&ticket).is_some() {
                open.remove(ticket);
            } else {
                open.add(ticket, round);
                map.insert(ticket, round);
            }
            assert_eq!((open.len(), open.is_empty()), (map.len(), map.is_empty()));
            assert!(open.iter().eq(map.iter().map(|(&t, &c)| (t, c))));
        }
        assert_eq!(open.find(Ticket(0)), None);
    }
}

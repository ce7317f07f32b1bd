//! The finished tickets of a session, as ranges, with the outcomes of the last ones (DESIGN
//! section 3).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use palisade_types::limits::OUTCOMES_KEPT;
use palisade_types::{Outcome, Ticket};

/// The highest number a ticket may have. Clients count 1, 2, 3 …, so none ever gets there.
pub const TICKET_MAX: Ticket = Ticket((1 << 60) - 1);

/// Three bits beside the number of the ticket.
const OUTCOME_BITS: u32 = 3;
const _: () = assert!(TICKET_MAX.0 << OUTCOME_BITS >> OUTCOME_BITS == TICKET_MAX.0);

#[derive(Default)]
pub(crate) struct Tickets {
    /// All of `1..=low` are finished. A client that finishes its tickets in order never needs more.
    low: u64,
    /// First and last of each further range: ascending, never touching each other or `low`.
    ranges: Vec<(u64, u64)>,
    /// The last finished ones in the order of their finishing, number and outcome in one word.
    outcomes: VecDeque<u64>,
}

impl Tickets {
    pub(crate) fn is_finished(&self, ticket: Ticket) -> bool {
        if ticket.0 <= self.low {
            return true;
        }
        let at = self.ranges.partition_point(|&(_, last)| last < ticket.0);
        self.ranges.get(at).is_some_and(|&(first, _)| first <= ticket.0)
    }

    /// How many ranges there are.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.low > 0) + self.ranges.len()
    }

    /// How many there would be once this ticket, which is not, were finished.
    pub(crate) fn count_with(&self, ticket: Ticket) -> usize {
        let (before, after) = self.neighbours(ticket.0);
        self.count() + 1 - usize::from(before) - usize::from(after)
    }

    /// Whether the numbers right before and right after belong to ranges.
    fn neighbours(&self, ticket: u64) -> (bool, bool) {
        let at = self.ranges.partition_point(|&(_, last)| last < ticket);
        let before = match at {
            0 => self.low > 0 && self.low + 1 == ticket,
            _ => self.ranges[at - 1].1 + 1 == ticket,
        };
        (before, self.ranges.get(at).is_some_and(|&(first, _)| first == ticket + 1))
    }

    pub(crate) fn finish(&mut self, ticket: Ticket, outcome: Outcome) {
        assert!(ticket.0 > 0 && ticket <= TICKET_MAX && !self.is_finished(ticket), "a ticket finishes once");
        self.add(ticket.0);
        if self.outcomes.len() == OUTCOMES_KEPT {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(ticket.0 << OUTCOME_BITS | code(outcome));
    }

    fn add(&mut self, ticket: u64) {
        if ticket == self.low + 1 {
            self.low = ticket;
            if self.ranges.first().is_some_and(|&(first, _)| first == ticket + 1) {
                self.low = self.ranges.remove(0).1;
            }
            return;
        }
        let at = self.ranges.partition_point(|&(_, last)| last < ticket);
        let joins_before = at > 0 && self.ranges[at - 1].1 + 1 == ticket;
        let joins_after = self.ranges.get(at).is_some_and(|&(first, _)| first == ticket + 1);
        match (joins_before, joins_after) {
            (true, true) => self.ranges[at - 1].1 = self.ranges.remove(at).1,
            (true, false) => self.ranges[at - 1].1 = ticket,
            (false, true) => self.ranges[at].0 = ticket,
            (false, false) => self.ranges.insert(at, (ticket, ticket)),
        }
    }

    /// How a finished ticket was finished.
    pub(crate) fn outcome(&self, ticket: Ticket) -> Outcome {
        let kept = self.outcomes.iter().rev().find(|&&word| word >> OUTCOME_BITS == ticket.0);
        kept.map_or(Outcome::Unknown, |word| decode(word & ((1 << OUTCOME_BITS) - 1)))
    }

    /// The ranges, and the words that hold the outcomes: what the digest covers.
    pub(crate) fn parts(&self) -> (u64, &[(u64, u64)], &VecDeque<u64>) {
        (self.low, &self.ranges, &self.outcomes)
    }

    pub(crate) fn check(&self) {
        let mut last = self.low;
        for &(from, to) in &self.ranges {
            assert!(from > last + 1 && to >= from, "ranges of tickets ascend and do not touch");
            last = to;
        }
        assert!(self.outcomes.len() <= OUTCOMES_KEPT);
        assert!(self.outcomes.iter().all(|word| self.is_finished(Ticket(word >> OUTCOME_BITS))));
    }
}

fn code(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Unknown => 0,
        Outcome::Released => 1,
        Outcome::Cancelled => 2,
        Outcome::TimedOut => 3,
        Outcome::Denied => 4,
        Outcome::Refused => 5,
    }
}

fn decode(code: u64) -> Outcome {
    match code {
        1 => Outcome::Released,
        2 => Outcome::Cancelled,
        3 => Outcome::TimedOut,
        4 => Outcome::Denied,
        5 => Outcome::Refused,
        _ => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use palisade_types::Rng;

    #[test]
    fn ranges_are_the_same_as_a_plain_set() {
        let mut rng = Rng::new(7);
        for _ in 0..50 {
            let (mut tickets, mut set) = (Tickets::default(), BTreeSet::new());
            for _ in 0..120 {
                let t = rng.between(1, 90);
                if set.contains(&t) {
                    continue;
                }
                let expected = tickets.count_with(Ticket(t));
                tickets.finish(Ticket(t), Outcome::Denied);
                set.insert(t);
                tickets.check();
                assert_eq!(tickets.count(), expected, "the count foretold for {t}");
                assert_eq!(tickets.count(), set.iter().filter(|&&t| !set.contains(&(t - 1))).count());
                for t in 1..=92 {
                    assert_eq!(tickets.is_finished(Ticket(t)), set.contains(&t), "ticket {t}");
                }
            }
        }
    }

    #[test]
    fn the_outcomes_of_the_last_256_to_finish_are_kept_whatever_their_numbers() {
        let all =
            [Outcome::Released, Outcome::Cancelled, Outcome::TimedOut, Outcome::Denied, Outcome::Refused];
        let mut tickets = Tickets::default();
        for t in 2..=300 {
            tickets.finish(Ticket(t), all[t as usize % all.len()]);
        }
        tickets.finish(Ticket(1), Outcome::Released);
        assert_eq!(tickets.count(), 1, "they have grown into one range");
        assert_eq!(tickets.outcome(Ticket(1)), Outcome::Released);
        for t in 2..=300 {
            let kept = t > 300 - 255;
            let expected = if kept { all[t as usize % all.len()] } else { Outcome::Unknown };
            assert_eq!(tickets.outcome(Ticket(t)), expected, "ticket {t}");
        }
    }

    #[test]
    fn the_highest_ticket_is_kept_like_any_other() {
        let mut tickets = Tickets::default();
        tickets.finish(TICKET_MAX, Outcome::Refused);
        assert_eq!(tickets.outcome(TICKET_MAX), Outcome::Refused);
        assert_eq!((tickets.count(), tickets.is_finished(Ticket(1))), (1, false));
    }
}

//! The finished tickets of a session, as ranges, with the outcomes of the last ones (DESIGN
//! section 3).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use palisade_types::limits::OUTCOMES_KEPT;
use palisade_types::{Outcome, Ticket};

use crate::snapshot::{self, v1};

/// The highest number a ticket may have. Clients count 1, 2, 3 …, so none ever gets there.
pub const TICKET_MAX: Ticket = Ticket((1 << 60) - 1);

/// Four bits beside the number of the ticket.
const OUTCOME_BITS: u32 = 4;
const _: () = assert!(TICKET_MAX.0 << OUTCOME_BITS >> OUTCOME_BITS == TICKET_MAX.0);

/// Tickets that finished one after the other, their numbers rising by one, all in the same way.
#[derive(Clone, Copy)]
struct Run {
    last: u64,
    /// How many, `last` being the last of them. Only the newest run may have none.
    len: u16,
    outcome: Outcome,
}

impl Run {
    fn contains(&self, ticket: u64) -> bool {
        ticket <= self.last && self.last - ticket < u64::from(self.len)
    }

    fn tickets(self) -> impl Iterator<Item = u64> {
        (0..u64::from(self.len)).rev().map(move |n| self.last - n)
    }
}

/// A client that finishes its tickets in order and all in the same way needs no more than these few
/// words, so they stand in the session's record; what others need stands apart.
pub(crate) struct Tickets {
    /// All of `1..=low` are finished.
    low: u64,
    /// The last to finish.
    newest: Run,
    rest: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    /// First and last of each further range: ascending, never touching each other or `low`.
    ranges: Vec<(u64, u64)>,
    /// Those that finished before the newest run, as far as their outcomes are kept.
    older: VecDeque<Run>,
    /// How many tickets that is.
    older_len: usize,
}

impl Default for Tickets {
    fn default() -> Tickets {
        Tickets { low: 0, newest: Run { last: 0, len: 0, outcome: Outcome::Unknown }, rest: None }
    }
}

impl Tickets {
    fn further(&self) -> &[(u64, u64)] {
        self.rest.as_ref().map_or(&[], |rest| &rest.ranges)
    }

    #[inline]
    pub(crate) fn is_finished(&self, ticket: Ticket) -> bool {
        if ticket.0 <= self.low {
            return true;
        }
        let ranges = self.further();
        let at = ranges.partition_point(|&(_, last)| last < ticket.0);
        ranges.get(at).is_some_and(|&(first, _)| first <= ticket.0)
    }

    /// How many ranges there are.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.low > 0) + self.further().len()
    }

    /// How many there would be once this ticket, which is not, were finished.
    pub(crate) fn count_with(&self, ticket: Ticket) -> usize {
        let (before, after) = self.neighbours(ticket.0);
        self.count() + 1 - usize::from(before) - usize::from(after)
    }

    /// Whether the numbers right before and right after belong to ranges.
    fn neighbours(&self, ticket: u64) -> (bool, bool) {
        let ranges = self.further();
        let at = ranges.partition_point(|&(_, last)| last < ticket);
        let before = match at {
            0 => self.low > 0 && self.low + 1 == ticket,
            _ => ranges[at - 1].1 + 1 == ticket,
        };
        (before, ranges.get(at).is_some_and(|&(first, _)| first == ticket + 1))
    }

    pub(crate) fn finish(&mut self, ticket: Ticket, outcome: Outcome) {
        assert!(ticket.0 > 0 && ticket <= TICKET_MAX && !self.is_finished(ticket), "a ticket finishes once");
        self.add(ticket.0);
        self.keep(ticket.0, outcome);
    }

    fn add(&mut self, ticket: u64) {
        if ticket == self.low + 1 {
            self.low = ticket;
            if let Some(rest) = &mut self.rest
                && rest.ranges.first().is_some_and(|&(first, _)| first == ticket + 1)
            {
                self.low = rest.ranges.remove(0).1;
            }
            return;
        }
        let ranges = &mut self.rest.get_or_insert_default().ranges;
        let at = ranges.partition_point(|&(_, last)| last < ticket);
        let joins_before = at > 0 && ranges[at - 1].1 + 1 == ticket;
        let joins_after = ranges.get(at).is_some_and(|&(first, _)| first == ticket + 1);
        match (joins_before, joins_after) {
            (true, true) => ranges[at - 1].1 = ranges.remove(at).1,
            (true, false) => ranges[at - 1].1 = ticket,
            (false, true) => ranges[at].0 = ticket,
            (false, false) => ranges.insert(at, (ticket, ticket)),
        }
    }

    /// Keeps the outcome of the ticket that has just finished, and drops the one that finished first
    /// of those kept if they are too many now.
    fn keep(&mut self, ticket: u64, outcome: Outcome) {
        let newest = &mut self.newest;
        if newest.len > 0 && newest.last + 1 == ticket && newest.outcome == outcome {
            newest.last = ticket;
            newest.len += 1;
        } else {
            if newest.len > 0 {
                let rest = self.rest.get_or_insert_default();
                rest.older.push_back(*newest);
                rest.older_len += usize::from(newest.len);
            }
            *newest = Run { last: ticket, len: 1, outcome };
        }
        let older_len = self.rest.as_ref().map_or(0, |rest| rest.older_len);
        if usize::from(newest.len) + older_len <= OUTCOMES_KEPT {
            return;
        }
        let older = self.rest.as_mut().filter(|_| older_len > 0);
        let Some(rest) = older else {
            newest.len -= 1;
            return;
        };
        rest.older_len -= 1;
        let oldest = rest.older.front_mut().expect("older ones are counted");
        oldest.len -= 1;
        if oldest.len == 0 {
            rest.older.pop_front();
        }
    }

    /// How a finished ticket was finished.
    pub(crate) fn outcome(&self, ticket: Ticket) -> Outcome {
        let older = self.rest.iter().flat_map(|rest| rest.older.iter().rev());
        let run = core::iter::once(&self.newest).chain(older).find(|run| run.contains(ticket.0));
        run.map_or(Outcome::Unknown, |run| run.outcome)
    }

    /// All up to the first are finished; and the further ranges.
    pub(crate) fn ranges(&self) -> (u64, &[(u64, u64)]) {
        (self.low, self.further())
    }

    /// The last to finish in the order of their finishing, number and outcome in one word.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = u64> {
        let older = self.rest.iter().flat_map(|rest| rest.older.iter());
        let word = |run: Run| run.tickets().map(move |ticket| ticket << OUTCOME_BITS | code(run.outcome));
        older.chain([&self.newest]).flat_map(move |&run| word(run))
    }

    /// Those whose key an operator took away, as far as outcomes are kept.
    pub(crate) fn forced(&self) -> impl Iterator<Item = Ticket> {
        let older = self.rest.iter().flat_map(|rest| rest.older.iter());
        let forced = older.chain([&self.newest]).filter(|run| run.outcome == Outcome::Forced);
        forced.flat_map(|run| run.tickets()).map(Ticket)
    }

    /// As a snapshot has them: all up to the first are finished, further ranges, the newest run, older ones.
    pub(crate) fn save(&self) -> (u64, Vec<(u64, u64)>, v1::Run, Vec<v1::Run>) {
        let run = |run: &Run| v1::Run {
            last: run.last,
            len: run.len,
            outcome: snapshot::code::outcome(run.outcome),
        };
        let older = self.rest.iter().flat_map(|rest| rest.older.iter());
        (self.low, self.further().to_vec(), run(&self.newest), older.map(run).collect())
    }

    /// The same back, if it is what always holds. Runs: last, length, outcome; the newest is last.
    pub(crate) fn restored(
        low: u64,
        ranges: Vec<(u64, u64)>,
        runs: Vec<(u64, u16, Outcome)>,
    ) -> Option<Tickets> {
        let mut last = low;
        for &(from, to) in &ranges {
            if from <= last.checked_add(1)? || to < from {
                return None;
            }
            last = to;
        }
        if last > TICKET_MAX.0 {
            return None;
        }
        let mut runs: Vec<Run> =
            runs.into_iter().map(|(last, len, outcome)| Run { last, len, outcome }).collect();
        let newest = runs.pop()?;
        let older_len = runs.iter().map(|run| usize::from(run.len)).sum::<usize>();
        let is_empty = newest.len == 0 && newest.last == 0 && newest.outcome == Outcome::Unknown;
        if older_len + usize::from(newest.len) > OUTCOMES_KEPT
            || (newest.len == 0 && !(is_empty && runs.is_empty()))
            || runs.iter().any(|run| run.len == 0)
            || runs.iter().chain([&newest]).any(|run| u64::from(run.len) > run.last)
        {
            return None;
        }
        let older = VecDeque::from(runs);
        let has_rest = !ranges.is_empty() || !older.is_empty();
        let rest = has_rest.then(|| Box::new(Rest { ranges, older, older_len }));
        let tickets = Tickets { low, newest, rest };
        let all = tickets.rest.iter().flat_map(|rest| rest.older.iter()).chain([&tickets.newest]);
        let is_finished =
            all.flat_map(|&run| run.tickets()).all(|ticket| tickets.is_finished(Ticket(ticket)));
        is_finished.then_some(tickets)
    }

    pub(crate) fn check(&self) {
        let mut last = self.low;
        for &(from, to) in self.further() {
            assert!(from > last + 1 && to >= from, "ranges of tickets ascend and do not touch");
            last = to;
        }
        assert!(self.outcomes().count() <= OUTCOMES_KEPT);
        assert!(self.outcomes().all(|word| self.is_finished(Ticket(word >> OUTCOME_BITS))));
        if let Some(rest) = &self.rest {
            assert!(rest.older.iter().all(|run| run.len > 0));
            assert_eq!(rest.older.iter().map(|run| usize::from(run.len)).sum::<usize>(), rest.older_len);
        }
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
        Outcome::Forced => 6,
        Outcome::Downgraded => 7,
        Outcome::Done => 8,
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
        let all = [
            Outcome::Released,
            Outcome::Cancelled,
            Outcome::TimedOut,
            Outcome::Forced,
            Outcome::Refused,
            Outcome::Done,
        ];
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

//! Linearizable reads at a node that does not lead: they wait until the leader has said how new their
//! answers must be, and then until this node has applied that much (DESIGN section 7). One question
//! covers all that waited when it was asked; at most one is open, and the next reads gather meanwhile.

use alloc::vec::Vec;
use core::time::Duration;

use palisade_raft::{AskId, ReadAnswer};
use palisade_types::{LogIndex, Time};

use crate::rounds::Read;

#[derive(Debug)]
struct Waiting {
    read: Read,
    arrived: Time,
}

/// A question to the leader, and whom its answer is for.
#[derive(Debug)]
struct Flight {
    ask: AskId,
    /// Without an answer it is asked anew then.
    again_at: Time,
    reads: Vec<Waiting>,
}

/// The reads in hand, by how far they are. In each stage the oldest come first.
#[derive(Debug, Default)]
pub(crate) struct Remote {
    gathering: Vec<Waiting>,
    flight: Option<Flight>,
    /// Their index is known, and not applied here yet.
    answered: Vec<(LogIndex, Vec<Waiting>)>,
}

impl Remote {
    /// Joins the next question.
    pub(crate) fn join(&mut self, read: Read, arrived: Time) {
        self.gathering.push(Waiting { read, arrived });
    }

    /// Mutant F1: the index is this node's own.
    pub(crate) fn join_unasked(&mut self, read: Read, arrived: Time, index: LogIndex) {
        self.answered.push((index, alloc::vec![Waiting { read, arrived }]));
    }

    /// How many reads wait, in all stages.
    pub(crate) fn len(&self) -> usize {
        self.gathering.len() + self.flight.as_ref().map_or(0, |f| f.reads.len()) + self.applying()
    }

    /// How many wait for nothing but that this node applies more.
    pub(crate) fn applying(&self) -> usize {
        self.answered.iter().map(|(_, reads)| reads.len()).sum()
    }

    /// Whether the leader is to be asked: somebody waits and nothing is asked, or too long ago.
    pub(crate) fn wants_ask(&self, now: Time) -> bool {
        match &self.flight {
            Some(flight) => flight.again_at <= now,
            None => !self.gathering.is_empty(),
        }
    }

    /// The leader was asked for all that wait for it, also those whose earlier question it gives up.
    pub(crate) fn asked(&mut self, ask: AskId, again_at: Time) {
        let reads = self.take_waiting();
        self.flight = Some(Flight { ask, again_at, reads });
    }

    /// The leader has answered. Returns the reads that it will not help, because it does not lead.
    pub(crate) fn answered(&mut self, answer: ReadAnswer) -> Vec<Read> {
        let Some(flight) = self.flight.take_if(|flight| flight.ask == answer.ask) else { return Vec::new() };
        match answer.index {
            Some(index) => {
                self.answered.push((index, flight.reads));
                Vec::new()
            }
            None => flight.reads.into_iter().map(|w| w.read).collect(),
        }
    }

    /// Another leader, or another term: what was asked of the old one is asked again.
    pub(crate) fn ask_again(&mut self) {
        self.gathering = self.take_waiting();
    }

    /// Nobody is left to ask: all that wait for an answer.
    pub(crate) fn take_unanswered(&mut self) -> Vec<Read> {
        self.take_waiting().into_iter().map(|w| w.read).collect()
    }

    fn take_waiting(&mut self) -> Vec<Waiting> {
        let mut waiting = self.flight.take().map_or_else(Vec::new, |flight| flight.reads);
        waiting.append(&mut self.gathering);
        waiting
    }

    /// What may be answered, the state being applied up to this index.
    pub(crate) fn take_applied(&mut self, applied: LogIndex) -> Vec<Read> {
        let mut done = Vec::new();
        for (_, reads) in self.answered.extract_if(.., |(index, _)| *index <= applied) {
            done.extend(reads.into_iter().map(|w| w.read));
        }
        done
    }

    /// Those that have waited for this long, for whatever.
    pub(crate) fn take_overdue(&mut self, now: Time, patience: Duration) -> Vec<Read> {
        if now < self.oldest() + patience {
            return Vec::new();
        }
        let mut overdue = Vec::new();
        let mut sift = |reads: &mut Vec<Waiting>| {
            overdue.extend(reads.extract_if(.., |w| w.arrived + patience <= now).map(|w| w.read));
        };
        sift(&mut self.gathering);
        self.flight.iter_mut().for_each(|flight| sift(&mut flight.reads));
        self.answered.iter_mut().for_each(|(_, reads)| sift(reads));
        self.flight.take_if(|flight| flight.reads.is_empty());
        self.answered.retain(|(_, reads)| !reads.is_empty());
        overdue
    }

    /// When the next is overdue or the leader is to be asked anew.
    pub(crate) fn next(&self, patience: Duration) -> Time {
        let again = self.flight.as_ref().map_or(Time::FAR, |flight| flight.again_at);
        let oldest = self.oldest();
        if oldest == Time::FAR { again } else { again.min(oldest + patience) }
    }

    fn oldest(&self) -> Time {
        let flight = self.flight.iter().flat_map(|f| f.reads.first());
        let answered = self.answered.iter().flat_map(|(_, reads)| reads.first());
        let all = self.gathering.first().into_iter().chain(flight).chain(answered);
        all.map(|w| w.arrived).min().unwrap_or(Time::FAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{ConnId, RequestId};
    use palisade_wire::Query;

    const PATIENCE: Duration = Duration::from_millis(1_000);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn read(id: u64) -> Read {
        let query = Query::ListSessions { after: None, rows: 1 };
        Read { conn: ConnId(1), id: RequestId(id), query }
    }

    fn ask(count: u64) -> AskId {
        AskId { boot: 1, count }
    }

    fn answer(count: u64, index: u64) -> ReadAnswer {
        ReadAnswer { ask: ask(count), index: Some(LogIndex(index)) }
    }

    fn ids(reads: Vec<Read>) -> Vec<u64> {
        reads.into_iter().map(|r| r.id.0).collect()
    }

    #[test]
    fn one_question_serves_all_that_waited_and_who_comes_later_waits_for_the_next() {
        let mut r = Remote::default();
        r.join(read(1), at(0));
        r.join(read(2), at(0));
        assert!(r.wants_ask(at(0)));
        r.asked(ask(1), at(200));
        r.join(read(3), at(10));
        assert!(!r.wants_ask(at(10)), "one question at a time");
        assert!(r.answered(answer(1, 7)).is_empty());
        assert!(ids(r.take_applied(LogIndex(6))).is_empty());
        assert_eq!(ids(r.take_applied(LogIndex(7))), [1, 2]);
        assert!(r.wants_ask(at(10)));
    }

    #[test]
    fn the_answer_to_a_question_given_up_serves_nobody() {
        let mut r = Remote::default();
        r.join(read(1), at(0));
        r.asked(ask(1), at(200));
        r.join(read(2), at(100));
        assert!(r.wants_ask(at(200)));
        r.asked(ask(2), at(400));
        assert!(r.answered(answer(1, 3)).is_empty());
        assert!(ids(r.take_applied(LogIndex(9))).is_empty(), "it was asked before the second read came");
        assert!(r.answered(answer(2, 5)).is_empty());
        assert_eq!(ids(r.take_applied(LogIndex(9))), [1, 2]);
    }

    #[test]
    fn another_leader_is_asked_for_all_and_who_does_not_lead_helps_nobody() {
        let mut r = Remote::default();
        r.join(read(1), at(0));
        r.asked(ask(1), at(200));
        r.ask_again();
        r.join(read(2), at(5));
        assert!(r.wants_ask(at(5)));
        r.asked(ask(2), at(205));
        let refused = r.answered(ReadAnswer { ask: ask(2), index: None });
        assert_eq!(ids(refused), [1, 2]);
        assert_eq!(r.len(), 0);
    }

    #[test]
    fn whoever_has_waited_too_long_is_let_go_in_every_stage() {
        let mut r = Remote::default();
        r.join(read(1), at(0));
        r.asked(ask(1), at(200));
        assert!(r.answered(answer(1, 50)).is_empty());
        r.join(read(2), at(100));
        r.asked(ask(2), at(300));
        r.join(read(3), at(200));
        assert_eq!(r.next(PATIENCE), at(300));
        assert!(r.take_overdue(at(999), PATIENCE).is_empty());
        assert_eq!(ids(r.take_overdue(at(1_000), PATIENCE)), [1]);
        assert_eq!(ids(r.take_overdue(at(1_200), PATIENCE)), [3, 2]);
        assert_eq!((r.len(), r.next(PATIENCE)), (0, Time::FAR));
    }
}

//! When operations begin: as soon as a session is free (closed loop), or at times fixed beforehand
//! (open loop), in which case one that has to wait for a session is late from the start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::work::new_histogram;

const NANOS: u128 = 1_000_000_000;

/// Nanoseconds since the start of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that reads 0.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The time.
    pub(crate) fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    /// A time of this clock, for others.
    pub(crate) fn instant(&self, at: u64) -> Instant {
        self.0 + Duration::from_nanos(at)
    }
}

/// Evenly spaced times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    start: u64,
    per_second: u64,
}

impl Schedule {
    /// So many a second, from `start` on.
    pub(crate) fn new(start: u64, per_second: u64) -> Schedule {
        Schedule { start, per_second }
    }

    /// When the nth arrival, from 0, is meant to be.
    pub(crate) fn at(&self, n: u64) -> u64 {
        self.start + (u128::from(n) * NANOS / u128::from(self.per_second)) as u64
    }

    /// How many arrivals are meant to have been by now.
    fn due(&self, now: u64) -> u64 {
        // at(n) rounds down, so it is at most `now` exactly as long as n / per_second is below the
        // nanosecond after it.
        let Some(elapsed) = now.checked_sub(self.start) else { return 0 };
        ((u128::from(elapsed) + 1) * u128::from(self.per_second)).div_ceil(NANOS) as u64
    }
}

/// Says which session begins an operation, and from when its latency counts.
#[derive(Debug)]
pub(crate) struct Pacer(Option<OpenLoop>);

#[derive(Debug)]
struct OpenLoop {
    schedule: Schedule,
    tick: u64,
    next_tick: u64,
    /// Arrivals up to the last tick.
    due: u64,
    /// Those of them that a session has taken.
    taken: u64,
    idle: Idle,
}

/// Free sessions by connection; of one connection, the one that has been free for longest is first.
/// What a tick begins leaves on one connection as long as it has free sessions, and the connections
/// take turns: a few sessions of each would cost a send for each.
#[derive(Debug)]
struct Idle {
    links: Vec<VecDeque<u32>>,
    turn: usize,
}

impl Idle {
    fn push(&mut self, session: u32) {
        // The nth session lives on connection n modulo their number.
        let link = session as usize % self.links.len();
        self.links[link].push_back(session);
    }

    fn pop(&mut self) -> Option<u32> {
        for _ in 0..self.links.len() {
            if let Some(session) = self.links[self.turn].pop_front() {
                return Some(session);
            }
            self.next_link();
        }
        None
    }

    fn next_link(&mut self) {
        self.turn = (self.turn + 1) % self.links.len();
    }
}

impl Pacer {
    /// Every session begins its next operation when the last is done.
    pub(crate) fn closed() -> Pacer {
        Pacer(None)
    }

    /// So many operations begin each second, all sessions together; looked at every `tick`
    /// nanoseconds, so that those of a tick leave together. The nth session lives on connection n
    /// modulo their number.
    pub(crate) fn open(per_second: u64, tick: u64, links: u32, now: u64) -> Pacer {
        let schedule = Schedule { start: now, per_second };
        let idle = Idle { links: vec![VecDeque::new(); links.max(1) as usize], turn: 0 };
        Pacer(Some(OpenLoop { schedule, tick, next_tick: now, due: 0, taken: 0, idle }))
    }

    /// A session is free: from when its next operation counts, if it is to begin that at once.
    pub(crate) fn idle(&mut self, session: u32, now: u64) -> Option<u64> {
        let Some(open) = &mut self.0 else { return Some(now) };
        if open.taken < open.due {
            return Some(open.take());
        }
        open.idle.push(session);
        None
    }

    /// Looks at the time. [`Pacer::next`] says what follows.
    pub(crate) fn tick(&mut self, now: u64) {
        let Some(open) = &mut self.0 else { return };
        if now >= open.next_tick {
            open.due = open.schedule.due(now);
            open.idle.next_link();
            let behind = (now - open.next_tick) / open.tick;
            open.next_tick += (behind + 1) * open.tick;
        }
    }

    /// A session that is to begin an operation, and from when that counts.
    pub(crate) fn next(&mut self) -> Option<(u32, u64)> {
        let open = self.0.as_mut()?;
        if open.taken >= open.due {
            return None;
        }
        let session = open.idle.pop()?;
        Some((session, open.take()))
    }

    /// When to look again.
    pub(crate) fn wake_at(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |open| open.next_tick)
    }

    /// How many operations are due and not begun.
    pub(crate) fn backlog(&self) -> u64 {
        self.0.as_ref().map_or(0, |open| open.due - open.taken)
    }
}

impl OpenLoop {
    fn take(&mut self) -> u64 {
        let intended = self.schedule.at(self.taken);
        self.taken += 1;
        intended
    }
}

/// Counts what ends in the window.
pub(crate) struct Meter {
    begin: u64,
    end: u64,
    operations: u64,
    latency: Histogram<u64>,
    shared: Arc<AtomicU64>,
}

impl Meter {
    /// Counts nothing yet.
    pub(crate) fn new() -> Meter {
        let shared = Arc::new(AtomicU64::new(0));
        Meter { begin: u64::MAX, end: u64::MAX, operations: 0, latency: new_histogram(), shared }
    }

    /// Counts what ends from `begin` on and before `end`.
    pub(crate) fn set_window(&mut self, begin: u64, end: u64) {
        (self.begin, self.end) = (begin, end);
    }

    /// An operation has ended whose latency counts from `from`.
    pub(crate) fn done(&mut self, from: u64, now: u64) {
        if now >= self.begin && now < self.end {
            self.operations += 1;
            self.latency.saturating_record(now.saturating_sub(from) / 1_000);
        }
    }

    /// Tells the count to whoever shows the progress.
    pub(crate) fn publish(&self) {
        self.shared.store(self.operations, Ordering::Relaxed);
    }

    /// Where [`Meter::publish`] puts the count.
    pub(crate) fn shared(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared)
    }

    /// How many ended in the window, and how long each took.
    pub(crate) fn into_counted(self) -> (u64, Histogram<u64>) {
        (self.operations, self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn arrivals_are_evenly_spaced_and_do_not_drift() {
        let schedule = Schedule { start: 7, per_second: 3 };
        assert_eq!([0, 1, 2, 3].map(|n| schedule.at(n)), [7, 333_333_340, 666_666_673, 1_000_000_007]);
        assert_eq!(schedule.at(3_000_000_000), 7 + 1_000_000_000 * 1_000_000_000);
    }

    #[test]
    fn what_is_due_is_what_lies_at_or_before_now() {
        for per_second in [1, 3, 7, 1000, 50_000, 999_999] {
            let schedule = Schedule { start: 5, per_second };
            assert_eq!(schedule.due(4), 0);
            assert_eq!(schedule.due(5), 1);
            for n in [1, 2, 3, 10, 12_345] {
                let at = schedule.at(n);
                assert_eq!(schedule.due(at), n + 1, "{per_second}/s, arrival {n}");
                assert_eq!(schedule.due(at - 1), n, "{per_second}/s, before arrival {n}");
            }
        }
    }

    #[test]
    fn in_a_closed_loop_a_free_session_begins_at_once() {
        let mut pacer = Pacer::closed();
        assert_eq!(pacer.idle(3, 77), Some(77));
        pacer.tick(78);
        assert_eq!((pacer.next(), pacer.wake_at(), pacer.backlog()), (None, u64::MAX, 0));
    }

    #[test]
    fn in_an_open_loop_idle_sessions_take_turns_at_ticks() {
        // One arrival a millisecond, seen every two.
        let mut pacer = Pacer::open(1000, 2 * MS, 1, 0);
        for session in 0..3 {
            assert_eq!(pacer.idle(session, 0), None);
        }
        pacer.tick(0);
        assert_eq!((pacer.next(), pacer.next()), (Some((0, 0)), None));
        pacer.tick(MS);
        assert_eq!(pacer.next(), None, "there is no tick yet");
        assert_eq!(pacer.wake_at(), 2 * MS);
        pacer.tick(2 * MS);
        assert_eq!((pacer.next(), pacer.next(), pacer.next()), (Some((1, MS)), Some((2, 2 * MS)), None));
        assert_eq!(pacer.idle(2, 2 * MS), None);
        assert_eq!(pacer.idle(0, 2 * MS), None);
        pacer.tick(4 * MS);
        assert_eq!((pacer.next(), pacer.next()), (Some((2, 3 * MS)), Some((0, 4 * MS))));
    }

    #[test]
    fn what_a_tick_begins_leaves_on_one_connection_and_connections_take_turns() {
        // Two arrivals a tick, two connections.
        let mut pacer = Pacer::open(1000, 2 * MS, 2, 0);
        for session in 0..6 {
            pacer.idle(session, 0);
        }
        let mut begun = |tick: u64| {
            pacer.tick(tick * 2 * MS);
            std::iter::from_fn(|| pacer.next()).map(|(session, _)| session).collect::<Vec<_>>()
        };
        assert_eq!([begun(0), begun(1), begun(2)], [vec![1], vec![0, 2], vec![3, 5]]);
        // One is left on the first connection, none on the second.
        assert_eq!([begun(3), begun(4)], [vec![4], vec![]]);
    }

    #[test]
    fn an_arrival_that_waits_counts_from_when_it_was_meant_to_be() {
        let mut pacer = Pacer::open(1000, MS, 1, 0);
        pacer.tick(5 * MS + 1);
        assert_eq!((pacer.next(), pacer.backlog()), (None, 6));
        assert_eq!(pacer.idle(0, 9 * MS), Some(0));
        assert_eq!(pacer.idle(0, 20 * MS), Some(MS));
        assert_eq!(pacer.backlog(), 4);
    }

    #[test]
    fn missed_ticks_are_not_made_up_for_one_by_one() {
        let mut pacer = Pacer::open(1000, MS, 1, 0);
        pacer.tick(10 * MS + 5);
        assert_eq!(pacer.wake_at(), 11 * MS);
    }

    #[test]
    fn only_the_window_is_counted() {
        let mut meter = Meter::new();
        meter.done(0, 10);
        meter.set_window(MS, 3 * MS);
        meter.done(0, MS - 1);
        meter.done(0, MS);
        meter.done(2 * MS, 3 * MS - 1);
        meter.done(0, 3 * MS);
        meter.publish();
        assert_eq!(meter.shared().load(Ordering::Relaxed), 2);
        let (operations, latency) = meter.into_counted();
        assert_eq!((operations, latency.len(), latency.max(), latency.min()), (2, 2, 1000, 999));
    }
}

//! The session clocks of a leader (DESIGN section 2). They exist only while this node leads and has
//! applied an entry of its own term; a new leader starts them all anew.
//!
//! Deadlines are kept on *session time*: this node's clock less all stalls credited. Crediting a
//! stall thus moves every deadline at once.

use alloc::collections::BTreeSet;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use core::time::Duration;

use palisade_types::{SessionId, Time};

/// One session as its leader sees it.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The deadline, on session time.
    deadline: Time,
    /// When the last renewal that was acknowledged arrived, on session time.
    heard: Time,
    /// What a renewal adds: see [`span`].
    span: Duration,
    /// Renewals that have arrived and are not answered: they hold expiry back.
    unanswered: u32,
    /// The end of this session is appended; it is renewed no more.
    ending: bool,
    /// It was due at this time and awaits marks and the confirmation of the leadership, or its end is
    /// on its way: its place in `overdue`.
    suspected: Option<Time>,
}

/// All clocks of a shard.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    clocks: BTreeMap<SessionId, Clock>,
    /// When to look at a session next; never later than its deadline.
    due: BTreeSet<(Time, SessionId)>,
    /// Those that were due and live still, by the time at which they were.
    overdue: BTreeSet<(Time, SessionId)>,
    credited: Duration,
}

/// The time within which a silent session is gone, as its client is told: TTL, 1 % for clock rates,
/// slack.
pub(crate) fn bound(ttl_ms: u32, slack: Duration) -> Duration {
    Duration::from_millis(u64::from(ttl_ms) + u64::from(ttl_ms).div_ceil(100)) + slack
}

/// The time after which a silent session is due: half the slack is left for reading what has arrived,
/// for the confirmation and for the log, so that it is gone within its [`bound`].
pub(crate) fn span(ttl_ms: u32, slack: Duration) -> Duration {
    bound(ttl_ms, slack / 2)
}

impl Clocks {
    fn session_time(&self, now: Time) -> Time {
        now - self.credited
    }

    /// Forgets all clocks: this node no longer leads.
    pub(crate) fn clear(&mut self) {
        self.clocks.clear();
        self.due.clear();
        self.overdue.clear();
    }

    /// Starts a clock with its full span, unless it runs already.
    pub(crate) fn start(&mut self, now: Time, session: SessionId, span: Duration) {
        let heard = self.session_time(now);
        let deadline = heard + span;
        let clock = Clock { deadline, heard, span, unanswered: 0, ending: false, suspected: None };
        if let Entry::Vacant(place) = self.clocks.entry(session) {
            place.insert(clock);
            self.due.insert((deadline, session));
        }
    }

    /// The session ended.
    pub(crate) fn remove(&mut self, session: SessionId) {
        // Its place in `due` is dropped when it comes up.
        let known = self.clocks.remove(&session);
        if let Some(at) = known.and_then(|c| c.suspected) {
            self.overdue.remove(&(at, session));
        }
    }

    /// Moves every deadline by a stall of this node: silence it could not have heard is no silence.
    pub(crate) fn credit(&mut self, stall: Duration) {
        self.credited += stall;
    }

    /// A renewal arrived. False if the session has no clock or its end is appended.
    pub(crate) fn renewal_arrived(&mut self, session: SessionId) -> bool {
        match self.clocks.get_mut(&session) {
            Some(c) if !c.ending => {
                c.unanswered += 1;
                true
            }
            _ => false,
        }
    }

    /// A renewal that arrived at `arrived` may be acknowledged: the leadership was confirmed since.
    /// False if the session's end was appended meanwhile.
    pub(crate) fn renew(&mut self, session: SessionId, arrived: Time) -> bool {
        let heard = self.session_time(arrived);
        let Some(c) = self.clocks.get_mut(&session) else { return false };
        c.unanswered = c.unanswered.saturating_sub(1);
        if c.ending {
            return false;
        }
        c.heard = c.heard.max(heard);
        c.deadline = c.deadline.max(heard + c.span);
        if let Some(at) = c.suspected.take() {
            self.overdue.remove(&(at, session));
        }
        true
    }

    /// The end of this session is appended.
    pub(crate) fn mark_ending(&mut self, session: SessionId) {
        if let Some(c) = self.clocks.get_mut(&session) {
            c.ending = true;
        }
    }

    /// Whether an end of this session is appended and not yet applied.
    pub(crate) fn is_ending(&self, session: SessionId) -> bool {
        self.clocks.get(&session).is_some_and(|c| c.ending)
    }

    /// Sessions that became due and are not suspected yet; at most `most`.
    pub(crate) fn take_due(&mut self, now: Time, most: usize) -> Vec<SessionId> {
        let now = self.session_time(now);
        let mut due = Vec::new();
        while due.len() < most {
            let Some(&(at, session)) = self.due.first() else { break };
            if at > now {
                break;
            }
            self.due.pop_first();
            let Some(c) = self.clocks.get_mut(&session) else { continue };
            if c.deadline > now {
                self.due.insert((c.deadline, session));
            } else if !c.ending {
                c.suspected = Some(c.deadline);
                self.overdue.insert((c.deadline, session));
                due.push(session);
            }
        }
        due
    }

    /// After the leadership was confirmed: how long the session has been silent, if it is still due.
    /// If it is not, it is watched again.
    pub(crate) fn confirm_due(&mut self, now: Time, session: SessionId) -> Option<Duration> {
        let now = self.session_time(now);
        let c = self.clocks.get_mut(&session)?;
        if c.ending {
            return None;
        }
        if c.deadline <= now && c.unanswered == 0 {
            return Some(now.since(c.heard));
        }
        if let Some(at) = c.suspected.take() {
            self.overdue.remove(&(at, session));
        }
        self.due.insert((c.deadline.max(now), session));
        None
    }

    /// When the next session may be due, on this node's clock.
    pub(crate) fn next(&self) -> Time {
        self.due.first().map_or(Time::FAR, |(at, _)| *at + self.credited)
    }

    /// For how long the session that is overdue for longest has been so.
    pub(crate) fn lag(&self, now: Time) -> Duration {
        self.overdue.first().map_or(Duration::ZERO, |(at, _)| self.session_time(now).since(*at))
    }

    /// How many clocks run.
    pub(crate) fn len(&self) -> usize {
        self.clocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{LogIndex, ShardId};

    const S: SessionId = SessionId { shard: ShardId(0), opened: LogIndex(7) };

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn running() -> Clocks {
        let mut c = Clocks::default();
        c.start(at(0), S, Duration::from_millis(1000));
        c
    }

    #[test]
    fn a_silent_session_becomes_due_once_and_is_confirmed_with_its_silence() {
        let mut c = running();
        assert!(c.take_due(at(999), 10).is_empty());
        assert_eq!(c.take_due(at(1000), 10), [S]);
        assert!(c.take_due(at(1001), 10).is_empty());
        assert_eq!(c.confirm_due(at(1100), S), Some(Duration::from_millis(1100)));
    }

    #[test]
    fn a_renewal_counts_from_its_arrival_and_holds_expiry_back_until_it_is_answered() {
        let mut c = running();
        assert!(c.renewal_arrived(S));
        assert_eq!(c.take_due(at(1500), 10), [S]);
        assert_eq!(c.confirm_due(at(1500), S), None, "an unanswered renewal holds expiry back");
        assert!(c.renew(S, at(900)));
        assert!(c.take_due(at(1899), 10).is_empty());
        assert_eq!(c.take_due(at(1900), 10), [S]);
    }

    #[test]
    fn no_renewal_once_the_end_is_appended() {
        let mut c = running();
        assert!(c.renewal_arrived(S));
        c.mark_ending(S);
        assert!(!c.renew(S, at(10)));
        assert!(!c.renewal_arrived(S));
    }

    #[test]
    fn the_lag_is_that_of_the_session_overdue_for_longest_and_returns_to_zero() {
        let mut c = running();
        let other = SessionId { opened: LogIndex(8), ..S };
        c.start(at(200), other, Duration::from_millis(1000));
        assert_eq!(c.lag(at(999)), Duration::ZERO);
        assert_eq!(c.take_due(at(1500), 10), [S, other]);
        assert_eq!(c.lag(at(1500)), Duration::from_millis(500));
        c.mark_ending(S);
        assert_eq!(c.lag(at(1600)), Duration::from_millis(600), "until its end is applied");
        c.remove(S);
        assert_eq!(c.lag(at(1600)), Duration::from_millis(400));
        assert!(c.renewal_arrived(other) && c.renew(other, at(1600)));
        assert_eq!(c.lag(at(1700)), Duration::ZERO);
    }

    #[test]
    fn a_stall_moves_every_deadline() {
        let mut c = running();
        c.credit(Duration::from_millis(700));
        assert!(c.take_due(at(1699), 10).is_empty());
        assert_eq!(c.next(), at(1700));
        assert_eq!(c.take_due(at(1700), 10), [S]);
    }
}

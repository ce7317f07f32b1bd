//! S5: no session ends by silence before the lease its client was given has run out, in true time.
//! S10: a dead session is gone within the bound its client was told, counted from the last renewal that
//! was read, from the last change of leaders, or from the last moment without one.

use core::time::Duration;
use std::collections::BTreeMap;

use palisade_types::{Cause, SessionId, Time};

use super::{Checked, demand};

/// How often the bounds are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A live session.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// The bound its client was told.
    bound: Duration,
    /// From when it counts, in true time.
    since: Time,
}

/// Who serves: a node, in a term.
pub type Serving = (usize, u64);

/// What clients were promised.
#[derive(Debug, Default)]
pub struct SessionsCheck {
    /// Until when, in true time, a session lasts by the newest acknowledgement its client saw.
    leases: BTreeMap<SessionId, Time>,
    ended: BTreeMap<SessionId, Cause>,
    live: BTreeMap<SessionId, Live>,
    slack: Duration,
    serving: Option<Serving>,
    next_look: Time,
    /// Sessions that ended by silence.
    pub expired: u64,
}

impl SessionsCheck {
    /// A client saw an acknowledgement: its lease lasts until this true time.
    pub fn on_lease(&mut self, session: SessionId, until: Time) {
        let lease = self.leases.entry(session).or_default();
        *lease = (*lease).max(until);
    }

    /// A check of sessions whose slack is this.
    pub fn new(slack: Duration) -> SessionsCheck {
        SessionsCheck { slack, ..SessionsCheck::default() }
    }

    /// A session was opened.
    pub fn on_opened(&mut self, now: Time, session: SessionId, ttl_ms: u32) {
        let ttl = Duration::from_millis(u64::from(ttl_ms));
        let bound = ttl + ttl / 100 + self.slack;
        self.live.insert(session, Live { bound, since: now });
    }

    /// A leader has read a renewal.
    pub fn on_renewal(&mut self, now: Time, session: SessionId) {
        if let Some(live) = self.live.get_mut(&session) {
            live.since = live.since.max(now);
        }
    }

    /// A leader was held up and credits that.
    pub fn on_stall(&mut self, stall: Duration) {
        self.live.values_mut().for_each(|live| live.since = live.since + stall);
    }

    /// Whether it is time to look at the bounds.
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.next_look
    }

    /// Looks at the bounds. `serving`: who serves undisturbed, if somebody does. `grace`: how long a slow
    /// network and disk may take with an end.
    ///
    /// # Errors
    /// S10 when a session lives on past its bound.
    pub fn look(&mut self, now: Time, serving: Option<Serving>, grace: Duration) -> Checked {
        self.next_look = now + LOOK_EVERY;
        if serving.is_none() || serving != self.serving {
            self.serving = serving;
            self.live.values_mut().for_each(|live| live.since = live.since.max(now));
            return Ok(());
        }
        for (session, live) in &self.live {
            // Clocks may be off by half a percent.
            let until = live.since + live.bound + live.bound / 100 + grace;
            demand(now <= until, "S10", || {
                format!(
                    "{session} lives at {now}, silent since {}, its bound was {:?}",
                    live.since, live.bound
                )
            })?;
        }
        Ok(())
    }

    /// The end of a session is committed.
    ///
    /// # Errors
    /// S5 when it is early; S3 when the session had ended before.
    pub fn on_ended(&mut self, now: Time, session: SessionId, cause: Cause) -> Checked {
        self.live.remove(&session);
        let before = self.ended.insert(session, cause);
        demand(before.is_none(), "S3", || format!("session {session} ends twice"))?;
        if !matches!(cause, Cause::Expired { .. }) {
            return Ok(());
        }
        self.expired += 1;
        let lease = self.leases.get(&session).copied().unwrap_or_default();
        demand(now >= lease, "S5", || {
            format!("session {session} {cause} at {now}, its client's lease lasts until {lease}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_session_that_lives_on_is_seen_unless_leaders_changed_or_were_held_up() {
        let (s, second) = (SessionId::default(), Duration::from_secs(1));
        let at = |ms| Time::from_millis(ms);
        let mut c = SessionsCheck::new(second);
        c.on_opened(at(0), s, 2_000);
        let mut look = |ms, leader: u64| c.look(at(ms), Some((0, leader)), second);
        assert_eq!((look(10, 1), look(4_000, 1)), (Ok(()), Ok(())));
        assert_eq!(look(4_100, 1).unwrap_err().rule, "S10");
        assert_eq!((look(4_200, 2), look(8_200, 2)), (Ok(()), Ok(())), "the next one begins anew");
        c.on_stall(second);
        assert_eq!(c.look(at(9_000), Some((0, 2)), second), Ok(()));
        c.on_renewal(at(9_000), s);
        assert_eq!(c.look(at(12_000), Some((0, 2)), second), Ok(()));
        assert_eq!(c.look(at(13_100), Some((0, 2)), second).unwrap_err().rule, "S10");
        c.on_ended(at(13_200), s, Cause::Closed).unwrap();
        assert_eq!(c.look(at(20_000), Some((0, 2)), second), Ok(()));
    }

    #[test]
    fn an_early_expiry_is_seen_and_a_close_is_none() {
        let s = SessionId::default();
        let expired = Cause::Expired { silent_ms: 1 };
        let mut c = SessionsCheck::default();
        c.on_lease(s, Time(100));
        c.on_lease(s, Time(50));
        assert_eq!(c.on_ended(Time(99), s, expired).unwrap_err().rule, "S5");
        let mut c = SessionsCheck::default();
        c.on_lease(s, Time(100));
        assert_eq!(c.on_ended(Time(100), s, expired), Ok(()));
        assert_eq!(c.on_ended(Time(101), s, Cause::Closed).unwrap_err().rule, "S3");
        let mut c = SessionsCheck::default();
        c.on_lease(s, Time(100));
        assert_eq!(c.on_ended(Time(1), s, Cause::Closed), Ok(()));
    }
}

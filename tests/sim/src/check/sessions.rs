//! S5: no session ends by silence before the lease its client was given has run out, in true time.

use std::collections::BTreeMap;

use palisade_types::{Cause, SessionId, Time};

use super::{Checked, demand};

/// What clients were promised.
#[derive(Debug, Default)]
pub struct SessionsCheck {
    /// Until when, in true time, a session lasts by the newest acknowledgement its client saw.
    leases: BTreeMap<SessionId, Time>,
    ended: BTreeMap<SessionId, Cause>,
    /// Sessions that ended by silence.
    pub expired: u64,
}

impl SessionsCheck {
    /// A client saw an acknowledgement: its lease lasts until this true time.
    pub fn on_lease(&mut self, session: SessionId, until: Time) {
        let lease = self.leases.entry(session).or_default();
        *lease = (*lease).max(until);
    }

    /// The end of a session is committed.
    ///
    /// # Errors
    /// S5 when it is early; S3 when the session had ended before.
    pub fn on_ended(&mut self, now: Time, session: SessionId, cause: Cause) -> Checked {
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

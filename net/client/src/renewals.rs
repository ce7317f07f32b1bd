//! The renewals of a session as they are acknowledged, for a process beside this one that enforces the lease
//! when this one cannot.

use std::sync::Arc;

use palisade_types::Time;

use crate::command::Lease;

/// How far the acknowledged renewals reach. Both times are nanoseconds of this host's CLOCK_BOOTTIME, and
/// mean nothing on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Until then the session and what it holds may be relied upon.
    pub deadline: Time,
    /// Before that silence ends it nowhere: nobody else is granted what it holds. Later than the deadline by
    /// a tenth of the TTL, at most 1 s.
    pub end: Time,
}

/// Tells how far the lease of a session reaches, again after each renewal. Made by
/// [`crate::Session::renewals`] and [`crate::Guard::renewals`]; keeps no session alive.
#[derive(Debug)]
pub struct Renewals {
    lease: Arc<Lease>,
    told: Option<LeaseTimes>,
}

impl Renewals {
    pub(crate) fn of(lease: Arc<Lease>) -> Renewals {
        Renewals { lease, told: None }
    }

    /// How far the lease reaches now; `None` once it is lost.
    pub fn now(&self) -> Option<LeaseTimes> {
        self.lease.times().map(|(deadline, end)| LeaseTimes { deadline, end })
    }

    /// How far the lease reaches: the first time at once, then whenever that has changed. Renewals nobody
    /// asked about meanwhile are told as one. Never completes once the session is lost: `lost()` says that.
    /// May be dropped at any point without missing a renewal.
    pub async fn next(&mut self) -> LeaseTimes {
        loop {
            // From here on no renewal is missed.
            let renewed = self.lease.renewed.notified();
            match self.now() {
                Some(times) if self.told != Some(times) => {
                    self.told = Some(times);
                    return times;
                }
                _ => renewed.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn poll(renewals: &mut Renewals) -> Poll<LeaseTimes> {
        std::pin::pin!(renewals.next()).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn each_reach_is_told_once_and_none_after_the_loss() {
        let lease = Arc::new(Lease::default());
        let mut renewals = Renewals::of(lease.clone());
        let times = |deadline: u64| LeaseTimes { deadline: Time(deadline), end: Time(deadline + 10) };
        assert!(poll(&mut renewals).is_pending(), "it is not open");
        for deadline in [100, 200] {
            lease.extend(Time(deadline), Time(deadline + 10));
            assert_eq!(poll(&mut renewals), Poll::Ready(times(deadline)));
            assert!(poll(&mut renewals).is_pending(), "it was told");
        }
        lease.extend(Time(300), Time(310));
        lease.extend(Time(400), Time(410));
        assert_eq!(poll(&mut renewals), Poll::Ready(times(400)), "the newest alone");
        lease.miss();
        assert!(poll(&mut renewals).is_pending() && renewals.now().is_none());
    }

    #[test]
    fn whoever_waits_is_woken_by_a_renewal() {
        let lease = Arc::new(Lease::default());
        let mut renewals = Renewals::of(lease.clone());
        let mut waiting = std::pin::pin!(renewals.next());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        lease.extend(Time(100), Time(110));
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
    }
}

//! CLOCK_BOOTTIME: the clock of leases. It goes on while the machine sleeps, so that a suspended
//! laptop wakes up knowing that its lease has run out.
//!
//! The only unsafe code of the client is here: registering the timer with the runtime.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use palisade_types::Time;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

const NANOS: u64 = 1_000_000_000;

/// What CLOCK_BOOTTIME says now.
pub(crate) fn now() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    // Both parts are positive: the origin is the boot.
    Time(t.tv_sec.unsigned_abs() * NANOS + t.tv_nsec.unsigned_abs())
}

/// An alarm on CLOCK_BOOTTIME. The runtime's own timers use CLOCK_MONOTONIC, which stands still
/// while the machine sleeps: they would wake a sleeper far too late.
pub(crate) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    at: Time,
}

impl Alarm {
    /// An alarm that is not set. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the kernel gives no timer.
    pub(crate) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        // SAFETY: the descriptor is open and owned by the AsyncFd from here on: nothing else closes it,
        // and an OwnedFd names the same descriptor as long as it lives.
        let timer = unsafe { AsyncFd::register(timer) }.map_err(io::Error::from)?;
        Ok(Alarm { timer, at: Time::FAR })
    }

    /// Sets the alarm; [`Time::FAR`] switches it off.
    ///
    /// # Errors
    /// When the kernel refuses, which it has no reason to.
    pub(crate) fn set(&mut self, at: Time) -> io::Result<()> {
        if at == self.at {
            return Ok(());
        }
        // All zero switches a timer off, so the origin itself becomes the instant after it.
        let nanos = if at == Time::FAR { 0 } else { at.0.max(1) };
        let it_value = Timespec {
            tv_sec: i64::try_from(nanos / NANOS).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % NANOS).unwrap_or(0),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        self.at = at;
        Ok(())
    }

    /// Ready when the time has come; the alarm is then off.
    pub(crate) fn poll_rung(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = std::task::ready!(self.timer.poll_read_ready(cx))?;
            let mut count = [0; 8];
            match rustix::io::read(ready.get_inner(), &mut count) {
                Ok(_) => {
                    self.at = Time::FAR;
                    return Poll::Ready(Ok(()));
                }
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => (),
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Waits until the time has come. May be dropped at any point without losing a ring.
    ///
    /// # Errors
    /// As [`Alarm::set`].
    pub(crate) async fn rung(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_rung(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn on_runtime<F: Future>(f: impl FnOnce() -> F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { f().await })
    }

    #[test]
    fn an_alarm_rings_not_before_its_time_and_can_be_set_again() {
        on_runtime(|| async {
            let mut alarm = Alarm::new().unwrap();
            for delay in [Duration::from_millis(3), Duration::ZERO, Duration::from_millis(1)] {
                let at = now() + delay;
                alarm.set(at).unwrap();
                alarm.rung().await.unwrap();
                assert!(now() >= at);
            }
            alarm.set(Time::ZERO).unwrap();
            alarm.rung().await.unwrap();
        });
    }

    #[test]
    fn an_alarm_switched_off_or_postponed_does_not_ring_at_the_old_time() {
        on_runtime(|| async {
            let mut alarm = Alarm::new().unwrap();
            alarm.set(now()).unwrap();
            let later = now() + Duration::from_millis(5);
            alarm.set(later).unwrap();
            alarm.rung().await.unwrap();
            assert!(now() >= later);
            alarm.set(now() + Duration::from_millis(1)).unwrap();
            alarm.set(Time::FAR).unwrap();
            let other = tokio::time::timeout(Duration::from_millis(20), alarm.rung()).await;
            assert!(other.is_err(), "an alarm that is off does not ring");
        });
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let a = now();
        assert!(now() >= a && a > Time::ZERO);
    }
}

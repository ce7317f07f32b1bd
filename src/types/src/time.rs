//! Time as a number. The pure crates never ask for it: it is an argument of every call.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// Nanoseconds on a clock that never goes back, from an origin that means nothing. Which clock it
/// is (CLOCK_MONOTONIC on servers, CLOCK_BOOTTIME in clients, virtual in the simulator) is the
/// caller's business; two `Time`s of different clocks must not be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than every deadline.
    pub const FAR: Time = Time(u64::MAX);

    /// A time so many milliseconds after the origin.
    pub const fn from_millis(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// Whole milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds of a duration, as far as they fit.
pub fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole milliseconds of a duration, as far as they fit.
pub fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(nanos(d)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(d)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

//! The one place of the server that asks a clock: CLOCK_MONOTONIC, which stands still while the host
//! is suspended, so that a suspended server expires nobody (DESIGN section 2); and CLOCK_BOOTTIME, which
//! goes on, so that a suspended leader does not believe in its lease (section 7).

use std::sync::OnceLock;
use std::time::Instant;

use palisade_types::Time;
use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds since a moment shortly before the first call. Never goes back, and is the
/// same clock on every thread of the process. (`Instant` is CLOCK_MONOTONIC on Linux.)
pub fn now() -> Time {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    // One second ahead of zero, so that subtracting a small margin never meets the origin.
    let elapsed = ORIGIN.get_or_init(Instant::now).elapsed();
    Time(1_000_000_000 + u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX / 2))
}

/// Now on CLOCK_BOOTTIME, the clock of leases: it never goes back and has another origin than
/// [`now`], with which it must not be compared.
pub fn lease_now() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    // Both parts are positive: the origin is the boot.
    Time(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

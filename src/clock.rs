//! The one place of the server that asks a clock: CLOCK_MONOTONIC, which stands still while the host
//! is suspended, so that a suspended server expires nobody (DESIGN section 2).

use std::sync::OnceLock;
use std::time::Instant;

use palisade_types::Time;

/// Now, in nanoseconds since a moment shortly before the first call. Never goes back, and is the
/// same clock on every thread of the process. (`Instant` is CLOCK_MONOTONIC on Linux.)
pub fn now() -> Time {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    // One second ahead of zero, so that subtracting a small margin never meets the origin.
    let elapsed = ORIGIN.get_or_init(Instant::now).elapsed();
    Time(1_000_000_000 + u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX / 2))
}

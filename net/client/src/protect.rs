//! Work under a lock that does not begin when too little of the lease is left (DESIGN section 15). What makes it
//! safe is the fence that it shows; this keeps work that cannot be done in time from being begun.

use std::time::Duration;

use palisade_types::Fence;

use crate::error::{LostReason, TooLate};
use crate::lock::Guard;

impl Guard {
    /// How long a write that begins now may take at the most, to be handed to the resource as the write's own
    /// timeout: nine tenths of [`Guard::remaining`], so that its end is heard of before the lock is given up. Zero once it
    /// is lost. A resource that gives up in time narrows the window in which a late write can arrive; only the fence
    /// closes it.
    pub fn write_deadline(&self) -> Duration {
        self.remaining() / 10 * 9
    }

    /// Begins the work if at least this much is left for it ([`Guard::write_deadline`]), with the fence to show
    /// with every write. Work that has begun goes on to its end: watch [`Guard::lost`] in it if it can stop.
    ///
    /// ```no_run
    /// # async fn example(guard: palisade_client::Guard) -> Result<(), palisade_client::TooLate> {
    /// # async fn book(_: &palisade_client::Fence, _: std::time::Duration) -> u64 { 7 }
    /// let within = std::time::Duration::from_secs(2);
    /// let booked = guard.protect(within, |fence| async move { book(&fence, within).await }).await?;
    /// # let _: u64 = booked;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TooLate`] when less is left; nothing has begun. Worth another try after the next renewal, unless the lock is
    /// lost.
    pub async fn protect<T, F: Future<Output = T>>(
        &self,
        needs: Duration,
        work: impl FnOnce(Fence) -> F,
    ) -> Result<T, TooLate> {
        self.in_time(needs)?;
        Ok(work(self.fence().clone()).await)
    }

    /// Whether so much is left.
    pub(crate) fn in_time(&self, needs: Duration) -> Result<(), TooLate> {
        let left = self.write_deadline();
        match left >= needs && !left.is_zero() {
            true => Ok(()),
            false => Err(TooLate { needs, left, lost: self.lost_by_now() }),
        }
    }
}

/// For [`TooLate`].
pub(crate) struct Why<'a>(pub(crate) &'a Option<LostReason>);

impl std::fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(reason) => write!(f, "the lock is lost: {reason}"),
            None => f.write_str("try again after the next renewal, or with a longer TTL"),
        }
    }
}

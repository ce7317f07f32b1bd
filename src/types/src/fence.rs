//! Fences, and the one rule a protected resource applies (DESIGN section 1).

use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use crate::ids::{Epoch, digits};
use crate::name::{Key, NameError};

/// What a grant hands to its holder, to be shown to the protected resource with every write.
///
/// `Fence` has no `Ord`: epochs of different keys are not comparable. Prints and parses as
/// `key@epoch/barrier`, where the last `@` splits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fence {
    key: Key,
    epoch: Epoch,
    barrier: Epoch,
}

/// Why something is no fence, or two fences cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// The barrier is above the epoch, or the epoch is 0 or too large.
    #[error("a fence has 1 <= barrier <= epoch < 2^63, not epoch {epoch}, barrier {barrier}")]
    OutOfRange {
        /// The epoch given.
        epoch: u64,
        /// The barrier given.
        barrier: u64,
    },
    /// The text does not read `key@epoch/barrier`.
    #[error("a fence reads key@epoch/barrier")]
    Syntax,
    /// The key is no name.
    #[error("the key of the fence is no name: {0}")]
    Key(#[from] NameError),
    /// The two fences belong to different keys; their epochs say nothing about each other.
    #[error("fences of different keys cannot be compared")]
    DifferentKeys,
}

impl Fence {
    /// A fence, checked.
    ///
    /// # Errors
    /// [`FenceError::OutOfRange`] unless `1 <= barrier <= epoch < 2^63`.
    pub fn new(key: Key, epoch: Epoch, barrier: Epoch) -> Result<Fence, FenceError> {
        if barrier.0 == 0 || barrier > epoch || epoch > Epoch::MAX {
            return Err(FenceError::OutOfRange { epoch: epoch.0, barrier: barrier.0 });
        }
        Ok(Fence { key, epoch, barrier })
    }

    /// The key this grant is of.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The number of this grant among the grants of its key.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The epoch below which everybody is out.
    pub fn barrier(&self) -> Epoch {
        self.barrier
    }

    /// Which of two fences of one key is the newer grant.
    ///
    /// # Errors
    /// [`FenceError::DifferentKeys`] when the keys differ.
    pub fn compare(&self, other: &Fence) -> Result<Ordering, FenceError> {
        if self.key != other.key {
            return Err(FenceError::DifferentKeys);
        }
        Ok(self.epoch.cmp(&other.epoch))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}/{}", self.key, self.epoch, self.barrier)
    }
}

impl FromStr for Fence {
    type Err = FenceError;

    fn from_str(text: &str) -> Result<Fence, FenceError> {
        let (key, numbers) = text.rsplit_once('@').ok_or(FenceError::Syntax)?;
        let (epoch, barrier) = numbers.split_once('/').ok_or(FenceError::Syntax)?;
        let number = |t: &str| digits::<u64>(t).ok_or(FenceError::Syntax);
        Fence::new(Key::new(key)?, Epoch(number(epoch)?), Epoch(number(barrier)?))
    }
}

/// The number a protected resource stores for each key. It starts at 0 and must be read, checked
/// and raised in the same atomic, durable step as the write that it protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Floor(pub u64);

/// The resource refuses: somebody newer has acted. Do not retry without a new grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("superseded: this grant has epoch {epoch}, the resource wants at least {floor}; do not retry")]
pub struct Refused {
    /// The epoch shown.
    pub epoch: Epoch,
    /// The floor stored.
    pub floor: u64,
}

impl Floor {
    /// The rule: accept iff `epoch >= floor`, then `floor = max(floor, barrier)`. Returns the floor
    /// to store with the write.
    ///
    /// # Errors
    /// [`Refused`] when the epoch is below the floor.
    pub fn admit(self, fence: &Fence) -> Result<Floor, Refused> {
        if fence.epoch.0 < self.0 {
            return Err(Refused { epoch: fence.epoch, floor: self.0 });
        }
        Ok(Floor(self.0.max(fence.barrier.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn fence(key: &str, epoch: u64, barrier: u64) -> Fence {
        Fence::new(Key::new(key).unwrap(), Epoch(epoch), Epoch(barrier)).unwrap()
    }

    #[test]
    fn prints_and_parses_splitting_at_the_last_at_sign() {
        for f in [fence("a", 1, 1), fence("mail@host/x@y", 12, 7)] {
            assert_eq!(f.to_string().parse::<Fence>().unwrap(), f);
        }
        assert_eq!(fence("a@b", 3, 2).to_string(), "a@b@3/2");
    }

    #[test]
    fn refuses_what_is_no_fence() {
        for text in ["", "a", "a@1", "@1/1", "a@1/2", "a@0/0", "a@+1/1", "a@9223372036854775808/1", "a@1/1 "]
        {
            assert!(text.parse::<Fence>().is_err(), "{text}");
        }
    }

    #[test]
    fn fences_of_different_keys_do_not_compare() {
        assert_eq!(fence("a", 2, 2).compare(&fence("b", 1, 1)), Err(FenceError::DifferentKeys));
        assert_eq!(fence("a", 2, 2).compare(&fence("a", 1, 1)), Ok(Ordering::Greater));
    }

    #[test]
    fn a_newer_exclusive_holder_shuts_out_the_zombie_and_shared_holders_do_not_shut_out_each_other() {
        let zombie = fence("k", 1, 1);
        let floor = Floor::default().admit(&zombie).unwrap();
        assert_eq!(floor.admit(&zombie), Ok(Floor(1)), "equal epochs are accepted");
        let floor = floor.admit(&fence("k", 2, 2)).unwrap();
        assert_eq!(floor.admit(&zombie), Err(Refused { epoch: Epoch(1), floor: 2 }));
        let floor = floor.admit(&fence("k", 4, 3)).unwrap();
        assert_eq!(floor.admit(&fence("k", 3, 3)), Ok(Floor(3)), "a shared holder below a joining one stays");
    }
}

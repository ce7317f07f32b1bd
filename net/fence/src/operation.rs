//! Operation ids: so that a retried operation happens once (DESIGN section 16).
//!
//! A fence says who may write, and accepts equal epochs, for a holder writes many times. Whether *this* write was done
//! before is another question: a holder that got no answer, or the successor that takes over its job, asks again under
//! the same id. Ids belong to a resource and hold across epochs.

use std::fmt;

use palisade_types::Epoch;
use palisade_types::name::{Name, NameError};

/// Names one operation upon a resource, whoever attempts it and how often: the number of the order it books, or the
/// date of the report it writes. A name like any other, 1 to 512 bytes. Not drawn at random by whoever attempts it: a
/// successor must come to the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperationId(Name);

impl OperationId {
    /// Checks a text.
    ///
    /// # Errors
    /// See [`palisade_types::name::check`].
    pub fn new(text: &str) -> Result<OperationId, NameError> {
        Name::new(text).map(OperationId)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of an operation that was attempted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It was done, under the grant with this epoch. It must not be done again.
    Done {
        /// The epoch it was done under.
        epoch: Epoch,
    },
    /// It was begun under the grant with this epoch, and nothing tells whether it was done: the process that did it
    /// died, or got no answer. Only the resource itself can tell; [`crate::FenceGate::settle`] takes what it says.
    Unknown {
        /// The epoch it was begun under.
        epoch: Epoch,
    },
}

/// The answer to the beginning of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nobody has begun it before: it is on record now, and shall be done.
    New,
    /// It was attempted before.
    Before(Past),
}

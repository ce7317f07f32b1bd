//! What a gate must remember, durably.

use palisade_types::{Epoch, Fence, Key, Name};

use crate::error::Failed;
use crate::operation::{Begun, OperationId};

/// The durable memory of a gate: a floor for each key, and the operations of each resource. A gate that forgets a floor lets
/// the next zombie in, so what a call has recorded must be on stable storage when it returns.
///
/// Calls may come from several threads; each must be atomic against the others.
pub trait Ledger {
    /// Why the storage failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Applies the rule of [`palisade_types::Floor::admit`] to the key's floor, and returns once the floor it gave is durable.
    ///
    /// # Errors
    /// [`Failed::Refused`] when the epoch is below the floor; [`Failed::Ledger`] when the storage failed, and then nothing is
    /// admitted.
    fn admit(&self, fence: &Fence) -> Result<(), Failed<Self::Error>>;

    /// The same, and in one step with it puts the operation on record as begun, unless it is on record already; then nothing of
    /// it is changed.
    ///
    /// # Errors
    /// As for [`Ledger::admit`].
    fn begin(
        &self,
        fence: &Fence,
        resource: &Name,
        operation: &OperationId,
    ) -> Result<Begun, Failed<Self::Error>>;

    /// Puts on record that the operation was done under this epoch, unless it is on record as done already.
    ///
    /// # Errors
    /// When the storage failed: the operation counts as begun, and its outcome as unknown.
    fn done(&self, resource: &Name, operation: &OperationId, epoch: Epoch) -> Result<(), Self::Error>;

    /// Takes an operation off the record, which certainly was not done. One that is on record as done stays there, and the
    /// answer is the epoch it was done under.
    ///
    /// # Errors
    /// When the storage failed.
    fn not_done(&self, resource: &Name, operation: &OperationId) -> Result<Option<Epoch>, Self::Error>;

    /// The floor of a key, 0 if nobody has been admitted for it.
    ///
    /// # Errors
    /// When the storage failed.
    fn floor(&self, key: &Key) -> Result<u64, Self::Error>;
}

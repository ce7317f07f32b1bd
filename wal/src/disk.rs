//! simulated disk
use palisade_types::Rng;
use crate::op::*;
/// A disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {}
impl SimDisk {
    /// Begins.
    pub fn begin(&mut self, _op: DiskOp) {}
    /// Completes.
    ///
    /// # Errors
    /// fault
    pub fn complete(&mut self, _id: OpId) -> Result<(), DiskFault> { Ok(()) }
    /// Crash.
    pub fn crash(&mut self, _rng: &mut Rng) {}
}

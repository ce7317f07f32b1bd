//! Values: what a candidate of an election, or a key that lives with its session, says to others.

use alloc::sync::Arc;

/// Any bytes, at most [`crate::limits::VALUE_BYTES_MAX`] of them: whoever reads one from outside checks
/// that. Cloning shares them.
pub type Value = Arc<[u8]>;

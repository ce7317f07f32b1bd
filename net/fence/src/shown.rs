//! What a writer shows: a fence as it came, or one whose signature was verified.

use palisade_types::Fence;

/// A [`Fence`], or a [`VerifiedFence`](crate::VerifiedFence): what a [`FenceGate`](crate::FenceGate) or
/// [`FencedFile`](crate::FencedFile) is shown. There is no third.
pub trait Shown: sealed::Sealed {
    /// The fence itself.
    fn as_fence(&self) -> &Fence;
}

impl Shown for Fence {
    fn as_fence(&self) -> &Fence {
        self
    }
}

#[cfg(feature = "signed")]
impl Shown for crate::VerifiedFence {
    fn as_fence(&self) -> &Fence {
        self.fence()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for palisade_types::Fence {}
    #[cfg(feature = "signed")]
    impl Sealed for crate::VerifiedFence {}
}

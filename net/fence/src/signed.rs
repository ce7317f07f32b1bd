//! Signed fences: whoever holds the cluster's public key can tell, offline, a grant from an epoch that somebody invented.
//!
//! What is signed ([`message`]) names the cluster, the key, the epoch and the barrier. A signature proves that the cluster
//! once made this grant, and no more: whoever has got hold of a signed fence can show it, so it is a bearer's token for its
//! epoch, and whether that epoch is over is still told by the floor.

use ed25519_dalek::Signer as _;
use palisade_types::{ClusterIdentity, Fence, Signature, SignedFence};

use crate::keys::{PublicKey, SigningKey};

/// What every signed message begins with: nothing else that the same key might sign does, and another version of it will begin
/// otherwise.
pub const DOMAIN: &[u8; 16] = b"palisade-fence/1";

/// The bytes that are signed: [`DOMAIN`], then the cluster's identity, the epoch and the barrier, 8 bytes each, the length of the
/// key, 2 bytes, and the key in UTF-8. All numbers are little-endian. What has a fixed length comes first and the length of the
/// rest before it, so no two fences have the same bytes.
pub fn message(cluster: ClusterIdentity, fence: &Fence) -> Vec<u8> {
    let key = fence.key().as_bytes();
    let mut bytes = Vec::with_capacity(DOMAIN.len() + 3 * 8 + 2 + key.len());
    bytes.extend_from_slice(DOMAIN);
    for number in [cluster.0, fence.epoch().0, fence.barrier().0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    // A key has at most 512 bytes.
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes
}

/// Signs the fences of one cluster. The same fence gets the same signature, whichever node signs it and however often.
#[derive(Clone, Debug)]
pub struct Signer {
    cluster: ClusterIdentity,
    key: SigningKey,
}

impl Signer {
    /// Signs for this cluster with this key.
    pub fn new(cluster: ClusterIdentity, key: SigningKey) -> Signer {
        Signer { cluster, key }
    }

    /// The signature of a fence.
    pub fn sign(&self, fence: &Fence) -> Signature {
        Signature(self.key.0.sign(&message(self.cluster, fence)).to_bytes())
    }
}

/// Why a fence is not taken for one of the cluster's. Final: stop; the same fence and signature will never do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no key that is accepted has signed {fence} for the cluster {cluster}: it is invented, of another cluster (or of this one \
     before it was restored), or was signed with a key that is no longer accepted"
)]
pub struct Unverified {
    /// What was shown.
    pub fence: Fence,
    /// The cluster whose fences are accepted.
    pub cluster: ClusterIdentity,
}

/// A [`Verifier`] without a key would refuse everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("signatures are to be verified, and no public key is given")]
pub struct NoKeys;

/// Tells fences of one cluster from all others, by its public keys. While the cluster's key is replaced it has two: see
/// `net/fence/FENCING.md`.
#[derive(Clone, Debug)]
pub struct Verifier {
    cluster: ClusterIdentity,
    keys: Vec<PublicKey>,
}

impl Verifier {
    /// Accepts what one of these keys has signed for the cluster of this identity, which `palisade status` shows.
    ///
    /// # Errors
    /// [`NoKeys`].
    pub fn new(
        cluster: ClusterIdentity,
        keys: impl IntoIterator<Item = PublicKey>,
    ) -> Result<Verifier, NoKeys> {
        let keys: Vec<PublicKey> = keys.into_iter().collect();
        if keys.is_empty() { Err(NoKeys) } else { Ok(Verifier { cluster, keys }) }
    }

    /// The cluster whose fences it accepts.
    pub fn cluster(&self) -> ClusterIdentity {
        self.cluster
    }

    /// Verifies a fence, by the strict rules: a signature fits one message and one key.
    ///
    /// # Errors
    /// [`Unverified`] when no key of the list has signed exactly this fence for this cluster.
    pub fn verify(&self, signed: SignedFence) -> Result<VerifiedFence, Unverified> {
        let SignedFence { fence, signature } = signed;
        let message = message(self.cluster, &fence);
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        match self.keys.iter().any(|key| key.0.verify_strict(&message, &signature).is_ok()) {
            true => Ok(VerifiedFence(fence)),
            false => Err(Unverified { fence, cluster: self.cluster }),
        }
    }
}

/// A fence that the cluster has granted: only a [`Verifier`] makes one. Which verifier it was is not told by the type: a program
/// with verifiers of several clusters shows each gate what was verified for its own.
///
/// ```compile_fail
/// # use palisade_fence::{Fence, VerifiedFence};
/// fn trust(fence: Fence) -> VerifiedFence {
///     VerifiedFence(fence)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedFence(Fence);

impl VerifiedFence {
    /// The fence.
    pub fn fence(&self) -> &Fence {
        &self.0
    }
}

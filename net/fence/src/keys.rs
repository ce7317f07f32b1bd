//! The keys that fences are signed and verified with, as `openssl` writes them.

use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey};

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is no private key of Ed25519.
    #[error(
        "it holds no private Ed25519 key in PEM (PKCS#8, one block BEGIN PRIVATE KEY, not encrypted): make one with \
         `openssl genpkey -algorithm ed25519`"
    )]
    Private,
    /// It is no public key of Ed25519.
    #[error(
        "it holds no public Ed25519 key in PEM (one block BEGIN PUBLIC KEY): make it from the cluster's with `openssl \
         pkey -in PRIVATE -pubout`"
    )]
    Public,
    /// It is one of the few keys under which one signature fits many messages.
    #[error("it is a weak key, which proves nothing")]
    Weak,
}

/// The key that a cluster signs its fences with. All its nodes hold the same one, and nobody else. It is wiped from memory when
/// dropped, and never printed.
#[derive(Clone)]
pub struct SigningKey(pub(crate) ed25519_dalek::SigningKey);

impl SigningKey {
    /// Reads a private key as `openssl genpkey -algorithm ed25519` makes it.
    ///
    /// # Errors
    /// [`KeyError::Private`] when it is none.
    pub fn from_pem(pem: &str) -> Result<SigningKey, KeyError> {
        ed25519_dalek::SigningKey::from_pkcs8_pem(pem.trim()).map(SigningKey).map_err(|_| KeyError::Private)
    }

    /// What verifies its signatures.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey(of {:?})", self.public())
    }
}

/// The public part of a [`SigningKey`], which resources hold. Prints as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub(crate) ed25519_dalek::VerifyingKey);

impl PublicKey {
    /// Reads a public key as `openssl pkey -pubout` makes it.
    ///
    /// # Errors
    /// [`KeyError::Public`] when it is none, [`KeyError::Weak`] when it proves nothing.
    pub fn from_pem(pem: &str) -> Result<PublicKey, KeyError> {
        let key = ed25519_dalek::VerifyingKey::from_public_key_pem(pem.trim());
        let key = key.map_err(|_| KeyError::Public)?;
        if key.is_weak() { Err(KeyError::Weak) } else { Ok(PublicKey(key)) }
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

//! Signed fences: the key, and which grants are signed. The state machine knows nothing of it: a signature is made where a grant
//! is encoded for its owner, and only if a key is configured.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use palisade_fence::{KeyError, Signer, SigningKey};
use palisade_types::{Class, ConnId, Fence, Reply, Signature};
use palisade_wire::{Push, VERSION_SIGNED};

use super::core::Core;

/// No file of a key is longer.
const KEY_BYTES_MAX: u64 = 16 << 10;

/// Why the key that fences are signed with cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// The file cannot be read.
    #[error("{file}: the key of `fence_signing_key` cannot be read: {error}")]
    Read {
        /// Which.
        file: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It is a directory, a pipe or the like.
    #[error("{file}: `fence_signing_key` names no plain file")]
    NoFile {
        /// Which.
        file: PathBuf,
    },
    /// Others than its owner may read or write it.
    #[error(
        "{file}: the key of `fence_signing_key` has mode {mode:04o}, so others than its owner may use it: replace it if they \
         may have, and `chmod 600` it"
    )]
    Exposed {
        /// Which.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is no key.
    #[error("{file}: `fence_signing_key`: {why}")]
    Key {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        why: KeyError,
    },
}

/// Reads the key. A relative path starts at the node's directory.
///
/// # Errors
/// See [`SigningKeyError`].
pub(crate) fn read_key(dir: &Path, path: &Path) -> Result<SigningKey, SigningKeyError> {
    let file = dir.join(path);
    let unreadable = |error| SigningKeyError::Read { file: file.clone(), error };
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(&file).map_err(unreadable)?.is_file() {
        return Err(SigningKeyError::NoFile { file });
    }
    let open = File::open(&file).map_err(unreadable)?;
    let mode = open.metadata().map_err(unreadable)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SigningKeyError::Exposed { file, mode });
    }
    let mut text = String::new();
    open.take(KEY_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    SigningKey::from_pem(&text).map_err(|why| SigningKeyError::Key { file, why })
}

impl Core {
    /// Signs from now on, if there is a key: which cluster this is is known.
    pub(super) fn begin_signing(&mut self) {
        let cluster = self.members.cluster_identity();
        if let Some(key) = self.signing_key.take() {
            tracing::info!(%cluster, public_key = %key.public(), "grants are signed");
            self.signer = Some(Signer::new(cluster, key));
        }
    }

    /// The signature that goes with a reply, if it is a grant that is signed.
    #[inline]
    pub(super) fn signature_with(&self, conn: ConnId, reply: &Reply) -> Option<Signature> {
        let signer = self.signer.as_ref()?;
        let Reply::Granted { fence, .. } = reply else { return None };
        self.sign(signer, conn, fence)
    }

    /// The signature that goes with a push, if it is a grant that is signed.
    #[inline]
    pub(super) fn signature_with_push(&self, conn: ConnId, push: &Push) -> Option<Signature> {
        let signer = self.signer.as_ref()?;
        let Push::Granted { fence, .. } = push else { return None };
        self.sign(signer, conn, fence)
    }

    fn sign(&self, signer: &Signer, conn: ConnId, fence: &Fence) -> Option<Signature> {
        if self.sockets.get(conn)?.version < VERSION_SIGNED {
            return None;
        }
        // A grant without a record is over, and so would be what is signed.
        let class = self.shard.as_ref()?.machine().class(fence.key())?;
        if class == Class::Advisory {
            return None;
        }
        self.metrics.fences_signed.one();
        Some(signer.sign(fence))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PEM: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";

    #[test]
    fn a_key_that_others_may_read_is_refused_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fence.pem");
        std::fs::write(&path, PEM).unwrap();
        let with = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_key(dir.path(), Path::new("fence.pem"))
        };
        for mode in [0o600, 0o400, 0o700] {
            assert!(with(mode).is_ok(), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644] {
            let error = with(mode).unwrap_err();
            assert!(matches!(error, SigningKeyError::Exposed { .. }), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let read = |path: &str| read_key(dir.path(), Path::new(path)).unwrap_err();
        assert!(matches!(read("missing"), SigningKeyError::Read { .. }));
        assert!(matches!(read("."), SigningKeyError::NoFile { .. }));
        let path = dir.path().join("bad");
        std::fs::write(&path, "no key").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = read("bad");
        assert!(matches!(error, SigningKeyError::Key { .. }));
        let text = error.to_string();
        assert!(text.contains("bad: ") && text.contains("openssl genpkey"), "{text}");
    }
}

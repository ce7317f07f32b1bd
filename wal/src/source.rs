//! Where recovery reads from.

use alloc::string::String;
use alloc::vec::Vec;

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is no such file or directory.
    #[error("{file}: not found")]
    NotFound {
        /// The name asked for.
        file: String,
    },
    /// The system refused.
    #[error("{file}: {reason}")]
    Io {
        /// The name asked for.
        file: String,
        /// What the system said.
        reason: String,
    },
}

/// A node's directory as recovery sees it; names are relative to it.
///
/// What is read counts as durable from then on: an implementation over a real file system syncs a
/// file before it reads it and a directory before it lists it. Bytes that a killed process left in
/// the page cache would otherwise be acknowledged and then lost in a power cut.
pub trait Source {
    /// The names of the files in a directory, without the directory, in any order.
    ///
    /// # Errors
    /// [`SourceError`].
    fn list(&self, dir: &str) -> Result<Vec<String>, SourceError>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read(&self, file: &str) -> Result<Vec<u8>, SourceError>;

    /// The first `len` bytes of a file, or all if it has fewer. Worth overriding where files are large.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read_start(&self, file: &str, len: usize) -> Result<Vec<u8>, SourceError> {
        let mut bytes = self.read(file)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Up to `len` bytes from byte `offset` on; fewer where the file ends. Worth overriding where files
    /// are large.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read_part(&self, file: &str, offset: u64, len: usize) -> Result<Vec<u8>, SourceError> {
        let bytes = self.read(file)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[from..bytes.len().min(from.saturating_add(len))].to_vec())
    }
}

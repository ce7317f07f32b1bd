//! A file whose writers show a fence.
//!
//! Beside the file `data` lie `data.lock`, which writers lock in turn and nobody removes, and `data.fence`, the floor
//! and the operations done ([`Record`]). A write makes its content durable under another name, then replaces
//! `data.fence` by one rename, which is the moment at which the write counts, and then renames the content into place. Whoever
//! comes next after a crash finishes the last step first. So floor, operation and content change together.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use palisade_types::{Epoch, Fence, Key};

use crate::error::{Failed, FileError};
use crate::operation::OperationId;
use crate::record::{Record, Step};
use crate::shown::Shown;

/// How many operations a file remembers, unless [`FencedFile::keep_operations`] says otherwise.
const OPERATIONS_KEPT: usize = 10_000;

/// What became of a write that shall be done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was done now.
    Now,
    /// It was done before, under the grant with this epoch, and not again.
    Before {
        /// The epoch it was done under.
        epoch: Epoch,
    },
}

/// A file that is replaced as a whole by writers that show a fence of one key. All writers must use this type, on a
/// local file system: where the lock of one host does not stop another (some network file systems) nothing is protected.
///
/// A writer that is stopped in the middle of a write holds the others up until it goes on or ends; it cannot write after
/// a newer one has.
#[derive(Clone, Debug)]
pub struct FencedFile<F = Fence> {
    path: PathBuf,
    key: Key,
    keep: usize,
    shown: PhantomData<fn(&F)>,
}

impl FencedFile {
    /// The file at this path, protected by this key. Nothing is opened or made yet; its directory must exist.
    pub fn new(path: impl Into<PathBuf>, key: Key) -> FencedFile {
        FencedFile { path: path.into(), key, keep: OPERATIONS_KEPT, shown: PhantomData }
    }

    /// The same file for writers whose fence's signature was verified, and no others. All writers must ask for this: the state
    /// beside the file does not tell.
    #[cfg(feature = "signed")]
    #[must_use]
    pub fn require_signed(self) -> FencedFile<crate::VerifiedFence> {
        FencedFile { path: self.path, key: self.key, keep: self.keep, shown: PhantomData }
    }
}

impl<F: Shown> FencedFile<F> {
    /// How many operations are remembered, 10,000 by default, the oldest forgotten first: a retry that comes after so many others
    /// is done again. Each costs about its length in every write.
    #[must_use]
    pub fn keep_operations(mut self, most: usize) -> FencedFile<F> {
        self.keep = most;
        self
    }

    /// Replaces the content, if the fence is not superseded. It is on stable storage when this returns.
    ///
    /// # Errors
    /// [`Failed::Refused`] and [`Failed::WrongKey`] are final and nothing has changed. After [`Failed::Ledger`] the
    /// write may or may not have taken place, as a whole.
    pub fn write(&self, fence: &F, content: &[u8]) -> Result<(), Failed<FileError>> {
        self.replace(fence.as_fence(), None, content).map(|_| ())
    }

    /// The same, unless an operation of this id was done before, under whatever epoch.
    ///
    /// # Errors
    /// As for [`FencedFile::write`]. A retry finds out whether it was done.
    pub fn write_once(
        &self,
        fence: &F,
        operation: &OperationId,
        content: &[u8],
    ) -> Result<Written, Failed<FileError>> {
        self.replace(fence.as_fence(), Some(operation), content)
    }

    /// The content; `None` if nothing was written yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self) -> Result<Option<Vec<u8>>, FileError> {
        let _lock = self.lock()?;
        self.finish()?;
        match fs::read(&self.path) {
            Ok(content) => Ok(Some(content)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error("read", &self.path, e)),
        }
    }

    fn replace(
        &self,
        fence: &Fence,
        operation: Option<&OperationId>,
        content: &[u8],
    ) -> Result<Written, Failed<FileError>> {
        if *fence.key() != self.key {
            return Err(Failed::WrongKey { wanted: self.key.clone(), shown: fence.key().clone() });
        }
        let _lock = self.lock().map_err(Failed::Ledger)?;
        let record = self.finish().map_err(Failed::Ledger)?;
        match record.admit(fence, operation, self.keep)? {
            Step::Before { epoch, raised } => {
                if let Some(raised) = raised {
                    let same = fs::read(&self.path).map_err(|e| io_error("read", &self.path, e));
                    same.and_then(|same| self.commit(&raised, &same)).map_err(Failed::Ledger)?;
                }
                Ok(Written::Before { epoch })
            }
            Step::Write(next) => {
                self.commit(&next, content).map_err(Failed::Ledger)?;
                Ok(Written::Now)
            }
        }
    }

    /// The write itself, under the lock.
    fn commit(&self, record: &Record, content: &[u8]) -> Result<(), FileError> {
        let next = self.next(record.number());
        write_durably(&next, content)?;
        let (fence, fence_next) = (self.beside("fence"), self.beside("fence-next"));
        write_durably(&fence_next, record.to_text(&self.key).as_bytes())?;
        rename_durably(&fence_next, &fence)?;
        // From here on the write counts.
        rename_durably(&next, &self.path)
    }

    /// Reads the record, and finishes the write that it says counts.
    fn finish(&self) -> Result<Record, FileError> {
        let path = self.beside("fence");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
            Err(e) => return Err(io_error("read", &path, e)),
        };
        let record =
            Record::parse(&text, &self.key).map_err(|why| FileError::Damaged { path: path.clone(), why })?;
        let next = self.next(record.number());
        if next.try_exists().map_err(|e| io_error("look for", &next, e))? {
            rename_durably(&next, &self.path)?;
        }
        Ok(record)
    }

    /// Waits for its turn among all writers and readers of this file. The lock ends with the value.
    fn lock(&self) -> Result<File, FileError> {
        let path = self.beside("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| io_error("open", &path, e))?;
        file.lock().map_err(|e| io_error("lock", &path, e))?;
        Ok(file)
    }

    /// Where the content of this write lies before it counts.
    fn next(&self, number: u64) -> PathBuf {
        self.beside(&format!("next-{number}"))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".");
        name.push(ending);
        PathBuf::from(name)
    }
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError::Io { what, path: path.to_owned(), source }
}

fn write_durably(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|e| io_error("write", path, e))
}

fn rename_durably(from: &Path, to: &Path) -> Result<(), FileError> {
    let rename = || {
        fs::rename(from, to)?;
        let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    };
    rename().map_err(|e| io_error("rename to", to, e))
}

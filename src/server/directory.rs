//! A node's directory: who may use it, whose it is, and reading and writing it before the executors
//! run. Ordinary blocking file calls; the log's own writes are `disk.rs`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use palisade_shard::StateError;
use palisade_types::StartNonce;
use palisade_wal::{
    BOOT_FILE, BootRecord, IDENTITY_FILE, Identity, IdentityRead, RecoverError, Slots, Source, SourceError,
    identity_file, read_boot, read_identity,
};

/// The lock file. It is never unlinked: a lock on a name that others can replace protects nothing.
pub const LOCK_FILE: &str = "LOCK";

/// Why a directory is not usable.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// There is no such directory.
    #[error("{}: no such directory: make it with `palisade format`", dir.display())]
    Missing {
        /// Which.
        dir: PathBuf,
    },
    /// It is empty, or a format of it was never finished.
    #[error("{}: not formatted: make it with `palisade format`", dir.display())]
    Unformatted {
        /// Which.
        dir: PathBuf,
    },
    /// It holds other things.
    #[error("{}: holds `{entry}` and no {IDENTITY_FILE}: this is no directory of a Palisade node, it is left alone", dir.display())]
    Foreign {
        /// Which.
        dir: PathBuf,
        /// One of the things in it.
        entry: String,
    },
    /// Another process uses it.
    #[error("{}: in use by another process, which has locked it", dir.display())]
    InUse {
        /// Which.
        dir: PathBuf,
    },
    /// What it holds cannot be used.
    #[error("{}: {error}", dir.display())]
    Recover {
        /// Which.
        dir: PathBuf,
        /// Why.
        error: RecoverError,
    },
    /// The state in its snapshot cannot be used.
    #[error("{}: {error}", dir.display())]
    State {
        /// Which.
        dir: PathBuf,
        /// Why.
        error: StateError,
    },
    /// The system refused.
    #[error("{}: {op}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        op: &'static str,
        /// Why not.
        error: io::Error,
    },
}

/// Makes an error of a failed call on a path.
pub(crate) fn failed<'a>(path: &'a Path, op: &'static str) -> impl FnOnce(io::Error) -> DirectoryError + 'a {
    move |error| DirectoryError::Io { path: path.to_owned(), op, error }
}

/// Exclusive use of a directory, until dropped or the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    /// The lock that counts: nothing in the directory can be deleted to get around it.
    _dir: File,
    /// What earlier versions lock.
    _file: File,
}

/// Locks a directory that holds an identity, before anything in it is read.
///
/// # Errors
/// When it is in use, or is no formatted directory; see [`DirectoryError`].
pub fn lock(dir: &Path) -> Result<DirectoryLock, DirectoryError> {
    let whole = match lock_whole(dir) {
        Err(DirectoryError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            return Err(DirectoryError::Missing { dir: dir.to_owned() });
        }
        other => other?,
    };
    let path = dir.join(LOCK_FILE);
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            explain_missing(dir)?;
            open_lock(&path)?
        }
        Err(e) => return Err(failed(&path, "open")(e)),
    };
    take(dir, &path, &file)?;
    Ok(DirectoryLock { _dir: whole, _file: file })
}

/// Locks a directory that is about to be formatted; makes the lock file.
///
/// # Errors
/// When it is in use, or the file cannot be made.
pub(crate) fn lock_new(dir: &Path) -> Result<DirectoryLock, DirectoryError> {
    let whole = lock_whole(dir)?;
    let path = dir.join(LOCK_FILE);
    let file = open_lock(&path)?;
    take(dir, &path, &file)?;
    Ok(DirectoryLock { _dir: whole, _file: file })
}

/// Locks the directory itself. The descriptor is closed in whatever this process starts.
fn lock_whole(dir: &Path) -> Result<File, DirectoryError> {
    let file = File::open(dir).map_err(failed(dir, "open"))?;
    take(dir, dir, &file)?;
    let (locked, named) = (file.metadata(), std::fs::metadata(dir));
    let locked = locked.map_err(failed(dir, "stat"))?;
    let named = named.map_err(failed(dir, "stat"))?;
    if (locked.dev(), locked.ino()) != (named.dev(), named.ino()) {
        // Another directory was put in its place meanwhile.
        return Err(DirectoryError::InUse { dir: dir.to_owned() });
    }
    Ok(file)
}

fn open_lock(path: &Path) -> Result<File, DirectoryError> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    options.map_err(failed(path, "create"))
}

fn take(dir: &Path, path: &Path, file: &File) -> Result<(), DirectoryError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(failed(path, "lock")(e)),
    }
}

/// Whether there is an identity although the lock file is not; if there is none, says what there is.
fn explain_missing(dir: &Path) -> Result<(), DirectoryError> {
    if dir.join(IDENTITY_FILE).exists() {
        return Ok(());
    }
    match entries(dir) {
        Err(DirectoryError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            Err(DirectoryError::Missing { dir: dir.to_owned() })
        }
        Err(other) => Err(other),
        Ok(entries) => Err(match entries.into_iter().next() {
            None => DirectoryError::Unformatted { dir: dir.to_owned() },
            Some(entry) => DirectoryError::Foreign { dir: dir.to_owned(), entry },
        }),
    }
}

/// The names in a directory, in order.
pub(crate) fn entries(dir: &Path) -> Result<Vec<String>, DirectoryError> {
    let list = std::fs::read_dir(dir).map_err(failed(dir, "read the directory"))?;
    let mut names = Vec::new();
    for entry in list {
        let entry = entry.map_err(failed(dir, "read the directory"))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Reads the identity of a locked directory; a damaged copy is repaired from the other.
///
/// # Errors
/// See [`DirectoryError`].
pub(crate) fn identity(dir: &Path) -> Result<Identity, DirectoryError> {
    let recover = |error| DirectoryError::Recover { dir: dir.to_owned(), error };
    let bytes = match DirectorySource(dir).read(IDENTITY_FILE) {
        Ok(bytes) => bytes,
        Err(SourceError::NotFound { .. }) => return Err(no_identity(dir)),
        Err(e) => return Err(recover(RecoverError::Source(e))),
    };
    let IdentityRead { identity, copy_damaged } = read_identity(&bytes).map_err(recover)?;
    if copy_damaged {
        tracing::warn!(
            file = IDENTITY_FILE,
            "one copy of the identity is damaged; it is written anew from the other"
        );
        write_new(dir, IDENTITY_FILE, &identity_file(&identity))?;
    }
    Ok(identity)
}

fn no_identity(dir: &Path) -> DirectoryError {
    match entries(dir) {
        Err(error) => error,
        Ok(names) => match names.into_iter().find(|n| !is_ours(n)) {
            Some(entry) => DirectoryError::Foreign { dir: dir.to_owned(), entry },
            None => DirectoryError::Unformatted { dir: dir.to_owned() },
        },
    }
}

/// Whether an unfinished format leaves a name like this.
pub(crate) fn is_ours(name: &str) -> bool {
    name == LOCK_FILE
        || name == BOOT_FILE
        || name == crate::config::FILE
        || name == "shard-0000"
        || name.ends_with(".tmp")
}

/// Counts a start, with a nonce drawn for it, durably and returns the record then in force.
///
/// # Errors
/// See [`DirectoryError`].
pub(crate) fn raise_boot(dir: &Path, identity: &Identity) -> Result<Slots<BootRecord>, DirectoryError> {
    let recover = |error| DirectoryError::Recover { dir: dir.to_owned(), error };
    let bytes = DirectorySource(dir).read(BOOT_FILE).map_err(|e| match e {
        SourceError::NotFound { file } => recover(RecoverError::Missing { file }),
        other => recover(RecoverError::Source(other)),
    })?;
    let mut slots = read_boot(identity, &bytes).map_err(recover)?;
    if slots.is_incomplete() {
        tracing::info!(file = BOOT_FILE, "a copy was not written to its end; the next one replaces it");
        write_boot(dir, &mut slots, |_| ())?;
    }
    let nonce = draw_nonce()?;
    write_boot(dir, &mut slots, |record| record.starts.begin(nonce))?;
    Ok(slots)
}

fn draw_nonce() -> Result<StartNonce, DirectoryError> {
    let mut bytes = [0; 16];
    crate::format::read_random(&mut bytes)?;
    Ok(StartNonce(u128::from_le_bytes(bytes)))
}

/// Writes the next generation: one copy, a sync, the other copy, a sync.
fn write_boot(
    dir: &Path,
    slots: &mut Slots<BootRecord>,
    change: impl FnOnce(&mut BootRecord),
) -> Result<(), DirectoryError> {
    let path = dir.join(BOOT_FILE);
    let file = OpenOptions::new().write(true).open(&path).map_err(failed(&path, "open"))?;
    let mut record = slots.value().clone();
    change(&mut record);
    let staged = slots.stage(record);
    for (offset, page) in &staged.copies {
        file.write_all_at(page, *offset).map_err(failed(&path, "write"))?;
        file.sync_data().map_err(failed(&path, "fdatasync"))?;
    }
    slots.commit(staged);
    Ok(())
}

/// Makes a file durable under its name, whole or not at all: written beside, synced, renamed, and
/// the directory synced.
pub(crate) fn write_new(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), DirectoryError> {
    let path = dir.join(name);
    let beside = dir.join(format!("{name}.tmp"));
    let file = File::create(&beside).map_err(failed(&beside, "create"))?;
    file.write_all_at(bytes, 0).map_err(failed(&beside, "write"))?;
    file.sync_all().map_err(failed(&beside, "fsync"))?;
    std::fs::rename(&beside, &path).map_err(failed(&path, "rename"))?;
    sync_dir(path.parent().unwrap_or(dir))
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), DirectoryError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(failed(dir, "fsync"))
}

/// A directory as recovery reads it. A file is synced before it is read and a directory before it is
/// listed: bytes that a killed process left in the page cache must not be acknowledged and then lost
/// with the power.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectorySource<'a>(pub(crate) &'a Path);

impl DirectorySource<'_> {
    fn explain(name: &str) -> impl Fn(io::Error) -> SourceError + '_ {
        move |e| {
            if e.kind() == ErrorKind::NotFound {
                SourceError::NotFound { file: name.to_owned() }
            } else {
                SourceError::Io { file: name.to_owned(), reason: e.to_string() }
            }
        }
    }
}

impl DirectorySource<'_> {
    fn open(&self, file: &str) -> Result<File, SourceError> {
        let handle = File::open(self.0.join(file)).map_err(Self::explain(file))?;
        handle.sync_all().map_err(Self::explain(file))?;
        Ok(handle)
    }
}

impl Source for DirectorySource<'_> {
    fn list(&self, dir: &str) -> Result<Vec<String>, SourceError> {
        let path = self.0.join(dir);
        File::open(&path).and_then(|d| d.sync_all()).map_err(Self::explain(dir))?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(Self::explain(dir))? {
            let entry = entry.map_err(Self::explain(dir))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, SourceError> {
        let mut bytes = Vec::new();
        self.open(file)?.read_to_end(&mut bytes).map_err(Self::explain(file))?;
        Ok(bytes)
    }

    fn read_start(&self, file: &str, len: usize) -> Result<Vec<u8>, SourceError> {
        self.read_part(file, 0, len)
    }

    fn read_part(&self, file: &str, offset: u64, len: usize) -> Result<Vec<u8>, SourceError> {
        let handle = self.open(file)?;
        let mut bytes = vec![0; len];
        let mut read = 0;
        while read < len {
            match handle.read_at(&mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Self::explain(file)(e)),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }
}

//! Where the host's files are read: below `/`, or below a directory of fixtures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file of the host gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    /// It is not there: mostly the kernel has no such feature.
    #[error("{0} is not there")]
    Absent(String),
    /// It is there and cannot be read.
    #[error("{path} cannot be read: {error}")]
    Failed {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// It reads, but as nothing known.
    #[error("{path} says {text:?}, which is not understood")]
    Strange {
        /// Which.
        path: String,
        /// What it says, shortened.
        text: String,
    },
}

impl Unread {
    fn of(path: &str, error: io::Error) -> Unread {
        if error.kind() == io::ErrorKind::NotFound {
            Unread::Absent(path.to_owned())
        } else {
            Unread::Failed { path: path.to_owned(), error }
        }
    }

    /// A text that makes no sense, as far as it matters.
    pub(crate) fn strange(path: &str, text: &str) -> Unread {
        const SHOWN: usize = 60;
        Unread::Strange { path: path.to_owned(), text: text.chars().take(SHOWN).collect() }
    }
}

/// A file system tree that looks like `/`.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// This host.
    pub(crate) fn host() -> Root {
        Root(PathBuf::from("/"))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// The text of a file, without white space around it.
    ///
    /// # Errors
    /// When it is absent or unreadable.
    pub(crate) fn read(&self, path: &str) -> Result<String, Unread> {
        let bytes = fs::read(self.path(path)).map_err(|e| Unread::of(path, e))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Reads a file and makes sense of it.
    ///
    /// # Errors
    /// When it is absent, unreadable or makes no sense.
    pub(crate) fn parse<T>(&self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Unread> {
        let text = self.read(path)?;
        parse(&text).ok_or_else(|| Unread::strange(path, &text))
    }

    /// The sorted names in a directory.
    ///
    /// # Errors
    /// When it is absent or unreadable.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, Unread> {
        let entries = fs::read_dir(self.path(path)).map_err(|e| Unread::of(path, e))?;
        let mut names: Vec<String> =
            entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Whether something is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The last part of where a symbolic link points.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

/// The nearest directory that exists at or above `dir`, without symbolic links.
///
/// # Errors
/// When not even `/` can be looked at.
pub(crate) fn nearest(dir: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for above in absolute.ancestors() {
        match above.canonicalize() {
            Ok(path) if path.is_dir() => return Ok(path),
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// A directory of fixtures for the tests of the checks.
#[cfg(test)]
pub(crate) struct Fixture(tempfile::TempDir);

#[cfg(test)]
impl Fixture {
    /// Files with their texts.
    pub(crate) fn new(files: &[(&str, &str)]) -> Fixture {
        let fixture = Fixture(tempfile::tempdir().expect("a directory of fixtures"));
        for (path, text) in files {
            fixture.write(path, text);
        }
        fixture
    }

    /// Adds or replaces a file.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().path(path);
        fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.root().path(path);
        fs::create_dir_all(path.parent().expect("a link lies in a directory")).expect("made");
        std::os::unix::fs::symlink(target, path).expect("linked");
    }

    /// The tree.
    pub(crate) fn root(&self) -> Root {
        Root(self.0.path().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_strange_and_readable_files_are_told_apart() {
        let fixture = Fixture::new(&[("/proc/number", "12\n"), ("/proc/word", "twelve\n")]);
        let root = fixture.root();
        let number = |text: &str| text.parse::<u64>().ok();
        assert_eq!(root.parse("/proc/number", number).unwrap(), 12);
        assert!(matches!(root.parse("/proc/word", number), Err(Unread::Strange { .. })));
        assert!(matches!(root.parse("/proc/none", number), Err(Unread::Absent(_))));
        assert!(matches!(root.read("/proc"), Err(Unread::Failed { .. })));
        assert_eq!(root.names("/proc").unwrap(), ["number", "word"]);
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_judged_by_the_one_above() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(nearest(&dir.path().join("a/b")).unwrap(), real);
        assert_eq!(nearest(dir.path()).unwrap(), real);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(nearest(&file).is_err());
    }
}

//! What the disk under a directory does with small synchronous writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::timed;

/// The unit of a write: what O_DIRECT takes on every common disk.
const PAGE: usize = 4096;
/// The pages of the file; longer measurements go round.
const PAGES: usize = 256;

/// Memory as O_DIRECT wants it.
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// What many writes cost, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Half of the writes took no longer.
    pub(crate) p50: u64,
    /// 99 of 100 took no longer.
    pub(crate) p99: u64,
    /// How many were made.
    pub(crate) writes: usize,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Whether a write with O_DIRECT succeeds.
    pub(crate) direct: io::Result<()>,
    /// A write with O_DIRECT, then fdatasync: what the log does.
    pub(crate) fdatasync: io::Result<Cost>,
    /// A write with O_DIRECT and O_DSYNC.
    pub(crate) dsync: io::Result<Cost>,
}

/// Removes its file, however the probe ends.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // A name that cannot be removed could not be made either.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes into a small file in `dir` that was filled with zeros, as the log's segments are. The name is
/// gone again before the first measured write, so that even a kill leaves nothing.
///
/// # Errors
/// When the file cannot be made.
pub(crate) fn probe(dir: &Path, iterations: usize) -> io::Result<Probe> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".palisade-doctor-{}-{count}", std::process::id()));
    let mut plain = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let name = Temporary(path);
    plain.write_all(&vec![0; PAGE * PAGES])?;
    plain.sync_all()?;
    let open = |flags| OpenOptions::new().write(true).custom_flags(flags).open(&name.0);
    let direct = open(libc::O_DIRECT);
    let dsync = open(libc::O_DIRECT | libc::O_DSYNC);
    drop(name);
    let mut page = Box::new(Page([0; PAGE]));
    let iterations = iterations.max(1);
    Ok(Probe {
        direct: match &direct {
            Ok(file) => write(file, &mut page, 0),
            Err(error) => Err(same(error)),
        },
        fdatasync: direct.and_then(|file| {
            let one = |file: &File, page: &mut Page, n| write(file, page, n).and_then(|()| file.sync_data());
            measure(&file, &mut page, iterations, one)
        }),
        dsync: dsync.and_then(|file| measure(&file, &mut page, iterations, write)),
    })
}

/// An error once more: they cannot be copied.
fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

/// One write; no two look alike, so that no layer below can skip one.
fn write(file: &File, page: &mut Page, n: usize) -> io::Result<()> {
    page.0[..8].copy_from_slice(&(n as u64 + 1).to_le_bytes());
    file.write_all_at(&page.0, (n % PAGES * PAGE) as u64)
}

fn measure(
    file: &File,
    page: &mut Page,
    iterations: usize,
    one: impl Fn(&File, &mut Page, usize) -> io::Result<()>,
) -> io::Result<Cost> {
    let mut times = Vec::new();
    for n in 0..iterations {
        times.push(timed(|| one(file, page, n))?);
    }
    Ok(cost(times))
}

/// The percentiles of some times, by nearest rank.
fn cost(mut times: Vec<Duration>) -> Cost {
    times.sort_unstable();
    let rank = |percent: usize| {
        let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(at).map_or(0, |t| u64::try_from(t.as_micros()).unwrap_or(u64::MAX))
    };
    Cost { p50: rank(50), p99: rank(99), writes: times.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times = |n: u64| (1..=n).rev().map(Duration::from_micros).collect::<Vec<_>>();
        assert_eq!(cost(times(200)), Cost { p50: 100, p99: 198, writes: 200 });
        assert_eq!(cost(times(1)), Cost { p50: 1, p99: 1, writes: 1 });
        assert_eq!(cost(Vec::new()), Cost { p50: 0, p99: 0, writes: 0 });
    }

    #[test]
    fn a_probe_leaves_nothing_behind_and_makes_as_many_writes_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let found = probe(dir.path(), 3).unwrap();
        // Whether O_DIRECT works depends on the disk; that both are consistent does not.
        assert_eq!(found.direct.is_ok(), found.fdatasync.is_ok());
        assert!(found.fdatasync.map_or(true, |c| c.writes == 3));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn where_nothing_can_be_made_the_probe_says_so() {
        let dir = tempfile::tempdir().unwrap();
        assert!(probe(&dir.path().join("none"), 1).is_err());
    }

    #[test]
    fn a_file_is_removed_even_when_the_probe_ends_early() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("probe");
        fs::write(&path, "").unwrap();
        let early = || -> io::Result<()> {
            let _name = Temporary(path.clone());
            Err(io::ErrorKind::StorageFull.into())
        };
        assert!(early().is_err() && !path.exists());
    }
}

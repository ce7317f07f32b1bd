//! Performs the log's operations: [`writer`] writes batches and the chunks of snapshots and syncs them,
//! [`files`] makes, cuts, renames, removes and reads files. Which operations may run side by side is decided by whoever made them. A failed write or
//! sync ends the process: what the disk holds is then unknown, and a second sync would only claim
//! success. But for a lack of space for a snapshot, and a read that failed: the log is told, and goes on.

mod files;
mod progress;
mod sys;
mod writer;

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use palisade_types::time::nanos;
use palisade_wal::{DiskFault, DiskOp};

use super::inbox::{Inbox, Owner};
use super::metrics::Metrics;
use crate::clock;

use files::Files;
use writer::{Writer, Written};

/// The files of a node's directory.
pub(crate) struct Disk {
    writer: Writer,
    files: Files,
    inbox: Rc<Inbox>,
    metrics: Arc<Metrics>,
    /// Kept for its allocation.
    written: Vec<Written>,
}

impl Disk {
    /// Prepares the executor it is called on for file work.
    ///
    /// # Errors
    /// The directory cannot be written, or not with O_DIRECT; or the kernel gives no ring.
    pub(crate) async fn open(dir: &Path, inbox: Rc<Inbox>, metrics: Arc<Metrics>) -> Result<Disk, DiskFault> {
        let files = Files::open(dir, Rc::clone(&inbox), Arc::clone(&metrics)).await?;
        let writer = Writer::new(dir.to_owned())
            .map_err(|e| io_fault("the ring of the log", "io_uring_setup", e.raw_os_error()))?;
        Ok(Disk { writer, files, inbox, metrics, written: Vec::new() })
    }

    /// Starts an operation; its end is reported to the inbox, that of a write by [`Disk::reap`].
    pub(crate) fn start(&mut self, owner: Owner, op: DiskOp) {
        self.inbox.disk_started();
        if is_segment(op.file()) {
            self.files.logged(op.bytes());
        }
        match op {
            DiskOp::Write { id, file, parts } => {
                if let Err(fault) = self.writer.start(owner, id, file, &parts, clock::now()) {
                    super::fatal(&format!("the disk failed: {fault}"));
                }
            }
            other => {
                if let DiskOp::Rename { file, .. } | DiskOp::Remove { file, .. } = &other {
                    self.writer.forget(file);
                }
                self.files.start(owner, other);
            }
        }
    }

    /// Takes what the kernel has done of the writes.
    pub(crate) fn reap(&mut self) {
        self.writer.reap(&mut self.written);
        for Written { owner, id, file, bytes, since, result } in self.written.drain(..) {
            match &result {
                Err(DiskFault::NoSpace { .. }) if is_snapshot(&file) => {}
                Err(fault) => super::fatal(&format!("the disk failed: {fault}")),
                Ok(()) => self.metrics.syncs.one(),
            }
            if is_segment(&file) {
                self.metrics.log_batches.one();
            }
            if !is_snapshot(&file) {
                self.metrics.sync_ns.add(nanos(clock::now().since(since)));
            }
            self.metrics.synced_bytes.add(bytes);
            self.inbox.disk_done(owner, id, result.map(|()| Bytes::new()));
        }
    }

    /// How urgently the executor is wanted: for files being made or cut.
    pub(crate) fn files_wanted(&self) -> Wanted {
        self.files.wanted()
    }
}

impl AsRawFd for Disk {
    /// Readable when [`Disk::reap`] has something to take.
    fn as_raw_fd(&self) -> RawFd {
        self.writer.as_raw_fd()
    }
}

/// Who waits for the work of the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// There is none.
    Nobody,
    /// Nobody yet: a file is made ahead of its use.
    Later,
    /// The log.
    Now,
}

/// Whether a file is a segment of a log, and no slots file.
fn is_segment(file: &str) -> bool {
    file.contains("/wal-")
}

/// Whether a file is a snapshot, finished or not.
fn is_snapshot(file: &str) -> bool {
    file.contains("/snap-")
}

fn io_fault(file: &str, op: &'static str, errno: Option<i32>) -> DiskFault {
    match errno {
        Some(libc::ENOSPC | libc::EDQUOT) => DiskFault::NoSpace { file: file.to_owned() },
        errno => DiskFault::Io { file: file.to_owned(), op, errno: errno.unwrap_or(libc::EIO) },
    }
}

#[cfg(test)]
mod tests;

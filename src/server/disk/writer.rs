//! Writes of the log and of snapshots on a ring of their own: all parts of a batch at once, and when the last has
//! arrived, one fdatasync. A ring apart because its descriptor can be waited for beside the sockets,
//! and a step costs one system call; through the executor's rings the same took two to three times
//! the CPU (RESULTS.md).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::rc::Rc;

use palisade_types::Time;
use palisade_wal::op::Part;
use palisade_wal::{DiskFault, OpId, PAGE};

use super::progress::{Next, Progress};
use super::sys::{Completion, Pages, Ring, Tag};
use super::{io_fault, is_segment};
use crate::server::inbox::Owner;

/// Operations in flight at most; each batch has two or three parts, and few are under way at once.
const ENTRIES: u32 = 64;
/// A write that has ended.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) owner: Owner,
    pub(super) id: OpId,
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) since: Time,
    pub(super) result: Result<(), DiskFault>,
}

/// The writes under way.
pub(super) struct Writer {
    dir: PathBuf,
    ring: Ring,
    files: BTreeMap<String, Rc<File>>,
    batches: BTreeMap<u64, Batch>,
    started: u64,
    /// Buffers to use again.
    pool: Vec<Pages>,
}

struct Batch {
    owner: Owner,
    id: OpId,
    name: String,
    file: Rc<File>,
    since: Time,
    bytes: u64,
    parts: Vec<Progress>,
}

impl Writer {
    /// A writer of the files of a directory.
    ///
    /// # Errors
    /// When the kernel gives no ring.
    pub(super) fn new(dir: PathBuf) -> io::Result<Writer> {
        let (files, batches) = (BTreeMap::new(), BTreeMap::new());
        Ok(Writer { dir, ring: Ring::new(ENTRIES)?, files, batches, started: 0, pool: Vec::new() })
    }

    /// Starts a batch. It ends in [`Writer::reap`].
    ///
    /// # Errors
    /// When it could not be started. Some of it may be under way: the process must end.
    pub(super) fn start(
        &mut self,
        owner: Owner,
        id: OpId,
        name: String,
        parts: &[Part],
        now: Time,
    ) -> Result<(), DiskFault> {
        let file = self.file(&name)?;
        assert!(!parts.is_empty(), "a batch has a part");
        self.started += 1;
        let number = self.started;
        let mut batch =
            Batch { owner, id, name, file, since: now, bytes: 0, parts: Vec::with_capacity(parts.len()) };
        for (part, (at, buffers)) in parts.iter().enumerate() {
            assert!(at.is_multiple_of(PAGE as u64), "parts begin at pages");
            let mut pages = self.pool.pop().unwrap_or_else(Pages::new);
            pages.fill(buffers);
            batch.bytes += (pages.len() * PAGE) as u64;
            batch.parts.push(Progress::new(*at, pages.len()));
            assert!(self.ring.has_room(), "the log has few batches under way");
            let tag = Tag { batch: number, part: Some(part) };
            self.ring.write(tag, &batch.file, *at, 0, pages);
        }
        let name = batch.name.clone();
        self.batches.insert(number, batch);
        self.ring.submit().map_err(|e| io_fault(&name, "io_uring_enter", e.raw_os_error()))
    }

    /// Takes what the kernel has done, starts what follows from it, and adds the batches that have
    /// ended to `out`.
    pub(super) fn reap(&mut self, out: &mut Vec<Written>) {
        let mut follows = false;
        while let Some(completion) = self.ring.next() {
            let number = completion.tag.batch;
            let Some(batch) = self.batches.get_mut(&number) else {
                // A part of a batch that has already failed.
                continue;
            };
            let result = step(&mut self.ring, &mut self.pool, batch, completion);
            match result {
                Ok(false) => follows = true,
                Ok(true) => out.extend(self.batches.remove(&number).map(|b| b.end(Ok(())))),
                Err(fault) => out.extend(self.batches.remove(&number).map(|b| b.end(Err(fault)))),
            }
        }
        if follows && let Err(error) = self.ring.submit() {
            let errno = error.raw_os_error();
            for (_, batch) in std::mem::take(&mut self.batches) {
                let fault = io_fault(&batch.name, "io_uring_enter", errno);
                out.push(batch.end(Err(fault)));
            }
        }
    }

    /// The file of this name is another from now on, or none.
    pub(super) fn forget(&mut self, name: &str) {
        self.files.remove(name);
    }

    /// The open file of a name; opened at its first use. Only the newest segments are written: older
    /// ones are closed.
    fn file(&mut self, name: &str) -> Result<Rc<File>, DiskFault> {
        const SEGMENTS_KEPT: usize = 3;
        if let Some(open) = self.files.get(name) {
            return Ok(Rc::clone(open));
        }
        let path = self.dir.join(name);
        let open = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
        let open = Rc::new(open.map_err(|e| io_fault(name, "open", e.raw_os_error()))?);
        self.files.insert(name.to_owned(), Rc::clone(&open));
        // Their numbers are padded: the order of the names is that of the numbers.
        let segments: Vec<String> = self.files.keys().filter(|f| is_segment(f)).cloned().collect();
        for old in &segments[..segments.len().saturating_sub(SEGMENTS_KEPT)] {
            self.files.remove(old);
        }
        Ok(open)
    }
}

impl AsRawFd for Writer {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl Batch {
    fn end(self, result: Result<(), DiskFault>) -> Written {
        let Batch { owner, id, name, bytes, since, .. } = self;
        Written { owner, id, file: name, bytes, since, result }
    }
}

/// One completion of a batch. Returns whether the batch is durable: this is the line.
fn step(
    ring: &mut Ring,
    pool: &mut Vec<Pages>,
    batch: &mut Batch,
    completion: Completion,
) -> Result<bool, DiskFault> {
    let Completion { tag, result, pages } = completion;
    let call = if tag.part.is_some() { "write" } else { "fdatasync" };
    let n = result.map_err(|e| io_fault(&batch.name, call, e.raw_os_error()))?;
    let (Some(part), Some(pages)) = (tag.part, pages) else { return Ok(true) };
    let progress = &mut batch.parts[part];
    match progress.advance(&batch.name, n)? {
        Next::Done => pool.push(pages),
        Next::Again(from) => ring.write(tag, &batch.file, progress.at(), from, pages),
    }
    if batch.parts.iter().all(Progress::is_done) {
        ring.sync(Tag { part: None, ..tag }, &batch.file);
    }
    Ok(false)
}

//! Makes, cuts, renames, removes and reads files with O_DIRECT through glommio. Each operation runs in a task of its own
//! (glommio's file futures must not be polled from a select) and reports to the inbox.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use glommio::GlommioError;
use glommio::io::{Directory, DmaBuffer, DmaFile, OpenOptions};
use glommio::timer::Timer;
use palisade_wal::{DiskFault, DiskOp, DiskResult, PAGE};

use super::progress::{Next, Progress};
use super::{Wanted, io_fault, is_segment};
use crate::server::inbox::{Inbox, Owner};
use crate::server::metrics::Metrics;

/// Zeros are written in pieces of this size: the longest a batch waits behind one.
const ZERO_PIECE: usize = 128 << 10;
/// The pause after each piece of a file that nobody waits for: at most 40 MiB a second, a fraction of
/// what any disk for it can write.
const ZERO_PAUSE: Duration = Duration::from_millis(3);
/// No pause while the file made ahead has less than so many times what the log took in meanwhile. A
/// spare is begun with half a segment to go, so it is there with a quarter left.
const ZEROS_PER_LOGGED: u64 = 4;
/// What the probe file is called; see [`Files::open`].
const PROBE_FILE: &str = "probe.tmp";

/// The files of a node's directory.
pub(super) struct Files {
    shared: Rc<Shared>,
}

struct Shared {
    dir: PathBuf,
    inbox: Rc<Inbox>,
    metrics: Arc<Metrics>,
    /// Operations under way that somebody waits for, and those made ahead.
    now: Cell<usize>,
    later: Cell<usize>,
    /// Bytes of batches handed to the disk so far.
    logged: Cell<u64>,
}

impl Files {
    /// Prepares an executor for file work. The first file an executor opens on a device is probed for
    /// polled I/O by a read; on an empty file the probe is fooled and every later write spins. So the
    /// first file opened is one that has a block to read.
    ///
    /// # Errors
    /// What the probe file met: the directory cannot be written, or not with O_DIRECT.
    pub(super) async fn open(
        dir: &Path,
        inbox: Rc<Inbox>,
        metrics: Arc<Metrics>,
    ) -> Result<Files, DiskFault> {
        let path = dir.join(PROBE_FILE);
        let fault = |op: &'static str| move |e: std::io::Error| io_fault(PROBE_FILE, op, e.raw_os_error());
        std::fs::write(&path, [0; PAGE]).map_err(fault("write"))?;
        let file = DmaFile::open(&path).await.map_err(glommio_fault(PROBE_FILE, "open with O_DIRECT"))?;
        let read = file.read_at_aligned(0, PAGE).await;
        read.map_err(glommio_fault(PROBE_FILE, "read with O_DIRECT"))?;
        file.close().await.map_err(glommio_fault(PROBE_FILE, "close"))?;
        std::fs::remove_file(&path).map_err(fault("remove"))?;
        let (now, later, logged) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Ok(Files { shared: Rc::new(Shared { dir: dir.to_owned(), inbox, metrics, now, later, logged }) })
    }

    /// So many bytes went to a log: a segment made ahead must keep ahead.
    pub(super) fn logged(&self, bytes: u64) {
        self.shared.logged.set(self.shared.logged.get() + bytes);
    }

    /// Starts an operation that is no write; its end is reported to the inbox.
    pub(super) fn start(&self, owner: Owner, op: DiskOp) {
        let shared = Rc::clone(&self.shared);
        let run = async move {
            let later = matches!(op, DiskOp::Create { ahead: true, .. } | DiskOp::Remove { .. });
            let under_way = if later { &shared.later } else { &shared.now };
            under_way.set(under_way.get() + 1);
            let id = op.id();
            let result = shared.perform(&op).await;
            under_way.set(under_way.get() - 1);
            shared.inbox.disk_done(owner, id, result);
        };
        // Never cancelled: the loop ends only when none is in flight, or with the process.
        glommio::spawn_local(run).detach();
    }

    /// Who waits for an operation under way.
    pub(super) fn wanted(&self) -> Wanted {
        match (self.shared.now.get(), self.shared.later.get()) {
            (0, 0) => Wanted::Nobody,
            (0, _) => Wanted::Later,
            _ => Wanted::Now,
        }
    }
}

impl Shared {
    async fn perform(&self, op: &DiskOp) -> DiskResult {
        match op {
            DiskOp::Create { file, size, header, ahead, .. } => {
                self.create(file, *size, header, *ahead).await?;
                if is_segment(file) {
                    self.metrics.segments.one();
                }
            }
            DiskOp::Rename { file, to, .. } => {
                let renamed = glommio::io::rename(self.dir.join(file), self.dir.join(to)).await;
                renamed.map_err(glommio_fault(file, "rename"))?;
                self.sync_directory(to).await?;
            }
            DiskOp::Remove { file, .. } => {
                match glommio::io::remove(self.dir.join(file)).await {
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                    result => result.map_err(glommio_fault(file, "unlink"))?,
                }
                self.sync_directory(file).await?;
            }
            DiskOp::Read { file, offset, len, .. } => return self.read(file, *offset, *len).await,
            DiskOp::Truncate { file, len, .. } => self.truncate(file, *len).await?,
            DiskOp::Write { .. } => unreachable!("writes are the writer's"),
        }
        self.metrics.synced_bytes.add(op.bytes());
        Ok(Bytes::new())
    }

    async fn read(&self, file: &str, offset: u64, len: usize) -> DiskResult {
        let open = DmaFile::open(self.dir.join(file)).await;
        let handle = open.map_err(glommio_fault(file, "open"))?;
        let read = handle.read_at_aligned(offset, len).await.map_err(glommio_fault(file, "read"));
        let bytes = read.map(|r| Bytes::copy_from_slice(&r));
        handle.close().await.map_err(glommio_fault(file, "close"))?;
        bytes
    }

    async fn sync_directory(&self, file: &str) -> Result<(), DiskFault> {
        let path = self.dir.join(file);
        let parent = path.parent().unwrap_or(&self.dir);
        let dir = Directory::open(parent).await.map_err(glommio_fault(file, "open its directory"))?;
        dir.sync().await.map_err(glommio_fault(file, "fsync of its directory"))?;
        self.metrics.syncs.one();
        dir.close().await.map_err(glommio_fault(file, "close its directory"))
    }

    async fn create(&self, file: &str, size: u64, header: &[u8], ahead: bool) -> Result<(), DiskFault> {
        let path = self.dir.join(file);
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).dma_open(&path).await;
        let handle = options.map_err(glommio_fault(file, "create"))?;
        // The allocation first: a full disk is met before a byte is written.
        handle.pre_allocate(size, false).await.map_err(glommio_fault(file, "fallocate"))?;
        let logged_before = self.logged.get();
        let mut at = 0;
        while at < size {
            let piece = usize::try_from(size - at).unwrap_or(ZERO_PIECE).min(ZERO_PIECE);
            let mut buffer = handle.alloc_dma_buffer(piece);
            buffer.as_bytes_mut().fill(0);
            write_whole(file, &handle, at, buffer).await?;
            at += piece as u64;
            if ahead && at >= (self.logged.get() - logged_before) * ZEROS_PER_LOGGED {
                Timer::new(ZERO_PAUSE).await;
            }
        }
        let mut first = handle.alloc_dma_buffer(header.len());
        first.as_bytes_mut().copy_from_slice(header);
        write_whole(file, &handle, 0, first).await?;
        self.sync(file, &handle).await?;
        self.sync_directory(file).await?;
        handle.close().await.map_err(glommio_fault(file, "close"))
    }

    async fn truncate(&self, file: &str, len: u64) -> Result<(), DiskFault> {
        let path = self.dir.join(file);
        let open = OpenOptions::new().read(true).write(true).dma_open(&path).await;
        let handle = open.map_err(glommio_fault(file, "open"))?;
        handle.truncate(len).await.map_err(glommio_fault(file, "ftruncate"))?;
        self.sync(file, &handle).await?;
        handle.close().await.map_err(glommio_fault(file, "close"))
    }

    async fn sync(&self, file: &str, handle: &DmaFile) -> Result<(), DiskFault> {
        handle.fdatasync().await.map_err(glommio_fault(file, "fdatasync"))?;
        self.metrics.syncs.one();
        Ok(())
    }
}
/// Writes a buffer of whole pages to its last byte.
async fn write_whole(file: &str, handle: &DmaFile, at: u64, buffer: DmaBuffer) -> Result<(), DiskFault> {
    let mut progress = Progress::new(at, buffer.len() / PAGE);
    let buffer = Rc::new(buffer);
    let mut n = handle.write_rc_at(Rc::clone(&buffer), at).await.map_err(glommio_fault(file, "write"))?;
    while let Next::Again(page) = progress.advance(file, n)? {
        let from = page * PAGE;
        let mut rest = handle.alloc_dma_buffer(buffer.len() - from);
        rest.as_bytes_mut().copy_from_slice(&buffer.as_bytes()[from..]);
        n = handle.write_at(rest, at + from as u64).await.map_err(glommio_fault(file, "write"))?;
    }
    Ok(())
}

fn glommio_fault<'a>(file: &'a str, op: &'static str) -> impl Fn(GlommioError<()>) -> DiskFault + 'a {
    move |error| io_fault(file, op, error.raw_os_error())
}

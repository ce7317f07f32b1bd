//! Performs the log's operations with O_DIRECT through glommio. Each runs in a task of its own
//! (glommio's file futures must not be polled from a select) and reports to the inbox; which may run
//! side by side is decided by whoever made them. A failed write or sync ends the process: what the
//! disk holds is then unknown, and a second sync would only claim success.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use glommio::GlommioError;
use glommio::io::{Directory, DmaFile, OpenOptions};
use glommio::timer::Timer;
use palisade_wal::op::Part;
use palisade_wal::{DiskFault, DiskOp};

use super::inbox::{Inbox, Owner};
use super::metrics::Metrics;
use crate::clock;

/// Zeros are written in pieces of this size: the longest a batch waits behind one.
const ZERO_PIECE: usize = 128 << 10;
/// The pause after each piece of a file that nobody waits for: 40 MiB a second, some times what the
/// busiest log takes in, and a fraction of what any disk for it can write.
const ZERO_PAUSE: Duration = Duration::from_millis(3);
const ALIGNMENT: u64 = 4096;
/// What the probe file is called; see [`Disk::open`].
const PROBE_FILE: &str = "probe.tmp";

/// The files of a node's directory.
pub(crate) struct Disk {
    shared: Rc<Shared>,
}

struct Shared {
    dir: PathBuf,
    files: RefCell<HashMap<String, Rc<DmaFile>>>,
    inbox: Rc<Inbox>,
    metrics: Arc<Metrics>,
}

impl Disk {
    /// Prepares an executor for file work. The first file an executor opens on a device is probed for
    /// polled I/O by a read; on an empty file the probe is fooled and every later write spins. So the
    /// first file opened is one that has a block to read.
    ///
    /// # Errors
    /// What the probe file met: the directory cannot be written, or not with O_DIRECT.
    pub(crate) async fn open(dir: &Path, inbox: Rc<Inbox>, metrics: Arc<Metrics>) -> Result<Disk, DiskFault> {
        let path = dir.join(PROBE_FILE);
        let fault = |op: &'static str| move |e: std::io::Error| io_fault(PROBE_FILE, op, e.raw_os_error());
        std::fs::write(&path, [0; ALIGNMENT as usize]).map_err(fault("write"))?;
        let file = DmaFile::open(&path).await.map_err(glommio_fault(PROBE_FILE, "open with O_DIRECT"))?;
        let read = file.read_at_aligned(0, ALIGNMENT as usize).await;
        read.map_err(glommio_fault(PROBE_FILE, "read with O_DIRECT"))?;
        file.close().await.map_err(glommio_fault(PROBE_FILE, "close"))?;
        std::fs::remove_file(&path).map_err(fault("remove"))?;
        let shared = Shared { dir: dir.to_owned(), files: RefCell::default(), inbox, metrics };
        Ok(Disk { shared: Rc::new(shared) })
    }

    /// Starts an operation; its end is reported to the inbox.
    pub(crate) fn start(&self, owner: Owner, op: DiskOp) {
        self.shared.inbox.disk_started();
        let shared = Rc::clone(&self.shared);
        let run = async move {
            let id = op.id();
            let result = shared.perform(&op).await;
            if let (Err(fault), DiskOp::Write { .. }) = (&result, &op) {
                super::fatal(&format!("the disk failed: {fault}"));
            }
            shared.inbox.disk_done(owner, id, result);
        };
        // Never cancelled: the loop ends only when none is in flight, or with the process.
        glommio::spawn_local(run).detach();
    }
}

impl Shared {
    async fn perform(self: &Rc<Shared>, op: &DiskOp) -> Result<(), DiskFault> {
        let start = clock::now();
        match op {
            DiskOp::Create { file, size, header, ahead, .. } => {
                self.create(file, *size, header, *ahead).await?;
                self.metrics.segments.one();
            }
            DiskOp::Write { file, parts, .. } => {
                self.write(file, parts).await?;
                if is_segment(file) {
                    self.metrics.log_batches.one();
                }
                self.metrics.sync_ns.add(palisade_types::time::nanos(clock::now().since(start)));
            }
            DiskOp::Truncate { file, len, .. } => {
                let handle = self.handle(file).await?;
                handle.truncate(*len).await.map_err(glommio_fault(file, "ftruncate"))?;
                self.sync(file, &handle).await?;
            }
        }
        self.metrics.synced_bytes.add(op.bytes());
        Ok(())
    }

    /// The open file of a name; opened at its first use and kept.
    async fn handle(&self, file: &str) -> Result<Rc<DmaFile>, DiskFault> {
        if let Some(open) = self.files.borrow().get(file) {
            return Ok(Rc::clone(open));
        }
        let path = self.dir.join(file);
        let open = OpenOptions::new().read(true).write(true).dma_open(&path).await;
        let open = Rc::new(open.map_err(glommio_fault(file, "open"))?);
        self.keep(file, &open);
        Ok(open)
    }

    /// Keeps a file open. Only the newest two segments are written; the handles of older ones go.
    fn keep(&self, file: &str, open: &Rc<DmaFile>) {
        const SEGMENTS_KEPT: usize = 3;
        let mut files = self.files.borrow_mut();
        files.insert(file.to_owned(), Rc::clone(open));
        let mut segments: Vec<String> = files.keys().filter(|f| is_segment(f)).cloned().collect();
        // Their numbers are padded: the order of the names is that of the numbers.
        segments.sort();
        let surplus = segments.len().saturating_sub(SEGMENTS_KEPT);
        for old in &segments[..surplus] {
            files.remove(old);
        }
    }

    async fn create(
        self: &Rc<Shared>,
        file: &str,
        size: u64,
        header: &[u8],
        ahead: bool,
    ) -> Result<(), DiskFault> {
        let path = self.dir.join(file);
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).dma_open(&path).await;
        let handle = Rc::new(options.map_err(glommio_fault(file, "create"))?);
        // The allocation first: a full disk is met before a byte is written.
        handle.pre_allocate(size, false).await.map_err(glommio_fault(file, "fallocate"))?;
        let mut at = 0;
        while at < size {
            let piece = usize::try_from(size - at).unwrap_or(ZERO_PIECE).min(ZERO_PIECE);
            let mut buffer = handle.alloc_dma_buffer(piece);
            buffer.as_bytes_mut().fill(0);
            write_whole(file, &handle, at, buffer).await?;
            at += piece as u64;
            if ahead {
                Timer::new(ZERO_PAUSE).await;
            }
        }
        let mut first = handle.alloc_dma_buffer(header.len());
        first.as_bytes_mut().copy_from_slice(header);
        write_whole(file, &handle, 0, first).await?;
        self.sync(file, &handle).await?;
        let parent = path.parent().unwrap_or(&self.dir);
        let dir = Directory::open(parent).await.map_err(glommio_fault(file, "open its directory"))?;
        dir.sync().await.map_err(glommio_fault(file, "fsync of its directory"))?;
        self.metrics.syncs.one();
        dir.close().await.map_err(glommio_fault(file, "close its directory"))?;
        self.keep(file, &handle);
        Ok(())
    }

    /// All parts side by side, then one sync. This is the line where a batch becomes durable.
    async fn write(self: &Rc<Shared>, file: &str, parts: &[Part]) -> Result<(), DiskFault> {
        let handle = self.handle(file).await?;
        let mut others = Vec::new();
        let (first, rest) = match parts.split_first() {
            Some(split) => split,
            None => return Ok(()),
        };
        for part in rest {
            let (handle, name) = (Rc::clone(&handle), file.to_owned());
            let (at, buffer) = gather(&handle, part);
            others.push(glommio::spawn_local(async move { write_whole(&name, &handle, at, buffer).await }));
        }
        let (at, buffer) = gather(&handle, first);
        write_whole(file, &handle, at, buffer).await?;
        for other in others {
            other.await?;
        }
        self.sync(file, &handle).await
    }

    async fn sync(&self, file: &str, handle: &DmaFile) -> Result<(), DiskFault> {
        handle.fdatasync().await.map_err(glommio_fault(file, "fdatasync"))?;
        self.metrics.syncs.one();
        Ok(())
    }
}

/// Whether a file is a segment of a log, and no slots file.
fn is_segment(file: &str) -> bool {
    file.contains("/wal-")
}

/// A part's buffers, one behind the other in memory that O_DIRECT takes.
fn gather(handle: &DmaFile, (at, buffers): &Part) -> (u64, glommio::io::DmaBuffer) {
    let total: usize = buffers.iter().map(bytes::Bytes::len).sum();
    let mut out = handle.alloc_dma_buffer(total);
    let bytes = out.as_bytes_mut();
    let mut filled = 0;
    for buffer in buffers {
        bytes[filled..filled + buffer.len()].copy_from_slice(buffer);
        filled += buffer.len();
    }
    assert!(
        at.is_multiple_of(ALIGNMENT) && (total as u64).is_multiple_of(ALIGNMENT),
        "parts are whole pages"
    );
    (*at, out)
}

/// Writes a buffer to its last byte: what a short write left is written again from a page edge.
async fn write_whole(
    file: &str,
    handle: &DmaFile,
    at: u64,
    buffer: glommio::io::DmaBuffer,
) -> Result<(), DiskFault> {
    let total = buffer.len();
    let buffer = Rc::new(buffer);
    let mut written =
        handle.write_rc_at(Rc::clone(&buffer), at).await.map_err(glommio_fault(file, "write"))?;
    while written < total {
        let from = written - written % ALIGNMENT as usize;
        let mut rest = handle.alloc_dma_buffer(total - from);
        rest.as_bytes_mut().copy_from_slice(&buffer.as_bytes()[from..]);
        let more = handle.write_at(rest, at + from as u64).await.map_err(glommio_fault(file, "write"))?;
        if from + more <= written {
            return Err(DiskFault::Short {
                file: file.to_owned(),
                wanted: total as u64,
                written: written as u64,
            });
        }
        written = from + more;
    }
    Ok(())
}

fn io_fault(file: &str, op: &'static str, errno: Option<i32>) -> DiskFault {
    match errno {
        Some(libc::ENOSPC | libc::EDQUOT) => DiskFault::NoSpace { file: file.to_owned() },
        errno => DiskFault::Io { file: file.to_owned(), op, errno: errno.unwrap_or(libc::EIO) },
    }
}

fn glommio_fault<'a>(file: &'a str, op: &'static str) -> impl Fn(GlommioError<()>) -> DiskFault + 'a {
    move |error| io_fault(file, op, error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use glommio::{LocalExecutorBuilder, Placement};
    use palisade_wal::OpId;

    fn on_executor<T: Send + 'static>(
        run: impl AsyncFnOnce(Disk, Rc<Inbox>, Arc<Metrics>) -> T + Send + 'static,
        dir: &Path,
    ) -> T {
        let dir = dir.to_owned();
        let builder = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20);
        let handle = builder.spawn(move || async move {
            let inbox = Rc::new(Inbox::default());
            let metrics = Arc::new(Metrics::default());
            let disk = Disk::open(&dir, Rc::clone(&inbox), Arc::clone(&metrics)).await.unwrap();
            run(disk, inbox, metrics).await
        });
        handle.unwrap().join().unwrap()
    }

    async fn done(disk: &Disk, inbox: &Inbox, op: DiskOp) -> Result<(), DiskFault> {
        disk.start(Owner::Shard, op);
        std::future::poll_fn(|cx| inbox.poll(cx)).await;
        match inbox.take().pop() {
            Some(super::super::inbox::Event::Disk { result, .. }) => result,
            other => panic!("{other:?}"),
        }
    }

    fn scratch() -> tempfile::TempDir {
        // Beside the build, which lies on a disk: /tmp may be memory.
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
        std::fs::create_dir_all(&base).unwrap();
        tempfile::tempdir_in(base).unwrap()
    }

    #[test]
    fn what_is_reported_done_is_in_the_file() {
        let dir = scratch();
        let path = dir.path().to_owned();
        on_executor(
            async |disk, inbox, metrics| {
                let file = "wal-1".to_owned();
                let header = Bytes::from(vec![7; 4096]);
                let create =
                    DiskOp::Create { id: OpId(1), file: file.clone(), size: 3 << 20, header, ahead: true };
                done(&disk, &inbox, create).await.unwrap();
                let parts = vec![
                    (8192, vec![Bytes::from(vec![1; 100]), Bytes::from(vec![2; 8092])]),
                    (4096, vec![Bytes::from(vec![3; 4096])]),
                ];
                let syncs = metrics.syncs.get();
                done(&disk, &inbox, DiskOp::Write { id: OpId(2), file: file.clone(), parts }).await.unwrap();
                assert_eq!(metrics.syncs.get(), syncs + 1, "one sync for all parts");
                done(&disk, &inbox, DiskOp::Truncate { id: OpId(3), file, len: 1 << 20 }).await.unwrap();
            },
            &path,
        );
        let bytes = std::fs::read(path.join("wal-1")).unwrap();
        assert_eq!(bytes.len(), 1 << 20);
        assert!(bytes[..4096].iter().all(|b| *b == 7));
        assert!(bytes[4096..8192].iter().all(|b| *b == 3));
        assert!(bytes[8192..8292].iter().all(|b| *b == 1));
        assert!(bytes[8292..16384].iter().all(|b| *b == 2));
        assert!(bytes[16384..].iter().all(|b| *b == 0));
        assert!(!path.join(PROBE_FILE).exists());
    }

    #[test]
    fn files_are_not_polled_for_completion() {
        let dir = scratch();
        let shown = on_executor(
            async |disk, inbox, _| {
                let header = Bytes::from(vec![0; 4096]);
                let create =
                    DiskOp::Create { id: OpId(1), file: "wal-1".into(), size: 1 << 20, header, ahead: false };
                done(&disk, &inbox, create).await.unwrap();
                format!("{:?}", disk.shared.handle("wal-1").await.unwrap())
            },
            dir.path(),
        );
        assert!(shown.contains("NonPollable"), "{shown}");
    }

    #[test]
    fn a_failure_names_the_file() {
        let dir = scratch();
        let fault = on_executor(
            async |disk, inbox, _| {
                let op = DiskOp::Truncate { id: OpId(1), file: "wal-9".into(), len: 0 };
                done(&disk, &inbox, op).await.unwrap_err()
            },
            dir.path(),
        );
        let expected = DiskFault::Io { file: "wal-9".into(), op: "open", errno: libc::ENOENT };
        assert_eq!(fault, expected);
    }
}

//! A ring of io_uring that owns all the kernel works with: a buffer or a file handed in stays alive
//! until the completion of its operation has been taken, so callers need no unsafe code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use bytes::Bytes;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use palisade_wal::PAGE;

// O_DIRECT wants addresses, offsets and lengths to be multiples of it.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);
const _: () = assert!(align_of::<Page>() == PAGE && size_of::<Page>() == PAGE);

/// Whole pages in memory that O_DIRECT takes.
pub(super) struct Pages(Vec<Page>);

impl Pages {
    /// No pages.
    pub(super) fn new() -> Pages {
        Pages(Vec::new())
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the buffers in, one behind the other, in place of what was there. Together they must be
    /// whole pages.
    pub(super) fn fill(&mut self, buffers: &[Bytes]) {
        let total: usize = buffers.iter().map(Bytes::len).sum();
        assert!(total.is_multiple_of(PAGE), "parts are whole pages");
        self.0.resize(total / PAGE, Page([0; PAGE]));
        let mut filled = 0;
        for buffer in buffers {
            self.bytes()[filled..filled + buffer.len()].copy_from_slice(buffer);
            filled += buffer.len();
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let len = self.0.len() * PAGE;
        // SAFETY: a `Page` is exactly PAGE bytes without padding, so the vector is `len` initialised
        // bytes in one piece, borrowed as long as the vector is.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<u8>(), len) }
    }
}

/// Which operation it is, for whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// Of which batch.
    pub(super) batch: u64,
    /// The write of which part; none for the sync.
    pub(super) part: Option<usize>,
}

/// What an operation in flight must not lose.
struct Held {
    tag: Tag,
    _file: Rc<File>,
    pages: Option<Pages>,
}

/// The end of an operation.
pub(super) struct Completion {
    /// What it was started with.
    pub(super) tag: Tag,
    /// The bytes written, or why not.
    pub(super) result: io::Result<usize>,
    /// The pages of a write.
    pub(super) pages: Option<Pages>,
}

/// The ring.
pub(super) struct Ring {
    uring: IoUring,
    held: Vec<Option<Held>>,
}

impl Ring {
    /// A ring with room for so many operations at once, a power of two.
    ///
    /// # Errors
    /// As io_uring_setup(2).
    pub(super) fn new(entries: u32) -> io::Result<Ring> {
        // Without an interrupt for each completion, where the kernel can (5.19).
        let uring =
            IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))?;
        Ok(Ring { uring, held: (0..entries).map(|_| None).collect() })
    }

    /// Whether another operation has room.
    pub(super) fn has_room(&self) -> bool {
        self.held.iter().any(Option::is_none)
    }

    /// Queues a write of the pages from `first` on, to their place in a stretch that begins at byte
    /// `at`.
    pub(super) fn write(&mut self, tag: Tag, file: &Rc<File>, at: u64, first: usize, pages: Pages) {
        let rest = &pages.0[first..];
        let len = u32::try_from(rest.len() * PAGE).expect("a batch is far below 4 GiB");
        let op = opcode::Write::new(Fd(file.as_raw_fd()), rest.as_ptr().cast(), len)
            .offset(at + (first * PAGE) as u64)
            .build();
        self.push(op, Held { tag, _file: Rc::clone(file), pages: Some(pages) });
    }

    /// Queues an fdatasync(2).
    pub(super) fn sync(&mut self, tag: Tag, file: &Rc<File>) {
        let op = opcode::Fsync::new(Fd(file.as_raw_fd())).flags(FsyncFlags::DATASYNC).build();
        self.push(op, Held { tag, _file: Rc::clone(file), pages: None });
    }

    fn push(&mut self, op: squeue::Entry, held: Held) {
        let slot = self.held.iter().position(Option::is_none).expect("there is room for the operation");
        self.held[slot] = Some(held);
        let op = op.user_data(slot as u64);
        // SAFETY: the pages and the file stay in `held` until the completion of this very operation
        // is taken in `next`; the heap they lie on does not move with the struct; and `Drop` leaves
        // them alone while the kernel may still work with them.
        let pushed = unsafe { self.uring.submission().push(&op) };
        pushed.expect("the queue has as many places as there are operations");
    }

    /// Hands what is queued to the kernel.
    ///
    /// # Errors
    /// As io_uring_enter(2).
    pub(super) fn submit(&mut self) -> io::Result<()> {
        while !self.uring.submission().is_empty() {
            match self.uring.submit() {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The next operation that has ended.
    pub(super) fn next(&mut self) -> Option<Completion> {
        let done = self.uring.completion().next()?;
        let slot = usize::try_from(done.user_data()).expect("a slot was given");
        let held = self.held[slot].take().expect("an operation ends once");
        let result = match done.result() {
            n if n >= 0 => Ok(n as usize),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        };
        Some(Completion { tag: held.tag, result, pages: held.pages })
    }
}

impl AsRawFd for Ring {
    /// Readable while an operation has ended and not been taken.
    fn as_raw_fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still read from these: better leaked than given to somebody else.
        self.held.drain(..).flatten().for_each(std::mem::forget);
    }
}

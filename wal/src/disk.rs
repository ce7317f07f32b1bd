//! A simulated disk, for the simulator and for the tests of this crate.
//!
//! It keeps what is on the platter, and the operations that have begun and are not synced. The log
//! never reads while it runs, so the page cache shows only in what a crash makes of those
//! operations: each 512-byte sector they touch is kept, lost or garbled on its own, in any order;
//! a new file's directory entry survives or does not; a file may have grown or not; a cut may have
//! happened or not. A sector that no unsynced operation touches is never harmed by a crash: the
//! physical block is taken to be at most 4096 bytes.
//!
//! The entries of directories are a durable state of their own: a rename or removal under way at a
//! crash happened or not, each for itself and whatever else did. A driver that reports it done before
//! the directory is synced can be had: [`SimDisk::forget_directory_syncs`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::Rng;

use crate::op::{DiskFault, DiskOp, DiskResult, OpId};
use crate::page::PAGE;
use crate::source::{Source, SourceError};

const SECTOR: usize = 512;
const PAGE_U64: u64 = PAGE as u64;
/// Linux's number for a file that does not exist.
const ENOENT: i32 = 2;
/// That for a failure of the device.
const EIO: i32 = 5;

/// A file on the platter. Pages of zeros take no memory.
#[derive(Clone, Debug, Default)]
struct Image {
    len: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

/// A disk that can lose power. See the module.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    platter: BTreeMap<String, Image>,
    begun: BTreeMap<OpId, DiskOp>,
    /// Operations that failed: their effect is as unsure as that of those under way.
    failed: Vec<DiskOp>,
    quota: Option<u64>,
    fail_in: Option<(u32, i32)>,
    unreadable: BTreeSet<String>,
    /// Changes of directories that were reported done and are not synced: see
    /// [`SimDisk::forget_directory_syncs`].
    unsynced: Option<Vec<DiskOp>>,
}

/// What a crash may do to what it finds unsynced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// The power fails: sectors can be garbled.
    Power,
    /// Only the process ends: sectors are written or not.
    Process,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// Puts a file on the platter at once, durably: what `format` does.
    pub fn put(&mut self, file: &str, bytes: &[u8]) {
        let mut image = Image { len: bytes.len() as u64, ..Image::default() };
        image.write(0, bytes);
        self.platter.insert(file.to_string(), image);
    }

    /// Begins an operation. Several may be under way; their ids differ, also between those of a log,
    /// which count from 1, and those of others.
    ///
    /// # Panics
    /// On an id that is under way already, or offsets and lengths that are not whole pages: a bug.
    pub fn begin(&mut self, op: DiskOp) {
        check_aligned(&op);
        let before = self.begun.insert(op.id(), op);
        assert!(before.is_none(), "an operation begins once");
    }

    /// The ids of the operations under way, rising.
    pub fn under_way(&self) -> Vec<OpId> {
        self.begun.keys().copied().collect()
    }

    /// Ends an operation: its effect is on the platter, or a fault says that nobody knows. A read gives
    /// what the platter holds.
    ///
    /// # Errors
    /// As planned with [`SimDisk::fail_in`], or as the quota demands.
    ///
    /// # Panics
    /// When no such operation is under way.
    pub fn complete(&mut self, id: OpId) -> DiskResult {
        let op = self.begun.remove(&id).expect("the operation is under way");
        if let Some(fault) = self.fault_of(&op) {
            if !matches!(op, DiskOp::Read { .. }) {
                self.failed.push(op);
            }
            return Err(fault);
        }
        if let Some(unsynced) = &mut self.unsynced
            && matches!(op, DiskOp::Rename { .. } | DiskOp::Remove { .. })
        {
            unsynced.push(op);
            return Ok(Bytes::new());
        }
        match &op {
            DiskOp::Create { file, size, header, .. } => {
                let mut image = Image { len: *size, ..Image::default() };
                image.write(0, header);
                self.platter.insert(file.clone(), image);
            }
            DiskOp::Write { file, parts, .. } => {
                if let Some(image) = self.platter.get_mut(file) {
                    for (offset, buffers) in parts {
                        let bytes = buffers.concat();
                        image.len = image.len.max(offset + bytes.len() as u64);
                        image.write(*offset, &bytes);
                    }
                }
            }
            DiskOp::Truncate { file, len, .. } => {
                if let Some(image) = self.platter.get_mut(file) {
                    image.cut(*len);
                }
            }
            DiskOp::Rename { .. } | DiskOp::Remove { .. } => self.change_entry(&op),
            DiskOp::Read { file, offset, len, .. } => {
                let image = self.platter.get(file);
                return Ok(Bytes::from(image.map_or(Vec::new(), |i| i.read_part(*offset, *len))));
            }
        }
        Ok(Bytes::new())
    }

    fn change_entry(&mut self, op: &DiskOp) {
        match op {
            DiskOp::Rename { file, to, .. } => {
                if let Some(image) = self.platter.remove(file) {
                    self.platter.insert(to.clone(), image);
                }
            }
            DiskOp::Remove { file, .. } => {
                self.platter.remove(file);
            }
            _ => {}
        }
    }

    /// From now on the driver has a bug: it reports renames and removals done without syncing the
    /// directory. They happen only at a crash, or not at all.
    pub fn forget_directory_syncs(&mut self) {
        self.unsynced.get_or_insert_default();
    }

    fn fault_of(&mut self, op: &DiskOp) -> Option<DiskFault> {
        let file = op.file().to_string();
        let call = match op {
            DiskOp::Create { .. } => "create",
            DiskOp::Write { .. } => "fdatasync",
            DiskOp::Truncate { .. } => "ftruncate",
            DiskOp::Rename { .. } => "rename",
            DiskOp::Remove { .. } => "unlink",
            DiskOp::Read { .. } => "read",
        };
        if matches!(op, DiskOp::Read { .. }) && self.unreadable.contains(&file) {
            return Some(DiskFault::Io { file, op: call, errno: EIO });
        }
        if let Some((left, errno)) = &mut self.fail_in {
            if *left == 0 {
                let errno = *errno;
                self.fail_in = None;
                return Some(DiskFault::Io { file, op: call, errno });
            }
            *left -= 1;
        }
        let known = self.platter.contains_key(&file);
        if let DiskOp::Create { size, .. } = op {
            let old = self.platter.get(&file).map_or(0, |i| i.len);
            let full = self.quota.is_some_and(|q| self.used() - old + size > q);
            return full.then_some(DiskFault::NoSpace { file });
        }
        if let DiskOp::Write { parts, .. } = op {
            let ends = parts.iter().map(|(at, b)| at + b.iter().map(|b| b.len() as u64).sum::<u64>());
            let old = self.platter.get(&file).map_or(0, |i| i.len);
            let grown = ends.max().unwrap_or(0).saturating_sub(old);
            if grown > 0 && self.quota.is_some_and(|q| self.used() + grown > q) {
                return Some(DiskFault::NoSpace { file });
            }
        }
        if matches!(op, DiskOp::Remove { .. }) {
            return None;
        }
        let known = known || self.unsynced.is_some();
        (!known).then_some(DiskFault::Io { file, op: "open", errno: ENOENT })
    }

    /// The power fails: see the module. All operations under way are gone afterwards.
    pub fn crash(&mut self, rng: &mut Rng) {
        self.lose(rng, Harm::Power);
    }

    /// The process ends, the power stays: what it had begun is written in part, but nothing is
    /// garbled. Recovery syncs what it reads, so what is left is durable.
    pub fn kill(&mut self, rng: &mut Rng) {
        self.lose(rng, Harm::Process);
    }

    fn lose(&mut self, rng: &mut Rng, harm: Harm) {
        let begun = core::mem::take(&mut self.begun).into_values();
        let unsynced = self.unsynced.as_mut().map(core::mem::take).unwrap_or_default();
        for op in core::mem::take(&mut self.failed).into_iter().chain(begun).chain(unsynced) {
            match op {
                DiskOp::Read { .. } => {}
                DiskOp::Rename { .. } | DiskOp::Remove { .. } => {
                    if rng.per_mille(500) {
                        self.change_entry(&op);
                    }
                }
                DiskOp::Create { file, size, header, .. } => self.lose_create(rng, harm, file, size, &header),
                DiskOp::Write { file, parts, .. } => {
                    let Some(image) = self.platter.get_mut(&file) else { continue };
                    for (offset, buffers) in parts {
                        image.lose_write(rng, harm, offset, &buffers.concat());
                    }
                }
                DiskOp::Truncate { file, len, .. } => {
                    if let Some(image) = self.platter.get_mut(&file)
                        && rng.per_mille(500)
                    {
                        image.cut(len);
                    }
                }
            }
        }
    }

    fn lose_create(&mut self, rng: &mut Rng, harm: Harm, file: String, size: u64, header: &[u8]) {
        let mut image = match (rng.below(3), self.platter.get(&file)) {
            // The entry, or the emptying of the old file, was lost.
            (0, _) => return,
            // The old contents still show through.
            (1, Some(old)) => old.clone(),
            _ => Image { len: rng.between(0, size / PAGE_U64) * PAGE_U64, ..Image::default() },
        };
        image.lose_write(rng, harm, 0, header);
        if harm == Harm::Power && image.len > 0 {
            for _ in 0..rng.below(3) {
                let page = rng.below(image.len.div_ceil(PAGE_U64));
                let garbage = garble(rng, &[0; PAGE]);
                image.write(page * PAGE_U64, &garbage);
            }
        }
        self.platter.insert(file, image);
    }

    /// Limits the bytes of all files together; `None` lifts the limit.
    pub fn set_quota(&mut self, bytes: Option<u64>) {
        self.quota = bytes;
    }

    /// Bytes of all files together.
    pub fn used(&self) -> u64 {
        self.platter.values().map(|i| i.len).sum()
    }

    /// Lets the operation fail that completes after `after` more, with this error number.
    pub fn fail_in(&mut self, after: u32, errno: i32) {
        self.fail_in = Some((after, errno));
    }

    /// Makes reads of a file fail, or succeed again.
    pub fn set_unreadable(&mut self, file: &str, unreadable: bool) {
        if unreadable {
            self.unreadable.insert(file.to_string());
        } else {
            self.unreadable.remove(file);
        }
    }

    /// Rot: flips a bit of a file, counted from its start. False if the file is not that long.
    pub fn flip(&mut self, file: &str, bit: u64) -> bool {
        let Some(image) = self.platter.get_mut(file).filter(|i| bit / 8 < i.len) else { return false };
        let page = image.pages.entry(bit / 8 / PAGE_U64).or_insert_with(|| Arc::new([0; PAGE]));
        Arc::make_mut(page)[(bit / 8 % PAGE_U64) as usize] ^= 1 << (bit % 8);
        true
    }

    /// A misdirected or stray write: other bytes in place of what a file holds from a multiple of 4096
    /// on; the file does not grow.
    pub fn overwrite(&mut self, file: &str, offset: u64, bytes: &[u8]) {
        if let Some(image) = self.platter.get_mut(file) {
            let room = image.len.saturating_sub(offset).min(bytes.len() as u64);
            image.write(offset, &bytes[..room as usize]);
        }
    }

    /// Cuts a file to so many bytes, which need not be whole pages.
    pub fn cut(&mut self, file: &str, len: u64) {
        if let Some(image) = self.platter.get_mut(file) {
            image.cut(len);
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, file: &str) {
        self.platter.remove(file);
    }

    /// All files, in order.
    pub fn files(&self) -> Vec<String> {
        self.platter.keys().cloned().collect()
    }

    /// What would be read after a power cut that loses everything unsynced.
    pub fn platter(&self) -> Platter<'_> {
        Platter(self)
    }
}

/// The platter of a [`SimDisk`], to recover from while the node runs on.
#[derive(Clone, Copy, Debug)]
pub struct Platter<'a>(&'a SimDisk);

impl Source for SimDisk {
    fn list(&self, dir: &str) -> Result<Vec<String>, SourceError> {
        let inside = |f: &String| f.strip_prefix(dir)?.strip_prefix('/').map(ToString::to_string);
        Ok(self.platter.keys().filter_map(inside).collect())
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, SourceError> {
        self.read_start(file, usize::MAX)
    }

    fn read_start(&self, file: &str, len: usize) -> Result<Vec<u8>, SourceError> {
        if self.unreadable.contains(file) {
            return Err(SourceError::Io { file: file.to_string(), reason: "input/output error".to_string() });
        }
        let Some(image) = self.platter.get(file) else {
            return Err(SourceError::NotFound { file: file.to_string() });
        };
        Ok(image.read(len))
    }

    fn read_part(&self, file: &str, offset: u64, len: usize) -> Result<Vec<u8>, SourceError> {
        self.read_start(file, 0)?;
        Ok(self.platter.get(file).map_or(Vec::new(), |image| image.read_part(offset, len)))
    }
}

impl Source for Platter<'_> {
    fn list(&self, dir: &str) -> Result<Vec<String>, SourceError> {
        self.0.list(dir)
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, SourceError> {
        self.0.read(file)
    }

    fn read_start(&self, file: &str, len: usize) -> Result<Vec<u8>, SourceError> {
        self.0.read_start(file, len)
    }

    fn read_part(&self, file: &str, offset: u64, len: usize) -> Result<Vec<u8>, SourceError> {
        self.0.read_part(file, offset, len)
    }
}

impl Image {
    fn read(&self, most: usize) -> Vec<u8> {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX).min(most);
        let mut bytes = vec![0; len];
        for (number, page) in &self.pages {
            let at = *number as usize * PAGE;
            if at >= len {
                break;
            }
            let end = len.min(at + PAGE);
            bytes[at..end].copy_from_slice(&page[..end - at]);
        }
        bytes
    }

    fn read_part(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = self.len.min(offset.saturating_add(len as u64));
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let in_page = (at % PAGE_U64) as usize;
            let n = (PAGE - in_page).min((end - at) as usize);
            match self.pages.get(&(at / PAGE_U64)) {
                Some(page) => bytes.extend_from_slice(&page[in_page..in_page + n]),
                None => bytes.resize(bytes.len() + n, 0),
            }
            at += n as u64;
        }
        bytes
    }

    /// Writes bytes at an offset that is a multiple of the page; the length stays.
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, chunk) in (offset / PAGE_U64..).zip(bytes.chunks(PAGE)) {
            let mut whole = self.page(page);
            whole[..chunk.len()].copy_from_slice(chunk);
            self.set_page(page, whole);
        }
    }

    fn page(&self, number: u64) -> [u8; PAGE] {
        self.pages.get(&number).map_or([0; PAGE], |p| **p)
    }

    fn set_page(&mut self, number: u64, bytes: [u8; PAGE]) {
        if bytes == [0; PAGE] {
            self.pages.remove(&number);
        } else {
            self.pages.insert(number, Arc::new(bytes));
        }
    }

    fn cut(&mut self, len: u64) {
        if len >= self.len {
            return;
        }
        self.len = len;
        self.pages.split_off(&len.div_ceil(PAGE_U64));
        if !len.is_multiple_of(PAGE_U64) {
            let mut page = self.page(len / PAGE_U64);
            page[(len % PAGE_U64) as usize..].fill(0);
            self.set_page(len / PAGE_U64, page);
        }
    }

    /// Writes what a crash leaves of a write.
    fn lose_write(&mut self, rng: &mut Rng, harm: Harm, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end > self.len {
            let pages = (end - self.len).div_ceil(PAGE_U64);
            self.len += rng.between(0, pages) * PAGE_U64;
        }
        for (number, chunk) in (offset / PAGE_U64..).zip(bytes.chunks_exact(PAGE)) {
            if (number + 1) * PAGE_U64 > self.len {
                break;
            }
            let mut page = self.page(number);
            match rng.below(5) {
                0 => continue,
                1 | 2 => page.copy_from_slice(chunk),
                _ => mix(rng, harm, &mut page, chunk),
            }
            self.set_page(number, page);
        }
    }
}

/// Keeps, loses or garbles each sector of a page on its own.
fn mix(rng: &mut Rng, harm: Harm, page: &mut [u8; PAGE], new: &[u8]) {
    for (old, new) in page.chunks_exact_mut(SECTOR).zip(new.chunks_exact(SECTOR)) {
        match rng.below(10) {
            0..=3 => {}
            9 if harm == Harm::Power => old.copy_from_slice(&garble(rng, new)),
            _ => old.copy_from_slice(new),
        }
    }
}

/// Bytes with some of them changed, or none of them left.
fn garble(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let all = rng.per_mille(300);
    let from = rng.below(bytes.len() as u64) as usize;
    for (i, byte) in bytes.iter_mut().enumerate() {
        if all || i == from || (i > from && rng.per_mille(20)) {
            *byte ^= rng.between(1, 255) as u8;
        }
    }
    bytes
}

fn check_aligned(op: &DiskOp) {
    match op {
        DiskOp::Create { size, header, .. } => {
            assert!(size.is_multiple_of(PAGE_U64) && header.len().is_multiple_of(PAGE), "whole pages");
        }
        DiskOp::Write { parts, .. } => {
            for (offset, buffers) in parts {
                let len: usize = buffers.iter().map(bytes::Bytes::len).sum();
                assert!(
                    offset.is_multiple_of(PAGE_U64) && len.is_multiple_of(PAGE) && len > 0,
                    "whole pages"
                );
            }
        }
        DiskOp::Truncate { len, .. } => assert!(len.is_multiple_of(PAGE_U64), "whole pages"),
        DiskOp::Read { offset, len, .. } => {
            assert!(offset.is_multiple_of(PAGE_U64) && len.is_multiple_of(PAGE), "whole pages");
        }
        DiskOp::Rename { .. } | DiskOp::Remove { .. } => {}
    }
}

//! The snapshot's file. A header page that names the snapshot and says where the log goes on behind
//! it, then the chunks, each in a slot of its own with a header and a checksum.
//!
//! It is written under a temporary name, with a header that says so, and gets its true header last;
//! then it is renamed. So a file that bears a snapshot's name was whole once, and what is wrong with
//! it is damage.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::hash::Xxh3;
use palisade_types::snapshot::{Edge, SNAPSHOT_CHUNK_MAX, SnapshotId};
use palisade_types::{DecodeError, LogIndex, Reader, ShardId, Term, Writer};

use crate::error::{RecoverError, check_owner};
use crate::hard::shard_dir;
use crate::identity::Identity;
use crate::page::{self, FORMAT, Owner, PAGE, PageFault, padded, read_owner, zeros};
use crate::source::{Source, SourceError};

const MAGIC: [u8; 4] = *b"PSNP";
const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"PCHK");
const KIND_UNFINISHED: u16 = 0;
const KIND_WHOLE: u16 = 1;
/// Bytes before a chunk's own: prefix, salt, number, length, checksum.
const CHUNK_HEADER: usize = 76;
const CHUNK_CRC_AT: usize = CHUNK_HEADER - 4;

/// Bytes from one chunk to the next: the largest chunk with its header, in whole pages.
pub(crate) const SLOT: usize = (CHUNK_HEADER + SNAPSHOT_CHUNK_MAX).div_ceil(PAGE) * PAGE;

/// The file of the snapshot that ends at an index.
pub fn snapshot_file(shard: ShardId, last: LogIndex) -> String {
    format!("{}/snap-{:016}", shard_dir(shard), last.0)
}

/// Its name while it is written. The salt keeps it apart from what an earlier attempt has left.
pub(crate) fn temporary_file(shard: ShardId, last: LogIndex, salt: u128) -> String {
    format!("{}.{:08x}.tmp", snapshot_file(shard, last), salt as u32)
}

/// The index that a file name, without its directory, stands for; and whether it is a temporary one.
pub(crate) fn snapshot_name(name: &str) -> Option<(LogIndex, bool)> {
    let (digits, rest) = name.strip_prefix("snap-")?.split_at_checked(16)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let temporary = match rest.strip_prefix('.').and_then(|r| r.strip_suffix(".tmp")) {
        Some(salt) => salt.len() == 8 && salt.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
        None => false,
    };
    if !temporary && !rest.is_empty() {
        return None;
    }
    digits.parse().ok().filter(|n| *n > 0).map(|n| (LogIndex(n), temporary))
}

/// Where a log can be begun: with the first batch of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The segment's number.
    pub(crate) segment: u64,
    /// The batch before its first one, 0 for none, and its chain hash.
    pub(crate) seq: u64,
    pub(crate) chain: u128,
    /// Where the log ended with that batch.
    pub(crate) edge: Edge,
}

impl Place {
    /// The beginning of every log.
    pub(crate) const START: Place = Place {
        segment: 1,
        seq: 0,
        chain: 0,
        edge: Edge { index: LogIndex(0), term: Term(0), chain: 0, clock_ms: 0 },
    };
}

/// The first page of a whole snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHeader {
    pub(crate) id: SnapshotId,
    /// Drawn for this file; every chunk in it repeats it.
    pub(crate) salt: u128,
    /// The log from here on goes with it. Its edge is not behind the snapshot.
    pub(crate) place: Place,
    /// The newest batch that was durable when the snapshot was written.
    pub(crate) durable_upto: u64,
}

impl SnapshotHeader {
    pub(crate) fn encode(&self, owner: &Owner) -> Vec<u8> {
        page::seal(MAGIC, KIND_WHOLE, owner, |w| {
            self.id.encode(w);
            w.u128(self.salt);
            w.u64(self.place.segment);
            w.u64(self.place.seq);
            w.u128(self.place.chain);
            encode_edge(&self.place.edge, w);
            w.u64(self.durable_upto);
        })
    }
}

pub(crate) fn encode_edge(edge: &Edge, w: &mut Writer<'_>) {
    w.u64(edge.index.0);
    w.u64(edge.term.0);
    w.u128(edge.chain);
    w.u64(edge.clock_ms);
}

pub(crate) fn decode_edge(r: &mut Reader<'_>) -> Result<Edge, DecodeError> {
    Ok(Edge { index: LogIndex(r.u64()?), term: Term(r.u64()?), chain: r.u128()?, clock_ms: r.u64()? })
}

fn decode_header(r: &mut Reader<'_>) -> Result<SnapshotHeader, DecodeError> {
    let id = SnapshotId::decode(r)?;
    let salt = r.u128()?;
    let (segment, seq, chain) = (r.u64()?, r.u64()?, r.u128()?);
    let place = Place { segment, seq, chain, edge: decode_edge(r)? };
    Ok(SnapshotHeader { id, salt, place, durable_upto: r.u64()? })
}

/// The first page of a snapshot that is not finished.
pub(crate) fn unfinished(owner: &Owner, last: LogIndex) -> Vec<u8> {
    page::seal(MAGIC, KIND_UNFINISHED, owner, |w| w.u64(last.0))
}

/// Whether a temporary file may be removed: it is empty, or says that it is ours.
pub(crate) fn is_our_leftover(first_page: &[u8], owner: &Owner) -> bool {
    page::content_len(first_page) == 0 || page::open(first_page, 0, MAGIC).is_ok_and(|p| p.owner == *owner)
}

/// Reads a header page. `None` if it is unreadable.
///
/// # Errors
/// [`RecoverError::Foreign`], [`RecoverError::Newer`].
pub(crate) fn read_header(
    file: &str,
    page: &[u8],
    owner: &Owner,
) -> Result<Option<SnapshotHeader>, RecoverError> {
    let page = match page::open(page, 0, MAGIC) {
        Ok(page) => page,
        Err(PageFault::Bad) => return Ok(None),
        Err(PageFault::Newer(format)) => return Err(RecoverError::Newer { file: file.to_string(), format }),
    };
    check_owner(file, &page.owner, owner)?;
    let mut fields = page.fields;
    if page.kind != KIND_WHOLE {
        return Ok(None);
    }
    let header = decode_header(&mut fields).ok();
    Ok(header.filter(|h| h.place.edge.index <= h.id.last && h.place.segment > 0))
}

/// Where a chunk lies.
pub(crate) fn chunk_offset(number: u32) -> u64 {
    PAGE as u64 + u64::from(number) * SLOT as u64
}

/// A chunk as it is written: its buffers, whole pages together.
pub(crate) fn chunk_buffers(owner: &Owner, salt: u128, number: u32, chunk: Bytes) -> Vec<Bytes> {
    let mut head = Vec::with_capacity(CHUNK_HEADER);
    let mut w = Writer(&mut head);
    w.u32(CHUNK_MAGIC);
    w.u16(FORMAT);
    w.u16(0);
    owner.encode(&mut w);
    w.u128(salt);
    w.u32(number);
    w.u32(u32::try_from(chunk.len()).expect("a chunk is far below 4 GiB"));
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(&chunk);
    head.extend_from_slice(&crc.finalize().to_le_bytes());
    let padding = padded((head.len() + chunk.len()) as u64) as usize - head.len() - chunk.len();
    let mut buffers = vec![Bytes::from(head), chunk];
    if padding > 0 {
        buffers.push(zeros(padding));
    }
    buffers
}

/// The chunk in the bytes of its slot; `None` unless it is whole, this file's and in its place.
pub(crate) fn open_chunk<'a>(slot: &'a [u8], owner: &Owner, salt: u128, number: u32) -> Option<&'a [u8]> {
    let mut r = Reader::new(slot.get(..CHUNK_HEADER)?);
    if r.u32().ok()? != CHUNK_MAGIC || r.u16().ok()? != FORMAT || r.u16().ok()? != 0 {
        return None;
    }
    if read_owner(&mut r).ok()? != *owner || r.u128().ok()? != salt || r.u32().ok()? != number {
        return None;
    }
    let len = r.u32().ok()? as usize;
    if len > SNAPSHOT_CHUNK_MAX {
        return None;
    }
    let chunk = slot.get(CHUNK_HEADER..CHUNK_HEADER + len)?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&slot[..CHUNK_CRC_AT]);
    crc.update(chunk);
    (crc.finalize() == r.u32().ok()?).then_some(chunk)
}

/// What the chunks amount to, as they pass.
#[derive(Clone, Default)]
pub(crate) struct Sum {
    pub(crate) chunks: u32,
    pub(crate) bytes: u64,
    digest: Xxh3,
}

impl Sum {
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        self.chunks += 1;
        self.bytes += chunk.len() as u64;
        self.digest.update(chunk);
    }

    pub(crate) fn id(&self, edge: Edge) -> SnapshotId {
        SnapshotId {
            last: edge.index,
            term: edge.term,
            chain: edge.chain,
            clock_ms: edge.clock_ms,
            bytes: self.bytes,
            chunks: self.chunks,
            digest: self.digest.digest128(),
        }
    }
}

/// Reads every chunk of a snapshot and hands it on, in order. What was handed on counts only once this
/// has returned well: the digest of the whole is checked last.
pub(crate) fn read_chunks(
    source: &dyn Source,
    owner: &Owner,
    file: &str,
    header: &SnapshotHeader,
    each: &mut dyn FnMut(&[u8]),
) -> Result<(), RecoverError> {
    let damaged = |offset, what: String| RecoverError::Damaged { file: file.to_string(), offset, what };
    let mut sum = Sum::default();
    for number in 0..header.id.chunks {
        let offset = chunk_offset(number);
        let slot = source.read_part(file, offset, SLOT)?;
        let chunk = open_chunk(&slot, owner, header.salt, number)
            .ok_or_else(|| damaged(offset, format!("chunk {number} of the snapshot is unreadable")))?;
        sum.add(chunk);
        each(chunk);
    }
    if sum.id(header.id.edge()) != header.id {
        return Err(damaged(0, "its chunks are not those the header names".to_string()));
    }
    Ok(())
}

/// Reads the chunks of a snapshot that recovery has named, in order. Do not build on what was handed on
/// unless this returns well.
///
/// # Errors
/// [`RecoverError`]: the file is missing, damaged, foreign, or another snapshot.
pub fn read_snapshot(
    source: &dyn Source,
    identity: &Identity,
    shard: ShardId,
    id: SnapshotId,
    mut each: impl FnMut(&[u8]),
) -> Result<(), RecoverError> {
    let (file, owner) = (snapshot_file(shard, id.last), identity.owner(shard));
    let page = source.read_part(&file, 0, PAGE).map_err(|fault| match fault {
        SourceError::NotFound { file } => RecoverError::Missing { file },
        fault => RecoverError::Source(fault),
    })?;
    let header = read_header(&file, &page, &owner)?.filter(|h| h.id == id).ok_or_else(|| {
        let what = "its header is unreadable or another snapshot's".to_string();
        RecoverError::Damaged { file: file.clone(), offset: 0, what }
    })?;
    read_chunks(source, &owner, &file, &header, &mut each)
}

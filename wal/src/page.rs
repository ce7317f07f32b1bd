//! The page: 4096 bytes with a checksum in the last four. Everything in a node's directory but the
//! batches is made of pages, and in every format, past and future, a page begins with magic and
//! format number and ends with the checksum, so that a newer one is recognised and left alone.
//!
//! ```text
//!  0 magic u32   4 format u16   6 kind u16   8 cluster u128   24 incarnation u128
//! 40 node u32   44 shard u32   48 fields of the kind of page, then zeros   4092 crc32 u32 of 0..4092
//! ```

use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{ClusterId, Incarnation, NodeId, Reader, ShardId, Writer};

/// The format number this build reads and writes.
pub const FORMAT: u16 = 1;
/// Bytes of a page: the unit of every write, so that no two records share a physical block.
pub const PAGE: usize = 4096;

const CRC_AT: usize = PAGE - 4;
const PREFIX: usize = 48;
/// In place of a shard, for files that belong to the whole node.
pub(crate) const WHOLE_NODE: ShardId = ShardId(u32::MAX);

static ZEROS: [u8; PAGE] = [0; PAGE];

/// So many zeros, fewer than a page, without an allocation.
pub(crate) fn zeros(len: usize) -> Bytes {
    Bytes::from_static(&ZEROS[..len])
}

/// Where the zeros at the end of a file begin.
pub(crate) fn content_len(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    while let Some(page) = bytes[..end].rchunks(PAGE).next()
        && *page == ZEROS[..page.len()]
    {
        end -= page.len();
    }
    bytes[..end].iter().rposition(|b| *b != 0).map_or(0, |p| p + 1)
}

/// Whose record it is. Every record on disk says so, so that foreign bytes never read as ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Drawn when the directory was formatted.
    pub incarnation: Incarnation,
    /// The shard; [`u32::MAX`] in files of the whole node.
    pub shard: ShardId,
}

impl Owner {
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u128(self.cluster.0);
        w.u128(self.incarnation.0);
        w.u32(self.node.0);
        w.u32(self.shard.0);
    }
}

/// What a page turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFault {
    /// The checksum or the magic does not fit, or bytes are missing.
    Bad,
    /// Whole, but of a format this build does not know.
    Newer(u16),
}

/// A page whose checksum fits.
pub(crate) struct Page<'a> {
    pub(crate) kind: u16,
    pub(crate) owner: Owner,
    pub(crate) fields: Reader<'a>,
}

/// Makes a page.
pub(crate) fn seal(
    magic: [u8; 4],
    kind: u16,
    owner: &Owner,
    fields: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    seal_as(FORMAT, magic, kind, owner, fields)
}

/// The same, of a kind of page that has a format number of its own.
pub(crate) fn seal_as(
    format: u16,
    magic: [u8; 4],
    kind: u16,
    owner: &Owner,
    fields: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE);
    let mut w = Writer(&mut bytes);
    w.u32(u32::from_le_bytes(magic));
    w.u16(format);
    w.u16(kind);
    owner.encode(&mut w);
    fields(&mut w);
    assert!(bytes.len() <= CRC_AT, "the fields of a page fit into it");
    bytes.resize(CRC_AT, 0);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks the page at `offset` of a file; a page that lies behind the end is bad.
pub(crate) fn open(file: &[u8], offset: usize, magic: [u8; 4]) -> Result<Page<'_>, PageFault> {
    open_upto(FORMAT, file, offset, magic)
}

/// The same, of a kind of page that is read in all formats up to this one.
pub(crate) fn open_upto(
    newest: u16,
    file: &[u8],
    offset: usize,
    magic: [u8; 4],
) -> Result<Page<'_>, PageFault> {
    let page = file.get(offset..offset.saturating_add(PAGE)).ok_or(PageFault::Bad)?;
    if page[..4] != magic {
        return Err(PageFault::Bad);
    }
    let (body, crc) = page.split_at(CRC_AT);
    if crc32fast::hash(body).to_le_bytes() != crc {
        return Err(PageFault::Bad);
    }
    let mut r = Reader::new(body);
    read_prefix(&mut r, newest).map_err(|_| PageFault::Bad)?
}

fn read_prefix<'a>(
    r: &mut Reader<'a>,
    newest: u16,
) -> Result<Result<Page<'a>, PageFault>, palisade_types::DecodeError> {
    r.u32()?;
    let format = r.u16()?;
    if !(FORMAT..=newest).contains(&format) {
        return Ok(Err(PageFault::Newer(format)));
    }
    let kind = r.u16()?;
    let owner = read_owner(r)?;
    debug_assert_eq!(r.remaining(), CRC_AT - PREFIX);
    Ok(Ok(Page { kind, owner, fields: r.clone() }))
}

pub(crate) fn read_owner(r: &mut Reader<'_>) -> Result<Owner, palisade_types::DecodeError> {
    let cluster = ClusterId(r.u128()?);
    let incarnation = Incarnation(r.u128()?);
    let node = NodeId(r.u32()?);
    let shard = ShardId(r.u32()?);
    Ok(Owner { cluster, node, incarnation, shard })
}

/// A length rounded up to whole pages.
pub(crate) fn padded(len: u64) -> u64 {
    len.div_ceil(PAGE as u64) * PAGE as u64
}

/// Pages as a file of its own.
pub(crate) fn concat(pages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![];
    for page in pages {
        file.extend_from_slice(page);
    }
    file
}

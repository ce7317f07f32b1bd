//! What is being made durable at one time, and the batch as it is handed to the disk.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{Block, Edge, LogIndex, Writer};

use crate::archive::encode_edge;
use crate::batch::{BATCH_HEADER, BatchHeader};
use crate::hard::HardRecord;
use crate::op::{OpId, Part};
use crate::page::zeros;
use crate::segment::{Mark, mark_offset};
use crate::slots::Staged;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Create the first segment of this run.
    Open,
    /// Write the first copy of the staged hard state.
    HardFirst,
    /// Write the second.
    HardSecond,
    /// Write the batch and its mark.
    Batch,
}

/// What is being made durable now.
#[derive(Default)]
pub(crate) struct Flight {
    pub(crate) steps: VecDeque<Step>,
    pub(crate) issued: Option<OpId>,
    /// Persist number that is durable once all steps are done.
    pub(crate) persist: Option<u64>,
    pub(crate) staged: Option<Staged<HardRecord>>,
    pub(crate) truncate_after: Option<LogIndex>,
    /// The batch drops the log and begins it anew behind this.
    pub(crate) restart: Option<Edge>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) body_len: usize,
    pub(crate) seal: bool,
    pub(crate) written: Option<Written>,
}

/// How the durable end moves once the batch is synced.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    pub(crate) seq: u64,
    pub(crate) chain: u128,
    /// The log was cut behind this.
    pub(crate) cut: Option<LogIndex>,
    pub(crate) restart: bool,
    /// The end of the log, where it is known: not after a cut that nothing follows.
    pub(crate) last: LogIndex,
    pub(crate) edge: Option<Edge>,
    pub(crate) next_offset: u64,
}

/// The body of a batch that begins the log anew.
pub(crate) fn restart_body(edge: &Edge) -> Bytes {
    let mut body = Vec::new();
    encode_edge(edge, &mut Writer(&mut body));
    Bytes::from(body)
}

/// A batch and its mark as parts of one write; the blocks' bytes are shared, not copied.
pub(crate) fn batch_parts(header: &BatchHeader, head: Vec<u8>, body: &[Bytes], span: u64) -> Vec<Part> {
    let mark = Mark {
        segment: header.segment,
        salt: header.salt,
        seq: header.seq,
        offset: header.offset,
        body_len: header.body_len,
        body_crc: header.body_crc,
        last: header.last,
        last_term: header.last_term,
    };
    let mut buffers = Vec::with_capacity(body.len() + 2);
    buffers.push(Bytes::from(head));
    buffers.extend_from_slice(body);
    let padding = span as usize - BATCH_HEADER - header.body_len as usize;
    if padding > 0 {
        buffers.push(zeros(padding));
    }
    let mark = vec![Bytes::from(mark.encode(&header.owner))];
    vec![(mark_offset(header.seq), mark), (header.offset, buffers)]
}

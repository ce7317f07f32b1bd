//! Looking at a shard's files without deciding anything: what an operator is shown of a directory that
//! recovery refuses, or before it is asked.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{Block, HardState, LogIndex, ShardId, SnapshotId, Term};

use crate::archive::{SnapshotHeader, read_chunks, read_header, snapshot_file, snapshot_name};
use crate::batch;
use crate::error::RecoverError;
use crate::hard::{HardRecord, hard_state_file, shard_dir};
use crate::identity::Identity;
use crate::page::{Owner, PAGE};
use crate::recover::{self, Recovered, recover_shard};
use crate::segment::{DATA_START, segment_file, segment_number};
use crate::slots::Slots;
use crate::source::Source;

/// Everything about the files of a shard.
#[derive(Debug)]
pub struct ShardView {
    /// Term and vote as stored, how often they were written, and whether all copies are whole.
    pub hard_state: Result<HardView, RecoverError>,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotView>,
    /// The segments, oldest first.
    pub segments: Vec<SegmentView>,
    /// What a start would make of it.
    pub start: Result<Recovered, RecoverError>,
}

/// The hard state's file.
#[derive(Clone, Copy, Debug)]
pub struct HardView {
    /// The value in force.
    pub state: HardState,
    /// How often it was written; 1 in a new file.
    pub generation: u64,
    /// A copy is unreadable or was not finished.
    pub incomplete: bool,
}

/// A snapshot's file.
#[derive(Clone, Debug)]
pub struct SnapshotView {
    /// The file.
    pub file: String,
    /// Its name, if the header can be read.
    pub id: Option<SnapshotId>,
    /// The first segment it needs.
    pub segment: Option<u64>,
    /// Whether all of it is whole.
    pub whole: Result<(), RecoverError>,
}

/// A segment's file.
#[derive(Clone, Debug, Default)]
pub struct SegmentView {
    /// The file.
    pub file: String,
    /// Its number, by its name.
    pub number: u64,
    /// The number drawn for it, if the header can be read.
    pub salt: Option<u128>,
    /// Made by a start, not ahead of need.
    pub opening: bool,
    /// Bytes of the file, and those in use.
    pub bytes: u64,
    /// Bytes up to the end of the last whole batch.
    pub used: u64,
    /// Whole batches in a row from the beginning, with their numbers.
    pub batches: u64,
    /// The number of the first.
    pub first_batch: u64,
    /// Those without blocks, which say that what came before is durable.
    pub seals: u64,
    /// The newest batch that one of them says was durable.
    pub durable_upto: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// The first index; 0 without blocks.
    pub first: LogIndex,
    /// The last index.
    pub last: LogIndex,
    /// The terms of the blocks.
    pub terms: BTreeSet<Term>,
    /// What cannot be read of it.
    pub fault: Option<String>,
}

/// Looks through a shard's files and reads all of them.
///
/// # Errors
/// When the directory cannot be listed. Everything else is part of the view.
pub fn inspect_shard(
    source: &dyn Source,
    identity: &Identity,
    shard: ShardId,
) -> Result<ShardView, RecoverError> {
    let owner = identity.owner(shard);
    let mut names = source.list(&shard_dir(shard))?;
    names.sort_unstable();
    let indexes = names.iter().filter_map(|n| snapshot_name(n)).filter(|(_, temporary)| !temporary);
    let numbers = names.iter().filter_map(|n| segment_number(n));
    Ok(ShardView {
        hard_state: hard_view(source, owner),
        snapshots: indexes.map(|(last, _)| snapshot_view(source, owner, last)).collect(),
        segments: numbers.map(|number| segment_view(source, owner, number)).collect(),
        start: recover_shard(source, identity, shard),
    })
}

fn hard_view(source: &dyn Source, owner: Owner) -> Result<HardView, RecoverError> {
    let file = hard_state_file(owner.shard);
    let slots = Slots::<HardRecord>::read(owner, &file, &source.read(&file)?)?;
    Ok(HardView {
        state: slots.value().state,
        generation: slots.generation(),
        incomplete: slots.is_incomplete(),
    })
}

fn snapshot_view(source: &dyn Source, owner: Owner, last: LogIndex) -> SnapshotView {
    let file = snapshot_file(owner.shard, last);
    let header = header_of(source, owner, last, &file);
    let known = header.as_ref().ok().copied();
    let whole = header.and_then(|h| read_chunks(source, &owner, &file, &h, &mut |_| ()));
    SnapshotView { file, id: known.map(|h| h.id), segment: known.map(|h| h.place.segment), whole }
}

fn header_of(
    source: &dyn Source,
    owner: Owner,
    last: LogIndex,
    file: &str,
) -> Result<SnapshotHeader, RecoverError> {
    let header = read_header(file, &source.read_start(file, PAGE)?, &owner)?;
    header.filter(|h| h.id.last == last).ok_or_else(|| RecoverError::Damaged {
        file: file.into(),
        offset: 0,
        what: "the header of the snapshot is unreadable".into(),
    })
}

fn segment_view(source: &dyn Source, owner: Owner, number: u64) -> SegmentView {
    let file = segment_file(owner.shard, number);
    let mut view = SegmentView { file: file.clone(), number, ..SegmentView::default() };
    let header = match recover::read_header(source, owner, number, &file) {
        Ok(Some(header)) => header,
        Ok(None) => {
            view.fault = Some("its header is unreadable".into());
            return view;
        }
        Err(fault) => {
            view.fault = Some(format!("{fault}"));
            return view;
        }
    };
    (view.salt, view.opening) = (Some(header.salt), header.opening.is_some());
    match source.read(&file) {
        Ok(bytes) => view.scan(&bytes, owner, header.salt),
        Err(fault) => view.fault = Some(format!("{fault}")),
    }
    view
}

impl SegmentView {
    fn scan(&mut self, bytes: &[u8], owner: Owner, salt: u128) {
        let mut offset = DATA_START;
        while let Some((batch, _)) = batch::read(bytes, offset)
            && (batch.owner, batch.salt, batch.segment) == (owner, salt, self.number)
        {
            let Some(body) = batch.body(bytes) else {
                self.fault = Some(format!("the body of batch {} at {offset} is unreadable", batch.seq));
                break;
            };
            if self.batches == 0 {
                self.first_batch = batch.seq;
            }
            self.batches += 1;
            self.seals += u64::from(batch.blocks == 0 && !batch.restart && batch.truncate_after.is_none());
            self.durable_upto = self.durable_upto.max(batch.durable_upto);
            self.blocks += u64::from(batch.blocks);
            if self.first == LogIndex(0) {
                self.first = batch.first;
            }
            self.last = batch.last;
            if !batch.restart {
                self.terms.extend(terms(body));
            }
            offset += batch.span();
        }
        (self.bytes, self.used) = (bytes.len() as u64, offset);
    }
}

fn terms(body: &[u8]) -> Vec<Term> {
    let mut rest = Bytes::copy_from_slice(body);
    let mut terms = Vec::new();
    while let Ok(len) = Block::length_of(&rest)
        && len <= rest.len()
        && let Ok(block) = Block::decode(rest.split_to(len))
    {
        terms.push(block.term());
    }
    terms
}

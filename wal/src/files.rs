//! Which files of a shard belong to its log: the snapshots, the segments that go with them, what is
//! left over, and what is not ours.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use palisade_types::{LogIndex, Mutant, Mutants};

use crate::archive::{
    Place, SnapshotHeader, chunk_offset, is_our_leftover, read_chunks, read_header, snapshot_file,
    snapshot_name,
};
use crate::batch;
use crate::error::RecoverError;
use crate::hard::shard_dir;
use crate::note::Note;
use crate::page::{Owner, PAGE};
use crate::recover;
use crate::scan::Log;
use crate::segment::{DATA_START, segment_file, segment_number};
use crate::snapshots::{KEPT, Removal};
use crate::source::Source;

/// A snapshot that cannot be used.
pub(crate) struct DamagedSnapshot {
    pub(crate) last: LogIndex,
    pub(crate) fault: RecoverError,
}

/// The files of a shard.
pub(crate) struct Files {
    owner: Owner,
    /// Numbers of all segments, rising.
    pub(crate) segments: Vec<u64>,
    /// Headers of the snapshots that can be read, rising.
    snapshots: Vec<SnapshotHeader>,
    /// The newest that is whole.
    pub(crate) best: Option<SnapshotHeader>,
    /// Those newer than it, newest first.
    pub(crate) damaged: Vec<DamagedSnapshot>,
    /// Those of them that say whose they are.
    pub(crate) stale: Vec<String>,
    /// Where the snapshots say the log can be begun, rising.
    pub(crate) places: Vec<Place>,
    /// Where it is begun.
    pub(crate) place: Place,
    /// A batch that was durable when a snapshot was written.
    pub(crate) durable_upto: u64,
    removals: VecDeque<Removal>,
}

impl Files {
    /// Looks through the shard's directory and checks the snapshots.
    pub(crate) fn list(
        source: &dyn Source,
        owner: Owner,
        mutants: Mutants,
        notes: &mut Vec<Note>,
    ) -> Result<Files, RecoverError> {
        let dir = shard_dir(owner.shard);
        let mut files = Files {
            owner,
            segments: Vec::new(),
            snapshots: Vec::new(),
            best: None,
            damaged: Vec::new(),
            stale: Vec::new(),
            places: Vec::new(),
            place: Place::START,
            durable_upto: 0,
            removals: VecDeque::new(),
        };
        let mut indexes = Vec::new();
        let mut names = source.list(&dir)?;
        names.sort_unstable();
        for name in names {
            let file = format!("{dir}/{name}");
            match (segment_number(&name), snapshot_name(&name)) {
                (Some(number), _) => files.segments.push(number),
                (_, Some((last, false))) => indexes.push(last),
                (_, Some((_, true))) if is_our_leftover(&source.read_start(&file, PAGE)?, &owner) => {
                    notes.push(Note::Leftover { file: file.clone() });
                    files.removals.push_back(Removal::Snapshot(file));
                }
                _ if name == "HARDSTATE" => {}
                _ => notes.push(Note::Unknown { file }),
            }
        }
        for last in indexes.into_iter().rev() {
            files.take_snapshot(source, last, mutants, notes)?;
        }
        files.snapshots.reverse();
        files.places = files.snapshots.iter().map(|h| h.place).collect();
        files.places.sort_unstable_by_key(|p| p.segment);
        Ok(files)
    }

    /// Takes in a snapshot: newest first, and only the newest that is whole is read to its end.
    fn take_snapshot(
        &mut self,
        source: &dyn Source,
        last: LogIndex,
        mutants: Mutants,
        notes: &mut Vec<Note>,
    ) -> Result<(), RecoverError> {
        let file = snapshot_file(self.owner.shard, last);
        let page = source.read_start(&file, PAGE);
        let header = match page {
            Ok(page) => read_header(&file, &page, &self.owner)?,
            Err(fault) => {
                self.damaged.push(DamagedSnapshot { last, fault: RecoverError::Source(fault) });
                return Ok(());
            }
        };
        let Some(header) = header.filter(|h| h.id.last == last) else {
            if self.best.is_none() {
                let what = "the header of the snapshot is unreadable".to_string();
                let fault = RecoverError::Damaged { file, offset: 0, what };
                self.damaged.push(DamagedSnapshot { last, fault });
            } else {
                notes.push(Note::Unknown { file });
            }
            return Ok(());
        };
        self.durable_upto = self.durable_upto.max(header.durable_upto);
        self.snapshots.push(header);
        if self.best.is_some() {
            return Ok(());
        }
        let checked = if mutants.has(Mutant::C5) {
            check_length(source, &file, &header)
        } else {
            read_chunks(source, &self.owner, &file, &header, &mut |_| ())
        };
        match checked {
            Ok(()) => self.best = Some(header),
            Err(fault) => {
                self.stale.push(file);
                self.damaged.push(DamagedSnapshot { last, fault });
            }
        }
        Ok(())
    }

    /// The earliest place from which all segments are there. Those below it were left behind when they
    /// were removed.
    pub(crate) fn choose_place(&mut self, source: &dyn Source, mutants: Mutants) -> Result<(), RecoverError> {
        let known = |p: &&Place| self.gap_from(p.segment).is_none();
        let places = [Place::START];
        if let Some(place) = places.iter().chain(&self.places).find(known) {
            self.place = *place;
        } else if let Some(newest) = self.places.last() {
            let missing = self.gap_from(newest.segment).unwrap_or(newest.segment);
            return Err(RecoverError::Missing { file: segment_file(self.owner.shard, missing) });
        } else if let Some(first) = self.segments.first().copied().filter(|n| *n > 1) {
            return Err(self.hole(source, first)?);
        } else if let Some(missing) = self.gap_from(1).filter(|_| !self.segments.is_empty()) {
            return Err(RecoverError::Missing { file: segment_file(self.owner.shard, missing) });
        }
        if mutants.has(Mutant::C14)
            && let Some(place) = self.guess(source)?
        {
            self.place = place;
        }
        Ok(())
    }

    /// The bug to be found: the first segment there is begins the log, whatever nobody says of it.
    fn guess(&self, source: &dyn Source) -> Result<Option<Place>, RecoverError> {
        let Some(first) = self.segments.first().copied().filter(|n| *n < self.place.segment) else {
            return Ok(None);
        };
        let bytes = source.read(&segment_file(self.owner.shard, first))?;
        let Some((batch, _)) = batch::read(&bytes, DATA_START) else { return Ok(None) };
        let mut place = Place { segment: first, seq: batch.seq - 1, chain: batch.prev_chain, ..self.place };
        place.edge.index = batch.first.prev();
        if let Some(block) = batch
            .body(&bytes)
            .and_then(|b| palisade_types::Block::decode(bytes::Bytes::copy_from_slice(b)).ok())
        {
            place.edge.chain = block.prev_chain();
        }
        Ok(Some(place))
    }

    /// The first number from `number` on that has no segment although a later one has; that number
    /// itself if there is none at all.
    fn gap_from(&self, number: u64) -> Option<u64> {
        let from = self.segments.partition_point(|n| *n < number);
        let rest = &self.segments[from..];
        if rest.is_empty() {
            return Some(number);
        }
        (number..).zip(rest).find(|(expected, found)| expected != *found).map(|(expected, _)| expected)
    }

    /// What to say of a log that begins with a segment that no snapshot names.
    fn hole(&self, source: &dyn Source, first: u64) -> Result<RecoverError, RecoverError> {
        if let Some(damaged) = self.damaged.first() {
            return Ok(damaged.fault.clone());
        }
        let file = segment_file(self.owner.shard, first);
        let batch = batch::read(&source.read(&file)?, DATA_START).map(|(h, _)| h);
        let to = batch.map_or(LogIndex(0), |h| if h.blocks > 0 { h.first.prev() } else { h.last });
        if to == LogIndex(0) {
            return Ok(RecoverError::Missing { file: segment_file(self.owner.shard, 1) });
        }
        Ok(RecoverError::Hole { file, from: LogIndex(1), to })
    }

    /// The segments of the log, rising.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().copied().filter(|n| *n >= self.place.segment)
    }

    /// Which snapshots stay, and what is to be removed, in this order.
    pub(crate) fn settle(
        &mut self,
        source: &dyn Source,
        log: &Log,
        notes: &mut Vec<Note>,
    ) -> Result<(Vec<SnapshotHeader>, VecDeque<Removal>), RecoverError> {
        let best = self.best.map_or(LogIndex(0), |h| h.id.last);
        let whole: Vec<SnapshotHeader> =
            self.snapshots.iter().copied().filter(|h| h.id.last <= best).collect();
        let surplus = whole.len().saturating_sub(KEPT);
        let useful = |(place, h): &(usize, &SnapshotHeader)| {
            h.id.last == best || (*place >= surplus && log.has(&h.id.edge()))
        };
        let kept: Vec<SnapshotHeader> = whole.iter().enumerate().filter(useful).map(|(_, h)| *h).collect();
        let shard = self.owner.shard;
        for old in whole.iter().filter(|h| !kept.contains(h)) {
            self.leave(Removal::Snapshot(snapshot_file(shard, old.id.last)), notes);
        }
        let below: Vec<u64> = self.segments.iter().copied().filter(|n| *n < self.place.segment).collect();
        for number in below {
            let file = segment_file(shard, number);
            match recover::read_header(source, self.owner, number, &file) {
                Ok(Some(_)) => self.leave(Removal::Segment(number, file), notes),
                Err(RecoverError::Newer { file, format }) => {
                    return Err(RecoverError::Newer { file, format });
                }
                _ => notes.push(Note::Unknown { file }),
            }
        }
        Ok((kept, core::mem::take(&mut self.removals)))
    }

    fn leave(&mut self, removal: Removal, notes: &mut Vec<Note>) {
        let (Removal::Snapshot(file) | Removal::Segment(_, file)) = &removal;
        notes.push(Note::Leftover { file: file.clone() });
        self.removals.push_back(removal);
    }
}

/// The bug to be found: a file is whole if it is long enough.
fn check_length(source: &dyn Source, file: &str, header: &SnapshotHeader) -> Result<(), RecoverError> {
    let last = chunk_offset(header.id.chunks - 1);
    if source.read_part(file, last, 1)?.is_empty() {
        let what = "it is too short".to_string();
        return Err(RecoverError::Damaged { file: file.to_string(), offset: last, what });
    }
    Ok(())
}

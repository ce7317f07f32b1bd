//! Recovery: reads a shard's files and says what was durable. The answer is what was acknowledged
//! last, or that and what was being written when the process ended, or a refusal; never anything
//! else. Nothing on the disk is changed here.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use palisade_types::{Block, Edge, HardState, LogIndex, Mutant, Mutants, ShardId, SnapshotId, Term};

use crate::archive::{Place, SnapshotHeader};
use crate::error::{RecoverError, check_owner};
use crate::files::Files;
use crate::hard::{HardRecord, hard_state_file};
use crate::identity::Identity;
use crate::note::Note;
use crate::page::{Owner, PAGE, PageFault};
use crate::scan::{Begin, Log, Segment, Stray, was_used};
use crate::segment::{DATA_START, Opening, SegmentHeader, segment_file};
use crate::slots::Slots;
use crate::snapshots::Removal;
use crate::source::{Source, SourceError};
use crate::verdict::{Evidence, Verdict, judge};

/// Where the writer goes on. Made by [`recover_shard`] alone.
#[derive(Clone, Debug)]
pub struct Tail {
    pub(crate) next_seq: u64,
    /// Chain hash of the last batch.
    pub(crate) chain: u128,
    /// Number of the segment to be opened.
    pub(crate) segment: u64,
    /// The end of the log.
    pub(crate) edge: Edge,
    /// No cut goes below it.
    pub(crate) committed: LogIndex,
    /// The log is to be begun anew behind this, first of all.
    pub(crate) restart: Option<Edge>,
    pub(crate) hard: Slots<HardRecord>,
    /// Files that are longer than what is used of them, and how long they shall be.
    pub(crate) trims: Vec<(String, u64)>,
    pub(crate) begins: Vec<Begin>,
    /// The log was begun anew behind the newest snapshot or before it.
    pub(crate) restarted: bool,
    pub(crate) kept: Vec<SnapshotHeader>,
    /// Damaged snapshots, to be removed once there is a newer one.
    pub(crate) stale: Vec<String>,
    pub(crate) removals: VecDeque<Removal>,
}

impl Tail {
    /// The index of the last command in the log; 0 in an empty one.
    pub fn last(&self) -> LogIndex {
        self.edge.index
    }
}

/// What a shard's files hold.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Term and vote, and a commit index that was known.
    pub hard_state: HardState,
    /// What the log begins behind: all zero at the beginning of all, and never behind the snapshot.
    pub base: Edge,
    /// The log, without gaps from behind `base` on. Those up to the end of the snapshot are in its state.
    pub blocks: Vec<Block>,
    /// The snapshot to start from, whole and checked. Its end is `base` or the end of one of the blocks.
    pub snapshot: Option<SnapshotId>,
    /// Where the writer goes on.
    pub tail: Tail,
    /// What was noticed.
    pub notes: Vec<Note>,
}

/// Reads one shard of a node's directory.
///
/// # Errors
/// See [`RecoverError`]: whatever may have been acknowledged and cannot be read is refused.
pub fn recover_shard(
    source: &dyn Source,
    identity: &Identity,
    shard: ShardId,
) -> Result<Recovered, RecoverError> {
    recover_with(source, identity, shard, Mutants::NONE)
}

/// The same, with bugs switched on.
///
/// # Errors
/// As [`recover_shard`].
pub fn recover_with(
    source: &dyn Source,
    identity: &Identity,
    shard: ShardId,
    mutants: Mutants,
) -> Result<Recovered, RecoverError> {
    let owner = identity.owner(shard);
    let mut notes = Vec::new();
    let hard = read_hard(source, owner, &mut notes)?;
    let mut files = Files::list(source, owner, mutants, &mut notes)?;
    let read = read_log(source, owner, &mut files, &hard, mutants, &mut notes)?;
    let ReadLog { mut log, mut segments, unfinished } = read;
    let restart = join(&files, &mut log, mutants, &mut notes)?;
    let snapshot = files.best.map(|h| h.id);
    let mut hard_state = hard.value().state;
    hard_state.commit = hard_state.commit.max(log.hint).max(snapshot.map_or(LogIndex(0), |s| s.last));
    let term = log.last_term().max(snapshot.map_or(Term(0), |s| s.term));
    if term > hard_state.term {
        notes.push(Note::TermRaised { from: hard_state.term, to: term });
        hard_state = HardState { term, vote: None, ..hard_state };
    }
    let named = files.places.iter().map(|p| p.segment).max().unwrap_or(0);
    if unfinished.is_none()
        && segments.len() > 1
        && segments.pop_if(|s| s.pristine && s.header.number > named).is_some()
    {
        // An empty segment is made anew, since a crash in the middle of that leaves what is
        // understood: an unreadable header in the last place. Not the first segment, whose being there
        // vouches for the hard state, none that a snapshot names, and none behind which another
        // creation had begun.
        log.begins.pop();
    }
    let next = segments.last().map_or(files.place.segment, |s| s.header.number + 1);
    debug_assert!(unfinished.is_none_or(|u| u == next));
    let (kept, removals) = files.settle(source, &log, &mut notes)?;
    let tail = Tail {
        next_seq: log.seq + 1,
        chain: log.chain,
        segment: next,
        edge: log.edge(),
        committed: hard_state.commit,
        restart,
        trims: segments.iter().filter(|s| s.file_len > s.used).map(|s| (s.file.clone(), s.used)).collect(),
        begins: log.begins,
        restarted: log.restarted || restart.is_some(),
        kept,
        stale: files.stale,
        removals,
        hard,
    };
    Ok(Recovered { hard_state, base: log.base, blocks: log.blocks, snapshot, tail, notes })
}

/// The segments in use, as far as they could be read.
struct ReadLog {
    log: Log,
    segments: Vec<Segment>,
    /// The number of one whose creation was never finished.
    unfinished: Option<u64>,
}

fn read_log(
    source: &dyn Source,
    owner: Owner,
    files: &mut Files,
    hard: &Slots<HardRecord>,
    mutants: Mutants,
    notes: &mut Vec<Note>,
) -> Result<ReadLog, RecoverError> {
    files.choose_place(source, mutants)?;
    let (mut segments, unfinished) = list_segments(source, owner, files, notes)?;
    if segments.is_empty() && (hard.generation() > 1 || !files.places.is_empty()) {
        // The first segment is durable before the first hard state is written.
        return Err(RecoverError::Missing { file: segment_file(owner.shard, files.place.segment) });
    }
    set_limits(&mut segments)?;
    let mut log = Log::new(owner, &files.place);
    for at in 0..segments.len() {
        check_opening(&segments, at, &log, &files.place)?;
        let bytes = source.read(&segments[at].file)?;
        log.read_segment(&mut segments[at], &bytes)?;
    }
    check_tail(&segments, &log, hard.value(), files.durable_upto, notes)?;
    Ok(ReadLog { log, segments, unfinished })
}

/// Decides how snapshot and log go together. Returns the edge the log is to begin anew behind, if it
/// must; then `log` is that already.
fn join(
    files: &Files,
    log: &mut Log,
    mutants: Mutants,
    notes: &mut Vec<Note>,
) -> Result<Option<Edge>, RecoverError> {
    let hole = |from: LogIndex| RecoverError::Hole {
        file: segment_file(log.owner.shard, files.place.segment),
        from: from.next(),
        to: log.base.index,
    };
    // A snapshot that is damaged stands for all up to its end: the log must show as much without it.
    let unreached = files.damaged.iter().find(|d| d.last > log.last());
    let Some(best) = &files.best else {
        if let Some(damaged) =
            files.damaged.first().filter(|_| log.base.index > LogIndex(0) || unreached.is_some())
        {
            return Err(damaged.fault.clone());
        }
        return if log.base.index > LogIndex(0) { Err(hole(LogIndex(0))) } else { Ok(None) };
    };
    let edge = best.id.edge();
    if let Some(damaged) = unreached.or_else(|| files.damaged.first().filter(|_| !log.has(&edge))) {
        return Err(damaged.fault.clone());
    }
    notes.extend(files.damaged.iter().map(|d| Note::SnapshotDamaged { fault: d.fault.clone() }));
    if log.has(&edge) || (edge.index < log.base.index && mutants.has(Mutant::C13)) {
        return Ok(None);
    }
    if edge.index < log.base.index {
        return Err(hole(edge.index));
    }
    notes.push(Note::Restarted { snapshot: edge.index, log: log.last() });
    let tail = log.blocks.partition_point(|b| b.last() <= edge.index);
    let kept = log.blocks.split_off(if mutants.has(Mutant::C12) { tail } else { log.blocks.len() });
    (log.base, log.blocks) = (edge, kept);
    Ok(Some(edge))
}

fn read_hard(
    source: &dyn Source,
    owner: Owner,
    notes: &mut Vec<Note>,
) -> Result<Slots<HardRecord>, RecoverError> {
    let file = hard_state_file(owner.shard);
    let bytes = source.read(&file).map_err(|fault| match fault {
        SourceError::NotFound { file } => RecoverError::Missing { file },
        fault => RecoverError::Source(fault),
    })?;
    let hard = Slots::<HardRecord>::read(owner, &file, &bytes)?;
    if hard.is_incomplete() {
        notes.push(Note::HardStateCopy { file });
    }
    Ok(hard)
}

/// The segments from the log's beginning on that have a readable header, and the number of one whose
/// creation was never finished.
fn list_segments(
    source: &dyn Source,
    owner: Owner,
    files: &Files,
    notes: &mut Vec<Note>,
) -> Result<(Vec<Segment>, Option<u64>), RecoverError> {
    let named = files.places.iter().map(|p| p.segment).max().unwrap_or(0);
    let mut segments = Vec::new();
    for number in files.in_use() {
        let file = segment_file(owner.shard, number);
        match read_header(source, owner, number, &file)? {
            Some(header) => segments.push(Segment::new(file, header)),
            None if files.segments.last() == Some(&number)
                && number > named
                && !was_used(&source.read(&file)?, owner, number) =>
            {
                notes.push(Note::Unfinished { file });
                return Ok((segments, Some(number)));
            }
            None => {
                let what = "the header of the segment is unreadable".to_string();
                return Err(RecoverError::Damaged { file, offset: 0, what });
            }
        }
    }
    Ok((segments, None))
}

/// The header of a segment; `None` if it is unreadable.
pub(crate) fn read_header(
    source: &dyn Source,
    owner: Owner,
    number: u64,
    file: &str,
) -> Result<Option<SegmentHeader>, RecoverError> {
    match SegmentHeader::read(&source.read_start(file, PAGE)?) {
        Err(PageFault::Bad) => Ok(None),
        Err(PageFault::Newer(format)) => Err(RecoverError::Newer { file: file.to_string(), format }),
        Ok((found, header)) => {
            check_owner(file, &found, &owner)?;
            if header.number == number {
                return Ok(Some(header));
            }
            let what = format!("it holds segment {}", header.number);
            Err(RecoverError::Damaged { file: file.to_string(), offset: 0, what })
        }
    }
}

impl Segment {
    fn new(file: String, header: SegmentHeader) -> Segment {
        Segment {
            file,
            header,
            limit: u64::MAX,
            file_len: 0,
            used: DATA_START,
            stray: Stray::default(),
            marks: Vec::new(),
            junk: 0,
            pristine: false,
        }
    }

    fn damaged(&self, offset: u64, what: String) -> RecoverError {
        RecoverError::Damaged { file: self.file.clone(), offset, what }
    }
}

/// Tells each segment from which batch on a later start has declared its contents void.
fn set_limits(segments: &mut [Segment]) -> Result<(), RecoverError> {
    let mut limit = u64::MAX;
    for segment in segments.iter_mut().rev() {
        segment.limit = limit;
        if let Some(opening) = segment.header.opening {
            if opening.first_seq > limit {
                let what = "it was opened with a later batch than a segment after it".to_string();
                return Err(segment.damaged(0, what));
            }
            limit = opening.first_seq;
        }
    }
    Ok(())
}

/// A segment opened at a start says with which batch it goes on: the log must have come that far.
fn check_opening(segments: &[Segment], at: usize, log: &Log, place: &Place) -> Result<(), RecoverError> {
    let segment = &segments[at];
    let expected = Opening { first_seq: log.seq + 1, prev_chain: log.chain };
    let Some(opening) = segment.header.opening else {
        if at == 0 && place.segment == Place::START.segment {
            return Err(segment.damaged(0, "the first segment was not made by a start".to_string()));
        }
        return Ok(());
    };
    if opening == expected {
        return Ok(());
    }
    let what = format!("batch {} is unreadable, but {} was opened after it", log.seq + 1, segment.file);
    match at.checked_sub(1) {
        Some(before) => {
            let (file, offset) = site(&segments[..=before], log.seq + 1);
            Err(RecoverError::Damaged { file, offset, what })
        }
        None => Err(segment.damaged(0, "the first segment does not start the log".to_string())),
    }
}

/// Where batch `seq`, which could not be read, lies or should lie.
fn site(segments: &[Segment], seq: u64) -> (String, u64) {
    let marked = |s: &&Segment| s.marks.iter().any(|m| m.seq == seq);
    let started = |s: &&Segment| s.used > DATA_START || s.junk > 0 || s.header.opening.is_some();
    let found = segments.iter().rev().find(marked).or_else(|| segments.iter().rev().find(started));
    found.map_or_else(|| (String::new(), 0), |s| (s.file.clone(), s.used))
}

/// Judges what lies behind the last batch that was taken.
fn check_tail(
    segments: &[Segment],
    log: &Log,
    hard: &HardRecord,
    durable_upto: u64,
    notes: &mut Vec<Note>,
) -> Result<(), RecoverError> {
    // Segments before the last opening are settled by it.
    let settled = segments.iter().rposition(|s| s.header.opening.is_some()).unwrap_or(0);
    let live = &segments[settled.min(segments.len())..];
    let seq = log.seq + 1;
    let durable_upto = hard.batch.max(durable_upto);
    let mut stray = Stray { seq: 0, durable_upto, hint: hard.state.commit.max(log.hint) };
    let mut marked = false;
    for segment in live {
        stray.seq = stray.seq.max(segment.stray.seq);
        stray.durable_upto =
            stray.durable_upto.max(segment.stray.durable_upto).max(segment.header.durable_upto);
        stray.hint = stray.hint.max(segment.stray.hint);
        for mark in &segment.marks {
            stray.seq = stray.seq.max(mark.seq);
            marked |= mark.seq == seq;
        }
    }
    let evidence = Evidence {
        sealed: stray.durable_upto >= seq,
        hinted: stray.hint > log.last(),
        marked,
        in_flight: stray.seq <= seq,
    };
    let (file, offset) = site(live, seq);
    let bytes = live.iter().map(|s| s.junk).sum();
    match judge(evidence) {
        Verdict::Damaged => {
            let what = format!("batch {seq} is unreadable, and it was acknowledged ({evidence:?})");
            Err(RecoverError::Damaged { file, offset, what })
        }
        Verdict::Suspect => {
            notes.push(Note::SuspectTail { file, offset, bytes, batch: seq });
            Ok(())
        }
        Verdict::Torn => {
            if bytes > 0 {
                notes.push(Note::TornTail { file, offset, bytes, batch: seq });
            }
            Ok(())
        }
    }
}

//! Recovery: reads a shard's files and says what was durable. The answer is what was acknowledged
//! last, or that and what was being written when the process ended, or a refusal; never anything
//! else. Nothing on the disk is changed here.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use palisade_types::{Block, HardState, LogIndex, ShardId, Term};

use crate::error::{RecoverError, check_owner};
use crate::hard::{HardRecord, hard_state_file, shard_dir};
use crate::identity::Identity;
use crate::page::{Owner, PAGE, PageFault};
use crate::scan::{Log, Segment, Stray, was_used};
use crate::segment::{DATA_START, Opening, SegmentHeader, segment_file, segment_number};
use crate::slots::Slots;
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
    pub(crate) last: LogIndex,
    pub(crate) last_term: Term,
    /// Chain hash of the last block.
    pub(crate) last_chain: u128,
    pub(crate) hard: Slots<HardRecord>,
    /// Files that are longer than what is used of them, and how long they shall be.
    pub(crate) trims: Vec<(String, u64)>,
    pub(crate) used: u64,
}

impl Tail {
    /// The index of the last command in the log; 0 in an empty one.
    pub fn last(&self) -> LogIndex {
        self.last
    }
}

/// Something an operator may want to know: one line in the log each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The last batch was being written when the process ended. It was never acknowledged.
    TornTail {
        /// The file.
        file: String,
        /// Where the batch would have started.
        offset: u64,
        /// How many bytes are dropped.
        bytes: u64,
        /// The number of the batch.
        batch: u64,
    },
    /// The same, but its mark is whole: a crash that wrote the mark first, or damage in the last
    /// milliseconds before a crash.
    SuspectTail {
        /// The file.
        file: String,
        /// Where the batch starts.
        offset: u64,
        /// How many bytes are dropped.
        bytes: u64,
        /// The number of the batch.
        batch: u64,
    },
    /// A segment's creation was not finished. It was never used and is made anew.
    Unfinished {
        /// The file.
        file: String,
    },
    /// A file that is not ours. It is left alone.
    Unknown {
        /// The file.
        file: String,
    },
    /// A copy of the hard state is unreadable or was not finished; it is written anew.
    HardStateCopy {
        /// The file.
        file: String,
    },
    /// The log holds blocks of a term above the stored one, which the order of writes rules out
    /// unless the disk lies. The term is raised and the vote forgotten.
    TermRaised {
        /// The term stored.
        from: Term,
        /// The term of the last block.
        to: Term,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::TornTail { file, offset, bytes, batch } => {
                write!(f, "{file}: dropped {bytes} bytes at {offset}: batch {batch} was never finished")
            }
            Note::SuspectTail { file, offset, bytes, batch } => write!(
                f,
                "{file}: dropped {bytes} bytes at {offset}: batch {batch} is unreadable though its mark is not; \
                 a crash does this, and so does damage just before one"
            ),
            Note::Unfinished { file } => {
                write!(f, "{file}: its creation was never finished; it is made anew")
            }
            Note::Unknown { file } => write!(f, "{file}: not one of ours; left alone"),
            Note::HardStateCopy { file } => {
                write!(f, "{file}: a copy is unreadable or unfinished; written anew")
            }
            Note::TermRaised { from, to } => {
                write!(f, "the log holds term {to} but the stored term is {from}: raised, vote forgotten")
            }
        }
    }
}

/// What a shard's files hold.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Term and vote, and a commit index that was known.
    pub hard_state: HardState,
    /// The log, without gaps from index 1.
    pub blocks: Vec<Block>,
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
    let owner = identity.owner(shard);
    let mut notes = Vec::new();
    let hard = read_hard(source, owner, &mut notes)?;
    let (mut segments, unfinished) = list_segments(source, owner, &mut notes)?;
    if segments.is_empty() && hard.generation() > 1 {
        // The first segment is durable before the first hard state is written.
        return Err(RecoverError::Missing { file: segment_file(shard, 1) });
    }
    set_limits(&mut segments)?;
    let mut log = Log::new(owner);
    for at in 0..segments.len() {
        check_opening(&segments, at, &log)?;
        let bytes = source.read(&segments[at].file)?;
        log.read_segment(&mut segments[at], &bytes)?;
    }
    check_tail(&segments, &log, hard.value(), &mut notes)?;
    let mut hard_state = hard.value().state;
    hard_state.commit = hard_state.commit.max(log.hint);
    if log.last_term() > hard_state.term {
        notes.push(Note::TermRaised { from: hard_state.term, to: log.last_term() });
        hard_state = HardState { term: log.last_term(), vote: None, ..hard_state };
    }
    if unfinished.is_none() && segments.len() > 1 {
        // An empty segment is made anew, since a crash in the middle of that leaves what is
        // understood: an unreadable header in the last place. Not the first segment, whose being there
        // vouches for the hard state, and none behind which another creation had begun.
        segments.pop_if(|s| s.pristine);
    }
    debug_assert!(unfinished.is_none_or(|u| u == segments.len() as u64 + 1));
    let tail = Tail {
        next_seq: log.seq + 1,
        chain: log.chain,
        segment: segments.len() as u64 + 1,
        last: log.last(),
        last_term: log.last_term(),
        last_chain: log.last_chain(),
        trims: segments.iter().filter(|s| s.file_len > s.used).map(|s| (s.file.clone(), s.used)).collect(),
        used: segments.iter().map(|s| s.used).sum(),
        hard,
    };
    Ok(Recovered { hard_state, blocks: log.blocks, tail, notes })
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

/// The segments with a readable header, in order, and the number of one whose creation was never
/// finished.
fn list_segments(
    source: &dyn Source,
    owner: Owner,
    notes: &mut Vec<Note>,
) -> Result<(Vec<Segment>, Option<u64>), RecoverError> {
    let dir = shard_dir(owner.shard);
    let mut numbers = Vec::new();
    let mut names = source.list(&dir)?;
    names.sort_unstable();
    for name in names {
        match segment_number(&name) {
            Some(number) => numbers.push(number),
            None if name == "HARDSTATE" => {}
            None => notes.push(Note::Unknown { file: format!("{dir}/{name}") }),
        }
    }
    let mut segments = Vec::new();
    for (place, number) in numbers.iter().copied().enumerate() {
        let expected = place as u64 + 1;
        if number != expected {
            return Err(RecoverError::Missing { file: segment_file(owner.shard, expected) });
        }
        let file = segment_file(owner.shard, number);
        match read_header(source, owner, number, &file)? {
            Some(header) => segments.push(Segment::new(file, header)),
            None if place + 1 == numbers.len() && !was_used(&source.read(&file)?, owner, number) => {
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
fn read_header(
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
fn check_opening(segments: &[Segment], at: usize, log: &Log) -> Result<(), RecoverError> {
    let segment = &segments[at];
    let expected = Opening { first_seq: log.seq + 1, prev_chain: log.chain };
    let Some(opening) = segment.header.opening else {
        if at == 0 {
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
    notes: &mut Vec<Note>,
) -> Result<(), RecoverError> {
    // Segments before the last opening are settled by it.
    let settled = segments.iter().rposition(|s| s.header.opening.is_some()).unwrap_or(0);
    let live = &segments[settled.min(segments.len())..];
    let seq = log.seq + 1;
    let mut stray = Stray { seq: 0, durable_upto: hard.batch, hint: hard.state.commit.max(log.hint) };
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

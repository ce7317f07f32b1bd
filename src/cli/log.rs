//! `log inspect` and `log verify`: the directory of a stopped node.

use palisade::inspect::{NodeView, inspect};
use palisade_types::{LogIndex, ShardId, Term};
use palisade_wal::{HardView, Note, RecoverError, SegmentView, ShardView, SnapshotView};
use serde_json::{Value, json};

use super::args::{Global, LogArgs, LogVerb};
use super::exit::{self, Failure};
use super::output::Output;

/// Shows or checks a directory.
pub(crate) fn run(global: &Global, args: &LogArgs) -> Result<u8, Failure> {
    let (LogVerb::Inspect(at) | LogVerb::Verify(at)) = &args.verb;
    let view = inspect(&at.dir).map_err(|e| Failure::new(exit::CONFIG, e.to_string()))?;
    let mut out = Output::new(global.json);
    let code = match args.verb {
        LogVerb::Inspect(_) => show(&mut out, &view)?,
        LogVerb::Verify(_) => verify(&mut out, &view)?,
    };
    out.flush()?;
    Ok(code)
}

fn show(out: &mut Output, view: &NodeView) -> Result<u8, Failure> {
    let id = &view.identity;
    let (boots, members) = view.boot.as_ref().map_or((None, 0), |b| (Some(b.boots), b.members.len()));
    out.line(
        || {
            json!({
                "record": "node", "node": id.node.0, "name": id.cluster_name.as_str(),
                "cluster": id.cluster.to_string(), "incarnation": id.incarnation.to_string(),
                "shards": id.shards, "voters": id.voters.iter().map(|v| v.0).collect::<Vec<_>>(),
                "boots": boots, "members_met": members,
            })
        },
        || {
            let boots = boots.map_or("an unreadable number of".to_owned(), |b| b.to_string());
            format!(
                "node {} of {} (cluster {}, incarnation {}): {boots} starts, {members} members met",
                id.node, id.cluster_name, id.cluster, id.incarnation
            )
        },
    )?;
    let mut code = 0;
    for (shard, view) in &view.shards {
        code = code.max(show_shard(out, *shard, view)?);
    }
    Ok(code)
}

fn show_shard(out: &mut Output, shard: ShardId, view: &ShardView) -> Result<u8, Failure> {
    match &view.hard_state {
        Ok(HardView { state, generation, incomplete }) => out.line(
            || {
                json!({
                    "record": "hard_state", "shard": shard.0, "term": state.term.0,
                    "vote": state.vote.map(|v| v.0), "generation": generation, "copies_whole": !incomplete,
                })
            },
            || {
                let vote = state.vote.map_or("nobody".to_owned(), |v| format!("node {v}"));
                let copies = if *incomplete { ", a copy is not whole" } else { "" };
                format!(
                    "shard {shard}: term {}, vote for {vote}, written {generation} times{copies}",
                    state.term
                )
            },
        )?,
        Err(fault) => say(out, "fault", shard, &fault.to_string())?,
    }
    for snapshot in &view.snapshots {
        out.line(|| snapshot_json(shard, snapshot), || snapshot_line(snapshot))?;
    }
    for segment in &view.segments {
        out.line(|| segment_json(shard, segment), || segment_line(segment))?;
    }
    match &view.start {
        Ok(start) => {
            for note in &start.notes {
                say(out, "note", shard, &note.to_string())?;
            }
            let (snapshot, last) = (start.snapshot.map_or(LogIndex(0), |s| s.last), start.tail.last());
            out.line(
                || {
                    json!({
                        "record": "start", "shard": shard.0, "refused": false, "snapshot": snapshot.0,
                        "log_begins_behind": start.base.index.0, "last": last.0,
                    })
                },
                || {
                    let from = match snapshot.0 {
                        0 => "without a snapshot".to_owned(),
                        index => format!("from the snapshot at {index}"),
                    };
                    format!("a start goes on {from}; the log holds {} to {last}", start.base.index.next())
                },
            )?;
            Ok(0)
        }
        Err(fault) => {
            out.line(
                || json!({"record": "start", "shard": shard.0, "refused": true, "why": fault.to_string()}),
                || format!("a start is refused: {fault}"),
            )?;
            Ok(exit::CONFIG)
        }
    }
}

fn say(out: &mut Output, record: &str, shard: ShardId, text: &str) -> Result<(), Failure> {
    out.line(|| json!({"record": record, "shard": shard.0, "text": text}), || format!("{record}: {text}"))
}

fn snapshot_json(shard: ShardId, view: &SnapshotView) -> Value {
    json!({
        "record": "snapshot", "shard": shard.0, "file": view.file,
        "last": view.id.map(|i| i.last.0), "term": view.id.map(|i| i.term.0),
        "bytes": view.id.map(|i| i.bytes), "chunks": view.id.map(|i| i.chunks),
        "digest": view.id.map(|i| format!("{:032x}", i.digest)), "first_segment": view.segment,
        "readable": view.whole.is_ok(), "why": view.whole.as_ref().err().map(ToString::to_string),
    })
}

fn snapshot_line(view: &SnapshotView) -> String {
    let state = match &view.whole {
        Ok(()) => "whole".to_owned(),
        Err(fault) => fault.to_string(),
    };
    match view.id {
        Some(id) => format!(
            "{}: up to {} of term {}, {} bytes in {} chunks, digest {:032x}: {state}",
            view.file, id.last, id.term, id.bytes, id.chunks, id.digest
        ),
        None => state,
    }
}

fn segment_json(shard: ShardId, view: &SegmentView) -> Value {
    json!({
        "record": "segment", "shard": shard.0, "file": view.file, "number": view.number,
        "salt": view.salt.map(|s| format!("{s:032x}")), "made_by_a_start": view.opening,
        "bytes": view.bytes, "used": view.used, "first_batch": view.first_batch, "batches": view.batches,
        "seals": view.seals, "durable_upto": view.durable_upto, "blocks": view.blocks,
        "first": view.first.0, "last": view.last.0,
        "terms": view.terms.iter().map(|t| t.0).collect::<Vec<_>>(), "fault": view.fault,
    })
}

fn segment_line(view: &SegmentView) -> String {
    let fault = view.fault.as_ref().map(|f| format!(": {f}")).unwrap_or_default();
    if view.batches == 0 {
        return format!("{}: no batches in {} bytes{fault}", view.file, view.bytes);
    }
    let terms: Vec<String> = view.terms.iter().map(Term::to_string).collect();
    let what = match view.first.0 {
        0 => "no commands".to_owned(),
        first => format!("{first} to {} in {} blocks, terms {}", view.last, view.blocks, terms.join(" ")),
    };
    format!(
        "{}: batches {} to {} ({} seals), {what}; {} of {} bytes used{fault}",
        view.file,
        view.first_batch,
        view.first_batch + view.batches - 1,
        view.seals,
        view.used,
        view.bytes
    )
}

/// Says everything that is wrong, with what to do. Returns the exit status.
fn verify(out: &mut Output, view: &NodeView) -> Result<u8, Failure> {
    let mut code = 0;
    let mut wrong = |out: &mut Output, severity: u8, what: String, todo: &str| {
        code = code.max(severity);
        out.line(
            || json!({"record": "wrong", "refused": severity == exit::CONFIG, "what": what, "do": todo}),
            || format!("{what}\n  {todo}"),
        )
    };
    if view.identity_damaged {
        wrong(out, exit::REFUSED, "IDENTITY: a copy is unreadable".into(), MENDED)?;
    }
    match &view.boot {
        Err(fault) => wrong(out, exit::CONFIG, fault.to_string(), REPLACE)?,
        Ok(boot) if boot.incomplete => {
            wrong(out, exit::REFUSED, "BOOT: a copy is unreadable or unfinished".into(), MENDED)?;
        }
        Ok(_) => {}
    }
    for (_, shard) in &view.shards {
        match &shard.start {
            Err(fault) => wrong(out, exit::CONFIG, fault.to_string(), what_to_do(fault))?,
            Ok(start) => {
                for note in start.notes.iter().filter(|n| !is_trace_of_a_crash(n)) {
                    wrong(out, exit::REFUSED, note.to_string(), MENDED)?;
                }
                let noted = |fault: &RecoverError| {
                    start.notes.iter().any(|n| matches!(n, Note::SnapshotDamaged { fault: f } if f == fault))
                };
                for snapshot in &shard.snapshots {
                    if let Err(fault) = &snapshot.whole
                        && !noted(fault)
                    {
                        wrong(out, exit::REFUSED, fault.to_string(), SPARE)?;
                    }
                }
            }
        }
    }
    if code == 0 {
        out.line(|| json!({"record": "ok"}), || "everything was read and is whole".to_owned())?;
    }
    Ok(code)
}

const MENDED: &str = "the next start mends it; if there was no crash or power cut, suspect the disk";
const SPARE: &str = "a newer snapshot is in use and this one goes with the next; suspect the disk";
const REPLACE: &str = "leave the directory as it is and replace this node under a new id";

fn what_to_do(fault: &RecoverError) -> &'static str {
    match fault {
        RecoverError::Newer { .. } => "start it with the version that wrote it, or a later one",
        RecoverError::Foreign { .. } | RecoverError::Missing { .. } | RecoverError::Hole { .. } => {
            "put the files of this node back where they were; if they are lost, replace it under a new id"
        }
        RecoverError::Source(_) => "see to it that the disk can be read, then verify again",
        RecoverError::Damaged { .. } | RecoverError::GenerationLost { .. } => REPLACE,
    }
}

/// What a crash leaves in the normal course of things, and what is not ours.
fn is_trace_of_a_crash(note: &Note) -> bool {
    matches!(
        note,
        Note::TornTail { .. }
            | Note::Unfinished { .. }
            | Note::Leftover { .. }
            | Note::Unknown { .. }
            | Note::Restarted { .. }
    )
}

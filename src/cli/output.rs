//! What the reading verbs print: lines for people, or JSON, one object a line.

use std::io::{self, BufWriter, Stdout, Write};

use palisade_client::{
    Cause, Description, HolderInfo, LockRow, NodeStatus, OperatorAct, OperatorRow, SessionRow, Transition,
    TransitionKind, WaiterInfo,
};
use serde_json::{Value, json};

use super::exit::{self, Failure};

/// Stdout, buffered, with the choice of form.
pub(crate) struct Output {
    out: BufWriter<Stdout>,
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        Output { out: BufWriter::new(io::stdout()), json }
    }

    /// Prints an object, or the line for people.
    ///
    /// # Errors
    /// When stdout cannot be written. A reader that has gone is no error of ours: exit status 0 would
    /// be a lie and a message is noise, so it ends as SIGPIPE would end it.
    pub(crate) fn line(
        &mut self,
        json: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let line = if self.json { json().to_string() } else { text() };
        writeln!(self.out, "{line}").map_err(|e| write_failure(&e))
    }

    /// Sends everything on its way.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|e| write_failure(&e))
    }
}

fn write_failure(e: &io::Error) -> Failure {
    let code = if e.kind() == io::ErrorKind::BrokenPipe { exit::of_signal(libc::SIGPIPE) } else { exit::OS };
    Failure::new(code, format!("cannot write to stdout: {e}"))
}

/// Milliseconds as people read them.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

fn holder_json(h: &HolderInfo) -> Value {
    json!({
        "session": h.session.to_string(),
        "owner": h.owner.as_deref(),
        "epoch": h.epoch.0,
        "held_ms": h.held_ms,
        "ending": h.ending,
    })
}

/// A holder in a line for people.
pub(crate) fn holder_text(h: &HolderInfo) -> String {
    let owner = h.owner.as_deref().map(|o| format!("{o}, ")).unwrap_or_default();
    let ending = if h.ending { ", its session has ended" } else { "" };
    format!("{owner}session {}, epoch {}, for {}{ending}", h.session, h.epoch, span(h.held_ms))
}

fn waiter_json(w: &WaiterInfo) -> Value {
    json!({ "session": w.session.to_string(), "owner": w.owner.as_deref(), "waited_ms": w.waited_ms })
}

/// A cause in one word.
pub(crate) fn cause_name(cause: &Cause) -> &'static str {
    match cause {
        Cause::Closed => "closed",
        Cause::Expired { .. } => "expired",
        Cause::Forgotten => "forgotten",
        Cause::ReportedDead { .. } => "reported-dead",
        Cause::Evicted { .. } => "evicted",
    }
}

fn transition_json(t: &Transition) -> Value {
    let (what, cause) = match &t.kind {
        TransitionKind::Granted => ("granted", None),
        TransitionKind::Released => ("released", None),
        TransitionKind::SessionEnded(cause) => ("session-ended", Some(cause)),
        TransitionKind::Forced => ("forced", None),
    };
    let action = match cause {
        Some(Cause::ReportedDead { action } | Cause::Evicted { action }) => Some(action.0),
        None if t.kind == TransitionKind::Forced => Some(t.revision.0),
        _ => None,
    };
    let silent_ms = match cause {
        Some(Cause::Expired { silent_ms }) => Some(silent_ms),
        _ => None,
    };
    json!({
        "revision": t.revision.0,
        "what": what,
        "cause": cause.map(cause_name),
        "silent_ms": silent_ms,
        "action": action,
        "session": t.session.to_string(),
        "epoch": t.epoch.0,
        "ago_ms": t.ago_ms,
    })
}

fn transition_text(t: &Transition) -> String {
    let what = match &t.kind {
        TransitionKind::Granted => "granted".to_owned(),
        TransitionKind::Released => "released".to_owned(),
        TransitionKind::SessionEnded(cause) => format!("session ended ({cause})"),
        TransitionKind::Forced => format!("released by an operator (action {})", t.revision),
    };
    format!(
        "  {} ago: epoch {} {what}, session {}, revision {}",
        span(t.ago_ms),
        t.epoch,
        t.session,
        t.revision
    )
}

/// A description as an object.
pub(crate) fn description_json(d: &Description, revision: u64) -> Value {
    json!({
        "key": d.key.as_str(),
        "class": d.class.map(|c| c.to_string()),
        "resource": d.resource.as_deref(),
        "epoch": d.epoch.0,
        "holder": d.holder.as_ref().map(holder_json),
        "waiting": d.waiting,
        "waiters": d.waiters.iter().map(waiter_json).collect::<Vec<_>>(),
        "transitions": d.transitions.iter().map(transition_json).collect::<Vec<_>>(),
        "consistency": "linearizable",
        "revision": revision,
    })
}

/// A description for people.
pub(crate) fn description_text(d: &Description, revision: u64) -> String {
    let mut lines = vec![format!("key       {}", d.key)];
    match d.class {
        Some(class) => lines.push(format!("class     {class}")),
        None => lines.push("class     none: the key has no record".to_owned()),
    }
    if let Some(resource) = &d.resource {
        lines.push(format!("resource  {resource}"));
    }
    lines.push(format!("epoch     {}", d.epoch));
    lines.push(format!("holder    {}", d.holder.as_ref().map_or("nobody".to_owned(), holder_text)));
    lines.push(format!("waiting   {}", d.waiting));
    for (place, w) in d.waiters.iter().enumerate() {
        let owner = w.owner.as_deref().map(|o| format!("{o}, ")).unwrap_or_default();
        lines.push(format!("  {}. {owner}session {}, for {}", place + 1, w.session, span(w.waited_ms)));
    }
    if !d.transitions.is_empty() {
        lines.push("last transitions, newest first".to_owned());
        lines.extend(d.transitions.iter().map(transition_text));
    }
    lines.push(format!("(linearizable, revision {revision})"));
    lines.join("\n")
}

/// A key of a listing as an object.
pub(crate) fn lock_json(row: &LockRow) -> Value {
    json!({
        "key": row.key.as_str(),
        "class": row.class.to_string(),
        "epoch": row.epoch.0,
        "holder": row.holder.as_ref().map(holder_json),
        "waiting": row.waiting,
    })
}

/// A key of a listing for people.
pub(crate) fn lock_text(row: &LockRow) -> String {
    let holder = row.holder.as_ref().map_or("free".to_owned(), |h| format!("held by {}", holder_text(h)));
    format!(
        "{:<32} {:<8} epoch {:<8} waiting {:<4} {holder}",
        row.key.as_str(),
        row.class.to_string(),
        row.epoch,
        row.waiting
    )
}

/// A session of a listing as an object.
pub(crate) fn session_json(row: &SessionRow) -> Value {
    json!({
        "session": row.session.to_string(),
        "owner": row.owner.as_deref(),
        "incarnation": row.incarnation.as_deref(),
        "ttl_ms": row.ttl_ms,
        "held": row.held,
        "waiting": row.waiting,
    })
}

/// A session of a listing for people.
pub(crate) fn session_text(row: &SessionRow) -> String {
    let owner = row.owner.as_deref().unwrap_or("-");
    let incarnation = row.incarnation.as_deref().map(|i| format!(" ({i})")).unwrap_or_default();
    format!(
        "{:<14} ttl {:<10} holds {:<5} waits for {:<5} {owner}{incarnation}",
        row.session.to_string(),
        span(u64::from(row.ttl_ms)),
        row.held,
        row.waiting
    )
}

/// An operator's action as an object.
pub(crate) fn act_json(row: &OperatorRow) -> Value {
    let (session, key, epoch) = match &row.act {
        OperatorAct::ReportDead { session } | OperatorAct::Evict { session } => (Some(session), None, None),
        OperatorAct::ForceRelease { key, epoch } => (None, Some(key), Some(epoch.0)),
        OperatorAct::Retire { key } => (None, Some(key), None),
    };
    json!({
        "action": row.revision.0,
        "what": row.act.verb(),
        "session": session.map(ToString::to_string),
        "key": key.map(|key| key.as_str()),
        "epoch": epoch,
        "by": row.by.as_str(),
        "reason": row.reason.as_str(),
        "ago_ms": row.ago_ms,
    })
}

/// An operator's action for people.
pub(crate) fn act_text(row: &OperatorRow) -> String {
    let OperatorRow { revision, act, by, reason, ago_ms } = row;
    format!("action {revision}, {} ago: {act} by {by}: {reason}", span(*ago_ms))
}

/// What a node says of itself, as an object.
pub(crate) fn status_json(endpoint: &str, s: &NodeStatus) -> Value {
    json!({
        "endpoint": endpoint,
        "reachable": true,
        "node": s.node.0,
        "role": s.role,
        "term": s.term.0,
        "leader": s.leader.map(|l| l.0),
        "last": s.last.0,
        "durable": s.durable.0,
        "commit": s.commit.0,
        "applied": s.applied.0,
        "sessions": s.sessions,
        "keys": s.keys,
        "log_bytes": s.log_bytes,
        "boot": s.boot,
    })
}

/// What a node says of itself, for people.
pub(crate) fn status_text(endpoint: &str, s: &NodeStatus) -> String {
    let leader = s.leader.map_or("none".to_owned(), |l| format!("node {l}"));
    format!(
        "{endpoint:<22} node {}  {:<9} term {}  leader {leader}  log {} durable {} commit {} applied {}  \
         sessions {}  keys {}  log {} MiB  boot {}",
        s.node,
        s.role,
        s.term,
        s.last,
        s.durable,
        s.commit,
        s.applied,
        s.sessions,
        s.keys,
        s.log_bytes >> 20,
        s.boot
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{Class, Epoch, LogIndex, Name, SessionId, ShardId};

    fn session() -> SessionId {
        SessionId { shard: ShardId(0), opened: LogIndex(17) }
    }

    #[test]
    fn spans_read_naturally() {
        let texts = [0, 999, 1_000, 59_999, 60_000, 3_600_000].map(span);
        assert_eq!(texts, ["0 ms", "999 ms", "1.0 s", "59.9 s", "1 min 0 s", "1 h 0 min"]);
    }

    #[test]
    fn a_description_shows_the_cause_of_the_last_end_in_both_forms() {
        let ended = TransitionKind::SessionEnded(Cause::Expired { silent_ms: 30_300 });
        let d = Description {
            key: Name::new("k").unwrap(),
            class: Some(Class::Fenced),
            resource: Some(Name::new("db").unwrap()),
            epoch: Epoch(3),
            holder: None,
            waiting: 0,
            waiters: Vec::new(),
            transitions: vec![Transition {
                revision: LogIndex(40),
                kind: ended,
                session: session(),
                epoch: Epoch(3),
                ago_ms: 1_500,
            }],
        };
        let json = description_json(&d, 41);
        assert_eq!(json["transitions"][0]["cause"], "expired");
        assert_eq!(json["transitions"][0]["silent_ms"], 30_300);
        assert_eq!(json["holder"], Value::Null);
        let text = description_text(&d, 41);
        assert!(text.contains("nobody") && text.contains("expired after 30300 ms of silence"), "{text}");
    }

    #[test]
    fn a_row_names_its_holder_in_both_forms() {
        let holder = HolderInfo {
            session: session(),
            owner: Some(Name::new("host:1").unwrap()),
            epoch: Epoch(9),
            held_ms: 61_000,
            ending: false,
        };
        let row = LockRow {
            key: Name::new("a b").unwrap(),
            class: Class::Advisory,
            epoch: Epoch(9),
            holder: Some(holder),
            waiting: 2,
        };
        assert_eq!(lock_json(&row)["holder"]["session"], "0-17");
        assert!(lock_text(&row).ends_with("held by host:1, session 0-17, epoch 9, for 1 min 1 s"));
    }
}

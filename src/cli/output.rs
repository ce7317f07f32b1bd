//! What the reading verbs print: lines for people, or JSON, one object a line.

use std::borrow::Cow;
use std::io::{self, BufWriter, Stdout, Write};

use palisade_client::{
    Cause, Consistency, Description, HolderInfo, LockRow, Mode, NodeStatus, OperatorAct, OperatorRow,
    ReadMark, ResourceRow, SessionRow, Standing, Transition, TransitionKind, ValueRow, WaiterInfo,
};
use serde_json::{Value, json};

use super::args::Global;
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

    /// Prints bytes as they are.
    ///
    /// # Errors
    /// As [`Output::line`].
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|e| write_failure(&e))
    }

    /// Sends everything on its way.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|e| write_failure(&e))
    }
}

/// Tells people that a listing is empty, and not that it failed: on stderr, where no script looks.
pub(crate) fn say_if_none(global: &Global, is_empty: bool) {
    if is_empty && !global.json {
        eprintln!("none");
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
        "incarnation": h.incarnation.as_deref(),
        "epoch": h.epoch.0,
        "mode": h.mode.to_string(),
        "held_ms": h.held_ms,
        "standing": h.standing.to_string(),
    })
}

/// A holder in a line for people.
pub(crate) fn holder_text(h: &HolderInfo) -> String {
    let owner = h.owner.as_deref().map(|o| format!("{o}, ")).unwrap_or_default();
    let shared = if h.mode == Mode::Shared { ", shared" } else { "" };
    let standing = match h.standing {
        Standing::Live => "",
        Standing::Ending => ", its session has ended",
        Standing::Quarantined => {
            ", in quarantine: its session has ended, and nobody gets the key until it is reported dead"
        }
    };
    format!("{owner}session {}, epoch {}{shared}, for {}{standing}", h.session, h.epoch, span(h.held_ms))
}

fn waiter_json(w: &WaiterInfo) -> Value {
    json!({
        "session": w.session.to_string(),
        "owner": w.owner.as_deref(),
        "mode": w.mode.to_string(),
        "waited_ms": w.waited_ms,
    })
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
        TransitionKind::Downgraded => ("downgraded", None),
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
        TransitionKind::Downgraded => "turned into a shared one".to_owned(),
    };
    format!(
        "  {} ago: epoch {} {what}, session {}, revision {}",
        span(t.ago_ms),
        t.epoch,
        t.session,
        t.revision
    )
}

/// What a read's answer promises, as an object.
pub(crate) fn mark_json(read: ReadMark) -> Value {
    json!({ "consistency": read.consistency.to_string(), "revision": read.revision.0 })
}

/// What a read's answer promises, for people.
pub(crate) fn mark_text(read: ReadMark) -> String {
    let ReadMark { consistency, revision } = read;
    match consistency {
        Consistency::Stale => {
            format!("(stale, revision {revision}: what the node that answered has applied; newer may exist)")
        }
        Consistency::Linearizable | Consistency::Lease => format!("({consistency}, revision {revision})"),
    }
}

/// A description as an object.
pub(crate) fn description_json(d: &Description, read: ReadMark) -> Value {
    json!({
        "key": d.key.as_str(),
        "class": d.class.map(|c| c.to_string()),
        "resource": d.resource.as_deref(),
        "epoch": d.epoch.0,
        "holding": d.holding,
        "holders": d.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "value": d.value.as_deref().and_then(|value| std::str::from_utf8(value).ok()),
        "hex": d.value.as_deref().and_then(hex_unless_text),
        "waiting": d.waiting,
        "waiters": d.waiters.iter().map(waiter_json).collect::<Vec<_>>(),
        "transitions": d.transitions.iter().map(transition_json).collect::<Vec<_>>(),
        "consistency": read.consistency.to_string(),
        "revision": read.revision.0,
    })
}

/// A description for people.
pub(crate) fn description_text(d: &Description, read: ReadMark) -> String {
    let mut lines = vec![format!("key       {}", d.key)];
    match d.class {
        Some(class) => lines.push(format!("class     {class}")),
        None => lines.push("class     none: the key has no record".to_owned()),
    }
    if let Some(resource) = &d.resource {
        lines.push(format!("resource  {resource}"));
    }
    lines.push(format!("epoch     {}", d.epoch));
    match &d.holders[..] {
        [] => lines.push("holder    nobody".to_owned()),
        [holder] => lines.push(format!("holder    {}", holder_text(holder))),
        several => {
            lines.push(format!("holders   {}", d.holding));
            lines.extend(several.iter().map(|h| format!("  {}", holder_text(h))));
        }
    }
    if let Some(value) = &d.value {
        lines.push(format!("value     {}", bytes_text(value)));
    }
    lines.push(format!("waiting   {}", d.waiting));
    for (place, w) in d.waiters.iter().enumerate() {
        let owner = w.owner.as_deref().map(|o| format!("{o}, ")).unwrap_or_default();
        let shared = if w.mode == Mode::Shared { ", shared" } else { "" };
        lines.push(format!(
            "  {}. {owner}session {}{shared}, for {}",
            place + 1,
            w.session,
            span(w.waited_ms)
        ));
    }
    if !d.transitions.is_empty() {
        lines.push("last transitions, newest first".to_owned());
        lines.extend(d.transitions.iter().map(transition_text));
    }
    lines.push(mark_text(read));
    lines.join("\n")
}

/// A key of a listing as an object.
pub(crate) fn lock_json(row: &LockRow) -> Value {
    json!({
        "key": row.key.as_str(),
        "class": row.class.to_string(),
        "epoch": row.epoch.0,
        "holding": row.holding,
        "holder": row.holder.as_ref().map(holder_json),
        "waiting": row.waiting,
    })
}

/// A key of a listing for people.
pub(crate) fn lock_text(row: &LockRow) -> String {
    let holder = match &row.holder {
        None => "free".to_owned(),
        Some(h) if row.holding > 1 => format!("held by {}, first {}", row.holding, holder_text(h)),
        Some(h) => format!("held by {}", holder_text(h)),
    };
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
        "values": row.values,
        "quarantined": row.quarantined,
    })
}

/// A session of a listing for people.
pub(crate) fn session_text(row: &SessionRow) -> String {
    let ttl = match row.quarantined {
        true => "ended, its keys in quarantine:".to_owned(),
        false => format!("ttl {:<10}", span(u64::from(row.ttl_ms))),
    };
    let owner = row.owner.as_deref().unwrap_or("-");
    let incarnation = row.incarnation.as_deref().map(|i| format!(" ({i})")).unwrap_or_default();
    format!(
        "{:<14} {ttl} holds {:<5} waits for {:<5} has put {:<5} {owner}{incarnation}",
        row.session.to_string(),
        row.held,
        row.waiting,
        row.values
    )
}

/// A resource of a listing as an object; of many keys it names the first.
pub(crate) fn resource_json(row: &ResourceRow) -> Value {
    let keys: Vec<&str> = row.keys.iter().map(|key| key.as_str()).collect();
    json!({ "resource": row.resource.as_str(), "count": row.count, "conflict": row.count > 1, "keys": keys })
}

/// A resource of a listing for people.
pub(crate) fn resource_text(row: &ResourceRow) -> String {
    let keys: Vec<Cow<'_, str>> = row.keys.iter().map(|key| word(key)).collect();
    let more = match row.count as usize - keys.len().min(row.count as usize) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let conflict = if row.count > 1 { "CONFLICT: protected by " } else { "protected by " };
    format!("{:<30} {conflict}{}{more}", word(&row.resource), keys.join(", "))
}

/// Bytes that are no text, in hexadecimal.
pub(crate) fn hex_unless_text(bytes: &[u8]) -> Option<String> {
    let is_text = std::str::from_utf8(bytes).is_ok();
    (!is_text).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Bytes in a line for people: what is no text of a line is escaped.
pub(crate) fn bytes_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// An ephemeral key as an object. A value that is no text is given in hexadecimal.
pub(crate) fn value_json(row: &ValueRow) -> Value {
    let text = std::str::from_utf8(&row.value).ok();
    json!({
        "key": row.key.as_str(),
        "value": text,
        "hex": hex_unless_text(&row.value),
        "session": row.session.to_string(),
        "owner": row.owner.as_deref(),
        "created": row.created.0,
        "modified": row.modified.0,
        "ending": row.ending,
    })
}

/// An ephemeral key as an object, with what its read promises.
pub(crate) fn value_read_json(row: &ValueRow, read: ReadMark) -> Value {
    let mut object = value_json(row);
    if let (Value::Object(all), Value::Object(mark)) = (&mut object, mark_json(read)) {
        all.extend(mark);
    }
    object
}

/// An ephemeral key for people. What is no text of a line is escaped.
pub(crate) fn value_text(row: &ValueRow) -> String {
    let value = bytes_text(&row.value);
    let owner = row.owner.as_deref().map(|o| format!("{o}, ")).unwrap_or_default();
    let ending = if row.ending { ", which has ended" } else { "" };
    format!("{:<32} {value:<24} {owner}session {}{ending}", row.key.as_str(), row.session)
}

/// An operator's action as an object.
pub(crate) fn act_json(row: &OperatorRow) -> Value {
    let (session, key, epoch) = match &row.act {
        OperatorAct::ReportDead { session } | OperatorAct::Evict { session } => (Some(session), None, None),
        OperatorAct::ForceRelease { key, epoch } | OperatorAct::Retire { key, epoch } => {
            (None, Some(key), Some(epoch.0))
        }
        OperatorAct::Transfer { .. } => (None, None, None),
    };
    let (term, to) = match &row.act {
        OperatorAct::Transfer { term, to } => (Some(term.0), to.map(|node| node.0)),
        _ => (None, None),
    };
    json!({
        "action": row.revision.0,
        "what": row.act.verb(),
        "session": session.map(ToString::to_string),
        "key": key.map(|key| key.as_str()),
        "epoch": epoch,
        "term": term,
        "to": to,
        "by": row.by.as_str(),
        "reason": row.reason.as_str(),
        "ago_ms": row.ago_ms,
    })
}

/// A name as it is, or in quotes where it could be mistaken for the words around it.
fn word(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@._:/-".contains(c);
    if name.chars().all(plain) { Cow::Borrowed(name) } else { Cow::Owned(format!("{name:?}")) }
}

/// An operator's action for people. Only the reason is free text, and it ends the line.
pub(crate) fn act_text(row: &OperatorRow) -> String {
    let OperatorRow { revision, act, by, reason, ago_ms } = row;
    let whom = match act {
        OperatorAct::ReportDead { session } | OperatorAct::Evict { session } => session.to_string(),
        OperatorAct::ForceRelease { key, epoch } | OperatorAct::Retire { key, epoch } => {
            format!("{}@{epoch}", word(key))
        }
        OperatorAct::Transfer { term, to: Some(to) } => format!("of term {term} to node {to}"),
        OperatorAct::Transfer { term, to: None } => format!("of term {term}"),
    };
    format!("action {revision}, {} ago: {} {whom} by {}: {reason}", span(*ago_ms), act.verb(), word(by))
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
        "snapshot": s.snapshot.0,
        "boot": s.boot,
        "cluster": s.cluster.map(|c| c.to_string()),
        "recovering": s.is_recovering(),
    })
}

/// What a node says of itself, for people.
pub(crate) fn status_text(endpoint: &str, s: &NodeStatus) -> String {
    let leader = s.leader.map_or("none".to_owned(), |l| format!("node {l}"));
    format!(
        "{endpoint:<22} node {}  {:<9} term {}  leader {leader}  log {} durable {} commit {} applied {}  \
         sessions {}  keys {}  log {} MiB  snapshot {}  boot {}  cluster {}{}",
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
        s.snapshot,
        s.boot,
        s.cluster.map_or("not known".to_owned(), |c| c.to_string()),
        if s.is_recovering() { "  recovering: it is applying its log" } else { "" }
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
            holding: 0,
            holders: vec![],
            value: None,
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
        let read = ReadMark { consistency: Consistency::Linearizable, revision: LogIndex(41) };
        let json = description_json(&d, read);
        assert_eq!(json["transitions"][0]["cause"], "expired");
        assert_eq!(json["transitions"][0]["silent_ms"], 30_300);
        assert_eq!(json["holder"], Value::Null);
        let text = description_text(&d, read);
        assert!(text.ends_with("(linearizable, revision 41)"), "{text}");
        let stale = ReadMark { consistency: Consistency::Stale, ..read };
        assert!(description_text(&d, stale).contains("(stale, revision 41: "));
        assert_eq!(description_json(&d, stale)["consistency"], "stale");
        assert!(text.contains("nobody") && text.contains("expired after 30300 ms of silence"), "{text}");
    }

    #[test]
    fn a_value_is_shown_as_text_where_it_is_and_recoverable_where_it_is_not() {
        let mut row = ValueRow {
            key: Name::new("svc/a").unwrap(),
            value: (*"höst:80\n").as_bytes().into(),
            session: session(),
            owner: None,
            created: LogIndex(3),
            modified: LogIndex(4),
            ending: true,
        };
        assert_eq!(value_json(&row)["value"], "höst:80\n");
        assert!(value_text(&row).contains(r"höst:80\n"), "{}", value_text(&row));
        assert!(value_text(&row).ends_with("session 0-17, which has ended"));
        row.value = [0xff, 0x0a].into();
        assert_eq!((&value_json(&row)["value"], &value_json(&row)["hex"]), (&Value::Null, &"ff0a".into()));
        assert!(value_text(&row).contains(r"\xff\n"), "{}", value_text(&row));
    }

    #[test]
    fn the_line_of_an_act_reads_one_way_whatever_the_names() {
        let row = |by: &str, key: &str, reason: &str| OperatorRow {
            revision: LogIndex(9),
            act: OperatorAct::Retire { key: Name::new(key).unwrap(), epoch: Epoch(3) },
            by: Name::new(by).unwrap(),
            reason: Name::new(reason).unwrap(),
            ago_ms: 5,
        };
        let plain = act_text(&row("ops@host-1.x:9/a_b", "jobs/k@b", "a mistake: really"));
        assert_eq!(plain, "action 9, 5 ms ago: retire jobs/k@b@3 by ops@host-1.x:9/a_b: a mistake: really");
        let told = act_text(&row("ops: told by eve", "k", "x"));
        assert_eq!(told, r#"action 9, 5 ms ago: retire k@3 by "ops: told by eve": x"#);
        let quotes = act_text(&row(r#"a" by "b"#, "k by eve: x", "y"));
        assert_eq!(quotes, r#"action 9, 5 ms ago: retire "k by eve: x"@3 by "a\" by \"b": y"#);
    }

    #[test]
    fn a_node_that_applies_its_log_says_so() {
        let mut status = NodeStatus {
            node: palisade_types::NodeId(1),
            role: "follower".to_owned(),
            term: palisade_types::Term(4),
            leader: None,
            last: LogIndex(90_000),
            durable: LogIndex(90_000),
            commit: LogIndex(0),
            applied: LogIndex(0),
            sessions: 0,
            keys: 0,
            log_bytes: 1 << 20,
            snapshot: LogIndex(9),
            boot: 2,
            cluster: Some(palisade_types::ClusterIdentity(0xc0_ffee)),
        };
        let recovering = |s: &NodeStatus| {
            let text = status_text("a:1", s).contains("recovering");
            assert_eq!(status_json("a:1", s)["recovering"], text);
            text
        };
        assert!(recovering(&status), "what is committed is not known yet");
        status.commit = LogIndex(90_000);
        status.applied = LogIndex(40_000);
        assert!(recovering(&status), "far behind");
        status.applied = LogIndex(89_999);
        assert!(!recovering(&status));
        (status.last, status.commit, status.applied) = (LogIndex(0), LogIndex(0), LogIndex(0));
        assert!(!recovering(&status), "a new node has nothing to recover");
    }

    #[test]
    fn a_row_names_its_holder_in_both_forms() {
        let holder = HolderInfo {
            session: session(),
            owner: Some(Name::new("host:1").unwrap()),
            incarnation: None,
            epoch: Epoch(9),
            mode: Mode::Exclusive,
            held_ms: 61_000,
            standing: Standing::Live,
        };
        let row = LockRow {
            key: Name::new("a b").unwrap(),
            class: Class::Advisory,
            epoch: Epoch(9),
            holding: 1,
            holder: Some(holder),
            waiting: 2,
        };
        assert_eq!(lock_json(&row)["holder"]["session"], "0-17");
        assert!(lock_text(&row).ends_with("held by host:1, session 0-17, epoch 9, for 1 min 1 s"));
    }
}

//! Which answers there are to each command and request, and how often the runs must have seen each: a
//! workload that never gets an answer proves nothing about it. An answer that cannot be is not listed, and
//! must not be seen, so that the tables stay true.

use std::collections::BTreeMap;

use palisade_machine::Command;
use palisade_types::{Cause, Mode, OperatorAct, Outcome, Refusal, Reply};
use palisade_wire::{Query, Request};

/// How often each pair of command and answer was seen.
pub type Counts = BTreeMap<(&'static str, &'static str), u64>;

/// A command or request with its answers.
pub type Row = (&'static str, &'static [&'static str]);

/// The answers that the log gives to each command.
///
/// What cannot be: apply never calls the TTL of an open bad, for the leader has looked at it before; the
/// end by silence of a session that has ended otherwise is not proposed (`clocks.mark_ending`), and by no
/// later leader either; the end of a wait is proposed of a claim that stood in the queue, so that its
/// ticket is known, and was neither denied nor refused nor the ticket of a put. A downgrade or proclamation
/// names no new key, and so meets no limit of keys.
pub const OUTCOMES: &[Row] = &[
    ("open", &["opened", "session ended", "quota"]),
    ("close", &["closed", "session ended"]),
    ("expire", &["closed"]),
    ("acquire", ACQUIRED),
    ("acquire shared", ACQUIRED),
    ("campaign", ACQUIRED),
    ("release", GIVEN_UP),
    ("cancel", CANCELLED),
    (
        "time out",
        &["timed out", "granted", "cancelled", "released", "was forced", "was downgraded", "session ended"],
    ),
    (
        "downgrade",
        &["granted", "mismatch", "ticket finished", "bad request", "session full", "session ended"],
    ),
    (
        "proclaim",
        &[
            "done",
            "class",
            "quota",
            "mismatch",
            "ticket finished",
            "bad request",
            "session full",
            "session ended",
        ],
    ),
    (
        "put",
        &[
            "put",
            "owned by other",
            "quota",
            "mismatch",
            "ticket finished",
            "bad request",
            "session full",
            "session ended",
        ],
    ),
    (
        "delete",
        &[
            "deleted",
            "owned by other",
            "mismatch",
            "ticket finished",
            "bad request",
            "session full",
            "session ended",
        ],
    ),
    ("claim resource", &["claimed", "claimed beside another", "quota"]),
    ("report dead", &["acted", "session ended"]),
    ("evict", &["acted", "session ended"]),
    ("force release", &["acted", "not held"]),
    ("retire", &["acted", "not at epoch", "in use"]),
    ("transfer", &["acted"]),
];

const ACQUIRED: &[&str] = &[
    "granted",
    "queued",
    "denied",
    "class",
    "quota",
    "mismatch",
    "ticket finished",
    "bad request",
    "session full",
    "session ended",
];

const GIVEN_UP: &[&str] = &[
    "released",
    "cancelled",
    "timed out",
    "was denied",
    "was refused",
    "was forced",
    "was downgraded",
    "done",
    "long finished",
    "bad request",
    "session full",
    "session ended",
];

const CANCELLED: &[&str] = &[
    "granted",
    "released",
    "cancelled",
    "timed out",
    "was denied",
    "was refused",
    "was forced",
    "was downgraded",
    "done",
    "long finished",
    "bad request",
    "session full",
    "session ended",
];

/// Answers that can be, and are not asked for: the end of a wait is answered so only if 256 tickets of
/// its session finish while it is on its way to the log.
pub const RARE: &[Row] = &[("time out", &["long finished"])];

/// How a request is refused that makes the log grow which has reached its limit.
pub const LOG_FULL: &str = "the log is full";

/// The answers that nodes give by themselves.
///
/// What cannot be: a renewal is never too much; reads, attachments and renewals of a leader that is
/// deposed are sent on to the next one and have had no effect, so that nothing is `Interrupted`. The limit of
/// a node's watches and of a connection's are not reached; tests of the shard reach them.
pub const SERVED: &[Row] = &[
    ("open", &["not leader", "interrupted", "busy", LOG_FULL, "bad request"]),
    ("close", COMMANDED),
    ("acquire", &["not leader", "interrupted", "busy", "not attached", LOG_FULL, "bad request"]),
    ("campaign", CARRYING),
    ("release", COMMANDED),
    ("cancel", COMMANDED),
    ("downgrade", CARRYING),
    ("proclaim", CARRYING),
    ("put", CARRYING),
    ("delete", COMMANDED),
    ("claim resource", &["on record", "not leader", "interrupted", "busy", LOG_FULL]),
    (
        "operate",
        &[
            "not leader",
            "interrupted",
            "busy",
            LOG_FULL,
            "bad request",
            "not a voter",
            "other term",
            "not handed over",
        ],
    ),
    ("attach", &["attached", "session ended", "not leader", "busy", "bad request"]),
    ("renew", &["renewed", "session ended", "not attached", "not leader"]),
    ("status", &["status"]),
    ("describe", READ),
    ("get", READ),
    ("list locks", PAGE),
    ("list sessions", PAGE),
    ("list acts", PAGE),
    ("list values", PAGE),
    ("list resources", PAGE),
    ("watch", &["watching", "compacted", "cluster reset", "not leader", "bad request"]),
    ("unwatch", &["unwatched"]),
];

/// Of commands that free something: the limit of the log does not stop them.
const COMMANDED: &[&str] = &["not leader", "interrupted", "busy", "not attached", "bad request"];

const CARRYING: &[&str] = &["not leader", "interrupted", "busy", "not attached", LOG_FULL, "bad request"];

const READ: &[&str] = &["linearizable", "lease", "stale", "not leader", "busy"];

const PAGE: &[&str] = &["linearizable", "lease", "stale", "not leader", "busy", "bad request"];

/// What was seen too seldom, and what should not have been seen at all, as text; empty if all is well.
pub fn shortcomings(seen: &Counts, rows: &[Row], rare: &[Row], least: u64) -> Vec<String> {
    let mut all = Vec::new();
    for (what, answers) in rows {
        for answer in *answers {
            let times = seen.get(&(*what, *answer)).copied().unwrap_or_default();
            if times < least {
                all.push(format!("{what}: {answer} {times} times only"));
            }
        }
    }
    let lists = |rows: &[Row], pair: (&str, &str)| {
        rows.iter().any(|(what, answers)| *what == pair.0 && answers.contains(&pair.1))
    };
    for (&pair, times) in seen {
        if !lists(rows, pair) && !lists(rare, pair) {
            all.push(format!("{}: {} {times} times, which cannot be", pair.0, pair.1));
        }
    }
    all
}

pub(crate) fn kind_of_command(command: &Command) -> &'static str {
    match command {
        Command::OpenSession { .. } => "open",
        Command::EndSession { cause: Cause::Closed, .. } => "close",
        Command::EndSession { .. } => "expire",
        Command::Sweep { .. } => "sweep",
        Command::Acquire { mode: Mode::Exclusive, .. } => "acquire",
        Command::Acquire { mode: Mode::Shared, .. } => "acquire shared",
        Command::Release { .. } => "release",
        Command::Cancel { timeout: true, .. } => "time out",
        Command::Cancel { .. } => "cancel",
        Command::Downgrade { .. } => "downgrade",
        Command::Campaign { .. } => "campaign",
        Command::Proclaim { .. } => "proclaim",
        Command::Put { .. } => "put",
        Command::Delete { .. } => "delete",
        Command::ClaimResource { .. } => "claim resource",
        Command::Operator { act, .. } => match act {
            OperatorAct::ReportDead { .. } => "report dead",
            OperatorAct::Evict { .. } => "evict",
            OperatorAct::ForceRelease { .. } => "force release",
            OperatorAct::Retire { .. } => "retire",
            OperatorAct::Transfer { .. } => "transfer",
        },
    }
}

pub(crate) fn kind_of_reply(reply: &Reply) -> &'static str {
    match reply {
        Reply::Opened { .. } => "opened",
        Reply::SessionClosed { .. } => "closed",
        Reply::Granted { .. } => "granted",
        Reply::Queued { .. } => "queued",
        Reply::Denied { .. } => "denied",
        Reply::Finished { outcome, .. } => match outcome {
            Outcome::Unknown => "long finished",
            Outcome::Released => "released",
            Outcome::Cancelled => "cancelled",
            Outcome::TimedOut => "timed out",
            Outcome::Denied => "was denied",
            Outcome::Refused => "was refused",
            Outcome::Forced => "was forced",
            Outcome::Downgraded => "was downgraded",
            Outcome::Done => "done",
        },
        Reply::OperatorDone { .. } => "acted",
        Reply::PutDone { .. } => "put",
        Reply::Deleted { .. } => "deleted",
        Reply::ResourceClaimed { other: None, .. } => "claimed",
        Reply::ResourceClaimed { .. } => "claimed beside another",
        Reply::Refused(refusal) => match refusal {
            Refusal::SessionEnded { .. } => "session ended",
            Refusal::SessionFull { .. } => "session full",
            Refusal::QuotaExceeded { .. } => "quota",
            Refusal::ClassMismatch { .. } => "class",
            Refusal::TicketMismatch { .. } => "mismatch",
            Refusal::TicketFinished { .. } => "ticket finished",
            Refusal::NotHeld { .. } => "not held",
            Refusal::NotAtEpoch { .. } => "not at epoch",
            Refusal::OwnedByOther { .. } => "owned by other",
            Refusal::InUse => "in use",
            Refusal::BadRequest { .. } => "bad request",
            Refusal::NotLeader { .. }
            | Refusal::Interrupted { .. }
            | Refusal::Busy { .. }
            | Refusal::Compacted { .. }
            | Refusal::ClusterReset
            | Refusal::NotAVoter { .. }
            | Refusal::OtherTerm { .. }
            | Refusal::NotHandedOver { .. }
            | Refusal::NotAttached { .. } => "not apply's",
        },
        _ => "not apply's",
    }
}

/// The kind of a request.
pub(crate) fn kind_of_request(request: &Request) -> &'static str {
    match request {
        Request::OpenSession { .. } => "open",
        Request::Attach { .. } => "attach",
        Request::Renew { .. } => "renew",
        Request::CloseSession { .. } => "close",
        Request::Acquire { .. } => "acquire",
        Request::Release { .. } => "release",
        Request::Cancel { .. } => "cancel",
        Request::Status => "status",
        Request::Operate { .. } => "operate",
        Request::Downgrade { .. } => "downgrade",
        Request::Campaign { .. } => "campaign",
        Request::Proclaim { .. } => "proclaim",
        Request::Put { .. } => "put",
        Request::Delete { .. } => "delete",
        Request::Watch { .. } => "watch",
        Request::Unwatch { .. } => "unwatch",
        Request::ClaimResource { .. } => "claim resource",
        Request::Read { query, .. } => match query {
            Query::Describe { .. } => "describe",
            Query::Get { .. } => "get",
            Query::ListLocks { .. } => "list locks",
            Query::ListSessions { .. } => "list sessions",
            Query::ListOperatorActs { .. } => "list acts",
            Query::ListValues { .. } => "list values",
            Query::ListResources { .. } => "list resources",
        },
    }
}

/// The kind of a refusal that a node makes by itself.
pub(crate) fn kind_of_service_refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotLeader { .. } => "not leader",
        Refusal::Interrupted { .. } => "interrupted",
        Refusal::Busy { .. } => "busy",
        Refusal::NotAttached { .. } => "not attached",
        Refusal::QuotaExceeded { what, .. } if what == "the log" => LOG_FULL,
        Refusal::QuotaExceeded { .. } => "quota",
        Refusal::Compacted { .. } => "compacted",
        Refusal::ClusterReset => "cluster reset",
        Refusal::NotAVoter { .. } => "not a voter",
        Refusal::OtherTerm { .. } => "other term",
        Refusal::NotHandedOver { .. } => "not handed over",
        Refusal::BadRequest { .. } => "bad request",
        Refusal::SessionEnded { .. } => "session ended",
        _ => "a refusal of apply",
    }
}

/// The kind of an answer that a node gives by itself.
pub(crate) fn kind_of_service(reply: &Reply) -> &'static str {
    if let Some(read) = super::reads::mark_of(reply) {
        return match read.consistency {
            palisade_types::reply::Consistency::Linearizable => "linearizable",
            palisade_types::reply::Consistency::Lease => "lease",
            palisade_types::reply::Consistency::Stale => "stale",
        };
    }
    match reply {
        Reply::Refused(refusal) => kind_of_service_refusal(refusal),
        Reply::Attached { .. } => "attached",
        Reply::Renewed { .. } => "renewed",
        Reply::Status(_) => "status",
        Reply::Watching { .. } => "watching",
        Reply::Unwatched { .. } => "unwatched",
        Reply::ResourceClaimed { .. } => "on record",
        _ => "an answer of apply",
    }
}

/// The pairs seen most seldom, for whoever wants to know how much room there is.
pub fn scarcest(seen: &Counts, rows: &[Row], most: usize) -> Vec<String> {
    let pairs = rows.iter().flat_map(|(what, answers)| answers.iter().map(move |answer| (*what, *answer)));
    let mut all: Vec<_> = pairs.map(|pair| (seen.get(&pair).copied().unwrap_or_default(), pair)).collect();
    all.sort();
    all.into_iter().take(most).map(|(times, (what, answer))| format!("{what}: {answer} {times}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_and_what_cannot_be_is_told() {
        let rows: &[Row] = &[("open", &["opened", "quota"])];
        let mut seen = Counts::from([(("open", "opened"), 5), (("open", "quota"), 4)]);
        assert_eq!(shortcomings(&seen, rows, &[], 4), Vec::<String>::new());
        assert_eq!(shortcomings(&seen, rows, &[], 5), ["open: quota 4 times only"]);
        seen.insert(("open", "denied"), 1);
        assert_eq!(shortcomings(&seen, rows, &[], 1), ["open: denied 1 times, which cannot be"]);
        assert!(shortcomings(&seen, rows, &[("open", &["denied"])], 1).is_empty());
    }
}

//! `watch`: prints what changes, one line each, until it is signalled.

use palisade_client::{
    Cause, Cursor, Event, Happened, Listing, Selector, TransitionKind, Watch, WatchError, WatchItem,
};
use serde_json::{Value, json};

use super::advice;
use super::args::{Global, WatchArgs};
use super::connect;
use super::exit::{self, Failure};
use super::output::{Output, bytes_text, cause_name, hex_unless_text};

/// Watches until signalled.
pub(crate) async fn run(global: &Global, args: &WatchArgs) -> Result<u8, Failure> {
    let usage = |e: &dyn std::fmt::Display| Failure::usage(format!("{}: {e}", args.prefix));
    let selector = match (args.sessions, args.key) {
        (true, _) => Selector::Sessions,
        (false, true) => Selector::key(&args.prefix).map_err(|e| usage(&e))?,
        (false, false) => Selector::prefix(&args.prefix).map_err(|e| usage(&e))?,
    };
    let request = connect::client(global)?.watch(selector);
    let request = match (&args.from, args.now) {
        (Some(text), _) => {
            let cursor: Cursor = text.parse().map_err(|e| Failure::usage(format!("--from: {e}")))?;
            request.after(cursor)
        }
        (None, true) => request.from_now(),
        (None, false) => request,
    };
    let mut watch = request.start();
    // From then on it waits for ever: the stream goes on when the cluster comes back.
    let first = tokio::time::timeout(global.timeout, watch.next()).await.map_err(|_| {
        let within = global.timeout.as_millis();
        Failure::new(
            exit::UNAVAILABLE,
            format!("no usable cluster within {within} ms; {}", advice::NO_CLUSTER),
        )
    })?;
    print_all(first, &mut watch, Output::new(global.json), args.progress).await
}

async fn print_all(
    first: Result<WatchItem, WatchError>,
    watch: &mut Watch,
    mut out: Output,
    progress: bool,
) -> Result<u8, Failure> {
    let mut next = first;
    loop {
        let item = next.map_err(|e| failure(&e))?;
        if progress || !matches!(item, WatchItem::Progress { .. }) {
            out.line(|| item_json(&item), || item_text(&item))?;
            out.flush()?;
        }
        next = watch.next().await;
    }
}

pub(super) fn failure(error: &WatchError) -> Failure {
    let code = match error {
        WatchError::ClusterReset => exit::REFUSED,
        _ => exit::SOFTWARE,
    };
    Failure::new(code, error.to_string())
}

pub(super) fn why_name(why: Listing) -> &'static str {
    match why {
        Listing::Asked => "asked",
        Listing::Compacted => "compacted",
        Listing::Lagged => "lagged",
        Listing::Interrupted => "interrupted",
    }
}

fn why_text(why: Listing) -> &'static str {
    match why {
        Listing::Asked => "the present state:",
        Listing::Compacted => "GAP: what happened meanwhile is no longer kept; the present state:",
        Listing::Lagged => "GAP: this watch was read too slowly; the present state:",
        Listing::Interrupted => "the present state, from the beginning:",
    }
}

fn item_json(item: &WatchItem) -> Value {
    match item {
        WatchItem::Listing(why) => json!({ "what": "listing", "why": why_name(*why) }),
        WatchItem::Row(event) => event_json(event, false, None),
        WatchItem::Listed { cursor } => json!({ "what": "listed", "cursor": cursor.to_string() }),
        WatchItem::Change { event, coalesced, cursor } => event_json(event, *coalesced, cursor.as_ref()),
        WatchItem::Progress { cursor } => json!({ "what": "progress", "cursor": cursor.to_string() }),
    }
}

/// What happened in one word, and why if there is a reason.
fn what_of(what: &Happened) -> (&'static str, Option<&'static str>) {
    let released = |how: &TransitionKind| match how {
        TransitionKind::SessionEnded(cause) => cause_name(cause),
        TransitionKind::Downgraded => "downgraded",
        TransitionKind::Forced => "forced",
        TransitionKind::Released | TransitionKind::Granted => "released",
    };
    match what {
        Happened::Held { .. } => ("held", None),
        Happened::Free { .. } => ("free", None),
        Happened::Granted { .. } => ("granted", None),
        Happened::Released { how, .. } => ("released", Some(released(how))),
        Happened::Retired { .. } => ("retired", None),
        Happened::SessionLives { .. } => ("lives", None),
        Happened::SessionOpened { .. } => ("opened", None),
        Happened::SessionEnded { cause } => ("ended", Some(cause_name(cause))),
        Happened::Leads { .. } => ("leads", None),
        Happened::Elected { .. } => ("elected", None),
        Happened::Proclaimed { .. } => ("proclaimed", None),
        Happened::Stands { .. } => ("stands", None),
        Happened::Put { .. } => ("put", None),
        Happened::Deleted => ("deleted", None),
        Happened::Vanished { cause } => ("vanished", Some(cause_name(cause))),
    }
}

/// What kind of thing the key of an event names: locks and elections stand apart from ephemeral keys.
fn space_of(event: &Event) -> Option<&'static str> {
    event.key.as_ref()?;
    Some(if event.what.is_of_value() { "ephemeral" } else { "lock" })
}

/// The operator's action behind it, if there is one.
fn action_of(event: &Event) -> Option<u64> {
    let of_cause = |cause| match cause {
        Cause::ReportedDead { action } | Cause::Evicted { action } => Some(action.0),
        _ => None,
    };
    match event.what {
        Happened::Released { how: TransitionKind::Forced, .. } | Happened::Retired { .. } => {
            Some(event.revision.0)
        }
        Happened::Released { how: TransitionKind::SessionEnded(cause), .. }
        | Happened::Vanished { cause }
        | Happened::SessionEnded { cause } => of_cause(cause),
        _ => None,
    }
}

fn event_json(event: &Event, coalesced: bool, cursor: Option<&Cursor>) -> Value {
    let (what, cause) = what_of(&event.what);
    let mut line = json!({
        "what": what,
        "revision": event.revision.0,
        "key": event.key.as_deref(),
        "space": space_of(event),
        "session": event.session.to_string(),
        "owner": event.owner.as_deref(),
        "cause": cause,
        "action": action_of(event),
    });
    fill(&mut line, &event.what);
    if coalesced {
        line["coalesced"] = true.into();
    }
    if let Some(cursor) = cursor {
        line["cursor"] = cursor.to_string().into();
    }
    line
}

/// Adds what only some events have.
fn fill(line: &mut Value, what: &Happened) {
    if let Some((epoch, barrier)) = what.grant() {
        line["epoch"] = epoch.0.into();
        if !matches!(what, Happened::Free { .. } | Happened::Retired { .. }) {
            line["barrier"] = barrier.0.into();
        }
    }
    if let Some(value) = what.value() {
        line["value"] = std::str::from_utf8(value).ok().into();
        line["hex"] = hex_unless_text(value).into();
    }
    match what {
        Happened::SessionLives { ttl_ms } | Happened::SessionOpened { ttl_ms } => {
            line["ttl_ms"] = (*ttl_ms).into();
        }
        Happened::Held { ending, .. } | Happened::Leads { ending, .. } => line["ending"] = (*ending).into(),
        Happened::Stands { created, modified, ending, .. } => {
            line["created"] = created.0.into();
            line["modified"] = modified.0.into();
            line["ending"] = (*ending).into();
        }
        Happened::Put { created, .. } => line["created"] = created.0.into(),
        _ => {}
    }
}

fn item_text(item: &WatchItem) -> String {
    match item {
        WatchItem::Listing(why) => why_text(*why).to_owned(),
        WatchItem::Row(event) => event_text(event),
        WatchItem::Listed { cursor } => format!("changes:  (cursor {cursor})"),
        WatchItem::Change { event, coalesced, .. } => {
            let left_out = if *coalesced { "  (earlier changes left out)" } else { "" };
            format!("{}{left_out}", event_text(event))
        }
        WatchItem::Progress { cursor } => format!("nothing else so far  (cursor {cursor})"),
    }
}

fn event_text(event: &Event) -> String {
    let owner = event.owner.as_deref().map(|o| format!("{o}, ")).unwrap_or_default();
    let who = format!("{owner}session {}", event.session);
    let Event { revision, what, .. } = event;
    let Some(key) = &event.key else { return format!("{revision:>8}  {who} {what}") };
    match what {
        Happened::Free { epoch } | Happened::Retired { epoch } => {
            format!("{revision:>8}  {key} {what}, epoch {epoch}")
        }
        Happened::Held { epoch, barrier, .. } | Happened::Granted { epoch, barrier } => {
            format!("{revision:>8}  {key} {what}: {who}, fence {key}@{epoch}/{barrier}")
        }
        Happened::Released { epoch, .. } => format!("{revision:>8}  {key} {what}: {who}, epoch {epoch}"),
        Happened::Leads { epoch, value, .. }
        | Happened::Elected { epoch, value }
        | Happened::Proclaimed { epoch, value } => {
            format!("{revision:>8}  {key} {what}: {who}, fence {key}@{epoch}/{epoch}: {}", bytes_text(value))
        }
        Happened::Stands { value, .. } | Happened::Put { value, .. } => {
            format!("{revision:>8}  ephemeral {key} {what}: {who}: {}", bytes_text(value))
        }
        Happened::Deleted | Happened::Vanished { .. } => {
            format!("{revision:>8}  ephemeral {key} {what}: {who}")
        }
        _ => format!("{revision:>8}  {key} {what}: {who}"),
    }
}

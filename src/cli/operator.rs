//! The verbs that act on sessions and keys of others: `report-dead`, `evict`, `force-release`, `retire`,
//! and `acts`, the record of what was done.

use palisade_client::{CallError, Epoch, LogIndex, Operator, SessionId};
use serde_json::json;

use super::args::{ActsArgs, By, EvictArgs, ForceReleaseArgs, Global, ReportDeadArgs, RetireArgs};
use super::connect;
use super::exit::Failure;
use super::output::{self, Output};
use super::reads;

const PAGE_ROWS: u32 = 1_000;

fn operator(global: &Global, by: &By) -> Result<Operator, Failure> {
    let by = by.by.clone().unwrap_or_else(default_by);
    connect::client(global)?.operator(&by).map_err(|e| connect::failure(&e))
}

fn default_by() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", connect::host())
}

fn session_id(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|e| Failure::usage(format!("{text}: {e}")))
}

/// Says what was done, and under which revision it is on record.
fn say_done(global: &Global, done: Result<LogIndex, CallError>, what: &str) -> Result<u8, Failure> {
    let action = done.map_err(|e| connect::failure(&e))?;
    let mut out = Output::new(global.json);
    out.line(|| json!({ "action": action.0 }), || format!("{what} (action {action})"))?;
    out.flush()?;
    Ok(0)
}

/// Ends the sessions of the dead.
pub(crate) async fn report_dead(global: &Global, args: &ReportDeadArgs) -> Result<u8, Failure> {
    let operator = operator(global, &args.by)?;
    if let Some(session) = &args.session {
        let session = session_id(session)?;
        let done = operator.report_dead(session, &args.evidence).await;
        return say_done(global, done, &format!("session {session} is ended"));
    }
    let (owner, incarnation) = (args.owner.as_deref().unwrap_or_default(), args.incarnation.as_deref());
    let as_of = args.as_of.map(LogIndex);
    let report = operator.report_owner_dead(owner, incarnation, as_of, &args.evidence).await;
    let report = report.map_err(|e| connect::failure(&e))?;
    let mut out = Output::new(global.json);
    for session in &report.ended {
        out.line(|| json!({ "ended": session.to_string() }), || format!("session {session} is ended"))?;
    }
    let (count, as_of) = (report.ended.len(), report.as_of.0);
    out.line(
        || json!({ "sessions": count, "as_of": as_of }),
        || format!("{count} sessions ended; to repeat this report, add --as-of {as_of}"),
    )?;
    out.flush()?;
    Ok(0)
}

/// Ends a session.
pub(crate) async fn evict(global: &Global, args: &EvictArgs) -> Result<u8, Failure> {
    let session = session_id(&args.session)?;
    let done = operator(global, &args.by)?.evict(session, &args.reason).await;
    say_done(global, done, &format!("session {session} is ended"))
}

/// Takes a key from a grant.
pub(crate) async fn force_release(global: &Global, args: &ForceReleaseArgs) -> Result<u8, Failure> {
    let ForceReleaseArgs { key, epoch, reason, by } = args;
    let done = operator(global, by)?.force_release(key, Epoch(*epoch), reason).await;
    let what = format!(
        "{key} is released from epoch {epoch}; its holder is told as soon as it can be reached, and only the \
         fence stops what it has under way"
    );
    say_done(global, done, &what)
}

/// Forgets an idle key.
pub(crate) async fn retire(global: &Global, args: &RetireArgs) -> Result<u8, Failure> {
    let done = operator(global, &args.by)?.retire(&args.key, &args.reason).await;
    say_done(global, done, &format!("{} has no record any more", args.key))
}

/// What operators did.
pub(crate) async fn acts(global: &Global, args: &ActsArgs) -> Result<u8, Failure> {
    let client = connect::client(global)?;
    let mut out = Output::new(global.json);
    let (mut after, mut said) = (LogIndex(args.after), None);
    loop {
        let page = match args.how.stale {
            true => client.read_stale().operator_acts(after, PAGE_ROWS).await,
            false => client.operator_acts(after, PAGE_ROWS).await,
        };
        let page = page.map_err(|e| connect::failure(&e))?;
        reads::say_stale(&mut out, page.read, &mut said)?;
        for row in &page.rows {
            out.line(|| output::act_json(row), || output::act_text(row))?;
        }
        out.flush()?;
        match page.rows.last() {
            Some(last) if page.more => after = last.revision,
            _ => return Ok(0),
        }
    }
}

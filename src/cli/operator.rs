//! The verbs that act on sessions and keys of others, `report-dead`, `evict`, `force-release` and `retire`,
//! on the cluster, `transfer`, and `acts`, the record of what was done.

use palisade_client::{CallError, Client, Epoch, LogIndex, NodeId, Operator, Refusal, SessionId};
use serde_json::json;

use super::advice;
use super::args::{
    ActsArgs, By, EvictArgs, ForceReleaseArgs, Global, ReportDeadArgs, RetireArgs, TransferArgs,
};
use super::connect;
use super::exit::{self, Failure};
use super::output::{self, Output};
use super::reads;

const PAGE_ROWS: u32 = 1_000;

fn operator(global: &Global, by: &By) -> Result<Operator, Failure> {
    operator_of(&connect::client(global)?, by)
}

fn operator_of(client: &Client, by: &By) -> Result<Operator, Failure> {
    let by = by.by.clone().unwrap_or_else(default_by);
    client.operator(&by).map_err(|e| connect::failure(&e))
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
    report_owner(global, &operator, args).await
}

/// Fixes which sessions are meant, says so, and only then acts: whatever happens, whoever reads this can
/// repeat the report without meeting a successor.
async fn report_owner(global: &Global, operator: &Operator, args: &ReportDeadArgs) -> Result<u8, Failure> {
    let (owner, incarnation) = (args.owner.as_deref().unwrap_or_default(), args.incarnation.as_deref());
    let as_of = match args.as_of {
        Some(revision) => LogIndex(revision),
        None => operator.as_of().await.map_err(|e| connect::failure(&e))?,
    };
    eprintln!("palisade: reporting as of revision {as_of}; to repeat this report, add --as-of {as_of}");
    let report = operator.report_owner_dead(owner, incarnation, as_of, &args.evidence).await;
    let (ended, failed) = match report {
        Ok(report) => (report.ended, None),
        Err(failed) => (failed.ended, Some(failed.error)),
    };
    let (count, mut out) = (ended.len(), Output::new(global.json));
    for session in &ended {
        out.line(|| json!({ "ended": session.to_string() }), || format!("session {session} is ended"))?;
    }
    if failed.is_none() {
        out.line(
            || json!({ "sessions": count, "as_of": as_of.0 }),
            || format!("{count} sessions ended; to repeat this report, add --as-of {as_of}"),
        )?;
    }
    out.flush()?;
    match failed {
        None => Ok(0),
        Some(error) => Err(Failure::new(connect::code(&error), halfway(&error, as_of, count))),
    }
}

/// Why a report failed, how far it came, and how it is repeated.
fn halfway(error: &CallError, as_of: LogIndex, ended: usize) -> String {
    let why = advice::text(error);
    match error {
        CallError::Beyond { .. } => format!("--as-of: {why}; nobody was reported"),
        CallError::Name { .. } => why,
        _ => format!("{why}. {ended} sessions are known to be ended; repeat the report with --as-of {as_of}"),
    }
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
    let client = connect::client(global)?;
    let done = operator_of(&client, by)?.force_release(key, Epoch(*epoch), reason).await;
    if let Err(CallError::Refused(Refusal::NotHeld { .. })) = &done
        && has_no_record(&client, key).await
    {
        return Err(no_such_key(key));
    }
    let what = format!(
        "{key} is released from epoch {epoch}; its holder is told as soon as it can be reached, and only the \
         fence stops what it has under way"
    );
    say_done(global, done, &what)
}

/// Whether a key is known to have no record now.
async fn has_no_record(client: &Client, key: &str) -> bool {
    client.describe(key).await.is_ok_and(|answer| answer.value.class.is_none())
}

fn no_such_key(key: &str) -> Failure {
    let message =
        format!("there is no such key: {key} has no record; `palisade locks` lists those that have one");
    Failure::new(exit::REFUSED, message)
}

/// Forgets an idle key: the record it has when this begins, and no later one; and its claims to resources,
/// which a key may have whose record was reclaimed.
pub(crate) async fn retire(global: &Global, args: &RetireArgs) -> Result<u8, Failure> {
    let RetireArgs { key, epoch, reason, by } = args;
    let client = connect::client(global)?;
    let operator = operator_of(&client, by)?;
    let epoch = match epoch {
        Some(epoch) => Epoch(*epoch),
        None => client.describe(key).await.map_err(|e| connect::failure(&e))?.value.epoch,
    };
    let done = operator.retire(key, epoch, reason).await;
    match &done {
        Err(CallError::Refused(Refusal::NotAtEpoch { .. })) if has_no_record(&client, key).await => {
            return Err(no_such_key(key));
        }
        // It may have been done.
        Err(error) if !error.is_final() => {
            let message = format!("{}. To repeat it, add --epoch {epoch}", advice::text(error));
            return Err(Failure::new(connect::code(error), message));
        }
        _ => {}
    }
    say_done(
        global,
        done,
        &format!("{key} has no record any more, and claims no resource; the last epoch was {epoch}"),
    )
}

/// Hands leadership over and says who leads then.
pub(crate) async fn transfer(global: &Global, args: &TransferArgs) -> Result<u8, Failure> {
    let TransferArgs { to, reason, by } = args;
    let to = to.map(NodeId);
    let done = operator(global, by)?.transfer(to, reason).await.map_err(|e| connect::failure(&e))?;
    let leader = done.leader.map_or_else(|| "nobody".to_owned(), |node| format!("node {node}"));
    let mut out = Output::new(global.json);
    out.line(
        || {
            let (leader, action) = (done.leader.map(|node| node.0), done.action.map(|action| action.0));
            json!({ "leader": leader, "term": done.term.0, "action": action })
        },
        || match done.action {
            Some(action) => format!("{leader} leads in term {} (action {action})", done.term),
            None => format!("{leader} leads in term {}; nothing was to be done", done.term),
        },
    )?;
    out.flush()?;
    match to {
        Some(to) if done.leader != Some(to) => {
            let message = format!("leadership was given up, and {leader} has got it instead of node {to}");
            Err(Failure::new(exit::REFUSED, message))
        }
        _ => Ok(0),
    }
}

/// What operators did.
pub(crate) async fn acts(global: &Global, args: &ActsArgs) -> Result<u8, Failure> {
    let client = connect::client(global)?;
    let mut out = Output::new(global.json);
    let (mut after, mut shown, mut said) = (LogIndex(args.after), 0, None);
    loop {
        let page = reads::ask!(args.how, client, operator_acts(after, PAGE_ROWS));
        let page = page.map_err(|e| connect::failure(&e))?;
        reads::say_how(&mut out, page.read, &mut said)?;
        shown += page.rows.len();
        for row in &page.rows {
            out.line(|| output::act_json(row), || output::act_text(row))?;
        }
        out.flush()?;
        match page.rows.last() {
            Some(last) if page.more => after = last.revision,
            _ => {
                output::say_if_none(global, shown == 0);
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_fails_says_how_to_repeat_it_unless_nothing_was_begun() {
        let waited = std::time::Duration::from_secs(10);
        let outage = CallError::Unavailable { waited, last: "refused".to_owned() };
        let text = halfway(&outage, LogIndex(42), 7);
        assert!(text.contains("7 sessions") && text.ends_with("repeat the report with --as-of 42"), "{text}");
        let beyond = CallError::Beyond { asked: LogIndex(42), end: LogIndex(9) };
        let text = halfway(&beyond, LogIndex(42), 0);
        assert!(text.contains("nobody was reported") && !text.contains("repeat"), "{text}");
    }
}

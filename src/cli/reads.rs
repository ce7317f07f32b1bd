//! The verbs that only look: `describe`, `locks`, `sessions`, `resources`, `get`, `ls`, `status`.

use std::time::Duration;

use palisade_client::{Client, Consistency, Page, ReadMark, SessionId};
use serde_json::json;
use tokio::task::JoinSet;

use super::advice;
use super::args::{DescribeArgs, GetArgs, Global, LocksArgs, LsArgs, Paging, ResourcesArgs, SessionsArgs};
use super::connect::{self, client_of};
use super::exit::{self, Failure};
use super::output::{self, Output};

/// How long `status` waits for a node that says nothing, if `--timeout` is not shorter.
const STATUS_TIME: Duration = Duration::from_secs(3);

/// Asks as the flags say: each kind of answer comes from a reader of its own.
macro_rules! ask {
    ($how:expr, $client:expr, $($call:tt)+) => {{
        let how: super::args::How = $how;
        match (how.stale, how.by_lease, how.any_node) {
            (true, ..) => $client.read_stale().$($call)+.await,
            (_, true, _) => $client.read_by_lease().$($call)+.await,
            (.., true) => $client.read_anywhere().$($call)+.await,
            (false, false, false) => $client.read().$($call)+.await,
        }
    }};
}
pub(super) use ask;

/// All about one key.
pub(crate) async fn describe(global: &Global, args: &DescribeArgs) -> Result<u8, Failure> {
    let client = connect::client(global)?;
    let answer = ask!(args.how, client, describe(&args.key)).map_err(|e| connect::failure(&e))?;
    let (description, read) = (&answer.value, answer.read);
    let mut out = Output::new(global.json);
    out.line(|| output::description_json(description, read), || output::description_text(description, read))?;
    out.flush()?;
    Ok(0)
}

/// A listing that is printed page by page.
struct Listing {
    paging: Paging,
    shown: u64,
    said: Option<ReadMark>,
    out: Output,
}

impl Listing {
    fn new(global: &Global, paging: Paging) -> Listing {
        Listing { paging, shown: 0, said: None, out: Output::new(global.json) }
    }

    /// Rows to ask for next; none when enough are shown.
    fn ask(&self) -> Option<u32> {
        let left = self.paging.limit.map_or(u64::MAX, |limit| limit - self.shown);
        let rows = u64::from(self.paging.page).min(left);
        u32::try_from(rows).ok().filter(|rows| *rows > 0)
    }

    /// Prints a page; whether there is more to show.
    fn show<T>(
        &mut self,
        page: &Page<T>,
        json: impl Fn(&T) -> serde_json::Value,
        text: impl Fn(&T) -> String,
    ) -> Result<bool, Failure> {
        say_how(&mut self.out, page.read, &mut self.said)?;
        for row in &page.rows {
            self.out.line(|| json(row), || text(row))?;
        }
        self.out.flush()?;
        self.shown += page.rows.len() as u64;
        Ok(page.more && !page.rows.is_empty())
    }

    /// The limit was reached: says where to go on.
    fn say_next(mut self, after: Option<String>) -> Result<u8, Failure> {
        let after = after.unwrap_or_default();
        self.out
            .line(|| json!({ "next": after }), || format!("there are more: go on with --after {after}"))?;
        self.out.flush()?;
        Ok(0)
    }

    /// All is shown: says so if that is nothing.
    fn say_if_none(&self, global: &Global) -> Result<u8, Failure> {
        output::say_if_none(global, self.shown == 0);
        Ok(0)
    }
}

/// Says of a page that it is weaker than linearizable, before its rows, unless the page before was the same.
pub(super) fn say_how(out: &mut Output, read: ReadMark, said: &mut Option<ReadMark>) -> Result<(), Failure> {
    if read.consistency == Consistency::Linearizable || said.replace(read) == Some(read) {
        return Ok(());
    }
    out.line(|| output::mark_json(read), || output::mark_text(read))
}

/// The keys that have a record.
pub(crate) async fn locks(global: &Global, args: &LocksArgs) -> Result<u8, Failure> {
    let client = connect::client(global)?;
    let (mut listing, mut after) = (Listing::new(global, args.paging), args.after.clone());
    while let Some(rows) = listing.ask() {
        let page = ask!(args.how, client, locks(after.as_deref(), rows)).map_err(|e| connect::failure(&e))?;
        if !listing.show(&page, output::lock_json, output::lock_text)? {
            return listing.say_if_none(global);
        }
        after = page.rows.last().map(|row| row.key.to_string());
    }
    listing.say_next(after)
}

/// The live sessions.
pub(crate) async fn sessions(global: &Global, args: &SessionsArgs) -> Result<u8, Failure> {
    let parse =
        |text: &String| text.parse::<SessionId>().map_err(|e| Failure::usage(format!("--after: {e}")));
    let mut after = args.after.as_ref().map(parse).transpose()?;
    let client = connect::client(global)?;
    let mut listing = Listing::new(global, args.paging);
    while let Some(rows) = listing.ask() {
        let page = ask!(args.how, client, sessions(after, rows)).map_err(|e| connect::failure(&e))?;
        if !listing.show(&page, output::session_json, output::session_text)? {
            return listing.say_if_none(global);
        }
        after = page.rows.last().map(|row| row.session);
    }
    listing.say_next(after.map(|session| session.to_string()))
}

/// The resources that locks name, and the keys that protect them.
pub(crate) async fn resources(global: &Global, args: &ResourcesArgs) -> Result<u8, Failure> {
    let client = connect::client(global)?;
    let (mut listing, mut after) = (Listing::new(global, args.paging), args.after.clone());
    while let Some(rows) = listing.ask() {
        let page = ask!(args.how, client, resources(args.conflicts, after.as_deref(), rows));
        let page = page.map_err(|e| connect::failure(&e))?;
        if !listing.show(&page, output::resource_json, output::resource_text)? {
            return listing.say_if_none(global);
        }
        after = page.rows.last().map(|row| row.resource.to_string());
    }
    listing.say_next(after)
}

/// The value of an ephemeral key: its bytes and nothing else. Ends with 1 when there is no such key.
pub(crate) async fn get(global: &Global, args: &GetArgs) -> Result<u8, Failure> {
    let client = connect::client(global)?;
    let answer = ask!(args.how, client, get(&args.key)).map_err(|e| connect::failure(&e))?;
    // On stdout stand the bytes of the value, or its one object.
    if answer.read.consistency != Consistency::Linearizable {
        eprintln!("palisade: {}", output::mark_text(answer.read));
    }
    let Some(row) = answer.value else {
        return Err(Failure::new(exit::REFUSED, format!("{}: there is no such key", args.key)));
    };
    if row.ending {
        eprintln!("palisade: the session of {} has ended; the key is about to go", row.key);
    }
    let mut out = Output::new(global.json);
    if global.json {
        out.line(|| output::value_read_json(&row, answer.read), String::new)?;
    } else {
        out.bytes(&row.value)?;
    }
    out.flush()?;
    Ok(0)
}

/// The ephemeral keys with a prefix.
pub(crate) async fn ls(global: &Global, args: &LsArgs) -> Result<u8, Failure> {
    let client = connect::client(global)?;
    let (mut listing, mut after) = (Listing::new(global, args.paging), args.after.clone());
    while let Some(rows) = listing.ask() {
        let page = ask!(args.how, client, values(&args.prefix, after.as_deref(), rows));
        let page = page.map_err(|e| connect::failure(&e))?;
        if !listing.show(&page, output::value_json, output::value_text)? {
            return Ok(0);
        }
        after = page.rows.last().map(|row| row.key.to_string());
    }
    listing.say_next(after)
}

/// Asks every endpoint for itself, all at once, and prints what each says as soon as it does. Ends with 69 when
/// none answers.
pub(crate) async fn status(global: &Global) -> Result<u8, Failure> {
    let mut asked = JoinSet::new();
    for endpoint in global.endpoints.clone() {
        let client: Client = client_of(vec![endpoint.clone()], global.timeout.min(STATUS_TIME))?;
        asked.spawn(async move { (endpoint, client.status().await) });
    }
    let mut out = Output::new(global.json);
    let mut reached = 0;
    while let Some(answer) = asked.join_next().await {
        let (endpoint, answer) =
            answer.map_err(|e| Failure::new(exit::SOFTWARE, format!("asking an endpoint: {e}")))?;
        match answer {
            Ok(status) => {
                reached += 1;
                out.line(
                    || output::status_json(&endpoint, &status),
                    || output::status_text(&endpoint, &status),
                )?;
            }
            Err(e) => out.line(
                || json!({ "endpoint": endpoint, "reachable": false, "error": e.to_string() }),
                || format!("{endpoint:<22} unreachable: {e}"),
            )?,
        }
        out.flush()?;
    }
    match reached {
        0 => Err(Failure::new(exit::UNAVAILABLE, format!("no endpoint answers; {}", advice::NO_CLUSTER))),
        _ => Ok(0),
    }
}

//! `observe`: prints who leads an election and what the leader says, one line each, until it is signalled.

use palisade_client::{Cursor, Leader, Listing, ObserveError, Observed, Observer};
use serde_json::{Value, json};

use super::advice;
use super::args::{Global, ObserveArgs};
use super::connect;
use super::exit::{self, Failure};
use super::output::{Output, bytes_text, hex_unless_text};
use super::watch;

/// Observes until signalled.
pub(crate) async fn run(global: &Global, args: &ObserveArgs) -> Result<u8, Failure> {
    let from = args.from.as_deref().map(str::parse::<Cursor>).transpose();
    let from = from.map_err(|e| Failure::usage(format!("--from: {e}")))?;
    let request = connect::client(global)?.observe(&args.name);
    let request = request.map_err(|e| Failure::usage(format!("{}: {e}", args.name)))?;
    let mut observer = match from {
        Some(cursor) => request.after(cursor),
        None => request,
    }
    .start();
    let mut out = Output::new(global.json);
    let mut next = first(global, &mut observer).await?;
    loop {
        let told = next.map_err(|e| failure(&e))?;
        out.line(|| as_json(&args.name, &told), || as_text(&args.name, &told))?;
        out.flush()?;
        next = observer.next().await;
    }
}

/// What is told first, if the stream stands in time: behind a cursor that may be long after. From then on it
/// waits for ever: it goes on when the cluster comes back.
async fn first(global: &Global, observer: &mut Observer) -> Result<Result<Observed, ObserveError>, Failure> {
    let told = tokio::time::timeout(global.timeout, observer.next()).await;
    match told {
        Ok(told) => Ok(told),
        Err(_) if observer.cursor().is_some() => Ok(observer.next().await),
        Err(_) => {
            let within = global.timeout.as_millis();
            let why = format!("no usable cluster within {within} ms; {}", advice::NO_CLUSTER);
            Err(Failure::new(exit::UNAVAILABLE, why))
        }
    }
}

fn failure(error: &ObserveError) -> Failure {
    match error {
        ObserveError::Watch(error) => watch::failure(error),
        ObserveError::NotAnElection(error) => Failure::new(exit::REFUSED, error.to_string()),
        other => Failure::new(exit::SOFTWARE, other.to_string()),
    }
}

fn as_json(name: &str, told: &Observed) -> Value {
    let leader = told.leader.as_ref();
    let mut line = json!({
        "what": if leader.is_some() { "leader" } else { "vacant" },
        "revision": told.revision.0,
        "election": name,
        "epoch": told.epoch.0,
        "cursor": told.cursor.as_ref().map(ToString::to_string),
    });
    if let Some(Leader { value, session, owner, fence }) = leader {
        line["session"] = session.to_string().into();
        line["owner"] = owner.as_deref().into();
        line["fence"] = fence.to_string().into();
        line["value"] = std::str::from_utf8(value).ok().into();
        line["hex"] = hex_unless_text(value).into();
    }
    if let Some(why) = told.present {
        line["present"] = watch::why_name(why).into();
    }
    if told.coalesced {
        line["coalesced"] = true.into();
    }
    line
}

fn as_text(name: &str, told: &Observed) -> String {
    let gap = match told.present {
        Some(Listing::Compacted) => "GAP: what happened meanwhile is no longer kept; at present ",
        Some(Listing::Lagged) => "GAP: this stream was read too slowly; at present ",
        Some(Listing::Asked | Listing::Interrupted) | None => "",
    };
    let state = match &told.leader {
        Some(Leader { value, session, owner, fence }) => {
            let owner = owner.as_deref().map(|o| format!("{o}, ")).unwrap_or_default();
            format!("{name} is led by {owner}session {session}, fence {fence}: {}", bytes_text(value))
        }
        None => format!("{name} is vacant, last epoch {}", told.epoch),
    };
    let left_out = if told.coalesced { "  (earlier changes left out)" } else { "" };
    let cursor = told.cursor.as_ref().map(|cursor| format!("  (cursor {cursor})")).unwrap_or_default();
    format!("{:>8}  {gap}{state}{left_out}{cursor}", told.revision)
}

//! From the global flags to a client, and from its errors to exit codes.

use std::time::Duration;

use palisade_client::{CallError, Client, ClientConfig, ClusterId, ConnectError, Refusal};
use tracing_subscriber::EnvFilter;

use super::advice;
use super::args::Global;
use super::exit::{self, Failure};

/// How often it is said that we still wait.
const STILL_WAITING: Duration = Duration::from_secs(10);

/// Starts logging on stderr, as the flags say.
pub(crate) fn start_log(global: &Global) {
    let filter = EnvFilter::builder().parse_lossy(global.log.as_deref().unwrap_or("error"));
    // A second subscriber in one process is a test's business.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// A client for the endpoints of the flags; its calls give up after `--timeout`.
///
/// # Errors
/// With 64 for endpoints that are none.
pub(crate) fn client(global: &Global) -> Result<Client, Failure> {
    client_of(global.endpoints.clone(), global.timeout)
}

/// The same for other endpoints.
pub(crate) fn client_of(endpoints: Vec<String>, timeout: Duration) -> Result<Client, Failure> {
    let mut config = ClientConfig::new(endpoints);
    config.call_timeout = timeout;
    start(config)
}

fn start(config: ClientConfig) -> Result<Client, Failure> {
    Client::connect(config).map_err(|e| {
        let code = if matches!(e, ConnectError::Config(_)) { exit::USAGE } else { exit::OS };
        Failure::new(code, e.to_string())
    })
}

/// Returns once a leader of this cluster answers a linearizable read. Says on stderr, now and then and under this
/// name, what is missing.
///
/// # Errors
/// When the cluster answers what no waiting helps against.
pub(crate) async fn until_usable(
    name: &str,
    endpoints: Vec<String>,
    cluster: ClusterId,
) -> Result<(), Failure> {
    let mut config = ClientConfig::new(endpoints);
    config.call_timeout = STILL_WAITING;
    config.cluster = Some(cluster);
    let client = start(config)?;
    loop {
        match client.locks(None, 1).await {
            Ok(_) => return Ok(()),
            Err(e) if e.is_final() => return Err(failure(&e)),
            Err(e) => eprintln!("{name}: the cluster is not usable yet: {e}"),
        }
    }
}

/// What this host calls itself: for owners and operators that were given no name.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The failure that a failed call is, with what to do next.
pub(crate) fn failure(error: &CallError) -> Failure {
    Failure::new(code(error), advice::text(error))
}

/// The exit code for a failed call.
pub(crate) fn code(error: &CallError) -> u8 {
    match error {
        CallError::Name { .. } | CallError::Beyond { .. } => exit::USAGE,
        CallError::Refused(Refusal::ClassMismatch { .. } | Refusal::BadRequest { .. }) => exit::USAGE,
        CallError::Refused(
            Refusal::NotHeld { .. }
            | Refusal::InUse
            | Refusal::OwnedByOther { .. }
            | Refusal::NotAtEpoch { .. }
            | Refusal::NotAVoter { .. }
            | Refusal::OtherTerm { .. }
            | Refusal::NotHandedOver { .. }
            | Refusal::SessionEnded { .. },
        ) => exit::REFUSED,
        CallError::Refused(refusal) if refusal.is_final() => exit::SOFTWARE,
        CallError::Stopped => exit::SOFTWARE,
        _ => exit::UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use palisade_client::{Cause, Class, Epoch, LogIndex, LostReason, Outcome, SessionId};
    use palisade_types::Ticket;

    use super::*;

    #[test]
    fn every_failed_call_has_its_status() {
        let session = SessionId::default();
        let (asked, last) = (Epoch(1), Epoch(2));
        let what = String::new();
        let refusals = [
            (Refusal::ClassMismatch { has: Class::Advisory }, exit::USAGE),
            (Refusal::BadRequest { reason: what.clone() }, exit::USAGE),
            (Refusal::NotHeld { asked, last }, exit::REFUSED),
            (Refusal::NotAtEpoch { asked, last }, exit::REFUSED),
            (Refusal::InUse, exit::REFUSED),
            (Refusal::OwnedByOther { session, owner: None }, exit::REFUSED),
            (Refusal::SessionEnded { session, cause: Cause::Forgotten }, exit::REFUSED),
            (Refusal::Busy { retry_after_ms: 1 }, exit::UNAVAILABLE),
            (Refusal::QuotaExceeded { what: what.clone(), limit: 1 }, exit::UNAVAILABLE),
            (Refusal::SessionFull { what, limit: 1 }, exit::UNAVAILABLE),
            (Refusal::TicketMismatch { ticket: Ticket(1) }, exit::SOFTWARE),
            (Refusal::TicketFinished { ticket: Ticket(1), outcome: Outcome::Denied }, exit::SOFTWARE),
            (Refusal::ClusterReset, exit::SOFTWARE),
        ];
        for (refusal, code_of_it) in refusals {
            let error = CallError::Refused(refusal);
            assert_eq!(code(&error), code_of_it, "{error}");
        }
        let last = String::new();
        assert_eq!(code(&CallError::Unavailable { waited: Duration::ZERO, last }), exit::UNAVAILABLE);
        assert_eq!(code(&CallError::Stopped), exit::SOFTWARE);
        assert_eq!(code(&CallError::Beyond { asked: LogIndex(2), end: LogIndex(1) }), exit::USAGE);
        // Before anything was given, so nothing was lost, and the command has not run.
        assert_eq!(code(&CallError::SessionLost(LostReason::DeadlinePassed)), exit::UNAVAILABLE);
    }
}

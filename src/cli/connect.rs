//! From the global flags to a client, and from its errors to exit codes.

use std::time::Duration;

use palisade_client::{CallError, Client, ClientConfig, ClusterId, ConnectError, Refusal};
use tracing_subscriber::EnvFilter;

use super::advice;
use super::args::Global;
use super::exit::{self, Failure};

/// How often `dev` says that it still waits.
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

/// Returns once a leader of this cluster answers a linearizable read. Says on stderr, now and then, what is missing.
///
/// # Errors
/// When the cluster answers what no waiting helps against.
pub(crate) async fn until_usable(endpoints: Vec<String>, cluster: ClusterId) -> Result<(), Failure> {
    let mut config = ClientConfig::new(endpoints);
    config.call_timeout = STILL_WAITING;
    config.cluster = Some(cluster);
    let client = start(config)?;
    loop {
        match client.locks(None, 1).await {
            Ok(_) => return Ok(()),
            Err(e) if e.is_final() => return Err(failure(&e)),
            Err(e) => eprintln!("palisade dev: the cluster is not usable yet: {e}"),
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

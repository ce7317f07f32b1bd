//! `palisade gate`: a reverse proxy that is the only writer of an HTTP resource which cannot check a fence (DESIGN
//! section 16).
//!
//! A request that changes something shows its fence in the header `Palisade-Fence`. Requests of one key go one after the
//! other: the rule is applied and the floor raised durably, together with a mark that a write is on its way; then it is
//! forwarded; when its outcome is known the mark goes and the next one comes. While the outcome of a write is *unknown* (no
//! answer, a broken connection, a crash of the gate) it may still take effect: no higher epoch passes until the resource, by the
//! operator's word, cannot act on it any more ([`Config::upstream_max`]).
//!
//! [`config`] says what can be set; [`turns`] keeps one key's requests in order and remembers unknown outcomes; [`proxy`] is the
//! way of one request; [`answers`] what the gate itself answers; [`metrics`] what it counts.

mod answers;
mod config;
mod metrics;
mod proxy;
mod turns;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use palisade_fence::{LedgerError, RedbLedger};
use tokio::net::TcpListener;

pub use answers::FENCE_HEADER;
pub use config::{Config, Route, RouteError, Upstream, UpstreamError};
pub use metrics::Metrics;
use proxy::Gate;

/// Why a gate ended.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// Its ledger could not be opened.
    #[error(
        "cannot open the ledger of fences: {0}; a gate that runs already has it, or its directory cannot be written"
    )]
    Ledger(#[from] LedgerError),
    /// A socket failed.
    #[error("cannot serve: {0}")]
    Io(#[from] std::io::Error),
}

/// Serves until `stop` completes: requests on `listener`, and `/metrics` and `/healthz` on `admin`. Requests under way are
/// then finished, since to break them off would leave their outcome unknown.
///
/// # Errors
/// When the ledger cannot be opened or a socket fails.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    admin: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), GateError> {
    let ledger = RedbLedger::open(&config.ledger)?;
    let gate = Arc::new(Gate::new(config, ledger)?);
    let of_admin = Arc::clone(&gate);
    let watch = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(move || async move { of_admin.metrics.render() }));
    let watched = tokio::spawn(async move { axum::serve(admin, watch).await });
    let served = Router::new().fallback(proxy::handle).with_state(gate);
    let ended = axum::serve(listener, served).with_graceful_shutdown(stop).await;
    watched.abort();
    Ok(ended?)
}

//! `palisade gate`: a reverse proxy that is the only writer of an HTTP resource which cannot check a fence (DESIGN
//! section 16).
//!
//! A request that changes something shows its fence in the header `Palisade-Fence`. Requests of one key go one after the
//! other: the rule is applied and the floor raised durably, together with a mark that a write is on its way; then it is
//! forwarded; when its outcome is known the mark goes and the next one comes. While the outcome of a write is *unknown* (no
//! answer, a broken connection, a crash of the gate) it may still take effect: no higher epoch passes until the resource, by the
//! operator's word, cannot act on it any more ([`Config::upstream_max`]).
//!
//! With [`Config::require_signed`] it takes only fences that the cluster has signed: the header `Palisade-Signature` is verified
//! before anything else is done, so an epoch that somebody invented raises no floor.
//!
//! `config.rs` says what can be set; `serve.rs` takes connections; `proxy.rs` is the way of one request, `turns.rs` keeps
//! those of one key in order and remembers unknown outcomes, `body.rs` tells when the last of a body has been
//! forwarded, `paths.rs` which paths mean what they look like; `answers.rs` what the gate itself answers.

mod answers;
mod body;
mod config;
mod metrics;
mod paths;
mod proxy;
mod serve;
mod turns;

use palisade_fence::LedgerError;

pub use answers::{FENCE_HEADER, SIGNATURE_HEADER};
pub use config::{Config, Route, RouteError, Upstream, UpstreamError};
pub use metrics::Metrics;
pub use serve::Gate;

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

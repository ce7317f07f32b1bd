//! Connections: how many, how slow they may be, and how they end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use palisade_fence::RedbLedger;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::GateError;
use crate::config::Config;
use crate::proxy::{self, Proxy};

/// How long the head of a request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Beyond the time that a write may take, how long a gate that was asked to end waits for what is under way.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Where a connection could not be taken: the process has too many files open, mostly.
const PAUSE: Duration = Duration::from_millis(50);

/// A gate whose ledger is open.
pub struct Gate {
    proxy: Arc<Proxy>,
    /// Connections, of which each has at most one request under way.
    connections: usize,
    end_within: Duration,
}

impl Gate {
    /// Opens the ledger. What was on its way when the last gate with it ended has an unknown outcome.
    ///
    /// # Errors
    /// When the ledger cannot be opened.
    pub fn open(config: Config) -> Result<Gate, GateError> {
        let ledger = RedbLedger::open(&config.ledger)?;
        // Those beyond the bound on requests are told so, and as many may be idle.
        let connections = config.requests_max.saturating_mul(2).clamp(16, u32::MAX as usize);
        let end_within = config.answer_within + END_WITHIN;
        Ok(Gate { proxy: Arc::new(Proxy::new(config, ledger)?), connections, end_within })
    }

    /// Serves until `stop` completes: requests on `listener`, and `/metrics` and `/healthz` on `admin`. Requests under
    /// way are then finished, as far as that takes no longer than a write may: to break them off would leave their
    /// outcome unknown.
    ///
    /// # Errors
    /// When a socket fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        admin: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), GateError> {
        let metrics = Arc::clone(&self.proxy.metrics);
        let watch = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/metrics", get(move || async move { metrics.render() }));
        let watched = tokio::spawn(async move { axum::serve(admin, watch).await });
        self.accept(listener, stop).await;
        watched.abort();
        Ok(())
    }

    async fn accept(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let room = Arc::new(Semaphore::new(self.connections));
        let graceful = GracefulShutdown::new();
        let app = Router::new().fallback(proxy::handle).with_state(Arc::clone(&self.proxy));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = async {
                let permit = Arc::clone(&room).acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (stream, permit) = tokio::select! {
                () = &mut stop => break,
                (accepted, permit) = accepted => match accepted {
                    Ok((stream, _)) => (stream, permit),
                    Err(error) => {
                        tracing::warn!(%error, "cannot take a connection");
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app.clone()));
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                // Who breaks off has heard of it; a connection that fails ends nothing else.
                let _ = connection.await;
                drop(permit);
            });
        }
        drop(listener);
        // Whoever still needs the ledger is done, or has had its time: another gate may open it.
        let all = u32::try_from(self.connections).unwrap_or(u32::MAX);
        let over = async {
            graceful.shutdown().await;
            let _ = room.acquire_many(all).await;
            self.proxy.idle().await;
        };
        if tokio::time::timeout(self.end_within, over).await.is_err() {
            tracing::warn!("some requests were not over in time");
        }
    }
}

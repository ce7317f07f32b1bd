//! The way of one request through the gate.

use std::error::Error;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use palisade_fence::{Failed, Fence, FenceError, Key, Ledger, LedgerError, RedbLedger, SignedFence};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answers::{self, FENCE_HEADER, SIGNATURE_HEADER};
use crate::body::{Passage, Watched, watched};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::paths::is_plain;
use crate::turns::{Turn, Turns};

/// A gate at work.
pub(crate) struct Proxy {
    config: Config,
    ledger: Arc<RedbLedger>,
    turns: Turns,
    client: Client<HttpConnector, Watched>,
    room: Arc<Semaphore>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Proxy {
    /// What was on its way when the last gate of this ledger ended has an unknown outcome.
    pub(crate) fn new(config: Config, ledger: RedbLedger) -> Result<Proxy, LedgerError> {
        let turns = Turns::new(config.queue, config.queue_within, config.upstream_max);
        for (key, epoch) in ledger.in_flight()? {
            tracing::warn!(%key, %epoch, "a write was on its way when the gate ended; its outcome is unknown");
            turns.was_in_flight(key, epoch);
        }
        let mut client = Client::builder(TokioExecutor::new());
        // A request that may have been heard is never sent again behind our back.
        client.retry_canceled_requests(false);
        Ok(Proxy {
            room: Arc::new(Semaphore::new(config.requests_max)),
            turns,
            ledger: Arc::new(ledger),
            client: client.build_http(),
            metrics: Arc::default(),
            config,
        })
    }

    /// The fence of a request, if it shows the right one.
    fn fence(&self, request: &Request) -> Result<Fence, Box<Response>> {
        let mut shown = request.headers().get_all(FENCE_HEADER).iter();
        let bad = |why: &str| Box::new(answers::bad_fence(why));
        let value = match (shown.next(), shown.next()) {
            (Some(value), None) => value,
            (Some(_), Some(_)) => return Err(bad("it is shown more than once")),
            (None, _) => return Err(Box::new(answers::no_fence())),
        };
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| bad("it is not UTF-8"))?;
        let fence: Fence = text.parse().map_err(|e: FenceError| bad(&e.to_string()))?;
        if !self.config.routes.is_empty() {
            if !is_plain(request.uri().path()) {
                return Err(Box::new(answers::bad_path()));
            }
            // The other path of a MOVE or COPY (RFC 4918) is another's to protect.
            if request.headers().contains_key(DESTINATION) {
                return Err(Box::new(answers::second_path()));
            }
        }
        match self.config.protector(request.uri().path()) {
            Ok(None) => Ok(fence),
            Ok(Some(key)) if key == fence.key() => Ok(fence),
            Ok(wanted) => Err(Box::new(answers::wrong_key(wanted))),
            Err(()) => Err(Box::new(answers::wrong_key(None))),
        }
    }

    /// The same fence, if the cluster has signed it or no signature is wanted.
    fn verified(&self, fence: Fence, request: &Request) -> Result<Fence, Box<Response>> {
        let Some(verifier) = &self.config.require_signed else { return Ok(fence) };
        let mut shown = request.headers().get_all(SIGNATURE_HEADER).iter();
        let bad = |why: &str| Box::new(answers::bad_signature(why));
        let value = match (shown.next(), shown.next()) {
            (Some(value), None) => value,
            (Some(_), Some(_)) => return Err(bad("it is shown more than once")),
            (None, _) => return Err(Box::new(answers::unsigned(verifier.cluster()))),
        };
        let signature = value.to_str().ok().and_then(|text| text.parse().ok());
        let signature = signature.ok_or_else(|| bad("it is not 128 hexadecimal digits in lower case"))?;
        match verifier.verify(SignedFence { fence, signature }) {
            Ok(verified) => Ok(verified.fence().clone()),
            Err(refused) => Err(Box::new(answers::unverified(&refused))),
        }
    }

    /// Waits for the turn of the fence's key, applies the rule, forwards, and ends the turn when the outcome is known.
    async fn write(self: &Arc<Self>, fence: Fence, request: Request, room: OwnedSemaphorePermit) -> Response {
        let Some(mut turn) = self.turns.wait(fence.key()).await else {
            self.metrics.busy.add();
            return answers::busy();
        };
        let held_back = turn.held_back(fence.epoch());
        // Who is held back raises the floor all the same, so that the older one makes its outcome unknown no longer.
        let departs = held_back.is_none();
        let (ledger, shown) = (Arc::clone(&self.ledger), fence.clone());
        let admitted = tokio::task::spawn_blocking(move || match departs {
            true => ledger.depart(&shown),
            false => ledger.admit(&shown),
        });
        match admitted.await {
            Ok(Ok(())) => {}
            Ok(Err(Failed::Refused(refused))) => {
                self.metrics.superseded.add();
                return answers::superseded(&fence, refused);
            }
            failed => {
                // Whether the mark is durable is not known, but nothing was forwarded.
                self.metrics.ledger_failed.add();
                tracing::error!(?failed, "the ledger of fences failed");
                return answers::no_ledger();
            }
        }
        if let Some((epoch, left)) = held_back {
            self.metrics.held_back.add();
            return answers::held_back(&fence, epoch, left);
        }
        turn.departs(fence.epoch());
        let (response, outcome, passage) = self.forward(request).await;
        match outcome {
            Outcome::Done => self.metrics.written.add(),
            Outcome::Rejected => self.metrics.rejected.add(),
            // Counted where it was found out.
            Outcome::NotSent | Outcome::Unknown => {}
        }
        if outcome != Outcome::Unknown {
            let (proxy, key) = (Arc::clone(self), fence.key().clone());
            // The answer need not wait for what is left of the body, but the turn does.
            tokio::spawn(async move {
                proxy.end_turn(turn, passage, &key).await;
                drop((proxy, room));
            });
        } else {
            self.metrics.unknown.add();
            tracing::warn!(fence = %fence, "the outcome of a write is unknown");
        }
        response
    }

    /// Waits until no request is under way and no turn.
    pub(crate) async fn idle(&self) {
        let all = u32::try_from(self.config.requests_max).unwrap_or(u32::MAX);
        // It is never closed.
        let _ = self.room.acquire_many(all).await;
    }

    /// Ends a turn once nothing of the request can reach the resource any more.
    async fn end_turn(&self, mut turn: Turn, mut passage: Passage, key: &Key) {
        if tokio::time::timeout(self.config.answer_within, passage.over()).await.is_err() {
            // The turn and the body are dropped: the rest does not pass, and the outcome is unknown.
            self.metrics.unknown.add();
            tracing::warn!(%key, "the rest of a body did not come; the outcome of its write is unknown");
            return;
        }
        if !turn.arrived() {
            return;
        }
        let (ledger, key) = (Arc::clone(&self.ledger), key.clone());
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || ledger.arrive(&key)).await {
            // The mark stays: after a restart the gate will be more careful than it would have to.
            self.metrics.ledger_failed.add();
            tracing::error!(%error, "the ledger of fences failed");
        }
    }

    /// Sends the request on, and says what its outcome is once its body has passed.
    async fn forward(&self, request: Request) -> (Response, Outcome, Passage) {
        let (mut parts, body) = request.into_parts();
        let (body, passage) = watched(body, self.config.body_max);
        let Some(uri) = self.config.upstream.at(&parts.uri) else {
            return (answers::unreachable("the path makes no address"), Outcome::NotSent, passage);
        };
        parts.uri = uri;
        parts.version = axum::http::Version::HTTP_11;
        strip_hop_by_hop(&mut parts.headers);
        if self.config.require_signed.is_some() {
            parts.headers.remove(SIGNATURE_HEADER);
        }
        if let Ok(host) = HeaderValue::from_str(self.config.upstream.authority().as_str()) {
            parts.headers.insert(header::HOST, host);
        }
        let sent = self.client.request(Request::from_parts(parts, body));
        match tokio::time::timeout(self.config.answer_within, sent).await {
            Ok(Ok(response)) => {
                let (mut parts, body) = response.into_parts();
                strip_hop_by_hop(&mut parts.headers);
                let outcome = Outcome::of(parts.status);
                (Response::from_parts(parts, Body::new(body)), outcome, passage)
            }
            Ok(Err(e)) if e.is_connect() => {
                self.metrics.unreachable.add();
                (answers::unreachable(&root_cause(&e)), Outcome::NotSent, passage)
            }
            Ok(Err(e)) => (answers::unknown(&root_cause(&e)), Outcome::Unknown, passage),
            Err(_) => (answers::unknown("the resource did not answer in time"), Outcome::Unknown, passage),
        }
    }
}

/// What became of a request that was sent on, as far as its answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The resource says that it is done.
    Done,
    /// The resource says something else.
    Rejected,
    /// It has not reached the resource.
    NotSent,
    /// Nobody knows.
    Unknown,
}

impl Outcome {
    /// Of an answer's status. A gateway may not know, and a promise to do it later is none.
    fn of(status: StatusCode) -> Outcome {
        match status {
            StatusCode::ACCEPTED | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => Outcome::Unknown,
            status if status.is_success() => Outcome::Done,
            _ => Outcome::Rejected,
        }
    }
}

/// Names a second path.
const DESTINATION: &str = "destination";
/// Make a method of another, for resources that heed them.
const OVERRIDES: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// The way of every request.
pub(crate) async fn handle(State(gate): State<Arc<Proxy>>, request: Request) -> Response {
    let Ok(room) = Arc::clone(&gate.room).try_acquire_owned() else {
        gate.metrics.busy.add();
        return answers::busy();
    };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|l| l.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > gate.config.body_max as u64) {
        gate.metrics.refused.add();
        return answers::too_long(gate.config.body_max);
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads && !gate.config.fence_reads {
        gate.metrics.reads.add();
        let mut request = request;
        OVERRIDES.iter().for_each(|name| drop(request.headers_mut().remove(*name)));
        let (response, _, mut passage) = gate.forward(request).await;
        // Whoever reads may send a body, which goes on as long as it likes.
        tokio::spawn(async move { passage.over().await });
        return response;
    }
    let fence = match gate.fence(&request) {
        Ok(fence) => fence,
        Err(refused) => {
            gate.metrics.refused.add();
            return *refused;
        }
    };
    // Before a turn is waited for, and before a floor can move.
    let fence = match gate.verified(fence, &request) {
        Ok(fence) => fence,
        Err(refused) => {
            gate.metrics.unverified.add();
            return *refused;
        }
    };
    // A task of its own: a client that goes away ends neither the turn nor the look-out for the outcome.
    let of_task = Arc::clone(&gate);
    match tokio::spawn(async move { of_task.write(fence, request, room).await }).await {
        Ok(response) => response,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// What belongs to one connection and not to the request (RFC 9110, section 7.6.1).
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // To name it there is no way to get rid of it.
        .filter(|name| name != FENCE_HEADER && name != SIGNATURE_HEADER)
        .collect();
    let fixed = [
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    for name in named.iter().chain(&fixed) {
        headers.remove(name);
    }
}

fn root_cause(e: &dyn Error) -> String {
    let mut cause = e;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

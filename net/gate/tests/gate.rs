//! The gate before a resource whose answers can be held up.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use palisade_gate::{Config, FENCE_HEADER};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

/// A resource that does what it is told, as soon as it is let.
#[derive(Clone)]
struct Resource {
    /// What was written, with the path.
    written: Arc<Mutex<Vec<String>>>,
    /// How many are at work, and the most at once.
    at_work: Arc<Mutex<(u32, u32)>>,
    /// A write to `/slow` takes one of these, before it is done.
    go: Arc<Semaphore>,
    /// Says that a write to `/slow` has come.
    came: Arc<Semaphore>,
}

impl Resource {
    async fn start() -> (Resource, SocketAddr) {
        let resource = Resource {
            written: Arc::default(),
            at_work: Arc::default(),
            go: Arc::new(Semaphore::new(0)),
            came: Arc::new(Semaphore::new(0)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(Resource::handle).with_state(resource.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (resource, address)
    }

    async fn handle(State(resource): State<Resource>, method: Method, request: Request<Body>) -> String {
        let path = request.uri().path().to_owned();
        if method == Method::GET {
            return resource.written.lock().unwrap().join(",");
        }
        {
            let mut at_work = resource.at_work.lock().unwrap();
            at_work.0 += 1;
            at_work.1 = at_work.1.max(at_work.0);
        }
        // Whoever asked may go away: what has come is done.
        tokio::spawn(resource.write(path, request)).await.unwrap()
    }

    async fn write(self, path: String, request: Request<Body>) -> String {
        if path == "/early" {
            // It answers before it has heard all.
            tokio::spawn(self.take(request));
            return "begun".to_owned();
        }
        if path == "/slow" {
            self.came.add_permits(1);
            self.go.acquire().await.unwrap().forget();
        }
        self.take(request).await;
        "done".to_owned()
    }

    async fn take(self, request: Request<Body>) {
        // Of what breaks off it does what it has heard.
        let mut body = request.into_body();
        let mut text = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            text.extend_from_slice(frame.data_ref().unwrap());
        }
        self.written.lock().unwrap().push(String::from_utf8(text).unwrap());
        self.at_work.lock().unwrap().0 -= 1;
    }

    fn written(&self) -> String {
        self.written.lock().unwrap().join(",")
    }
}

struct Gate {
    address: SocketAddr,
    admin: SocketAddr,
    client: Client<HttpConnector, Body>,
    stop: Option<oneshot::Sender<()>>,
    ended: tokio::task::JoinHandle<()>,
}

fn config(dir: &Path, upstream: SocketAddr) -> Config {
    Config {
        upstream: format!("http://{upstream}").parse().unwrap(),
        ledger: dir.join("ledger"),
        routes: Vec::new(),
        require_signed: None,
        fence_reads: false,
        answer_within: DEADLINE,
        upstream_max: DEADLINE,
        queue: 100,
        queue_within: DEADLINE,
        body_max: 1000,
        requests_max: 1000,
    }
}

impl Gate {
    async fn start(config: Config) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, at_admin) = (listener.local_addr().unwrap(), admin.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let gate = palisade_gate::Gate::open(config).unwrap();
            gate.serve(listener, admin, async { drop(stopped.await) }).await.unwrap();
        });
        let client = Client::builder(TokioExecutor::new()).build_http();
        Gate { address, admin: at_admin, client, stop: Some(stop), ended }
    }

    /// Ends as if asked to; its ledger can be opened again afterwards.
    async fn end(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        drop(self.client);
        timeout(DEADLINE, self.ended).await.unwrap().unwrap();
    }

    async fn put(&self, path: &str, fence: Option<&str>, body: impl Into<Body>) -> (StatusCode, Value) {
        let mut request = Request::put(format!("http://{}{path}", self.address));
        if let Some(fence) = fence {
            request = request.header(FENCE_HEADER, fence);
        }
        let asked = self.client.request(request.body(body.into()).unwrap());
        let response = timeout(DEADLINE, asked).await.unwrap().unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn get(&self, address: SocketAddr, path: &str) -> String {
        let request = Request::get(format!("http://{address}{path}")).body(Body::empty()).unwrap();
        let response = timeout(DEADLINE, self.client.request(request)).await.unwrap().unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }
}

#[tokio::test]
async fn a_superseded_fence_is_refused_in_plain_words_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let gate = Gate::start(config(dir.path(), upstream)).await;
    assert_eq!(gate.put("/r", Some("k@7/7"), "by 7").await.0, StatusCode::OK);
    assert_eq!(gate.put("/r", Some("k@7/7"), "by 7 again").await.0, StatusCode::OK);
    assert_eq!(gate.put("/r", Some("k@8/8"), "by 8").await.0, StatusCode::OK);
    gate.end().await;
    let gate = Gate::start(config(dir.path(), upstream)).await;
    let (status, body) = gate.put("/r", Some("k@7/7"), "by the zombie").await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED);
    assert_eq!((&body["error"], &body["floor"]), (&"superseded".into(), &8.into()));
    assert!(body["message"].as_str().unwrap().contains("do not retry"), "{body}");
    assert_eq!(gate.put("/r", Some("other@1/1"), "another key").await.0, StatusCode::OK);
    assert_eq!(gate.get(gate.address, "/r").await, "by 7,by 7 again,by 8,another key");
    assert_eq!(resource.written(), "by 7,by 7 again,by 8,another key");
    let metrics = gate.get(gate.admin, "/metrics").await;
    assert!(metrics.contains("palisade_gate_superseded_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn what_shows_no_fence_or_a_wrong_one_is_not_forwarded() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let mut config = config(dir.path(), upstream);
    config.routes = vec!["/reports=reports".parse().unwrap(), "/reports/daily=daily".parse().unwrap()];
    let gate = Gate::start(config).await;
    let status = async |path, fence| gate.put(path, fence, "x").await.0;
    assert_eq!(status("/reports", None).await, StatusCode::PRECONDITION_REQUIRED);
    for bad in ["", "k", "k@1", "k@1/2", "k@0/0"] {
        assert_eq!(status("/reports", Some(bad)).await, StatusCode::BAD_REQUEST, "{bad}");
    }
    assert_eq!(status("/reports", Some("daily@1/1")).await, StatusCode::FORBIDDEN);
    assert_eq!(status("/reports/daily", Some("reports@1/1")).await, StatusCode::FORBIDDEN);
    assert_eq!(status("/elsewhere", Some("reports@1/1")).await, StatusCode::FORBIDDEN);
    assert_eq!(status("/reportsX", Some("reports@1/1")).await, StatusCode::FORBIDDEN);
    let long = "x".repeat(1001);
    assert_eq!(gate.put("/reports", Some("reports@1/1"), long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(resource.written(), "");
    assert_eq!(status("/reports/daily", Some("daily@1/1")).await, StatusCode::OK);
    assert_eq!(status("/reports/weekly", Some("reports@1/1")).await, StatusCode::OK);
}

#[tokio::test]
async fn writes_of_one_key_go_one_after_the_other_and_a_crowd_is_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let mut config = config(dir.path(), upstream);
    config.queue = 3;
    let gate = Arc::new(Gate::start(config).await);
    let put = |path: &'static str, fence: &'static str| {
        let gate = Arc::clone(&gate);
        tokio::spawn(async move { gate.put(path, Some(fence), "x").await.0 })
    };
    let first = put("/slow", "k@1/1");
    timeout(DEADLINE, resource.came.acquire()).await.unwrap().unwrap().forget();
    // Another key has a turn of its own.
    assert_eq!(put("/r", "other@1/1").await.unwrap(), StatusCode::OK);
    let waiting: Vec<_> = (0..6).map(|_| put("/r", "k@1/1")).collect();
    // Those who find the queue full are told at once, whatever the first does.
    let metrics = async || gate.get(gate.admin, "/metrics").await;
    timeout(DEADLINE, async {
        while !metrics().await.contains("palisade_gate_busy_total 3\n") {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    resource.go.add_permits(1);
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    let mut passed = 0;
    for put in waiting {
        match put.await.unwrap() {
            StatusCode::OK => passed += 1,
            other => assert_eq!(other, StatusCode::SERVICE_UNAVAILABLE),
        }
    }
    assert_eq!(passed, 3);
    assert_eq!(resource.at_work.lock().unwrap().1, 2, "one of each key at once");
}

#[tokio::test]
async fn while_an_outcome_is_unknown_no_higher_epoch_passes() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let mut config = config(dir.path(), upstream);
    config.answer_within = Duration::from_secs(1);
    config.upstream_max = Duration::from_secs(4);
    let gate = Gate::start(config).await;
    let (status, body) = gate.put("/slow", Some("k@1/1"), "late").await;
    assert_eq!((status, &body["error"]), (StatusCode::GATEWAY_TIMEOUT, &"unknown".into()));
    // The holder itself may go on, and what it does makes the earlier outcome no better known.
    assert_eq!(gate.put("/r", Some("k@1/1"), "by 1").await.0, StatusCode::OK);
    let (status, body) = gate.put("/r", Some("k@2/2"), "by 2").await;
    assert_eq!((status, &body["error"]), (StatusCode::SERVICE_UNAVAILABLE, &"held_back".into()));
    assert_eq!(body["unknown_epoch"], 1);
    // Until somebody newer has come.
    assert_eq!(gate.put("/r", Some("k@1/1"), "by 1").await.0, StatusCode::PRECONDITION_FAILED);
    // Now the late one takes effect, and nothing of a higher epoch lies under it.
    resource.go.add_permits(1);
    let passed = async {
        while gate.put("/r", Some("k@2/2"), "by 2").await.0 != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, passed).await.unwrap();
    assert_eq!(resource.written(), "by 1,late,by 2");
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_the_turn_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let gate = Arc::new(Gate::start(config(dir.path(), upstream)).await);
    let of_task = Arc::clone(&gate);
    let gone = tokio::spawn(async move { of_task.put("/slow", Some("k@1/1"), "first").await });
    timeout(DEADLINE, resource.came.acquire()).await.unwrap().unwrap().forget();
    gone.abort();
    assert!(gone.await.is_err());
    let of_task = Arc::clone(&gate);
    let next = tokio::spawn(async move { of_task.put("/r", Some("k@2/2"), "second").await.0 });
    resource.go.add_permits(1);
    assert_eq!(next.await.unwrap(), StatusCode::OK);
    assert_eq!(resource.written(), "first,second");
}

#[tokio::test]
async fn a_resource_that_cannot_be_reached_has_done_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gate = Gate::start(config(dir.path(), nobody)).await;
    for epoch in ["k@1/1", "k@2/2"] {
        let (status, body) = gate.put("/r", Some(epoch), "x").await;
        assert_eq!((status, &body["error"]), (StatusCode::BAD_GATEWAY, &"unreachable".into()));
    }
    let metrics = gate.get(gate.admin, "/metrics").await;
    for line in ["palisade_gate_unreachable_total 2\n", "palisade_gate_written_total 0\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_the_outcome_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let (_resource, upstream) = Resource::start().await;
    let gate = Gate::start(config(dir.path(), upstream)).await;
    // Longer than is allowed, and it does not say so beforehand.
    let chunk = Bytes::from(vec![b'x'; 600]);
    let body = Body::new(Chunks(vec![chunk.clone(), chunk]));
    let (status, _) = gate.put("/r", Some("k@1/1"), body).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(gate.put("/r", Some("k@2/2"), "x").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_turn_lasts_until_the_last_of_its_body_has_passed() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let gate = Arc::new(Gate::start(config(dir.path(), upstream)).await);
    let (send, body) = tokio::sync::mpsc::unbounded_channel();
    send.send(Bytes::from("by 5")).unwrap();
    // The resource answers although the body has not ended.
    assert_eq!(gate.put("/early", Some("k@5/5"), Body::new(Channel(body))).await.0, StatusCode::OK);
    let of_task = Arc::clone(&gate);
    let mut newer = tokio::spawn(async move { of_task.put("/r", Some("k@6/6"), "by 6").await.0 });
    assert!(timeout(Duration::from_millis(200), &mut newer).await.is_err(), "it waits for its turn");
    send.send(Bytes::from(", to the end")).unwrap();
    drop(send);
    assert_eq!(timeout(DEADLINE, newer).await.unwrap().unwrap(), StatusCode::OK);
    assert_eq!(resource.written(), "by 5, to the end,by 6");
}

#[tokio::test]
async fn a_body_that_never_ends_is_cut_off_and_its_outcome_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let mut config = config(dir.path(), upstream);
    config.answer_within = Duration::from_secs(1);
    let gate = Gate::start(config).await;
    let (send, body) = tokio::sync::mpsc::unbounded_channel();
    send.send(Bytes::from("by 5")).unwrap();
    assert_eq!(gate.put("/early", Some("k@5/5"), Body::new(Channel(body))).await.0, StatusCode::OK);
    assert_eq!(gate.put("/r", Some("k@6/6"), "by 6").await.0, StatusCode::SERVICE_UNAVAILABLE);
    // Nothing more of it passes.
    let _ = send.send(Bytes::from(", too late"));
    timeout(DEADLINE, async {
        while resource.written().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(resource.written(), "by 5");
}

#[tokio::test]
async fn who_is_held_back_shuts_out_the_older_one_that_would_hold_it_back_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (_resource, upstream) = Resource::start().await;
    let mut config = config(dir.path(), upstream);
    config.answer_within = Duration::from_millis(100);
    let gate = Gate::start(config).await;
    assert_eq!(gate.put("/slow", Some("k@5/5"), "x").await.0, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(gate.put("/slow", Some("k@5/5"), "x").await.0, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(gate.put("/r", Some("k@6/6"), "x").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(gate.put("/slow", Some("k@5/5"), "x").await.0, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn a_path_with_other_spellings_and_a_second_path_are_not_forwarded_under_a_protected_one() {
    let dir = tempfile::tempdir().unwrap();
    let (resource, upstream) = Resource::start().await;
    let mut config = config(dir.path(), upstream);
    config.routes = vec!["/a=ka".parse().unwrap(), "/b=kb".parse().unwrap()];
    let gate = Gate::start(config).await;
    for path in ["/a/../b/x", "/a/%2e%2e/b/x", "/a/..%2fb", "/a/./x", "/a//x"] {
        let (status, body) = gate.put(path, Some("ka@5/5"), "x").await;
        assert_eq!((status, &body["error"]), (StatusCode::BAD_REQUEST, &"bad_path".into()), "{path}");
    }
    let request = Request::builder().method("MOVE").uri(format!("http://{}/a/x", gate.address));
    let request = request.header(FENCE_HEADER, "ka@5/5").header("Destination", "http://h/b/y");
    let response = gate.client.request(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(resource.written(), "");
}

#[tokio::test]
async fn a_gate_ends_although_a_client_has_sent_half_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let (_resource, upstream) = Resource::start().await;
    let mut config = config(dir.path(), upstream);
    config.answer_within = Duration::from_millis(100);
    let gate = Gate::start(config).await;
    let mut half = tokio::net::TcpStream::connect(gate.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut half, b"GET / HTT").await.unwrap();
    gate.end().await;
}

/// A body that goes on as long as there is a sender.
struct Channel(tokio::sync::mpsc::UnboundedReceiver<Bytes>);

impl HttpBody for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// A body of unknown length.
struct Chunks(Vec<Bytes>);

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(|chunk| Ok(Frame::data(chunk))))
    }
}

//! A gate that wants signatures: what is not signed by the cluster reaches neither the resource nor the ledger.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use palisade_fence::{ClusterIdentity, Fence, Key, Ledger, RedbLedger, Signer, SigningKey, Verifier};
use palisade_gate::{Config, FENCE_HEADER, SIGNATURE_HEADER};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
const CLUSTER: ClusterIdentity = ClusterIdentity(0x77b1_c0de_00c0_ffee);
const ONE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";
const TWO: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7
-----END PRIVATE KEY-----
";

fn key(pem: &str) -> SigningKey {
    SigningKey::from_pem(pem).unwrap()
}

fn sign(cluster: ClusterIdentity, pem: &str, fence: &str) -> String {
    Signer::new(cluster, key(pem)).sign(&fence.parse::<Fence>().unwrap()).to_string()
}

/// A resource that remembers which signatures it was shown with what was written.
type Seen = Arc<Mutex<Vec<(String, bool)>>>;

async fn resource() -> (Seen, SocketAddr) {
    let seen = Seen::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let of_task = Arc::clone(&seen);
    let app = Router::new().fallback(move |headers: HeaderMap, body: String| async move {
        of_task.lock().unwrap().push((body, headers.contains_key(SIGNATURE_HEADER)));
        "done"
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    (seen, address)
}

struct Gate {
    address: SocketAddr,
    admin: SocketAddr,
    client: Client<HttpConnector, Body>,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

impl Gate {
    /// Accepts what one of these keys has signed; of none, whatever comes.
    async fn start(dir: &Path, upstream: SocketAddr, accepts: &[&str]) -> Gate {
        let verifier = Verifier::new(CLUSTER, accepts.iter().map(|pem| key(pem).public()));
        let config = Config {
            upstream: format!("http://{upstream}").parse().unwrap(),
            ledger: dir.join("ledger"),
            routes: Vec::new(),
            require_signed: verifier.ok(),
            fence_reads: false,
            answer_within: DEADLINE,
            upstream_max: DEADLINE,
            queue: 100,
            queue_within: DEADLINE,
            body_max: 1000,
            requests_max: 1000,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at_admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, admin) = (listener.local_addr().unwrap(), at_admin.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let gate = palisade_gate::Gate::open(config).unwrap();
            gate.serve(listener, at_admin, async { drop(stopped.await) }).await.unwrap();
        });
        Gate { address, admin, client: Client::builder(TokioExecutor::new()).build_http(), stop, ended }
    }

    async fn put(&self, fence: &str, signatures: &[&str]) -> (StatusCode, Value) {
        let mut request = Request::put(format!("http://{}/r", self.address)).header(FENCE_HEADER, fence);
        for signature in signatures {
            request = request.header(SIGNATURE_HEADER, *signature);
        }
        let asked = self.client.request(request.body(Body::from(fence.to_owned())).unwrap());
        let response = timeout(DEADLINE, asked).await.unwrap().unwrap();
        let (parts, body) = response.into_parts();
        let asks = parts.headers.contains_key("www-authenticate");
        assert_eq!(asks, parts.status == StatusCode::UNAUTHORIZED);
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn metric(&self, line: &str) {
        let request = Request::get(format!("http://{}/metrics", self.admin)).body(Body::empty()).unwrap();
        let response = timeout(DEADLINE, self.client.request(request)).await.unwrap().unwrap();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains(line), "{line} is not in {text}");
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        drop(self.client);
        timeout(DEADLINE, self.ended).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_the_cluster_has_not_signed_is_refused_and_moves_no_floor() {
    let dir = tempfile::tempdir().unwrap();
    let (seen, upstream) = resource().await;
    let gate = Gate::start(dir.path(), upstream, &[ONE]).await;
    let granted = sign(CLUSTER, ONE, "k@12/7");
    let invented = format!("k@{}/{}", u64::MAX / 2, u64::MAX / 2);
    let elsewhere = sign(ClusterIdentity(5), ONE, "k@12/7");
    let revoked = sign(CLUSTER, TWO, "k@12/7");
    let upper = granted.to_uppercase();
    let cases: [(&str, &[&str], StatusCode, &str); 10] = [
        ("k@12/7", &[], StatusCode::UNAUTHORIZED, "unsigned"),
        (&invented, &[], StatusCode::UNAUTHORIZED, "unsigned"),
        (&invented, &[&granted], StatusCode::FORBIDDEN, "unverified"),
        ("k@12/12", &[&granted], StatusCode::FORBIDDEN, "unverified"),
        ("other@12/7", &[&granted], StatusCode::FORBIDDEN, "unverified"),
        ("k@12/7", &[&elsewhere], StatusCode::FORBIDDEN, "unverified"),
        ("k@12/7", &[&revoked], StatusCode::FORBIDDEN, "unverified"),
        ("k@12/7", &[&upper], StatusCode::BAD_REQUEST, "bad_signature"),
        ("k@12/7", &[""], StatusCode::BAD_REQUEST, "bad_signature"),
        ("k@12/7", &[&revoked, &granted], StatusCode::BAD_REQUEST, "bad_signature"),
    ];
    for (fence, signatures, status, error) in cases {
        let (found, body) = gate.put(fence, signatures).await;
        assert_eq!((found, &body["error"]), (status, &error.into()), "{fence} {signatures:?}: {body}");
    }
    gate.metric("palisade_gate_unverified_total 10\n").await;
    gate.metric("palisade_gate_refused_total 0\n").await;
    assert_eq!(*seen.lock().unwrap(), []);
    gate.end().await;
    let ledger = RedbLedger::open(&dir.path().join("ledger")).unwrap();
    for name in ["k", "other"] {
        assert_eq!(ledger.floor(&Key::new(name).unwrap()).unwrap(), 0);
    }
    assert_eq!(ledger.in_flight().unwrap(), []);
    drop(ledger);

    let gate = Gate::start(dir.path(), upstream, &[ONE]).await;
    assert_eq!(gate.put("k@12/7", &[&granted]).await.0, StatusCode::OK);
    // It is a bearer's token: the gate has checked it, and the resource need not see it.
    assert_eq!(*seen.lock().unwrap(), [("k@12/7".to_owned(), false)]);
    gate.metric("palisade_gate_written_total 1\n").await;
}

#[tokio::test]
async fn while_the_key_is_replaced_both_pass_and_then_the_old_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_seen, upstream) = resource().await;
    let (old, new) = (sign(CLUSTER, ONE, "k@1/1"), sign(CLUSTER, TWO, "k@1/1"));
    for (accepts, wanted) in [
        (&[ONE][..], [StatusCode::OK, StatusCode::FORBIDDEN]),
        (&[ONE, TWO], [StatusCode::OK, StatusCode::OK]),
        (&[TWO], [StatusCode::FORBIDDEN, StatusCode::OK]),
    ] {
        let gate = Gate::start(dir.path(), upstream, accepts).await;
        assert_eq!([gate.put("k@1/1", &[&old]).await.0, gate.put("k@1/1", &[&new]).await.0], wanted);
        gate.end().await;
    }
}

#[tokio::test]
async fn where_no_signature_is_wanted_it_is_passed_on_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let (seen, upstream) = resource().await;
    let gate = Gate::start(dir.path(), upstream, &[]).await;
    assert_eq!(gate.put("k@1/1", &["whatever"]).await.0, StatusCode::OK);
    assert_eq!(*seen.lock().unwrap(), [("k@1/1".to_owned(), true)]);
}

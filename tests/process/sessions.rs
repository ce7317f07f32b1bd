//! Sessions as users of other lock services have suffered from them: made silently, kept by nobody, bound
//! to a thread, or kept by something that was left behind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use palisade_client::{Class, Client, ClientConfig, LogIndex, Mode, Refusal, SessionId};
use palisade_types::{Key, OnDeath, Reply, RequestId, SessionToken, ShardId, Ticket};
use palisade_wire::{ClientHello, Frames, Kind, Request, Wait, decode_reply};

use crate::support::{Cluster, PATIENCE, finish, one_cluster, until};

/// A connection to the leader that sends what it is told to.
struct Raw {
    stream: TcpStream,
    received: Vec<u8>,
    next: u64,
}

impl Raw {
    fn connect(cluster: &Cluster) -> Raw {
        // It serves from here on.
        assert_eq!(finish(&mut cluster.command(["sessions"])).code, Some(0));
        let led = until("a leader", || (1..=3).find(|n| cluster.metric(*n, "palisade_leads") == 1));
        let stream = TcpStream::connect(cluster.endpoint(led)).expect("the leader listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let mut raw = Raw { stream, received: Vec::new(), next: 0 };
        let version = palisade_wire::VERSION_MAX;
        let hello =
            ClientHello { version_min: version, version_max: version, cluster: None, credentials: vec![] };
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        raw.stream.write_all(&bytes).expect("a greeting");
        assert_eq!(raw.frame(|kind, _| Some(kind)), Kind::ServerHello);
        raw
    }

    /// Reads until a frame has what is looked for.
    fn frame<T>(&mut self, look: impl Fn(Kind, &palisade_wire::Frame<'_>) -> Option<T>) -> T {
        loop {
            let mut frames = Frames::new(&self.received);
            let mut found = None;
            while let (None, Some(frame)) = (&found, frames.next_frame().expect("whole frames")) {
                found = look(frame.kind, &frame);
            }
            let consumed = frames.consumed();
            self.received.drain(..consumed);
            if let Some(found) = found {
                return found;
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).expect("an answer");
            assert!(count > 0, "the server has closed the connection");
            self.received.extend_from_slice(&bytes[..count]);
        }
    }

    /// Asks, and waits for the answer to that.
    fn ask(&mut self, request: &Request) -> Reply {
        self.next += 1;
        let id = RequestId(self.next);
        let mut bytes = Vec::new();
        request.encode(id, &mut bytes);
        self.stream.write_all(&bytes).expect("a request");
        self.frame(|_, frame| (frame.id == id).then(|| decode_reply(frame).expect("a reply")))
    }

    fn open(&mut self, token: u128) -> SessionId {
        let open = Request::OpenSession {
            token: SessionToken(token),
            ttl_ms: 600_000,
            owner: None,
            incarnation: None,
        };
        match self.ask(&open) {
            Reply::Opened { session, .. } => session,
            other => panic!("{other:?}"),
        }
    }
}

fn acquire(session: SessionId, ticket: u64) -> Request {
    Request::Acquire {
        session,
        ticket: Ticket(ticket),
        key: Key::new("k").expect("a key"),
        class: Class::Advisory,
        resource: None,
        mode: Mode::Exclusive,
        wait: Wait::No,
        on_death: OnDeath::Release,
    }
}

/// What `describe` says of the one holder of k: its session and epoch.
fn holder(cluster: &Cluster) -> Option<(String, u64)> {
    let seen = finish(&mut cluster.command(["describe", "--json", "k"])).stdout;
    let seen: serde_json::Value = serde_json::from_str(&seen).expect("JSON");
    let holder = &seen["holders"][0];
    Some((holder["session"].as_str()?.to_owned(), holder["epoch"].as_u64()?))
}

fn run(test: impl AsyncFnOnce()) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test());
}

fn client(cluster: &Cluster) -> Client {
    Client::connect(ClientConfig::new(cluster.endpoints())).expect("a client")
}

#[test]
fn without_a_session_nothing_is_acquired_and_none_is_made_for_it() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut raw = Raw::connect(&cluster);
    for opened in [0, 1, u64::MAX] {
        let nobody = SessionId { shard: ShardId(0), opened: LogIndex(opened) };
        assert_eq!(raw.ask(&acquire(nobody, 1)), Reply::Refused(Refusal::NotAttached { session: nobody }));
        // Whoever has its id does not have the session.
        let attach = raw.ask(&Request::Attach { token: SessionToken(5), session: nobody });
        assert!(matches!(&attach, Reply::Refused(refusal) if refusal.is_final()), "{attach:?}");
    }
    assert_eq!(finish(&mut cluster.command(["sessions", "--json"])).stdout, "");
    assert_eq!(holder(&cluster), None);
}

#[test]
fn a_lock_is_freed_by_its_ticket_and_its_session_and_by_nobody_else() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (mut one, mut other) = (Raw::connect(&cluster), Raw::connect(&cluster));
    let (ours, theirs) = (one.open(1), other.open(2));
    let held = one.ask(&acquire(ours, 1));
    let Reply::Granted { fence, .. } = held else { panic!("{held:?}") };
    let still = Some((ours.to_string(), fence.epoch().0));
    // The same number is another ticket in another session, and a session is its connection's.
    let release = |session, ticket| Request::Release { session, ticket: Ticket(ticket) };
    other.ask(&release(theirs, 1));
    assert_eq!(holder(&cluster), still);
    let stolen = other.ask(&release(ours, 1));
    assert_eq!(stolen, Reply::Refused(Refusal::NotAttached { session: ours }));
    let close = other.ask(&Request::CloseSession { session: ours });
    assert_eq!(close, Reply::Refused(Refusal::NotAttached { session: ours }));
    one.ask(&release(ours, 2));
    assert_eq!(holder(&cluster), still, "another ticket of the same session");
    one.ask(&release(ours, 1));
    assert_eq!(holder(&cluster), None);
}

#[test]
fn the_simplest_use_keeps_its_lock_ten_times_the_ttl_under_one_epoch() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    run(async || {
        let ttl = Duration::from_secs(2);
        let session = client(&cluster).session().ttl(ttl).open().await.expect("a session");
        let guard = session.advisory("k").acquire().await.expect("a grant");
        let observer = client(&cluster);
        let until = Instant::now() + 10 * ttl;
        while Instant::now() < until {
            let seen = observer.describe("k").await.expect("a read").value;
            let holder = seen.holders.first().expect("it is held all the time");
            assert_eq!((holder.session, holder.epoch), (session.id(), guard.fence().epoch()));
            assert!(guard.is_valid());
            tokio::time::sleep(ttl / 8).await;
        }
        guard.release().await.expect("a release");
    });
}

#[test]
fn a_try_that_is_given_up_at_any_moment_keeps_neither_lock_nor_session() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    run(async || {
        // This client lives on, and renews whatever it believes to have.
        let client = client(&cluster);
        let kept = client.session().ttl(Duration::from_secs(600)).open().await.expect("a session");
        for polls in 0..40_u32 {
            let session = client.session().ttl(Duration::from_secs(600));
            let mut tried = Box::pin(async {
                let session = session.open().await.expect("a session");
                // Granted or not: given up with whatever it has.
                let _held = session.advisory("k").try_acquire().await.expect("a try");
                std::future::pending::<()>().await;
            });
            let mut again = Box::pin(async {
                let _held = kept.advisory("k").try_acquire().await.expect("a try");
                std::future::pending::<()>().await;
            });
            for _ in 0..polls {
                poll(tried.as_mut());
                poll(again.as_mut());
                tokio::task::yield_now().await;
            }
            if polls % 2 == 0 {
                // Let answers arrive, so that some are given up after the grant.
                client.status().await.expect("an answer");
                poll(tried.as_mut());
                poll(again.as_mut());
            }
        }
        let all_gone = async || loop {
            let sessions = client.sessions(None, 1_000).await.expect("a page").rows;
            let seen = client.describe("k").await.expect("a read").value;
            if sessions.len() == 1 && seen.holding == 0 && seen.waiting == 0 {
                return sessions[0].session;
            }
        };
        let left = tokio::time::timeout(PATIENCE, all_gone()).await.expect("all is given up");
        assert_eq!(left, kept.id(), "the one that is still wanted");
    });
}

/// Polls what never ends, without being woken by it: whoever does so looks again.
fn poll(future: Pin<&mut impl Future<Output = ()>>) {
    assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

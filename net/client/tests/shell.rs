//! The client against a server of a few lines that speaks the real protocol: what the handles do, and
//! what the server gets to see of it.

use std::time::Duration;

use palisade_client::{
    AcquireError, CallError, Cause, Client, ClientConfig, Epoch, Fence, HolderInfo, LostReason, SessionId,
};
use palisade_types::{ClusterId, LogIndex, Name, NodeId, Outcome, Refusal, Reply, ShardId};
use palisade_wire::{ClientHello, Frames, Kind, Member, Push, Request, ServerHello, Wait, encode_reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A key that somebody else holds for ever.
const HELD: &str = "held";
const SESSION: SessionId = SessionId { shard: ShardId(0), opened: LogIndex(7) };

/// What the server is told to do.
enum Order {
    Push(Push),
    /// Answer renewals no more.
    IgnoreRenewals,
}

struct Server {
    endpoint: String,
    seen: mpsc::UnboundedReceiver<Request>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Server {
    async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let (seen_in, seen) = mpsc::unbounded_channel();
        let (orders, orders_out) = mpsc::unbounded_channel();
        let address = endpoint.clone();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            serve(stream, address, seen_in, orders_out).await;
        });
        Server { endpoint, seen, orders }
    }

    fn client(&self) -> Client {
        Client::connect(ClientConfig::new([self.endpoint.as_str()])).expect("a client")
    }

    fn order(&self, order: Order) {
        assert!(self.orders.send(order).is_ok(), "the server runs");
    }

    /// Waits for a request of a certain kind.
    async fn sees(&mut self, like: impl Fn(&Request) -> bool) -> Request {
        let look = async {
            loop {
                let request = self.seen.recv().await.expect("the server runs");
                if like(&request) {
                    return request;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), look).await.expect("the server sees such a request")
    }
}

async fn serve(
    mut stream: TcpStream,
    address: String,
    seen: mpsc::UnboundedSender<Request>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let (mut input, mut renewals) = (Vec::new(), true);
    loop {
        let mut out = Vec::new();
        tokio::select! {
            read = stream.read_buf(&mut input) => match read {
                Ok(1..) => {
                    let mut frames = Frames::new(&input);
                    while let Some(frame) = frames.next_frame().expect("whole frames") {
                        if frame.kind == Kind::ClientHello {
                            ClientHello::decode(&frame).expect("a greeting");
                            hello(&address).encode(&mut out);
                            continue;
                        }
                        let request = Request::decode(&frame).expect("a request");
                        if let Some(reply) = answer(&request).filter(|r| renewals || !matches!(r, Reply::Renewed { .. })) {
                            encode_reply(&reply, frame.id, &mut out);
                        }
                        let _ = seen.send(request);
                    }
                    let consumed = frames.consumed();
                    input.drain(..consumed);
                }
                _ => return,
            },
            order = orders.recv() => match order {
                Some(Order::Push(push)) => push.encode(&mut out),
                Some(Order::IgnoreRenewals) => renewals = false,
                None => return,
            },
        }
        if stream.write_all(&out).await.is_err() {
            return;
        }
    }
}

fn hello(address: &str) -> ServerHello {
    ServerHello {
        version: palisade_wire::VERSION_MAX,
        node: NodeId(1),
        cluster: ClusterId(5),
        shards: 1,
        leader: Some(NodeId(1)),
        members: vec![Member { node: NodeId(1), address: address.to_owned() }],
        frame_bytes_max: 1 << 20,
        inflight_max: 64,
        election_timeout_ms: 1_000,
    }
}

fn holder() -> Box<HolderInfo> {
    let session = SessionId { shard: ShardId(0), opened: LogIndex(3) };
    Box::new(HolderInfo {
        session,
        owner: Name::new("other").ok(),
        epoch: Epoch(4),
        held_ms: 9,
        ending: false,
    })
}

fn answer(request: &Request) -> Option<Reply> {
    Some(match request {
        Request::OpenSession { ttl_ms, .. } => {
            let ttl_ms = if *ttl_ms == 0 { 30_000 } else { *ttl_ms };
            Reply::Opened { session: SESSION, ttl_ms, gone_within_ms: 2 * u64::from(ttl_ms), short_ttl: true }
        }
        Request::Renew { .. } => Reply::Renewed { refused: Vec::new() },
        Request::CloseSession { session } => Reply::SessionClosed { session: *session },
        Request::Acquire { session, ticket, key, wait, .. } if &**key == HELD => match wait {
            Wait::No => Reply::Denied { session: *session, ticket: *ticket, waiting: 2, holder: holder() },
            _ => Reply::Queued { session: *session, ticket: *ticket, place: 2, holder: holder() },
        },
        Request::Acquire { session, ticket, key, .. } => {
            let fence = Fence::new(key.clone(), Epoch(9), Epoch(9)).expect("a fence");
            Reply::Granted { session: *session, ticket: *ticket, fence }
        }
        Request::Release { session, ticket } => {
            Reply::Finished { session: *session, ticket: *ticket, outcome: Outcome::Released }
        }
        Request::Cancel { session, ticket } => {
            Reply::Finished { session: *session, ticket: *ticket, outcome: Outcome::Cancelled }
        }
        Request::Describe { .. } => {
            Reply::Refused(Refusal::BadRequest { reason: "no such thing".to_owned() })
        }
        _ => return None,
    })
}

#[tokio::test]
async fn a_guard_carries_its_fence_and_releases_when_dropped() {
    let mut server = Server::start().await;
    let session = server.client().session().ttl(Duration::from_secs(20)).owner("me").open().await.unwrap();
    assert_eq!((session.id(), session.ttl(), session.is_short()), (SESSION, Duration::from_secs(20), true));
    let guard = session.fenced("k", "db").acquire().await.unwrap();
    assert_eq!(guard.fence().to_string(), "k@9/9");
    assert!(guard.is_valid() && guard.remaining() <= guard.grace());
    let asked = server.sees(|r| matches!(r, Request::Acquire { .. })).await;
    let Request::Acquire { ticket: drawn, resource, .. } = asked else { unreachable!() };
    assert_eq!(resource.as_deref(), Some("db"));
    drop(guard);
    let released = server.sees(|r| matches!(r, Request::Release { .. })).await;
    assert_eq!(released, Request::Release { session: SESSION, ticket: drawn });
}

#[tokio::test]
async fn a_release_is_confirmed_and_the_last_handle_closes_the_session() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    drop(session);
    guard.release().await.unwrap();
    server.sees(|r| *r == Request::CloseSession { session: SESSION }).await;
}

#[tokio::test]
async fn an_acquire_that_does_not_wait_learns_who_holds_the_key() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    match session.advisory(HELD).no_wait().acquire().await {
        Err(AcquireError::Held { holder: Some(seen), waiting: 2 }) => assert_eq!(seen, holder()),
        other => panic!("{other:?}"),
    }
    assert!(session.advisory(HELD).try_acquire().await.unwrap().is_none());
    assert!(session.advisory("free").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn dropping_a_pending_acquire_withdraws_it() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let (queued_in, mut queued) = mpsc::unbounded_channel();
    let acquire = session.advisory(HELD).on_queued(move |q| queued_in.send(q.place).unwrap()).acquire();
    tokio::select! {
        end = acquire => panic!("{end:?}"),
        place = queued.recv() => assert_eq!(place, Some(2)),
    }
    let given_up = |r: &Request| matches!(r, Request::Cancel { .. } | Request::Release { .. });
    server.sees(given_up).await;
}

#[tokio::test]
async fn a_guard_is_lost_with_the_cause_when_the_cluster_ends_the_session() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    let cause = Cause::Expired { silent_ms: 77 };
    server.order(Order::Push(Push::SessionEnded { session: SESSION, cause }));
    assert_eq!(guard.lost().await, LostReason::Ended(cause));
    assert_eq!(session.lost().await, LostReason::Ended(cause));
    assert!(!guard.is_valid() && guard.grace().is_zero());
    assert_eq!(guard.release().await, Err(CallError::SessionLost(LostReason::Ended(cause))));
    let again = session.advisory("k").acquire().await;
    assert_eq!(again.unwrap_err(), AcquireError::Call(CallError::SessionLost(LostReason::Ended(cause))));
}

#[tokio::test]
async fn a_guard_is_lost_when_no_renewal_is_answered() {
    let mut server = Server::start().await;
    let session = server.client().session().ttl(Duration::from_millis(600)).open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    server.sees(|r| matches!(r, Request::Renew { .. })).await;
    server.order(Order::IgnoreRenewals);
    assert_eq!(guard.lost().await, LostReason::DeadlinePassed);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(guard.grace() <= Duration::from_millis(60), "the margin is a tenth of the TTL");
}

#[tokio::test]
async fn closing_a_session_loses_the_guards_that_are_left() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    session.close().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Closed);
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn a_refused_read_is_told_apart_from_a_cluster_out_of_reach() {
    let server = Server::start().await;
    let refused = server.client().describe("k").await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refusal::BadRequest { .. })) && refused.is_final());
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = ClientConfig::new([nobody.local_addr().unwrap().to_string()]);
    drop(nobody);
    config.call_timeout = Duration::from_millis(50);
    let unreachable = Client::connect(config).unwrap().describe("k").await.unwrap_err();
    assert!(
        matches!(&unreachable, CallError::Unavailable { last, .. } if last.contains("127.0.0.1")),
        "{unreachable}"
    );
    assert!(!unreachable.is_final());
}

#[test]
fn guards_are_lost_when_the_runtime_ends() {
    let runtime = |f: &mut dyn FnMut(&tokio::runtime::Runtime)| {
        f(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    };
    let mut held = None;
    runtime(&mut |rt| {
        held = Some(rt.block_on(async {
            let server = Server::start().await;
            server.client().session().open().await.unwrap().advisory("k").acquire().await.unwrap()
        }));
    });
    let guard = held.unwrap();
    assert!(!guard.is_valid(), "nobody renews any more");
    runtime(&mut |rt| assert_eq!(rt.block_on(guard.lost()), LostReason::Stopped));
}

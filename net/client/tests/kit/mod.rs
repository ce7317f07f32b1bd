//! A server of a few lines that speaks the real protocol and grants everything but one key.
#![allow(dead_code, reason = "each test uses its part")]

use std::time::Duration;

use palisade_client::{
    Client, ClientConfig, Consistency, Epoch, Fence, HolderInfo, ReadMark, SessionId, ValueRow,
};
use palisade_types::{
    ClusterId, ClusterIdentity, Event, Happened, LogIndex, Mode, Name, NodeId, OperatorAct, Outcome, Refusal,
    Reply, Selector, SessionRow, ShardId, Standing, TransitionKind,
};
use palisade_wire::{
    ClientHello, Frames, Kind, Member, Push, Query, Request, ServerHello, Wait, encode_reply,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A key that somebody else holds for ever.
pub(crate) const HELD: &str = "held";
pub(crate) const SESSION: SessionId = SessionId { shard: ShardId(0), opened: LogIndex(7) };

/// The end of the server's log.
pub(crate) const PRESENT: LogIndex = LogIndex(20);
/// The third of the worker's sessions, which the server does not end.
pub(crate) const STUBBORN: LogIndex = LogIndex(13);

/// One of the worker's sessions: there are 11 to 13.
pub(crate) fn worker(opened: u64) -> SessionId {
    SessionId { shard: ShardId(0), opened: LogIndex(opened) }
}

/// What the server is told to do.
pub(crate) enum Order {
    Push(Push),
    /// Answer renewals no more.
    IgnoreRenewals,
}

pub(crate) struct Server {
    pub(crate) endpoint: String,
    seen: mpsc::UnboundedReceiver<Request>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Server {
    pub(crate) async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let (seen_in, seen) = mpsc::unbounded_channel();
        let (orders, orders_out) = mpsc::unbounded_channel();
        let address = endpoint.clone();
        tokio::spawn(async move {
            let mut orders = Some(orders_out);
            let mut idle = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                // Orders are for the first connection; the others are those of watches.
                let orders = orders.take().unwrap_or_else(|| {
                    let (orders_in, orders) = mpsc::unbounded_channel();
                    idle.push(orders_in);
                    orders
                });
                tokio::spawn(serve(stream, address.clone(), seen_in.clone(), orders));
            }
        });
        Server { endpoint, seen, orders }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(ClientConfig::new([self.endpoint.as_str()])).expect("a client")
    }

    pub(crate) fn order(&self, order: Order) {
        assert!(self.orders.send(order).is_ok(), "the server runs");
    }

    /// Waits for a request, for as long as it takes.
    pub(crate) async fn any(&mut self) -> Request {
        self.seen.recv().await.expect("the server runs")
    }

    /// Waits for a request of a certain kind.
    pub(crate) async fn sees(&mut self, like: impl Fn(&Request) -> bool) -> Request {
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

pub(crate) async fn serve(
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
                        pushes(&request).iter().for_each(|push| push.encode(&mut out));
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

pub(crate) fn hello(address: &str) -> ServerHello {
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

pub(crate) fn holder() -> Box<HolderInfo> {
    let session = SessionId { shard: ShardId(0), opened: LogIndex(3) };
    Box::new(HolderInfo {
        session,
        owner: Name::new("other").ok(),
        incarnation: None,
        epoch: Epoch(4),
        mode: Mode::Exclusive,
        held_ms: 9,
        standing: Standing::Live,
    })
}

/// Whose cursors these are.
pub(crate) const CLUSTER: ClusterIdentity = ClusterIdentity(5);

/// What a watch is told: the election or the lock `k` is held by one, then by another, who proclaims.
pub(crate) fn pushes(request: &Request) -> Vec<Push> {
    let Request::Watch { watch, selector: Selector::Key(key), present: true, .. } = request else {
        return Vec::new();
    };
    let is_election = &**key == "election";
    let event = |revision, what| Event {
        revision: LogIndex(revision),
        key: Some(key.clone()),
        session: SESSION,
        owner: None,
        what,
    };
    let value = |text: &str| palisade_types::Value::from(text.as_bytes());
    let (one, two) = (Epoch(1), Epoch(2));
    let row = match is_election {
        true => Happened::Leads { epoch: one, ending: false, value: value("one") },
        false => Happened::Held { epoch: one, barrier: one, ending: false },
    };
    let released = Happened::Released { epoch: one, barrier: one, how: TransitionKind::Released };
    let mut changes = vec![event(13, released)];
    if is_election {
        changes.push(event(13, Happened::Elected { epoch: two, value: value("two") }));
        changes.push(event(14, Happened::Proclaimed { epoch: two, value: value("two, ready") }));
    }
    let push = |present, upto, events: Vec<Event>| Push::Events {
        watch: *watch,
        present,
        coalesced: false,
        continued: false,
        upto: LogIndex(upto),
        events: events.into_iter().collect(),
    };
    vec![push(true, 12, vec![event(12, row)]), push(false, 14, changes)]
}

const READ: ReadMark = ReadMark { consistency: Consistency::Linearizable, revision: LogIndex(12) };

pub(crate) fn value_row(key: &str) -> ValueRow {
    ValueRow {
        key: Name::new(key).expect("a name"),
        value: key.as_bytes().into(),
        session: SESSION,
        owner: None,
        created: LogIndex(8),
        modified: LogIndex(9),
        ending: false,
    }
}

pub(crate) fn answer(request: &Request) -> Option<Reply> {
    Some(match request {
        Request::Watch { cursor: Some(cursor), .. } if cursor.cluster != CLUSTER => {
            Reply::Refused(Refusal::ClusterReset)
        }
        Request::Watch { watch, .. } => {
            Reply::Watching { watch: *watch, cluster: CLUSTER, shard: ShardId(0), revision: LogIndex(12) }
        }
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
        Request::Campaign { session, ticket, key, .. } => {
            let fence = Fence::new(key.clone(), Epoch(9), Epoch(9)).expect("a fence");
            Reply::Granted { session: *session, ticket: *ticket, fence }
        }
        // The resource "shared" is protected by another key too.
        Request::ClaimResource { resource, .. } => {
            let other = (&**resource == "shared").then(|| Name::new("other").expect("a name"));
            Reply::ResourceClaimed { revision: LogIndex(12), keys: 1 + u32::from(other.is_some()), other }
        }
        Request::Release { session, ticket } => {
            Reply::Finished { session: *session, ticket: *ticket, outcome: Outcome::Released }
        }
        Request::Cancel { session, ticket } => {
            Reply::Finished { session: *session, ticket: *ticket, outcome: Outcome::Cancelled }
        }
        Request::Read { query: Query::ListSessions { .. }, .. } => {
            let read = ReadMark { consistency: Consistency::Linearizable, revision: PRESENT };
            let row = |opened| SessionRow {
                session: worker(opened),
                owner: Name::new("worker").ok(),
                incarnation: None,
                ttl_ms: 30_000,
                held: 0,
                waiting: 0,
                quarantined: false,
                values: 0,
            };
            Reply::Sessions { read, rows: (11..=13).map(row).collect(), more: false }
        }
        Request::Operate { act: OperatorAct::ReportDead { session }, .. } if session.opened != STUBBORN => {
            Reply::OperatorDone { action: LogIndex(21) }
        }
        Request::Put { key, .. } | Request::Delete { key, .. } if &**key == HELD => {
            Reply::Refused(Refusal::OwnedByOther { session: holder().session, owner: holder().owner })
        }
        Request::Put { session, ticket, .. } => {
            Reply::PutDone { session: *session, ticket: *ticket, revision: LogIndex(12) }
        }
        Request::Delete { session, ticket, .. } => {
            Reply::Deleted { session: *session, ticket: *ticket, existed: false }
        }
        Request::Read { query: Query::Get { key }, .. } => {
            let row = (&**key == HELD).then(|| Box::new(value_row(HELD)));
            Reply::Value { read: READ, row }
        }
        // Three keys, two on a page.
        Request::Read { query: Query::ListValues { after, .. }, .. } => {
            let keys = ["svc/1", "svc/2", "svc/3"].into_iter();
            let left: Vec<&str> = keys.filter(|k| after.as_deref().is_none_or(|after| *k > after)).collect();
            let rows = left.iter().take(2).map(|key| value_row(key)).collect();
            Reply::Values { read: READ, rows, more: left.len() > 2 }
        }
        Request::Read { .. } | Request::Operate { .. } => {
            Reply::Refused(Refusal::BadRequest { reason: "no such thing".to_owned() })
        }
        _ => return None,
    })
}

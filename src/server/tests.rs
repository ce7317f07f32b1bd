//! A whole core with one voter on a real disk and real sockets, spoken to in bytes: what a stranger,
//! a slow reader and a hasty client get.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use palisade_types::limits::{PAGE_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use palisade_types::reply::Consistency;
use palisade_types::{
    ClusterId, Incarnation, Name, Reply, RequestId, SessionToken, StartNonce, Starts, Ticket,
};
use palisade_wire::{
    ClientHello, Frames, HelloRefused, Kind, PeerHello, ProtocolError, Query, RefusedReason, Request,
    ServerHello,
};

use super::*;
use crate::format::{FormatSpec, format};

mod signed;

/// A core under test; it ends with the test.
struct Node {
    _dir: tempfile::TempDir,
    address: SocketAddr,
    view: CoreView,
    identity: Identity,
    executor: Option<Executor>,
    _watchdog: Watchdog,
}

/// A directory beside the build, which lies on a disk: /tmp may be memory.
pub(super) fn scratch() -> tempfile::TempDir {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    std::fs::create_dir_all(&base).unwrap();
    tempfile::tempdir_in(base).unwrap()
}

/// Starts a core that serves before this returns. `change` sees the configuration first.
fn node(change: impl FnOnce(&mut Config)) -> Node {
    node_of(1, change)
}

/// The same with so many members; nobody is where the others are.
fn node_of(members: u32, change: impl FnOnce(&mut Config)) -> Node {
    let dir = scratch();
    let peers = (1..=members).map(|n| (NodeId(n), format!("127.0.0.{n}:7401"))).collect();
    format(dir.path(), &FormatSpec::new(Name::new("lone").unwrap(), NodeId(1), peers)).unwrap();
    let identity = directory::identity(dir.path()).unwrap();
    let mut config = Config::read(dir.path()).unwrap();
    (config.heartbeat, config.election_min) = (Duration::from_millis(20), Duration::from_millis(100));
    (config.election_max, config.segment_bytes) = (Duration::from_millis(200), 1 << 20);
    change(&mut config);
    // Any free port: the configuration's is only what clients are told.
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let connections = config.connections_max;
    let (parts, view) = prepare(dir.path(), &config, identity.clone(), connections, listener).unwrap();
    let watchdog = Watchdog::start(vec![Arc::clone(&view.heartbeat)]).unwrap();
    let executor = Some(spawn(0, parts, view.clone(), None).unwrap());
    Node { _dir: dir, address, view, identity, executor, _watchdog: watchdog }
}

impl Node {
    fn connect(&self) -> Link {
        Link { stream: TcpStream::connect(self.address).unwrap(), bytes: Vec::new() }
    }

    fn client(&self) -> Link {
        let mut link = self.connect();
        link.send(|out| client_hello().encode(out));
        assert_eq!(link.frame().unwrap().0, Kind::ServerHello);
        link
    }

    fn serving(&self) {
        while self.view.metrics.leads.get() == 0 || self.view.metrics.applied_index.get() == 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.view.outside.send_blocking(Outside::Stop);
        if let Some(executor) = self.executor.take() {
            executor.join().unwrap().unwrap();
        }
    }
}

/// The other end of a connection.
struct Link {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Link {
    fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        encode(&mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// The next frame's kind, id and bytes; `None` once the connection is closed.
    fn frame(&mut self) -> Option<(Kind, RequestId, Vec<u8>)> {
        loop {
            let mut frames = Frames::new(&self.bytes);
            if let Some(frame) = frames.next_frame().unwrap() {
                let (kind, id) = (frame.kind, frame.id);
                let rest = self.bytes.split_off(frames.consumed());
                return Some((kind, id, std::mem::replace(&mut self.bytes, rest)));
            }
            let mut buffer = [0; 65_536];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(n) => self.bytes.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

fn client_hello() -> ClientHello {
    ClientHello { version_min: 1, version_max: 1, cluster: None, credentials: Vec::new() }
}

fn refused(link: &mut Link) -> RefusedReason {
    let (_, _, bytes) = link.frame().unwrap();
    let frame = Frames::new(&bytes).next_frame().unwrap().unwrap();
    let reason = HelloRefused::decode(&frame).unwrap().reason;
    assert!(link.frame().is_none(), "closed after a refusal");
    reason
}

#[test]
fn a_client_is_told_who_is_here_and_gets_answers_from_a_durable_log() {
    let node = node(|_| ());
    let mut link = node.connect();
    link.send(|out| client_hello().encode(out));
    let (_, _, bytes) = link.frame().unwrap();
    let hello = ServerHello::decode(&Frames::new(&bytes).next_frame().unwrap().unwrap()).unwrap();
    assert_eq!((hello.node, hello.cluster, hello.members.len()), (NodeId(1), node.identity.cluster, 1));
    node.serving();
    let (batches, syncs) = (node.view.metrics.log_batches.get(), node.view.metrics.syncs.get());
    let open = Request::OpenSession { token: SessionToken(7), ttl_ms: 0, owner: None, incarnation: None };
    link.send(|out| open.encode(RequestId(3), out));
    let (kind, id, _) = link.frame().unwrap();
    assert_eq!((kind, id), (Kind::Opened, RequestId(3)));
    assert!(node.view.metrics.log_batches.get() > batches, "an answer without a batch");
    assert!(node.view.metrics.syncs.get() > syncs, "an answer without a sync");
}

#[test]
fn hellos_that_do_not_fit_are_refused_with_the_reason() {
    let node = node(|_| ());
    let cases: [(ClientHello, RefusedReason); 2] = [
        (ClientHello { version_min: 700, version_max: 701, ..client_hello() }, RefusedReason::Version),
        (ClientHello { cluster: Some(ClusterId(1)), ..client_hello() }, RefusedReason::Cluster),
    ];
    for (hello, reason) in cases {
        let mut link = node.connect();
        link.send(|out| hello.encode(out));
        assert_eq!(refused(&mut link), reason);
    }
    let mut early = node.connect();
    early.send(|out| Request::Status.encode(RequestId(1), out));
    assert_eq!(refused(&mut early), RefusedReason::Malformed);
    let mut stranger = node.connect();
    let hello = PeerHello {
        version_min: 1,
        version_max: 1,
        cluster: node.identity.cluster,
        shards: 1,
        node: NodeId(2),
        incarnation: Incarnation(9),
        starts: Starts { number: 1, nonces: vec![StartNonce(4)] },
        expects: None,
        known: Vec::new(),
    };
    stranger.send(|out| hello.encode(out));
    assert_eq!(refused(&mut stranger), RefusedReason::Stranger);
}

#[test]
fn messages_of_a_shard_that_is_not_here_are_dropped_and_an_earlier_connection_of_a_peer_is_closed() {
    let node = node_of(2, |_| ());
    let hello = PeerHello {
        version_min: 1,
        version_max: 1,
        cluster: node.identity.cluster,
        shards: 1,
        node: NodeId(2),
        incarnation: Incarnation(9),
        starts: Starts { number: 1, nonces: vec![StartNonce(4)] },
        expects: None,
        known: Vec::new(),
    };
    let mut links = [node.connect(), node.connect()];
    for link in &mut links {
        link.send(|out| hello.encode(out));
        assert_eq!(link.frame().unwrap().0, Kind::PeerHello);
    }
    let [mut earlier, mut link] = links;
    assert!(earlier.frame().is_none(), "the later one has replaced it");
    let reply = palisade_raft::VoteReply { term: palisade_types::Term(1), granted: true };
    let mut body = Vec::new();
    palisade_shard::peer_codec::encode(ShardId(9), &palisade_raft::Message::VoteReply(reply), &mut body);
    link.send(|out| palisade_wire::encode_peer(out, &[&body]));
    while node.view.metrics.peer_astray.get() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(node.view.metrics.peer_received.get(), 1);
}

#[test]
fn what_breaks_the_protocol_is_answered_and_closed() {
    let node = node(|_| ());
    let garbage: [&[u8]; 3] = [&[0xff; 64], &[0; 64], b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"];
    for (bytes, introduced) in garbage.iter().flat_map(|g| [(*g, false), (*g, true)]) {
        let mut link = if introduced { node.client() } else { node.connect() };
        link.stream.write_all(bytes).unwrap();
        let (kind, _, answer) = link.frame().unwrap();
        assert_eq!(kind, Kind::ProtocolError);
        ProtocolError::decode(&Frames::new(&answer).next_frame().unwrap().unwrap()).unwrap();
        assert!(link.frame().is_none());
    }
    // A peer's frame claims a megabyte: a client's claim is not believed, and nothing that long is kept.
    let mut link = node.client();
    let mut long = Vec::new();
    palisade_wire::encode_peer(&mut long, &[&[0; 500_000]]);
    link.stream.write_all(&long[..100_000]).unwrap();
    assert_eq!(link.frame().unwrap().0, Kind::ProtocolError);
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let node = node(|c| c.hello_timeout = Duration::from_millis(50));
    assert!(node.connect().frame().is_none());
    // One that has introduced itself may be silent.
    let mut link = node.client();
    assert!(node.connect().frame().is_none(), "time has passed");
    link.send(|out| Request::Status.encode(RequestId(1), out));
    assert_eq!(link.frame().unwrap().0, Kind::StatusIs);
}

#[test]
fn more_connections_than_allowed_are_closed_as_they_come() {
    let node = node(|c| c.connections_max = 3);
    let kept: Vec<Link> = (0..3).map(|_| node.client()).collect();
    assert!(node.connect().frame().is_none());
    drop(kept);
    // Their ends are noticed in some turn soon.
    loop {
        let mut link = node.connect();
        if link.stream.write_all(&hello_bytes()).is_ok() && link.frame().is_some() {
            break;
        }
    }
}

fn hello_bytes() -> Vec<u8> {
    let mut out = Vec::new();
    client_hello().encode(&mut out);
    out
}

#[test]
fn every_request_is_answered_however_many_are_sent_ahead() {
    let node = node(|c| c.inflight_max = 4);
    node.serving();
    let mut link = node.client();
    const REQUESTS: u64 = 2_000;
    // Far more than may be in flight, in one write and before an answer is read; some cost a sync,
    // some a round, some nothing.
    link.send(|out| {
        for id in 0..REQUESTS {
            let token = SessionToken(u128::from(id) + 1);
            let request = match id % 3 {
                0 => Request::OpenSession { token, ttl_ms: 0, owner: None, incarnation: None },
                1 => Request::Read {
                    consistency: Consistency::Linearizable,
                    query: Query::ListSessions { after: None, rows: 2 },
                },
                _ => Request::Status,
            };
            request.encode(RequestId(id), out);
        }
    });
    let mut seen = vec![false; REQUESTS as usize];
    for _ in 0..REQUESTS {
        let (_, id, _) = link.frame().unwrap();
        assert!(!std::mem::replace(&mut seen[id.0 as usize], true), "answered twice");
    }
}

#[test]
fn who_does_not_read_is_not_read_from_and_others_are_served() {
    let node = node(|_| ());
    node.serving();
    let mut deaf = node.client();
    deaf.stream.set_nonblocking(true).unwrap();
    let mut requests = Vec::new();
    for id in 0..2_000 {
        Request::Status.encode(RequestId(id), &mut requests);
    }
    // Until the server has stopped reading for so long that both sockets are full.
    let mut stuck = 0;
    let mut other = node.client();
    let mut at = 0;
    while stuck < 50 {
        match deaf.stream.write(&requests[at..]) {
            Ok(n) => {
                at = (at + n) % requests.len();
                stuck = 0;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                // A round trip of another client: the server has had its turns.
                other.send(|out| Request::Status.encode(RequestId(9), out));
                assert_eq!(other.frame().unwrap().0, Kind::StatusIs);
                stuck += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    // It reads now: every answer is there, and the bytes in between were not lost.
    deaf.stream.set_nonblocking(false).unwrap();
    for id in 0..2_000 {
        let (kind, answered, _) = deaf.frame().unwrap();
        assert_eq!((kind, answered), (Kind::StatusIs, RequestId(id)));
    }
}

#[test]
fn who_asks_for_more_than_it_reads_is_closed_and_others_are_served() {
    let node = node(|_| ());
    node.serving();
    let mut greedy = node.client();
    let open = Request::OpenSession { token: SessionToken(7), ttl_ms: 0, owner: None, incarnation: None };
    greedy.send(|out| open.encode(RequestId(1), out));
    let (_, _, bytes) = greedy.frame().unwrap();
    let opened = palisade_wire::decode_reply(&Frames::new(&bytes).next_frame().unwrap().unwrap()).unwrap();
    let Reply::Opened { session, .. } = opened else { panic!("{opened:?}") };
    // A page of values that is as long as a page may be.
    for n in 1..=16 {
        let key = Name::new(&format!("value-{n}")).unwrap();
        let value = vec![7; VALUE_BYTES_MAX].into();
        let put = Request::Put { session, ticket: Ticket(n), key, value };
        greedy.send(|out| put.encode(RequestId(1 + n), out));
        assert_eq!(greedy.frame().unwrap().0, Kind::PutDone);
    }
    // More of them, asked for in one piece, than may lie unread.
    let pages = 2 * conn::CLIENT_UNSENT_MAX / PAGE_VALUE_BYTES_MAX;
    greedy.send(|out| {
        for id in 0..pages as u64 {
            let query = Query::ListValues { prefix: None, after: None, rows: 1_000 };
            Request::Read { consistency: Consistency::Stale, query }.encode(RequestId(100 + id), out);
        }
    });
    let mut other = node.client();
    let looks = (0..100_000).find(|_| {
        // Each look is a round trip: the server has had its turns.
        other.send(|out| Request::Status.encode(RequestId(9), out));
        assert_eq!(other.frame().unwrap().0, Kind::StatusIs);
        node.view.metrics.shed.get() > 0
    });
    assert!(looks.is_some(), "it is closed, although it was never read from");
    let mut read = 0;
    while greedy.frame().is_some() {
        read += 1;
    }
    assert!(read < pages, "{read} of {pages} answers have come");
}

#[test]
fn a_core_that_stops_closes_its_listener_and_leaves_a_log_that_recovers() {
    let node = node(|_| ());
    node.serving();
    let mut link = node.client();
    let open = Request::OpenSession { token: SessionToken(7), ttl_ms: 0, owner: None, incarnation: None };
    link.send(|out| open.encode(RequestId(3), out));
    assert_eq!(link.frame().unwrap().0, Kind::Opened);
    let dir = node._dir.path().to_owned();
    // Recovery reads what is there while the core runs, as after a kill.
    let recovered = recover(&dir, &node.identity).unwrap();
    assert!(recovered.blocks.iter().map(|b| b.count()).sum::<u32>() >= 2);
    let address = node.address;
    drop(node);
    assert!(TcpStream::connect(address).is_err(), "nobody listens, although a client is still there");
    drop(link);
}

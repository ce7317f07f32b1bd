//! One sample of every message, and of every variant inside them.

use palisade_types::reply::{Consistency, NodeStatus, ReadMark};
use palisade_types::{
    Acquaintance, Cause, Class, ClusterId, ClusterIdentity, Cursor, Description, Epoch, Event, Events, Fence,
    Happened, HolderInfo, Incarnation, LockRow, LogIndex, Mode, Name, NodeId, OnDeath, OperatorAct,
    OperatorRow, Outcome, Refusal, Reply, RequestId, ResourceRow, Selector, SessionId, SessionRow,
    SessionToken, ShardId, Signature, Standing, Start, StartNonce, Starts, Term, Ticket, Transition,
    TransitionKind, Value, ValueRow, WaiterInfo,
};
use palisade_wire::{
    ClientHello, Frame, Frames, Group, HelloRefused, Kind, Member, MessageError, PeerHello, ProtocolError,
    Push, Query, RefusedReason, Request, ServerHello, VERSION_MAX, Wait, WatchEnd, decode_reply, encode_peer,
    encode_reply, encode_reply_in, signature_of,
};

/// Any message of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    ClientHello(ClientHello),
    ServerHello(ServerHello),
    PeerHello(PeerHello),
    HelloRefused(HelloRefused),
    ProtocolError(ProtocolError),
    Request(RequestId, Request),
    Reply(RequestId, Reply),
    Push(Push),
    /// A grant as an answer, signed.
    SignedReply(RequestId, Reply, Signature),
    /// A grant as a push, signed.
    SignedPush(Push, Signature),
    Peer(Vec<u8>),
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Message::ClientHello(m) => m.encode(&mut out),
            Message::ServerHello(m) => m.encode(&mut out),
            Message::PeerHello(m) => m.encode(&mut out),
            Message::HelloRefused(m) => m.encode(&mut out),
            Message::ProtocolError(m) => m.encode(&mut out),
            Message::Request(id, m) => m.encode(*id, &mut out),
            Message::Reply(id, m) => encode_reply(m, *id, &mut out),
            Message::Push(m) => m.encode(&mut out),
            Message::SignedReply(id, m, s) => encode_reply_in(VERSION_MAX, m, Some(s), *id, &mut out),
            Message::SignedPush(m, s) => m.encode_in(VERSION_MAX, Some(s), &mut out),
            Message::Peer(body) => encode_peer(&mut out, &[body]),
        }
        out
    }

    pub(crate) fn decode(frame: &Frame<'_>) -> Result<Message, MessageError> {
        Ok(match frame.kind.group() {
            Group::Request => Message::Request(frame.id, Request::decode(frame)?),
            Group::Reply => match (decode_reply(frame)?, signature_of(frame)?) {
                (reply, Some(signature)) => Message::SignedReply(frame.id, reply, signature),
                (reply, None) => Message::Reply(frame.id, reply),
            },
            Group::Push => match (Push::decode(frame)?, signature_of(frame)?) {
                (push, Some(signature)) => Message::SignedPush(push, signature),
                (push, None) => Message::Push(push),
            },
            Group::Peer => Message::Peer(frame.body.to_vec()),
            Group::Handshake => match frame.kind {
                Kind::ClientHello => Message::ClientHello(ClientHello::decode(frame)?),
                Kind::ServerHello => Message::ServerHello(ServerHello::decode(frame)?),
                Kind::PeerHello => Message::PeerHello(PeerHello::decode(frame)?),
                Kind::HelloRefused => Message::HelloRefused(HelloRefused::decode(frame)?),
                _ => Message::ProtocolError(ProtocolError::decode(frame)?),
            },
        })
    }
}

/// The only frame in these bytes.
pub(crate) fn only_frame(bytes: &[u8]) -> Frame<'_> {
    let mut frames = Frames::new(bytes);
    let frame = frames.next_frame().unwrap().expect("a whole frame");
    assert_eq!(frames.consumed(), bytes.len());
    frame
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn session() -> SessionId {
    SessionId { shard: ShardId(3), opened: LogIndex(0x0102_0304) }
}

fn fence() -> Fence {
    Fence::new(name("jobs/nightly"), Epoch(0x11_2233), Epoch(0x11_2230)).unwrap()
}

fn holder() -> HolderInfo {
    HolderInfo {
        session: session(),
        owner: Some(name("höst")),
        incarnation: Some(name("pod-1")),
        epoch: Epoch(7),
        mode: Mode::Exclusive,
        held_ms: 1500,
        standing: Standing::Ending,
    }
}

fn read() -> ReadMark {
    ReadMark { consistency: Consistency::Linearizable, revision: LogIndex(99) }
}

/// Name and message, one line each in the golden file.
pub(crate) fn all() -> Vec<(String, Message)> {
    let mut all = hellos();
    let request = |(n, r): (&str, Request)| (format!("request {n}"), Message::Request(RequestId(0xa1b2), r));
    all.extend(requests().into_iter().map(request));
    let reply = |(n, r): (String, Reply)| (format!("reply {n}"), Message::Reply(RequestId(0xa1b2), r));
    all.extend(replies().into_iter().map(reply));
    all.extend(pushes().into_iter().map(|(n, p)| (format!("push {n}"), Message::Push(p))));
    all.extend(signed());
    all.push(("peer".to_string(), Message::Peer(vec![1, 2, 3])));
    all
}

fn signed() -> Vec<(String, Message)> {
    let (session, ticket, fence) = (session(), Ticket(5), fence());
    let mut signature = Signature([0; 64]);
    signature.0.iter_mut().zip(0..).for_each(|(byte, n)| *byte = n);
    let reply = Reply::Granted { session, ticket, fence: fence.clone() };
    let push = Push::Granted { session, ticket, fence };
    vec![
        ("reply granted, signed".to_string(), Message::SignedReply(RequestId(0xa1b2), reply, signature)),
        ("push granted, signed".to_string(), Message::SignedPush(push, signature)),
    ]
}

fn hellos() -> Vec<(String, Message)> {
    let (cluster, token) = (ClusterId(0xc1_u128 << 96), Incarnation(0x1234_5678_9abc));
    let mut all = vec![
        (
            "client hello, any cluster".to_string(),
            Message::ClientHello(ClientHello {
                version_min: 1,
                version_max: 1,
                cluster: None,
                credentials: vec![],
            }),
        ),
        (
            "client hello".to_string(),
            Message::ClientHello(ClientHello {
                version_min: 1,
                version_max: 3,
                cluster: Some(cluster),
                credentials: b"secret".to_vec(),
            }),
        ),
        (
            "server hello".to_string(),
            Message::ServerHello(ServerHello {
                version: 1,
                node: NodeId(2),
                cluster,
                shards: 1,
                leader: Some(NodeId(1)),
                members: vec![
                    Member { node: NodeId(1), address: "127.0.0.1:7401".to_string() },
                    Member { node: NodeId(2), address: "[::1]:7402".to_string() },
                ],
                frame_bytes_max: 1 << 20,
                inflight_max: 4096,
                election_timeout_ms: 1000,
            }),
        ),
    ];
    for (text, expects) in [("peer hello, first meeting", None), ("peer hello", Some(token))] {
        let hello = PeerHello {
            version_min: 1,
            version_max: 1,
            cluster,
            shards: 4,
            node: NodeId(3),
            incarnation: token,
            starts: Starts { number: 17, nonces: vec![StartNonce(16), StartNonce(0x17 << 100)] },
            expects,
            known: vec![Acquaintance { node: NodeId(1), start: Start { number: 9, nonce: StartNonce(8) } }],
        };
        all.push((text.to_string(), Message::PeerHello(hello)));
    }
    for reason in [
        RefusedReason::Version,
        RefusedReason::Cluster,
        RefusedReason::Credentials,
        RefusedReason::Full,
        RefusedReason::Stopping,
        RefusedReason::Stranger,
        RefusedReason::Malformed,
        RefusedReason::Twice,
        RefusedReason::Outdated,
    ] {
        let refused = HelloRefused { reason, text: "no".to_string() };
        all.push((format!("hello refused {reason:?}"), Message::HelloRefused(refused)));
    }
    let error = ProtocolError { text: "frame kind 0x0999 is unknown".to_string() };
    all.push(("protocol error".to_string(), Message::ProtocolError(error)));
    all
}

fn requests() -> Vec<(&'static str, Request)> {
    let (session, ticket, token) = (session(), Ticket(5), SessionToken(0x00ff_u128 << 112 | 1));
    let acquire = |class, resource, wait| Request::Acquire {
        session,
        ticket,
        key: name("jobs/nightly"),
        class,
        resource,
        mode: if wait == Wait::Forever { Mode::Shared } else { Mode::Exclusive },
        wait,
        on_death: if wait == Wait::No { OnDeath::Quarantine } else { OnDeath::Release },
    };
    vec![
        ("open session, plain", Request::OpenSession { token, ttl_ms: 0, owner: None, incarnation: None }),
        (
            "open session",
            Request::OpenSession {
                token,
                ttl_ms: 30_000,
                owner: Some(name("höst")),
                incarnation: Some(name("pod-1")),
            },
        ),
        ("attach", Request::Attach { token, session }),
        ("renew none", Request::Renew { sessions: vec![] }),
        ("renew two", Request::Renew { sessions: vec![session, SessionId::default()] }),
        ("close session", Request::CloseSession { session }),
        ("acquire fenced", acquire(Class::Fenced, Some(name("db/orders")), Wait::No)),
        ("acquire advisory", acquire(Class::Advisory, None, Wait::Forever)),
        ("acquire with a time", acquire(Class::Advisory, None, Wait::Millis(2500))),
        ("release", Request::Release { session, ticket }),
        ("cancel", Request::Cancel { session, ticket }),
        ("downgrade", Request::Downgrade { session, ticket, holds: Ticket(4) }),
        (
            "campaign",
            Request::Campaign {
                session,
                ticket,
                key: name("leader"),
                value: (*b"10.0.0.7:80\0").into(),
                wait: Wait::Millis(2500),
            },
        ),
        ("proclaim", Request::Proclaim { session, ticket, leads: Ticket(4), value: [].into() }),
        ("describe", read_of(Query::Describe { key: name("jobs/nightly") })),
        (
            "describe by lease",
            Request::Read { consistency: Consistency::Lease, query: Query::Describe { key: name("k") } },
        ),
        (
            "describe, stale",
            Request::Read { consistency: Consistency::Stale, query: Query::Describe { key: name("k") } },
        ),
        ("list locks, first page", read_of(Query::ListLocks { after: None, rows: 100 })),
        ("list locks", read_of(Query::ListLocks { after: Some(name("a")), rows: 1000 })),
        ("list sessions, first page", read_of(Query::ListSessions { after: None, rows: 100 })),
        ("list sessions", read_of(Query::ListSessions { after: Some(session), rows: 1 })),
        ("status", Request::Status),
        ("operate, report dead", operate(OperatorAct::ReportDead { session })),
        ("operate, evict", operate(OperatorAct::Evict { session })),
        ("operate, force release", operate(OperatorAct::ForceRelease { key: name("k"), epoch: Epoch(7) })),
        ("operate, retire", operate(OperatorAct::Retire { key: name("k"), epoch: Epoch(7) })),
        ("operate, transfer", operate(OperatorAct::Transfer { term: Term(7), to: None })),
        ("operate, transfer to", operate(OperatorAct::Transfer { term: Term(7), to: Some(NodeId(3)) })),
        ("list operator acts", read_of(Query::ListOperatorActs { after: LogIndex(8), rows: 100 })),
        ("put", Request::Put { session, ticket, key: name("svc/a"), value: (*b"10.0.0.7:80\0").into() }),
        ("put, no bytes", Request::Put { session, ticket, key: name("svc/a"), value: [].into() }),
        ("delete", Request::Delete { session, ticket, key: name("svc/a") }),
        ("get", read_of(Query::Get { key: name("svc/a") })),
        ("list values, all", read_of(Query::ListValues { prefix: None, after: None, rows: 100 })),
        (
            "list values",
            read_of(Query::ListValues { prefix: Some(name("svc/")), after: Some(name("svc/a")), rows: 1000 }),
        ),
        ("watch a key from now on", watch(Selector::Key(name("k")), false, None)),
        ("watch a prefix from its present state", watch(Selector::Prefix(name("jobs/")), true, None)),
        ("watch all keys behind a cursor", watch(Selector::Keys, false, Some(cursor()))),
        ("watch sessions from a state as new as a cursor", watch(Selector::Sessions, true, Some(cursor()))),
        ("unwatch", Request::Unwatch { watch: 7 }),
        ("claim resource", Request::ClaimResource { resource: name("db/orders"), key: name("jobs/nightly") }),
        (
            "list resources, first page",
            read_of(Query::ListResources { conflicts: false, after: None, rows: 100 }),
        ),
        (
            "list resources in conflict",
            read_of(Query::ListResources { conflicts: true, after: Some(name("db/orders")), rows: 1000 }),
        ),
    ]
}

fn read_of(query: Query) -> Request {
    Request::Read { consistency: Consistency::Linearizable, query }
}

fn operate(act: OperatorAct) -> Request {
    Request::Operate { by: name("ops@host"), reason: name("on fire"), act }
}

fn operator_rows() -> Vec<OperatorRow> {
    let row = |act| OperatorRow {
        revision: LogIndex(9),
        act,
        by: name("ops@host"),
        reason: name("on fire"),
        ago_ms: 12,
    };
    vec![
        row(OperatorAct::ReportDead { session: session() }),
        row(OperatorAct::ForceRelease { key: name("k"), epoch: Epoch(7) }),
        row(OperatorAct::Retire { key: name("k"), epoch: Epoch(7) }),
        row(OperatorAct::Transfer { term: Term(7), to: Some(NodeId(3)) }),
    ]
}

fn refusals() -> Vec<(&'static str, Refusal)> {
    let (session, ticket) = (session(), Ticket(5));
    vec![
        ("NotLeader", Refusal::NotLeader { leader: Some(NodeId(2)) }),
        ("NotLeader, none known", Refusal::NotLeader { leader: None }),
        ("Interrupted", Refusal::Interrupted { leader: Some(NodeId(3)) }),
        ("Busy", Refusal::Busy { retry_after_ms: 250 }),
        ("QuotaExceeded", Refusal::QuotaExceeded { what: "the log".to_string(), limit: 8 << 30 }),
        ("SessionEnded, closed", Refusal::SessionEnded { session, cause: Cause::Closed }),
        (
            "SessionEnded, expired",
            Refusal::SessionEnded { session, cause: Cause::Expired { silent_ms: 31_000 } },
        ),
        ("SessionEnded, forgotten", Refusal::SessionEnded { session, cause: Cause::Forgotten }),
        ("NotHeld", Refusal::NotHeld { asked: Epoch(7), last: Epoch(8) }),
        ("InUse", Refusal::InUse),
        ("Compacted", Refusal::Compacted { oldest: LogIndex(0x0a00) }),
        ("ClusterReset", Refusal::ClusterReset),
        (
            "SessionEnded, reported dead",
            Refusal::SessionEnded { session, cause: Cause::ReportedDead { action: LogIndex(9) } },
        ),
        (
            "SessionEnded, evicted",
            Refusal::SessionEnded { session, cause: Cause::Evicted { action: LogIndex(9) } },
        ),
        ("NotAttached", Refusal::NotAttached { session }),
        ("SessionFull", Refusal::SessionFull { what: "keys".to_string(), limit: 1000 }),
        ("ClassMismatch", Refusal::ClassMismatch { has: Class::Fenced }),
        ("TicketMismatch", Refusal::TicketMismatch { ticket }),
        ("TicketFinished", Refusal::TicketFinished { ticket, outcome: Outcome::Released }),
        ("NotAtEpoch", Refusal::NotAtEpoch { asked: Epoch(7), last: Epoch(8) }),
        ("NotAVoter", Refusal::NotAVoter { node: NodeId(4) }),
        ("OtherTerm", Refusal::OtherTerm { asked: Term(7), term: Term(8), leader: NodeId(2) }),
        ("NotHandedOver", Refusal::NotHandedOver { leader: NodeId(2) }),
        ("BadRequest", Refusal::BadRequest { reason: "a name has at least one byte".to_string() }),
        ("OwnedByOther", Refusal::OwnedByOther { session, owner: Some(name("höst")) }),
        ("OwnedByOther, no owner tag", Refusal::OwnedByOther { session, owner: None }),
    ]
}

fn replies() -> Vec<(String, Reply)> {
    let (session, ticket) = (session(), Ticket(5));
    let refusals = refusals();
    let mut all = vec![
        ("opened", Reply::Opened { session, ttl_ms: 30_000, gone_within_ms: 31_300, short_ttl: false }),
        ("attached", Reply::Attached { session, ttl_ms: 30_000 }),
        ("renewed", Reply::Renewed { refused: vec![] }),
        ("renewed but two", Reply::Renewed { refused: vec![refusals[5].1.clone(), refusals[12].1.clone()] }),
        ("session closed", Reply::SessionClosed { session }),
        ("granted", Reply::Granted { session, ticket, fence: fence() }),
        ("queued", Reply::Queued { session, ticket, place: 4, holder: Box::new(holder()) }),
        ("denied", Reply::Denied { session, ticket, waiting: 9, holder: Box::new(holder()) }),
        ("described", Reply::Described { read: read(), description: Box::new(description()) }),
        ("described, no record", Reply::Described { read: read(), description: Box::new(no_record()) }),
        (
            "described by lease",
            Reply::Described {
                read: ReadMark { consistency: Consistency::Lease, revision: LogIndex(99) },
                description: Box::new(no_record()),
            },
        ),
        (
            "described, stale",
            Reply::Described {
                read: ReadMark { consistency: Consistency::Stale, revision: LogIndex(0) },
                description: Box::new(no_record()),
            },
        ),
        ("locks", Reply::Locks { read: read(), rows: lock_rows(), more: true }),
        ("sessions", Reply::Sessions { read: read(), rows: session_rows(), more: false }),
        ("status", Reply::Status(Box::new(status()))),
        ("operator done", Reply::OperatorDone { action: LogIndex(9) }),
        ("operator acts", Reply::OperatorActs { read: read(), rows: operator_rows(), more: true }),
        ("put done", Reply::PutDone { session, ticket, revision: LogIndex(9) }),
        ("deleted", Reply::Deleted { session, ticket, existed: true }),
        ("value", Reply::Value { read: read(), row: Some(Box::new(value_rows()[0].clone())) }),
        ("value, none", Reply::Value { read: read(), row: None }),
        ("values", Reply::Values { read: read(), rows: value_rows(), more: true }),
        (
            "watching",
            Reply::Watching {
                watch: 7,
                cluster: ClusterIdentity(0xfeed_beef),
                shard: ShardId(3),
                revision: LogIndex(0x0a0b),
            },
        ),
        ("unwatched", Reply::Unwatched { watch: 7 }),
        ("resource claimed", Reply::ResourceClaimed { revision: LogIndex(9), keys: 1, other: None }),
        (
            "resource claimed, with another key",
            Reply::ResourceClaimed { revision: LogIndex(9), keys: 3, other: Some(name("jobs/hourly")) },
        ),
        ("resources", Reply::Resources { read: read(), rows: resource_rows(), more: true }),
    ]
    .into_iter()
    .map(|(n, reply)| (n.to_string(), reply))
    .collect::<Vec<_>>();
    for outcome in [
        Outcome::Unknown,
        Outcome::Released,
        Outcome::Cancelled,
        Outcome::TimedOut,
        Outcome::Denied,
        Outcome::Refused,
        Outcome::Forced,
        Outcome::Done,
    ] {
        all.push((format!("finished {outcome:?}"), Reply::Finished { session, ticket, outcome }));
    }
    all.extend(refusals.into_iter().map(|(n, refusal)| (format!("refused {n}"), Reply::Refused(refusal))));
    all
}

fn description() -> Description {
    let transition = |revision, kind| Transition {
        revision: LogIndex(revision),
        kind,
        session: session(),
        epoch: Epoch(6),
        ago_ms: 12,
    };
    Description {
        key: name("jobs/nightly"),
        class: Some(Class::Fenced),
        resource: Some(name("db/orders")),
        epoch: Epoch(7),
        holding: 2,
        holders: vec![
            HolderInfo { mode: Mode::Shared, standing: Standing::Quarantined, ..holder() },
            HolderInfo { mode: Mode::Shared, standing: Standing::Live, incarnation: None, ..holder() },
        ],
        value: Some((*b"\0v").into()),
        waiting: 2,
        waiters: vec![
            WaiterInfo { session: session(), owner: None, mode: Mode::Exclusive, waited_ms: 20 },
            WaiterInfo { session: session(), owner: Some(name("b")), mode: Mode::Shared, waited_ms: 10 },
        ],
        transitions: vec![
            transition(9, TransitionKind::Granted),
            transition(8, TransitionKind::SessionEnded(Cause::Expired { silent_ms: 1 })),
            transition(7, TransitionKind::Released),
            transition(6, TransitionKind::Forced),
            transition(5, TransitionKind::Downgraded),
        ],
    }
}

fn no_record() -> Description {
    Description {
        key: name("k"),
        class: None,
        resource: None,
        epoch: Epoch(0),
        holding: 0,
        holders: vec![],
        value: None,
        waiting: 0,
        waiters: vec![],
        transitions: vec![],
    }
}

fn lock_rows() -> Vec<LockRow> {
    let row = |key, class, holder: Option<HolderInfo>| LockRow {
        key: name(key),
        class,
        epoch: Epoch(7),
        holding: u32::from(holder.is_some()),
        holder,
        waiting: 3,
    };
    vec![
        row("a", Class::Advisory, None),
        row("b", Class::Fenced, Some(holder())),
        row("c", Class::Election, Some(holder())),
    ]
}

fn session_rows() -> Vec<SessionRow> {
    let row = |owner, incarnation| SessionRow {
        session: session(),
        owner,
        incarnation,
        ttl_ms: 30_000,
        held: 1,
        waiting: 2,
        values: 3,
        quarantined: true,
    };
    vec![row(None, None), row(Some(name("o")), Some(name("i")))]
}

fn value_rows() -> Vec<ValueRow> {
    let row = |key, value: &[u8], owner, ending| ValueRow {
        key: name(key),
        value: value.into(),
        session: session(),
        owner,
        created: LogIndex(8),
        modified: LogIndex(9),
        ending,
    };
    vec![row("svc/a", b"10.0.0.7:80\0", Some(name("höst")), false), row("svc/b", b"", None, true)]
}

fn resource_rows() -> Vec<ResourceRow> {
    vec![
        ResourceRow { resource: name("db/orders"), count: 1, keys: vec![name("jobs/nightly")] },
        ResourceRow { resource: name("höst"), count: 40, keys: vec![name("a"), name("b")] },
    ]
}

fn status() -> NodeStatus {
    NodeStatus {
        node: NodeId(1),
        role: "leader".to_string(),
        term: Term(4),
        leader: Some(NodeId(1)),
        last: LogIndex(14),
        durable: LogIndex(13),
        commit: LogIndex(12),
        applied: LogIndex(11),
        sessions: 10,
        keys: 9,
        log_bytes: 8,
        snapshot: LogIndex(7),
        boot: 7,
        cluster: Some(ClusterIdentity(0xfeed_beef)),
    }
}

fn pushes() -> Vec<(&'static str, Push)> {
    let (session, ticket) = (session(), Ticket(5));
    vec![
        ("granted", Push::Granted { session, ticket, fence: fence() }),
        ("finished", Push::Finished { session, ticket, outcome: Outcome::TimedOut }),
        ("session ended", Push::SessionEnded { session, cause: Cause::Expired { silent_ms: 31_000 } }),
        ("leader changed", Push::LeaderChanged { leader: Some(NodeId(2)) }),
        ("leader changed, none known", Push::LeaderChanged { leader: None }),
        (
            "events",
            Push::Events {
                watch: 7,
                present: false,
                coalesced: false,
                continued: false,
                upto: LogIndex(0x0a0b),
                events: changes(),
            },
        ),
        (
            "events, rows of the present state to be continued",
            Push::Events {
                watch: 7,
                present: true,
                coalesced: false,
                continued: true,
                upto: LogIndex(0x0a0b),
                events: rows(),
            },
        ),
        (
            "events, coalesced to none",
            Push::Events {
                watch: 7,
                present: false,
                coalesced: true,
                continued: false,
                upto: LogIndex(0x0a0b),
                events: Events::default(),
            },
        ),
        ("progress", Push::Progress { watch: 7, upto: LogIndex(0x0a0b) }),
        ("watch ended", Push::WatchEnded { watch: 7, why: WatchEnd::Resync, oldest: LogIndex(0x0a00) }),
    ]
}

fn event(key: Option<&str>, owner: Option<&str>, what: Happened) -> Event {
    Event { revision: LogIndex(0x0a0b), key: key.map(name), session: session(), owner: owner.map(name), what }
}

fn changes() -> Events {
    let (epoch, barrier) = (Epoch(0x11_2233), Epoch(0x11_2230));
    let how = |how| Happened::Released { epoch, barrier, how };
    let ended = |cause| how(TransitionKind::SessionEnded(cause));
    let action = LogIndex(0x0a0b);
    [
        event(Some("k"), Some("o"), Happened::Granted { epoch, barrier }),
        event(Some("k"), None, how(TransitionKind::Released)),
        event(Some("k"), None, ended(Cause::Closed)),
        event(Some("k"), None, ended(Cause::Expired { silent_ms: 31_000 })),
        event(Some("k"), None, ended(Cause::ReportedDead { action })),
        event(Some("k"), None, ended(Cause::Evicted { action })),
        event(Some("k"), None, how(TransitionKind::Forced)),
        event(Some("k"), None, how(TransitionKind::Downgraded)),
        event(Some("k"), None, Happened::Retired { epoch }),
        event(None, Some("o"), Happened::SessionOpened { ttl_ms: 30_000 }),
        event(None, Some("o"), Happened::SessionEnded { cause: Cause::Closed }),
        event(Some("e"), Some("o"), Happened::Elected { epoch, value: value(b"first") }),
        event(Some("e"), None, Happened::Proclaimed { epoch, value: value(b"then") }),
        event(Some("v"), Some("o"), Happened::Put { created: LogIndex(0x0a00), value: value(b"here") }),
        event(Some("v"), Some("o"), Happened::Put { created: LogIndex(0x0a0b), value: value(b"") }),
        event(Some("v"), None, Happened::Deleted),
        event(Some("v"), None, Happened::Vanished { cause: Cause::Expired { silent_ms: 31_000 } }),
    ]
    .into_iter()
    .collect()
}

fn value(bytes: &[u8]) -> Value {
    Value::from(bytes)
}

fn stands(ending: bool) -> Happened {
    let (created, modified) = (LogIndex(0x0a00), LogIndex(0x0a02));
    Happened::Stands { created, modified, ending, value: value(b"here") }
}

fn rows() -> Events {
    let (epoch, barrier) = (Epoch(0x11_2233), Epoch(0x11_2230));
    [
        event(Some("k"), Some("o"), Happened::Held { epoch, barrier, ending: false }),
        event(Some("l"), None, Happened::Held { epoch, barrier, ending: true }),
        event(Some("m"), None, Happened::Free { epoch }),
        event(None, None, Happened::SessionLives { ttl_ms: 30_000 }),
        event(Some("e"), Some("o"), Happened::Leads { epoch, ending: false, value: value(b"first") }),
        event(Some("f"), None, Happened::Leads { epoch, ending: true, value: value(b"") }),
        event(Some("v"), Some("o"), stands(false)),
        event(Some("w"), None, stands(true)),
    ]
    .into_iter()
    .collect()
}

fn watch(selector: Selector, present: bool, cursor: Option<Cursor>) -> Request {
    Request::Watch { watch: 7, selector, present, cursor }
}

fn cursor() -> Cursor {
    Cursor::new(ClusterIdentity(0xfeed_beef), ShardId(3), LogIndex(0x0a0b))
}

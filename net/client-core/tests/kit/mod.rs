//! A world of three scripted servers around one core: the test reads what the core sends and says
//! what comes back, and nothing happens by itself.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and a test may fail")]

pub(crate) mod server;

use std::collections::VecDeque;
use std::time::Duration;

use palisade_client_core::{
    AcquireSpec, Action, ClaimId, Core, CoreConfig, Event, Input, LinkId, SessionHandle, SessionSpec,
};
use palisade_types::{
    Class, ClusterId, Epoch, Fence, HolderInfo, Key, LogIndex, Mode, NodeId, Refusal, Reply, RequestId,
    SessionId, SessionToken, ShardId, Standing, Ticket, Time,
};
use palisade_wire::{ClientHello, Frames, Kind, Member, Push, Request, ServerHello, Wait, encode_reply};

pub(crate) const CLUSTER: ClusterId = ClusterId(77);

pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) now: Time,
    /// What the application was told, without what is for logs.
    pub(crate) events: Vec<Event>,
    /// What is for logs.
    pub(crate) log: Vec<Event>,
    pub(crate) dialed: Option<(LinkId, String)>,
    pub(crate) dials: Vec<(Time, String)>,
    pub(crate) link: Option<LinkId>,
    pub(crate) requests: VecDeque<(RequestId, Request)>,
    pub(crate) greetings: Vec<ClientHello>,
    /// Requests that were on their way when their connection ended.
    pub(crate) stranded: Vec<Request>,
    received: Vec<u8>,
}

pub(crate) fn endpoint(node: u32) -> String {
    format!("node{node}:740{node}")
}

pub(crate) fn session_id(opened: u64) -> SessionId {
    SessionId { shard: ShardId(0), opened: LogIndex(opened) }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn fence(epoch: u64) -> Fence {
    Fence::new(key("k"), Epoch(epoch), Epoch(epoch)).unwrap()
}

pub(crate) fn holder() -> Box<HolderInfo> {
    let session = session_id(1);
    Box::new(HolderInfo {
        session,
        owner: None,
        incarnation: None,
        epoch: Epoch(1),
        mode: Mode::Exclusive,
        held_ms: 5,
        standing: Standing::Live,
    })
}

pub(crate) fn spec(wait: Wait) -> AcquireSpec {
    AcquireSpec { wait, ..AcquireSpec::new(key("k"), Class::Advisory) }
}

pub(crate) fn renewed() -> Reply {
    Reply::Renewed { refused: vec![] }
}

pub(crate) fn refused(refusal: Refusal) -> Reply {
    Reply::Refused(refusal)
}

impl World {
    /// Knows all three nodes from the start.
    pub(crate) fn new() -> World {
        World::with(CoreConfig::new((1..=3).map(endpoint).collect()))
    }

    pub(crate) fn with(config: CoreConfig) -> World {
        let now = Time::from_millis(1_000_000);
        World {
            core: Core::new(config, 1, now).unwrap(),
            now,
            events: Vec::new(),
            log: Vec::new(),
            dialed: None,
            dials: Vec::new(),
            link: None,
            requests: VecDeque::new(),
            greetings: Vec::new(),
            stranded: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Performs what the core wants done.
    pub(crate) fn run(&mut self) {
        while let Some(action) = self.core.poll_action() {
            match action {
                Action::Dial { link, endpoint } => {
                    assert!(self.link.is_none() && self.dialed.is_none(), "one connection at a time");
                    self.dials.push((self.now, endpoint.clone()));
                    self.dialed = Some((link, endpoint));
                }
                Action::Hangup { link } => {
                    let dialed = self.dialed.take().map(|(link, _)| link);
                    assert_eq!(self.link.take().or(dialed), Some(link));
                    self.forget_stream();
                }
                Action::Send { link, bytes } => {
                    assert_eq!(self.link, Some(link));
                    self.received.extend_from_slice(&bytes);
                    self.read();
                }
                Action::Event(event @ (Event::LinkUp { .. } | Event::LinkDown { .. })) => {
                    self.log.push(event)
                }
                Action::Event(event) => self.events.push(event),
            }
        }
    }

    fn forget_stream(&mut self) {
        self.received.clear();
        self.stranded.extend(self.requests.drain(..).map(|(_, request)| request));
    }

    fn read(&mut self) {
        let mut frames = Frames::new(&self.received);
        while let Some(frame) = frames.next_frame().unwrap() {
            if frame.kind == Kind::ClientHello {
                self.greetings.push(ClientHello::decode(&frame).unwrap());
            } else {
                self.requests.push_back((frame.id, Request::decode(&frame).unwrap()));
            }
        }
        let consumed = frames.consumed();
        self.received.drain(..consumed);
    }

    pub(crate) fn input(&mut self, input: Input<'_>) {
        self.core.handle(self.now, input);
        self.run();
    }

    /// Lets time pass, with every tick the core asks for.
    pub(crate) fn advance(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        let mut ticks = 0;
        while self.core.next_deadline() <= until {
            self.now = self.now.max(self.core.next_deadline());
            self.input(Input::Tick);
            ticks += 1;
            assert!(ticks < 10_000, "the core asks for ticks without end");
        }
        self.now = until;
    }

    /// Lets time pass without the core running, as when the process is stopped.
    pub(crate) fn freeze(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    /// Waits for a dial, which is to that node.
    pub(crate) fn await_dial(&mut self) -> u32 {
        for _ in 0..1000 {
            self.run();
            if let Some((_, endpoint)) = &self.dialed {
                return endpoint[4..5].parse().unwrap();
            }
            self.advance(5);
        }
        panic!("nobody is dialed");
    }

    pub(crate) fn accept(&mut self) {
        let (link, _) = self.dialed.take().expect("somebody is dialed");
        self.link = Some(link);
        self.input(Input::Connected { link });
    }

    pub(crate) fn hello(node: u32, leader: Option<u32>) -> ServerHello {
        ServerHello {
            version: 1,
            node: NodeId(node),
            cluster: CLUSTER,
            shards: 1,
            leader: leader.map(NodeId),
            members: (1..=3).map(|n| Member { node: NodeId(n), address: endpoint(n) }).collect(),
            frame_bytes_max: 1 << 20,
            inflight_max: 1000,
            election_timeout_ms: 1000,
        }
    }

    /// Greets as whichever node is dialed next.
    pub(crate) fn greet(&mut self, leader: Option<u32>) -> u32 {
        let node = self.await_dial();
        self.accept();
        let mut bytes = Vec::new();
        World::hello(node, leader).encode(&mut bytes);
        self.bytes(&bytes);
        node
    }

    /// Greets until the client is connected to the leader.
    pub(crate) fn connect(&mut self, leader: u32) {
        for _ in 0..10 {
            if self.greet(Some(leader)) == leader {
                return;
            }
        }
        panic!("the client does not find the leader");
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let link = self.link.expect("a connection");
        self.input(Input::Received { link, bytes });
    }

    pub(crate) fn reply(&mut self, id: RequestId, reply: Reply) {
        let mut bytes = Vec::new();
        encode_reply(&reply, id, &mut bytes);
        self.bytes(&bytes);
    }

    pub(crate) fn push(&mut self, push: Push) {
        let mut bytes = Vec::new();
        push.encode(&mut bytes);
        self.bytes(&bytes);
    }

    /// The connection breaks.
    pub(crate) fn cut(&mut self) {
        let link = self.link.take().expect("a connection");
        self.forget_stream();
        self.input(Input::Disconnected { link });
    }

    /// The dialed server is not there.
    pub(crate) fn fail_dial(&mut self) {
        let (link, _) = self.dialed.take().expect("somebody is dialed");
        self.input(Input::Disconnected { link });
    }

    /// The next request the server has received.
    pub(crate) fn request(&mut self) -> (RequestId, Request) {
        self.run();
        self.requests.pop_front().expect("a request")
    }

    pub(crate) fn no_request(&mut self) {
        self.run();
        assert_eq!(self.requests, []);
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.run();
        std::mem::take(&mut self.events)
    }

    pub(crate) fn no_event(&mut self) {
        assert_eq!(self.take_events(), []);
    }

    pub(crate) fn begin_open(&mut self, ttl_ms: u64) -> SessionHandle {
        let spec = SessionSpec { ttl: Duration::from_millis(ttl_ms), owner: None, incarnation: None };
        let handle = self.core.open_session(self.now, spec, SessionToken(9));
        self.run();
        handle
    }

    pub(crate) fn opened(&mut self, id: RequestId, session: SessionId, ttl_ms: u32) {
        self.reply(id, Reply::Opened { session, ttl_ms, gone_within_ms: 40_000, short_ttl: false });
    }

    /// A session that is open at node 1, which leads.
    pub(crate) fn open(&mut self, ttl_ms: u64) -> (SessionHandle, SessionId) {
        let handle = self.begin_open(ttl_ms);
        self.connect(1);
        let (id, request) = self.request();
        assert!(matches!(request, Request::OpenSession { .. }));
        let session = session_id(5);
        self.opened(id, session, ttl_ms as u32);
        assert!(matches!(self.take_events()[..], [Event::SessionOpened { .. }]));
        (handle, session)
    }

    /// After a reconnect: answers the attach and the renewal that follows it.
    pub(crate) fn reattach(&mut self, session: SessionId, ttl_ms: u32) {
        let (id, request) = self.request();
        assert_eq!(request, Request::Attach { token: SessionToken(9), session });
        self.no_request();
        self.reply(id, Reply::Attached { session, ttl_ms });
        let (id, request) = self.request();
        assert_eq!(request, Request::Renew { sessions: vec![session] });
        self.reply(id, renewed());
        let events = self.take_events();
        assert!(matches!(events[..], [Event::Renewed { .. }]), "{events:?}");
    }

    pub(crate) fn acquire(&mut self, session: SessionHandle, wait: Wait) -> ClaimId {
        let claim = self.core.acquire(self.now, session, spec(wait));
        self.run();
        claim
    }

    /// Expects an acquire and gives its request id and ticket.
    pub(crate) fn acquire_request(&mut self) -> (RequestId, Ticket) {
        let (id, request) = self.request();
        let Request::Acquire { ticket, .. } = request else { panic!("{request:?}") };
        (id, ticket)
    }

    /// A claim that stands in the queue.
    pub(crate) fn queued(
        &mut self,
        handle: SessionHandle,
        session: SessionId,
        wait: Wait,
    ) -> (ClaimId, Ticket) {
        let claim = self.acquire(handle, wait);
        let (id, ticket) = self.acquire_request();
        self.reply(id, Reply::Queued { session, ticket, place: 0, holder: holder() });
        assert_eq!(self.take_events(), [Event::ClaimQueued { claim, place: 0, holder: holder() }]);
        (claim, ticket)
    }

    /// A claim that holds its key.
    pub(crate) fn granted(&mut self, handle: SessionHandle, session: SessionId) -> (ClaimId, Ticket) {
        let claim = self.acquire(handle, Wait::No);
        let (id, ticket) = self.acquire_request();
        self.reply(id, Reply::Granted { session, ticket, fence: fence(3) });
        assert_eq!(self.take_events(), [Event::ClaimGranted { claim, fence: fence(3) }]);
        (claim, ticket)
    }
}

//! A shard of one voter on a simulated disk: every request gets its one answer, nothing is answered
//! before the disk is done, and time is only what the driver says.

use std::time::Duration;

use palisade_shard::{Actions, CoreId, DrainId, Input, Shard, ShardConfig};
use palisade_types::reply::Consistency;
use palisade_types::{
    Cause, Class, ClusterId, ClusterLimits, ConnId, Epoch, Incarnation, Key, LogIndex, Mode, Name, NodeId,
    OnDeath, OperatorAct, Outcome, Refusal, Reply, RequestId, SessionId, SessionToken, ShardId, Ticket, Time,
};
use palisade_wal::{Identity, SimDisk, WalConfig, hard_state_file, initial_hard_state, recover_shard};
use palisade_wire::{Push, Query, Request, Wait};

#[path = "one_node/deaths.rs"]
mod deaths;
#[path = "one_node/disks.rs"]
mod disks;

const CONN: ConnId = ConnId(1);
const SHARD: ShardId = ShardId(0);

/// A node and its disk, driven by hand.
struct Node {
    identity: Identity,
    disk: SimDisk,
    shard: Shard,
    now: Time,
    next_id: u64,
    replies: Vec<(ConnId, RequestId, Reply)>,
    pushes: Vec<(ConnId, Push)>,
    /// Cores that own sockets, all of which answer a drain at once; or nobody does, and it stays here.
    cores: u16,
    deaf: bool,
    drain: Option<DrainId>,
}

fn identity() -> Identity {
    Identity {
        cluster: ClusterId(7),
        cluster_name: Name::new("test").expect("a valid test value"),
        node: NodeId(1),
        incarnation: Incarnation(9),
        shards: 1,
        voters: vec![NodeId(1)],
        limits: ClusterLimits::default(),
    }
}

fn boot(
    identity: &Identity,
    disk: &SimDisk,
    seed: u64,
    now: Time,
    change: impl FnOnce(&mut ShardConfig),
) -> Shard {
    let recovered = recover_shard(disk, identity, SHARD).expect("a valid test value");
    let raft = palisade_raft_config(identity);
    let mut wal = WalConfig::new(identity, SHARD, seed);
    wal.segment_bytes = 128 * 1024;
    let mut config = ShardConfig::new(identity.node, raft, wal, identity.limits);
    change(&mut config);
    Shard::new(config, recovered, None, seed, now).expect("a valid test value")
}

fn palisade_raft_config(identity: &Identity) -> palisade_raft::Config {
    palisade_raft::Config::new(identity.node, SHARD, identity.voters.clone())
}

impl Node {
    /// A node that leads.
    fn start() -> Node {
        Node::start_with(|_| ())
    }

    fn start_with(change: impl FnOnce(&mut ShardConfig)) -> Node {
        let identity = identity();
        let mut disk = SimDisk::new();
        disk.put(&hard_state_file(SHARD), &initial_hard_state(&identity, SHARD));
        let now = Time::from_millis(1000);
        let shard = boot(&identity, &disk, 1, now, change);
        let (replies, pushes) = (Vec::new(), Vec::new());
        let (cores, deaf, drain) = (1, false, None);
        let mut node = Node { identity, disk, shard, now, next_id: 0, replies, pushes, cores, deaf, drain };
        node.lead();
        node
    }

    fn restart(&mut self) {
        self.disk.crash(&mut palisade_types::Rng::new(3));
        self.shard = boot(&self.identity, &self.disk, 2, self.now, |_| ());
        self.lead();
    }

    fn lead(&mut self) {
        for _ in 0..100 {
            if self.shard.is_serving() {
                return;
            }
            self.pass(Duration::from_millis(100));
        }
        panic!("a lone voter leads within ten seconds");
    }

    /// One input, then turns until nothing is under way.
    fn input(&mut self, input: Option<Input>) {
        let mut out = Actions::default();
        if let Some(input) = input {
            self.shard.handle(self.now, input, &mut out);
        }
        loop {
            self.shard.finish_turn(self.now, &mut out);
            self.shard.apply_turn(self.now, &mut out);
            self.shard.check();
            assert_eq!(out.stop, None);
            self.replies.append(&mut out.replies);
            self.pushes.append(&mut out.pushes);
            let ops = std::mem::take(&mut out.disk);
            self.drain = out.drain.take().or(self.drain);
            let drained = self.drain.take_if(|_| !self.deaf);
            if ops.is_empty() && drained.is_none() {
                return;
            }
            if let Some(drain) = drained {
                for core in (0..self.cores).map(CoreId) {
                    self.shard.handle(self.now, Input::Drained { core, drain }, &mut out);
                }
            }
            for op in ops {
                let id = op.id();
                self.disk.begin(op);
                let result = self.disk.complete(id);
                self.shard.handle(self.now, Input::Disk { id, result }, &mut out);
            }
        }
    }

    /// Lets time pass in small steps.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + Duration::from_millis(50));
            self.input(None);
        }
    }

    fn ask_on(&mut self, conn: ConnId, request: Request) -> Reply {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        self.input(Some(Input::Request { conn, id, request }));
        self.pass(Duration::from_millis(2));
        let at = self.replies.iter().position(|r| r.1 == id).expect("every request is answered");
        let (to, _, reply) = self.replies.remove(at);
        assert_eq!(to, conn);
        assert!(self.replies.iter().all(|r| r.1 != id), "answered once");
        reply
    }

    fn ask(&mut self, request: Request) -> Reply {
        self.ask_on(CONN, request)
    }

    fn read(&mut self, query: Query) -> Reply {
        self.ask(Request::Read { consistency: Consistency::Linearizable, query })
    }

    fn open_on(&mut self, conn: ConnId, token: u128, ttl_ms: u32) -> SessionId {
        let open =
            Request::OpenSession { token: SessionToken(token), ttl_ms, owner: None, incarnation: None };
        match self.ask_on(conn, open) {
            Reply::Opened { session, .. } => session,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, token: u128, ttl_ms: u32) -> SessionId {
        self.open_on(CONN, token, ttl_ms)
    }

    fn acquire(&mut self, session: SessionId, ticket: u64, key: &str, wait: Wait) -> Reply {
        self.ask(acquire(session, ticket, key, wait))
    }

    fn epoch(&mut self, session: SessionId, ticket: u64, key: &str) -> u64 {
        match self.acquire(session, ticket, key, Wait::No) {
            Reply::Granted { fence, .. } => fence.epoch().0,
            other => panic!("{other:?}"),
        }
    }
}

fn acquire(session: SessionId, ticket: u64, key: &str, wait: Wait) -> Request {
    let key = Key::new(key).expect("a valid test value");
    let (ticket, class, resource, on_death) = (Ticket(ticket), Class::Advisory, None, OnDeath::Release);
    Request::Acquire { session, ticket, key, class, resource, mode: Mode::Exclusive, wait, on_death }
}

#[test]
fn epochs_rise_over_releases_and_restarts() {
    let mut node = Node::start();
    let session = node.open(1, 0);
    assert_eq!(node.epoch(session, 1, "k"), 1);
    let released = node.ask(Request::Release { session, ticket: Ticket(1) });
    assert_eq!(released, Reply::Finished { session, ticket: Ticket(1), outcome: Outcome::Released });
    assert_eq!(node.epoch(session, 2, "k"), 2);
    node.restart();
    let attached = node.ask(Request::Attach { token: SessionToken(1), session });
    assert_eq!(attached, Reply::Attached { session, ttl_ms: 30_000 });
    assert_eq!(node.epoch(session, 2, "k"), 2, "a repeated ticket repeats its grant");
    node.ask(Request::Release { session, ticket: Ticket(2) });
    assert_eq!(node.epoch(session, 3, "k"), 3);
}

#[test]
fn nothing_is_answered_before_the_disk_is_done() {
    let mut node = Node::start();
    let session = node.open(1, 0);
    let mut out = Actions::default();
    let request = acquire(session, 1, "k", Wait::No);
    node.shard.handle(node.now, Input::Request { conn: CONN, id: RequestId(500), request }, &mut out);
    node.shard.finish_turn(node.now, &mut out);
    node.shard.apply_turn(node.now, &mut out);
    assert!(out.replies.is_empty(), "written, not synced");
    assert_eq!(out.disk.len(), 1);
    let op = out.disk.remove(0);
    let id = op.id();
    node.disk.begin(op);
    let result = node.disk.complete(id);
    node.input(Some(Input::Disk { id, result }));
    assert!(matches!(node.replies[..], [(CONN, RequestId(500), Reply::Granted { .. })]));
}

#[test]
fn a_session_is_used_only_where_its_token_was_shown() {
    let mut node = Node::start();
    let session = node.open(1, 0);
    let other = ConnId(2);
    let refused = Reply::Refused(Refusal::NotAttached { session });
    assert_eq!(node.ask_on(other, acquire(session, 1, "k", Wait::No)), refused);
    let wrong = node.ask_on(other, Request::Attach { token: SessionToken(2), session });
    assert!(matches!(wrong, Reply::Refused(Refusal::BadRequest { .. })));
    node.ask_on(other, Request::Attach { token: SessionToken(1), session });
    assert!(matches!(node.ask_on(other, acquire(session, 1, "k", Wait::No)), Reply::Granted { .. }));
    assert_eq!(node.ask(acquire(session, 2, "k", Wait::No)), refused, "the older connection lost it");
}

#[test]
fn a_silent_session_expires_with_its_cause_and_its_waiter_is_granted() {
    let mut node = Node::start();
    let holder = node.open(1, 2000);
    let waiter = node.open_on(ConnId(2), 2, 60_000);
    assert_eq!(node.epoch(holder, 1, "k"), 1);
    assert!(matches!(node.ask_on(ConnId(2), acquire(waiter, 1, "k", Wait::Forever)), Reply::Queued { .. }));
    node.pass(Duration::from_millis(2400));
    assert!(node.pushes.is_empty(), "TTL, 1 % and half the slack are not over");
    node.pass(Duration::from_millis(600));
    let ended = |p: &(ConnId, Push)| {
        matches!(p, (CONN, Push::SessionEnded { session, cause: Cause::Expired { silent_ms } })
            if *session == holder && (2520..3020).contains(silent_ms))
    };
    let granted = |p: &(ConnId, Push)| {
        matches!(p, (ConnId(2), Push::Granted { session, ticket: Ticket(1), fence })
            if *session == waiter && fence.epoch().0 == 2 && fence.barrier().0 == 2)
    };
    assert!(node.pushes.iter().any(ended) && node.pushes.iter().any(granted), "{:?}", node.pushes);
    let gone = node.ask(Request::Attach { token: SessionToken(1), session: holder });
    assert!(matches!(gone, Reply::Refused(Refusal::SessionEnded { cause: Cause::Expired { .. }, .. })));
}

fn operate(act: OperatorAct) -> Request {
    let name = |text| Name::new(text).expect("a valid test value");
    Request::Operate { by: name("ops"), reason: name("a drill"), act }
}

#[test]
fn whose_key_was_taken_learns_it_at_once_and_again_whenever_the_session_is_attached() {
    let mut node = Node::start();
    let (holder, waiter) = (node.open(1, 0), node.open_on(ConnId(2), 2, 0));
    let epoch = Epoch(node.epoch(holder, 1, "k"));
    assert!(matches!(node.ask_on(ConnId(2), acquire(waiter, 1, "k", Wait::Forever)), Reply::Queued { .. }));
    let key = Key::new("k").expect("a valid test value");
    let done = node.ask_on(ConnId(3), operate(OperatorAct::ForceRelease { key, epoch }));
    assert!(matches!(done, Reply::OperatorDone { .. }), "{done:?}");
    let forced = Push::Finished { session: holder, ticket: Ticket(1), outcome: Outcome::Forced };
    assert!(node.pushes.contains(&(CONN, forced.clone())), "{:?}", node.pushes);
    assert!(node.pushes.iter().any(|p| matches!(p, (ConnId(2), Push::Granted { .. }))));

    node.pushes.clear();
    let again = ConnId(4);
    node.ask_on(again, Request::Attach { token: SessionToken(1), session: holder });
    assert_eq!(node.pushes, [(again, forced)]);
    node.pushes.clear();
    node.ask_on(again, Request::Attach { token: SessionToken(2), session: waiter });
    assert_eq!(node.pushes, [], "nothing was taken from this one");
}

#[test]
fn a_session_reported_dead_is_renewed_no_more_and_nobody_elses_is_touched() {
    let mut node = Node::start();
    let (dead, other) = (node.open(1, 0), node.open(2, 0));
    node.epoch(dead, 1, "k");
    let report = operate(OperatorAct::ReportDead { session: dead });
    let done = node.ask_on(ConnId(9), report.clone());
    let Reply::OperatorDone { action } = done else { panic!("{done:?}") };
    let cause = Cause::ReportedDead { action };
    assert!(node.pushes.contains(&(CONN, Push::SessionEnded { session: dead, cause })));
    let renewed = node.ask(Request::Renew { sessions: vec![dead, other] });
    assert_eq!(renewed, Reply::Renewed { refused: vec![Refusal::SessionEnded { session: dead, cause }] });
    assert_eq!(node.epoch(other, 1, "k"), 2);
    assert_eq!(node.ask_on(ConnId(9), report), done, "a repeat is answered as the first");
    let acts = node.read(Query::ListOperatorActs { after: LogIndex(0), rows: 10 });
    assert!(matches!(acts, Reply::OperatorActs { rows, .. } if rows.len() == 1));
}

#[test]
fn a_renewal_under_way_when_the_report_arrives_is_refused() {
    let mut node = Node::start();
    let session = node.open(1, 0);
    let mut out = Actions::default();
    let report = operate(OperatorAct::ReportDead { session });
    node.shard.handle(
        node.now,
        Input::Request { conn: ConnId(9), id: RequestId(500), request: report },
        &mut out,
    );
    let renew = Request::Renew { sessions: vec![session] };
    let renewed = node.ask(renew);
    assert!(matches!(&renewed, Reply::Renewed { refused } if refused.len() == 1), "{renewed:?}");
}

#[test]
fn renewals_keep_a_session_and_touch_no_log() {
    let mut node = Node::start();
    let session = node.open(1, 2000);
    node.pass(Duration::from_millis(100));
    let before = node.shard.applied();
    for _ in 0..10 {
        node.pass(Duration::from_millis(1500));
        let renewed = node.ask(Request::Renew { sessions: vec![session] });
        assert_eq!(renewed, Reply::Renewed { refused: Vec::new() });
    }
    assert_eq!(node.shard.applied(), before);
}

#[test]
fn a_restarted_leader_gives_every_session_a_full_ttl() {
    let mut node = Node::start();
    let session = node.open(1, 2000);
    node.pass(Duration::from_millis(1900));
    node.restart();
    node.pass(Duration::from_millis(1900));
    let attached = node.ask(Request::Attach { token: SessionToken(1), session });
    assert!(matches!(attached, Reply::Attached { .. }), "{attached:?}");
}

#[test]
fn a_stall_of_the_node_is_not_silence_of_the_session() {
    let mut node = Node::start();
    let session = node.open(1, 2000);
    node.now = node.now + Duration::from_secs(3600);
    node.input(None);
    node.pass(Duration::from_millis(500));
    let renewed = node.ask(Request::Renew { sessions: vec![session] });
    assert_eq!(renewed, Reply::Renewed { refused: Vec::new() });
}

#[test]
fn a_bounded_wait_ends_by_a_log_entry() {
    let mut node = Node::start();
    let (holder, waiter) = (node.open(1, 0), node.open(2, 0));
    node.epoch(holder, 1, "k");
    assert!(matches!(node.acquire(waiter, 1, "k", Wait::Millis(400)), Reply::Queued { .. }));
    node.pass(Duration::from_millis(350));
    assert!(node.pushes.is_empty());
    node.pass(Duration::from_millis(100));
    let over = Push::Finished { session: waiter, ticket: Ticket(1), outcome: Outcome::TimedOut };
    assert_eq!(node.pushes, [(CONN, over)]);
    let again = node.acquire(waiter, 1, "k", Wait::Millis(400));
    let finished = Refusal::TicketFinished { ticket: Ticket(1), outcome: Outcome::TimedOut };
    assert_eq!(again, Reply::Refused(finished));
}

#[test]
fn a_full_log_refuses_what_grows_and_lets_pass_what_frees() {
    let mut node = Node::start_with(|c| c.log_bytes_max = 128 * 1024);
    let (session, other) = (node.open(1, 0), node.open(2, 0));
    let mut ticket = 0;
    let refusal = loop {
        ticket += 1;
        match node.acquire(session, ticket, "k", Wait::No) {
            Reply::Granted { .. } => node.ask(Request::Release { session, ticket: Ticket(ticket) }),
            Reply::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        };
        assert!(ticket < 1000, "128 KiB are full at last");
    };
    assert!(matches!(refusal, Refusal::QuotaExceeded { limit: 131_072, .. }), "{refusal:?}");
    assert_eq!(node.ask(Request::Renew { sessions: vec![session] }), Reply::Renewed { refused: Vec::new() });
    assert!(matches!(
        node.read(Query::Describe { key: Key::new("k").expect("a valid test value") }),
        Reply::Described { .. }
    ));
    // What an operator does passes if it frees something, and only then.
    let key = |text| Key::new(text).expect("a valid test value");
    let stranger = SessionId { shard: SHARD, opened: LogIndex(1_000_000) };
    let last = Epoch(ticket - 1);
    for act in [
        OperatorAct::ReportDead { session: stranger },
        OperatorAct::Evict { session: stranger },
        OperatorAct::Retire { key: key("nosuch"), epoch: Epoch(1) },
        OperatorAct::Retire { key: key("k"), epoch: Epoch(1) },
        OperatorAct::ForceRelease { key: key("nosuch"), epoch: Epoch(1) },
        OperatorAct::ForceRelease { key: key("k"), epoch: last },
    ] {
        let refused = node.ask_on(ConnId(9), operate(act.clone()));
        assert!(matches!(refused, Reply::Refused(Refusal::QuotaExceeded { .. })), "{act}: {refused:?}");
    }
    let retired = node.ask_on(ConnId(9), operate(OperatorAct::Retire { key: key("k"), epoch: last }));
    assert!(matches!(retired, Reply::OperatorDone { .. }), "{retired:?}");
    let evicted = node.ask_on(ConnId(9), operate(OperatorAct::Evict { session: other }));
    assert!(matches!(evicted, Reply::OperatorDone { .. }), "{evicted:?}");
    assert_eq!(node.ask(Request::CloseSession { session }), Reply::SessionClosed { session });
}

#[test]
fn a_server_with_enough_in_hand_is_busy_for_what_grows_then_for_what_frees_and_never_for_renewals() {
    let mut node = Node::start_with(|c| c.in_hand_max = 3);
    let session = node.open(1, 0);
    let mut out = Actions::default();
    let mut refused = |request: Request| {
        node.next_id += 1;
        let input = Input::Request { conn: CONN, id: RequestId(node.next_id), request };
        let before = out.replies.len();
        node.shard.handle(node.now, input, &mut out);
        let busy = |reply: &Reply| match reply {
            Reply::Refused(Refusal::Busy { retry_after_ms }) => *retry_after_ms > 0,
            other => panic!("{other:?}"),
        };
        out.replies.get(before).is_some_and(|(_, _, reply)| busy(reply))
    };
    // All in one turn, so that nothing is done with any of it.
    let release = |ticket| Request::Release { session, ticket: Ticket(ticket) };
    for ticket in 1..=3 {
        assert!(!refused(put(session, ticket, "k", b"v")), "there is room for three");
    }
    assert!(refused(put(session, 4, "k", b"v")));
    assert!(refused(Request::OpenSession {
        token: SessionToken(2),
        ttl_ms: 0,
        owner: None,
        incarnation: None
    }));
    for ticket in 4..=6 {
        assert!(!refused(release(ticket)), "as much again is kept for what frees");
    }
    assert!(refused(release(7)) && refused(Request::CloseSession { session }));
    for _ in 0..20 {
        assert!(!refused(Request::Renew { sessions: vec![session] }));
    }
    assert!(refused(get("k")), "a round with so much to serve takes no further read");
    node.input(None);
    let answered = |reply: &Reply| matches!(reply, Reply::Renewed { refused } if refused.is_empty());
    assert_eq!(node.replies.iter().filter(|(_, _, reply)| answered(reply)).count(), 20);
    assert!(matches!(node.ask(put(session, 8, "k", b"v")), Reply::PutDone { .. }), "and then there is room");
}

fn put(session: SessionId, ticket: u64, key: &str, value: &[u8]) -> Request {
    let key = Key::new(key).expect("a valid test value");
    Request::Put { session, ticket: Ticket(ticket), key, value: value.into() }
}

fn asks(query: Query) -> Request {
    Request::Read { consistency: Consistency::Linearizable, query }
}

fn get(key: &str) -> Request {
    asks(Query::Get { key: Key::new(key).expect("a valid test value") })
}

#[test]
fn a_value_is_put_by_its_session_alone_read_by_anybody_and_gone_with_the_session() {
    let mut node = Node::start();
    let session = node.open(1, 2000);
    let reader = ConnId(7);
    assert_eq!(
        node.ask_on(reader, put(session, 1, "k", b"v")),
        Reply::Refused(Refusal::NotAttached { session })
    );
    let Reply::PutDone { revision, .. } = node.ask(put(session, 1, "k", b"v")) else { panic!("not put") };
    let finished = Refusal::TicketFinished { ticket: Ticket(1), outcome: Outcome::Done };
    assert_eq!(node.ask(put(session, 1, "k", b"v")), Reply::Refused(finished));
    let Reply::Value { row: Some(row), read } = node.ask_on(reader, get("k")) else { panic!("not there") };
    assert!(row.created == revision && read.revision >= revision && *row.value == *b"v");
    let other = node.open_on(reader, 2, 0);
    let refused = Refusal::OwnedByOther { session, owner: None };
    assert_eq!(node.ask_on(reader, put(other, 1, "k", b"w")), Reply::Refused(refused));
    let list = asks(Query::ListValues { prefix: None, after: None, rows: 10 });
    let Reply::Values { rows, more: false, .. } = node.ask_on(reader, list) else { panic!("not listed") };
    assert_eq!(rows, [*row]);
    node.pass(Duration::from_millis(3200));
    assert!(matches!(node.ask_on(reader, get("k")), Reply::Value { row: None, .. }));
    assert!(matches!(node.ask_on(reader, put(other, 2, "k", b"w")), Reply::PutDone { .. }));
    let delete = Request::Delete {
        session: other,
        ticket: Ticket(3),
        key: Key::new("k").expect("a valid test value"),
    };
    assert!(matches!(node.ask_on(reader, delete), Reply::Deleted { existed: true, .. }));
}

#[test]
fn values_that_wait_for_the_disk_leave_room_for_those_who_release() {
    let mut node = Node::start();
    let session = node.open(1, 0);
    assert_eq!(node.epoch(session, 1, "lock"), 1);
    let mut out = Actions::default();
    let mut hand = |node: &mut Node, id, request| {
        node.shard.handle(node.now, Input::Request { conn: CONN, id: RequestId(id), request }, &mut out);
    };
    for n in 0..100 {
        hand(&mut node, 1000 + n, put(session, 2 + n, "k", &[7; 16_384]));
    }
    for n in 0..200 {
        hand(&mut node, 2000 + n, acquire(session, 200 + n, &format!("k{n}"), Wait::No));
    }
    hand(&mut node, 3000, Request::Release { session, ticket: Ticket(1) });
    node.replies.append(&mut out.replies);
    let busy = |from: u64, replies: &[(ConnId, RequestId, Reply)]| {
        let of = |r: &&(ConnId, RequestId, Reply)| (from..from + 1000).contains(&r.1.0);
        let is_busy = |r: &(ConnId, RequestId, Reply)| matches!(r.2, Reply::Refused(Refusal::Busy { .. }));
        replies.iter().filter(of).filter(|r| is_busy(r)).count()
    };
    assert!(busy(1000, &node.replies) > 50, "the block is half full of values");
    assert_eq!((busy(2000, &node.replies), busy(3000, &node.replies)), (0, 0));
    node.pass(Duration::from_millis(50));
    assert_eq!(node.replies.len(), 301, "every request is answered");
}

#[test]
fn reports_that_release_nothing_leave_the_budget_to_those_that_do() {
    let mut node = Node::start();
    let held = 40;
    let dead = node.open(1, 0);
    let keys: Vec<String> = (0..held).map(|n| format!("k{n}")).collect();
    for (ticket, key) in (1..).zip(&keys) {
        node.epoch(dead, ticket, key);
    }
    // At one instant, so that time does not fill the budget again.
    let idle: Vec<SessionId> = (0..30).map(|n| node.open(100 + n, 0)).collect();
    let strangers = (0..30).map(|n| SessionId { shard: SHARD, opened: LogIndex(1_000_000 + n) });
    for session in strangers.chain(idle) {
        let request = operate(OperatorAct::Evict { session });
        node.next_id += 1;
        let id = RequestId(node.next_id);
        node.input(Some(Input::Request { conn: ConnId(9), id, request }));
    }
    let id = RequestId(9_999);
    let request = operate(OperatorAct::ReportDead { session: dead });
    node.input(Some(Input::Request { conn: ConnId(9), id, request }));
    node.pass(Duration::from_millis(50));
    let done = node.replies.iter().find(|r| r.1 == id).map(|r| r.2.clone());
    let Some(Reply::OperatorDone { action }) = done else { panic!("{done:?}") };
    for key in &keys {
        let key = Key::new(key).expect("a valid test value");
        let Reply::Described { description, .. } = node.read(Query::Describe { key }) else { panic!() };
        assert_eq!(description.transitions[0].revision, action, "released by the report's own entry");
    }
}

#[test]
fn a_claim_to_a_resource_grows_the_log_once_and_is_answered_from_the_applied_state_after_that() {
    let mut node = Node::start();
    let name = |text| Name::new(text).expect("a valid test value");
    let claim = |key| Request::ClaimResource { resource: name("db"), key: name(key) };
    let answer = |reply| match reply {
        Reply::ResourceClaimed { revision, keys, other } => (revision, keys, other),
        other => panic!("{other:?}"),
    };
    // It needs no session.
    let stranger = ConnId(77);
    let first = answer(node.ask_on(stranger, claim("k")));
    assert_eq!((first.1, &first.2), (1, &None));
    let end = node.shard.status().last;
    assert_eq!(first.0, end, "said by the command");
    assert_eq!(answer(node.ask(claim("k"))), first);
    assert_eq!(node.shard.status().last, end, "what is on record grows no log");
    assert_eq!(answer(node.ask(claim("l"))), (end.next(), 2, Some(name("k"))));
    assert_eq!(answer(node.ask_on(stranger, claim("k"))), (end.next(), 2, Some(name("l"))));
    node.restart();
    let end = node.shard.status().last;
    assert_eq!(answer(node.ask(claim("k"))), (end, 2, Some(name("l"))));
    // Withdrawn, it is put on record anew.
    let act = OperatorAct::Retire { key: name("k"), epoch: Epoch(0) };
    let done = node.ask(Request::Operate { by: name("ops"), reason: name("test"), act });
    assert_eq!(done, Reply::OperatorDone { action: end.next() });
    let listed = node.read(Query::ListResources { conflicts: true, after: None, rows: 10 });
    assert!(matches!(&listed, Reply::Resources { rows, .. } if rows.is_empty()), "{listed:?}");
    assert_eq!(answer(node.ask(claim("k"))), (end.next().next(), 2, Some(name("l"))));
}

//! Three shards that talk to each other: reads at nodes that do not lead. Nothing moves by itself:
//! the test delivers messages, completes the disks' work, and says what time it is.

use std::collections::VecDeque;
use std::time::Duration;

use palisade_raft::Message;
use palisade_shard::{Actions, CoreId, Input, Shard, ShardConfig};
use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::{
    Class, ClusterId, ClusterLimits, ConnId, Incarnation, Key, LogIndex, Mode, Name, NodeId, OnDeath,
    OperatorAct, Refusal, Reply, RequestId, SessionId, SessionToken, ShardId, Term, Ticket, Time,
};
use palisade_wal::{Identity, SimDisk, WalConfig, hard_state_file, initial_hard_state, recover_shard};
use palisade_wire::{Query, Request, Wait};

#[path = "three_nodes/snapshots.rs"]
mod snapshots;

const SHARD: ShardId = ShardId(0);
const CONN: ConnId = ConnId(1);

struct Node {
    identity: Identity,
    shard: Shard,
    disk: SimDisk,
    replies: Vec<(RequestId, Reply)>,
}

struct Cluster {
    now: Time,
    nodes: Vec<Node>,
    /// From, to, and what.
    wire: VecDeque<(usize, usize, Message)>,
    /// Messages that are lost, by their ends.
    cut: Vec<(usize, usize)>,
    /// In the next turn the process stands still for so long, between its first look at the clock and the
    /// arrival of the input.
    pause: Duration,
    next_id: u64,
}

fn node(id: u32, change: &dyn Fn(&mut ShardConfig), now: Time) -> Node {
    let identity = Identity {
        cluster: ClusterId(7),
        cluster_name: Name::new("test").expect("a name"),
        node: NodeId(id),
        incarnation: Incarnation(u128::from(id)),
        shards: 1,
        voters: (1..=3).map(NodeId).collect(),
        limits: ClusterLimits::default(),
    };
    let mut disk = SimDisk::new();
    disk.put(&hard_state_file(SHARD), &initial_hard_state(&identity, SHARD));
    let recovered = recover_shard(&disk, &identity, SHARD).expect("a formatted directory");
    let raft = palisade_raft::Config::new(identity.node, SHARD, identity.voters.clone());
    let wal = WalConfig::new(&identity, SHARD, u64::from(id));
    let mut config = ShardConfig::new(identity.node, raft, wal, identity.limits);
    change(&mut config);
    let shard = Shard::new(config, recovered, None, u64::from(id), now).expect("a valid configuration");
    Node { identity, shard, disk, replies: Vec::new() }
}

impl Cluster {
    fn new(change: impl Fn(&mut ShardConfig)) -> Cluster {
        let now = Time::from_millis(1_000);
        let nodes = (1..=3).map(|id| node(id, &change, now)).collect();
        let mut cluster =
            Cluster { now, nodes, wire: VecDeque::new(), cut: Vec::new(), pause: Duration::ZERO, next_id: 0 };
        cluster.pass_until(|c| c.leader().is_some());
        cluster.pass(Duration::from_millis(500));
        cluster
    }

    /// Nothing passes between this node and the others.
    fn isolate(&mut self, node: usize) {
        let others = (0..3).filter(|n| *n != node);
        self.cut = others.flat_map(|n| [(node, n), (n, node)]).collect();
    }

    fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(|n| n.shard.is_serving())
    }

    fn follower(&self) -> usize {
        let leader = self.leader().expect("a leader");
        (leader + 1) % 3
    }

    /// One node's turn, with what it asks of disk and peers.
    fn turn(&mut self, at: usize, input: Option<Input>) {
        let now = self.now;
        let pause = std::mem::take(&mut self.pause);
        let n = &mut self.nodes[at];
        let mut out = Actions::default();
        n.shard.lease_time(now);
        if let Some(input) = input {
            n.shard.handle(now, input, &mut out);
        }
        n.shard.serve_leases(now, now + pause, &mut out);
        loop {
            n.shard.finish_turn(now, &mut out);
            n.shard.apply_turn(now, &mut out);
            n.shard.check();
            assert_eq!(out.stop, None);
            n.replies.extend(out.replies.drain(..).map(|(_, id, reply)| (id, reply)));
            for (to, message) in out.peers.drain(..) {
                self.wire.push_back((at, to.0 as usize - 1, message));
            }
            let (ops, drain) = (std::mem::take(&mut out.disk), out.drain.take());
            if ops.is_empty() && drain.is_none() {
                return;
            }
            if let Some(drain) = drain {
                n.shard.handle(now, Input::Drained { core: CoreId(0), drain }, &mut out);
            }
            for op in ops {
                let id = op.id();
                n.disk.begin(op);
                let result = n.disk.complete(id);
                n.shard.handle(now, Input::Disk { id, result }, &mut out);
            }
        }
    }

    /// Delivers all that is on the wire, and what follows from it.
    fn settle(&mut self) {
        while let Some((from, to, message)) = self.wire.pop_front() {
            if !self.cut.contains(&(from, to)) {
                self.turn(to, Some(Input::Peer { from: NodeId(from as u32 + 1), message }));
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + Duration::from_millis(10));
            (0..3).for_each(|at| self.turn(at, None));
            self.settle();
        }
    }

    fn pass_until(&mut self, done: impl Fn(&Cluster) -> bool) {
        for _ in 0..2_000 {
            if done(self) {
                return;
            }
            self.pass(Duration::from_millis(10));
        }
        panic!("it does not come to that within 20 seconds");
    }

    /// A request arrives at a node, whose turn ends. Nothing it sends has arrived anywhere.
    fn send(&mut self, at: usize, request: Request) -> RequestId {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        self.turn(at, Some(Input::Request { conn: CONN, id, request }));
        id
    }

    fn take(&mut self, at: usize, id: RequestId) -> Option<Reply> {
        let place = self.nodes[at].replies.iter().position(|(i, _)| *i == id)?;
        Some(self.nodes[at].replies.remove(place).1)
    }

    fn ask(&mut self, at: usize, request: Request) -> Reply {
        let id = self.send(at, request);
        self.settle();
        self.pass(Duration::from_millis(20));
        self.take(at, id).expect("an answer")
    }

    fn open(&mut self) -> SessionId {
        self.open_for(0)
    }

    fn open_for(&mut self, ttl_ms: u32) -> SessionId {
        let open = Request::OpenSession { token: SessionToken(1), ttl_ms, owner: None, incarnation: None };
        let leader = self.leader().expect("a leader");
        match self.ask(leader, open) {
            Reply::Opened { session, .. } => session,
            other => panic!("{other:?}"),
        }
    }
}

fn acquire(session: SessionId, ticket: u64) -> Request {
    let (key, class) = (key(), Class::Advisory);
    let (mode, on_death) = (Mode::Exclusive, OnDeath::Release);
    Request::Acquire {
        session,
        ticket: Ticket(ticket),
        key,
        class,
        resource: None,
        mode,
        wait: Wait::No,
        on_death,
    }
}

fn key() -> Key {
    Key::new("k").expect("a name")
}

fn read(consistency: Consistency) -> Request {
    Request::Read { consistency, query: Query::Describe { key: key() } }
}

/// The mark of a description, and the key's epoch in it.
fn described(reply: &Reply) -> (ReadMark, u64) {
    match reply {
        Reply::Described { read, description } => (*read, description.epoch.0),
        other => panic!("{other:?}"),
    }
}

fn asks(c: &Cluster, from: usize) -> usize {
    c.wire.iter().filter(|(f, _, m)| *f == from && matches!(m, Message::ReadIndex(_))).count()
}

#[test]
fn a_follower_answers_with_what_was_acknowledged_before_it_was_asked() {
    let mut c = Cluster::new(|_| ());
    let session = c.open();
    let (leader, follower) = (c.leader().expect("a leader"), c.follower());
    for epoch in 1..=5 {
        assert!(matches!(c.ask(leader, acquire(session, epoch)), Reply::Granted { .. }));
        let (mark, seen) = described(&c.ask(follower, read(Consistency::Linearizable)));
        assert_eq!((mark.consistency, seen), (Consistency::Linearizable, epoch));
        c.ask(leader, Request::Release { session, ticket: Ticket(epoch) });
    }
    assert_eq!(c.nodes[follower].shard.counters().follower_reads, 5);
}

#[test]
fn one_question_is_open_at_a_time_and_serves_all_that_waited() {
    let mut c = Cluster::new(|_| ());
    let follower = c.follower();
    let first = c.send(follower, read(Consistency::Linearizable));
    let second = c.send(follower, read(Consistency::Linearizable));
    let third = c.send(follower, read(Consistency::Linearizable));
    assert_eq!(asks(&c, follower), 1, "the others wait for the next question");
    let rounds = c.nodes[c.leader().expect("a leader")].shard.counters().rounds;
    c.settle();
    assert_eq!(c.nodes[c.leader().expect("a leader")].shard.counters().rounds, rounds + 2);
    for id in [first, second, third] {
        assert!(c.take(follower, id).is_some());
    }
}

#[test]
fn a_lost_question_is_asked_again_and_who_hears_nothing_is_sent_to_the_leader() {
    let mut c = Cluster::new(|_| ());
    let (leader, follower) = (c.leader().expect("a leader"), c.follower());
    let lucky = c.send(follower, read(Consistency::Linearizable));
    c.wire.retain(|(_, _, m)| !matches!(m, Message::ReadIndex(_)));
    c.pass(Duration::from_millis(300));
    assert!(c.take(follower, lucky).is_some(), "it was asked again");
    // The follower hears its leader and is not heard.
    c.cut.push((follower, leader));
    let unlucky = c.send(follower, read(Consistency::Linearizable));
    c.pass(Duration::from_millis(990));
    assert_eq!(c.take(follower, unlucky), None);
    c.pass(Duration::from_millis(20));
    let hint = Some(NodeId(leader as u32 + 1));
    assert_eq!(c.take(follower, unlucky), Some(Reply::Refused(Refusal::NotLeader { leader: hint })));
}

#[test]
fn without_a_leader_reads_are_refused_and_stale_ones_answered() {
    let mut c = Cluster::new(|_| ());
    let session = c.open();
    let (leader, follower) = (c.leader().expect("a leader"), c.follower());
    c.ask(leader, acquire(session, 1));
    c.pass(Duration::from_millis(200));
    let applied = c.nodes[follower].shard.applied();
    // Everybody is alone.
    c.cut = (0..3).flat_map(|a| (0..3).map(move |b| (a, b))).collect();
    let waits = c.send(follower, read(Consistency::Linearizable));
    c.pass(Duration::from_millis(2_500));
    assert!(matches!(c.take(follower, waits), Some(Reply::Refused(Refusal::NotLeader { .. }))));
    let refused = c.ask(follower, read(Consistency::Linearizable));
    assert_eq!(refused, Reply::Refused(Refusal::NotLeader { leader: None }));
    let (mark, epoch) = described(&c.ask(follower, read(Consistency::Stale)));
    assert_eq!(mark, ReadMark { consistency: Consistency::Stale, revision: applied });
    assert_eq!(epoch, 1);
}

#[test]
fn a_read_that_waits_when_the_leader_changes_is_asked_of_the_new_one() {
    let mut c = Cluster::new(|_| ());
    let session = c.open();
    let (old, follower) = (c.leader().expect("a leader"), c.follower());
    c.ask(old, acquire(session, 1));
    let third = 3 - old - follower;
    // The old leader is gone; whoever follows it answers once it has another, or says that it has none.
    c.cut = vec![(old, follower), (old, third), (follower, old), (third, old)];
    c.pass_until(|c| (0..3).any(|n| n != old && c.nodes[n].shard.is_serving()));
    c.pass(Duration::from_millis(300));
    let new = (0..3).find(|n| *n != old && c.nodes[*n].shard.is_serving()).expect("a leader");
    let other = 3 - old - new;
    let (mark, epoch) = described(&c.ask(other, read(Consistency::Linearizable)));
    assert_eq!((mark.consistency, epoch), (Consistency::Linearizable, 1));
    assert!(mark.revision > LogIndex(0));
    // The deposed leader, alone, does not know it; it answers nobody.
    let id = c.send(old, read(Consistency::Linearizable));
    c.pass(Duration::from_millis(500));
    assert!(!matches!(c.take(old, id), Some(Reply::Described { .. })));
}

#[test]
fn a_page_without_rows_is_refused_whatever_its_consistency() {
    let mut c = Cluster::new(|_| ());
    let follower = c.follower();
    for consistency in [Consistency::Linearizable, Consistency::Lease, Consistency::Stale] {
        let query = Query::ListLocks { after: None, rows: 0 };
        let refused = c.ask(follower, Request::Read { consistency, query });
        assert!(matches!(refused, Reply::Refused(Refusal::BadRequest { .. })), "{refused:?}");
    }
}

fn leases(config: &mut ShardConfig) {
    config.lease_reads = true;
    config.raft.leases = true;
}

fn rounds(c: &Cluster, at: usize) -> u64 {
    c.nodes[at].shard.counters().rounds
}

#[test]
fn a_leader_answers_by_its_lease_at_once_and_without_a_round() {
    let mut c = Cluster::new(leases);
    let leader = c.leader().expect("a leader");
    let before = rounds(&c, leader);
    let id = c.send(leader, read(Consistency::Lease));
    let (mark, _) = described(&c.take(leader, id).expect("an answer in the same turn"));
    assert_eq!(mark.consistency, Consistency::Lease);
    assert_eq!(mark.revision, c.nodes[leader].shard.applied());
    assert_eq!((rounds(&c, leader), c.nodes[leader].shard.counters().lease_reads), (before, 1));
}

#[test]
fn a_lease_that_is_not_allowed_or_not_asked_for_is_not_used() {
    for (allowed, asked) in [(false, Consistency::Lease), (true, Consistency::Linearizable)] {
        let mut c = Cluster::new(|config| {
            if allowed {
                leases(config);
            }
        });
        let leader = c.leader().expect("a leader");
        let id = c.send(leader, read(asked));
        assert_eq!(c.take(leader, id), None, "it waits for a round");
        c.settle();
        let (mark, _) = described(&c.take(leader, id).expect("an answer"));
        assert_eq!(mark.consistency, Consistency::Linearizable);
    }
}

#[test]
fn a_follower_asked_for_a_lease_answers_by_a_round_and_says_so() {
    let mut c = Cluster::new(leases);
    let follower = c.follower();
    let (mark, _) = described(&c.ask(follower, read(Consistency::Lease)));
    assert_eq!(mark.consistency, Consistency::Linearizable);
}

#[test]
fn a_leader_that_is_alone_answers_by_no_lease_before_another_can_lead() {
    let mut c = Cluster::new(leases);
    let leader = c.leader().expect("a leader");
    let (a, b) = ((leader + 1) % 3, (leader + 2) % 3);
    c.cut = vec![(leader, a), (leader, b), (a, leader), (b, leader)];
    let alone = c.now;
    let mut last = alone;
    while !c.nodes[a].shard.is_serving() && !c.nodes[b].shard.is_serving() {
        assert!(c.now.since(alone) < Duration::from_secs(10), "the others elect one of them");
        let id = c.send(leader, read(Consistency::Lease));
        if let Some(reply @ Reply::Described { .. }) = c.take(leader, id) {
            assert_eq!(described(&reply).0.consistency, Consistency::Lease);
            last = c.now;
        }
        c.pass(Duration::from_millis(10));
    }
    assert!((800..=900).contains(&last.since(alone).as_millis()), "{:?}", last.since(alone));
    assert!(c.now.since(alone) > Duration::from_secs(1));
}

#[test]
fn a_pause_between_the_clock_and_the_read_is_no_lease() {
    let mut c = Cluster::new(leases);
    let leader = c.leader().expect("a leader");
    c.pause = Duration::from_millis(900);
    let id = c.send(leader, read(Consistency::Lease));
    assert_eq!(c.take(leader, id), None, "its turn began in time, the read may have come after the lease");
    c.settle();
    let (mark, _) = described(&c.take(leader, id).expect("a round answers"));
    assert_eq!(mark.consistency, Consistency::Linearizable);
}

/// B20: only a quorum's word that it leads still lets a leader end anybody.
#[test]
fn a_leader_that_is_alone_ends_no_session() {
    for alone in [false, true] {
        let mut c = Cluster::new(|_| ());
        let session = c.open_for(500);
        let leader = c.leader().expect("a leader");
        if alone {
            c.isolate(leader);
        }
        let last = c.nodes[leader].shard.raft().status().last;
        // Past TTL, 1 % and half the slack, and before it gives up its lead.
        c.pass(Duration::from_millis(1_300));
        assert!(c.nodes[leader].shard.is_serving());
        let ended = c.nodes[leader].shard.machine().ended(session).is_some();
        let appended = c.nodes[leader].shard.raft().status().last > last;
        assert_eq!((ended, appended), (!alone, !alone), "alone: {alone}");
    }
}

/// B39: a command in hand when the lead is lost gets one answer, and the truth is learnt by repeating it.
#[test]
fn a_command_in_hand_when_the_lead_is_lost_is_answered_once_as_interrupted() {
    let mut c = Cluster::new(|_| ());
    let session = c.open();
    let old = c.leader().expect("a leader");
    c.isolate(old);
    let id = c.send(old, acquire(session, 1));
    c.pass(Duration::from_millis(4_000));
    let told: Vec<Reply> = std::iter::from_fn(|| c.take(old, id)).collect();
    assert!(matches!(told[..], [Reply::Refused(Refusal::Interrupted { .. })]), "{told:?}");
    let new = c.leader().expect("another leads");
    assert_ne!(new, old);
    c.cut.clear();
    c.pass(Duration::from_millis(500));
    c.ask(new, Request::Attach { token: SessionToken(1), session });
    let granted = c.ask(new, acquire(session, 1));
    assert!(matches!(&granted, Reply::Granted { fence, .. } if fence.epoch().0 == 1), "{granted:?}");
    assert_eq!(c.take(old, id), None, "nothing more is said of it where it was asked first");
}

fn transfer(term: u64, to: Option<u32>) -> Request {
    let name = |text| Name::new(text).expect("a name");
    let act = OperatorAct::Transfer { term: Term(term), to: to.map(NodeId) };
    Request::Operate { by: name("ann"), reason: name("a drill"), act }
}

fn term(c: &Cluster, at: usize) -> u64 {
    c.nodes[at].shard.status().term.0
}

#[test]
fn an_operator_s_order_moves_leadership_once_and_the_new_leader_says_so() {
    let mut c = Cluster::new(|_| ());
    let (old, to) = (c.leader().expect("a leader"), c.follower());
    let order = transfer(term(&c, old), Some(to as u32 + 1));
    let answer = c.ask(old, order.clone());
    assert_eq!(answer, Reply::Refused(Refusal::NotLeader { leader: Some(NodeId(to as u32 + 1)) }));
    assert_eq!(c.leader(), Some(to));
    let Reply::OperatorDone { action } = c.ask(to, order.clone()) else { panic!("it is on record") };
    assert_eq!(c.ask(to, order), Reply::OperatorDone { action });
    c.pass(Duration::from_millis(500));
    assert_eq!(c.leader(), Some(to), "a repeat moves nothing");
    let stale = c.ask(to, transfer(1, None));
    assert!(matches!(stale, Reply::Refused(Refusal::OtherTerm { asked: Term(1), .. })), "{stale:?}");
    let stranger = c.ask(to, transfer(term(&c, to), Some(9)));
    assert_eq!(stranger, Reply::Refused(Refusal::NotAVoter { node: NodeId(9) }));
}

#[test]
fn who_waits_for_the_log_is_answered_before_and_what_comes_meanwhile_is_sent_to_the_successor() {
    let mut c = Cluster::new(|_| ());
    let session = c.open();
    let leader = c.leader().expect("a leader");
    let before = c.send(leader, acquire(session, 1));
    c.turn(leader, Some(Input::HandOver));
    assert!(c.nodes[leader].shard.is_handing_over());
    let meanwhile = c.send(leader, Request::Release { session, ticket: Ticket(1) });
    assert_eq!(c.take(leader, meanwhile), None, "it waits for the outcome");
    c.settle();
    c.pass(Duration::from_millis(20));
    let granted = c.take(leader, before);
    assert!(matches!(granted, Some(Reply::Granted { .. })), "{granted:?}");
    let new = c.leader().expect("a leader");
    assert_ne!(new, leader);
    let hint = Some(NodeId(new as u32 + 1));
    assert_eq!(c.take(leader, meanwhile), Some(Reply::Refused(Refusal::NotLeader { leader: hint })));
}

#[test]
fn a_hand_over_that_nobody_takes_is_given_up_and_what_waited_is_done() {
    let mut c = Cluster::new(|_| ());
    let session = c.open();
    let (leader, gone) = (c.leader().expect("a leader"), c.follower());
    c.cut = vec![(leader, gone), (gone, leader)];
    let order = c.send(leader, transfer(term(&c, leader), Some(gone as u32 + 1)));
    c.settle();
    c.pass(Duration::from_millis(50));
    assert!(c.nodes[leader].shard.is_handing_over());
    let waits = c.send(leader, acquire(session, 1));
    c.pass(Duration::from_millis(500));
    assert_eq!((c.take(leader, order), c.take(leader, waits)), (None, None));
    c.pass(Duration::from_millis(600));
    let refusal = Refusal::NotHandedOver { leader: NodeId(leader as u32 + 1) };
    assert_eq!(c.take(leader, order), Some(Reply::Refused(refusal)));
    let granted = c.take(leader, waits);
    assert!(matches!(granted, Some(Reply::Granted { .. })), "{granted:?}");
    assert_eq!(c.nodes[leader].shard.counters().hand_overs_given_up, 1);
}

//! The world: true time, the event queue, whole nodes, clients, the network between them, the
//! protected resource, the storm, and all checkers. One seed decides everything.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use palisade_types::{ConnId, Rng, Time};
use palisade_wal::OpId;

use crate::check::liveness::LivenessCheck;
use crate::check::locks::LocksCheck;
use crate::check::raft::RaftCheck;
use crate::check::reads::ReadsCheck;
use crate::check::replay;
use crate::check::sessions::SessionsCheck;
use crate::check::watches::Committed;
use crate::check::witness::Witness;
use crate::check::{Checked, Violation, demand};
use crate::client::Client;
use crate::faults::{Class, Storm};
use crate::links::Links;
use crate::network::{Cut, Network};
use crate::node::Node;
use crate::options::Options;
use crate::queue::Queue;
use crate::report::Report;
use crate::resource::{Resource, Write};
use crate::rough::Rough;
use crate::trace::{Story, Trace};
use crate::watcher::Watcher;

/// After the storm, with a quorum or everything healed, clients go on for so long.
pub(crate) const CALM: Duration = Duration::from_secs(6);
/// Then they stop, close their sessions, and everything must come to rest within this.
pub(crate) const QUIET: Duration = Duration::from_secs(14);

/// At the end of that nobody has anything to do any more.
const REST: Duration = Duration::from_secs(3);
/// Sets what these watchers draw apart from what the seed gives to others.
const OTHER_WATCHERS: u64 = 0x6f62_7365_7276_6572;

/// After the storm nothing arrives any more that was sent longer ago than this.
pub(crate) const STALE: Duration = Duration::from_millis(500);

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node's process starts.
    Start {
        node: usize,
    },
    /// Something arrives at a node's process.
    Node {
        node: usize,
        life: u64,
        input: NodeInput,
    },
    /// A node takes a turn: with what has gathered, or because a deadline is due.
    Turn {
        node: usize,
        life: u64,
    },
    /// A node's disk is done with an operation.
    Disk {
        node: usize,
        life: u64,
        op: OpId,
    },
    /// Something arrives at a client's process.
    Client {
        client: usize,
        life: u64,
        input: ClientInput,
    },
    /// A client's deadline is due.
    Wake {
        client: usize,
        life: u64,
    },
    /// A client does the next thing.
    Step {
        client: usize,
        life: u64,
    },
    /// A client's process starts.
    StartClient {
        client: usize,
    },
    /// A write arrives at the resource.
    Write(Box<Write>),
    Strike(Class),
    Heal(usize),
    Resume {
        node: usize,
        life: u64,
    },
    /// A node reads its clients again.
    Hear {
        node: usize,
        life: u64,
    },
    ResumeClient {
        client: usize,
        life: u64,
    },
    FastDisk {
        node: usize,
    },
    FastLink {
        from: usize,
        to: usize,
    },
    /// The storm is over: a quorum is healed, or everything.
    Calm,
    /// Everything is healed.
    HealAll,
    /// The clients stop.
    Quiet,
    /// Everything should be at rest from now on.
    Rest,
    /// The end.
    End,
}

/// What arrives at a node.
#[derive(Debug)]
pub(crate) enum NodeInput {
    Peer { from: usize, bytes: Bytes, sent: Time },
    Disk { op: OpId, result: palisade_wal::DiskResult },
    Connect { conn: ConnId },
    Bytes { conn: ConnId, bytes: Vec<u8> },
    Closed { conn: ConnId },
    Congested { conn: ConnId, on: bool },
    HandOver,
}

/// What arrives at a client.
#[derive(Debug)]
pub(crate) enum ClientInput {
    Connected { conn: ConnId },
    Refused { conn: ConnId },
    Bytes { conn: ConnId, bytes: Vec<u8> },
    Closed { conn: ConnId },
}

/// Which part of a run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Storm,
    Calm,
    Quiet,
}

/// Everything.
pub struct World {
    pub(crate) options: Options,
    pub(crate) now: Time,
    pub(crate) queue: Queue<Event>,
    pub(crate) trace: Trace,
    /// Snapshots seen on platters.
    pub(crate) snapshots: u64,
    pub(crate) network: Network,
    pub(crate) storm: Storm,
    pub(crate) rng: Rng,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    /// More clients, seen from the network: behind them.
    pub(crate) watchers: Vec<Watcher>,
    /// And behind these.
    pub(crate) roughs: Vec<Rough>,
    pub(crate) links: Links,
    pub(crate) resource: Resource,
    pub(crate) phase: Phase,
    pub(crate) raft: RaftCheck,
    pub(crate) witness: Witness,
    pub(crate) reads: ReadsCheck,
    pub(crate) watched: Committed,
    pub(crate) locks: LocksCheck,
    pub(crate) sessions: SessionsCheck,
    pub(crate) liveness: LivenessCheck,
    /// Nodes that stay broken until everything is healed.
    pub(crate) outside: Vec<bool>,
    cuts: Vec<Option<Cut>>,
    ended: bool,
}

impl World {
    /// Runs a seed to its end.
    ///
    /// # Errors
    /// The first rule found broken, and the story if one was kept.
    pub fn run(options: Options, story: Story) -> Result<Report, (Violation, Vec<String>)> {
        let mut world = World::new(options, story);
        match world.play() {
            Ok(()) => Ok(world.report()),
            Err(violation) => Err((violation, world.trace.story())),
        }
    }

    /// A world in which nothing has happened yet.
    pub fn new(options: Options, story: Story) -> World {
        let mut rng = Rng::new(options.seed);
        let (n, c) = (options.nodes, options.workload.clients + options.workload.readers);
        let (w, r) = (options.workload.watchers, options.workload.roughs);
        let network = Network::new(options.network, rng.fork(), n, c + w + r);
        let storm = Storm::new(options.faults.clone(), rng.fork(), Time::ZERO + options.storm);
        let nodes = (0..n).map(|i| Node::format(i, &options, &mut rng)).collect();
        let clients = (0..c).map(|i| Client::new(i, &options, &mut rng)).collect();
        let mut others = Rng::new(options.seed ^ OTHER_WATCHERS);
        let watchers = (0..w).map(|_| Watcher::new(&options, &mut rng, &mut others)).collect();
        let roughs = (0..r).map(|_| Rough::new(&mut rng)).collect();
        World {
            now: Time::ZERO,
            queue: Queue::default(),
            trace: Trace::new(story),
            network,
            snapshots: 0,
            storm,
            nodes,
            clients,
            watchers,
            roughs,
            links: Links::default(),
            resource: Resource::default(),
            phase: Phase::Storm,
            raft: RaftCheck::new(n),
            witness: Witness::new(crate::node::limits()),
            reads: ReadsCheck::default(),
            watched: Committed::new(options.shard.watch_history),
            locks: LocksCheck::default(),
            sessions: SessionsCheck::new(options.shard.expiry_slack),
            liveness: LivenessCheck::default(),
            outside: vec![false; n],
            cuts: Vec::new(),
            ended: false,
            rng,
            options,
        }
    }

    fn play(&mut self) -> Checked {
        self.begin();
        while !self.ended {
            self.step()?;
        }
        self.finish()
    }

    /// Puts the first events in the queue: everything starts, the storm gathers.
    pub fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.queue.push(Time::ZERO, Event::Start { node });
        }
        for client in 0..self.clients.len() + self.watchers.len() + self.roughs.len() {
            self.queue.push(Time::from_millis(50), Event::StartClient { client });
        }
        for class in Class::ALL {
            self.schedule(class);
        }
        let calm = Time::ZERO + self.options.storm;
        self.queue.push(calm, Event::Calm);
        self.queue.push(calm + CALM, Event::HealAll);
        self.queue.push(calm + CALM + CALM, Event::Quiet);
        self.queue.push(calm + CALM + CALM + QUIET - REST, Event::Rest);
        self.queue.push(calm + CALM + CALM + QUIET, Event::End);
    }

    /// Lets the next event happen.
    ///
    /// # Errors
    /// A rule found broken by it.
    pub fn step(&mut self) -> Checked {
        let Some((at, event)) = self.queue.pop() else {
            self.ended = true;
            return Ok(());
        };
        self.now = at;
        self.trace.at(at);
        self.on_event(event)?;
        if self.sessions.is_due(at) { self.look_at_bounds() } else { Ok(()) }
    }

    /// S10 is judged while nothing goes wrong: in a storm a leader may serve that no quorum hears.
    fn look_at_bounds(&mut self) -> Checked {
        let calm = self.phase != Phase::Storm || self.options.faults.is_none();
        let sends =
            |node: &usize| self.nodes[*node].shard.as_ref().is_some_and(|s| s.raft().is_sending_snapshot());
        // Nor while its quorum may be waiting for a node that is sent a snapshot.
        let undisturbed = |node: &usize| calm && !self.nodes[*node].ears.is_deaf() && !sends(node);
        let serving = self.serving().filter(undisturbed).map(|node| (node, self.term()));
        let grace = Duration::from_secs(1) + 4 * self.options.disk.spread;
        self.sessions.look(self.now, serving, grace)
    }

    /// Lets everything happen up to a time.
    ///
    /// # Errors
    /// The first rule found broken.
    pub fn run_until(&mut self, until: Time) -> Checked {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            self.step()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// True time.
    pub fn now(&self) -> Time {
        self.now
    }

    fn schedule(&mut self, class: Class) {
        if let Some(at) = self.storm.next(self.now, class) {
            self.queue.push(at, Event::Strike(class));
        }
    }

    fn on_event(&mut self, event: Event) -> Checked {
        match event {
            Event::Start { node } => self.start_node(node),
            Event::Node { node, life, input } => self.arrive(node, life, input),
            Event::Turn { node, life } => self.turn(node, life),
            Event::Disk { node, life, op } => self.disk_done(node, life, op),
            Event::Client { client, life, input } => match (self.as_rough(client), self.as_watcher(client)) {
                (Some(rough), _) => self.rough_input(rough, input),
                (_, Some(watcher)) => self.watcher_input(watcher, life, input),
                _ => self.client_input(client, life, input),
            },
            Event::Wake { client, life } => match (self.as_rough(client), self.as_watcher(client)) {
                (Some(rough), _) => self.rough_wake(rough, life),
                (_, Some(watcher)) => self.watcher_wake(watcher, life),
                _ => self.client_wake(client, life),
            },
            Event::Step { client, life } => match (self.as_rough(client), self.as_watcher(client)) {
                (Some(rough), _) => self.rough_step(rough, life),
                (_, Some(watcher)) => self.watcher_step(watcher, life),
                _ => self.client_step(client, life),
            },
            Event::StartClient { client } => match (self.as_rough(client), self.as_watcher(client)) {
                (Some(rough), _) => self.start_rough(rough),
                (_, Some(watcher)) => self.start_watcher(watcher),
                _ => self.start_client(client),
            },
            Event::Write(write) => self.write_arrives(&write),
            Event::Strike(class) => self.strike(class),
            Event::Heal(cut) => {
                self.heal(cut);
                Ok(())
            }
            Event::Resume { node, life } => self.resume_node(node, life),
            Event::Hear { node, life } => self.hear_node(node, life),
            Event::ResumeClient { client, life } => self.resume_client(client, life),
            Event::FastDisk { node } => {
                self.nodes[node].disk_slow = Duration::ZERO;
                Ok(())
            }
            Event::FastLink { from, to } => {
                self.network.set_slow(from, to, Duration::ZERO);
                Ok(())
            }
            Event::Calm => self.become_calm(),
            Event::HealAll => self.heal_all(),
            Event::Quiet => self.become_quiet(),
            Event::Rest => {
                self.liveness.on_rest(self.network.counts.carried);
                Ok(())
            }
            Event::End => {
                self.ended = true;
                Ok(())
            }
        }
    }

    /// Where a fault that looks for the leader finds it.
    pub fn leader(&self) -> Option<usize> {
        self.raft.leader()
    }

    fn strike(&mut self, class: Class) -> Checked {
        self.schedule(class);
        if self.phase != Phase::Storm {
            return Ok(());
        }
        let length = self.storm.strike(class);
        let leader = self.leader();
        let node = self.storm.victim(self.nodes.len(), leader);
        let client = self.storm.rng().below(self.clients.len() as u64) as usize;
        let end = self.now + length;
        self.trace.event(self.now, 7, &[class as u64, node as u64, length.as_nanos() as u64]);
        self.trace.line(|| format!("strike {class:?}, n{} or c{client}, {length:?}", node + 1));
        match class {
            Class::Cut => {
                let shape = self.storm.shape();
                let cut = self.network.draw_cut(shape, Some(node));
                self.make_cut(cut, Some(end));
            }
            Class::Crash if self.storm.rng().per_mille(500) => self.nodes[node].die_in_turn = Some(length),
            Class::Crash => self.crash_node(node, Some(length))?,
            Class::KillAll => {
                for node in 0..self.nodes.len() {
                    let more = Duration::from_millis(self.storm.rng().below(500));
                    self.crash_node(node, Some(length + more))?;
                }
            }
            Class::Pause => self.pause_node(node, Some(length)),
            Class::Deaf => self.deafen_node(node, Some(length)),
            Class::HandOver => self.arrive(node, 0, NodeInput::HandOver)?,
            Class::SlowDisk => {
                self.nodes[node].disk_slow = Duration::from_millis(self.storm.rng().between(10, 1_500));
                self.queue.push(end, Event::FastDisk { node });
            }
            Class::DiskError => self.nodes[node].fail_next = true,
            Class::SlowLink if self.options.faults.slow_answers => {
                let slow = Duration::from_millis(self.storm.rng().between(20, 200));
                for from in (0..self.nodes.len()).filter(|from| *from != node) {
                    self.network.set_slow(from, node, slow);
                    self.queue.push(end, Event::FastLink { from, to: node });
                }
            }
            Class::SlowLink => {
                let to = (node + 1 + self.storm.rng().below(2) as usize) % self.nodes.len();
                let slow = Duration::from_millis(self.storm.rng().between(10, 1_500));
                self.network.set_slow(node, to, slow);
                self.queue.push(end, Event::FastLink { from: node, to });
            }
            Class::ClientCrash => self.crash_client(client, Some(length)),
            Class::ClientPause => self.pause_client(client, Some(length)),
        }
        Ok(())
    }

    /// Makes a cut known, and heals it at a time if one is given.
    pub fn make_cut(&mut self, cut: Cut, end: Option<Time>) -> usize {
        self.trace.line(|| format!("cut {}", cut.name));
        self.cuts.push(Some(cut));
        let at = self.cuts.len() - 1;
        if let Some(end) = end {
            self.queue.push(end, Event::Heal(at));
        }
        at
    }

    /// The network, to cut it by hand.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Undoes a cut, if it still stands.
    pub fn heal(&mut self, cut: usize) {
        if let Some(cut) = self.cuts[cut].take() {
            self.network.heal(&cut);
            self.trace.line(|| format!("heal {}", cut.name));
        }
    }

    /// The storm is over. All links are healed, but in some runs only a quorum of the nodes comes
    /// back: the others stay away until everything is healed.
    fn become_calm(&mut self) -> Checked {
        self.phase = Phase::Calm;
        self.network.set_calm();
        for cut in 0..self.cuts.len() {
            self.heal(cut);
        }
        let n = self.nodes.len();
        if self.options.heal_quorum_first && n > 1 {
            let mut order: VecDeque<usize> = (0..n).collect();
            order.rotate_left(self.rng.below(n as u64) as usize);
            for &node in order.iter().skip(self.options.quorum()) {
                self.outside[node] = true;
            }
        }
        self.trace.line(|| "the storm is over".into());
        for node in 0..n {
            if self.outside[node] {
                self.crash_node(node, None)?;
            } else {
                self.mend_node(node)?;
            }
        }
        for client in 0..self.clients.len() {
            let life = self.clients[client].life;
            self.resume_client(client, life)?;
        }
        self.liveness.on_calm(self.now, self.raft.committed(), self.raft.installs);
        Ok(())
    }

    fn heal_all(&mut self) -> Checked {
        // A log that is full takes only what frees something, and soon there is nothing to free.
        if !self.witness.log_was_full() {
            self.liveness.on_core_judged(self.now, self.raft.committed(), self.raft.installs)?;
        }
        self.trace.line(|| "everything is healed".into());
        for node in 0..self.nodes.len() {
            self.outside[node] = false;
            self.mend_node(node)?;
        }
        Ok(())
    }

    fn mend_node(&mut self, node: usize) -> Checked {
        self.nodes[node].disk_slow = Duration::ZERO;
        self.nodes[node].fail_next = false;
        self.nodes[node].die_in_turn = None;
        let life = self.nodes[node].life;
        self.hear_node(node, life)?;
        self.resume_node(node, life)?;
        self.start_node(node)
    }

    fn become_quiet(&mut self) -> Checked {
        self.phase = Phase::Quiet;
        self.trace.line(|| "the clients stop".into());
        (0..self.clients.len()).try_for_each(|client| self.wind_down(client))
    }

    /// Everything is at rest: all nodes have the same log and the same state, no session lives, no
    /// request is unanswered, and all reads were right.
    fn finish(&mut self) -> Checked {
        self.raft.converged()?;
        let leader = self.leader().is_some();
        demand(leader, "L1", || "nobody leads although everything is healed".into())?;
        let mut digest = None;
        for node in &self.nodes {
            let Some(shard) = &node.shard else { continue };
            shard.check();
            let own = (shard.applied(), shard.machine().digest());
            let first = *digest.get_or_insert(own);
            demand(first == own, "R5", || {
                format!("node {} has the state {own:x?}, node 1 {first:x?}", node.id)
            })?;
            let counts = shard.machine().counts();
            let live = counts.sessions;
            demand(live == 0, "L5", || {
                format!("{live} sessions live on node {} although all clients stopped", node.id)
            })?;
            demand(counts.values == 0 && counts.backlog == 0, "L5", || {
                format!("{counts:?} on node {}: keys of dead sessions stay", node.id)
            })?;
        }
        for node in 0..self.nodes.len() {
            self.compare_with_platter(node)?;
        }
        if let Some((_, digest)) = digest {
            replay::equals(self.raft.committed_blocks(), self.options.mutants, digest)?;
        }
        self.links.all_answered()?;
        self.finish_watchers()?;
        let beats = REST.as_millis().div_ceil(self.options.raft.heartbeat.as_millis()) as u64;
        self.liveness.on_end(self.network.counts.carried, beats * 2 * self.nodes.len() as u64)?;
        self.witness.finish(self.raft.committed_blocks())
    }

    pub(crate) fn report(&self) -> Report {
        let (told, coalesced, anew, observed) = self.watch_counts();
        Report {
            snapshots: self.snapshots,
            installs: self.raft.installs,
            seed: self.options.seed,
            hash: self.trace.hash(),
            events: self.trace.events(),
            simulated: self.now.since(Time::ZERO),
            committed: self.raft.committed().0,
            leader_changes: self.raft.leader_changes,
            fault_kinds: self.storm.kinds()
                + usize::from(self.network.counts.lost > 0)
                + usize::from(self.network.counts.duplicated > 0)
                + usize::from(self.options.clocks_ppm > 0),
            strikes: self.storm.strikes.iter().sum(),
            reads: self.reads.counts.all,
            follower_reads: self.reads.counts.follower,
            lease_reads: self.reads.counts.lease,
            stale_reads: self.reads.counts.stale,
            grants: self.locks.granted,
            expired: self.sessions.expired,
            writes: self.resource.accepted,
            zombie_writes: self.resource.zombies_accepted + self.resource.zombies_refused,
            zombies_refused: self.resource.zombies_refused,
            answers: self.witness.answers(),
            ousted: self.witness.ousted_count(),
            outcomes: self.witness.outcomes().clone(),
            served: self.witness.served().clone(),
            puts: self.witness.puts(),
            claims: self.witness.resource_claims().0,
            claims_read: self.witness.resource_claims().1,
            over_quota: self.witness.over_quota(),
            told,
            coalesced,
            anew,
            observed,
        }
    }
}

//! Raft alone: real `Raft`s over a model of a disk that persists in order, late, and loses what is
//! not persisted. Much faster than whole nodes, so it reaches more schedules of elections,
//! truncations and delayed disks in the same time.

use core::time::Duration;
use std::collections::VecDeque;

use palisade_raft::{Config, Message, Persist, Raft, Restored, Role, Round, Status};
use palisade_types::{Block, BlockBuilder, Edge, HardState, LogIndex, NodeId, Rng, ShardId, Time};

use crate::check::raft::{Entry, RaftCheck};
use crate::check::{Checked, Violation, demand, durability};
use crate::clock::Clock;
use crate::faults::{Class, Storm};
use crate::network::{Cut, Network};
use crate::options::Options;
use crate::queue::Queue;
use crate::raft_snapshots::{Incoming, Snap, SnapEvent};
use crate::report::Report;
use crate::trace::{Story, Trace};
use crate::world::STALE;

/// How long the cluster has to settle after the storm.
pub(crate) const CALM: Duration = Duration::from_secs(12);
/// More events than any healthy run has.
const EVENTS_MAX: u64 = 1_000_000;
/// More work in one turn than any healthy node has.
const READY_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) enum Event {
    Message { from: usize, to: usize, message: Box<Message>, sent: Time },
    Wake { node: usize, life: u64 },
    Persisted { node: usize, life: u64 },
    Snap { node: usize, life: u64, event: SnapEvent },
    TakeSnapshot,
    Propose,
    Start { node: usize },
    Resume { node: usize, life: u64 },
    Strike(Class),
    Heal(usize),
    FastDisk { node: usize },
    FastLink { from: usize, to: usize },
    Calm,
}

/// The model of a disk: one flight at a time makes the oldest persists durable, in order; what
/// arrives meanwhile waits for the next flight.
#[derive(Default)]
pub(crate) struct Disk {
    hard_state: HardState,
    /// What the log begins behind.
    pub(crate) base: Edge,
    pub(crate) blocks: Vec<Block>,
    pub(crate) snapshot: Option<Snap>,
    /// A snapshot received whole, behind which the log does not begin yet.
    pub(crate) received: Option<Snap>,
    waiting: VecDeque<Persist>,
    /// So many of them are in flight.
    flight: usize,
    slow: Duration,
}

impl Disk {
    fn apply(&mut self, persist: &Persist) {
        if let Some(hs) = persist.hard_state {
            self.hard_state = hs;
        }
        if persist.install.is_some()
            && let Some(received) = self.received.take()
        {
            self.install(received);
        }
        if let Some(after) = persist.truncate_after {
            self.blocks.retain(|b| b.last() <= after);
        }
        self.blocks.extend(persist.blocks.iter().cloned());
    }
}

pub(crate) struct Member {
    pub(crate) raft: Option<Raft>,
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    pub(crate) life: u64,
    /// The edge of the last block applied, or of the snapshot it began with: all of its state.
    pub(crate) state: Edge,
    /// A snapshot being written.
    pub(crate) taking: bool,
    /// A snapshot being received.
    pub(crate) incoming: Option<Incoming>,
    /// When the disk has done what it was asked for beside the log.
    pub(crate) beside: Time,
    /// The true time of the wake-up in the queue.
    wake: Time,
    paused: bool,
    inbox: VecDeque<Event>,
    /// A confirmation round under way, and what was committed anywhere when it began.
    round: Option<(Round, LogIndex)>,
}

/// A cluster of nothing but Rafts.
pub struct RaftCluster {
    pub(crate) options: Options,
    pub(crate) now: Time,
    pub(crate) queue: Queue<Event>,
    pub(crate) trace: Trace,
    network: Network,
    storm: Storm,
    pub(crate) rng: Rng,
    pub(crate) members: Vec<Member>,
    pub(crate) check: RaftCheck,
    cuts: Vec<Option<Cut>>,
    pub(crate) calm: bool,
    pub(crate) snapshots: u64,
    proposed: u64,
    reads: u64,
}

impl RaftCluster {
    /// Runs a seed to its end.
    ///
    /// # Errors
    /// The first rule found broken.
    pub fn run(options: Options, story: Story) -> Result<Report, (Violation, Vec<String>)> {
        let mut cluster = RaftCluster::new(options, story);
        match cluster.play() {
            Ok(()) => Ok(cluster.report()),
            Err(violation) => Err((violation, cluster.trace.story())),
        }
    }

    fn new(options: Options, story: Story) -> RaftCluster {
        let mut rng = Rng::new(options.seed);
        let n = options.nodes;
        let network = Network::new(options.network, rng.fork(), n, 0);
        let storm = Storm::new(options.faults.clone(), rng.fork(), Time::ZERO + options.storm);
        let members = (0..n)
            .map(|_| Member {
                raft: None,
                disk: Disk::default(),
                clock: Clock::draw(&mut rng, options.clocks_ppm),
                life: 0,
                state: Edge::default(),
                taking: false,
                incoming: None,
                beside: Time::ZERO,
                wake: Time::FAR,
                paused: false,
                inbox: VecDeque::new(),
                round: None,
            })
            .collect();
        RaftCluster {
            now: Time::ZERO,
            queue: Queue::default(),
            trace: Trace::new(story),
            network,
            storm,
            members,
            check: RaftCheck::new(n),
            cuts: Vec::new(),
            calm: false,
            snapshots: 0,
            proposed: 0,
            reads: 0,
            rng,
            options,
        }
    }

    fn play(&mut self) -> Checked {
        for node in 0..self.members.len() {
            self.queue.push(Time::ZERO, Event::Start { node });
        }
        self.queue.push(Time::from_millis(500), Event::Propose);
        self.queue.push(Time::from_millis(900), Event::TakeSnapshot);
        for class in Class::ALL {
            self.schedule(class);
        }
        let storm_end = Time::ZERO + self.options.storm;
        self.queue.push(storm_end, Event::Calm);
        let end = storm_end + CALM;
        while let Some((at, event)) = self.queue.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.trace.at(at);
            let most = demand(self.trace.events() < EVENTS_MAX, "L6", || "events without end".into());
            most?;
            self.on_event(event)?;
        }
        self.check.converged()?;
        let leads = self.check.leader().is_some();
        demand(leads, "L1", || "no leader after the storm".into())
    }

    fn schedule(&mut self, class: Class) {
        if let Some(at) = self.storm.next(self.now, class) {
            self.queue.push(at, Event::Strike(class));
        }
    }

    fn on_event(&mut self, event: Event) -> Checked {
        match event {
            Event::Message { to: node, .. }
            | Event::Wake { node, .. }
            | Event::Persisted { node, .. }
            | Event::Snap { node, .. }
                if self.members[node].paused =>
            {
                self.members[node].inbox.push_back(event);
                Ok(())
            }
            Event::Message { sent, .. } if self.calm && self.now.since(sent) > STALE => Ok(()),
            Event::Message { from, to, message, .. } => self.deliver(from, to, *message),
            Event::Wake { node, life } => self.wake(node, life),
            Event::Persisted { node, life } => self.persisted(node, life),
            Event::Snap { node, life, event } => self.snap(node, life, event),
            Event::TakeSnapshot => self.take_snapshots(),
            Event::Propose => self.propose(),
            Event::Start { node } => self.start(node),
            Event::Resume { node, life } => self.resume(node, life),
            Event::Strike(class) => self.strike(class),
            Event::Heal(cut) => {
                if let Some(cut) = self.cuts[cut].take() {
                    self.network.heal(&cut);
                    self.trace.line(|| format!("heal {}", cut.name));
                }
                Ok(())
            }
            Event::FastDisk { node } => {
                self.members[node].disk.slow = Duration::ZERO;
                Ok(())
            }
            Event::FastLink { from, to } => {
                self.network.set_slow(from, to, Duration::ZERO);
                Ok(())
            }
            Event::Calm => self.become_calm(),
        }
    }

    fn config(&self, node: usize) -> Config {
        let o = &self.options.raft;
        let voters = (1..=self.members.len() as u32).map(NodeId).collect();
        let mut config = Config::new(NodeId(node as u32 + 1), ShardId(0), voters);
        config.heartbeat = o.heartbeat;
        config.election_min = o.election_min;
        config.election_max = o.election_max;
        config.inflight_messages_max = o.inflight_messages_max;
        config.inflight_bytes_max = o.inflight_bytes_max;
        config.append_bytes_max = o.append_bytes_max;
        config.committed_blocks_max = o.committed_blocks_max;
        config.disk_stall = o.disk_stall;
        config.leases = self.options.leases;
        config.log_keep_bytes = self.options.snapshots.keep_bytes;
        config.snapshot_window = self.options.snapshots.window;
        config.mutants = self.options.mutants;
        config
    }

    fn start(&mut self, node: usize) -> Checked {
        let config = self.config(node);
        let seed = self.rng.next_u64();
        let now = self.now;
        let m = &mut self.members[node];
        if m.raft.is_some() {
            return Ok(());
        }
        m.life += 1;
        m.wake = Time::FAR;
        m.paused = false;
        m.inbox.clear();
        m.round = None;
        m.clock = m.clock.rebooted(&mut self.rng);
        m.taking = false;
        m.incoming = None;
        m.beside = now;
        m.disk.recover();
        let (hard_state, base, blocks) = (m.disk.hard_state, m.disk.base, m.disk.blocks.clone());
        let snapshot = m.disk.snapshot.as_ref().map(|s| s.id);
        m.state = snapshot.map_or(Edge::default(), |id| id.edge());
        self.trace.line(|| {
            format!("n{} starts: {hard_state:?}, {snapshot:?}, {base:?}, {} blocks", node + 1, blocks.len())
        });
        let local = m.clock.local(now);
        self.check.on_start(node, hard_state, snapshot, base, &blocks)?;
        let raft = Raft::new(config, Restored { hard_state, snapshot, base, blocks }, seed, local);
        let m = &mut self.members[node];
        m.raft = Some(raft.map_err(|e| Violation::new("config", format!("{e:?}")))?);
        self.after(node)
    }

    fn deliver(&mut self, from: usize, to: usize, message: Message) -> Checked {
        self.trace.event(self.now, 1, &[from as u64, to as u64]);
        self.trace.line(|| format!("n{} <- n{} {message:?}", to + 1, from + 1));
        let now = self.now;
        let m = &mut self.members[to];
        let Some(raft) = &mut m.raft else { return Ok(()) };
        raft.step(m.clock.local(now), NodeId(from as u32 + 1), message);
        self.after(to)
    }

    fn wake(&mut self, node: usize, life: u64) -> Checked {
        let now = self.now;
        let m = &mut self.members[node];
        if m.life != life || m.wake > now {
            return Ok(());
        }
        m.wake = Time::FAR;
        let Some(raft) = &mut m.raft else { return Ok(()) };
        self.trace.event(now, 2, &[node as u64]);
        raft.tick(m.clock.local(now));
        self.after(node)
    }

    fn persisted(&mut self, node: usize, life: u64) -> Checked {
        let now = self.now;
        let m = &mut self.members[node];
        if m.life != life {
            return Ok(());
        }
        let flight = std::mem::take(&mut m.disk.flight);
        let done: Vec<Persist> = m.disk.waiting.drain(..flight).collect();
        let Some(number) = done.last().map(|p| p.number) else { return Ok(()) };
        self.make_durable(node, &done)?;
        self.trace.event(now, 3, &[node as u64, number.0]);
        self.trace.line(|| format!("n{} persisted {number}", node + 1));
        self.start_flight(node);
        let m = &mut self.members[node];
        if let Some(raft) = &mut m.raft {
            raft.on_persisted(m.clock.local(now), number);
        }
        self.after(node)
    }

    fn propose(&mut self) -> Checked {
        let gap = Duration::from_millis(self.rng.between(5, 150));
        let now = self.now;
        if now + gap < Time::ZERO + self.options.storm + CALM / 2 {
            self.queue.push(now + gap, Event::Propose);
        }
        let node = self.rng.below(self.members.len() as u64) as usize;
        let n = self.rng.between(1, 4);
        let read = self.rng.per_mille(400);
        for node in [Some(node), self.check.leader()].into_iter().flatten() {
            let m = &mut self.members[node];
            if m.paused {
                continue;
            }
            let local = m.clock.local(now);
            let Some(raft) = &mut m.raft else { continue };
            let mut builder = BlockBuilder::new();
            for _ in 0..n {
                self.proposed += 1;
                let id = self.proposed;
                builder.push(|v| v.extend_from_slice(&id.to_le_bytes()));
            }
            if raft.propose(builder, now.as_millis()).is_ok() {
                self.trace.event(now, 4, &[node as u64, n]);
            }
            if read
                && m.round.is_none()
                && let Ok(round) = raft.start_round(local)
            {
                m.round = Some((round, self.check.committed()));
                self.reads += 1;
            }
            self.after(node)?;
        }
        Ok(())
    }

    /// Takes what a Raft wants done, does it, and looks at the Raft.
    pub(crate) fn after(&mut self, node: usize) -> Checked {
        for turn in 0.. {
            demand(turn < READY_MAX, "L6", || format!("node {} has work without end", node + 1))?;
            let Some(raft) = &mut self.members[node].raft else { return Ok(()) };
            if !raft.has_ready() {
                break;
            }
            let ready = raft.take_ready();
            if let Some(persist) = ready.persist {
                let leads = self.status(node).filter(|s| s.role == Role::Leader).map(|s| s.term);
                if let Some(id) = persist.install {
                    self.check.on_installing(node, leads, id)?;
                }
                self.check.on_accepted(node, leads, persist.truncate_after, &persist.blocks)?;
                self.submit(node, persist);
            }
            if let Some(id) = ready.install {
                self.installed(node, id)?;
            }
            self.move_chunks(node, ready.chunks_wanted, ready.chunks_received);
            self.look(node)?;
            for (to, message) in ready.messages {
                durability::on_send(&self.check, node, to, &message)?;
                self.send(node, (to.0 - 1) as usize, message);
            }
            self.check.on_applied(node, &ready.committed)?;
            if let Some(last) = ready.committed.last() {
                self.members[node].state = last.edge();
                self.check.on_state(node, last.last(), last.chain())?;
            }
            if let Some(confirmed) = ready.confirmed
                && let Some((round, committed)) = &self.members[node].round
                && confirmed >= round.id
            {
                let (index, committed) = (round.read_index, *committed);
                demand(index >= committed, "R11", || {
                    format!("node {} reads at {index}, {committed} was committed before", node + 1)
                })?;
                self.members[node].round = None;
            }
            if let Some(change) = ready.role_change {
                self.trace.line(|| format!("n{} {change:?}", node + 1));
                self.members[node].round = None;
            }
        }
        let m = &mut self.members[node];
        let Some(raft) = &m.raft else { return Ok(()) };
        raft.check();
        let wake = m.clock.truth(raft.next_deadline()).max(self.now);
        if wake < m.wake {
            m.wake = wake;
            self.queue.push(wake, Event::Wake { node, life: m.life });
        }
        let s = raft.status();
        let role = s.role as u64;
        self.trace.event(self.now, 5, &[node as u64, role, s.term.0, s.last.0, s.durable.0, s.commit.0]);
        self.check.on_status(node, &s)
    }

    fn look(&mut self, node: usize) -> Checked {
        match &self.members[node].raft {
            Some(raft) if !raft.has_unsubmitted() => self.check.on_status(node, &raft.status()),
            _ => Ok(()),
        }
    }

    fn status(&self, node: usize) -> Option<Status> {
        self.members[node].raft.as_ref().map(Raft::status)
    }

    fn submit(&mut self, node: usize, persist: Persist) {
        self.trace.line(|| format!("n{} submits {persist:?}", node + 1));
        self.members[node].disk.waiting.push_back(persist);
        if self.members[node].disk.flight == 0 {
            self.start_flight(node);
        }
    }

    fn start_flight(&mut self, node: usize) {
        let o = self.options.disk;
        let time = o.floor + Duration::from_nanos(self.rng.below(o.spread.as_nanos() as u64 + 1));
        let all = self.rng.per_mille(700);
        let m = &mut self.members[node];
        m.disk.flight = if all { m.disk.waiting.len() } else { m.disk.waiting.len().min(1) };
        if m.disk.flight > 0 {
            let event = Event::Persisted { node, life: m.life };
            self.queue.push(self.now + time + m.disk.slow, event);
        }
    }

    fn make_durable(&mut self, node: usize, persists: &[Persist]) -> Checked {
        for persist in persists {
            self.members[node].disk.apply(persist);
            if let Some(id) = persist.install {
                self.check.on_install_durable(node, id)?;
            }
            let entries: Vec<Entry> = persist.blocks.iter().map(Entry::from).collect();
            self.check.on_durable(node, persist.hard_state, persist.truncate_after, &entries)?;
        }
        Ok(())
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        for at in self.network.datagram(self.now, from, to) {
            self.queue
                .push(at, Event::Message { from, to, message: Box::new(message.clone()), sent: self.now });
        }
    }

    fn crash(&mut self, node: usize, down: Duration) -> Checked {
        if self.members[node].raft.take().is_none() {
            return Ok(());
        }
        let m = &mut self.members[node];
        // Of what was under way, the disk may have finished a part: some whole persists, in order.
        let mut waiting: Vec<Persist> = std::mem::take(&mut m.disk.waiting).into();
        waiting.truncate(self.rng.below(m.disk.flight as u64 + 1) as usize);
        m.disk.flight = 0;
        m.life += 1;
        m.inbox.clear();
        m.paused = false;
        let done = waiting.len();
        self.trace.event(self.now, 6, &[node as u64, done as u64]);
        self.trace.line(|| format!("n{} crashes, {done} persists under way survive", node + 1));
        self.make_durable(node, &waiting)?;
        self.check.on_stop(node);
        self.queue.push(self.now + down, Event::Start { node });
        Ok(())
    }

    fn resume(&mut self, node: usize, life: u64) -> Checked {
        let m = &mut self.members[node];
        if m.life != life || !m.paused {
            return Ok(());
        }
        m.paused = false;
        self.trace.line(|| format!("n{} resumes", node + 1));
        let inbox = std::mem::take(&mut m.inbox);
        inbox.into_iter().try_for_each(|event| self.on_event(event))
    }

    fn strike(&mut self, class: Class) -> Checked {
        self.schedule(class);
        if self.calm {
            return Ok(());
        }
        let length = self.storm.strike(class);
        let node = self.storm.victim(self.members.len(), self.check.leader());
        let end = self.now + length;
        self.trace.event(self.now, 7, &[class as u64, node as u64, length.as_nanos() as u64]);
        self.trace.line(|| format!("strike {class:?}, node {}, {length:?}", node + 1));
        match class {
            Class::Cut => {
                let shape = self.storm.shape();
                let cut = self.network.draw_cut(shape, Some(node));
                self.trace.line(|| format!("cut {}", cut.name));
                self.cuts.push(Some(cut));
                self.queue.push(end, Event::Heal(self.cuts.len() - 1));
            }
            Class::Crash => self.crash(node, length)?,
            Class::KillAll => {
                for node in 0..self.members.len() {
                    let more = Duration::from_millis(self.storm.rng().below(500));
                    self.crash(node, length + more)?;
                }
            }
            Class::Pause => {
                let m = &mut self.members[node];
                if m.raft.is_some() && !m.paused {
                    m.paused = true;
                    let life = m.life;
                    self.queue.push(end, Event::Resume { node, life });
                }
            }
            Class::SlowDisk => {
                let slow = Duration::from_millis(self.storm.rng().between(10, 1_500));
                self.members[node].disk.slow = slow;
                self.queue.push(end, Event::FastDisk { node });
            }
            Class::SlowLink => {
                let to = (node + 1) % self.members.len();
                let slow = Duration::from_millis(self.storm.rng().between(10, 1_500));
                self.network.set_slow(node, to, slow);
                self.queue.push(end, Event::FastLink { from: node, to });
            }
            Class::HandOver => self.hand_over(node)?,
            Class::DiskError | Class::ClientCrash | Class::ClientPause | Class::Deaf => {}
        }
        Ok(())
    }

    /// A node that leads hands over, to any or to one that may not be there.
    fn hand_over(&mut self, node: usize) -> Checked {
        let to = self.rng.below(2 * self.members.len() as u64) as u32;
        let to = (1..=self.members.len() as u32).contains(&to).then_some(NodeId(to));
        let now = self.now;
        let m = &mut self.members[node];
        let Some(raft) = m.raft.as_mut().filter(|_| !m.paused) else { return Ok(()) };
        let begun = raft.transfer(m.clock.local(now), to);
        self.trace.line(|| format!("n{} hands over to {to:?}: {begun:?}", node + 1));
        self.after(node)
    }

    fn become_calm(&mut self) -> Checked {
        self.trace.line(|| "the storm is over".into());
        self.calm = true;
        for cut in self.cuts.iter_mut().filter_map(Option::take) {
            self.network.heal(&cut);
        }
        self.network.set_calm();
        for node in 0..self.members.len() {
            self.members[node].disk.slow = Duration::ZERO;
            let life = self.members[node].life;
            self.resume(node, life)?;
            self.start(node)?;
        }
        Ok(())
    }

    fn report(&self) -> Report {
        Report {
            seed: self.options.seed,
            hash: self.trace.hash(),
            events: self.trace.events(),
            simulated: self.now.since(Time::ZERO),
            committed: self.check.committed().0,
            leader_changes: self.check.leader_changes,
            fault_kinds: self.options.faults.kinds(&self.options.network, self.options.clocks_ppm),
            strikes: self.storm.strikes.iter().sum(),
            reads: self.reads,
            snapshots: self.snapshots,
            installs: self.check.installs,
            ..Report::default()
        }
    }

    /// Whether any member leads; for tests.
    pub fn leads(&self, node: usize) -> bool {
        self.status(node).is_some_and(|s| s.role == Role::Leader)
    }
}

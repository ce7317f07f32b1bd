//! A whole node: the real shard on a simulated disk, with a clock of its own, driven in turns like
//! the server drives it.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use palisade_raft::{Message, Role};
use palisade_shard::{Actions, Input, Note, Shard, ShardConfig, Stop, peer_codec, read_state};
use palisade_types::{
    Block, ClusterId, ClusterIdentity, ClusterLimits, Incarnation, LogIndex, Name, NodeId, Rng, ShardId,
    SnapshotId, Time,
};
use palisade_wal::{
    DiskOp, Identity, OpId, SimDisk, WalConfig, hard_state_file, initial_hard_state, read_hard_state,
    read_snapshot, recover_with,
};
use palisade_wire::Request;

use crate::check::raft::{Entry, Log};
use crate::check::{Checked, Violation, demand, durability};
use crate::clock::Clock;
use crate::ears::Ears;
use crate::options::Options;
use crate::world::{ClientInput, Event, NodeInput, Phase, STALE, World};

/// The one shard of a simulated cluster.
pub(crate) const SHARD: ShardId = ShardId(0);
/// The cluster all simulated nodes belong to.
pub(crate) const CLUSTER: ClusterId = ClusterId(0xc105);
/// What cursors of simulated clusters carry.
pub(crate) const WATCH_CLUSTER: ClusterIdentity = ClusterIdentity(0xc105);
/// A node rests at least this long between two turns it asks for itself.
const TURN_MIN: Duration = Duration::from_micros(20);
/// More turns at one instant than any healthy node needs.
const TURNS_AT_ONCE: u32 = 2_000;
/// Every so many turns with something applied, all invariants of a shard are asserted.
const CHECK_EVERY: u64 = 8;
/// Every so many completed writes, the log is recovered from the platter while the node runs.
const PLATTER_EVERY: u64 = 400;
/// An input/output error, as Linux numbers it.
const EIO: i32 = 5;

/// Small limits, so that every one of them is reached.
pub fn limits() -> ClusterLimits {
    ClusterLimits {
        sessions: 60,
        keys_per_session: 8,
        waiters_per_key: 6,
        idle_keys: 12,
        claims: 100,
        ended_sessions: 40,
        state_bytes: 25_400,
        resource_claims: 12,
    }
}

/// A node: its machine, and the process on it if one runs.
pub struct Node {
    /// Its number.
    pub id: NodeId,
    pub(crate) identity: Identity,
    /// The process; `None` while it is down.
    pub shard: Option<Shard>,
    /// The disk, which outlives the process.
    pub disk: SimDisk,
    pub(crate) clock: Clock,
    /// Counts the starts of the process.
    pub(crate) life: u64,
    pub(crate) paused: bool,
    pub(crate) inbox: Vec<NodeInput>,
    /// What of it lies unread.
    pub(crate) ears: Ears,
    /// The true time of the next turn in the queue.
    wake: Time,
    turns_at: (Time, u32),
    pub(crate) disk_slow: Duration,
    pub(crate) fail_next: bool,
    /// An operation failed because it was told to.
    failed: bool,
    /// It dies in the midst of its next turn with something to do, for so long.
    pub(crate) die_in_turn: Option<Duration>,
    /// Operations under way, as the checkers read them.
    pending_ops: BTreeMap<OpId, DiskOp>,
    applied_turns: u64,
    writes: u64,
}

impl Node {
    /// A formatted node that has never started.
    pub(crate) fn format(index: usize, options: &Options, rng: &mut Rng) -> Node {
        let id = NodeId(index as u32 + 1);
        let identity = Identity {
            cluster: CLUSTER,
            cluster_name: Name::new("sim").expect("a name"),
            node: id,
            incarnation: Incarnation(u128::from(rng.next_u64())),
            shards: 1,
            voters: (1..=options.nodes as u32).map(NodeId).collect(),
            limits: limits(),
        };
        let mut disk = SimDisk::new();
        disk.put(&hard_state_file(SHARD), &initial_hard_state(&identity, SHARD));
        Node {
            id,
            identity,
            shard: None,
            disk,
            clock: Clock::draw(rng, options.clocks_ppm),
            life: 0,
            paused: false,
            inbox: Vec::new(),
            ears: Ears::default(),
            wake: Time::FAR,
            turns_at: (Time::ZERO, 0),
            disk_slow: Duration::ZERO,
            fail_next: false,
            failed: false,
            die_in_turn: None,
            pending_ops: BTreeMap::new(),
            applied_turns: 0,
            writes: 0,
        }
    }

    fn config(&self, options: &Options, rng: &mut Rng) -> ShardConfig {
        let o = &options.raft;
        let mut raft = palisade_raft::Config::new(self.id, SHARD, self.identity.voters.clone());
        raft.boot = self.life;
        raft.heartbeat = o.heartbeat;
        raft.election_min = o.election_min;
        raft.election_max = o.election_max;
        raft.inflight_messages_max = o.inflight_messages_max;
        raft.inflight_bytes_max = o.inflight_bytes_max;
        raft.append_bytes_max = o.append_bytes_max;
        raft.committed_blocks_max = o.committed_blocks_max;
        raft.disk_stall = o.disk_stall;
        raft.leases = options.leases;
        raft.log_keep_bytes = options.snapshots.keep_bytes;
        raft.snapshot_window = options.snapshots.window;
        raft.mutants = options.mutants;
        let mut wal = WalConfig::new(&self.identity, SHARD, rng.next_u64());
        wal.segment_bytes = options.disk.segment_bytes;
        wal.mutants = options.mutants;
        let s = &options.shard;
        let mut config = ShardConfig::new(self.id, raft, wal, limits());
        config.hash_seed = rng.next_u64();
        config.boot = self.life;
        config.expiry_slack = s.expiry_slack;
        config.releases_per_second = s.releases_per_second;
        config.in_hand_max = s.in_hand_max;
        config.log_bytes_max = s.log_bytes_max;
        config.block_commands = s.block_commands;
        config.light_commands = s.light_commands;
        config.commands_per_turn = s.commands_per_turn;
        config.lease_reads = options.leases;
        let every = options.snapshots.every_bytes;
        config.snapshot_bytes = if every == 0 { u64::MAX } else { every };
        config.snapshot_hold_bytes = every.saturating_mul(4);
        config.snapshot_slices = 1 + options.snapshots.window % 3;
        config.watch.cluster = WATCH_CLUSTER;
        config.watch.history_events = s.watch_history;
        config.watch.coalesce_behind = s.watch_behind;
        config.watch.deliveries_per_turn = s.watch_deliveries;
        config.mutants = options.mutants;
        config
    }
}

/// Blocks found in a write: the checkers' own reading of what the log wrote, by nothing but the
/// block's format. (The whole platter is recovered now and then, and at the end, to see that this
/// reading misses nothing.)
fn blocks_in(op: &DiskOp) -> Vec<Block> {
    let DiskOp::Write { parts, .. } = op else { return Vec::new() };
    let mut found = Vec::new();
    for buffer in parts.iter().flat_map(|(_, buffers)| buffers) {
        let mut rest = buffer.clone();
        while let Ok(len) = Block::length_of(&rest)
            && len <= rest.len()
            && let Ok(block) = Block::decode(rest.split_to(len))
        {
            found.push(block);
        }
    }
    found
}

/// Where the log begins anew, if this writes a batch that says so (`wal/FORMAT.md`, Batch).
fn restart_in(op: &DiskOp) -> Option<LogIndex> {
    let DiskOp::Write { parts, .. } = op else { return None };
    let head = parts.iter().filter_map(|(_, buffers)| buffers.first());
    let head = head.into_iter().find(|head| head.len() >= 104 && head.starts_with(b"PBAT"))?;
    let restarts = head[6] & 2 != 0;
    restarts.then(|| LogIndex(u64::from_le_bytes(head[96..104].try_into().expect("eight bytes"))))
}

impl World {
    /// A snapshot that a node has is on its platter, whole.
    fn look_at_snapshot(&mut self, node: usize) -> Checked {
        let n = &self.nodes[node];
        let Some(id) = n.shard.as_ref().and_then(Shard::snapshot) else { return Ok(()) };
        if self.raft.snapshot(node) == Some(id) {
            return Ok(());
        }
        read_snapshot(&n.disk.platter(), &n.identity, SHARD, id, |_| ())
            .map_err(|e| Violation::new("R8", format!("node {}'s snapshot is not on its disk: {e}", n.id)))?;
        self.snapshots += 1;
        self.raft.on_snapshot(node, id)
    }

    /// Starts a node's process from what its disk holds.
    pub(crate) fn start_node(&mut self, node: usize) -> Checked {
        if self.nodes[node].shard.is_some() || self.outside[node] {
            return Ok(());
        }
        let seed = self.rng.next_u64();
        let now = self.now;
        let n = &mut self.nodes[node];
        n.life += 1;
        n.paused = false;
        n.inbox.clear();
        n.ears = Ears::default();
        n.wake = Time::FAR;
        n.clock = n.clock.rebooted(&mut self.rng);
        n.disk.fail_in(u32::MAX, EIO);
        let recovered = recover_with(&n.disk, &n.identity, SHARD, self.options.mutants).map_err(|e| {
            Violation::new("R9", format!("node {} refuses to start after a mere crash: {e}", n.id))
        })?;
        let raised = recovered.notes.iter().find(|n| matches!(n, palisade_wal::Note::TermRaised { .. }));
        demand(raised.is_none(), "R14", || format!("node {}: {}", node + 1, raised.expect("there is one")))?;
        self.trace.event(now, 8, &[node as u64, recovered.hard_state.term.0, recovered.blocks.len() as u64]);
        self.trace.line(|| {
            let notes: Vec<String> = recovered.notes.iter().map(ToString::to_string).collect();
            format!(
                "n{} starts: {:?}, log to {}, {notes:?}",
                node + 1,
                recovered.hard_state,
                recovered.tail.last()
            )
        });
        let (hard_state, snapshot, base) = (recovered.hard_state, recovered.snapshot, recovered.base);
        self.raft.on_start(node, hard_state, snapshot, base, &recovered.blocks)?;
        let n = &mut self.nodes[node];
        let config = n.config(&self.options, &mut self.rng);
        let state = snapshot.map(|id| read_state(&n.disk, &n.identity, &config, id)).transpose();
        let state = state.map_err(|e| Violation::new("R8", format!("node {}: {e}", n.id)))?;
        if let (Some(id), Some(state)) = (snapshot, &state) {
            self.raft.on_state(node, id.last, state.digest())?;
            self.watched.on_begun_behind(id.last);
        }
        let shard = Shard::new(config, recovered, state, seed, n.clock.local(now));
        n.shard = Some(shard.map_err(|e| Violation::new("config", e.to_string()))?);
        self.run_turn(node)
    }

    /// Something arrives at a node.
    pub(crate) fn arrive(&mut self, node: usize, life: u64, input: NodeInput) -> Checked {
        let n = &self.nodes[node];
        let stale = match input {
            NodeInput::Disk { .. } => n.life != life,
            NodeInput::Peer { sent, .. } => self.phase != Phase::Storm && self.now.since(sent) > STALE,
            _ => false,
        };
        if stale {
            return Ok(());
        }
        if n.shard.is_none() {
            if let NodeInput::Connect { conn } = input {
                self.send_to_client(conn, |conn| ClientInput::Refused { conn });
            }
            return Ok(());
        }
        let n = &mut self.nodes[node];
        let Some(input) = n.ears.keep(n.clock, self.now, input) else { return Ok(()) };
        n.inbox.push(input);
        let turn = self.options.turn;
        if self.nodes[node].paused {
            return Ok(());
        }
        if turn.is_zero() {
            return self.run_turn(node);
        }
        self.schedule_turn(node, self.now + turn);
        Ok(())
    }

    fn schedule_turn(&mut self, node: usize, at: Time) {
        let n = &mut self.nodes[node];
        if at < n.wake {
            n.wake = at;
            self.queue.push(at, Event::Turn { node, life: n.life });
        }
    }

    /// A turn is due.
    pub(crate) fn turn(&mut self, node: usize, life: u64) -> Checked {
        let n = &self.nodes[node];
        if n.life != life || n.shard.is_none() || n.wake > self.now {
            return Ok(());
        }
        self.nodes[node].wake = Time::FAR;
        if self.nodes[node].paused {
            return Ok(());
        }
        self.run_turn(node)
    }

    /// One turn: all that has arrived, then what is due, then the actions.
    pub(crate) fn run_turn(&mut self, node: usize) -> Checked {
        let inbox = std::mem::take(&mut self.nodes[node].inbox);
        let Some(mut shard) = self.nodes[node].shard.take() else { return Ok(()) };
        let local = self.nodes[node].clock.local(self.now);
        let applied = shard.applied();
        let mut out = Actions::default();
        if self.options.leases {
            shard.lease_time(local);
        }
        for input in inbox {
            self.hand_over(node, local, &mut shard, input, &mut out)?;
        }
        // All that was readable has been handed over.
        if let Some(mark) = self.nodes[node].ears.mark() {
            shard.handle(local, mark, &mut out);
        }
        if self.options.leases {
            shard.serve_leases(local, local, &mut out);
        }
        shard.finish_turn(local, &mut out);
        shard.apply_turn(local, &mut out);
        self.nodes[node].ears.note_decisions(local, &shard);
        self.nodes[node].shard = Some(shard);
        let installed = out.notes.iter().filter_map(|note| match note {
            Note::SnapshotInstalled(id) => Some(*id),
            _ => None,
        });
        self.look(node, applied, installed.collect())?;
        self.perform(node, out)?;
        self.count_turn(node)
    }

    fn count_turn(&mut self, node: usize) -> Checked {
        let now = self.now;
        let n = &mut self.nodes[node];
        n.turns_at = if n.turns_at.0 == now { (now, n.turns_at.1 + 1) } else { (now, 1) };
        let turns = n.turns_at.1;
        demand(turns < TURNS_AT_ONCE, "L6", || format!("node {} takes turns without end", node + 1))?;
        let n = &self.nodes[node];
        let Some(shard) = &n.shard else { return Ok(()) };
        let next = n.clock.truth(shard.next_deadline());
        if next < Time::FAR {
            self.schedule_turn(node, next.max(now + TURN_MIN));
        }
        Ok(())
    }

    /// Turns what arrived into the shard's inputs, as the server does.
    fn hand_over(
        &mut self,
        node: usize,
        local: Time,
        shard: &mut Shard,
        input: NodeInput,
        out: &mut Actions,
    ) -> Checked {
        match input {
            NodeInput::Peer { from, bytes, .. } => {
                self.trace.event(self.now, 1, &[from as u64, node as u64]);
                self.trace.bytes(&bytes);
                let (_, message) = peer_codec::decode(&bytes)
                    .map_err(|e| Violation::new("codec", format!("a peer message does not decode: {e}")))?;
                self.trace.line(|| format!("n{} <- n{} {message:?}", node + 1, from + 1));
                shard.handle(local, Input::Peer { from: NodeId(from as u32 + 1), message }, out);
            }
            NodeInput::Disk { op, result } => {
                self.trace.event(self.now, 3, &[node as u64, op.0, u64::from(result.is_ok())]);
                shard.handle(local, Input::Disk { id: op, result }, out);
            }
            NodeInput::Connect { conn } => {
                if self.links.accept(conn, self.nodes[node].life) {
                    self.send_to_client(conn, |conn| ClientInput::Connected { conn });
                }
            }
            NodeInput::Bytes { conn, bytes } => {
                let leader = shard.leader();
                for (id, request) in self.receive(conn, node, leader, &bytes)? {
                    if let Request::Renew { sessions } = &request {
                        let now = self.now;
                        sessions.iter().for_each(|session| self.sessions.on_renewal(now, *session));
                    }
                    shard.handle(local, Input::Request { conn, id, request }, out);
                }
            }
            NodeInput::Congested { conn, on } => {
                let input = if on { Input::Congested { conn } } else { Input::Cleared { conn } };
                shard.handle(local, input, out);
            }
            NodeInput::HandOver => shard.handle(local, Input::HandOver, out),
            NodeInput::Closed { conn } => {
                if self.links.close_at_server(conn) {
                    shard.handle(local, Input::ConnClosed { conn }, out);
                }
            }
        }
        Ok(())
    }

    /// Looks at a node after a turn: its log, its status, what it applied, its state.
    fn look(&mut self, node: usize, before: LogIndex, installed: Vec<SnapshotId>) -> Checked {
        self.look_at_snapshot(node)?;
        let Node { shard: Some(shard), ears, .. } = &mut self.nodes[node] else { return Ok(()) };
        let (shard, raft) = (&*shard, shard.raft());
        let status = raft.status();
        let leads = (status.role == Role::Leader).then_some(status.term);
        let base = raft.base();
        if !self.raft.accepted_log(node).reaches(&base) {
            let id = raft.snapshot().filter(|id| id.edge() == base);
            let id = id.ok_or_else(|| {
                Violation::new("R8", format!("node {}'s log begins behind {base:?}", node + 1))
            })?;
            self.raft.on_installing(node, leads, id)?;
        }
        let (keep, new) = changes(self.raft.accepted_log(node), raft);
        if keep.is_some() || !new.is_empty() {
            self.raft.on_accepted(node, leads, keep, &new)?;
            if leads.is_some() {
                ears.on_proposed(&new, shard, self.options.shard.expiry_slack)?;
            }
        }
        self.raft.on_status(node, &status)?;
        let numbers = [
            node as u64,
            status.role as u64,
            status.term.0,
            status.last.0,
            status.durable.0,
            status.commit.0,
            shard.applied().0,
        ];
        self.trace.event(self.now, 5, &numbers);
        raft.check();
        let applied = shard.applied();
        let mut before = before;
        for id in installed {
            self.raft.on_installed(node, id)?;
            self.watched.on_begun_behind(id.last);
            before = before.max(id.last);
        }
        if applied >= before && applied > LogIndex(0) {
            let blocks: Vec<Block> =
                raft.blocks_after(before).take_while(|b| b.last() <= applied).cloned().collect();
            self.raft.on_applied(node, &blocks)?;
            self.raft.on_state(node, applied, shard.machine().digest())?;
            self.nodes[node].applied_turns += 1;
            if self.nodes[node].applied_turns.is_multiple_of(CHECK_EVERY)
                && let Some(shard) = &self.nodes[node].shard
            {
                shard.check();
            }
            self.witness.replay(self.now, self.raft.committed_blocks(), &mut self.sessions)?;
            if !self.watchers.is_empty() {
                self.watched.replay(self.raft.committed_blocks())?;
            }
        }
        Ok(())
    }

    /// Does what a node wants done.
    fn perform(&mut self, node: usize, out: Actions) -> Checked {
        for note in &out.notes {
            if let Note::Stalled { ms } = note {
                self.sessions.on_stall(Duration::from_millis(*ms));
            }
        }
        if self.trace.is_told() {
            for note in &out.notes {
                let note = match note {
                    Note::SessionEnded { session, cause } => format!("session {session} ended: {cause}"),
                    other => format!("{other:?}"),
                };
                self.trace.line(|| format!("n{} {note}", node + 1));
            }
        }
        if let Some(down) = self.nodes[node].die_in_turn.filter(|_| !out.is_empty()) {
            return self.die_in_turn(node, out, down);
        }
        if let Some(drain) = out.drain {
            self.nodes[node].ears.ask(drain);
            self.schedule_turn(node, self.now + TURN_MIN);
        }
        self.send_peers(node, &out.peers)?;
        self.answer(node, out.replies, out.pushes)?;
        for op in out.disk {
            self.begin_op(node, op);
        }
        match out.stop {
            None => Ok(()),
            Some(Stop::Apply(text)) => Err(Violation::new("R5", text)),
            Some(Stop::Disk(fault)) => {
                self.trace.line(|| format!("n{} stops: {fault}", node + 1));
                let failed = self.nodes[node].failed;
                demand(failed, "C", || format!("node {}'s disk fails by itself: {fault}", node + 1))?;
                self.crash_node(node, Some(Duration::from_millis(500)))
            }
        }
    }

    /// The process ends in the midst of a turn: some of what it was about to do is done, in no
    /// order that anybody could rely on.
    fn die_in_turn(&mut self, node: usize, out: Actions, down: Duration) -> Checked {
        let mut rng = self.rng.fork();
        let mut some = |_: &_| rng.per_mille(500);
        let peers: Vec<_> = out.peers.into_iter().filter(|m| some(&m.0)).collect();
        self.send_peers(node, &peers)?;
        if self.rng.per_mille(500) {
            self.answer(node, out.replies, out.pushes)?;
        }
        let begun = self.rng.below(out.disk.len() as u64 + 1) as usize;
        for op in out.disk.into_iter().take(begun) {
            self.begin_op(node, op);
        }
        self.crash_node(node, Some(down))
    }

    fn send_peers(&mut self, node: usize, peers: &[(NodeId, Message)]) -> Checked {
        for (to, message) in peers {
            durability::on_send(&self.raft, node, *to, message)?;
            let mut bytes = Vec::new();
            peer_codec::encode(SHARD, message, &mut bytes);
            let bytes = Bytes::from(bytes);
            let to = (to.0 - 1) as usize;
            for at in self.network.datagram(self.now, node, to) {
                let input = NodeInput::Peer { from: node, bytes: bytes.clone(), sent: self.now };
                self.queue.push(at, Event::Node { node: to, life: 0, input });
            }
        }
        Ok(())
    }

    fn begin_op(&mut self, node: usize, op: DiskOp) {
        let o = self.options.disk;
        let time = o.floor + Duration::from_nanos(self.rng.below(o.spread.as_nanos() as u64 + 1));
        let n = &mut self.nodes[node];
        let id = op.id();
        self.trace.event(self.now, 9, &[node as u64, id.0, op.bytes()]);
        n.disk.begin(op.clone());
        n.pending_ops.insert(id, op);
        self.queue.push(self.now + time + n.disk_slow, Event::Disk { node, life: n.life, op: id });
    }

    /// The disk is done: from now on the effect outlives a power failure.
    pub(crate) fn disk_done(&mut self, node: usize, life: u64, id: OpId) -> Checked {
        let n = &mut self.nodes[node];
        if n.life != life || n.shard.is_none() {
            return Ok(());
        }
        let Some(op) = n.pending_ops.remove(&id) else { return Ok(()) };
        if std::mem::take(&mut n.fail_next) {
            n.disk.fail_in(0, EIO);
            n.failed = true;
        }
        let result = n.disk.complete(id);
        if result.is_ok() {
            self.on_platter(node, &op)?;
        }
        self.arrive(node, life, NodeInput::Disk { op: id, result })
    }

    /// Tells the checkers what an operation has made durable.
    fn on_platter(&mut self, node: usize, op: &DiskOp) -> Checked {
        let n = &mut self.nodes[node];
        n.writes += 1;
        let check_all = n.writes.is_multiple_of(PLATTER_EVERY);
        if op.file() == hard_state_file(SHARD) {
            let bytes = palisade_wal::Source::read(&n.disk.platter(), op.file())
                .map_err(|e| Violation::new("R9", e.to_string()))?;
            let hard_state = read_hard_state(&n.identity, SHARD, &bytes)
                .map_err(|e| Violation::new("R9", format!("the hard state on the platter: {e}")))?;
            return self.raft.on_durable(node, Some(hard_state), None, &[]);
        }
        if let Some(last) = restart_in(op) {
            let id = self.raft.snapshot(node).filter(|id| id.last == last);
            let id = id.ok_or_else(|| {
                Violation::new("R8", format!("node {}'s log begins behind {last}", node + 1))
            })?;
            self.raft.on_install_durable(node, id)?;
        }
        for block in blocks_in(op) {
            let entry = Entry::from(&block);
            let overwrites = entry.first <= self.raft.durable_log(node).last();
            let cut = overwrites.then_some(entry.first.prev());
            self.raft.on_durable(node, None, cut, &[entry])?;
        }
        match check_all {
            true => self.compare_with_platter(node),
            false => Ok(()),
        }
    }

    /// Recovers a node from its platter, as after a power failure that loses all that is not
    /// synced, and demands that this is what the checkers hold for durable.
    pub(crate) fn compare_with_platter(&mut self, node: usize) -> Checked {
        let n = &self.nodes[node];
        let recovered = recover_with(&n.disk.platter(), &n.identity, SHARD, self.options.mutants)
            .map_err(|e| Violation::new("R9", format!("node {}'s platter: {e}", n.id)))?;
        let known = self.raft.durable_log(node);
        // A leader's snapshot that has its name already, and has not yet taken the place of the log, does so at
        // the next start.
        let restarts = recovered.notes.iter().any(|n| matches!(n, palisade_wal::Note::Restarted { .. }));
        let whole = self.raft.whole_log(node, recovered.base, &recovered.blocks)?;
        demand(restarts || whole == *known, "R9", || {
            format!(
                "node {}'s platter has a log up to {}, written was {}",
                n.id,
                recovered.tail.last(),
                known.last()
            )
        })?;
        let hard_state = self.raft.durable_hard_state(node);
        let same =
            (recovered.hard_state.term, recovered.hard_state.vote) == (hard_state.term, hard_state.vote);
        demand(same, "R9", || {
            format!("node {}'s platter has {:?}, written was {hard_state:?}", n.id, recovered.hard_state)
        })
    }

    /// The process ends: by a power failure, or killed. Comes back after `down`, if given.
    pub fn crash_node(&mut self, node: usize, down: Option<Duration>) -> Checked {
        if let Some(down) = down {
            self.queue.push(self.now + down, Event::Start { node });
        }
        let n = &mut self.nodes[node];
        if n.shard.take().is_none() {
            return Ok(());
        }
        let power = self.rng.per_mille(500);
        match power {
            true => n.disk.crash(&mut self.rng),
            false => n.disk.kill(&mut self.rng),
        }
        n.pending_ops.clear();
        n.inbox.clear();
        n.ears = Ears::default();
        n.paused = false;
        n.fail_next = false;
        n.failed = false;
        n.die_in_turn = None;
        let life = n.life;
        self.trace.event(self.now, 6, &[node as u64, u64::from(power)]);
        self.trace.line(|| format!("n{} {}", node + 1, if power { "loses power" } else { "is killed" }));
        self.raft.on_stop(node);
        self.break_links_of_node(node, life, power);
        Ok(())
    }
}

/// How a node's log in memory differs from what was last seen of it: where it was cut, and what was
/// added.
fn changes(seen: &Log, raft: &palisade_raft::Raft) -> (Option<LogIndex>, Vec<Block>) {
    // What the log begins behind was compared by its edge.
    let behind = |e: &Entry| e.last <= raft.base().index;
    let holds = |e: &Entry| {
        behind(e) || raft.blocks_after(e.last.prev()).next().is_some_and(|b| Entry::from(b) == *e)
    };
    let common = seen.last_where(holds);
    let cut = (common < seen.last()).then_some(common);
    (cut, raft.blocks_after(common).cloned().collect())
}

//! The end of a turn: the open block goes into the log, what Raft and the disk have ready is taken
//! apart in the one legal order, and what changed hands is answered.
//!
//! The order within one `Ready`: a new leadership first (its clocks start with its first applied
//! entry); the persist to the log, which alone makes anything durable; messages, which Raft has
//! already held back until they are true; committed blocks; then a lost leadership, after the last
//! answers it could still give.

use alloc::vec::Vec;

use palisade_raft::{Ready, Role, RoundError};
use palisade_types::{Block, BlockBuilder, ConnId, Mutant, NodeId, Refusal, Reply, RequestId, Term, Time};
use palisade_wire::Push;

use crate::action::{Actions, Note};
use crate::handover::HandOver;
use crate::pending::Origin;
use crate::rounds::{Item, Read};
use crate::shard::Shard;
use crate::watch::Turn;

impl Shard {
    /// Ends a turn: applies what is committed, within the bound of a turn, and answers. If this turn
    /// gave the disk something to do, not now but in the next turn, so that the disk works meanwhile;
    /// but not twice in a row. Then tells watchers, as many as a turn may.
    pub fn apply_turn(&mut self, now: Time, out: &mut Actions) {
        self.apply_committed(now, out);
        if out.stop.is_none() {
            self.take_slices(now, out);
        }
        let (applied, in_touch) = (self.applied, self.leader().is_some());
        let turn = Turn { now, applied, machine: &self.machine, in_touch, pushes: &mut out.pushes };
        self.watches.feed(turn);
    }

    fn apply_committed(&mut self, now: Time, out: &mut Actions) {
        let was_deferred = core::mem::take(&mut self.deferred);
        if !self.raft.has_committed() {
            return;
        }
        if self.fed_disk && !was_deferred {
            self.deferred = true;
            return;
        }
        let mut commands = self.config.commands_per_turn;
        while out.stop.is_none() && commands > 0 && self.raft.has_committed() {
            let ready = self.raft.take_ready();
            let taken: u32 = ready.committed.iter().map(Block::count).sum();
            commands = commands.saturating_sub(taken);
            self.take_apart(now, ready, out);
        }
        self.run_urgent(now, out);
        self.note_stages(now, out);
    }

    pub(crate) fn note_stages(&mut self, now: Time, out: &mut Actions) {
        if self.leading.is_some() {
            let (durable, commit) = (self.raft.durable(), self.raft.commit());
            self.stages.reached(now, durable, commit, self.applied, &mut out.passed);
        }
    }

    /// Seals, starts rounds, sends and persists until all that is under way.
    pub(crate) fn run_urgent(&mut self, now: Time, out: &mut Actions) {
        let mut moved = true;
        while moved && out.stop.is_none() {
            moved = false;
            self.seal_open_block(now, out);
            self.start_round(now, out);
            self.ask_leader(now, out);
            while out.stop.is_none() && self.raft.has_urgent() {
                let ready = self.raft.take_urgent();
                self.take_apart(now, ready, out);
                moved = true;
            }
            moved |= self.tend_snapshots(now, out);
            while let Some(op) = self.wal.poll_op(now) {
                out.disk.push(op);
            }
            // Here a write becomes durable: the log says so only after the sync came back, and
            // Raft counts or acknowledges it only from here on.
            if self.wal.durable() > self.persisted {
                self.persisted = self.wal.durable();
                self.pace.durable(now);
                self.raft.on_persisted(now, palisade_raft::PersistNumber(self.persisted));
                moved = true;
            }
        }
    }

    /// Proposes the open block once the disk is free and [`crate::pace`] lets it.
    fn seal_open_block(&mut self, now: Time, out: &mut Actions) {
        if self.leading.is_none() || self.open.is_empty() || !self.wal.is_idle() {
            return;
        }
        let all_in = self.pending.len() + self.open_origins.len() >= self.links.sessions();
        if self.raft.takes_proposals() && self.pace.may_seal(now, self.open.count(), all_in) {
            self.propose_open_block(now, out);
        }
    }

    /// Proposes what is in the open block, whatever the disk and the pace say.
    pub(crate) fn propose_open_block(&mut self, now: Time, out: &mut Actions) {
        let Some(term) = self.leading.filter(|_| !self.open.is_empty()) else { return };
        let builder = core::mem::take(&mut self.open);
        let origins = core::mem::take(&mut self.open_origins);
        match self.raft.propose(builder, self.clock.now_ms(now)) {
            Ok(block) => {
                assert_eq!(block.term(), term, "proposed in the term this shard leads in");
                self.pace.sealed(now, block.count());
                self.stages.sealed(now, self.opened_at, block.last(), block.count(), &mut out.passed);
                self.counters.blocks_sealed += 1;
                self.pending.proposed(block.term(), block.first(), origins);
            }
            // Raft stepped down and the shard has not read it yet: none of these was proposed.
            Err(_) => {
                let leader = self.leader_hint();
                for origin in origins {
                    refuse_origin(origin, Refusal::NotLeader { leader }, out);
                }
            }
        }
    }

    fn start_round(&mut self, now: Time, out: &mut Actions) {
        if !self.serving || !self.rounds.wants_start() {
            return;
        }
        match self.raft.start_round(now) {
            Ok(round) => {
                self.counters.rounds += 1;
                self.rounds.started(round.id, round.read_index);
            }
            Err(RoundError::NotReady) => {}
            Err(RoundError::NotLeader { leader }) => {
                for item in self.rounds.take_all() {
                    refuse_item(&item, leader, out);
                }
            }
        }
    }

    fn take_apart(&mut self, now: Time, ready: Ready, out: &mut Actions) {
        let change = ready.role_change;
        if let Some(change) = change
            && change.role == Role::Leader
        {
            if self.leading.is_some() {
                self.depose(None, out);
            }
            self.lead(change.term, out);
        }
        if let Some(persist) = ready.persist {
            match persist.install {
                Some(id) => self.wal.install(persist.number.0, id),
                None => self.wal.append(
                    persist.number.0,
                    persist.hard_state,
                    persist.truncate_after,
                    persist.blocks,
                    self.raft.commit(),
                ),
            }
        }
        out.peers.extend(ready.messages);
        self.read_chunks(ready.chunks_wanted);
        self.receive_chunks(ready.chunks_received);
        if let Some(id) = ready.install {
            self.depose(None, out);
            self.install_snapshot(now, id, out);
        }
        for block in &ready.committed {
            self.apply_block(now, block, out);
            if out.stop.is_some() {
                return;
            }
        }
        if let Some(id) = ready.confirmed
            && let Some((index, asks)) = self.rounds.confirmed(id)
        {
            asks.into_iter().for_each(|(node, ask)| self.raft.answer_read_index(node, ask, index));
        }
        if self.leading.is_some() {
            ready.questions.into_iter().for_each(|(node, ask)| self.rounds.ask(node, ask));
        }
        if let Some(answer) = ready.read_answer {
            self.on_read_answer(answer, out);
        }
        self.serve_rounds(now, out);
        self.serve_remote(now, out);
        self.serve_leased(now, out);
        self.note_hand_over(out);
        if let Some(change) = change
            && change.role != Role::Leader
        {
            if self.leading.is_some() {
                self.depose(change.leader, out);
            }
            self.follow_reads(change.leader, out);
            if let Some(leader) = change.leader {
                self.counters.leader_changes += 1;
                out.notes.push(Note::Following { leader, term: change.term });
            }
        }
    }

    fn lead(&mut self, term: Term, out: &mut Actions) {
        self.leading = Some(term);
        self.handover = HandOver::default();
        self.serving = false;
        self.sweeping = false;
        self.pace.restart();
        for read in self.remote.take_unanswered() {
            self.rounds.join(Item::Read(read));
        }
        self.counters.leader_changes += 1;
        out.notes.push(Note::Leading { term });
    }

    /// This node no longer leads. What is in its log may or may not take effect; what is not, will
    /// not. Clocks, waits and attachments end: they are the next leader's to make.
    fn depose(&mut self, leader: Option<NodeId>, out: &mut Actions) {
        let Some(term) = self.leading.take() else { return };
        let leader = leader.or_else(|| self.leader_hint());
        self.end_hand_over(leader, out);
        self.serving = false;
        self.sweeping = false;
        self.open = BlockBuilder::new();
        self.stages.clear();
        for origin in core::mem::take(&mut self.open_origins) {
            refuse_origin(origin, Refusal::NotLeader { leader }, out);
        }
        if !self.config.mutants.has(Mutant::B14) {
            for origin in self.pending.take_all() {
                refuse_origin(origin, Refusal::Interrupted { leader }, out);
            }
        }
        for item in self.rounds.take_all() {
            refuse_item(&item, leader, out);
        }
        self.leases.take_all().iter().for_each(|read| refuse_read(read, leader, out));
        if !self.config.mutants.has(Mutant::B20) {
            self.clocks.clear();
        }
        self.drains.clear();
        self.waits.clear();
        let conns: Vec<ConnId> = self.links.conns().collect();
        out.pushes.extend(conns.into_iter().map(|conn| (conn, Push::LeaderChanged { leader })));
        self.links.clear();
        out.notes.push(Note::Deposed { term });
    }
}

fn refuse_origin(origin: Origin, refusal: Refusal, out: &mut Actions) {
    if let Origin::Client { conn, id, .. } | Origin::Transfer { conn, id, .. } = origin {
        out.replies.push((conn, id, Reply::Refused(refusal)));
    }
}

pub(crate) fn refuse_read(read: &Read, leader: Option<NodeId>, out: &mut Actions) {
    out.replies.push((read.conn, read.id, Reply::Refused(Refusal::NotLeader { leader })));
}

fn refuse_item(item: &Item, leader: Option<NodeId>, out: &mut Actions) {
    let (conn, id): (ConnId, RequestId) = match item {
        Item::Read(Read { conn, id, .. })
        | Item::Renew { conn, id, .. }
        | Item::Attach { conn, id, .. }
        | Item::Claim { conn, id, .. } => (*conn, *id),
        Item::Expire(_) => return,
    };
    out.replies.push((conn, id, Reply::Refused(Refusal::NotLeader { leader })));
}

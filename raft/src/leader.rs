//! The leader: replicates, counts, and knows when it no longer leads (Raft paper, sections 5.3,
//! 5.4.2; thesis, sections 6.2 and 10.2.1).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use palisade_types::block::Seal;
use palisade_types::{Block, BlockBuilder, LogIndex, Mutant, NodeId, Time};

use crate::lease::Lease;
use crate::message::{Append, AppendReply, AppendResult, AskId, Message};
use crate::node::{Raft, State};
use crate::progress::{Progress, ProgressState};
use crate::rounds::Rounds;
use crate::transfer::Transfer;

/// Followers are told of what is committed after so long, should no block have told them by then. Under load the next
/// block does; a message of its own for each would cost more than it brings.
const COMMIT_TOLD_WITHIN: Duration = Duration::from_millis(5);

/// What a leader keeps for the length of its term.
#[derive(Debug)]
pub(crate) struct Leadership {
    /// The other voters.
    pub(crate) peers: BTreeMap<NodeId, Progress>,
    pub(crate) heartbeat_at: Time,
    /// When followers are told of what is committed, should no block have told them before. Their watchers wait
    /// for it.
    pub(crate) tell_at: Time,
    pub(crate) rounds: Rounds,
    pub(crate) lease: Lease,
    /// The newest question for a read index of each follower.
    pub(crate) asked: BTreeMap<NodeId, AskId>,
    /// The commit index the term began with.
    pub(crate) inherited_commit: LogIndex,
    pub(crate) transfer: Option<Transfer>,
}

impl Raft {
    /// An election is won. The first act is a block of the own term, with one empty command:
    /// without it nothing of earlier terms could be committed.
    pub(crate) fn become_leader(&mut self) {
        assert_eq!(self.vote, Some(self.config.id), "a leader voted for itself");
        let last = self.log.last().index;
        let others = self.membership.voters().iter().filter(|&&v| v != self.config.id);
        let peers = others.map(|&v| (v, Progress::new(last, self.now))).collect();
        let heartbeat_at = self.now + self.config.heartbeat;
        self.asking.clear();
        self.state = State::Leader(Leadership {
            peers,
            heartbeat_at,
            tell_at: Time::FAR,
            rounds: Rounds::default(),
            lease: Lease::default(),
            asked: BTreeMap::new(),
            inherited_commit: self.commit,
            transfer: None,
        });
        self.leader = Some(self.config.id);
        let mut builder = BlockBuilder::new();
        builder.push(|_| ());
        self.append_own(builder, 0);
        self.pump_all();
    }

    /// Seals a block behind the own log and takes it in.
    pub(crate) fn append_own(&mut self, builder: BlockBuilder, clock_ms: u64) -> Block {
        let last = self.log.last();
        let block = builder.seal(Seal {
            shard: self.config.shard,
            term: self.term,
            first: last.index.next(),
            clock_ms: clock_ms.max(last.clock_ms),
            prev_chain: last.chain,
        });
        self.log.push(block.clone());
        if self.config.mutants.has(Mutant::B13) {
            self.advance_commit();
        }
        block
    }

    pub(crate) fn tick_leader(&mut self) {
        if self.disk_is_stalled() || self.now >= self.quorum_deadline() {
            self.step_down();
            return;
        }
        let due = |at: fn(&Leadership) -> Time, raft: &Raft| matches!(&raft.state, State::Leader(lead) if raft.now >= at(lead));
        self.tick_transfer();
        if due(|lead| lead.heartbeat_at, self) {
            self.beat();
            self.send_invitation();
        }
        if due(|lead| lead.tell_at, self) {
            self.tell_commit();
        }
    }

    pub(crate) fn leader_deadline(&self, lead: &Leadership) -> Time {
        let stall = self.ledger.oldest_flight().map_or(Time::FAR, |at| at + self.config.disk_stall);
        let given_up = lead.transfer.as_ref().map_or(Time::FAR, |transfer| transfer.until);
        lead.heartbeat_at.min(lead.tell_at).min(self.quorum_deadline()).min(stall).min(given_up)
    }

    /// When the leader steps down unless more voters are heard from: a quorum, itself included,
    /// was last in contact one long election timeout before.
    fn quorum_deadline(&self) -> Time {
        let State::Leader(lead) = &self.state else { return Time::FAR };
        let contact = self.membership.reached(|v| lead.peers.get(&v).map_or(self.now, |p| p.contact));
        contact + self.config.election_max
    }

    /// An Append without blocks to everybody, at once. Its previous index is the end of what was
    /// sent, so a follower that lost something on the way finds out.
    pub(crate) fn send_heartbeats(&mut self) {
        let heartbeat_at = self.now + self.config.heartbeat;
        let State::Leader(lead) = &mut self.state else { return };
        lead.heartbeat_at = heartbeat_at;
        let peers: Vec<NodeId> = lead.peers.keys().copied().collect();
        for peer in peers {
            self.send_append(peer, false);
            self.pump_snapshot(peer);
        }
    }

    /// An Append without blocks to whoever has what is committed and does not know that it is.
    fn tell_commit(&mut self) {
        let commit = self.commit;
        let State::Leader(lead) = &mut self.state else { return };
        lead.tell_at = Time::FAR;
        let untold = |progress: &Progress| progress.told < commit && progress.next.prev() >= commit;
        let peers: Vec<NodeId> = lead.peers.iter().filter(|(_, p)| untold(p)).map(|(&id, _)| id).collect();
        for peer in peers {
            self.send_append(peer, false);
        }
    }

    /// Sends everybody what they may be sent.
    pub(crate) fn pump_all(&mut self) {
        let State::Leader(lead) = &self.state else { return };
        let peers: Vec<NodeId> = lead.peers.keys().copied().collect();
        for peer in peers {
            self.pump(peer);
        }
    }

    pub(crate) fn pump(&mut self, peer: NodeId) {
        loop {
            let State::Leader(lead) = &self.state else { return };
            let Some(progress) = lead.peers.get(&peer) else { return };
            if progress.state == ProgressState::Snapshot {
                return self.pump_snapshot(peer);
            }
            let room = progress.has_room(self.config.inflight_messages_max, self.config.inflight_bytes_max);
            // A probe is sent even with nothing to say: its answer is the news.
            let due = progress.next <= self.log.last().index || progress.state != ProgressState::Replicate;
            if !room || !due {
                return;
            }
            self.send_append(peer, true);
        }
    }

    fn send_append(&mut self, peer: NodeId, with_blocks: bool) {
        let State::Leader(lead) = &mut self.state else { return };
        let Some(progress) = lead.peers.get_mut(&peer) else { return };
        let prev = self.log.edge(progress.next.prev()).expect("sending starts at an edge");
        let mut blocks = Vec::new();
        let mut bytes = 0;
        if with_blocks {
            for block in self.log.after(prev.index) {
                let len = block.bytes().len();
                if !blocks.is_empty() && bytes + len > self.config.append_bytes_max {
                    break;
                }
                bytes += len;
                blocks.push(block.clone());
            }
        }
        let proved = blocks.last().map_or(prev.index, Block::last);
        if with_blocks {
            progress.on_sent(proved, bytes);
        }
        let commit = self.commit.min(proved);
        progress.told = progress.told.max(commit);
        if lead.tell_at != Time::FAR && lead.peers.values().all(|p| p.told >= self.commit) {
            lead.tell_at = Time::FAR;
        }
        let append = Append {
            term: self.term,
            prev_term: prev.term,
            prev_index: prev.index,
            commit,
            round: lead.rounds.started(),
            blocks,
        };
        self.mail.post(&self.ledger, peer, Message::Append(append));
    }

    pub(crate) fn on_append_reply(&mut self, from: NodeId, m: AppendReply) {
        if m.term != self.term {
            return;
        }
        let now = self.now;
        let State::Leader(lead) = &mut self.state else { return };
        let Some(progress) = lead.peers.get_mut(&from) else { return };
        progress.contact = now;
        if m.round <= lead.rounds.started() {
            progress.round = progress.round.max(m.round);
        }
        match m.result {
            AppendResult::Accepted { verified, durable } => {
                let known = self.log.may_be_edge(verified) && self.log.may_be_edge(durable);
                if !known || durable > verified {
                    return;
                }
                progress.on_accepted(verified, durable);
                self.advance_commit();
            }
            AppendResult::Rejected { prev_index, hint_index, hint_term } => {
                let below = hint_index.min(prev_index.prev());
                let edge = self.log.edge_at_most(below, hint_term);
                progress.on_rejected(prev_index, edge.map(|e| e.index), self.log.start().index);
            }
        }
        self.confirm_rounds();
        self.pump(from);
        self.invite();
    }

    /// Up to here a quorum's disks hold the log, the own disk counted like any other.
    pub(crate) fn quorum_index(&self, lead: &Leadership) -> LogIndex {
        let own = if self.config.mutants.has(Mutant::B13) {
            self.log.last().index
        } else {
            self.ledger.log_durable()
        };
        self.membership.reached(|v| lead.peers.get(&v).map_or(own, |p| p.match_index))
    }

    /// Commits what a quorum holds, if it is of this term; blocks of earlier terms are committed
    /// by what follows them (Raft paper, section 5.4.2 and figure 8).
    pub(crate) fn advance_commit(&mut self) {
        let State::Leader(lead) = &self.state else { return };
        let reached = self.quorum_index(lead);
        if reached <= self.commit {
            return;
        }
        let own_term = self.log.term_at(reached) == Some(self.term);
        if own_term || self.config.mutants.has(Mutant::B6) {
            self.commit = reached;
            let tell_at = self.now + COMMIT_TOLD_WITHIN;
            if let State::Leader(lead) = &mut self.state {
                lead.tell_at = tell_at;
            }
        }
    }
}

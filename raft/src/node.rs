//! The node: its state, the dispatch of events, and the work it hands out.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::take;

use palisade_types::time::nanos;
use palisade_types::{
    Block, BlockBuilder, Edge, HardState, LogIndex, Mutant, NodeId, Rng, SnapshotId, Term, Time,
};

use crate::asking::Asking;
use crate::config::{Config, ConfigError};
use crate::follower::Following;
use crate::leader::Leadership;
use crate::ledger::Ledger;
use crate::log::Log;
use crate::mail::Mail;
use crate::membership::Membership;
use crate::message::Message;
use crate::ready::{
    ChunkReceived, ChunkWanted, NotLeader, Persist, PersistNumber, ProposeError, Ready, Role, RoleChange,
    RoundId, Status, VoterStatus,
};
use crate::receiving::Receiving;

/// What a node finds on its disk at start.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Term and vote. The commit index in it is not used: what is committed is learned anew.
    pub hard_state: HardState,
    /// The newest durable snapshot. What it holds counts as committed and handed out.
    pub snapshot: Option<SnapshotId>,
    /// What the log begins behind: the snapshot's edge or an earlier one.
    pub base: Edge,
    /// The log from there, up to the snapshot's edge at least.
    pub blocks: Vec<Block>,
}

/// A (pre-)candidacy: who has answered what, and when to ask those again who have not.
#[derive(Debug)]
pub(crate) struct Candidacy {
    pub(crate) answers: BTreeMap<NodeId, bool>,
    pub(crate) resend_at: Time,
    /// The leader of the term before asked this node to stand.
    pub(crate) invited: bool,
}

/// The role with what belongs to it, so that nothing of an old role can be left over in a new one.
#[derive(Debug)]
pub(crate) enum State {
    Follower(Following),
    PreCandidate(Candidacy),
    Candidate(Candidacy),
    Leader(Leadership),
}

/// One node of one shard's Raft group.
#[derive(Debug)]
pub struct Raft {
    pub(crate) config: Config,
    pub(crate) membership: Membership,
    rng: Rng,
    /// The latest time heard of.
    pub(crate) now: Time,
    /// When this node started.
    pub(crate) started: Time,
    /// The clock of leases, as last handed in.
    pub(crate) lease_now: Option<Time>,
    pub(crate) term: Term,
    pub(crate) vote: Option<NodeId>,
    pub(crate) leader: Option<NodeId>,
    pub(crate) state: State,
    /// When a follower stands, or a candidate tries again.
    pub(crate) election_at: Time,
    /// When a leader of the present term was last heard.
    pub(crate) heard_at: Option<Time>,
    pub(crate) log: Log,
    pub(crate) ledger: Ledger,
    pub(crate) mail: Mail,
    pub(crate) commit: LogIndex,
    pub(crate) delivered: LogIndex,
    /// A round confirmed and not yet handed out.
    pub(crate) confirmed: Option<RoundId>,
    pub(crate) asking: Asking,
    /// The newest snapshot that is durable here.
    pub(crate) snapshot: Option<SnapshotId>,
    /// The log was cut as far as could be up to here.
    pub(crate) compacted: LogIndex,
    /// A snapshot on its way here.
    pub(crate) receiving: Option<Receiving>,
    /// Adopted, and not yet handed to the disk, or to the driver.
    pub(crate) install_persist: Option<SnapshotId>,
    pub(crate) install_state: Option<SnapshotId>,
    pub(crate) chunks_wanted: Vec<ChunkWanted>,
    pub(crate) chunks_received: Vec<ChunkReceived>,
    told: RoleChange,
}

impl Raft {
    /// A node as it comes back from its disk: a follower that knows no leader. Equal arguments and
    /// events give equal outputs; the seed decides the election timeouts.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: Config, restored: Restored, seed: u64, now: Time) -> Result<Raft, ConfigError> {
        config.validate()?;
        let mut log = Log::new(config.shard, restored.base);
        for block in restored.blocks {
            let last = log.last();
            if !log.follows(last, &block) || block.prev_chain() != last.chain {
                return Err(ConfigError::BrokenLog(block.first()));
            }
            log.push(block);
        }
        // Without a snapshot the log must begin at the beginning.
        let applied = restored.snapshot.map_or(Edge::default(), |id| id.edge());
        if log.edge(applied.index) != Some(applied) {
            return Err(ConfigError::BrokenSnapshot(applied.index));
        }
        let HardState { term, vote, commit: _ } = restored.hard_state;
        let last = log.last();
        let mut raft = Raft {
            membership: Membership::new(config.voters.clone()),
            rng: Rng::new(seed),
            now,
            started: now,
            lease_now: None,
            term,
            vote,
            leader: None,
            state: State::Follower(Following::default()),
            election_at: now,
            heard_at: None,
            ledger: Ledger::new(last.index, config.mutants.has(Mutant::B8)),
            mail: Mail::new(config.mutants.has(Mutant::B3)),
            log,
            commit: applied.index,
            delivered: applied.index,
            confirmed: None,
            asking: Asking::default(),
            snapshot: restored.snapshot,
            compacted: restored.base.index,
            receiving: None,
            install_persist: None,
            install_state: None,
            chunks_wanted: Vec::new(),
            chunks_received: Vec::new(),
            told: RoleChange { role: Role::Follower, term, leader: None },
            config,
        };
        if last.term > term {
            // A vote of an older term must not count in the newer one.
            raft.set_term(last.term, None);
        }
        raft.draw_election_at();
        Ok(raft)
    }

    /// Takes a message of another node of the shard. Messages of nodes that are no voters are ignored.
    ///
    /// # Panics
    /// When the message proves that logs have diverged or that a term has two leaders: going on
    /// would spread the damage.
    pub fn step(&mut self, now: Time, from: NodeId, message: Message) {
        self.advance(now);
        if from == self.config.id || !self.membership.contains(from) {
            return;
        }
        if let Some(term) = message.term()
            && term > self.term
        {
            if matches!(&message, Message::Vote(vote) if !self.is_invited(vote)) && self.is_sticky() {
                return;
            }
            self.adopt_term(term);
        }
        match message {
            Message::PreVote(m) => self.on_pre_vote(from, m),
            Message::PreVoteReply(m) => self.on_pre_vote_reply(from, m),
            Message::Vote(m) => self.on_vote(from, m),
            Message::VoteReply(m) => self.on_vote_reply(from, m),
            Message::Append(m) => self.on_append(from, m),
            Message::AppendReply(m) => self.on_append_reply(from, m),
            Message::ReadIndex(m) => self.on_read_index(from, m),
            Message::ReadIndexReply(m) => self.on_read_index_reply(from, m),
            Message::Snapshot(m) => self.on_snapshot(from, m),
            Message::SnapshotReply(m) => self.on_snapshot_reply(from, m),
            Message::TimeoutNow(m) => self.on_timeout_now(from, m),
        }
    }

    /// Does whatever is due: stands for election, sends heartbeats, steps down.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
        match self.state {
            State::Leader(_) => self.tick_leader(),
            State::Follower(_) | State::PreCandidate(_) | State::Candidate(_) => self.tick_election(),
        }
    }

    /// When [`Raft::tick`] next has something to do, if no other event comes before.
    pub fn next_deadline(&self) -> Time {
        match &self.state {
            State::Follower(_) => self.election_at,
            State::PreCandidate(c) | State::Candidate(c) => self.election_at.min(c.resend_at),
            State::Leader(lead) => self.leader_deadline(lead),
        }
    }

    /// Seals the commands into a block of this leader's term and replicates it. It is part of the
    /// next [`Ready::persist`]; committed it is only once it appears in [`Ready::committed`].
    /// `clock_ms` is raised to the clock of the block before if it is behind it.
    ///
    /// # Errors
    /// [`ProposeError`]; the commands are dropped.
    ///
    /// # Panics
    /// When the builder is empty.
    pub fn propose(&mut self, builder: BlockBuilder, clock_ms: u64) -> Result<Block, ProposeError> {
        if !matches!(self.state, State::Leader(_)) {
            return Err(NotLeader { leader: self.leader }.into());
        }
        if !self.takes_proposals() {
            return Err(ProposeError::HandingOver);
        }
        let block = self.append_own(builder, clock_ms);
        self.pump_all();
        Ok(block)
    }

    /// Persists up to `number` are durable, in whole and in order. Numbers already reported are ignored.
    ///
    /// # Panics
    /// On a number never handed out.
    pub fn on_persisted(&mut self, now: Time, number: PersistNumber) {
        self.advance(now);
        self.ledger.on_durable(number);
        self.mail.release(&self.ledger);
        self.compact();
        match self.state {
            State::Follower(_) => self.acknowledge_again(),
            State::PreCandidate(_) => {}
            State::Candidate(_) => self.count_own_vote(),
            State::Leader(_) => self.advance_commit(),
        }
    }

    /// Whether [`Raft::take_ready`] has anything to give.
    pub fn has_ready(&self) -> bool {
        self.has_committed() || self.has_urgent()
    }

    /// Whether committed blocks wait to be handed out by [`Raft::take_ready`].
    pub fn has_committed(&self) -> bool {
        self.delivered < self.commit
    }

    /// Whether [`Raft::take_urgent`] has anything to give.
    pub fn has_urgent(&self) -> bool {
        !self.mail.is_empty()
            || self.confirmed.is_some()
            || !self.asking.is_empty()
            || self.install_state.is_some()
            || !self.chunks_wanted.is_empty()
            || !self.chunks_received.is_empty()
            || self.told != self.standing()
            || self.must_persist()
    }

    /// Whether the log or the hard state in memory is ahead of what was handed out to be persisted.
    pub fn has_unsubmitted(&self) -> bool {
        self.must_persist()
    }

    /// Hands out the work that has gathered.
    pub fn take_ready(&mut self) -> Ready {
        let committed = self.deliver();
        self.invite();
        Ready { committed, ..self.take_others() }
    }

    /// Hands out what others wait for, messages and persists, and leaves committed blocks for later:
    /// applying them can go on while disks and networks work. Only before a change of role they come
    /// along, so that a leader that steps down has given the answers it could.
    pub fn take_urgent(&mut self) -> Ready {
        if self.told != self.standing() {
            return self.take_ready();
        }
        self.take_others()
    }

    fn take_others(&mut self) -> Ready {
        let standing = self.standing();
        let role_change = (self.told != standing).then_some(standing);
        self.told = standing;
        let persist = self.must_persist().then(|| self.submit());
        Ready {
            messages: self.mail.take(),
            persist,
            install: take(&mut self.install_state),
            committed: Vec::new(),
            confirmed: take(&mut self.confirmed),
            questions: take(&mut self.asking.questions),
            read_answer: take(&mut self.asking.answer),
            role_change,
            chunks_wanted: take(&mut self.chunks_wanted),
            chunks_received: take(&mut self.chunks_received),
        }
    }

    /// The blocks of the log in memory that end after this index, in order. For checkers.
    pub fn blocks_after(&self, index: LogIndex) -> impl Iterator<Item = &Block> {
        self.log.after(index)
    }

    /// Committed, as far as this node knows.
    pub fn commit(&self) -> LogIndex {
        self.commit
    }

    /// The own disk holds the log up to here.
    pub fn durable(&self) -> LogIndex {
        self.ledger.log_durable()
    }

    /// The leader of the present term, if known.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// What can be seen from outside.
    pub fn status(&self) -> Status {
        let voters = match &self.state {
            State::Leader(lead) => lead
                .peers
                .iter()
                .map(|(&node, p)| VoterStatus {
                    node,
                    match_index: p.match_index,
                    next: p.next,
                    state: p.state,
                })
                .collect(),
            State::Follower(_) | State::PreCandidate(_) | State::Candidate(_) => Vec::new(),
        };
        let last = self.log.last();
        Status {
            id: self.config.id,
            role: self.role(),
            term: self.term,
            vote: self.vote,
            leader: self.leader,
            last: last.index,
            last_term: last.term,
            base: self.log.start().index,
            snapshot: self.snapshot.map_or(LogIndex(0), |id| id.last),
            durable: self.ledger.log_durable(),
            commit: self.commit,
            delivered: self.delivered,
            voters,
        }
    }

    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(crate) fn role(&self) -> Role {
        match self.state {
            State::Follower(_) => Role::Follower,
            State::PreCandidate(_) => Role::PreCandidate,
            State::Candidate(_) => Role::Candidate,
            State::Leader(_) => Role::Leader,
        }
    }

    fn standing(&self) -> RoleChange {
        RoleChange { role: self.role(), term: self.term, leader: self.leader }
    }

    /// The one place where term and vote change.
    pub(crate) fn set_term(&mut self, term: Term, vote: Option<NodeId>) {
        assert!(term >= self.term, "terms never go back");
        assert!(term > self.term || self.vote.is_none() || self.vote == vote, "one vote a term");
        if term > self.term {
            self.mail.drop_held();
            self.asking.clear();
            self.leader = None;
            self.heard_at = None;
            self.chunks_wanted.clear();
        }
        self.term = term;
        self.vote = vote;
        self.ledger.on_hard_changed();
    }

    /// Somebody is in a later term: follow into it.
    fn adopt_term(&mut self, term: Term) {
        let stood_down = matches!(self.state, State::Leader(_));
        self.set_term(term, None);
        self.confirmed = None;
        self.state = State::Follower(Following::default());
        if stood_down {
            self.draw_election_at();
        }
    }

    /// A leader gives up its role and stays in its term.
    pub(crate) fn step_down(&mut self) {
        assert!(matches!(self.state, State::Leader(_)), "only a leader steps down");
        self.leader = None;
        self.confirmed = None;
        self.asking.clear();
        self.chunks_wanted.clear();
        self.state = State::Follower(Following::default());
        self.draw_election_at();
    }

    /// Draws the time of the next election anew.
    pub(crate) fn draw_election_at(&mut self) {
        let wait = self.rng.between(nanos(self.config.election_min), nanos(self.config.election_max));
        self.election_at = Time(self.now.0.saturating_add(wait));
    }

    /// Whether the disk has been busy with one persist for too long.
    pub(crate) fn disk_is_stalled(&self) -> bool {
        self.ledger.oldest_flight().is_some_and(|at| at + self.config.disk_stall <= self.now)
    }

    fn must_persist(&self) -> bool {
        self.ledger.hard_is_unsubmitted()
            || self.install_persist.is_some()
            || self.ledger.truncation_is_unsubmitted()
            || self.ledger.log_submitted() < self.log.last().index
    }

    /// Everything that is accepted and not yet handed to the disk, hard state included. The installation
    /// of a snapshot goes alone, behind the hard state and before what follows it.
    fn submit(&mut self) -> Persist {
        let hard = self.ledger.hard_is_unsubmitted();
        let (upto, install) = match self.install_persist {
            None => (self.log.last().index, None),
            Some(_) if hard => (self.ledger.log_submitted(), None),
            Some(id) => (id.last, self.install_persist.take()),
        };
        let after = self.ledger.log_submitted();
        let blocks: Vec<Block> =
            self.log.after(after).take_while(|b| b.last() <= upto && install.is_none()).cloned().collect();
        let late = self.config.mutants.has(Mutant::B9) && !blocks.is_empty();
        let hard = hard && !late;
        let (number, truncate_after) = self.ledger.submit(self.now, upto, hard);
        let hard_state = hard.then_some(HardState {
            term: self.term,
            vote: self.vote,
            // No more than the disk already holds, so that the hint is true of what is on it.
            commit: self.commit.min(self.ledger.log_durable()),
        });
        Persist { number, hard_state, install, truncate_after, blocks }
    }

    fn deliver(&mut self) -> Vec<Block> {
        if self.delivered == self.commit {
            return Vec::new();
        }
        let blocks: Vec<Block> = self
            .log
            .after(self.delivered)
            .take_while(|b| b.last() <= self.commit)
            .take(self.config.committed_blocks_max)
            .cloned()
            .collect();
        self.delivered = blocks.last().expect("a commit index is an edge above what was delivered").last();
        blocks
    }
}

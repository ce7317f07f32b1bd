//! A cluster in memory: nodes, their disks, and the wire between them. Nothing moves by itself.

use std::collections::{BTreeMap, VecDeque};

use palisade_raft::{
    AskId, Config, Message, Persist, PersistNumber, ProposeError, Raft, ReadAnswer, Restored, Role,
    RoleChange, Round, RoundError, RoundId, Status,
};
use palisade_types::{Block, BlockBuilder, Edge, HardState, LogIndex, NodeId, ShardId, Term, Time};

use crate::judge::Judge;
use crate::snapshots::{Incoming, Taken};

/// What survives a crash.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) hard_state: HardState,
    /// What the log begins behind.
    pub(crate) base: Edge,
    pub(crate) blocks: Vec<Block>,
    pub(crate) snapshot: Option<Taken>,
    /// A snapshot received whole, while the log does not begin behind it yet.
    pub(crate) received: Option<Taken>,
}

impl Disk {
    /// The end of the log.
    pub(crate) fn last(&self) -> LogIndex {
        self.blocks.last().map_or(self.base.index, Block::last)
    }

    pub(crate) fn perform(&mut self, persist: &Persist) {
        if let Some(hard_state) = persist.hard_state {
            assert!(hard_state.term >= self.hard_state.term, "the durable term went back");
            self.hard_state = hard_state;
        }
        if let Some(id) = persist.install {
            let received = self.received.take().expect("what is installed is durable");
            assert_eq!(received.id, id, "the snapshot that was received is installed");
            self.install(received);
        }
        if let Some(keep) = persist.truncate_after {
            assert!(keep >= self.base.index, "what a snapshot holds is never cut");
            self.blocks.retain(|b| b.last() <= keep);
        }
        for block in &persist.blocks {
            assert_eq!(block.first(), self.last().next(), "blocks reach the disk without a gap");
            assert!(block.term() <= self.hard_state.term, "a block is durable before its term");
            self.blocks.push(block.clone());
        }
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) config: Config,
    pub(crate) raft: Raft,
    pub(crate) disk: Disk,
    pub(crate) pending: VecDeque<Persist>,
    /// A snapshot that is being written.
    pub(crate) taken: Option<Taken>,
    /// A snapshot that is being received.
    pub(crate) incoming: Option<Incoming>,
    /// All that the state holds, also what came with a snapshot.
    pub(crate) applied: Vec<Block>,
    pub(crate) confirmed: Option<RoundId>,
    pub(crate) questions: Vec<(NodeId, AskId)>,
    pub(crate) read_answer: Option<ReadAnswer>,
}

impl Node {
    /// What is in memory, as far as it was handed out: the disk with all pending persists done.
    pub(crate) fn accepted(&self) -> Disk {
        let mut disk = self.disk.clone();
        for persist in &self.pending {
            disk.perform(persist);
        }
        disk
    }

    /// The log of that.
    pub(crate) fn memory(&self) -> Vec<Block> {
        self.accepted().blocks
    }
}

#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) message: Message,
}

pub(crate) struct Cluster {
    pub(crate) now: Time,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) wire: Vec<Packet>,
    /// How many packets were put on it.
    pub(crate) sent: usize,
    pub(crate) judge: Judge,
    pub(crate) trace: Vec<String>,
    boots: u64,
    seed: u64,
}

/// A log with one block of one command for each term given. Equal prefixes give equal blocks.
pub(crate) fn log_of_terms(terms: &[u64]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for &term in terms {
        let mut builder = BlockBuilder::new();
        builder.push(|bytes| bytes.extend_from_slice(b"old"));
        let last = blocks.last();
        blocks.push(builder.seal(palisade_types::block::Seal {
            shard: ShardId(0),
            term: Term(term),
            first: last.map_or(LogIndex(1), |b| b.last().next()),
            clock_ms: 0,
            prev_chain: last.map_or(0, Block::chain),
        }));
    }
    blocks
}

impl Cluster {
    /// A cluster whose nodes start with these logs; each is in the term of its last block.
    pub(crate) fn with_logs(logs: &[&[u64]], seed: u64, adjust: impl Fn(&mut Config)) -> Cluster {
        let voters: Vec<NodeId> = (1..=logs.len() as u32).map(NodeId).collect();
        let mut cluster = Cluster {
            now: Time::from_millis(1000),
            nodes: BTreeMap::new(),
            wire: Vec::new(),
            sent: 0,
            judge: Judge::default(),
            trace: Vec::new(),
            boots: 0,
            seed,
        };
        for (&id, terms) in voters.iter().zip(logs) {
            let mut config = Config::new(id, ShardId(0), voters.clone());
            adjust(&mut config);
            let term = Term(terms.last().copied().unwrap_or(0));
            let hard_state = HardState { term, ..HardState::default() };
            let disk = Disk { hard_state, blocks: log_of_terms(terms), ..Disk::default() };
            let raft = cluster.boot(&config, &disk);
            let node = Node {
                id,
                config,
                raft,
                disk,
                pending: VecDeque::new(),
                taken: None,
                incoming: None,
                applied: Vec::new(),
                confirmed: None,
                questions: Vec::new(),
                read_answer: None,
            };
            cluster.nodes.insert(id, node);
        }
        cluster
    }

    pub(crate) fn new(size: usize) -> Cluster {
        Cluster::with_logs(&vec![&[][..]; size], 1, |_| ())
    }

    fn boot(&mut self, config: &Config, disk: &Disk) -> Raft {
        self.boots += 1;
        let restored = Restored {
            hard_state: disk.hard_state,
            snapshot: disk.snapshot.as_ref().map(|s| s.id),
            base: disk.base,
            blocks: disk.blocks.clone(),
        };
        let seed = self.seed.wrapping_mul(1_000_003) + self.boots;
        Raft::new(config.clone(), restored, seed, self.now).expect("a valid configuration")
    }

    pub(crate) fn node(&mut self, id: u32) -> &mut Node {
        self.nodes.get_mut(&NodeId(id)).expect("a node of the cluster")
    }

    pub(crate) fn status(&self, id: u32) -> Status {
        self.nodes[&NodeId(id)].raft.status()
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.nodes.keys().map(|n| n.0).collect()
    }

    fn note(&mut self, line: String) {
        self.trace.push(line);
    }

    /// Takes what a node hands out: messages onto the wire, persists into its queue.
    pub(crate) fn ready(&mut self, id: u32) -> bool {
        let mut any = false;
        while self.node(id).raft.has_ready() {
            any = true;
            let node = self.node(id);
            let ready = node.raft.take_ready();
            node.raft.check();
            let from = node.id;
            for (to, message) in ready.messages {
                self.judge.on_send(&self.nodes[&from], to, &message);
                self.note(format!("  {from} sends {to} {}", show(&message)));
                self.wire.push(Packet { from, to, message });
                self.sent += 1;
            }
            if let Some(persist) = ready.persist {
                self.note(format!("  {from} persists {}", show_persist(&persist)));
                self.node(id).pending.push_back(persist);
            }
            if let Some(RoleChange { role, term, leader }) = ready.role_change {
                self.judge.on_role(&self.nodes[&from], role, term);
                let leader = leader.map_or_else(|| "none".into(), |l| l.to_string());
                self.note(format!("  {from} is {role:?} in term {term}, leader {leader}"));
            }
            if let Some(id) = ready.install {
                self.install(from, id);
                self.note(format!("  {from} installs {}@{}", id.last, id.term));
            }
            self.move_chunks(from, ready.chunks_wanted, ready.chunks_received);
            if !ready.committed.is_empty() {
                let before = self.node(id).applied.len();
                let disks: Vec<&Disk> = self.nodes.values().map(|n| &n.disk).collect();
                self.judge.on_committed(&ready.committed, before, &disks);
                self.note(format!("  {from} applies {}", show_blocks(&ready.committed)));
                self.node(id).applied.extend(ready.committed);
            }
            if let Some(id_of_round) = ready.confirmed {
                self.judge.on_confirmed(from, id_of_round);
                self.note(format!("  {from} confirms round {}.{}", id_of_round.term, id_of_round.counter));
                self.node(id).confirmed = Some(id_of_round);
            }
            self.node(id).questions.extend(ready.questions);
            if ready.read_answer.is_some() {
                self.node(id).read_answer = ready.read_answer;
            }
        }
        any
    }

    /// The disk of a node finishes its oldest persists.
    pub(crate) fn persist(&mut self, id: u32, count: usize) -> bool {
        let now = self.now;
        let node = self.node(id);
        let mut done = PersistNumber(0);
        for _ in 0..count.min(node.pending.len()) {
            let persist = node.pending.pop_front().expect("counted");
            node.disk.perform(&persist);
            done = persist.number;
        }
        if done == PersistNumber(0) {
            return false;
        }
        node.raft.on_persisted(now, done);
        node.raft.check();
        self.note(format!("  {id} has persisted {done}"));
        true
    }

    /// Delivers one packet.
    pub(crate) fn deliver(&mut self, packet: Packet) {
        let now = self.now;
        let node = self.node(packet.to.0);
        node.raft.step(now, packet.from, packet.message);
        node.raft.check();
    }

    /// Takes the packets of one link, or all, off the wire.
    pub(crate) fn take_packets(&mut self, from: Option<u32>, to: Option<u32>) -> Vec<Packet> {
        let taken = |p: &Packet| from.is_none_or(|f| p.from.0 == f) && to.is_none_or(|t| p.to.0 == t);
        let (take, keep) = std::mem::take(&mut self.wire).into_iter().partition(taken);
        self.wire = keep;
        take
    }

    pub(crate) fn tick(&mut self, id: u32) {
        let now = self.now;
        let node = self.node(id);
        node.raft.tick(now);
        node.raft.check();
        let next = node.raft.next_deadline();
        assert!(next > now, "node {id} has just done what is due at {next}");
    }

    /// Loses what was not persisted and starts again from the disk.
    pub(crate) fn restart(&mut self, id: u32) {
        self.node(id).config.boot += 1;
        self.node(id).disk.recover();
        let (config, disk) = (self.node(id).config.clone(), self.node(id).disk.clone());
        let raft = self.boot(&config, &disk);
        let node = self.node(id);
        node.raft = raft;
        node.pending.clear();
        node.taken = None;
        node.incoming = None;
        let applied = node.raft.status().delivered;
        let applied = self.judge.committed_upto(applied);
        let node = self.node(id);
        node.applied = applied;
        node.confirmed = None;
        node.questions.clear();
        node.read_answer = None;
        node.raft.check();
    }

    /// One node hands out and persists until it has nothing left to do.
    pub(crate) fn settle_follower(&mut self, id: u32) {
        while self.ready(id) || self.persist(id, usize::MAX) {}
    }

    /// Until nothing moves: everything handed out, persisted and delivered among these nodes;
    /// packets of others are lost.
    pub(crate) fn settle(&mut self, among: &[u32]) {
        for _ in 0..10_000 {
            let mut moved = false;
            for &id in among {
                moved |= self.ready(id);
                moved |= self.persist(id, usize::MAX);
            }
            for packet in self.take_packets(None, None) {
                if among.contains(&packet.to.0) && among.contains(&packet.from.0) {
                    moved = true;
                    self.deliver(packet);
                }
            }
            if !moved {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    /// Time passes among these nodes, each acting when it is due, with a perfect network.
    pub(crate) fn run(&mut self, among: &[u32], millis: u64) {
        let end = Time(self.now.0 + millis * 1_000_000);
        loop {
            self.settle(among);
            let next = among.iter().map(|&id| self.node(id).raft.next_deadline()).min().expect("a node");
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            for &id in among {
                if self.node(id).raft.next_deadline() <= self.now {
                    self.tick(id);
                }
            }
        }
    }

    /// Makes a node leader of these nodes.
    pub(crate) fn elect(&mut self, id: u32, among: &[u32]) {
        self.now = Time(self.now.0 + 3_000_000_000);
        self.tick(id);
        self.settle(among);
        assert_eq!(self.status(id).role, Role::Leader, "node {id} leads");
    }

    pub(crate) fn propose(&mut self, id: u32, text: &str) -> Result<Block, ProposeError> {
        let clock_ms = self.now.as_millis();
        let mut builder = BlockBuilder::new();
        builder.push(|bytes| bytes.extend_from_slice(text.as_bytes()));
        let result = self.node(id).raft.propose(builder, clock_ms);
        self.node(id).raft.check();
        result
    }

    pub(crate) fn round(&mut self, id: u32) -> Result<Round, RoundError> {
        let now = self.now;
        let round = self.node(id).raft.start_round(now)?;
        self.judge.on_round(NodeId(id), round);
        self.node(id).raft.check();
        Ok(round)
    }

    /// The nodes that believe they lead.
    pub(crate) fn leaders(&self) -> Vec<u32> {
        let leads = |n: &&Node| n.raft.status().role == Role::Leader;
        self.nodes.values().filter(leads).map(|n| n.id.0).collect()
    }
}

fn show_blocks(blocks: &[Block]) -> String {
    let show = |b: &Block| match b.count() {
        1 => format!("{}@{}", b.last(), b.term()),
        _ => format!("{}-{}@{}", b.first(), b.last(), b.term()),
    };
    let all: Vec<String> = blocks.iter().map(show).collect();
    format!("[{}]", all.join(" "))
}

fn show_persist(persist: &Persist) -> String {
    let mut out = persist.number.to_string();
    if let Some(HardState { term, vote, commit }) = persist.hard_state {
        let vote = vote.map_or_else(|| "none".into(), |v| v.to_string());
        out += &format!(" hard(term {term} vote {vote} commit {commit})");
    }
    if let Some(id) = persist.install {
        out += &format!(" install({}@{})", id.last, id.term);
    }
    if let Some(keep) = persist.truncate_after {
        out += &format!(" keep({keep})");
    }
    if !persist.blocks.is_empty() {
        out += &format!(" {}", show_blocks(&persist.blocks));
    }
    out
}

/// A message in one line; positions are written index@term.
pub(crate) fn show(message: &Message) -> String {
    use palisade_raft::AppendResult::{Accepted, Rejected};
    match message {
        Message::PreVote(m) => format!("PreVote term {} last {}@{}", m.term, m.last_index, m.last_term),
        Message::PreVoteReply(m) => {
            format!("PreVoteReply term {} asked {} {}", m.term, m.asked, if m.granted { "yes" } else { "no" })
        }
        Message::Vote(m) => {
            let invited = if m.invited { " invited" } else { "" };
            format!("Vote term {} last {}@{}{invited}", m.term, m.last_index, m.last_term)
        }
        Message::VoteReply(m) => {
            format!("VoteReply term {} {}", m.term, if m.granted { "yes" } else { "no" })
        }
        Message::Append(m) => format!(
            "Append term {} prev {}@{} commit {} round {} {}",
            m.term,
            m.prev_index,
            m.prev_term,
            m.commit,
            m.round,
            show_blocks(&m.blocks)
        ),
        Message::AppendReply(m) => match m.result {
            Accepted { verified, durable } => format!(
                "AppendReply term {} round {} accepted verified {verified} durable {durable}",
                m.term, m.round
            ),
            Rejected { prev_index, hint_index, hint_term } => format!(
                "AppendReply term {} round {} rejected {prev_index} hint {hint_index}@{hint_term}",
                m.term, m.round
            ),
        },
        Message::Snapshot(m) => format!(
            "Snapshot term {} round {} {}@{} chunk {} of {}",
            m.term, m.round, m.id.last, m.id.term, m.chunk, m.id.chunks
        ),
        Message::SnapshotReply(m) => {
            format!(
                "SnapshotReply term {} round {} {}@{} have {}",
                m.term, m.round, m.id.last, m.id.term, m.have
            )
        }
        Message::ReadIndex(m) => format!("ReadIndex term {} ask {}.{}", m.term, m.ask.boot, m.ask.count),
        Message::ReadIndexReply(m) => {
            format!("ReadIndexReply term {} ask {}.{} {:?}", m.term, m.ask.boot, m.ask.count, m.index)
        }
        Message::TimeoutNow(m) => format!("TimeoutNow term {} last {}", m.term, m.last_index),
    }
}

//! Snapshots in the test cluster, and their rules. The state of a node is the list of what it applied,
//! named by the last chain hash; its snapshot is that hash spread over some chunks.

use bytes::Bytes;
use palisade_raft::{
    Append, AppendReply, AppendResult, ChunkReceived, ChunkWanted, ConfigError, Message, ProgressState, Raft,
    Restored, Snapshot, SnapshotReply,
};
use palisade_types::hash::hash128;
use palisade_types::{Block, Edge, HardState, LogIndex, Mutant, Mutants, NodeId, SnapshotId, Term};

use crate::cluster::{Cluster, Disk, Packet, log_of_terms};

/// A snapshot as a file.
#[derive(Clone)]
pub(crate) struct Taken {
    pub(crate) id: SnapshotId,
    pub(crate) chunks: Vec<Bytes>,
}

/// A snapshot on its way.
pub(crate) struct Incoming {
    id: SnapshotId,
    chunks: Vec<Bytes>,
}

/// The digest over the chunks.
fn digest(chunks: &[Bytes]) -> u128 {
    hash128(&chunks.concat())
}

impl Taken {
    /// The snapshot at this edge: the same wherever it is taken.
    pub(crate) fn at(edge: Edge) -> Taken {
        let count = 1 + edge.index.0 % 5;
        let chunk = |n: u64| Bytes::from([&edge.chain.to_le_bytes()[..], &n.to_le_bytes()[..]].concat());
        let chunks: Vec<Bytes> = (0..count).map(chunk).collect();
        let id = SnapshotId {
            last: edge.index,
            term: edge.term,
            chain: edge.chain,
            clock_ms: edge.clock_ms,
            bytes: chunks.iter().map(|c| c.len() as u64).sum(),
            chunks: count as u32,
            digest: digest(&chunks),
        };
        Taken { id, chunks }
    }
}

impl Disk {
    /// Whether the log holds this block, or a snapshot of what it holds does.
    pub(crate) fn holds(&self, block: &Block) -> bool {
        block.last() <= self.base.index || self.blocks.contains(block)
    }

    /// A received snapshot takes the place of the log; a newer one of its own stays what it is.
    pub(crate) fn install(&mut self, received: Taken) {
        self.base = received.id.edge();
        self.blocks.clear();
        if self.snapshot.as_ref().is_none_or(|own| own.id.last < received.id.last) {
            self.snapshot = Some(received);
        }
    }

    /// The log is cut up to this edge, as soon as it has come so far: the memory may be ahead.
    fn compact(&mut self, base: Edge) {
        let snapshot = self.snapshot.as_ref().map_or(Edge::default(), |s| s.id.edge());
        if base.index <= self.base.index || base.index > snapshot.index || base.index > self.last() {
            return;
        }
        self.blocks.retain(|b| b.last() > base.index);
        self.base = base;
    }

    /// A start after a crash: the newest snapshot counts, also one that was received and not installed
    /// yet, or one of more than the log holds. If the log holds its edge, what follows stays.
    pub(crate) fn recover(&mut self) {
        let own = self.snapshot.take();
        let Some(newest) = self.received.take().into_iter().chain(own).max_by_key(|s| s.id.last) else {
            return;
        };
        let edge = newest.id.edge();
        match edge == self.base || self.blocks.iter().any(|b| b.edge() == edge) {
            true => self.snapshot = Some(newest),
            false => self.install(newest),
        }
    }
}

impl Cluster {
    /// A node takes a snapshot of what it has applied: its disk is busy with it.
    pub(crate) fn snapshot_begin(&mut self, id: u32) {
        let node = self.node(id);
        if let Some(last) = node.applied.last().filter(|_| node.taken.is_none()) {
            node.taken = Some(Taken::at(last.edge()));
        }
    }

    /// The snapshot is durable.
    pub(crate) fn snapshot_finish(&mut self, id: u32) {
        let now = self.now;
        let node = self.node(id);
        let Some(taken) = node.taken.take() else { return };
        // Of two, the older is of no use.
        if node.disk.snapshot.as_ref().is_some_and(|s| s.id.last >= taken.id.last) {
            return;
        }
        let name = taken.id;
        // A log that ends before it is continued by it, on this disk as on any other.
        node.disk.snapshot = Some(taken);
        node.raft.on_snapshot_durable(now, name);
        node.raft.check();
        let base = node.raft.base();
        node.disk.compact(base);
    }

    /// Both at once.
    pub(crate) fn snapshot(&mut self, id: u32) {
        self.snapshot_begin(id);
        self.snapshot_finish(id);
    }

    /// Chunks are read and sent, received and written. What is whole is checked and kept.
    pub(crate) fn move_chunks(&mut self, at: NodeId, wanted: Vec<ChunkWanted>, received: Vec<ChunkReceived>) {
        let now = self.now;
        let node = self.nodes.get_mut(&at).expect("a node of the cluster");
        for want in wanted {
            let snapshot = node.disk.snapshot.as_ref().filter(|s| s.id == want.id);
            if let Some(snapshot) = snapshot {
                let data = snapshot.chunks[want.chunk as usize].clone();
                node.raft.on_chunk_read(now, want.to, want.id, want.chunk, data);
            }
        }
        for ChunkReceived { id, chunk, data } in received {
            if chunk == 0 {
                node.incoming = Some(Incoming { id, chunks: Vec::new() });
            }
            let incoming = node.incoming.as_mut().expect("chunk 0 comes first");
            incoming.id = id;
            assert_eq!(incoming.chunks.len(), chunk as usize, "chunks come in order");
            incoming.chunks.push(data);
            node.raft.on_chunks_written(now, id, chunk + 1);
            if incoming.chunks.len() == id.chunks as usize {
                let Incoming { id, chunks } = node.incoming.take().expect("it is whole");
                assert_eq!(digest(&chunks), id.digest, "the chunks are those of the snapshot");
                node.disk.received = Some(Taken { id, chunks });
                node.raft.on_snapshot_complete(now, id);
                node.raft.check();
            }
        }
    }

    /// A snapshot takes the place of the state.
    pub(crate) fn install(&mut self, at: NodeId, id: SnapshotId) {
        self.judge.installs += 1;
        let applied = self.judge.committed_upto(id.last);
        assert_eq!(applied.last().map(Block::edge), Some(id.edge()), "another state is installed");
        let node = self.nodes.get_mut(&at).expect("a node of the cluster");
        assert!(node.applied.len() < applied.len(), "a state never goes back");
        node.applied = applied;
    }
}

/// Three nodes, of which 1 leads and 3 missed everything behind the first blocks: it cannot have it
/// from a log any more, for nodes 1 and 2 have cut theirs.
fn left_behind(adjust: impl Fn(&mut palisade_raft::Config)) -> Cluster {
    let mut cluster = Cluster::with_logs(&[&[], &[], &[]], 1, |config| {
        config.log_keep_bytes = 0;
        adjust(config);
    });
    cluster.elect(1, &[1, 2, 3]);
    for _ in 0..8 {
        cluster.propose(1, "missed").expect("it leads");
        cluster.settle(&[1, 2]);
    }
    cluster.run(&[1, 2], 300);
    cluster.snapshot(1);
    cluster.snapshot(2);
    assert_eq!(cluster.status(1).base, LogIndex(9));
    cluster
}

fn state_of(cluster: &Cluster, leader: u32, node: u32) -> ProgressState {
    let status = cluster.status(leader);
    status.voters.iter().find(|v| v.node == NodeId(node)).expect("a voter").state
}

/// The packets of one link, one by one.
fn packets(cluster: &mut Cluster, from: u32, to: u32) -> Vec<Message> {
    cluster.take_packets(Some(from), Some(to)).into_iter().map(|p| p.message).collect()
}

fn packet(from: u32, to: u32, message: Message) -> Packet {
    Packet { from: NodeId(from), to: NodeId(to), message }
}

#[test]
fn a_follower_whose_next_block_is_gone_gets_a_snapshot_and_goes_on_with_blocks() {
    let mut cluster = left_behind(|_| ());
    cluster.run(&[1, 2, 3], 1_000);
    assert_eq!(cluster.judge.installs, 1);
    assert_eq!(state_of(&cluster, 1, 3), ProgressState::Replicate);
    let block = cluster.propose(1, "afterwards").expect("it leads");
    cluster.run(&[1, 2, 3], 300);
    let status = cluster.status(3);
    assert_eq!((status.commit, status.durable, status.base), (block.last(), block.last(), LogIndex(9)));
    assert_eq!(cluster.nodes[&NodeId(3)].applied, cluster.judge.committed);
    assert_eq!(cluster.node(3).disk.base.index, LogIndex(9), "its log on disk begins there");
}

#[test]
fn it_needs_no_new_write_to_be_brought_up_to_date_even_if_the_log_is_empty() {
    let mut cluster = left_behind(|_| ());
    assert!(cluster.node(1).raft.blocks_after(LogIndex(0)).next().is_none(), "nothing is left of the log");
    cluster.restart(1);
    cluster.restart(2);
    cluster.run(&[1, 2, 3], 10_000);
    assert_eq!(cluster.nodes[&NodeId(3)].applied, cluster.judge.committed);
    assert_eq!(cluster.nodes[&NodeId(1)].applied, cluster.judge.committed);
}

#[test]
fn a_leader_with_a_follower_on_a_snapshot_keeps_its_quorum_and_its_rounds() {
    let mut cluster = left_behind(|_| ());
    let round = cluster.round(1).expect("it leads");
    // Node 2 is silent: only the follower that lacks everything answers, and installs nothing.
    cluster.ready(1);
    for message in packets(&mut cluster, 1, 3) {
        if matches!(message, Message::Append(_)) {
            cluster.deliver(packet(1, 3, message));
        }
    }
    cluster.settle_follower(3);
    for message in packets(&mut cluster, 3, 1) {
        cluster.deliver(packet(3, 1, message));
    }
    cluster.ready(1);
    assert_eq!(cluster.node(1).confirmed, Some(round.id));
}

#[test]
fn whatever_is_lost_of_a_transfer_it_goes_on_where_it_was() {
    for lost in 0..12 {
        let mut cluster = left_behind(|config| config.snapshot_window = 2);
        let (mut seen, mut resent) = (0, 0);
        let mut first = std::collections::BTreeSet::new();
        let end = cluster.now.0 + 5_000_000_000;
        while cluster.judge.installs == 0 {
            assert!(cluster.now.0 < end, "loss {lost} ends the transfer");
            for id in [1, 2, 3] {
                cluster.settle_follower(id);
            }
            let wire = cluster.take_packets(None, None);
            if wire.is_empty() {
                cluster.now.0 += 50_000_000;
                for id in [1, 2, 3] {
                    if cluster.node(id).raft.next_deadline() <= cluster.now {
                        cluster.tick(id);
                    }
                }
            }
            for p in wire {
                if let Message::Snapshot(m) = &p.message {
                    resent += usize::from(m.chunk > 0 && !first.insert(m.chunk));
                }
                if matches!(p.message, Message::Snapshot(_) | Message::SnapshotReply(_)) {
                    seen += 1;
                    if seen == lost + 1 {
                        continue;
                    }
                }
                cluster.deliver(p);
            }
        }
        assert!(resent <= 2, "loss {lost}: at most a window is sent again: {resent}");
    }
}

#[test]
fn another_leader_goes_on_with_the_same_snapshot() {
    let mut cluster = left_behind(|config| config.snapshot_window = 1);
    cluster.run(&[1, 2], 100);
    // Two chunks of node 1 arrive at node 3.
    for _ in 0..4 {
        cluster.now.0 += 100_000_000;
        cluster.tick(1);
        for (from, to) in [(1, 3), (3, 1)] {
            cluster.settle_follower(from);
            for message in packets(&mut cluster, from, to) {
                cluster.deliver(packet(from, to, message));
            }
        }
        cluster.settle_follower(3);
    }
    let taken: Vec<String> = cluster.trace.iter().filter(|l| l.contains("have")).cloned().collect();
    assert!(taken.iter().any(|l| l.contains("have 2")), "{taken:?}");
    cluster.take_packets(None, None);
    let before = cluster.trace.len();
    cluster.elect(2, &[2, 3]);
    cluster.run(&[2, 3], 1_000);
    assert_eq!(cluster.judge.installs, 1);
    let again = cluster.trace[before..].iter().filter(|l| l.contains("chunk 1 ")).count();
    assert_eq!(again, 0, "what the first leader sent is not sent again");
}

#[test]
fn an_append_from_before_the_log_is_no_conflict() {
    takes_late_appends(Mutants::NONE);
    let conflict = std::panic::catch_unwind(|| takes_late_appends(Mutants::only(Mutant::B36)));
    assert!(conflict.is_err(), "B36 lives");
}

fn takes_late_appends(mutants: Mutants) {
    let mut cluster = left_behind(|config| config.mutants = mutants);
    let log = cluster.judge.committed.clone();
    let term = cluster.status(2).term;
    for (prev, until) in [(0, 3), (2, 9), (0, 9), (4, 4)] {
        let late = Append {
            term,
            prev_term: if prev == 0 { Term(0) } else { log[prev - 1].term() },
            prev_index: LogIndex(prev as u64),
            commit: LogIndex(prev as u64),
            round: 0,
            blocks: log[prev..until].to_vec(),
        };
        cluster.deliver(packet(1, 2, Message::Append(late)));
        cluster.ready(2);
        let answers = packets(&mut cluster, 2, 1);
        let result = AppendResult::Accepted { verified: LogIndex(9), durable: LogIndex(9) };
        assert_eq!(answers, [Message::AppendReply(AppendReply { term, round: 0, result })]);
    }
    assert_eq!((cluster.status(2).last, cluster.status(2).commit), (LogIndex(9), LogIndex(9)));
}

/// A node with a log of these terms, all of it in the term given, to which node 1 sends a snapshot.
fn receiver(terms: &[u64], term: u64) -> Cluster {
    let mut cluster = Cluster::with_logs(&[&[], &[], terms], 1, |config| config.log_keep_bytes = 0);
    cluster.node(3).disk.hard_state = HardState { term: Term(term), ..HardState::default() };
    cluster.restart(3);
    cluster.judge.trusting = true;
    cluster
}

/// Sends node 3 a chunk and lets it work.
fn send_chunk(cluster: &mut Cluster, term: u64, taken: &Taken, chunk: usize) -> Vec<Message> {
    let (id, data) = (taken.id, taken.chunks[chunk].clone());
    let message = Snapshot { term: Term(term), round: 0, id, chunk: chunk as u32, data };
    cluster.deliver(packet(1, 3, Message::Snapshot(message)));
    cluster.settle_follower(3);
    packets(cluster, 3, 1)
}

fn have(answers: &[Message]) -> Option<u32> {
    match answers.last() {
        Some(Message::SnapshotReply(SnapshotReply { have, .. })) => Some(*have),
        _ => None,
    }
}

fn durable(answers: &[Message]) -> Option<LogIndex> {
    match answers.last() {
        Some(Message::AppendReply(AppendReply {
            result: AppendResult::Accepted { durable, .. }, ..
        })) => Some(*durable),
        _ => None,
    }
}

/// A snapshot of three blocks, of the terms 1, 1, 2, comes to a node with a log of these terms. Whether the
/// log stays, of which it may be only if it holds the snapshot's edge.
fn log_survives(terms: &[u64], mutants: Mutants) -> bool {
    let theirs = log_of_terms(&[1, 1, 2]);
    let taken = Taken::at(theirs[2].edge());
    let mut cluster = receiver(terms, 2);
    cluster.node(3).config.mutants = mutants;
    cluster.restart(3);
    cluster.judge.committed = theirs.clone();
    let mut answers = Vec::new();
    for chunk in 0..taken.chunks.len() {
        answers = send_chunk(&mut cluster, 2, &taken, chunk);
    }
    assert_eq!(durable(&answers), Some(LogIndex(3)), "{terms:?}");
    let status = cluster.status(3);
    let survives = cluster.judge.installs == 0;
    let last = if survives { terms.len() as u64 } else { 3 };
    assert_eq!((status.last, status.commit), (LogIndex(last), LogIndex(3)), "{terms:?}");
    assert_eq!(cluster.node(3).applied, theirs);
    cluster.restart(3);
    assert_eq!((cluster.status(3).last, cluster.status(3).term), (LogIndex(last), Term(2)));
    survives
}

#[test]
fn s7_a_log_that_holds_the_edge_keeps_what_follows_and_any_other_is_dropped() {
    for terms in [&[][..], &[1, 1], &[1, 1, 1], &[1, 1, 1, 1, 1]] {
        assert!(!log_survives(terms, Mutants::NONE), "{terms:?}");
    }
    for terms in [&[1, 1, 2][..], &[1, 1, 2, 2, 2]] {
        assert!(log_survives(terms, Mutants::NONE), "{terms:?}");
    }
    let tail_stays = std::panic::catch_unwind(|| log_survives(&[1, 1, 1, 1, 1], Mutants::only(Mutant::B24)));
    assert!(tail_stays.is_err(), "B24 lives");
}

#[test]
fn chunks_of_two_snapshots_never_meet() {
    let log = log_of_terms(&[1; 9]);
    let (old, new) = (Taken::at(log[3].edge()), Taken::at(log[8].edge()));
    let mut cluster = receiver(&[], 1);
    cluster.judge.committed = log;
    assert_eq!(have(&send_chunk(&mut cluster, 1, &old, 0)), Some(1));
    assert_eq!(have(&send_chunk(&mut cluster, 1, &old, 1)), Some(2));
    // The newer one begins anew; late chunks of the older one change nothing.
    assert_eq!(have(&send_chunk(&mut cluster, 1, &new, 2)), Some(0));
    assert_eq!(have(&send_chunk(&mut cluster, 1, &new, 0)), Some(1));
    assert_eq!(send_chunk(&mut cluster, 1, &old, 2), []);
    assert_eq!(have(&send_chunk(&mut cluster, 1, &new, 0)), Some(1), "repeated");
    assert_eq!(have(&send_chunk(&mut cluster, 1, &new, 3)), Some(1), "one is missing");
    // A new leader may send the older one, from the beginning.
    assert_eq!(have(&send_chunk(&mut cluster, 2, &old, 1)), Some(0));
    for chunk in 0..4 {
        assert_eq!(have(&send_chunk(&mut cluster, 2, &old, chunk)), Some(chunk as u32 + 1));
    }
    assert_eq!(durable(&send_chunk(&mut cluster, 2, &old, 4)), Some(LogIndex(4)));
}

#[test]
fn nothing_is_claimed_of_a_snapshot_before_the_disk_has_taken_it_for_the_log() {
    let theirs = log_of_terms(&[1, 1, 2]);
    let taken = Taken::at(theirs[2].edge());
    let mut cluster = receiver(&[1, 1, 1], 2);
    cluster.judge.committed = theirs;
    for chunk in 0..taken.chunks.len() {
        let (id, data) = (taken.id, taken.chunks[chunk].clone());
        let message = Snapshot { term: Term(2), round: 0, id, chunk: chunk as u32, data };
        cluster.deliver(packet(1, 3, Message::Snapshot(message)));
        cluster.ready(3);
    }
    assert_eq!((cluster.status(3).commit, cluster.status(3).durable), (LogIndex(3), LogIndex(0)));
    assert!(packets(&mut cluster, 3, 1).iter().all(|m| !matches!(m, Message::AppendReply(_))));
    // What is asked meanwhile is answered with what both the old log and the snapshot hold.
    let beat = Append {
        term: Term(2),
        prev_term: Term(2),
        prev_index: LogIndex(3),
        commit: LogIndex(3),
        round: 0,
        blocks: Vec::new(),
    };
    cluster.deliver(packet(1, 3, Message::Append(beat)));
    cluster.ready(3);
    assert_eq!(durable(&packets(&mut cluster, 3, 1)), Some(LogIndex(0)));
    cluster.settle_follower(3);
    assert_eq!(durable(&packets(&mut cluster, 3, 1)), Some(LogIndex(3)));
}

#[test]
fn who_has_it_already_says_so_and_takes_nothing() {
    let log = log_of_terms(&[1; 9]);
    let mut cluster = receiver(&[1; 9], 1);
    cluster.judge.committed = log.clone();
    let taken = Taken::at(log[3].edge());
    assert_eq!(durable(&send_chunk(&mut cluster, 1, &taken, 0)), Some(LogIndex(4)));
    assert_eq!((cluster.judge.installs, cluster.status(3).last), (0, LogIndex(9)));
}

#[test]
fn a_log_is_cut_behind_a_snapshot_and_keeps_what_it_is_told_to_keep() {
    let mut cluster = Cluster::with_logs(&[&[]], 1, |config| config.log_keep_bytes = 300);
    cluster.elect(1, &[1]);
    for _ in 0..10 {
        cluster.propose(1, "a block").expect("it leads");
        cluster.settle(&[1]);
    }
    cluster.snapshot(1);
    let status = cluster.status(1);
    let kept: usize = cluster.node(1).raft.blocks_after(LogIndex(0)).map(|b| b.bytes().len()).sum();
    assert_eq!((status.snapshot, status.last), (LogIndex(11), LogIndex(11)));
    assert!(status.base > LogIndex(0) && kept <= 300 && kept > 200, "{kept} bytes are kept");
    assert_eq!(kept as u64, cluster.node(1).raft.log_bytes());
    cluster.restart(1);
    assert_eq!((cluster.status(1).base, cluster.status(1).commit), (status.base, LogIndex(11)));
}

#[test]
fn a_log_that_does_not_reach_its_snapshot_is_refused() {
    let log = log_of_terms(&[1, 1, 1]);
    let config = palisade_raft::Config::new(NodeId(1), palisade_types::ShardId(0), vec![NodeId(1)]);
    let try_with = |snapshot: Option<Edge>, base: Edge, blocks: &[Block]| {
        let snapshot = snapshot.map(|edge| Taken::at(edge).id);
        let restored = Restored { snapshot, base, blocks: blocks.to_vec(), ..Restored::default() };
        Raft::new(config.clone(), restored, 1, palisade_types::Time(0)).err()
    };
    let edge = |n: usize| log[n].edge();
    assert_eq!(try_with(Some(edge(1)), edge(0), &log[1..]), None);
    assert_eq!(try_with(Some(edge(1)), edge(1), &[]), None);
    let broken = |n: u64| Some(ConfigError::BrokenSnapshot(LogIndex(n)));
    assert_eq!(try_with(Some(edge(2)), edge(0), &log[1..2]), broken(3), "it ends before");
    assert_eq!(try_with(Some(edge(0)), edge(1), &log[2..]), broken(1), "it begins behind");
    assert_eq!(try_with(None, edge(0), &log[1..]), broken(0), "there is no snapshot");
    let other = Edge { chain: 7, ..edge(1) };
    assert_eq!(try_with(Some(other), Edge::default(), &log), broken(2), "it is another's");
    let gap = Some(ConfigError::BrokenLog(LogIndex(3)));
    assert_eq!(try_with(Some(edge(0)), edge(0), &log[2..]), gap, "there is a hole");
}

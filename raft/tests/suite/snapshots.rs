//! Snapshots in the test cluster, and their rules. The state of a node is the list of what it applied,
//! named by the last chain hash; its snapshot is that hash spread over some chunks.

use bytes::Bytes;
use palisade_raft::{ChunkReceived, ChunkWanted};
use palisade_types::hash::hash128;
use palisade_types::{Block, Edge, NodeId, SnapshotId};

use crate::cluster::{Cluster, Disk};

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

    /// A received snapshot takes the place of the log.
    pub(crate) fn install(&mut self, received: Taken) {
        self.base = received.id.edge();
        self.blocks.clear();
        self.snapshot = Some(received);
    }

    /// The log is cut up to this edge.
    fn compact(&mut self, base: Edge) {
        if base.index <= self.base.index {
            return;
        }
        let snapshot = self.snapshot.as_ref().expect("the log is cut behind a snapshot").id.last;
        assert!(base.index <= snapshot && base.index <= self.last(), "cut behind what is durable");
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
        let applied = self.judge.committed_upto(id.last);
        assert_eq!(applied.last().map(Block::edge), Some(id.edge()), "another state is installed");
        let node = self.nodes.get_mut(&at).expect("a node of the cluster");
        assert!(node.applied.len() < applied.len(), "a state never goes back");
        node.applied = applied;
    }
}

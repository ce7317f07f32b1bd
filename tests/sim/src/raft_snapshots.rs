//! Snapshots of a cluster of nothing but Rafts. The state of a node is the chain hash of what it applied;
//! a snapshot spreads it over some chunks. They are written, read and received late, and what is not
//! durable is lost with the process.

use core::time::Duration;

use bytes::Bytes;
use palisade_raft::{ChunkReceived, ChunkWanted};
use palisade_types::hash::hash128;
use palisade_types::{Edge, SnapshotId, Time};

use crate::check::{Checked, demand};
use crate::raft_cluster::{CALM, Disk, Event, RaftCluster};

/// A snapshot as a file.
#[derive(Clone, Debug)]
pub(crate) struct Snap {
    pub(crate) id: SnapshotId,
    chunks: Vec<Bytes>,
}

/// A snapshot on its way.
#[derive(Debug)]
pub(crate) struct Incoming {
    id: SnapshotId,
    chunks: Vec<Bytes>,
}

/// Something about snapshots that a disk has done.
#[derive(Debug)]
pub(crate) enum SnapEvent {
    /// An own snapshot is durable.
    Durable(Snap),
    /// A chunk was read for a follower.
    Read(ChunkWanted),
    /// A received chunk was written.
    Written(ChunkReceived),
    /// A received snapshot is durable.
    Received(Snap),
}

fn digest(chunks: &[Bytes]) -> u128 {
    hash128(&chunks.concat())
}

impl Snap {
    /// The snapshot at this edge: the same on every node.
    fn at(edge: Edge) -> Snap {
        let count = 1 + edge.index.0 % 7;
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
        Snap { id, chunks }
    }
}

impl Disk {
    /// A received snapshot takes the place of the log; a newer one of its own stays what it is.
    pub(crate) fn install(&mut self, received: Snap) {
        self.base = received.id.edge();
        self.blocks.clear();
        if self.snapshot.as_ref().is_none_or(|own| own.id.last < received.id.last) {
            self.snapshot = Some(received);
        }
    }

    /// Cuts the log behind the snapshot, if it has come so far.
    fn compact(&mut self, base: Edge) {
        let snapshot = self.snapshot.as_ref().map_or(Edge::default(), |s| s.id.edge());
        let last = self.blocks.last().map_or(self.base.index, |b| b.last());
        if base.index > self.base.index && base.index <= snapshot.index && base.index <= last {
            self.blocks.retain(|b| b.last() > base.index);
            self.base = base;
        }
    }

    /// After a crash the newest snapshot counts, also one of more than the log holds.
    pub(crate) fn recover(&mut self) {
        let own = self.snapshot.take();
        let all = self.received.take().into_iter().chain(own);
        let Some(newest) = all.max_by_key(|s| s.id.last) else { return };
        let edge = newest.id.edge();
        match edge == self.base || self.blocks.iter().any(|b| b.edge() == edge) {
            true => self.snapshot = Some(newest),
            false => self.install(newest),
        }
    }
}

impl RaftCluster {
    /// Some nodes take a snapshot of what they have applied. None is begun beside a transfer, but now and
    /// then: then that begins anew with the newer one.
    pub(crate) fn take_snapshots(&mut self) -> Checked {
        let gap = Duration::from_millis(self.rng.between(100, 3_000));
        if self.now + gap < Time::ZERO + self.options.storm + CALM / 2 {
            self.queue.push(self.now + gap, Event::TakeSnapshot);
        }
        for node in 0..self.members.len() {
            let (chosen, beside) = (self.rng.per_mille(600), !self.calm && self.rng.per_mille(100));
            let m = &mut self.members[node];
            let Some(raft) = &m.raft else { continue };
            let newest = raft.status().snapshot;
            let sends = raft.is_sending_snapshot();
            if m.taking || !chosen || m.state.index <= newest || (sends && !beside) {
                continue;
            }
            m.taking = true;
            let snap = Snap::at(m.state);
            self.snapshots += 1;
            self.beside(node, SnapEvent::Durable(snap));
        }
        Ok(())
    }

    /// The disk does something beside the log, one thing after the other.
    fn beside(&mut self, node: usize, event: SnapEvent) {
        let o = self.options.disk;
        let time = o.floor + Duration::from_nanos(self.rng.below(o.spread.as_nanos() as u64 + 1));
        let m = &mut self.members[node];
        m.beside = m.beside.max(self.now) + time;
        self.queue.push(m.beside, Event::Snap { node, life: m.life, event });
    }

    pub(crate) fn move_chunks(
        &mut self,
        node: usize,
        wanted: Vec<ChunkWanted>,
        received: Vec<ChunkReceived>,
    ) {
        for want in wanted {
            self.beside(node, SnapEvent::Read(want));
        }
        for chunk in received {
            self.beside(node, SnapEvent::Written(chunk));
        }
    }

    pub(crate) fn installed(&mut self, node: usize, id: SnapshotId) -> Checked {
        self.trace.line(|| format!("n{} installs {id:?}", node + 1));
        self.check.on_installed(node, id)?;
        self.members[node].state = id.edge();
        self.check.on_state(node, id.last, id.chain)
    }

    pub(crate) fn snap(&mut self, node: usize, life: u64, event: SnapEvent) -> Checked {
        if self.members[node].life != life {
            return Ok(());
        }
        self.trace.event(self.now, 8, &[node as u64]);
        match event {
            SnapEvent::Durable(snap) => self.taken(node, snap)?,
            SnapEvent::Read(want) => self.read(node, want),
            SnapEvent::Written(chunk) => self.written(node, chunk)?,
            SnapEvent::Received(snap) => self.received(node, snap)?,
        }
        self.after(node)
    }

    fn taken(&mut self, node: usize, snap: Snap) -> Checked {
        let now = self.now;
        let m = &mut self.members[node];
        m.taking = false;
        let Some(raft) = &mut m.raft else { return Ok(()) };
        let id = snap.id;
        if raft.status().snapshot >= id.last {
            return Ok(());
        }
        self.check.on_snapshot(node, id)?;
        m.disk.snapshot = Some(snap);
        raft.on_snapshot_durable(m.clock.local(now), id);
        m.disk.compact(raft.base());
        Ok(())
    }

    fn read(&mut self, node: usize, want: ChunkWanted) {
        let now = self.now;
        let m = &mut self.members[node];
        let snaps = [&m.disk.snapshot, &m.disk.received];
        let found = snaps.into_iter().flatten().find(|s| s.id == want.id);
        let Some(data) = found.map(|s| s.chunks[want.chunk as usize].clone()) else { return };
        if let Some(raft) = &mut m.raft {
            raft.on_chunk_read(m.clock.local(now), want.to, want.id, want.chunk, data);
        }
    }

    fn written(&mut self, node: usize, received: ChunkReceived) -> Checked {
        let now = self.now;
        let m = &mut self.members[node];
        let ChunkReceived { id, chunk, data } = received;
        if chunk == 0 {
            m.incoming = Some(Incoming { id, chunks: Vec::new() });
        }
        let fits = |i: &&mut Incoming| i.chunks.len() == chunk as usize;
        let Some(incoming) = m.incoming.as_mut().filter(fits) else { return Ok(()) };
        incoming.id = id;
        incoming.chunks.push(data);
        let whole = incoming.chunks.len() == id.chunks as usize;
        if let Some(raft) = &mut m.raft {
            raft.on_chunks_written(m.clock.local(now), id, chunk + 1);
        }
        if whole && let Some(Incoming { id, chunks }) = m.incoming.take() {
            demand(digest(&chunks) == id.digest, "S7", || {
                format!("node {} received chunks that are not those of {id:?}", node + 1)
            })?;
            self.beside(node, SnapEvent::Received(Snap { id, chunks }));
        }
        Ok(())
    }

    fn received(&mut self, node: usize, snap: Snap) -> Checked {
        let now = self.now;
        let m = &mut self.members[node];
        let Some(raft) = &mut m.raft else { return Ok(()) };
        let id = snap.id;
        if raft.receiving() != Some(id) {
            return Ok(());
        }
        self.check.on_snapshot(node, id)?;
        m.disk.received = Some(snap);
        raft.on_snapshot_complete(m.clock.local(now), id);
        // The log holds its edge by now: it is one like its own.
        if m.disk.received.is_some() && raft.status().base < id.last && raft.snapshot() == Some(id) {
            m.disk.snapshot = m.disk.received.take();
            m.disk.compact(raft.base());
        }
        Ok(())
    }
}

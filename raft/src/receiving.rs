//! A follower that is sent a snapshot. Chunks are taken strictly in order and handed to the driver,
//! which writes them; how far it has come is told to whoever leads, so that a transfer goes on over
//! broken links and changes of leader. Nothing of it is used before all of it is checked and durable.

use palisade_types::{Mutant, NodeId, SNAPSHOT_CHUNK_MAX, SnapshotId, Term, Time};

use crate::message::{Message, Snapshot, SnapshotReply};
use crate::node::{Raft, State};
use crate::ready::ChunkReceived;

/// A snapshot on its way here.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// Compared whole: chunks of two snapshots never meet.
    id: SnapshotId,
    /// The newest term in which it was sent.
    term: Term,
    /// The chunk that is taken next.
    next: u32,
    /// The chunks before this one are written.
    written: u32,
}

impl Receiving {
    pub(crate) fn check(&self) {
        assert!(
            self.written <= self.next && self.next <= self.id.chunks,
            "written <= taken <= all: {self:?}"
        );
    }
}

impl Raft {
    pub(crate) fn on_snapshot(&mut self, from: NodeId, m: Snapshot) {
        if m.term < self.term {
            // Teaches the sender the term.
            self.reply_to_snapshot(from, m.id, 0);
            return;
        }
        self.follow(from);
        let is_well_formed = m.id.term <= m.term
            && m.chunk < m.id.chunks
            && !m.data.is_empty()
            && m.data.len() <= SNAPSHOT_CHUNK_MAX;
        if !is_well_formed {
            return;
        }
        self.note_round(m.round);
        if self.holds(&m.id.edge()) {
            self.accept(m.id.last.max(self.log.start().index), m.id.last);
            self.receiving.take_if(|r| r.id.last <= m.id.last);
            self.acknowledge(from);
            return;
        }
        // One at a time: the disk has yet to exchange its log for the one before.
        let is_installing = self.ledger.log_durable() < self.log.start().index;
        if is_installing || !self.choose(m.id, m.term) {
            return;
        }
        let Some(receiving) = &mut self.receiving else { return };
        if m.chunk == receiving.next {
            receiving.next += 1;
            self.chunks_received.push(ChunkReceived { id: m.id, chunk: m.chunk, data: m.data });
            return;
        }
        // Repeated, or one before it was lost: the sender learns where to go on.
        let written = receiving.written;
        self.reply_to_snapshot(from, m.id, written);
    }

    /// Whether this is the snapshot to take. Within a term the newer one is, for a leader never goes
    /// back to an older; what a new leader sends is taken in any case.
    fn choose(&mut self, id: SnapshotId, term: Term) -> bool {
        if let Some(receiving) = &mut self.receiving {
            if receiving.id == id {
                receiving.term = term;
                return true;
            }
            if receiving.term == term && receiving.id.last >= id.last {
                return false;
            }
            if self.config.mutants.has(Mutant::B40) && receiving.next < id.chunks {
                (receiving.id, receiving.term) = (id, term);
                return true;
            }
        }
        self.chunks_received.clear();
        self.receiving = Some(Receiving { id, term, next: 0, written: 0 });
        true
    }

    /// The snapshot that is being received. When it is another than before, or none, what the driver
    /// holds of the other is of no use any more.
    pub fn receiving(&self) -> Option<SnapshotId> {
        self.receiving.as_ref().map(|r| r.id)
    }

    fn reply_to_snapshot(&mut self, to: NodeId, id: SnapshotId, have: u32) {
        let round = match &self.state {
            State::Follower(f) if self.leader == Some(to) => f.round,
            _ => 0,
        };
        let reply = SnapshotReply { term: self.term, round, id, have };
        self.mail.post(&self.ledger, to, Message::SnapshotReply(reply));
    }

    /// The driver has written the chunks of this snapshot before number `have`. They need not be
    /// durable.
    pub fn on_chunks_written(&mut self, now: Time, id: SnapshotId, have: u32) {
        self.advance(now);
        let Some(receiving) = self.receiving.as_mut().filter(|r| r.id == id) else { return };
        assert!(have <= receiving.next, "only what was taken is written");
        receiving.written = receiving.written.max(have);
        let written = receiving.written;
        if let (Some(leader), State::Follower(_)) = (self.leader, &self.state) {
            self.reply_to_snapshot(leader, id, written);
        }
    }

    /// What was received of this snapshot is of no use: a chunk or the whole is damaged, or the driver
    /// gave it up. It will be sent again from the beginning.
    pub fn on_snapshot_failed(&mut self, id: SnapshotId) {
        if self.receiving.as_ref().is_some_and(|r| r.id == id) {
            self.receiving = None;
            self.chunks_received.clear();
        }
    }

    /// The snapshot was received whole, the driver has checked it and made a state of it, and it is
    /// durable. It is adopted, unless the log has come to hold its edge meanwhile: then, and when
    /// another snapshot is being received by now, there is no [`crate::Ready::install`] for it.
    pub fn on_snapshot_complete(&mut self, now: Time, id: SnapshotId) {
        self.advance(now);
        if self.receiving.take_if(|r| r.id == id).is_some() {
            self.adopt(id);
            self.acknowledge_again();
        }
    }
}

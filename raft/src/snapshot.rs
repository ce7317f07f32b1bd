//! A log that begins behind a snapshot: compaction, and taking a snapshot for the log (Raft paper,
//! section 7; thesis, chapter 5).
//!
//! A snapshot is the business of the driver: it takes it at an edge, writes it, checks one that was
//! received. What this crate decides is what that means for the log. What a snapshot holds is
//! committed; it takes the place of the log up to its edge, and of all of the log if that does
//! not hold the edge.

use palisade_types::{Edge, Mutant, SnapshotId, Time};

use crate::node::{Raft, State};

impl Raft {
    /// A snapshot of the own state is durable: written, read again and found to be right, and found by
    /// whoever starts here. The log may now be cut behind it, and followers are sent it.
    ///
    /// # Panics
    /// When it holds what was not handed out yet.
    pub fn on_snapshot_durable(&mut self, now: Time, id: SnapshotId) {
        self.advance(now);
        assert!(id.last <= self.delivered, "a snapshot holds what was applied");
        self.take_for_newest(id);
        self.pump_all();
    }

    fn take_for_newest(&mut self, id: SnapshotId) {
        if self.snapshot.is_none_or(|newest| newest.last < id.last) {
            self.snapshot = Some(id);
            self.compact();
        }
    }

    /// The newest snapshot turned out to be unreadable. Nobody is sent it any more; the log stays
    /// cut where it is. A new one is to be taken.
    pub fn on_snapshot_lost(&mut self, id: SnapshotId) {
        if self.snapshot == Some(id) {
            self.snapshot = None;
            self.chunks_wanted.clear();
        }
    }

    /// The newest snapshot that is durable here.
    pub fn snapshot(&self) -> Option<SnapshotId> {
        self.snapshot
    }

    /// Whether an adopted snapshot waits to be handed out in [`crate::Ready::install`].
    pub fn has_install(&self) -> bool {
        self.install_state.is_some()
    }

    /// What the log in memory begins behind. The log on disk need not reach further back.
    pub fn base(&self) -> Edge {
        self.log.start()
    }

    /// The bytes of the blocks in memory.
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Cuts the log behind what is in a durable snapshot, handed out, and on the own disk: all three,
    /// for a commit may run ahead of the own disk.
    pub(crate) fn compact(&mut self) {
        let Some(id) = self.snapshot else { return };
        let upto = id.last.min(self.delivered).min(self.ledger.log_durable());
        if upto <= self.compacted {
            return;
        }
        self.compacted = upto;
        if !self.log.compact(upto, self.config.log_keep_bytes) {
            return;
        }
        let start = self.log.start().index;
        if let State::Leader(lead) = &mut self.state {
            for progress in lead.peers.values_mut().filter(|p| p.next.prev() < start) {
                progress.need_snapshot(start);
            }
            self.pump_all();
        }
    }

    /// A snapshot was received whole, is durable, and the driver has made a state of it.
    pub(crate) fn adopt(&mut self, id: SnapshotId) {
        assert!(id.term <= self.term, "whoever sent it is in its term or a later one");
        if id.last <= self.delivered || self.holds(&id.edge()) {
            self.accept(id.last, id.last);
            self.commit = self.commit.max(id.last);
            self.take_for_newest(id);
            return;
        }
        assert!(!matches!(self.state, State::Leader(_)), "a leader holds what is committed");
        // Of the log on disk this much is part of what the snapshot holds, and claims rest on it.
        let mut keep = self.commit;
        if let State::Follower(f) = &mut self.state {
            assert!(f.verified < id.last, "a leader proves no other log than the one it has committed");
            keep = keep.max(f.verified);
            f.verified = id.last;
        }
        if self.config.mutants.has(Mutant::B24) {
            self.log.begin_behind_and_keep_tail(id.edge());
        } else {
            self.log.begin_behind(id.edge());
        }
        self.ledger.on_installed(keep);
        self.snapshot = Some(id);
        self.install_persist = Some(id);
        self.install_state = Some(id);
        if !self.config.mutants.has(Mutant::S1) {
            self.commit = id.last;
            self.delivered = id.last;
        }
    }

    /// Whether the log has a block that ends at this committed edge, or had it before it was cut.
    ///
    /// # Panics
    /// When it has another one there of the same term, or has committed another.
    pub(crate) fn holds(&self, edge: &Edge) -> bool {
        if edge.index < self.log.start().index {
            return true;
        }
        let here = self.log.edge(edge.index).filter(|e| e.term == edge.term);
        match here {
            Some(here) => assert_eq!(here.chain, edge.chain, "logs diverged at index {}", edge.index),
            None => assert!(edge.index > self.commit, "another state was committed at index {}", edge.index),
        }
        here.is_some()
    }
}

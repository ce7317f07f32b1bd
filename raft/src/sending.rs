//! A leader that sends a snapshot: a window of chunks, read from disk by the driver. The first chunk
//! alone asks how much the follower has, since another leader may have sent a part; so it does
//! again whenever the follower has said nothing new for some time. So there is one way to go on after
//! whatever was lost, on either side.

use bytes::Bytes;

use palisade_types::{NodeId, SnapshotId, Time};

use crate::message::{Message, Snapshot, SnapshotReply};
use crate::node::{Raft, State};
use crate::progress::{ProgressState, Sending};
use crate::ready::ChunkWanted;

/// After so many heartbeats without news the follower is asked anew.
const RETRY_BEATS: u32 = 4;

impl Raft {
    /// Whether a snapshot is on its way to anybody who answers. Whoever holds back the next snapshot meanwhile
    /// lets the transfer, and what comes behind it, come to an end.
    pub fn is_sending_snapshot(&self) -> bool {
        let State::Leader(lead) = &self.state else { return false };
        let answers = |contact: Time| self.now < contact + self.config.election_max;
        lead.peers.values().any(|p| p.sending.is_some() && answers(p.contact))
    }

    /// Asks the driver for the chunks that may be sent now.
    pub(crate) fn pump_snapshot(&mut self, peer: NodeId) {
        let retry_at = self.now + self.config.heartbeat * RETRY_BEATS;
        let State::Leader(lead) = &mut self.state else { return };
        let Some(progress) = lead.peers.get_mut(&peer) else { return };
        if progress.state != ProgressState::Snapshot {
            return;
        }
        // Who does not answer heartbeats is not sent anything large.
        let answers = self.now < progress.contact + self.config.election_max;
        let Some(id) = self.snapshot.filter(|_| answers) else {
            progress.sending = None;
            return;
        };
        let goes_on = progress.sending.as_ref().is_some_and(|s| s.id == id && self.now < s.retry_at);
        if !goes_on {
            self.chunks_wanted.retain(|w| w.to != peer);
            progress.sending = Some(Sending::new(id, retry_at));
        }
        let Some(sending) = &mut progress.sending else { return };
        while sending.asked < sending.until(self.config.snapshot_window) {
            self.chunks_wanted.push(ChunkWanted { to: peer, id, chunk: sending.asked });
            sending.asked += 1;
        }
    }

    /// The driver has read a chunk that was asked for in [`crate::Ready::chunks_wanted`] and found it
    /// right: it is sent. One that nobody waits for any more is dropped.
    pub fn on_chunk_read(&mut self, now: Time, to: NodeId, id: SnapshotId, chunk: u32, data: Bytes) {
        self.advance(now);
        let State::Leader(lead) = &self.state else { return };
        let sending = lead.peers.get(&to).and_then(|p| p.sending.as_ref());
        if sending.is_some_and(|s| s.id == id && chunk < s.asked) {
            let message = Snapshot { term: self.term, round: lead.rounds.started(), id, chunk, data };
            self.mail.post(&self.ledger, to, Message::Snapshot(message));
        }
    }

    pub(crate) fn on_snapshot_reply(&mut self, from: NodeId, m: SnapshotReply) {
        if m.term != self.term {
            return;
        }
        let (now, retry_at) = (self.now, self.now + self.config.heartbeat * RETRY_BEATS);
        let State::Leader(lead) = &mut self.state else { return };
        let Some(progress) = lead.peers.get_mut(&from) else { return };
        progress.contact = now;
        if m.round <= lead.rounds.started() {
            progress.round = progress.round.max(m.round);
        }
        if let Some(sending) = progress.sending.as_mut().filter(|s| s.id == m.id)
            && m.have <= m.id.chunks
            && sending.on_have(m.have)
        {
            sending.retry_at = retry_at;
        }
        self.confirm_rounds();
        self.pump(from);
    }
}

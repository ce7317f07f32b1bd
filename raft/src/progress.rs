//! What a leader knows of one follower, and how fast it sends to it.

use alloc::collections::VecDeque;

use palisade_types::{LogIndex, SnapshotId, Time};

/// How a follower is being sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressState {
    /// The place where the logs match is being looked for: one message, then wait for the answer.
    Probe {
        /// That message is out. Heartbeats go on and resolve it if it or its answer is lost.
        paused: bool,
    },
    /// Blocks are sent ahead of the answers, within the limits on what is in flight.
    Replicate,
    /// What it needs next is no longer in the log: it gets a snapshot, and heartbeats meanwhile.
    Snapshot,
}

/// A snapshot on its way to a follower.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) id: SnapshotId,
    /// The follower has said how much it has. Before, the first chunk alone asks for that.
    pub(crate) found: bool,
    /// The chunks before this one have arrived.
    pub(crate) have: u32,
    /// The chunks before this one have been sent, or asked of the disk.
    pub(crate) asked: u32,
    /// When the follower is asked anew what it has, should it say nothing new by then.
    pub(crate) retry_at: Time,
}

impl Sending {
    pub(crate) fn new(id: SnapshotId, retry_at: Time) -> Sending {
        Sending { id, found: false, have: 0, asked: 0, retry_at }
    }

    /// The follower has the chunks before `have`. Whether that is news.
    pub(crate) fn on_have(&mut self, have: u32) -> bool {
        if !self.found {
            self.found = true;
            (self.have, self.asked) = (have, have);
            return true;
        }
        let news = have > self.have;
        self.have = self.have.max(have);
        self.asked = self.asked.max(have);
        news
    }

    /// Chunks before this one may be under way.
    pub(crate) fn until(&self, window: u32) -> u32 {
        if self.found { self.have.saturating_add(window).min(self.id.chunks) } else { 1 }
    }
}

/// A leader's view of one follower within one term.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Up to here the follower's disk holds this leader's log. Never falls.
    pub(crate) match_index: LogIndex,
    /// First index of what is sent next; always one past an edge, always above `match_index`.
    pub(crate) next: LogIndex,
    pub(crate) state: ProgressState,
    /// The newest round the follower has echoed.
    pub(crate) round: u64,
    /// The highest commit index it has been sent in this term.
    pub(crate) told: LogIndex,
    /// When it last answered in this term.
    pub(crate) contact: Time,
    /// Last index and bytes of each unacknowledged message with blocks, oldest first.
    inflight: VecDeque<(LogIndex, usize)>,
    inflight_bytes: usize,
    /// In the state [`ProgressState::Snapshot`], once there is a snapshot to send.
    pub(crate) sending: Option<Sending>,
}

impl Progress {
    /// A follower of whom nothing is known: the search begins at the end of the log.
    pub(crate) fn new(last: LogIndex, now: Time) -> Progress {
        Progress {
            match_index: LogIndex(0),
            next: last.next(),
            state: ProgressState::Probe { paused: false },
            round: 0,
            told: LogIndex(0),
            contact: now,
            inflight: VecDeque::new(),
            inflight_bytes: 0,
            sending: None,
        }
    }

    /// Whether another message with blocks may be sent.
    pub(crate) fn has_room(&self, messages_max: usize, bytes_max: usize) -> bool {
        match self.state {
            ProgressState::Probe { paused } => !paused,
            ProgressState::Replicate => self.inflight.len() < messages_max && self.inflight_bytes < bytes_max,
            ProgressState::Snapshot => false,
        }
    }

    /// Notes that blocks up to `last` are on their way.
    pub(crate) fn on_sent(&mut self, last: LogIndex, bytes: usize) {
        match self.state {
            ProgressState::Probe { .. } => self.state = ProgressState::Probe { paused: true },
            ProgressState::Replicate => {
                assert!(last >= self.next, "only new blocks are sent ahead");
                self.inflight.push_back((last, bytes));
                self.inflight_bytes += bytes;
                self.next = last.next();
            }
            ProgressState::Snapshot => unreachable!("no blocks are sent beside a snapshot"),
        }
    }

    /// The follower has matched up to `verified` and holds `durable` on disk.
    pub(crate) fn on_accepted(&mut self, verified: LogIndex, durable: LogIndex) {
        self.match_index = self.match_index.max(durable);
        let found = verified.next() >= self.next;
        if found && self.state != ProgressState::Replicate {
            self.state = ProgressState::Replicate;
            self.sending = None;
        }
        if found {
            self.next = verified.next();
        }
        self.next = self.next.max(self.match_index.next());
        while let Some(&(last, bytes)) = self.inflight.front() {
            if last > self.match_index {
                break;
            }
            self.inflight.pop_front();
            self.inflight_bytes -= bytes;
        }
    }

    /// The follower has no block that ends at `prev_index`; `edge` is the highest place in the
    /// leader's log where the logs can still match, none when that lies before the log, which
    /// begins behind `start`. Returns whether the answer was news.
    pub(crate) fn on_rejected(
        &mut self,
        prev_index: LogIndex,
        edge: Option<LogIndex>,
        start: LogIndex,
    ) -> bool {
        if prev_index <= self.match_index || self.state == ProgressState::Snapshot {
            return false;
        }
        if let ProgressState::Probe { .. } = self.state
            && prev_index.next() != self.next
        {
            return false;
        }
        let edge = edge.unwrap_or(LogIndex(0)).max(self.match_index);
        if edge < start {
            self.need_snapshot(start);
            return true;
        }
        self.next = edge.next();
        self.state = ProgressState::Probe { paused: false };
        self.forget_inflight();
        true
    }

    /// What it needs next lies before the log, which begins behind `start`. Meanwhile heartbeats
    /// name the start: it cannot have that, unless it needs no snapshot any more.
    pub(crate) fn need_snapshot(&mut self, start: LogIndex) {
        assert!(self.match_index < start, "who has the start of the log needs no snapshot");
        self.state = ProgressState::Snapshot;
        self.next = start.next();
        self.forget_inflight();
    }

    fn forget_inflight(&mut self) {
        self.inflight.clear();
        self.inflight_bytes = 0;
    }

    /// Asserts what must always hold.
    pub(crate) fn check(&self, last: LogIndex) {
        assert!(self.next > self.match_index, "next is above match");
        assert!(self.match_index <= last && self.next.prev() <= last, "progress is within the log");
        let bytes: usize = self.inflight.iter().map(|(_, b)| b).sum();
        assert_eq!(bytes, self.inflight_bytes, "bytes in flight are the sum of the messages'");
        assert!(self.inflight.iter().zip(self.inflight.iter().skip(1)).all(|(a, b)| a.0 < b.0));
        if let ProgressState::Probe { .. } = self.state {
            assert!(self.inflight.is_empty(), "a probe is not counted as in flight");
        }
        if self.state == ProgressState::Snapshot {
            assert!(self.inflight.is_empty(), "no blocks are in flight beside a snapshot");
        } else {
            assert!(self.sending.is_none(), "a snapshot is sent to whoever needs one");
        }
    }
}

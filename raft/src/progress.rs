//! What a leader knows of one follower, and how fast it sends to it.

use alloc::collections::VecDeque;

use palisade_types::{LogIndex, Time};

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
        }
    }

    /// Whether another message with blocks may be sent.
    pub(crate) fn has_room(&self, messages_max: usize, bytes_max: usize) -> bool {
        match self.state {
            ProgressState::Probe { paused } => !paused,
            ProgressState::Replicate => self.inflight.len() < messages_max && self.inflight_bytes < bytes_max,
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
        }
    }

    /// The follower has matched up to `verified` and holds `durable` on disk.
    pub(crate) fn on_accepted(&mut self, verified: LogIndex, durable: LogIndex) {
        self.match_index = self.match_index.max(durable);
        let found = verified.next() >= self.next;
        if found && self.state != ProgressState::Replicate {
            self.state = ProgressState::Replicate;
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
    /// leader's log where the logs can still match. Returns whether the answer was news.
    pub(crate) fn on_rejected(&mut self, prev_index: LogIndex, edge: LogIndex) -> bool {
        if prev_index <= self.match_index {
            return false;
        }
        if let ProgressState::Probe { .. } = self.state
            && prev_index.next() != self.next
        {
            return false;
        }
        self.next = edge.max(self.match_index).next();
        self.state = ProgressState::Probe { paused: false };
        self.inflight.clear();
        self.inflight_bytes = 0;
        true
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
    }
}

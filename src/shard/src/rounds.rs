//! What waits for a confirmation of the leadership: reads, renewals, attachments, and sessions that
//! are due (DESIGN sections 2 and 7). One round serves all that had arrived when it started; at most
//! one is under way and the next gathers meanwhile.

use alloc::vec::Vec;

use palisade_raft::RoundId;
use palisade_types::{ConnId, LogIndex, Refusal, RequestId, SessionId, SessionToken, Time};
use palisade_wire::Query;

/// A read that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// Who asks.
    pub(crate) conn: ConnId,
    /// Its number there.
    pub(crate) id: RequestId,
    /// What.
    pub(crate) query: Query,
}

/// What a round is for.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A read.
    Read(Read),
    /// Renewals of sessions attached to the connection.
    Renew {
        /// Who asks.
        conn: ConnId,
        /// Its number there.
        id: RequestId,
        /// Those whose clocks wait for the answer.
        sessions: Vec<SessionId>,
        /// Those already refused.
        refused: Vec<Refusal>,
        /// When it arrived; the clocks go on from there.
        arrived: Time,
    },
    /// A connection presents a session's token.
    Attach {
        /// Who asks.
        conn: ConnId,
        /// Its number there.
        id: RequestId,
        /// What it shows.
        token: SessionToken,
        /// For which session.
        session: SessionId,
    },
    /// A session is due: does this node still lead?
    Expire(SessionId),
}

/// The rounds of a leader.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    gathering: Vec<Item>,
    flight: Option<(RoundId, LogIndex, Vec<Item>)>,
    /// Confirmed, but the read index is not applied yet.
    confirmed: Vec<(LogIndex, Vec<Item>)>,
}

impl Rounds {
    /// Joins the next round to start.
    pub(crate) fn join(&mut self, item: Item) {
        self.gathering.push(item);
    }

    /// How many items wait, in all stages.
    pub(crate) fn len(&self) -> usize {
        let flight = self.flight.as_ref().map_or(0, |(_, _, items)| items.len());
        self.gathering.len() + flight + self.confirmed.iter().map(|(_, items)| items.len()).sum::<usize>()
    }

    /// Whether a round should start now.
    pub(crate) fn wants_start(&self) -> bool {
        self.flight.is_none() && !self.gathering.is_empty()
    }

    /// A round started: it serves all that has gathered.
    pub(crate) fn started(&mut self, id: RoundId, read_index: LogIndex) {
        assert!(self.flight.is_none(), "one round at a time");
        self.flight = Some((id, read_index, core::mem::take(&mut self.gathering)));
    }

    /// A quorum confirmed this round and all before it.
    pub(crate) fn confirmed(&mut self, id: RoundId) {
        if self
            .flight
            .as_ref()
            .is_some_and(|(flight, _, _)| flight.term == id.term && flight.counter <= id.counter)
            && let Some((_, index, items)) = self.flight.take()
        {
            self.confirmed.push((index, items));
        }
    }

    /// What may be served, the state being applied up to this index.
    pub(crate) fn take_served(&mut self, applied: LogIndex) -> Vec<Item> {
        match self.confirmed.first() {
            Some((index, _)) if *index <= applied => self.confirmed.remove(0).1,
            _ => Vec::new(),
        }
    }

    /// Leadership was lost: everything in hand.
    pub(crate) fn take_all(&mut self) -> Vec<Item> {
        let mut all = core::mem::take(&mut self.gathering);
        all.extend(self.flight.take().into_iter().flat_map(|(_, _, items)| items));
        all.extend(core::mem::take(&mut self.confirmed).into_iter().flat_map(|(_, items)| items));
        all
    }
}

//! What waits for a confirmation of the leadership: reads, renewals, attachments, claims to resources that
//! are on record, and sessions that are due (DESIGN sections 2 and 7). One round serves all that had arrived when it started; at most
//! one is under way and the next gathers meanwhile.

use alloc::vec::Vec;
use core::mem::take;

use palisade_raft::{AskId, RoundId};
use palisade_types::{
    ConnId, Key, LogIndex, Name, NodeId, Refusal, RequestId, SessionId, SessionToken, Time,
};
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
    /// A key claims a resource, as it did not long ago.
    Claim {
        /// Who asks.
        conn: ConnId,
        /// Its number there.
        id: RequestId,
        /// What is protected.
        resource: Name,
        /// By which lock.
        key: Key,
    },
    /// A session is due: does this node still lead?
    Expire(SessionId),
}

/// A round under way.
#[derive(Debug)]
struct Flight {
    id: RoundId,
    read_index: LogIndex,
    items: Vec<Item>,
    asks: Vec<(NodeId, AskId)>,
}

/// What followers asked, and the read index to answer them with.
pub(crate) type Answers = (LogIndex, Vec<(NodeId, AskId)>);

/// The rounds of a leader.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    gathering: Vec<Item>,
    /// Followers that ask for a read index, each with its newest question.
    asks: Vec<(NodeId, AskId)>,
    flight: Option<Flight>,
    /// Confirmed, but the read index is not applied yet.
    confirmed: Vec<(LogIndex, Vec<Item>)>,
}

impl Rounds {
    /// Joins the next round to start.
    pub(crate) fn join(&mut self, item: Item) {
        self.gathering.push(item);
    }

    /// A follower asks: its question joins the next round, in the place of an older one of its own.
    pub(crate) fn ask(&mut self, from: NodeId, ask: AskId) {
        self.asks.retain(|(node, _)| *node != from);
        self.asks.push((from, ask));
    }

    /// How many items wait, in all stages.
    pub(crate) fn len(&self) -> usize {
        let flight = self.flight.as_ref().map_or(0, |flight| flight.items.len());
        self.gathering.len() + flight + self.confirmed.iter().map(|(_, items)| items.len()).sum::<usize>()
    }

    /// Whether a round should start now.
    pub(crate) fn wants_start(&self) -> bool {
        self.flight.is_none() && !(self.gathering.is_empty() && self.asks.is_empty())
    }

    /// A round started: it serves all that has gathered.
    pub(crate) fn started(&mut self, id: RoundId, read_index: LogIndex) {
        assert!(self.flight.is_none(), "one round at a time");
        let (items, asks) = (take(&mut self.gathering), take(&mut self.asks));
        self.flight = Some(Flight { id, read_index, items, asks });
    }

    /// A quorum confirmed this round and all before it. Returns what can be answered to followers:
    /// they, and not this node, must have applied the index.
    pub(crate) fn confirmed(&mut self, id: RoundId) -> Option<Answers> {
        let covers = |flight: &Flight| flight.id.term == id.term && flight.id.counter <= id.counter;
        let Flight { read_index, items, asks, .. } = self.flight.take_if(|flight| covers(flight))?;
        if !items.is_empty() {
            self.confirmed.push((read_index, items));
        }
        Some((read_index, asks))
    }

    /// What may be served, the state being applied up to this index.
    pub(crate) fn take_served(&mut self, applied: LogIndex) -> Vec<Item> {
        match self.confirmed.iter().position(|(index, _)| *index <= applied) {
            Some(at) => self.confirmed.remove(at).1,
            None => Vec::new(),
        }
    }

    /// Leadership was lost: everything in hand. Followers that asked learn it from whoever leads now.
    pub(crate) fn take_all(&mut self) -> Vec<Item> {
        self.asks.clear();
        let mut all = take(&mut self.gathering);
        all.extend(self.flight.take().into_iter().flat_map(|flight| flight.items));
        all.extend(take(&mut self.confirmed).into_iter().flat_map(|(_, items)| items));
        all
    }
}

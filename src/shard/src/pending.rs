//! Who waits for which entry: found by index and term when the entry is applied, and answered only
//! then.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use palisade_types::{ConnId, LogIndex, NodeId, RequestId, SessionId, Term, Ticket, Time};

/// Where a command came from, and so where its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client's request.
    Client {
        /// Its connection.
        conn: ConnId,
        /// Its number there.
        id: RequestId,
        /// When its time to wait in a queue ends.
        wait_until: Option<Time>,
    },
    /// An operator's order to hand over: it is carried out once it is on record.
    Transfer {
        /// Its connection.
        conn: ConnId,
        /// Its number there.
        id: RequestId,
        /// Whose leadership.
        term: Term,
        /// To whom.
        to: Option<NodeId>,
    },
    /// The leader's own: a claim's time to wait ran out. The answer is pushed to the session.
    WaitOver {
        /// Whose claim.
        session: SessionId,
        /// Which.
        ticket: Ticket,
    },
    /// The leader's own: a session expired.
    Expiry,
    /// The leader's own: a step of the backlog.
    Sweep,
}

/// The commands of one proposed block.
#[derive(Debug)]
struct Proposed {
    term: Term,
    first: LogIndex,
    origins: Vec<Origin>,
}

/// All blocks proposed here and not yet applied.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    blocks: VecDeque<Proposed>,
    commands: usize,
}

impl Pending {
    /// The open block became this entry of the log.
    pub(crate) fn proposed(&mut self, term: Term, first: LogIndex, origins: Vec<Origin>) {
        assert!(self.blocks.back().is_none_or(|b| b.first < first), "proposals follow each other in the log");
        self.commands += origins.len();
        self.blocks.push_back(Proposed { term, first, origins });
    }

    /// A block was committed: the origins of its commands, if it was proposed here. Blocks proposed
    /// here that it replaced are handed to `lost`: nothing came of them.
    ///
    /// `by_index_only` is a bug for the simulator: it takes whatever was committed for ours.
    pub(crate) fn committed(
        &mut self,
        term: Term,
        first: LogIndex,
        last: LogIndex,
        by_index_only: bool,
        mut lost: impl FnMut(Origin),
    ) -> Option<Vec<Origin>> {
        while let Some(front) = self.blocks.front() {
            if front.first > last {
                return None;
            }
            let ours = front.first == first && (front.term == term || by_index_only);
            let block = self.blocks.pop_front()?;
            self.commands -= block.origins.len();
            if ours {
                return Some(block.origins);
            }
            block.origins.into_iter().for_each(&mut lost);
        }
        None
    }

    /// Leadership was lost: everything in hand, whose fate is unknown.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Origin> {
        self.commands = 0;
        core::mem::take(&mut self.blocks).into_iter().flat_map(|b| b.origins)
    }

    /// Commands in hand.
    pub(crate) fn len(&self) -> usize {
        self.commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_needs_index_and_term_and_what_was_replaced_is_lost() {
        let mut p = Pending::default();
        p.proposed(Term(2), LogIndex(5), alloc::vec![Origin::Sweep, Origin::Expiry]);
        p.proposed(Term(2), LogIndex(7), alloc::vec![Origin::Sweep]);
        assert_eq!(p.committed(Term(1), LogIndex(4), LogIndex(4), false, |_| panic!()), None);
        assert_eq!(
            p.committed(Term(2), LogIndex(5), LogIndex(6), false, |_| panic!()),
            Some(alloc::vec![Origin::Sweep, Origin::Expiry])
        );
        let mut lost = Vec::new();
        assert_eq!(p.committed(Term(3), LogIndex(7), LogIndex(7), false, |o| lost.push(o)), None);
        assert_eq!((lost, p.len()), (alloc::vec![Origin::Sweep], 0));
    }
}

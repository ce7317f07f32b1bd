//! Handing leadership over, for an operator or because this node is about to stop (DESIGN section 8).
//!
//! What is in the open block is proposed first, and everybody who waits for the log has its answer
//! before the successor is invited: raft sees to that. What arrives meanwhile gathers in the open
//! block. If the hand-over succeeds it is refused with a hint to the successor, if it is given up it
//! is proposed as ever.
//!
//! An operator's order is put on record first, and the hand-over begins when the record is applied. The
//! answer comes from the new leader: the old one sends the operator there, and the same order, which
//! names the term that is over, finds its record.

use alloc::vec::Vec;
use core::mem::take;

use palisade_raft::TransferError;
use palisade_types::{ConnId, NodeId, OperatorAct, Refusal, Reply, RequestId, Time};

use crate::action::{Actions, Note};
use crate::request::{RETRY_AFTER_MS, bad};
use crate::shard::Shard;

/// A hand-over, as far as the shard has to do with it.
#[derive(Debug, Default)]
pub(crate) struct HandOver {
    under_way: bool,
    /// Who was invited: where clients are sent until a leader is known.
    successor: Option<NodeId>,
    /// Operators that wait for the outcome.
    waiting: Vec<(ConnId, RequestId)>,
}

impl Shard {
    /// Whether this node leads.
    pub fn is_leading(&self) -> bool {
        self.leading.is_some()
    }

    /// Whether this leader is handing its leadership over.
    pub fn is_handing_over(&self) -> bool {
        self.handover.under_way
    }

    /// This node is about to stop: if it leads, another should.
    pub(crate) fn hand_over(&mut self, now: Time, out: &mut Actions) {
        // Alone, not leading, or under way: then there is nothing to be done.
        let _ = self.begin_hand_over(now, None, out);
    }

    fn begin_hand_over(
        &mut self,
        now: Time,
        to: Option<NodeId>,
        out: &mut Actions,
    ) -> Result<(), TransferError> {
        self.propose_open_block(now, out);
        self.raft.transfer(now, to)?;
        self.handover.under_way = true;
        self.counters.hand_overs += 1;
        out.notes.push(Note::HandingOver { to });
        Ok(())
    }

    /// An operator's order to hand over may be put on record.
    pub(crate) fn check_transfer(&self, act: &OperatorAct) -> Result<(), Refusal> {
        let OperatorAct::Transfer { term: asked, to } = *act else { return Ok(()) };
        if let Some(node) = to.filter(|to| !self.config.raft.voters.contains(to)) {
            return Err(Refusal::NotAVoter { node });
        }
        if to.is_none() && self.config.raft.voters.len() == 1 {
            return Err(bad("there is no other voter to lead"));
        }
        let (term, leader) = (self.raft.status().term, self.config.node);
        if Some(asked) == self.leading && to != Some(leader) {
            return Ok(());
        }
        // It may be a repeat, on record in what is not applied yet.
        if !self.serving {
            return Err(Refusal::Busy { retry_after_ms: RETRY_AFTER_MS });
        }
        if self.machine.has_act(act) { Ok(()) } else { Err(Refusal::OtherTerm { asked, term, leader }) }
    }

    /// An order is on record: if its term is still the present one, it is carried out now.
    pub(crate) fn transfer_recorded(
        &mut self,
        now: Time,
        conn: ConnId,
        id: RequestId,
        act: OperatorAct,
        done: Reply,
        out: &mut Actions,
    ) {
        let OperatorAct::Transfer { term, to } = act else { return };
        if self.leading != Some(term) || !matches!(done, Reply::OperatorDone { .. }) {
            out.replies.push((conn, id, done));
            return;
        }
        match self.begin_hand_over(now, to, out) {
            Ok(()) | Err(TransferError::UnderWay) => self.handover.waiting.push((conn, id)),
            Err(_) => {
                let refusal = Refusal::NotHandedOver { leader: self.config.node };
                out.replies.push((conn, id, Reply::Refused(refusal)));
            }
        }
    }

    /// Notes who is invited, and what has become of a hand-over.
    pub(crate) fn note_hand_over(&mut self, out: &mut Actions) {
        if self.raft.leader().is_some_and(|leader| leader != self.config.node) {
            self.handover.successor = None;
        }
        if !self.handover.under_way {
            return;
        }
        if let Some(successor) = self.raft.invited() {
            self.handover.successor = Some(successor);
        }
        // Whether this node is deposed is another's to find out.
        if self.leading.is_some() && self.raft.leads() && !self.raft.is_transferring() {
            self.handover.under_way = false;
            self.handover.successor = None;
            self.counters.hand_overs_given_up += 1;
            out.notes.push(Note::HandOverGivenUp);
            let refusal = Refusal::NotHandedOver { leader: self.config.node };
            for (conn, id) in take(&mut self.handover.waiting) {
                out.replies.push((conn, id, Reply::Refused(refusal.clone())));
            }
        }
    }

    /// Leadership is lost. Whoever waited for the outcome asks the new leader, which knows.
    pub(crate) fn end_hand_over(&mut self, leader: Option<NodeId>, out: &mut Actions) {
        self.handover.under_way = false;
        for (conn, id) in take(&mut self.handover.waiting) {
            out.replies.push((conn, id, Reply::Refused(Refusal::NotLeader { leader })));
        }
    }

    /// The leader, or whoever was invited to lead as long as none is known: where clients should ask.
    pub(crate) fn leader_hint(&self) -> Option<NodeId> {
        self.leader().or(self.handover.successor)
    }
}

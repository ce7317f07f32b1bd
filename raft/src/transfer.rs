//! Handing leadership over (thesis, section 3.10). The leader takes no more proposals, brings the one
//! that is to follow it up to the end of its log, and invites it to stand at once. That one's votes
//! are marked as invited, and only such votes pass the stickiness of those who hear a leader.
//!
//! What an invitation may do is bound to its term: it counts while its receiver follows its sender in
//! that term, and it makes votes of the very next term pass, nothing else. So one that is late,
//! repeated or another's does no more than an election would. But within its term it may work at any
//! time, also long after the leader has given up; therefore a lease is forgone before anything is
//! sent, and for the rest of the term.

use palisade_types::{LogIndex, Mutant, NodeId, Term, Time};

use crate::message::{Message, TimeoutNow, Vote};
use crate::node::{Raft, State};

/// A voter that answered within so many heartbeats is taken to be there.
const PRESENT_HEARTBEATS: u32 = 3;

/// A hand-over under way.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Who is to lead; none: whoever is first to hold everything.
    to: Option<NodeId>,
    /// Given up then.
    pub(crate) until: Time,
    /// Who was invited, and the end of the log at that time.
    pub(crate) invited: Option<(NodeId, LogIndex)>,
}

/// Why leadership is not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// Only a leader can.
    #[error("this node does not lead")]
    NotLeader {
        /// Who does, if known.
        leader: Option<NodeId>,
    },
    /// It leads already.
    #[error("node {0} leads already")]
    LeadsAlready(NodeId),
    /// That node does not vote here, and so cannot lead.
    #[error("node {0} is not a voter of this cluster")]
    NotAVoter(NodeId),
    /// There is no other voter.
    #[error("there is no other voter to lead")]
    Alone,
    /// Another hand-over is under way; it ends within one shortest election timeout.
    #[error("leadership is being handed over already")]
    UnderWay,
}

impl Raft {
    /// Begins to hand the leadership to a voter, or without a name to whoever is first to hold
    /// everything. From here until it has succeeded (this node steps down) or is given up, after
    /// [`crate::Config::election_min`], nothing is proposed. The invitation leaves once all that was
    /// proposed is committed and handed out, so that nobody's answer is lost by it. The lease is
    /// forgone for the rest of the term, whatever becomes of this.
    ///
    /// # Errors
    /// [`TransferError`]; then nothing has begun.
    pub fn transfer(&mut self, now: Time, to: Option<NodeId>) -> Result<(), TransferError> {
        self.now = self.now.max(now);
        let State::Leader(lead) = &self.state else {
            return Err(TransferError::NotLeader { leader: self.leader });
        };
        if lead.transfer.is_some() {
            return Err(TransferError::UnderWay);
        }
        match to {
            Some(node) if node == self.config.id => return Err(TransferError::LeadsAlready(node)),
            Some(node) if !self.membership.contains(node) => return Err(TransferError::NotAVoter(node)),
            None if lead.peers.is_empty() => return Err(TransferError::Alone),
            Some(_) | None => {}
        }
        if !self.config.mutants.has(Mutant::H1) {
            self.forgo_lease();
        }
        let until = self.now + self.config.election_min;
        if let State::Leader(lead) = &mut self.state {
            lead.transfer = Some(Transfer { to, until, invited: None });
        }
        self.pump_all();
        self.invite();
        Ok(())
    }

    /// Whether this leader is handing its leadership over: it takes no proposals meanwhile.
    pub fn is_transferring(&self) -> bool {
        matches!(&self.state, State::Leader(lead) if lead.transfer.is_some())
    }

    /// Whether this node leads.
    pub fn leads(&self) -> bool {
        matches!(self.state, State::Leader(_))
    }

    /// Whether this node leads and is not handing its leadership over: [`Raft::propose`] takes blocks.
    pub fn takes_proposals(&self) -> bool {
        self.leads() && (!self.is_transferring() || self.config.mutants.has(Mutant::H4))
    }

    /// Who was invited to lead in the place of this leader, once somebody was.
    pub fn invited(&self) -> Option<NodeId> {
        let State::Leader(lead) = &self.state else { return None };
        lead.transfer.as_ref()?.invited.map(|(node, _)| node)
    }

    /// Invites, once, when the time has come: everything is committed and handed out, and the disk of
    /// the one that is to lead holds it too.
    pub(crate) fn invite(&mut self) {
        let last = self.log.last().index;
        let State::Leader(lead) = &self.state else { return };
        let Some(transfer) = &lead.transfer else { return };
        if transfer.invited.is_some() || self.delivered != last {
            return;
        }
        let present_since = |contact: Time| contact + self.config.heartbeat * PRESENT_HEARTBEATS >= self.now;
        let ready = lead.peers.iter().filter(|(_, progress)| progress.match_index == last);
        let wanted = ready.filter(|(node, progress)| match transfer.to {
            Some(to) => to == **node,
            None => self.membership.contains(**node) && present_since(progress.contact),
        });
        let best = wanted.max_by_key(|(_, progress)| progress.contact).map(|(&node, _)| node);
        let (Some(to), State::Leader(lead)) = (best, &mut self.state) else { return };
        if let Some(transfer) = &mut lead.transfer {
            transfer.invited = Some((to, last));
        }
        self.send_invitation();
    }

    /// Sends the invitation, or sends it again.
    pub(crate) fn send_invitation(&mut self) {
        let State::Leader(lead) = &self.state else { return };
        let Some((to, last_index)) = lead.transfer.as_ref().and_then(|transfer| transfer.invited) else {
            return;
        };
        let message = Message::TimeoutNow(TimeoutNow { term: self.term, last_index });
        self.mail.post(&self.ledger, to, message);
    }

    /// Gives a hand-over up that takes too long: proposals are taken again.
    pub(crate) fn tick_transfer(&mut self) {
        let now = self.now;
        let State::Leader(lead) = &mut self.state else { return };
        if lead.transfer.take_if(|transfer| now >= transfer.until).is_some()
            && self.config.mutants.has(Mutant::H3)
        {
            lead.lease.take_back();
        }
    }

    /// The leader invites this node to lead. It stands at once if it can: if it follows that leader,
    /// has all that the leader had, and has a disk that works.
    pub(crate) fn on_timeout_now(&mut self, from: NodeId, m: TimeoutNow) {
        let is_present = m.term == self.term && self.leader == Some(from);
        let late = self.config.mutants.has(Mutant::H2) && m.term <= self.term;
        let State::Follower(following) = &self.state else { return };
        let holds_all = following.verified.min(self.ledger.log_durable()) >= m.last_index;
        let can_lead = self.membership.contains(self.config.id) && !self.disk_is_stalled();
        if (is_present || late) && holds_all && can_lead {
            self.start_vote(true);
        }
    }

    /// Whether a vote passes the stickiness of whoever hears a leader: it was invited by the leader of
    /// the term this node is in.
    pub(crate) fn is_invited(&self, vote: &Vote) -> bool {
        vote.invited && self.term.next() == vote.term
    }

    pub(crate) fn check_transfer(&self, last: LogIndex, last_term: Term) {
        let State::Leader(lead) = &self.state else { return };
        let Some(transfer) = &lead.transfer else { return };
        if let Some((node, end)) = transfer.invited {
            assert!(lead.peers.contains_key(&node), "a voter is invited");
            assert!(end == last && last_term == self.term, "nothing is proposed after an invitation");
        }
    }
}

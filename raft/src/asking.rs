//! Read indexes for followers (thesis, section 6.4): a follower asks, the leader answers after a
//! confirmation round that began after the question arrived. When to start that round is the
//! driver's: it is the same that its own reads wait for.

use palisade_types::{LogIndex, NodeId, Time};

use crate::message::{AskId, Message, ReadIndex, ReadIndexReply};
use crate::node::{Raft, State};
use crate::ready::{NotLeader, ReadAnswer};

/// Questions and answers that wait to be handed out, and the question that is open.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// Questions asked since the start.
    count: u64,
    /// The newest question, while it has no answer: no other answer is taken.
    open: Option<AskId>,
    pub(crate) answer: Option<ReadAnswer>,
    /// At a leader: the newest question of each follower.
    pub(crate) questions: alloc::vec::Vec<(NodeId, AskId)>,
}

impl Asking {
    /// Term or role changed: what was asked and answered in the old one is void.
    pub(crate) fn clear(&mut self) {
        self.open = None;
        self.answer = None;
        self.questions.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.answer.is_none() && self.questions.is_empty()
    }
}

impl Raft {
    /// Asks the leader how new a read must be that is answered here: see
    /// [`crate::Ready::read_answer`]. A question or its answer may get lost; asking anew gives the
    /// earlier question up.
    ///
    /// # Errors
    /// [`NotLeader`], with no leader, where none is known; with itself where this node leads, which
    /// starts rounds instead.
    pub fn ask_read_index(&mut self, now: Time) -> Result<AskId, NotLeader> {
        self.now = self.now.max(now);
        let leader = self.leader.filter(|_| matches!(self.state, State::Follower(_)));
        let Some(leader) = leader else { return Err(NotLeader { leader: self.leader }) };
        self.asking.count += 1;
        let ask = AskId { boot: self.config.boot, count: self.asking.count };
        self.asking.open = Some(ask);
        self.asking.answer = None;
        let message = Message::ReadIndex(ReadIndex { term: self.term, ask });
        self.mail.post(&self.ledger, leader, message);
        Ok(ask)
    }

    /// A leader answers a question of [`crate::Ready::questions`]: a round that began after the
    /// question was handed out is confirmed, and this is its read index. Says nothing once this node
    /// no longer leads.
    pub fn answer_read_index(&mut self, to: NodeId, ask: AskId, index: LogIndex) {
        if matches!(self.state, State::Leader(_)) {
            self.post_read_index(to, ask, Some(index));
        }
    }

    fn post_read_index(&mut self, to: NodeId, ask: AskId, index: Option<LogIndex>) {
        let reply = ReadIndexReply { term: self.term, ask, index };
        self.mail.post(&self.ledger, to, Message::ReadIndexReply(reply));
    }

    pub(crate) fn on_read_index(&mut self, from: NodeId, m: ReadIndex) {
        let State::Leader(lead) = &mut self.state else { return self.post_read_index(from, m.ask, None) };
        if m.term < self.term {
            return self.post_read_index(from, m.ask, None);
        }
        // One that was asked before is late or repeated: whoever asked waits for the newer.
        if lead.asked.get(&from).is_none_or(|newest| *newest < m.ask) {
            lead.asked.insert(from, m.ask);
            self.asking.questions.retain(|(node, _)| *node != from);
            self.asking.questions.push((from, m.ask));
        }
    }

    pub(crate) fn on_read_index_reply(&mut self, from: NodeId, m: ReadIndexReply) {
        let is_leaders = m.term == self.term && self.leader == Some(from);
        if is_leaders && self.asking.open == Some(m.ask) {
            self.asking.open = None;
            self.asking.answer = Some(ReadAnswer { ask: m.ask, index: m.index });
        }
    }
}

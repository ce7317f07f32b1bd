//! Elections: pre-vote, vote, and who refuses them (Raft paper, sections 5.2 and 5.4.1; thesis,
//! sections 4.2.3 and 9.6).

use alloc::collections::BTreeMap;

use palisade_types::{LogIndex, Mutant, NodeId, Term};

use crate::follower::Following;
use crate::membership::Tally;
use crate::message::{Message, PreVote, PreVoteReply, Vote, VoteReply};
use crate::node::{Candidacy, Raft, State};

impl Raft {
    pub(crate) fn tick_election(&mut self) {
        if self.now >= self.election_at {
            if !self.disk_is_stalled() {
                self.start_pre_vote();
                return;
            }
            // It could not make its own vote durable; others should win.
            self.draw_election_at();
        }
        let now = self.now;
        let resend_at = now + self.config.heartbeat;
        match &mut self.state {
            State::PreCandidate(c) | State::Candidate(c) if now >= c.resend_at => c.resend_at = resend_at,
            _ => return,
        }
        self.ask_for_votes();
    }

    /// Asks whether an election could be won, without disturbing anyone's term.
    fn start_pre_vote(&mut self) {
        self.draw_election_at();
        self.leader = None;
        self.asking.clear();
        self.state = State::PreCandidate(self.candidacy());
        self.note_answer(self.config.id, true);
        self.ask_for_votes();
        self.close_pre_vote();
    }

    /// Stands, invited by the leader or not. The own vote counts when it is durable, like any other.
    pub(crate) fn start_vote(&mut self, invited: bool) {
        self.draw_election_at();
        self.set_term(self.term.next(), Some(self.config.id));
        self.state = State::Candidate(Candidacy { invited, ..self.candidacy() });
        self.ask_for_votes();
        self.count_own_vote();
    }

    fn candidacy(&self) -> Candidacy {
        let resend_at = self.now + self.config.heartbeat;
        Candidacy { answers: BTreeMap::new(), resend_at, invited: false }
    }

    /// Asks all who have not said yes: questions and answers get lost, and a no to a pre-vote may
    /// only mean that the old leader was heard a moment ago.
    fn ask_for_votes(&mut self) {
        let last = self.log.last();
        let (candidacy, message) = match &self.state {
            State::PreCandidate(c) => {
                let term = self.term.next();
                (c, Message::PreVote(PreVote { term, last_term: last.term, last_index: last.index }))
            }
            State::Candidate(c) => {
                let (term, invited) = (self.term, c.invited);
                (c, Message::Vote(Vote { term, last_term: last.term, last_index: last.index, invited }))
            }
            State::Follower(_) | State::Leader(_) => return,
        };
        for &voter in self.membership.voters() {
            if voter != self.config.id && candidacy.answers.get(&voter) != Some(&true) {
                self.mail.post(&self.ledger, voter, message.clone());
            }
        }
    }

    fn note_answer(&mut self, from: NodeId, granted: bool) {
        if let State::PreCandidate(c) | State::Candidate(c) = &mut self.state {
            // A yes is not taken back by a late no.
            let answer = c.answers.entry(from).or_insert(granted);
            *answer |= granted;
        }
    }

    fn tally(&self) -> Tally {
        match &self.state {
            State::PreCandidate(c) | State::Candidate(c) => {
                self.membership.tally(|voter| c.answers.get(&voter).copied())
            }
            State::Follower(_) | State::Leader(_) => Tally::Open,
        }
    }

    fn close_pre_vote(&mut self) {
        match self.tally() {
            Tally::Won => self.start_vote(false),
            Tally::Lost => self.state = State::Follower(Following::default()),
            Tally::Open => {}
        }
    }

    fn close_vote(&mut self) {
        match self.tally() {
            Tally::Won => self.become_leader(),
            Tally::Lost => self.state = State::Follower(Following::default()),
            Tally::Open => {}
        }
    }

    /// The candidate's vote for itself, once the disk has it.
    pub(crate) fn count_own_vote(&mut self) {
        let hasty = self.config.mutants.has(Mutant::B3);
        if hasty || self.ledger.is_hard_durable(self.ledger.hard()) {
            self.note_answer(self.config.id, true);
            self.close_vote();
        }
    }

    /// Whether a leader is believed to be alive, so that nobody else should be elected; or might be, for
    /// all that a node knows that has just started.
    pub(crate) fn is_sticky(&self) -> bool {
        match self.state {
            State::Leader(_) => true,
            State::Follower(_) | State::PreCandidate(_) | State::Candidate(_) => {
                self.is_new_here() || self.heard_at.is_some_and(|at| self.now < at + self.config.election_min)
            }
        }
    }

    /// Whether a log is at least as new as this one (Raft paper, section 5.4.1): later term first,
    /// longer log second.
    fn is_as_new(&self, last_term: Term, last_index: LogIndex) -> bool {
        let own = self.log.last();
        (last_term, last_index) >= (own.term, own.index)
    }

    pub(crate) fn on_pre_vote(&mut self, from: NodeId, m: PreVote) {
        let granted = m.term > self.term && !self.is_sticky() && self.is_as_new(m.last_term, m.last_index);
        let reply = PreVoteReply { term: self.term, asked: m.term, granted };
        self.mail.post(&self.ledger, from, Message::PreVoteReply(reply));
    }

    pub(crate) fn on_pre_vote_reply(&mut self, from: NodeId, m: PreVoteReply) {
        if !matches!(self.state, State::PreCandidate(_)) || m.asked != self.term.next() {
            return;
        }
        self.note_answer(from, m.granted);
        self.close_pre_vote();
    }

    pub(crate) fn on_vote(&mut self, from: NodeId, m: Vote) {
        let free = self.vote.is_none() || self.vote == Some(from);
        // In the term of a known leader no vote is left that could matter.
        let granted = m.term == self.term
            && free
            && self.leader.is_none()
            && !self.is_new_here()
            && self.is_as_new(m.last_term, m.last_index);
        if granted {
            if self.vote.is_none() {
                self.set_term(self.term, Some(from));
            }
            if matches!(self.state, State::PreCandidate(_)) {
                self.state = State::Follower(Following::default());
            }
            self.draw_election_at();
        }
        let reply = VoteReply { term: self.term, granted };
        self.mail.post(&self.ledger, from, Message::VoteReply(reply));
    }

    pub(crate) fn on_vote_reply(&mut self, from: NodeId, m: VoteReply) {
        if !matches!(self.state, State::Candidate(_)) || m.term != self.term {
            return;
        }
        self.note_answer(from, m.granted);
        self.close_vote();
    }
}

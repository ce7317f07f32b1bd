//! Elections (DESIGN section 4): a campaign is an exclusive claim with a value, and a proclamation
//! changes the value of whoever leads. Resigning is a release.

use palisade_types::{Class, Mutant, Outcome, Refusal, Reply, SessionId, Ticket, Value};

use crate::claims::State;
use crate::locks::Lock;
use crate::machine::{Machine, Wish};
use crate::slab::{NONE, Slot};

/// What a candidate says.
pub(crate) struct Candidate {
    /// What its campaign said: part of what a repetition must repeat.
    campaign: Value,
    /// What it proclaimed since.
    proclaimed: Option<Value>,
}

impl Candidate {
    pub(crate) fn new(campaign: Value) -> Candidate {
        Candidate { campaign, proclaimed: None }
    }

    pub(crate) fn value(&self) -> &Value {
        self.proclaimed.as_ref().unwrap_or(&self.campaign)
    }

    pub(crate) fn campaign(&self) -> &Value {
        &self.campaign
    }
}

impl Machine {
    /// Whether an open claim came with the value of this campaign; no other claim has one.
    pub(crate) fn campaigns_alike(&self, claim: Slot, wish: &Wish) -> bool {
        wish.class != Class::Election
            || self.candidates.get(&claim).map(Candidate::campaign) == wish.value.as_ref()
    }

    /// What the leader of an election says.
    pub(crate) fn leader_value(&self, lock: &Lock) -> Option<&Value> {
        if lock.class != Class::Election || lock.holder == NONE {
            return None;
        }
        self.candidates.get(&lock.holder).map(Candidate::value)
    }

    /// Changes the value of a leader. The order of the questions is part of the replicated behaviour.
    pub(crate) fn proclaim(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        leads: Ticket,
        value: Value,
    ) -> Reply {
        let owner = match self.new_ticket(session, ticket) {
            Ok(owner) => owner,
            Err(reply) => return reply,
        };
        let lost = self.mutants.has(Mutant::E1);
        let outcome = match self.led_by(owner, leads) {
            Ok(claim) => {
                let candidate = self.candidates.get_mut(&claim).expect("who leads has campaigned");
                candidate.proclaimed = Some(value).filter(|_| !lost);
                Ok(Outcome::Done)
            }
            Err(refusal) => Err(refusal),
        };
        let finished = *outcome.as_ref().unwrap_or(&Outcome::Refused);
        self.sessions.records[owner].tickets.finish(ticket, finished);
        match outcome {
            Ok(outcome) => Reply::Finished { session, ticket, outcome },
            Err(refusal) => Reply::Refused(refusal),
        }
    }

    /// The claim of a ticket that leads an election.
    fn led_by(&self, owner: Slot, leads: Ticket) -> Result<Slot, Refusal> {
        let claim = self.held_claim(owner, leads)?;
        let lock = &self.locks.records[self.claims.records[claim].lock];
        if lock.class != Class::Election {
            return Err(Refusal::ClassMismatch { has: lock.class });
        }
        Ok(claim)
    }

    /// The claim of a session's ticket, if it holds its key.
    pub(crate) fn held_claim(&self, owner: Slot, ticket: Ticket) -> Result<Slot, Refusal> {
        let record = &self.sessions.records[owner];
        let Some(claim) = record.open.find(ticket) else {
            if ticket.0 == 0 || !record.tickets.is_finished(ticket) {
                return Err(Refusal::BadRequest { reason: "no claim has that ticket".into() });
            }
            return Err(Refusal::TicketFinished { ticket, outcome: record.tickets.outcome(ticket) });
        };
        if self.claims.records[claim].state == State::Queued {
            return Err(Refusal::BadRequest { reason: "the claim of that ticket still waits".into() });
        }
        Ok(claim)
    }
}

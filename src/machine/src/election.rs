//! Elections (DESIGN section 4): a campaign is an exclusive claim with a value, and a proclamation
//! changes the value of whoever leads. Resigning is a release.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use palisade_types::{Class, Mutant, Outcome, Refusal, Reply, SessionId, Ticket, Value};

use crate::claims::State;
use crate::locks::Lock;
use crate::machine::{Machine, Wish};
use crate::slab::{NONE, Slot};
use crate::snapshot::frozen::FrozenMap;
use crate::snapshot::v1;

/// What a candidate says.
#[derive(Clone)]
struct Candidate {
    /// What its campaign said: part of what a repetition must repeat.
    campaign: Value,
    /// What it proclaimed since.
    proclaimed: Option<Value>,
}

impl Candidate {
    fn value(&self) -> &Value {
        self.proclaimed.as_ref().unwrap_or(&self.campaign)
    }

    fn bytes(&self) -> u64 {
        (self.campaign.len() + self.proclaimed_len()) as u64
    }

    fn proclaimed_len(&self) -> usize {
        self.proclaimed.as_ref().map_or(0, |value| value.len())
    }
}

/// All candidates, by the places of their claims.
#[derive(Default)]
pub(crate) struct Candidates {
    /// Never iterated in an order that shows: the order of places means nothing.
    by_claim: BTreeMap<Slot, Candidate>,
    /// Of all values.
    bytes: u64,
    frozen: Option<Box<FrozenMap<Slot, Candidate>>>,
}

impl Candidates {
    pub(crate) fn insert(&mut self, claim: Slot, campaign: Value) {
        self.keep(claim);
        self.bytes += campaign.len() as u64;
        let before = self.by_claim.insert(claim, Candidate { campaign, proclaimed: None });
        assert!(before.is_none(), "a claim is one candidate");
    }

    pub(crate) fn remove(&mut self, claim: Slot) {
        self.keep(claim);
        let gone = self.by_claim.remove(&claim);
        self.bytes -= gone.map_or(0, |candidate| candidate.bytes());
    }

    fn proclaim(&mut self, claim: Slot, value: Value) {
        self.keep(claim);
        let candidate = self.by_claim.get_mut(&claim).expect("who leads has campaigned");
        self.bytes -= candidate.bytes();
        candidate.proclaimed = Some(value);
        self.bytes += candidate.bytes();
    }

    fn keep(&mut self, claim: Slot) {
        if let Some(frozen) = &mut self.frozen {
            frozen.keep(&claim, self.by_claim.get(&claim));
        }
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(Box::new(FrozenMap::new(&self.by_claim)));
    }

    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The next candidates of the freeze.
    pub(crate) fn give(&mut self, bytes_max: usize) -> Option<Vec<v1::Candidate>> {
        let size = |_: &Slot, candidate: &Candidate| 24 + candidate.bytes() as usize;
        let given = self.frozen.as_mut()?.give(&self.by_claim, bytes_max, size)?;
        let archived = given.into_iter().map(|(claim, Candidate { campaign, proclaimed })| v1::Candidate {
            claim,
            campaign,
            proclaimed,
        });
        Some(archived.collect())
    }

    /// Puts a candidate back, of a claim that has none.
    pub(crate) fn restore(&mut self, claim: Slot, campaign: Value, proclaimed: Option<Value>) -> bool {
        let candidate = Candidate { campaign, proclaimed };
        self.bytes += candidate.bytes();
        self.by_claim.insert(claim, candidate).is_none()
    }

    /// What a campaign said, and what its candidate says now.
    pub(crate) fn said(&self, claim: Slot) -> Option<(&Value, &Value)> {
        let candidate = self.by_claim.get(&claim)?;
        Some((&candidate.campaign, candidate.value()))
    }

    /// What a candidate says now.
    pub(crate) fn value(&self, claim: Slot) -> Value {
        self.by_claim.get(&claim).expect("who leads has campaigned").value().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_claim.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.bytes, self.by_claim.values().map(Candidate::bytes).sum::<u64>());
    }
}

impl Machine {
    /// Whether an open claim came with the value of this campaign; no other claim has one.
    pub(crate) fn campaigns_alike(&self, claim: Slot, wish: &Wish) -> bool {
        wish.class != Class::Election
            || self.candidates.said(claim).map(|(campaign, _)| campaign) == wish.value.as_ref()
    }

    /// What the leader of an election says.
    pub(crate) fn leader_value(&self, lock: &Lock) -> Option<&Value> {
        if lock.class != Class::Election || lock.holder == NONE {
            return None;
        }
        self.candidates.said(lock.holder).map(|(_, value)| value)
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
        let claim = match self.led_by(owner, leads).and_then(|claim| self.room_to_say(claim, &value)) {
            Ok(claim) => claim,
            Err(refusal) => return self.refuse_ticket(owner, ticket, refusal),
        };
        if !self.mutants.has(Mutant::E1) {
            self.candidates.proclaim(claim, value);
            self.tell_proclaimed(claim);
        }
        let outcome = Outcome::Done;
        self.sessions.records[owner].tickets.finish(ticket, outcome);
        Reply::Finished { session, ticket, outcome }
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

    /// A claim whose new value does not exceed the quota.
    fn room_to_say(&self, claim: Slot, value: &Value) -> Result<Slot, Refusal> {
        let before = self.candidates.by_claim.get(&claim).map_or(0, Candidate::proclaimed_len);
        match value.len().saturating_sub(before) as u64 {
            0 => Ok(claim),
            more => self.over_quota(more).map_or(Ok(claim), Err),
        }
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

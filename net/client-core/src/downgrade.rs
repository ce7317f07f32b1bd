//! Turning an exclusive claim into a shared one. The new grant has a ticket of its own, so for a while the
//! claim has two, and whichever way it ends both are finished.

use alloc::string::ToString;
use palisade_types::{Fence, Mode, Refusal, Ticket, Time};

use crate::api::{ClaimId, Event, LostReason, SessionHandle};
use crate::claim::{Claim, Phase};
use crate::core::Core;
use crate::timers::Item;

impl Core {
    /// Downgrades a granted claim: [`Event::ClaimDowngraded`] with the new fence, [`Event::ClaimKept`] when
    /// it is refused, or the claim is lost.
    pub fn downgrade(&mut self, now: Time, id: ClaimId) {
        self.run_timers(now);
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if claim.phase != Phase::Held || claim.spec.mode == Mode::Shared {
            let reason = "only an exclusive lock that is held can be downgraded".to_string();
            self.event(Event::ClaimKept { claim: id, refusal: Refusal::BadRequest { reason } });
            return;
        }
        claim.holds = claim.ticket.take();
        claim.turn_to(Phase::Downgrading);
        self.wanting.push_back(Item::Claim(id));
        self.claim_timer(now, id);
        self.settle(now);
    }

    /// The new grant is made; the old ticket is finished by it.
    pub(crate) fn downgraded(&mut self, now: Time, id: ClaimId, fence: Fence) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        claim.turn_to(Phase::Held);
        claim.spec.mode = Mode::Shared;
        if let Some(ticket) = claim.holds.take()
            && let Some(session) = self.sessions.get_mut(&claim.session)
        {
            session.tickets.remove(&ticket);
        }
        self.claim_timer(now, id);
        self.event(Event::ClaimDowngraded { claim: id, fence });
    }

    /// The cluster will not downgrade it: it holds its key as before, or does no longer.
    pub(crate) fn downgrade_refused(&mut self, now: Time, id: ClaimId, refusal: Refusal) {
        let Some(claim) = self.claims.get(&id) else { return };
        if let Refusal::TicketFinished { ticket, outcome } = refusal
            && Some(ticket) == claim.holds
        {
            self.stop_downgrade(id);
            return self.claim_lost(id, LostReason::Finished(outcome));
        }
        self.stop_downgrade(id);
        self.claim_timer(now, id);
        self.event(Event::ClaimKept { claim: id, refusal });
    }

    /// Goes back to the ticket that holds the key; the new one, if it was drawn, is finished by a release.
    pub(crate) fn stop_downgrade(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        let Some(holds) = claim.holds.take() else { return };
        let (session, drawn, spec) = (claim.session, claim.ticket.replace(holds), claim.spec.clone());
        claim.turn_to(Phase::Held);
        if let Some(ticket) = drawn {
            self.finish_ticket(session, ticket, Claim::new(session, spec));
        }
    }

    /// Releases a ticket that no claim of the caller stands for any more.
    fn finish_ticket(&mut self, session: SessionHandle, ticket: Ticket, mut claim: Claim) {
        let id = ClaimId(self.new_handle());
        let Some(owner) = self.sessions.get_mut(&session) else { return };
        owner.claims.insert(id);
        owner.tickets.insert(ticket, id);
        claim.ticket = Some(ticket);
        claim.turn_to(Phase::Releasing { report: false });
        self.claims.insert(id, claim);
        self.wanting.push_back(Item::Claim(id));
    }
}

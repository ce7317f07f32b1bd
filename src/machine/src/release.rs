//! Release and cancel: giving a claim up, and handing the key to the next in line (DESIGN section 3).

use alloc::vec::Vec;

use palisade_types::limits::TICKET_RANGES_MAX;
use palisade_types::{Outcome, Reply, SessionId, Ticket, TransitionKind};

use crate::acquire::{bad_ticket, tickets_full};
use crate::claims::State;
use crate::machine::{Applied, Effect, Machine};
use crate::slab::Slot;

impl Machine {
    /// Gives a claim up, whether it holds or waits. Repeating it repeats how the ticket was finished.
    pub(crate) fn release(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        let open = match self.open_claim(session, ticket) {
            Ok(open) => open,
            Err(reply) => return effects.push(Effect::Reply(reply)),
        };
        let (owner, claim) = open;
        if self.claims.records[claim].state == State::Queued {
            return self.withdraw(at, owner, claim, Outcome::Cancelled, effects);
        }
        self.sessions.records[owner].tickets.finish(ticket, Outcome::Released);
        let outcome = Outcome::Released;
        effects.push(Effect::Reply(Reply::Finished { session, ticket, outcome }));
        self.vacate(at, claim, TransitionKind::Released, effects);
    }

    /// Gives a claim up unless it holds: if the grant came first, the answer is the grant.
    pub(crate) fn cancel(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        timeout: bool,
        effects: &mut Vec<Effect>,
    ) {
        let (owner, claim) = match self.open_claim(session, ticket) {
            Ok(open) => open,
            Err(reply) => return effects.push(Effect::Reply(reply)),
        };
        if self.claims.records[claim].state != State::Queued {
            let fence = self.fence(claim);
            return effects.push(Effect::Reply(Reply::Granted { session, ticket, fence }));
        }
        let outcome = if timeout { Outcome::TimedOut } else { Outcome::Cancelled };
        self.withdraw(at, owner, claim, outcome, effects);
    }

    /// The open claim of a ticket, or the answer to whoever gives up a ticket that is not open. One
    /// that was never seen is finished now, so that an acquire still under way is refused when it
    /// arrives, rather than granted to nobody.
    fn open_claim(&mut self, session: SessionId, ticket: Ticket) -> Result<(Slot, Slot), Reply> {
        let Some(owner) = self.find_session(session) else { return Err(self.not_live(session)) };
        if ticket.0 == 0 || ticket > crate::TICKET_MAX {
            return Err(bad_ticket());
        }
        let record = &mut self.sessions.records[owner];
        if let Some(claim) = record.open.find(ticket) {
            return Ok((owner, claim));
        }
        if record.tickets.is_finished(ticket) {
            let outcome = record.tickets.outcome(ticket);
            return Err(Reply::Finished { session, ticket, outcome });
        }
        if record.tickets.count_with(ticket) + record.open.len() > TICKET_RANGES_MAX {
            return Err(tickets_full());
        }
        record.tickets.finish(ticket, Outcome::Cancelled);
        Err(Reply::Finished { session, ticket, outcome: Outcome::Cancelled })
    }

    /// Takes a waiting claim of a live session out of its queue. Those behind it may have waited for it
    /// only.
    fn withdraw(
        &mut self,
        at: Applied,
        owner: Slot,
        claim: Slot,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        let (ticket, lock) = (self.claims.records[claim].ticket, self.claims.records[claim].lock);
        self.leave_queue(claim);
        self.remove_claim(claim);
        let record = &mut self.sessions.records[owner];
        record.open.remove(ticket);
        record.tickets.finish(ticket, outcome);
        let session = self.id(self.sessions.records[owner].opened);
        effects.push(Effect::Reply(Reply::Finished { session, ticket, outcome }));
        self.admit(at, lock, effects);
    }

    /// Takes a claim out of its key's queue. What the dead hold of a key that nobody waits for any more
    /// goes behind what somebody waits for.
    pub(crate) fn leave_queue(&mut self, claim: Slot) {
        let lock = self.claims.records[claim].lock;
        let queue = &mut self.locks.records[lock].queue;
        self.claims.dequeue(queue, claim);
        if queue.len == 0 {
            self.sort_backlog(lock);
        }
    }
}

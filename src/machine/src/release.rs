//! Release and cancel: giving a claim up, and handing the key to the next in line (DESIGN section 3).

use alloc::vec::Vec;

use palisade_types::limits::TICKET_RANGES_MAX;
use palisade_types::{Outcome, Reply, SessionId, Ticket, TransitionKind};

use crate::acquire::{bad_ticket, tickets_full};
use crate::claims::State;
use crate::locks::Tenure;
use crate::machine::{Applied, Effect, Machine};
use crate::news::released;
use crate::slab::{NONE, Slot};

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
            let reply = self.withdraw(session, owner, claim, Outcome::Cancelled);
            return effects.push(Effect::Reply(reply));
        }
        self.sessions.records[owner].tickets.finish(ticket, Outcome::Released);
        let outcome = Outcome::Released;
        effects.push(Effect::Reply(Reply::Finished { session, ticket, outcome }));
        self.vacate(at, claim, TransitionKind::Released, effects);
    }

    /// Gives a claim up unless it holds: if the grant came first, the answer is the grant.
    pub(crate) fn cancel(&mut self, session: SessionId, ticket: Ticket, timeout: bool) -> Reply {
        let (owner, claim) = match self.open_claim(session, ticket) {
            Ok(open) => open,
            Err(reply) => return reply,
        };
        if self.claims.records[claim].state != State::Queued {
            return Reply::Granted { session, ticket, fence: self.fence(claim) };
        }
        let outcome = if timeout { Outcome::TimedOut } else { Outcome::Cancelled };
        self.withdraw(session, owner, claim, outcome)
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

    /// Takes a waiting claim of a live session out of its queue.
    fn withdraw(&mut self, session: SessionId, owner: Slot, claim: Slot, outcome: Outcome) -> Reply {
        let ticket = self.claims.records[claim].ticket;
        self.leave_queue(claim);
        self.claims.records.remove(claim);
        let record = &mut self.sessions.records[owner];
        record.open.remove(ticket);
        record.tickets.finish(ticket, outcome);
        Reply::Finished { session, ticket, outcome }
    }

    /// Takes a claim out of its key's queue. A key in the backlog that nobody waits for any more
    /// goes behind those that somebody waits for.
    pub(crate) fn leave_queue(&mut self, claim: Slot) {
        let Machine { claims, locks, wanted, unwanted, .. } = self;
        let lock = &mut locks.records[claims.records[claim].lock];
        claims.dequeue(&mut lock.queue, claim);
        if lock.queue.len == 0 && claims.records[lock.holder].state == State::Ending {
            claims.unlink(wanted, lock.holder);
            claims.link(unwanted, lock.holder);
        }
    }

    /// Ends the claim that holds a key, and grants the key to the next in line in the same step.
    /// The claim is on no list; its ticket has been dealt with.
    pub(crate) fn vacate(
        &mut self,
        at: Applied,
        claim: Slot,
        how: TransitionKind,
        effects: &mut Vec<Effect>,
    ) {
        let ended = self.claims.records.remove(claim);
        let owner = &mut self.sessions.records[ended.session];
        owner.open.remove(ended.ticket);
        owner.open.held -= 1;
        let session = owner.opened;
        let lock = &mut self.locks.records[ended.lock];
        let id = SessionId { shard: self.shard, opened: session };
        self.news.push(released(at, lock, id, owner.owner.as_ref(), how));
        if !owner.is_live() && owner.open.is_empty() {
            self.sessions.records.remove(ended.session);
        }
        assert_eq!(lock.holder, claim, "only a holder vacates");
        lock.holder = NONE;
        let (epoch, next) = (lock.epoch, lock.queue.head);
        let tenure = Tenure { session, granted: ended.since, ended: at.when(), how };
        self.locks.history_mut(ended.lock).record(epoch, tenure);
        if next == NONE {
            self.locks.make_idle(ended.lock);
            return;
        }
        self.claims.dequeue(&mut self.locks.records[ended.lock].queue, next);
        let fence = self.grant(at, ended.lock, next);
        let record = &self.claims.records[next];
        let session = self.id(self.sessions.records[record.session].opened);
        effects.push(Effect::Granted { session, ticket: record.ticket, fence });
    }
}

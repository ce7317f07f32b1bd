//! Downgrade: an exclusive grant becomes a shared one in one step (DESIGN section 3). There is no way
//! back: two holders that wait for each other to leave would wait for ever.

use alloc::vec::Vec;

use palisade_types::limits::TICKET_RANGES_MAX;
use palisade_types::{Class, Happened, Mutant, Outcome, Refusal, Reply, SessionId, Ticket, TransitionKind};

use crate::acquire::tickets_full;
use crate::claims::flag;
use crate::locks::Tenure;
use crate::machine::{Applied, Effect, Machine};
use crate::news::of_grant;
use crate::slab::{NONE, Slot};

impl Machine {
    /// Turns the grant of one ticket into a new grant under another, and lets in whoever can share the
    /// key from the head of its queue. Repeating it repeats the new fence.
    pub(crate) fn downgrade(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        holds: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(reply) = self.repeat_downgrade(session, ticket, holds) {
            return effects.push(Effect::Reply(reply));
        }
        let owner = match self.new_ticket(session, ticket) {
            Ok(owner) => owner,
            Err(reply) => return effects.push(Effect::Reply(reply)),
        };
        let claim = match self.exclusive_claim(owner, holds) {
            Ok(claim) => claim,
            Err(refusal) => {
                let reply = self.refuse_ticket(owner, ticket, refusal);
                return effects.push(Effect::Reply(reply));
            }
        };
        let record = &self.sessions.records[owner];
        if record.tickets.count_with(holds) + record.open.len() > TICKET_RANGES_MAX {
            return effects.push(Effect::Reply(tickets_full()));
        }
        let lock = self.claims.records[claim].lock;
        self.convert(at, owner, claim, ticket);
        let fence = self.grant(at, lock, claim);
        self.holders.hold_mut(self.claims.records[claim].beside).was = holds;
        effects.push(Effect::Reply(Reply::Granted { session, ticket, fence }));
        self.admit(at, lock, effects);
    }

    /// Ends an exclusive tenure, and makes of its claim one that wants to share the key that nobody
    /// holds for the moment.
    fn convert(&mut self, at: Applied, owner: Slot, claim: Slot, ticket: Ticket) {
        let (epoch, barrier) = self.tenure_of(claim);
        let record = &mut self.claims.records[claim];
        let (before, lock, granted) = (record.ticket, record.lock, record.since);
        record.ticket = ticket;
        record.flags |= flag::SHARED | flag::DOWNGRADED;
        self.locks.records[lock].holder = NONE;
        if self.mutants.has(Mutant::L2) {
            self.locks.records[lock].epoch.0 -= 1;
        }
        let owner = &mut self.sessions.records[owner];
        owner.open.remove(before);
        owner.open.add(ticket, claim);
        owner.open.held -= 1;
        owner.tickets.finish(before, Outcome::Downgraded);
        let (session, how) = (owner.opened, TransitionKind::Downgraded);
        let id = SessionId { shard: self.shard, opened: session };
        let what = Happened::Released { epoch, barrier, how };
        self.news.push(of_grant(at.index, &self.locks.records[lock], id, owner.owner.as_ref(), what));
        self.locks.history_mut(lock).record(Tenure { session, epoch, granted, ended: at.when(), how });
    }

    fn repeat_downgrade(&self, session: SessionId, ticket: Ticket, holds: Ticket) -> Option<Reply> {
        let owner = &self.sessions.records[self.find_session(session)?];
        let claim = owner.open.find(ticket)?;
        let record = &self.claims.records[claim];
        let was_it = record.flags & flag::DOWNGRADED != 0 && self.holders.hold(record.beside).was == holds;
        was_it.then(|| Reply::Granted { session, ticket, fence: self.fence(claim) })
    }

    fn exclusive_claim(&self, owner: Slot, holds: Ticket) -> Result<Slot, Refusal> {
        let claim = self.held_claim(owner, holds)?;
        let record = &self.claims.records[claim];
        if record.is_shared() {
            return Err(Refusal::BadRequest { reason: "the claim is shared already".into() });
        }
        if self.locks.records[record.lock].class == Class::Election {
            return Err(Refusal::BadRequest { reason: "an election has one leader".into() });
        }
        Ok(claim)
    }
}

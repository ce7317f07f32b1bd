//! Downgrades and proclamations, as plainly as the rest of the model.

use super::*;

impl Model {
    pub(super) fn downgrade(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        holds: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        if let Some((key, claim)) = self.held_by(session, ticket)
            && claim.was == Some(holds)
        {
            let fence = fence(&key, &claim);
            return effects.push(Effect::Reply(Reply::Granted { session, ticket, fence }));
        }
        if let Some(reply) = self.not_new(session, ticket) {
            return effects.push(Effect::Reply(reply));
        }
        let bad = |reason: &str| Refusal::BadRequest { reason: reason.to_string() };
        let held = self.held_claim(session, holds).and_then(|(key, claim)| {
            if claim.mode == Mode::Shared {
                return Err(bad("the claim is shared already"));
            }
            if self.locks[&key].class == Class::Election {
                return Err(bad("an election has one leader"));
            }
            Ok((key, claim))
        });
        let (key, claim) = match held {
            Ok(held) => held,
            Err(refusal) => {
                self.finish(session, ticket, Outcome::Refused);
                return effects.push(Effect::Reply(Reply::Refused(refusal)));
            }
        };
        if self.live(session).is_some_and(|s| self.ticket_weight(s, Some(holds)) > 2_000) {
            return effects.push(Effect::Reply(tickets_full()));
        }
        self.finish(session, holds, Outcome::Downgraded);
        let lock = self.locks.get_mut(&key).expect("held");
        lock.holders.clear();
        let (granted, ended, how) = (claim.since, (at.index, at.clock_ms), TransitionKind::Downgraded);
        keep(lock, Tenure { session, epoch: claim.epoch, granted, ended, how });
        self.tell_release(&key, &claim, how);
        let lock = self.locks.get_mut(&key).expect("held");
        lock.queue.insert(0, Claim { ticket, mode: Mode::Shared, was: Some(holds), ..claim });
        let fence = self.grant(at, &key);
        effects.push(Effect::Reply(Reply::Granted { session, ticket, fence }));
        self.admit(at, &key, effects);
    }

    pub(super) fn proclaim(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        leads: Ticket,
        value: Value,
    ) -> Reply {
        if let Some(reply) = self.not_new(session, ticket) {
            return reply;
        }
        let refusal = match self.held_claim(session, leads) {
            Err(refusal) => refusal,
            Ok((key, claim)) => {
                let more = value.len().saturating_sub(claim.proclaimed.map_or(0, |said| said.len())) as u64;
                let over = if more > 0 { self.over_quota(more) } else { None };
                let lock = self.locks.get_mut(&key).expect("held");
                if let Some(refusal) = over.filter(|_| lock.class == Class::Election) {
                    self.finish(session, ticket, Outcome::Refused);
                    return Reply::Refused(refusal);
                }
                if lock.class == Class::Election {
                    let leader = &mut lock.holders[0];
                    leader.proclaimed = Some(value.clone());
                    let (owner, epoch) = (leader.owner.clone(), Epoch(leader.epoch));
                    let what = Happened::Proclaimed { epoch, value };
                    self.tell(Some(&key), session, owner.as_ref(), what);
                    self.finish(session, ticket, Outcome::Done);
                    return Reply::Finished { session, ticket, outcome: Outcome::Done };
                }
                Refusal::ClassMismatch { has: lock.class }
            }
        };
        self.finish(session, ticket, Outcome::Refused);
        Reply::Refused(refusal)
    }

    fn held_claim(&self, session: SessionId, ticket: Ticket) -> Result<(Key, Claim), Refusal> {
        if let Some(held) = self.held_by(session, ticket) {
            return Ok(held);
        }
        if self.awaited_by(session, ticket).is_some() {
            return Err(Refusal::BadRequest { reason: "the claim of that ticket still waits".to_string() });
        }
        match self.live(session).and_then(|s| Model::outcome(s, ticket)) {
            Some(outcome) => Err(Refusal::TicketFinished { ticket, outcome }),
            None => Err(Refusal::BadRequest { reason: "no claim has that ticket".to_string() }),
        }
    }
}

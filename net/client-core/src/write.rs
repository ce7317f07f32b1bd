//! Puts, deletes and proclamations: sent under a ticket until they are known to be done, or given up by a release of that
//! ticket. The ticket makes repeats harmless: the first application finishes it, and who repeats it is told
//! how it was finished.
//!
//! Who waits for the answer to one before making the next has them done in that order. Two under way at
//! once may be done in either order.

use alloc::collections::BTreeSet;
use palisade_types::{Outcome, Refusal, Reply, RequestId, SessionId, Ticket, Time, Value};
use palisade_wire::Request;

use crate::api::{ClaimId, Event, LostReason, SessionHandle, WriteId, WriteSpec};
use crate::core::Core;
use crate::net::What;
use crate::session::{retry_after, session_is_full};
use crate::timers::Item;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To be sent, or not answered on this connection.
    Asking,
    /// Nobody wants to know any more: the release is to be sent, or not answered.
    GivenUp,
}

/// A put or delete whose ticket is not known to be finished.
#[derive(Debug)]
pub(crate) struct Write {
    session: SessionHandle,
    /// Drawn when it is first sent.
    ticket: Option<Ticket>,
    spec: WriteSpec,
    phase: Phase,
    /// The request that counts, on its way on the present connection.
    request: Option<RequestId>,
    retry_at: Time,
    attempts: u32,
    timer: Time,
}

impl Write {
    fn request(&self, session: SessionId, ticket: Ticket) -> Request {
        match (&self.spec, self.phase) {
            (_, Phase::GivenUp) => Request::Release { session, ticket },
            (WriteSpec::Put { key, value }, Phase::Asking) => {
                Request::Put { session, ticket, key: key.clone(), value: value.clone() }
            }
            (WriteSpec::Delete { key }, Phase::Asking) => {
                Request::Delete { session, ticket, key: key.clone() }
            }
            (WriteSpec::Proclaim { leads, value }, Phase::Asking) => {
                Request::Proclaim { session, ticket, leads: *leads, value: value.clone() }
            }
        }
    }
}

impl Core {
    /// Puts or deletes an ephemeral key of a session. Repeated until it is answered; a limit that stands
    /// in the way is an answer. A session that does not exist loses it at once.
    pub fn write(&mut self, now: Time, session: SessionHandle, spec: WriteSpec) -> WriteId {
        self.run_timers(now);
        let id = WriteId(self.new_handle());
        let Some(owner) = self.sessions.get_mut(&session).filter(|s| !s.is_closing()) else {
            self.event(Event::WriteLost { write: id, reason: LostReason::NoSession });
            return id;
        };
        owner.writes.insert(id);
        let write = Write {
            session,
            ticket: None,
            spec,
            phase: Phase::Asking,
            request: None,
            retry_at: Time::ZERO,
            attempts: 0,
            timer: Time::FAR,
        };
        self.writes.insert(id, write);
        self.wanting.push_back(Item::Write(id));
        self.settle(now);
        id
    }

    /// Changes the value of a claim that leads an election; it ends as a put does. A claim that is not
    /// granted, or is over, loses it at once.
    pub fn proclaim(&mut self, now: Time, claim: ClaimId, value: Value) -> WriteId {
        let leading = self.claims.get(&claim).and_then(|claim| claim.leads());
        match leading {
            Some((session, leads)) => self.write(now, session, WriteSpec::Proclaim { leads, value }),
            None => {
                let id = WriteId(self.new_handle());
                self.event(Event::WriteLost { write: id, reason: LostReason::NoClaim });
                id
            }
        }
    }

    /// Nobody waits for a put or delete any more. It may have taken effect or not, but will not later
    /// than what is asked of the session from here on.
    pub fn drop_write(&mut self, now: Time, id: WriteId) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        if write.ticket.is_none() {
            self.remove_write(id);
            return;
        }
        self.give_write_up(id);
        self.settle(now);
    }

    /// Finishes the ticket, whatever became of it, and reports nothing more.
    fn give_write_up(&mut self, id: WriteId) {
        let Some(write) = self.writes.get_mut(&id).filter(|w| w.phase == Phase::Asking) else { return };
        write.phase = Phase::GivenUp;
        write.request = None;
        write.retry_at = Time::ZERO;
        write.attempts = 0;
        self.wanting.push_back(Item::Write(id));
    }

    pub(crate) fn write_due(&mut self, _now: Time, id: WriteId) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        self.timers.set(Item::Write(id), &mut write.timer, Time::FAR);
        self.wanting.push_back(Item::Write(id));
    }

    /// Without a connection nothing is on its way.
    pub(crate) fn detach_writes(&mut self) {
        self.writes.values_mut().for_each(|write| write.request = None);
    }

    pub(crate) fn write_send(&mut self, now: Time, id: WriteId) {
        let leader = self.leader_link();
        let Some(write) = self.writes.get_mut(&id) else { return };
        let Some(session) = self.sessions.get_mut(&write.session) else { return };
        let Some(session_id) = session.id else { return };
        if !leader || !session.usable() || write.request.is_some() || write.retry_at > now {
            return;
        }
        let ticket = *write.ticket.get_or_insert_with(|| session.next_ticket());
        let request = write.request(session_id, ticket);
        let sent = self.send(now, What::Write(id), &request);
        if let Some(write) = self.writes.get_mut(&id) {
            write.request = Some(sent);
        }
    }

    /// Takes the answer to put, delete or release. False when it answers none of them.
    pub(crate) fn write_reply(&mut self, id: WriteId, reply: &Reply) -> bool {
        let (of, number) = match *reply {
            Reply::PutDone { session, ticket, .. }
            | Reply::Deleted { session, ticket, .. }
            | Reply::Finished { session, ticket, .. } => (session, ticket),
            _ => return false,
        };
        let Some(write) = self.writes.get(&id) else { return true };
        let session = self.sessions.get(&write.session).and_then(|s| s.id);
        if write.ticket == Some(number) && session == Some(of) {
            self.write_done(id, Ok(()));
        }
        true
    }

    pub(crate) fn write_refused(&mut self, now: Time, id: WriteId, request: RequestId, refusal: Refusal) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        if write.request != Some(request) {
            return; // of what was given up since: the release is answered too
        }
        write.request = None;
        let asking = write.phase == Phase::Asking;
        match refusal {
            Refusal::TicketFinished { ticket, outcome: Outcome::Done } if Some(ticket) == write.ticket => {
                return self.write_done(id, Ok(()));
            }
            // An answer that got lost said no, and may have said why: ask anew, under a new ticket. Of
            // another ticket it is said when the campaign of a proclamation is over.
            Refusal::TicketFinished { ticket, .. } if asking && Some(ticket) == write.ticket => {
                write.ticket = None;
            }
            refusal if refusal.is_final() || (asking && session_is_full(&refusal)) => {
                return self.write_hopeless(id, refusal);
            }
            _ => {}
        }
        if matches!(refusal, Refusal::NotAttached { .. }) {
            let session = write.session;
            self.not_attached(now, session);
        }
        let Some(write) = self.writes.get_mut(&id) else { return };
        write.retry_at = now + retry_after(&refusal, write.attempts, &self.config, &mut self.rng);
        write.attempts += 1;
        self.timers.set(Item::Write(id), &mut write.timer, write.retry_at);
    }

    /// Whether a refused ticket counts as finished depends on who refused, so it is finished by a release.
    fn write_hopeless(&mut self, id: WriteId, refusal: Refusal) {
        let Some(write) = self.writes.get(&id) else { return };
        if write.phase == Phase::GivenUp {
            self.remove_write(id);
            return;
        }
        self.event(Event::WriteDone { write: id, result: Err(refusal) });
        self.give_write_up(id);
    }

    fn write_done(&mut self, id: WriteId, result: Result<(), Refusal>) {
        let Some(write) = self.remove_write(id) else { return };
        if write.phase == Phase::Asking {
            self.event(Event::WriteDone { write: id, result });
        }
    }

    fn remove_write(&mut self, id: WriteId) -> Option<Write> {
        let mut write = self.writes.remove(&id)?;
        self.timers.set(Item::Write(id), &mut write.timer, Time::FAR);
        if let Some(session) = self.sessions.get_mut(&write.session) {
            session.writes.remove(&id);
        }
        Some(write)
    }

    /// All puts and deletes of a session are over.
    pub(crate) fn lose_writes(&mut self, handle: SessionHandle, reason: &LostReason) {
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        let writes: BTreeSet<WriteId> = ::core::mem::take(&mut session.writes);
        for id in writes {
            let Some(write) = self.remove_write(id) else { continue };
            if write.phase == Phase::Asking {
                self.event(Event::WriteLost { write: id, reason: reason.clone() });
            }
        }
    }
}

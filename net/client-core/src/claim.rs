//! Claims: asked for under a ticket until the answer is known, given up until that is known too.

use ::core::time::Duration;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use palisade_types::time::millis;
use palisade_types::{
    Class, Fence, HolderInfo, Outcome, Refusal, Reply, RequestId, SessionId, Signature, Ticket, Time,
};
use palisade_wire::{Request, Wait};

use crate::api::{AcquireSpec, ClaimId, ClaimResult, Event, LostReason, SessionHandle};
use crate::core::Core;
use crate::net::What;
use crate::resources::Told;
use crate::session::{retry_after, session_is_full};
use crate::timers::Item;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The acquire is to be sent, or is not answered on this connection.
    Asking,
    /// Stands in the queue, as this connection has said; the grant will be pushed.
    Queued,
    /// Holds the key.
    Held,
    /// Its time to wait ran out: the cancel is to be sent, or not answered.
    TimingOut,
    /// Holds the key, and the downgrade is to be sent, or not answered.
    Downgrading,
    /// Given up: the release is to be sent, or not answered. The caller may want to know.
    Releasing { report: bool },
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) session: SessionHandle,
    /// Drawn when the claim is first sent.
    pub(crate) ticket: Option<Ticket>,
    /// While it is downgraded: the ticket under which it has held its key so far.
    pub(crate) holds: Option<Ticket>,
    pub(crate) spec: AcquireSpec,
    pub(crate) phase: Phase,
    /// Of its last grant, if the cluster signs.
    signature: Option<Signature>,
    /// The request that counts, on its way on the present connection.
    pub(crate) request: Option<RequestId>,
    pub(crate) retry_at: Time,
    pub(crate) attempts: u32,
    /// What it knows of other keys of its resource.
    pub(crate) told: Told,
    /// When its time to wait runs out.
    deadline: Time,
    timer: Time,
}

impl Claim {
    pub(crate) fn new(session: SessionHandle, spec: AcquireSpec) -> Claim {
        Claim {
            session,
            ticket: None,
            holds: None,
            spec,
            phase: Phase::Asking,
            signature: None,
            request: None,
            retry_at: Time::ZERO,
            attempts: 0,
            told: Told::Nothing,
            deadline: Time::FAR,
            timer: Time::FAR,
        }
    }

    /// The request of a claim that has just come, or that is not answered.
    fn ask(&self, now: Time, session: SessionId, ticket: Ticket) -> Request {
        let AcquireSpec { key, class, resource, mode, on_death, value, .. } = self.spec.clone();
        let wait = self.wait(now);
        match value {
            Some(value) if class == Class::Election => {
                Request::Campaign { session, ticket, key, value, wait }
            }
            _ => Request::Acquire { session, ticket, key, class, resource, mode, wait, on_death },
        }
    }

    fn waits(&self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Queued)
    }

    fn next_time(&self, now: Time) -> Time {
        let retry = if self.retry_at > now { self.retry_at } else { Time::FAR };
        if self.waits() { retry.min(self.deadline) } else { retry }
    }

    /// The time to wait that is left, in the terms of the protocol.
    fn wait(&self, now: Time) -> Wait {
        match self.spec.wait {
            Wait::Millis(most) => {
                let left = u32::try_from(millis(self.deadline.since(now))).unwrap_or(most);
                Wait::Millis(left.clamp(1, most.max(1)))
            }
            other => other,
        }
    }

    /// The session and the ticket of a campaign that leads.
    pub(crate) fn leads(&self) -> Option<(SessionHandle, Ticket)> {
        Some((self.session, self.ticket?)).filter(|_| self.phase == Phase::Held)
    }

    pub(crate) fn turn_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.request = None;
        self.retry_at = Time::ZERO;
        self.attempts = 0;
    }
}

impl Core {
    /// Makes a claim. A session that does not exist loses it at once.
    pub fn acquire(&mut self, now: Time, session: SessionHandle, spec: AcquireSpec) -> ClaimId {
        self.run_timers(now);
        let id = ClaimId(self.new_handle());
        let Some(owner) = self.sessions.get_mut(&session).filter(|s| !s.is_closing()) else {
            self.event(Event::ClaimLost { claim: id, reason: LostReason::NoSession });
            return id;
        };
        owner.claims.insert(id);
        let deadline = match spec.wait {
            Wait::Millis(ms) => now + Duration::from_millis(u64::from(ms)),
            Wait::No | Wait::Forever => Time::FAR,
        };
        let claim = Claim { deadline, ..Claim::new(session, spec) };
        self.claims.insert(id, claim);
        self.wanting.push_back(Item::Claim(id));
        self.claim_timer(now, id);
        self.settle(now);
        id
    }

    /// Gives a claim up, whatever became of it, and reports nothing of it any more: for an acquire
    /// nobody waits for, and a guard that was dropped.
    pub fn abandon(&mut self, now: Time, claim: ClaimId) {
        self.give_up(now, claim, false);
    }

    /// Releases a claim; [`ClaimResult::Released`] is reported once that is certain. Of a claim that
    /// was reported over before, nothing more is.
    pub fn release(&mut self, now: Time, claim: ClaimId) {
        self.give_up(now, claim, true);
    }

    /// The ticket of a claim that has been sent.
    pub fn ticket(&self, claim: ClaimId) -> Option<Ticket> {
        self.claims.get(&claim)?.ticket
    }

    /// The signature of the last grant of a claim, if the cluster signs: of the fence that was reported last.
    pub fn signature(&self, claim: ClaimId) -> Option<Signature> {
        self.claims.get(&claim)?.signature
    }

    fn give_up(&mut self, now: Time, id: ClaimId, report: bool) {
        // Deadlines wait for the next tick: a claim that is abandoned now is not reported any more.
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if claim.phase == Phase::Downgrading {
            self.stop_downgrade(id);
        }
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if claim.ticket.is_none() {
            self.remove_claim(id);
            if report {
                self.event(Event::ClaimDone { claim: id, result: ClaimResult::Released });
            }
            return;
        }
        let told = claim.told;
        if !report {
            self.leave_post(id, told);
        }
        let Some(claim) = self.claims.get_mut(&id) else { return };
        let phase = Phase::Releasing { report };
        if matches!(claim.phase, Phase::Releasing { .. }) {
            claim.phase = phase;
            return;
        }
        claim.turn_to(phase);
        self.wanting.push_back(Item::Claim(id));
        self.claim_timer(now, id);
        self.settle(now);
    }

    pub(crate) fn claim_timer(&mut self, now: Time, id: ClaimId) {
        if let Some(claim) = self.claims.get_mut(&id) {
            let at = claim.next_time(now);
            self.timers.set(Item::Claim(id), &mut claim.timer, at);
        }
    }

    pub(crate) fn claim_due(&mut self, now: Time, id: ClaimId) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if claim.waits() && now >= claim.deadline {
            if claim.ticket.is_none() {
                return self.claim_done(id, ClaimResult::TimedOut);
            }
            claim.turn_to(Phase::TimingOut);
        }
        self.wanting.push_back(Item::Claim(id));
        self.claim_timer(now, id);
    }

    /// Without a connection nothing is on its way, and what was said of a queue is in doubt: the
    /// grant may have been pushed to nobody.
    pub(crate) fn detach_claims(&mut self) {
        for claim in self.claims.values_mut() {
            claim.request = None;
            if claim.phase == Phase::Queued {
                claim.phase = Phase::Asking;
            }
        }
    }

    /// Sends what the claim needs: acquire, cancel or release.
    pub(crate) fn claim_send(&mut self, now: Time, id: ClaimId) {
        let leader = self.leader_link();
        let Some(claim) = self.claims.get_mut(&id) else { return };
        let Some(session) = self.sessions.get_mut(&claim.session) else { return };
        let Some(session_id) = session.id else { return };
        if !leader || !session.usable() || claim.request.is_some() || claim.retry_at > now {
            return;
        }
        if matches!(claim.phase, Phase::Queued | Phase::Held) {
            return;
        }
        let ticket = *claim.ticket.get_or_insert_with(|| session.draw_ticket(id));
        let request = match claim.phase {
            Phase::TimingOut => Request::Cancel { session: session_id, ticket },
            Phase::Releasing { .. } => Request::Release { session: session_id, ticket },
            Phase::Downgrading => {
                let Some(holds) = claim.holds else { return };
                Request::Downgrade { session: session_id, ticket, holds }
            }
            Phase::Asking | Phase::Queued | Phase::Held => claim.ask(now, session_id, ticket),
        };
        let posts = matches!(request, Request::Acquire { resource: Some(_), .. });
        let sent = self.send(now, What::Claim(id), &request);
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.request = Some(sent);
        }
        if posts {
            self.claim_resource(id);
        }
    }

    /// Takes the answer to acquire, cancel or release. False when it answers none of them.
    pub(crate) fn claim_reply(
        &mut self,
        now: Time,
        id: ClaimId,
        request: RequestId,
        reply: Reply,
        signature: Option<Signature>,
    ) -> bool {
        let Some((of, number)) = claim_of(&reply) else { return false };
        let Some(claim) = self.claims.get_mut(&id) else { return true };
        if claim.request == Some(request) {
            claim.request = None;
        }
        let session = self.sessions.get(&claim.session).and_then(|s| s.id);
        if claim.ticket != Some(number) || session != Some(of) {
            return true;
        }
        match reply {
            Reply::Granted { fence, .. } => self.claim_granted(now, id, fence, signature),
            Reply::Queued { place, holder, .. } => self.claim_queued(id, place, holder),
            Reply::Denied { waiting, holder, .. } => {
                if claim.waits() {
                    self.claim_done(id, ClaimResult::Denied { holder: Some(holder), waiting });
                }
            }
            Reply::Finished { outcome, .. } => self.claim_finished(now, id, outcome),
            _ => return false,
        }
        true
    }

    fn claim_queued(&mut self, id: ClaimId, place: u32, holder: Box<HolderInfo>) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if claim.phase == Phase::Asking {
            claim.phase = Phase::Queued;
            claim.attempts = 0;
            self.event(Event::ClaimQueued { claim: id, place, holder });
        }
    }

    pub(crate) fn claim_granted(
        &mut self,
        now: Time,
        id: ClaimId,
        fence: Fence,
        signature: Option<Signature>,
    ) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if !matches!(claim.phase, Phase::Held | Phase::Releasing { .. }) {
            claim.signature = signature;
        }
        match claim.phase {
            Phase::Asking | Phase::Queued | Phase::TimingOut => {
                claim.turn_to(Phase::Held);
                self.claim_timer(now, id);
                self.event(Event::ClaimGranted { claim: id, fence });
            }
            Phase::Downgrading => self.downgraded(now, id, fence),
            Phase::Held | Phase::Releasing { .. } => {}
        }
    }

    /// The ticket is finished.
    pub(crate) fn claim_finished(&mut self, now: Time, id: ClaimId, outcome: Outcome) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        let result = match (claim.phase, outcome) {
            (Phase::Releasing { .. }, _) => ClaimResult::Released,
            (Phase::Held | Phase::Downgrading, _) => {
                self.stop_downgrade(id);
                return self.claim_lost(id, LostReason::Finished(outcome));
            }
            // It was granted and taken away before the grant was heard of, also if the time is over.
            (_, Outcome::Forced) => ClaimResult::Taken,
            (Phase::TimingOut, _) | (_, Outcome::TimedOut) => ClaimResult::TimedOut,
            (_, Outcome::Cancelled | Outcome::Released) => ClaimResult::Cancelled,
            (_, Outcome::Denied) => ClaimResult::Denied { holder: None, waiting: 0 },
            // An answer that got lost said no, and may have said why: ask anew.
            (_, Outcome::Refused | Outcome::Unknown | Outcome::Done | Outcome::Downgraded) => {
                return self.ask_anew(now, id);
            }
        };
        self.claim_done(id, result);
    }

    /// Asks under a new ticket: the old one is finished and holds nothing.
    fn ask_anew(&mut self, now: Time, id: ClaimId) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if let Some(ticket) = claim.ticket.take()
            && let Some(session) = self.sessions.get_mut(&claim.session)
        {
            session.tickets.remove(&ticket);
        }
        claim.phase = Phase::Asking;
        claim.request = None;
        claim.retry_at = now + crate::net::backoff(&self.config, claim.attempts, &mut self.rng);
        claim.attempts += 1;
        self.claim_timer(now, id);
    }

    pub(crate) fn claim_refused(&mut self, now: Time, id: ClaimId, request: RequestId, refusal: Refusal) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        if claim.request != Some(request) {
            return; // of an acquire that was given up since: what follows it is answered too
        }
        claim.request = None;
        if claim.phase == Phase::Downgrading && refusal.is_final() {
            return self.downgrade_refused(now, id, refusal);
        }
        if let Refusal::TicketFinished { outcome, .. } = refusal {
            return self.claim_finished(now, id, outcome);
        }
        let impatient = claim.spec.wait == Wait::No && claim.phase == Phase::Asking;
        if refusal.is_final() || (impatient && session_is_full(&refusal)) {
            return self.claim_hopeless(now, id, refusal);
        }
        if matches!(refusal, Refusal::NotAttached { .. }) {
            let session = claim.session;
            self.not_attached(now, session);
        }
        let Some(claim) = self.claims.get_mut(&id) else { return };
        claim.retry_at = now + retry_after(&refusal, claim.attempts, &self.config, &mut self.rng);
        claim.attempts += 1;
        let waits = claim.waits();
        self.claim_timer(now, id);
        self.wanting.push_back(Item::Claim(id));
        if waits && session_is_full(&refusal) {
            self.event(Event::ClaimDelayed { claim: id, refusal });
        }
    }

    /// A refusal that waiting does not help against. Whether the refused ticket counts as finished
    /// depends on who refused, so it is finished by a release.
    fn claim_hopeless(&mut self, now: Time, id: ClaimId, refusal: Refusal) {
        let Some(claim) = self.claims.get_mut(&id) else { return };
        match claim.phase {
            Phase::Releasing { report } => {
                self.remove_claim(id);
                if report {
                    self.event(Event::ClaimDone { claim: id, result: ClaimResult::Refused(refusal) });
                }
            }
            Phase::Asking | Phase::Queued | Phase::Held | Phase::TimingOut | Phase::Downgrading => {
                claim.turn_to(Phase::Releasing { report: false });
                self.wanting.push_back(Item::Claim(id));
                self.claim_timer(now, id);
                self.event(Event::ClaimDone { claim: id, result: ClaimResult::Refused(refusal) });
            }
        }
    }

    /// The claim is over; the caller learns it unless it has given the claim up.
    fn claim_done(&mut self, id: ClaimId, result: ClaimResult) {
        let Some(claim) = self.remove_claim(id) else { return };
        if claim.phase != (Phase::Releasing { report: false }) {
            self.event(Event::ClaimDone { claim: id, result });
        }
    }

    pub(crate) fn claim_lost(&mut self, id: ClaimId, reason: LostReason) {
        if self.remove_claim(id).is_some() {
            self.event(Event::ClaimLost { claim: id, reason });
        }
    }

    fn remove_claim(&mut self, id: ClaimId) -> Option<Claim> {
        let mut claim = self.claims.remove(&id)?;
        self.timers.set(Item::Claim(id), &mut claim.timer, Time::FAR);
        self.leave_post(id, claim.told);
        if let Some(session) = self.sessions.get_mut(&claim.session) {
            session.claims.remove(&id);
            for ticket in claim.ticket.into_iter().chain(claim.holds) {
                session.tickets.remove(&ticket);
            }
        }
        Some(claim)
    }

    /// All claims of a session are over.
    pub(crate) fn lose_claims(&mut self, handle: SessionHandle, reason: &LostReason) {
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        let claims: BTreeSet<ClaimId> = ::core::mem::take(&mut session.claims);
        session.tickets.clear();
        for id in claims {
            let Some(mut claim) = self.claims.remove(&id) else { continue };
            self.timers.set(Item::Claim(id), &mut claim.timer, Time::FAR);
            self.leave_post(id, claim.told);
            if claim.phase != (Phase::Releasing { report: false }) {
                self.event(Event::ClaimLost { claim: id, reason: reason.clone() });
            }
        }
        self.lose_writes(handle, reason);
    }
}

fn claim_of(reply: &Reply) -> Option<(SessionId, Ticket)> {
    match reply {
        Reply::Granted { session, ticket, .. }
        | Reply::Queued { session, ticket, .. }
        | Reply::Denied { session, ticket, .. }
        | Reply::Finished { session, ticket, .. } => Some((*session, *ticket)),
        _ => None,
    }
}

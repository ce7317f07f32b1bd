//! Sessions: opened under a token, renewed in time, attached anew on every connection, lost when
//! their deadline passes.

use ::core::time::Duration;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::limits::TTL_DEFAULT;
use palisade_types::time::millis;
use palisade_types::{Refusal, Reply, RequestId, Rng, SessionId, SessionToken, Ticket, Time};
use palisade_wire::{RENEW_SESSIONS_MAX, Request};

use crate::api::{ClaimId, Event, LostReason, SessionHandle, SessionSpec, WriteId};
use crate::config::CoreConfig;
use crate::core::Core;
use crate::net::{What, backoff, jittered};
use crate::timers::Item;

/// A server that asks for a longer pause is asked again after this.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// How much before the end of its lease a session counts as lost: a tenth of the TTL, at most 1 s.
pub fn margin(ttl: Duration) -> Duration {
    (ttl / 10).min(Duration::from_secs(1))
}

/// How long to wait before a refused request is sent again.
pub(crate) fn retry_after(refusal: &Refusal, attempts: u32, config: &CoreConfig, rng: &mut Rng) -> Duration {
    match refusal {
        Refusal::Busy { retry_after_ms } => {
            let asked = Duration::from_millis(u64::from(*retry_after_ms)).min(BUSY_MAX);
            jittered(asked.max(config.backoff_min), rng)
        }
        _ => backoff(config, attempts, rng),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The open is not answered.
    Opening,
    /// The answer to the open came so late that a renewal is due already: the session counts as
    /// open once that is acknowledged.
    Confirming,
    /// Open, as far as the deadline goes.
    Live,
}

#[derive(Debug)]
pub(crate) struct Session {
    token: SessionToken,
    spec: SessionSpec,
    phase: Phase,
    /// The caller wants it closed.
    closing: bool,
    /// The caller wants it kept no longer than its lease lasts.
    renews: bool,
    pub(crate) id: Option<SessionId>,
    ttl: Duration,
    gone_within: Duration,
    short_ttl: bool,
    /// When the open was first sent.
    first_sent: Option<Time>,
    /// When the last acknowledged renewal, or the first try of the open, was sent.
    lease_start: Time,
    /// The present connection has presented the token.
    attached: bool,
    /// Open, attach or close on its way on the present connection.
    request: Option<RequestId>,
    retry_at: Time,
    attempts: u32,
    /// When to send the next renewal; `FAR` without a connection.
    renew_at: Time,
    next_ticket: u64,
    pub(crate) claims: BTreeSet<ClaimId>,
    pub(crate) tickets: BTreeMap<Ticket, ClaimId>,
    pub(crate) writes: BTreeSet<WriteId>,
    timer: Time,
}

impl Session {
    /// When it counts as lost.
    fn deadline(&self) -> Time {
        self.lease_start + (self.ttl - margin(self.ttl))
    }

    /// When a session that cannot be closed has expired by itself.
    fn lease_end(&self) -> Time {
        self.first_sent.map_or(Time::ZERO, |first| first.max(self.lease_start)) + self.ttl
    }

    /// Whether its claims may be sent.
    pub(crate) fn usable(&self) -> bool {
        self.phase == Phase::Live && self.attached && !self.closing
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(crate) fn draw_ticket(&mut self, claim: ClaimId) -> Ticket {
        let ticket = self.next_ticket();
        self.tickets.insert(ticket, claim);
        ticket
    }

    /// A ticket of which no push tells anything.
    pub(crate) fn next_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// The next time it has something to do by itself. What is due already is not counted: it is
    /// done, or waits for a connection.
    fn next_time(&self, now: Time) -> Time {
        let later = |at: Time| if at > now { at } else { Time::FAR };
        let end = match (self.closing, self.phase) {
            (true, _) => self.lease_end(),
            (false, Phase::Live) => self.deadline(),
            (false, Phase::Opening | Phase::Confirming) => Time::FAR,
        };
        let renew = if self.closing || !self.renews { Time::FAR } else { later(self.renew_at) };
        end.min(renew).min(later(self.retry_at))
    }

    fn detach(&mut self) {
        self.attached = false;
        self.request = None;
        self.renew_at = Time::FAR;
    }
}

impl Core {
    /// Opens a session. The token must be drawn from a source fit for secrets, for this session
    /// alone. Claims may be made at once; they are sent when the session is open. The open is
    /// repeated until it is answered or the caller closes the session.
    pub fn open_session(&mut self, now: Time, spec: SessionSpec, token: SessionToken) -> SessionHandle {
        self.run_timers(now);
        let handle = SessionHandle(self.new_handle());
        let ttl = if spec.ttl.is_zero() { TTL_DEFAULT } else { spec.ttl };
        let session = Session {
            token,
            spec,
            phase: Phase::Opening,
            closing: false,
            renews: true,
            id: None,
            ttl,
            gone_within: Duration::ZERO,
            short_ttl: false,
            first_sent: None,
            lease_start: Time::ZERO,
            attached: false,
            request: None,
            retry_at: Time::ZERO,
            attempts: 0,
            renew_at: Time::FAR,
            next_ticket: 0,
            claims: BTreeSet::new(),
            tickets: BTreeMap::new(),
            writes: BTreeSet::new(),
            timer: Time::FAR,
        };
        self.sessions.insert(handle, session);
        self.wanting.push_back(Item::Session(handle));
        self.settle(now);
        handle
    }

    /// Closes a session. Its claims are reported lost at once; the close is repeated until it is
    /// answered or the lease has run out, and either is reported as [`Event::SessionClosed`].
    pub fn close_session(&mut self, now: Time, handle: SessionHandle) {
        self.run_timers(now);
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        session.closing = true;
        let never_sent = session.first_sent.is_none();
        self.lose_claims(handle, &LostReason::Closed);
        if never_sent {
            self.lose_session(handle, &LostReason::Closed);
        } else {
            self.wanting.push_back(Item::Session(handle));
            self.session_timer(now, handle);
        }
        self.settle(now);
    }

    /// Forgets a session without closing it: it is renewed no more, and its locks stay taken until
    /// it expires. For a caller that must stop while guards are still in use. Its claims are reported
    /// lost; of the session nothing more is.
    pub fn forget_session(&mut self, now: Time, handle: SessionHandle) {
        self.lose_claims(handle, &LostReason::Closed);
        self.remove_session(handle);
        self.settle(now);
    }

    /// Renews a session no more, for ever: it lasts until it is closed or its deadline passes. What it
    /// holds can still be released, which is what this is for: to let go of things one by one, in what is
    /// left of the lease. Of a session that is not open yet, close it instead.
    pub fn stop_renewing(&mut self, now: Time, handle: SessionHandle) {
        self.run_timers(now);
        if let Some(session) = self.sessions.get_mut(&handle) {
            session.renews = false;
        }
        self.session_timer(now, handle);
        self.settle(now);
    }

    /// Until when the session may be believed in: the end of its lease less the [`margin`]. `None`
    /// unless it is open.
    pub fn deadline(&self, handle: SessionHandle) -> Option<Time> {
        self.sessions.get(&handle).filter(|s| s.phase == Phase::Live && !s.closing).map(Session::deadline)
    }

    /// The id of a session that has been opened.
    pub fn session_id(&self, handle: SessionHandle) -> Option<SessionId> {
        self.sessions.get(&handle)?.id
    }

    pub(crate) fn session_timer(&mut self, now: Time, handle: SessionHandle) {
        if let Some(session) = self.sessions.get_mut(&handle) {
            let at = session.next_time(now);
            self.timers.set(Item::Session(handle), &mut session.timer, at);
        }
    }

    pub(crate) fn session_due(&mut self, now: Time, handle: SessionHandle) {
        let Some(session) = self.sessions.get(&handle) else { return };
        if session.closing && now >= session.lease_end() {
            return self.lose_session(handle, &LostReason::Closed);
        }
        if !session.closing && session.phase == Phase::Live && now >= session.deadline() {
            return self.lose_session(handle, &LostReason::DeadlinePassed);
        }
        self.renewals_due |= session.renew_at <= now;
        self.wanting.push_back(Item::Session(handle));
        self.session_timer(now, handle);
    }

    pub(crate) fn detach_sessions(&mut self) {
        self.sessions.values_mut().for_each(Session::detach);
    }

    /// Sends what the session needs: open, attach or close.
    pub(crate) fn session_send(&mut self, now: Time, handle: SessionHandle) {
        let leader = self.leader_link();
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        if !leader || session.request.is_some() || session.retry_at > now {
            return;
        }
        let request = match session.id {
            None => {
                session.first_sent.get_or_insert(now);
                Request::OpenSession {
                    token: session.token,
                    ttl_ms: u32::try_from(millis(session.spec.ttl)).unwrap_or(u32::MAX),
                    owner: session.spec.owner.clone(),
                    incarnation: session.spec.incarnation.clone(),
                }
            }
            Some(id) if !session.attached => Request::Attach { token: session.token, session: id },
            Some(id) if session.closing => Request::CloseSession { session: id },
            Some(_) => return,
        };
        let id = self.send(now, What::Session(handle), &request);
        if let Some(session) = self.sessions.get_mut(&handle) {
            session.request = Some(id);
        }
        self.session_timer(now, handle);
    }

    /// Takes the answer to open, attach or close. False when it answers none of them.
    pub(crate) fn session_reply(
        &mut self,
        now: Time,
        handle: SessionHandle,
        id: RequestId,
        reply: &Reply,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&handle) else { return true };
        if session.request == Some(id) {
            session.request = None;
            session.attempts = 0;
        }
        match *reply {
            Reply::Opened { session: opened, ttl_ms, gone_within_ms, short_ttl } => {
                if ttl_ms == 0 {
                    return false;
                }
                if self.by_id.contains_key(&opened) {
                    let reason = String::from("the token belongs to another session of this client");
                    self.lose_session(handle, &LostReason::Refused(Refusal::BadRequest { reason }));
                    return true;
                }
                session.ttl = Duration::from_millis(u64::from(ttl_ms));
                session.gone_within = Duration::from_millis(gone_within_ms);
                session.short_ttl = short_ttl;
                self.by_id.insert(opened, handle);
                self.opened(now, handle, opened);
            }
            Reply::Attached { session: attached, .. } => {
                if session.id != Some(attached) {
                    return false;
                }
                session.attached = true;
                session.renew_at = now;
                self.renewals_due = true;
                self.claims_want(handle);
            }
            Reply::SessionClosed { session: closed } => {
                if session.id != Some(closed) {
                    return false;
                }
                self.lose_session(handle, &LostReason::Closed);
            }
            _ => return false,
        }
        self.wanting.push_back(Item::Session(handle));
        self.session_timer(now, handle);
        true
    }

    fn opened(&mut self, now: Time, handle: SessionHandle, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        session.id = Some(id);
        session.attached = true;
        session.lease_start = session.first_sent.unwrap_or(now);
        session.renew_at = session.lease_start + session.ttl / 3;
        if session.renew_at > now {
            self.announce(handle);
        } else {
            session.phase = Phase::Confirming;
            self.renewals_due = true;
        }
    }

    /// From now on the session counts as open.
    fn announce(&mut self, handle: SessionHandle) {
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        session.phase = Phase::Live;
        let (Some(id), false) = (session.id, session.closing) else { return };
        let Session { ttl, gone_within, short_ttl, .. } = *session;
        self.event(Event::SessionOpened { handle, session: id, ttl, gone_within, short_ttl });
        self.claims_want(handle);
    }

    fn claims_want(&mut self, handle: SessionHandle) {
        if let Some(session) = self.sessions.get(&handle) {
            self.wanting.extend(session.claims.iter().map(|claim| Item::Claim(*claim)));
            self.wanting.extend(session.writes.iter().map(|write| Item::Write(*write)));
        }
    }

    /// The present connection has not presented the token after all: it will, after a short pause,
    /// lest a server that never remembers is asked without end.
    pub(crate) fn not_attached(&mut self, now: Time, handle: SessionHandle) {
        if let Some(session) = self.sessions.get_mut(&handle)
            && session.attached
        {
            session.attached = false;
            session.renew_at = Time::FAR;
            session.retry_at = now + backoff(&self.config, 0, &mut self.rng);
            self.session_timer(now, handle);
        }
    }

    pub(crate) fn session_refused(
        &mut self,
        now: Time,
        handle: SessionHandle,
        id: RequestId,
        refusal: Refusal,
    ) {
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        if session.request != Some(id) {
            return;
        }
        session.request = None;
        match &refusal {
            // The session this token opened is over already.
            Refusal::SessionEnded { cause, .. } => {
                return self.lose_session(handle, &LostReason::Ended(*cause));
            }
            Refusal::NotAttached { .. } => self.not_attached(now, handle),
            refusal if refusal.is_final() => {
                return self.lose_session(handle, &LostReason::Refused(refusal.clone()));
            }
            _ => {}
        }
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        session.retry_at = now + retry_after(&refusal, session.attempts, &self.config, &mut self.rng);
        session.attempts += 1;
        let opening = session.phase == Phase::Opening && !session.closing;
        self.session_timer(now, handle);
        if session_is_full(&refusal) && opening {
            self.event(Event::SessionDelayed { handle, refusal });
        }
        self.wanting.push_back(Item::Session(handle));
    }

    /// All sessions of the connection renew at once: its node has been elected anew.
    pub(crate) fn renew_all(&mut self, now: Time) {
        for session in self.sessions.values_mut().filter(|s| s.attached) {
            session.renew_at = now;
            self.renewals_due = true;
        }
    }

    /// One frame renews all sessions that are due, or nearly.
    pub(crate) fn send_renewals(&mut self, now: Time) {
        self.renewals_due = false;
        let due = |s: &Session| s.attached && !s.closing && s.renews && s.renew_at <= now + s.ttl / 6;
        let all: Vec<(SessionHandle, SessionId)> = self
            .sessions
            .iter()
            .filter(|(_, session)| due(session))
            .filter_map(|(handle, session)| Some((*handle, session.id?)))
            .collect();
        for part in all.chunks(RENEW_SESSIONS_MAX) {
            let sessions = part.iter().map(|(_, id)| *id).collect();
            let handles = part.iter().map(|(handle, _)| *handle).collect();
            self.send(now, What::Renew(handles), &Request::Renew { sessions });
            for (handle, _) in part {
                if let Some(session) = self.sessions.get_mut(handle) {
                    session.renew_at = now + session.ttl / 3;
                }
                self.session_timer(now, *handle);
            }
        }
    }

    /// Takes the answer to a renewal sent at `sent`. False when it is another answer.
    pub(crate) fn renew_reply(
        &mut self,
        now: Time,
        handles: &[SessionHandle],
        sent: Time,
        reply: Reply,
    ) -> bool {
        let Reply::Renewed { refused } = reply else { return false };
        let mut not_renewed = BTreeSet::new();
        for refusal in &refused {
            match refusal {
                Refusal::SessionEnded { session, cause } => {
                    if let Some(handle) = self.by_id.get(session) {
                        self.lose_session(*handle, &LostReason::Ended(*cause));
                    }
                }
                Refusal::NotAttached { session } => {
                    let Some(handle) = self.by_id.get(session).copied() else { continue };
                    not_renewed.insert(handle);
                    self.not_attached(now, handle);
                }
                // It does not say of whom: nobody may count on the rest.
                other => {
                    self.renew_refused(now, handles, other);
                    return true;
                }
            }
        }
        for handle in handles.iter().filter(|handle| !not_renewed.contains(handle)) {
            self.renewed(now, *handle, sent);
        }
        true
    }

    fn renewed(&mut self, now: Time, handle: SessionHandle, sent: Time) {
        let Some(session) = self.sessions.get_mut(&handle) else { return };
        session.lease_start = session.lease_start.max(sent);
        let deadline = session.deadline();
        match session.phase {
            Phase::Confirming if now < deadline => self.announce(handle),
            Phase::Live if !session.closing => self.event(Event::Renewed { handle, deadline }),
            Phase::Opening | Phase::Confirming | Phase::Live => {}
        }
        self.session_timer(now, handle);
    }

    /// A renewal was not accepted as a whole: it is repeated soon.
    pub(crate) fn renew_refused(&mut self, now: Time, handles: &[SessionHandle], refusal: &Refusal) {
        let pause = retry_after(refusal, 0, &self.config, &mut self.rng).max(self.config.backoff_min);
        for handle in handles {
            if let Some(session) = self.sessions.get_mut(handle).filter(|s| s.attached) {
                session.renew_at = session.renew_at.min(now + pause);
            }
            self.session_timer(now, *handle);
        }
    }

    fn remove_session(&mut self, handle: SessionHandle) -> Option<Session> {
        let mut session = self.sessions.remove(&handle)?;
        self.timers.set(Item::Session(handle), &mut session.timer, Time::FAR);
        if let Some(id) = session.id {
            self.by_id.remove(&id);
        }
        Some(session)
    }

    /// The session is over, and so are its claims.
    pub(crate) fn lose_session(&mut self, handle: SessionHandle, reason: &LostReason) {
        self.lose_claims(handle, reason);
        let Some(session) = self.remove_session(handle) else { return };
        self.event(match (session.closing, session.phase) {
            (true, _) => Event::SessionClosed { handle },
            (false, Phase::Live) => Event::SessionLost { handle, reason: reason.clone() },
            (false, _) => Event::SessionFailed { handle, reason: reason.clone() },
        });
    }
}

/// Whether a limit stands in the way that others must make room under.
pub(crate) fn session_is_full(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::QuotaExceeded { .. } | Refusal::SessionFull { .. })
}

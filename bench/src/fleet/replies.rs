//! What follows from each answer.

use std::cmp::Reverse;

use palisade_types::reply::Consistency;
use palisade_types::{Refusal, Reply, SessionId};
use palisade_wire::{Frame, Kind, Push, Query, Request, decode_reply};

use super::session::{State, Tag};
use super::{Fleet, Phase};
use crate::error::BenchError;
use crate::poller::Outbox;
use crate::work::Mix;
use crate::{forms, glance};

fn bad(error: impl ToString) -> BenchError {
    BenchError::Protocol(error.to_string())
}

impl Fleet {
    /// Takes an answer or a push.
    pub(super) fn take(&mut self, frame: &Frame<'_>, now: u64, out: &mut Outbox) -> Result<(), BenchError> {
        let (tag, n) = Tag::of(frame.id.0)
            .filter(|&(tag, n)| tag == Tag::Renewal || n < self.count())
            .ok_or_else(|| bad("an answer to nothing that was asked"))?;
        match frame.kind {
            Kind::Granted => self.granted(n, frame.body, now, out),
            Kind::PushGranted => {
                match self.by_id.get(&glance::first_session(frame.body).map_err(bad)?) {
                    Some(&n) => self.granted(n, frame.body, now, out),
                    // Of a session that has been replaced.
                    None => Ok(()),
                }
            }
            // Its grant follows.
            Kind::Queued => Ok(()),
            Kind::Finished => {
                if self.state(n) == State::Leaving {
                    self.idle(n, now, out);
                }
                Ok(())
            }
            Kind::Described => {
                self.answered(n, now, out);
                Ok(())
            }
            Kind::Renewed => self.renewed(tag, n, frame, now, out),
            Kind::Opened => self.opened(n, frame, now, out),
            Kind::Attached => {
                self.attached(n, now, out);
                Ok(())
            }
            Kind::SessionClosed => {
                match tag {
                    Tag::Close => self.end(n),
                    _ if self.state(n) == State::Leaving => self.idle(n, now, out),
                    _ => {}
                }
                Ok(())
            }
            Kind::Denied => Err(bad("a key of this run alone is held by another")),
            Kind::Refused => match decode_reply(frame).map_err(bad)? {
                Reply::Refused(refusal) => self.refused(tag, n, refusal, now, out),
                other => Err(bad(format!("{other:?}"))),
            },
            Kind::PushFinished | Kind::PushSessionEnded | Kind::PushLeaderChanged => {
                self.pushed(&Push::decode(frame).map_err(bad)?, now, out)
            }
            other => Err(bad(format!("a {other:?} frame"))),
        }
    }

    fn state(&self, n: u32) -> State {
        self.sessions[n as usize].state
    }

    /// A read or a renewal is done.
    fn answered(&mut self, n: u32, now: u64, out: &mut Outbox) {
        if self.state(n) == State::Asked {
            self.done(n, now);
            self.idle(n, now, out);
        }
    }

    fn granted(&mut self, n: u32, body: &[u8], now: u64, out: &mut Outbox) -> Result<(), BenchError> {
        let grant = glance::grant(body).map_err(bad)?;
        let session = &self.sessions[n as usize];
        let expected = matches!(session.state, State::Asked | State::Preparing);
        if !expected || grant.ticket != session.ticket || grant.session != session.id {
            // The same grant may come as an answer and as a push.
            return Ok(());
        }
        if grant.key != forms::key_of(&session.request, self.settings.key_bytes) {
            return Err(BenchError::Violation(format!(
                "session {n} was granted a key it did not ask for: {}",
                String::from_utf8_lossy(grant.key)
            )));
        }
        let key = session.key;
        if now < session.lease_until {
            if let Some(holder) = self.ledger.holder(key)
                && self.sessions[holder as usize].lease_until <= now
            {
                // It may have expired, whether or not it has been told.
                self.ledger.let_go(key, holder);
            }
            let judged = self.ledger.granted(key, n, grant.epoch);
            judged.map_err(|violation| {
                BenchError::Violation(format!("{violation} ({})", String::from_utf8_lossy(grant.key)))
            })?;
        }
        if self.state(n) == State::Preparing {
            let key = self.names.name(key)?;
            let query = Query::Describe { key };
            let read = Request::Read { consistency: Consistency::Linearizable, query };
            self.sessions[n as usize].request = forms::frame(Tag::Work.id(n), &read);
            self.ready(n, now, out);
            return Ok(());
        }
        self.done(n, now);
        if self.settings.hold == 0 {
            self.release(n, out);
        } else {
            self.sessions[n as usize].state = State::Holding;
            self.timers.push(Reverse((now + self.settings.hold, n)));
        }
        Ok(())
    }

    fn opened(&mut self, n: u32, frame: &Frame<'_>, now: u64, out: &mut Outbox) -> Result<(), BenchError> {
        let Reply::Opened { session: id, .. } = decode_reply(frame).map_err(bad)? else {
            return Err(bad("an answer that is none to an open"));
        };
        if self.state(n) != State::Opening {
            return Ok(());
        }
        let work = Tag::Work.id(n);
        let base = if self.settings.own_keys { n * self.settings.choices } else { 0 };
        let session = &mut self.sessions[n as usize];
        session.id = id;
        session.attached = Some(now);
        if self.settings.mix == Mix::Session {
            session.leave = forms::frame(work, &Request::CloseSession { session: id });
            session.state = State::Leaving;
            self.done(n, now);
            self.send(n, out);
            return Ok(());
        }
        self.by_id.insert(id, n);
        let release = Request::Release { session: id, ticket: palisade_types::Ticket(0) };
        session.leave = forms::frame(work, &release);
        session.request = match self.settings.mix {
            Mix::Renew => forms::frame(work, &Request::Renew { sessions: vec![id] }),
            _ => forms::acquire(work, id, &self.names.name(base)?, self.settings.wait),
        };
        if self.settings.mix == Mix::Read {
            (session.ticket, session.key, session.state) = (1, base, State::Preparing);
            forms::fill_acquire(&mut session.request, 1, base);
            self.send(n, out);
        } else {
            self.ready(n, now, out);
        }
        Ok(())
    }

    /// The session can begin with its operations.
    fn ready(&mut self, n: u32, now: u64, out: &mut Outbox) {
        self.idle(n, now, out);
        if matches!(self.phase, Phase::Opening { .. }) {
            self.unready -= 1;
            self.open_next(now, out);
        }
    }

    fn renewed(
        &mut self,
        tag: Tag,
        n: u32,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError> {
        let count = glance::refused(frame.body).map_err(bad)?;
        if tag == Tag::Work && count == 0 {
            self.answered(n, now, out);
            return Ok(());
        }
        let refusals = match decode_reply(frame).map_err(bad)? {
            Reply::Renewed { refused } => refused,
            other => return Err(bad(format!("{other:?}"))),
        };
        let named: Vec<SessionId> = refusals.iter().filter_map(session_of).collect();
        if tag == Tag::Renewal && named.len() == refusals.len() {
            self.extend_leases(n, &named);
        }
        for refusal in refusals {
            let whose = session_of(&refusal).and_then(|id| self.by_id.get(&id).copied());
            match whose {
                Some(n) => self.refused(Tag::Work, n, refusal, now, out)?,
                None if session_of(&refusal).is_some() => {}
                None => self.refused(tag, n, refusal, now, out)?,
            }
        }
        Ok(())
    }

    /// A part has been renewed, but for these sessions.
    fn extend_leases(&mut self, part: u32, refused: &[SessionId]) {
        let Some(part) = self.renewals.part(part) else { return };
        for &n in &part.sessions {
            let session = &mut self.sessions[n as usize];
            let was_named = session.attached.is_some_and(|since| since <= part.sent);
            if was_named && !refused.contains(&session.id) {
                session.lease_until = session.lease_until.max(part.sent + self.settings.ttl);
            }
        }
    }

    /// Something was not done.
    fn refused(
        &mut self,
        tag: Tag,
        n: u32,
        refusal: Refusal,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError> {
        if matches!(self.phase, Phase::Closing { .. }) {
            if tag == Tag::Close {
                self.end(n);
            }
            return Ok(());
        }
        self.errors += 1;
        match refusal {
            Refusal::Busy { retry_after_ms } => {
                if tag != Tag::Renewal {
                    self.timers.push(Reverse((now + u64::from(retry_after_ms.max(1)) * 1_000_000, n)));
                }
                Ok(())
            }
            Refusal::NotLeader { .. } | Refusal::Interrupted { .. } => {
                Err(BenchError::Lost("the leader changed".to_owned()))
            }
            Refusal::NotAttached { .. } if self.settings.survive && tag != Tag::Renewal => {
                self.detached(n, out);
                Ok(())
            }
            Refusal::SessionEnded { .. } if self.settings.survive && tag != Tag::Renewal => {
                self.ended(n, now, out);
                Ok(())
            }
            other => Err(other.into()),
        }
    }

    fn pushed(&mut self, push: &Push, now: u64, out: &mut Outbox) -> Result<(), BenchError> {
        if matches!(self.phase, Phase::Closing { .. }) {
            return Ok(());
        }
        match push {
            Push::LeaderChanged { .. } => Err(BenchError::Lost("the leader changed".to_owned())),
            Push::SessionEnded { session, cause } => match self.by_id.get(session).copied() {
                Some(n) if self.settings.survive => {
                    self.ended(n, now, out);
                    Ok(())
                }
                Some(_) => Err(BenchError::Lost(format!("session {session} ended ({cause})"))),
                // This run closed it.
                None => Ok(()),
            },
            Push::Finished { outcome, .. } => Err(bad(format!("a claim without a limit ended: {outcome:?}"))),
            // Sessions watch nothing.
            Push::Granted { .. } | Push::Events { .. } | Push::Progress { .. } | Push::WatchEnded { .. } => {
                Ok(())
            }
        }
    }
}

/// The session a refusal is about.
fn session_of(refusal: &Refusal) -> Option<SessionId> {
    match refusal {
        Refusal::SessionEnded { session, .. } | Refusal::NotAttached { session } => Some(*session),
        _ => None,
    }
}

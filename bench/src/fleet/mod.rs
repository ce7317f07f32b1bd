//! The sessions of a load: what each asks next, and what follows from the answers.

mod recovery;
mod renewals;
mod replies;
mod session;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use hdrhistogram::Histogram;
use palisade_types::{RequestId, Rng, SessionId, SessionToken};
use palisade_wire::{Frame, Request, Wait};

use crate::choice::Choice;
use crate::error::BenchError;
use crate::forms::{self, KeyNames};
use crate::ledger::Ledger;
use crate::options::LoadOptions;
use crate::pace::{Meter, Pacer};
use crate::poller::{Actor, Outbox, Turn};
use crate::work::Mix;

use renewals::Renewals;
use session::{Session, State, Tag};

/// The most sessions being opened at once on a connection.
const OPEN_AT_ONCE: u32 = 256;
/// How long all of them may take to open.
const OPENING_TIME: u64 = 120_000_000_000;
/// How long they may take to close. Whatever is left expires.
const CLOSING_TIME: u64 = 5_000_000_000;
/// A server that owes answers and is silent for so long is given up, if the run is to survive that.
const SILENCE: u64 = 3_000_000_000;

/// What all sessions have in common.
struct Settings {
    mix: Mix,
    links: u32,
    /// How many keys a session picks from, and whether they are its own.
    choices: u32,
    own_keys: bool,
    key_bytes: usize,
    wait: Wait,
    hold: u64,
    ttl: u64,
    survive: bool,
}

/// Where the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Sessions are opened and made ready until all are.
    Opening { deadline: u64 },
    /// Operations begin and end, until this time.
    Running { end: u64 },
    /// The time is up. Nothing begins.
    Over,
    /// Sessions are closed until all are, or this time.
    Closing { deadline: u64 },
}

/// What a run added up to.
pub(crate) struct Outcome {
    /// Operations that ended in the window.
    pub(crate) operations: u64,
    /// How long each took.
    pub(crate) latency: Histogram<u64>,
    /// Requests that were put off or had to be repeated.
    pub(crate) errors: u64,
    /// Operations due and not begun when the time was up.
    pub(crate) backlog: u64,
    /// Grants the ledger found in order.
    pub(crate) grants_judged: u64,
    /// Times everything was connected anew.
    pub(crate) recoveries: u64,
}

/// All sessions. The nth lives on connection n modulo their number.
pub(crate) struct Fleet {
    settings: Settings,
    sessions: Vec<Session>,
    by_id: HashMap<SessionId, u32>,
    names: KeyNames,
    choice: Choice,
    rng: Rng,
    pacer: Pacer,
    meter: Meter,
    ledger: Ledger,
    renewals: Renewals,
    /// When a session is to be looked at: its lock has been held for long enough, or a request that
    /// was put off is to be repeated.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    phase: Phase,
    /// The next session to be opened.
    next_open: u32,
    /// Sessions not ready yet, while they are opened.
    unready: u32,
    /// Sessions that a new connection does not know yet.
    unattached: u32,
    /// Sessions that are over, while they are closed.
    over: u32,
    /// When anything arrived last.
    heard: u64,
    errors: u64,
    backlog: u64,
    recoveries: u64,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Fleet {
    /// Sessions for these options, none of them open. The seed makes names and tokens that no other
    /// run has.
    pub(crate) fn new(options: &LoadOptions, seed: u64, now: u64) -> Result<Fleet, BenchError> {
        let own_keys = options.mix != Mix::Contend;
        let choices = if own_keys { options.keys() / options.sessions } else { options.keys() };
        // After a failover the last holder of a session's key may still be on its way out.
        let wait = if own_keys && !options.survive { Wait::No } else { Wait::Forever };
        let settings = Settings {
            mix: options.mix,
            links: options.connections,
            choices: choices.max(1),
            own_keys,
            key_bytes: options.key_bytes,
            wait,
            hold: options.hold_ms * 1_000_000,
            ttl: nanos(options.ttl),
            survive: options.survive,
        };
        let mut rng = Rng::new(seed);
        let sessions = (0..options.sessions).map(|_| Session::new(token(&mut rng))).collect();
        let renewed = if options.mix == Mix::Session { 0 } else { options.sessions };
        Ok(Fleet {
            sessions,
            by_id: HashMap::with_capacity(options.sessions as usize),
            names: KeyNames::new((seed >> 32) as u32, options.key_bytes),
            choice: Choice::new(settings.choices, options.zipf),
            rng,
            pacer: Pacer::closed(),
            meter: Meter::new(),
            ledger: Ledger::new(options.keys().max(options.sessions)),
            renewals: Renewals::new(renewed, options.connections, nanos(options.renew_every()), now),
            timers: BinaryHeap::new(),
            phase: Phase::Opening { deadline: now + OPENING_TIME },
            next_open: 0,
            unready: renewed,
            unattached: 0,
            over: 0,
            heard: now,
            errors: 0,
            backlog: 0,
            recoveries: 0,
            settings,
        })
    }

    /// Begins to open the sessions; driving on ends when all are open.
    pub(crate) fn open(&mut self, now: u64, out: &mut Outbox) {
        if self.settings.mix == Mix::Session {
            // Opening is the work here.
            self.next_open = self.count();
            self.sessions.iter_mut().for_each(|s| s.state = State::Idle);
            return;
        }
        for _ in 0..self.settings.links.saturating_mul(OPEN_AT_ONCE) {
            self.open_next(now, out);
        }
    }

    fn open_next(&mut self, now: u64, out: &mut Outbox) {
        if self.next_open < self.count() {
            self.next_open += 1;
            self.open_session(self.next_open - 1, now, out);
        }
    }

    fn open_session(&mut self, n: u32, now: u64, out: &mut Outbox) {
        // The lease counts from the first try.
        let lease_until = now.saturating_add(self.settings.ttl);
        let fresh = Session { lease_until, ..Session::new(token(&mut self.rng)) };
        let from = self.sessions[n as usize].from;
        self.sessions[n as usize] = Session { from, ..fresh };
        self.send(n, out);
    }

    /// Begins the work; driving on ends when the time is up.
    pub(crate) fn begin(&mut self, pacer: Pacer, window: (u64, u64), now: u64, out: &mut Outbox) {
        self.pacer = pacer;
        self.meter.set_window(window.0, window.1);
        self.phase = Phase::Running { end: window.1 };
        for n in 0..self.count() {
            if self.sessions[n as usize].state == State::Idle {
                self.idle(n, now, out);
            }
        }
    }

    /// Begins to close the sessions; driving on ends when all are closed.
    pub(crate) fn close(&mut self, now: u64, out: &mut Outbox) {
        self.phase = Phase::Closing { deadline: now + CLOSING_TIME };
        for n in 0..self.count() {
            let session = &self.sessions[n as usize];
            if self.settings.mix == Mix::Session {
                if session.state == State::Idle {
                    self.end(n);
                }
            } else if session.attached.is_some() {
                let request = Request::CloseSession { session: session.id };
                request.encode(RequestId(Tag::Close.id(n)), out.to(self.link(n)));
            } else {
                self.end(n);
            }
        }
    }

    /// What it all added up to.
    pub(crate) fn into_outcome(self) -> Outcome {
        let (operations, latency) = self.meter.into_counted();
        Outcome {
            operations,
            latency,
            errors: self.errors,
            backlog: self.backlog,
            grants_judged: self.ledger.grants(),
            recoveries: self.recoveries,
        }
    }

    /// Counts what ends in the window.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    fn count(&self) -> u32 {
        self.sessions.len() as u32
    }

    fn link(&self, n: u32) -> usize {
        (n % self.settings.links) as usize
    }

    /// A session has nothing to do: it begins its next operation, or waits for one.
    fn idle(&mut self, n: u32, now: u64, out: &mut Outbox) {
        self.sessions[n as usize].state = State::Idle;
        match self.phase {
            Phase::Running { .. } => {
                if let Some(from) = self.pacer.idle(n, now) {
                    self.begin_operation(n, from, now, out);
                }
            }
            Phase::Closing { .. } if self.settings.mix == Mix::Session => self.end(n),
            _ => {}
        }
    }

    fn begin_operation(&mut self, n: u32, from: u64, now: u64, out: &mut Outbox) {
        let session = &mut self.sessions[n as usize];
        session.from = from;
        match self.settings.mix {
            Mix::Session => return self.open_session(n, now, out),
            Mix::Cycle | Mix::Contend => {
                session.ticket += 1;
                let base = if self.settings.own_keys { n * self.settings.choices } else { 0 };
                session.key = base + self.choice.pick(&mut self.rng);
                forms::fill_acquire(&mut session.request, session.ticket, session.key);
            }
            Mix::Read | Mix::Renew => {}
        }
        session.state = State::Asked;
        self.send(n, out);
    }

    /// The operation is done; what follows it belongs to none.
    fn done(&mut self, n: u32, now: u64) {
        self.meter.done(self.sessions[n as usize].from, now);
    }

    /// Sends what the session's state calls for, if anything: once, or again.
    fn send(&mut self, n: u32, out: &mut Outbox) {
        let link = self.link(n);
        let session = &self.sessions[n as usize];
        match session.state {
            State::Opening => {
                let ttl_ms = (self.settings.ttl / 1_000_000) as u32;
                let token = session.token;
                Request::OpenSession { token, ttl_ms, owner: None, incarnation: None }
                    .encode(RequestId(Tag::Open.id(n)), out.to(link));
            }
            State::Over => {}
            _ if session.attached.is_none() => {
                Request::Attach { token: session.token, session: session.id }
                    .encode(RequestId(Tag::Attach.id(n)), out.to(link));
            }
            State::Preparing | State::Asked => out.to(link).extend_from_slice(&session.request),
            State::Leaving => out.to(link).extend_from_slice(&session.leave),
            State::Idle | State::Holding => {}
        }
    }

    /// Gives the key back.
    fn release(&mut self, n: u32, out: &mut Outbox) {
        let session = &mut self.sessions[n as usize];
        session.state = State::Leaving;
        self.ledger.let_go(session.key, n);
        forms::fill_release(&mut session.leave, session.ticket);
        self.send(n, out);
    }

    /// The session is over, as far as this run is concerned.
    fn end(&mut self, n: u32) {
        if self.sessions[n as usize].state != State::Over {
            self.sessions[n as usize].state = State::Over;
            self.over += 1;
        }
    }

    fn look_at(&mut self, n: u32, out: &mut Outbox) {
        match self.sessions[n as usize].state {
            State::Holding => self.release(n, out),
            _ => self.send(n, out),
        }
    }

    fn renew_due(&mut self, now: u64, out: &mut Outbox) {
        while let Some((number, part)) = self.renewals.take_due(now) {
            let attached = part.sessions.iter().map(|&n| &self.sessions[n as usize]);
            let sessions: Vec<SessionId> = attached.filter(|s| s.attached.is_some()).map(|s| s.id).collect();
            if !sessions.is_empty() {
                Request::Renew { sessions }.encode(RequestId(Tag::Renewal.id(number)), out.to(part.link));
            }
        }
    }
}

fn token(rng: &mut Rng) -> SessionToken {
    SessionToken(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
}

impl Actor for Fleet {
    fn on_frame(
        &mut self,
        _link: usize,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError> {
        self.heard = now;
        self.take(frame, now, out)
    }

    fn on_turn(&mut self, now: u64, out: &mut Outbox) -> Result<Turn, BenchError> {
        self.meter.publish();
        while let Some(&Reverse((at, n))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            self.look_at(n, out);
        }
        let timer = self.timers.peek().map_or(u64::MAX, |&Reverse((at, _))| at);
        let until = match self.phase {
            Phase::Opening { .. } if self.unready == 0 => return Ok(Turn::Done),
            Phase::Opening { deadline } if now >= deadline => {
                return Err(BenchError::Protocol(format!("{} sessions do not open", self.unready)));
            }
            Phase::Opening { deadline } => deadline,
            Phase::Running { end } if now >= end => {
                self.backlog = self.pacer.backlog();
                self.phase = Phase::Over;
                return Ok(Turn::Done);
            }
            Phase::Running { end } => {
                self.pacer.tick(now);
                while let Some((n, from)) = self.pacer.next() {
                    self.begin_operation(n, from, now, out);
                }
                end.min(self.pacer.wake_at())
            }
            Phase::Over => return Ok(Turn::Done),
            Phase::Closing { deadline } if self.over == self.count() || now >= deadline => {
                return Ok(Turn::Done);
            }
            Phase::Closing { deadline } => deadline,
        };
        self.renew_due(now, out);
        let silence = self.refuse_silence(now)?;
        Ok(Turn::Until(until.min(timer).min(self.renewals.wake_at()).min(silence)))
    }
}

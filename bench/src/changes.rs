//! `watch --changes`: this run changes the watched key itself, at a fixed rate, and says how long it is from
//! the time a change was meant to be to each watcher's hearing of it, and to the last one's; with
//! `--acquires`, also what acquires beside it take, without the watchers and with them.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use palisade_types::limits::TTL_MAX;
use palisade_types::{
    Class, Happened, Key, Mode, OnDeath, Reply, RequestId, Selector, SessionId, SessionToken, Ticket,
};
use palisade_wire::{Frame, Kind, Push, Request, Wait, decode_reply};

use crate::error::BenchError;
use crate::hello;
use crate::host::{Sampler, Usage};
use crate::load;
use crate::options::LoadOptions;
use crate::pace::{Clock, Schedule};
use crate::poller::{Actor, Outbox, Turn};
use crate::report::Report;
use crate::watch::WatchOptions;
use crate::work::{Mix, Work, new_histogram};

/// The connection that changes the key; the watchers' come behind it.
const CHANGER: usize = 0;
/// How long a leader is looked for.
const FIND_TIME: Duration = Duration::from_secs(5);
/// How long the watches may take to stand, and the last changes to be told, in nanoseconds.
const PATIENCE: u64 = 60_000_000_000;
/// The load of acquires: as many sessions and connections as `load` has by default.
const ACQUIRERS: (u32, u32) = (1_000, 4);

/// Does the run and says what it found.
pub(crate) fn run(options: &WatchOptions, changes: u64) -> Result<String, BenchError> {
    let token = random()?;
    let name = match options.key.as_str() {
        "" => format!("bench-watch-{:016x}", token as u64),
        key => key.to_owned(),
    };
    let key = Key::new(&name).map_err(|e| BenchError::Usage(format!("--key: {e}")))?;
    let without = options.acquires.map(|rate| acquire(options, rate)).transpose()?;
    let clock = Clock::start();
    let (mut poller, leader) = hello::connect(&options.endpoints, 1, clock, FIND_TIME)?;
    for n in 0..options.connections as usize {
        let (stream, rest) = hello::greeted(&leader.members[n % leader.members.len()])?;
        poller.add(stream, rest)?;
    }
    let mut changer = Changer::new(options.watchers, key.clone(), clock.now() + PATIENCE);
    changer.open(SessionToken(token), &mut poller.out);
    watch(options, &key, &mut poller.out);
    poller.drive(&mut changer)?;
    let sampler = Sampler::new(&options.pids);
    let before = sampler.sample()?;
    let load = options.acquires.map(|rate| {
        let options = options.clone();
        thread::spawn(move || acquire(&options, rate))
    });
    changer.begin(clock.now(), changes, Duration::from_secs(options.seconds));
    poller.drive(&mut changer)?;
    let usage = before.until(&sampler.sample()?);
    let with = load.map(|load| load.join().map_err(|_| BenchError::Thread)?).transpose()?;
    changer.close(&mut poller.out);
    poller.drive(&mut changer)?;
    Ok(text(options, &changer, &usage, without.as_ref(), with.as_ref()))
}

fn random() -> Result<u128, BenchError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| BenchError::Protocol(e.to_string()))?;
    Ok(u128::from_le_bytes(bytes))
}

/// All watches of the one key, spread over the connections.
fn watch(options: &WatchOptions, key: &Key, out: &mut Outbox) {
    for watch in 0..u64::from(options.watchers) {
        let selector = Selector::Key(key.clone());
        let request = Request::Watch { watch, selector, present: false, cursor: None };
        let link = (watch % u64::from(options.connections)) as usize;
        request.encode(RequestId(watch), out.to(CHANGER + 1 + link));
    }
}

/// Acquires and releases of other keys at this rate, for as long as the run watches.
fn acquire(options: &WatchOptions, rate: u64) -> Result<Report, BenchError> {
    let (sessions, connections) = ACQUIRERS;
    let duration = Duration::from_secs(options.seconds);
    let work =
        Work { mix: Mix::Cycle, sessions, connections, warmup: duration / 10, duration: duration * 8 / 10 };
    let mut load = LoadOptions::of(&work, &options.endpoints, &options.pids);
    load.rate = Some(rate);
    load::run(&load)
}

/// A change: a grant of the key, or its release.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// When it was meant to be.
    due: u64,
    /// How many watchers have been told.
    told: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The key is taken and left once, so that its epochs are known; the watches are made.
    Preparing {
        deadline: u64,
    },
    /// Changes are made until `end`; then whoever has not been told of all has until `deadline`.
    Changing {
        end: u64,
        deadline: u64,
    },
    Closing {
        deadline: u64,
    },
    Over,
}

/// Changes the key, and hears what its watchers are told.
struct Changer {
    key: Key,
    phase: Phase,
    session: SessionId,
    ticket: u64,
    /// A request of its own is unanswered.
    asked: bool,
    /// The epoch of the grant before the first change.
    base: Option<u64>,
    prepared: bool,
    watchers: u32,
    standing: u32,
    schedule: Schedule,
    changes: Vec<Change>,
    events: u64,
    coalesced: u64,
    ended: u64,
    /// From a change's time to each watcher, and to the last one, in microseconds.
    delays: Histogram<u64>,
    to_last: Histogram<u64>,
}

impl Changer {
    fn new(watchers: u32, key: Key, deadline: u64) -> Changer {
        Changer {
            key,
            phase: Phase::Preparing { deadline },
            session: SessionId::default(),
            ticket: 0,
            asked: false,
            base: None,
            prepared: false,
            watchers,
            standing: 0,
            schedule: Schedule::new(0, 1),
            changes: Vec::new(),
            events: 0,
            coalesced: 0,
            ended: 0,
            delays: new_histogram(),
            to_last: new_histogram(),
        }
    }

    fn open(&mut self, token: SessionToken, out: &mut Outbox) {
        let ttl_ms = TTL_MAX.as_millis() as u32;
        self.ask(&Request::OpenSession { token, ttl_ms, owner: None, incarnation: None }, out);
    }

    fn begin(&mut self, now: u64, per_second: u64, length: Duration) {
        let end = now + length.as_nanos() as u64;
        self.schedule = Schedule::new(now, per_second);
        self.phase = Phase::Changing { end, deadline: end + PATIENCE };
    }

    fn close(&mut self, out: &mut Outbox) {
        self.phase = match self.phase {
            Phase::Changing { deadline, .. } => Phase::Closing { deadline },
            other => other,
        };
        self.ask(&Request::CloseSession { session: self.session }, out);
    }

    fn ask(&mut self, request: &Request, out: &mut Outbox) {
        self.asked = true;
        request.encode(RequestId(self.ticket), out.to(CHANGER));
    }

    fn take(&mut self, out: &mut Outbox) {
        self.ticket += 1;
        let request = Request::Acquire {
            session: self.session,
            ticket: Ticket(self.ticket),
            key: self.key.clone(),
            class: Class::Advisory,
            resource: None,
            mode: Mode::Exclusive,
            wait: Wait::No,
            on_death: OnDeath::Release,
        };
        self.ask(&request, out);
    }

    fn leave(&mut self, out: &mut Outbox) {
        self.ask(&Request::Release { session: self.session, ticket: Ticket(self.ticket) }, out);
    }

    fn answered(&mut self, reply: Reply, out: &mut Outbox) -> Result<(), BenchError> {
        self.asked = false;
        match reply {
            Reply::Opened { session, .. } => {
                self.session = session;
                self.take(out);
            }
            Reply::Granted { fence, .. } if self.base.is_none() => {
                self.base = Some(fence.epoch().0);
                self.leave(out);
            }
            Reply::Granted { .. } => {}
            Reply::Finished { .. } => self.prepared = true,
            Reply::SessionClosed { .. } => self.phase = Phase::Over,
            Reply::Refused(refusal) => return Err(refusal.into()),
            other => return Err(BenchError::Protocol(format!("{other:?}"))),
        }
        Ok(())
    }

    /// Makes the next change if it is due. One that comes late because the last was slow is late from the
    /// time it was meant to be.
    fn change(&mut self, now: u64, end: u64, out: &mut Outbox) -> u64 {
        let next = self.changes.len() as u64;
        let due = self.schedule.at(next);
        // The key is left free: its last change is a release.
        if due >= end && next.is_multiple_of(2) {
            return u64::MAX;
        }
        if self.asked || now < due {
            return due.max(now + 1);
        }
        self.changes.push(Change { due, told: 0 });
        if next.is_multiple_of(2) {
            self.take(out)
        } else {
            self.leave(out)
        }
        self.schedule.at(next + 1)
    }

    fn all_told(&self) -> usize {
        self.changes.iter().filter(|change| change.told >= self.watchers).count()
    }

    fn heard(&mut self, push: &Push, now: u64) -> Result<(), BenchError> {
        let Push::Events { events, coalesced, .. } = push else {
            self.ended += u64::from(matches!(push, Push::WatchEnded { .. }));
            return Ok(());
        };
        self.coalesced += u64::from(*coalesced);
        let base = self.base.unwrap_or(u64::MAX);
        for event in events.decode().map_err(|e| BenchError::Protocol(e.to_string()))? {
            let number = match event.what {
                Happened::Granted { epoch, .. } => epoch.0.checked_sub(base.saturating_add(1)).map(|n| 2 * n),
                Happened::Released { epoch, .. } => {
                    epoch.0.checked_sub(base.saturating_add(1)).map(|n| 2 * n + 1)
                }
                _ => None,
            };
            // What is not of a change of this run is the preparation.
            let Some(change) = number.and_then(|n| self.changes.get_mut(n as usize)) else { continue };
            let micros = (now.saturating_sub(change.due) / 1_000).max(1);
            change.told += 1;
            self.events += 1;
            self.delays.saturating_record(micros);
            if change.told == self.watchers {
                self.to_last.saturating_record(micros);
            }
        }
        Ok(())
    }
}

impl Actor for Changer {
    fn on_frame(
        &mut self,
        link: usize,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError> {
        let bad = |e: palisade_wire::MessageError| BenchError::Protocol(e.to_string());
        if link == CHANGER {
            // The end of a session that is being closed is told beside the answer.
            if frame.kind == Kind::PushSessionEnded
                && matches!(self.phase, Phase::Closing { .. } | Phase::Over)
            {
                return Ok(());
            }
            return self.answered(decode_reply(frame).map_err(bad)?, out);
        }
        match frame.kind {
            Kind::Watching => self.standing += 1,
            Kind::Refused => match decode_reply(frame).map_err(bad)? {
                Reply::Refused(refusal) => return Err(refusal.into()),
                other => return Err(BenchError::Protocol(format!("{other:?}"))),
            },
            _ => self.heard(&Push::decode(frame).map_err(bad)?, now)?,
        }
        Ok(())
    }

    fn on_turn(&mut self, now: u64, out: &mut Outbox) -> Result<Turn, BenchError> {
        match self.phase {
            Phase::Preparing { .. } if self.prepared && self.standing == self.watchers => Ok(Turn::Done),
            Phase::Preparing { deadline } if now >= deadline => {
                let (standing, all) = (self.standing, self.watchers);
                Err(BenchError::Lost(format!("{standing} of {all} watches stand after a minute")))
            }
            Phase::Changing { end, deadline } => {
                let next = self.change(now, end, out);
                let is_over = next == u64::MAX && !self.asked && now >= end;
                if now >= deadline || (is_over && self.all_told() == self.changes.len()) {
                    return Ok(Turn::Done);
                }
                // An answer or an event wakes it earlier.
                let at = if self.asked || next == u64::MAX { deadline } else { next };
                Ok(Turn::Until(if now < end { at.min(end) } else { at }))
            }
            Phase::Closing { deadline } if now >= deadline => Ok(Turn::Done),
            Phase::Preparing { deadline } | Phase::Closing { deadline } => Ok(Turn::Until(deadline)),
            Phase::Over => Ok(Turn::Done),
        }
    }
}

fn text(
    options: &WatchOptions,
    run: &Changer,
    usage: &Usage,
    without: Option<&Report>,
    with: Option<&Report>,
) -> String {
    let (all, made) = (run.all_told(), run.changes.len());
    let mut text = format!(
        "{} watchers of one key on {} connections: {made} changes, {all} of them told to everybody; {} events \
         ({:.0} events/s), {} pushes coalesced, {} watches ended\n",
        run.standing,
        options.connections,
        run.events,
        run.events as f64 / usage.seconds,
        run.coalesced,
        run.ended
    );
    let quantiles = |name: &str, histogram: &Histogram<u64>| {
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        format!("{name}: p50 {:.3} ms  p99 {:.3} ms  max {:.3} ms\n", ms(0.5), ms(0.99), ms(1.0))
    };
    text += &quantiles("from the change to a watcher", &run.delays);
    text += &quantiles("from the change to the last watcher", &run.to_last);
    if let Some(servers) = usage.servers {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "server CPU, acquires included: {:.3} us an event",
            servers * 1e6 / run.events.max(1) as f64
        );
    }
    for (name, report) in [("acquires without the watchers", without), ("acquires beside them", with)] {
        if let Some(report) = report {
            text += &quantiles(name, &report.measured.latency);
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{Epoch, Event, Events, LogIndex};

    fn told(run: &mut Changer, what: Happened, now: u64) {
        let event = Event {
            revision: LogIndex(1),
            key: Some(run.key.clone()),
            session: SessionId::default(),
            owner: None,
            what,
        };
        let events = Events::from_iter([event]);
        let (upto, present, coalesced, continued) = (LogIndex(1), false, false, false);
        let push = Push::Events { watch: 0, present, coalesced, continued, upto, events };
        run.heard(&push, now).unwrap();
    }

    #[test]
    fn a_change_is_told_when_the_last_watcher_has_heard_of_it_and_counts_from_when_it_was_due() {
        let mut run = Changer::new(2, Key::new("k").unwrap(), 0);
        run.base = Some(7);
        let changes = [1_000_000, 2_000_000].map(|due| Change { due, told: 0 });
        run.changes.extend(changes);
        let epoch = Epoch(8);
        told(&mut run, Happened::Granted { epoch: Epoch(7), barrier: Epoch(7) }, 1_100_000);
        told(&mut run, Happened::Granted { epoch, barrier: epoch }, 3_000_000);
        assert_eq!(
            (run.all_told(), run.events, run.to_last.len()),
            (0, 1, 0),
            "one of two, and no other grant"
        );
        told(&mut run, Happened::Granted { epoch, barrier: epoch }, 5_000_000);
        // The histogram keeps three digits.
        assert_eq!((run.all_told(), run.to_last.max() / 10), (1, 400));
        let how = palisade_types::TransitionKind::Released;
        told(&mut run, Happened::Released { epoch, barrier: epoch, how }, 2_500_000);
        assert_eq!((run.changes[1].told, run.delays.min() / 10), (1, 50));
    }
}

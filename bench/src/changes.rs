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
use crate::poller::{Actor, Outbox, Poller, Turn};
use crate::report::Report;
use crate::told::{self, Told, Watching};
use crate::watch::WatchOptions;
use crate::work::{Mix, Work};

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
    let watching = Watching {
        watchers: options.watchers,
        connections: options.connections,
        per_second: changes,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(options.seconds),
    };
    let without = options.acquires.map(|rate| acquire(options, rate)).transpose()?;
    let mut audience = Audience::gather(&watching, &options.key, false, &options.endpoints)?;
    let sampler = Sampler::new(&options.pids);
    let before = sampler.sample()?;
    let load = options.acquires.map(|rate| {
        let options = options.clone();
        thread::spawn(move || acquire(&options, rate))
    });
    audience.change(changes, watching.duration)?;
    let usage = before.until(&sampler.sample()?);
    let with = load.map(|load| load.join().map_err(|_| BenchError::Thread)?).transpose()?;
    let changer = audience.leave()?;
    Ok(text(options, &changer, &usage, without.as_ref(), with.as_ref()))
}

/// Watches one key of its own while changing it, for `compare`, at the leader or at all nodes: what was told of
/// the changes that count, and what the machine did from the first of them until everybody had been told of the last.
pub(crate) fn measure(
    watching: &Watching,
    at_leader: bool,
    endpoints: &[String],
    pids: &[u32],
) -> Result<(Told, Usage), BenchError> {
    let mut audience = Audience::gather(watching, "", at_leader, endpoints)?;
    audience.change(watching.per_second, watching.warmup)?;
    let sampler = Sampler::new(pids);
    let before = sampler.sample()?;
    audience.change(watching.per_second, watching.duration)?;
    let usage = before.until(&sampler.sample()?);
    Ok((audience.leave()?.told, usage))
}

/// The watchers of a key and who changes it, on their connections.
struct Audience {
    poller: Poller,
    changer: Changer,
    clock: Clock,
}

impl Audience {
    /// Connects, and waits until all watches stand. Without a name the key is one of its own.
    fn gather(
        watching: &Watching,
        name: &str,
        at_leader: bool,
        endpoints: &[String],
    ) -> Result<Audience, BenchError> {
        let token = random()?;
        let name = match name {
            "" => format!("bench-watch-{:016x}", token as u64),
            name => name.to_owned(),
        };
        let key = Key::new(&name).map_err(|e| BenchError::Usage(format!("--key: {e}")))?;
        let clock = Clock::start();
        let (mut poller, leader) = hello::connect(endpoints, 1, clock, FIND_TIME)?;
        let nodes = if at_leader { vec![leader.address] } else { leader.members };
        for n in 0..watching.connections as usize {
            let (stream, rest) = hello::greeted(&nodes[n % nodes.len()])?;
            poller.add(stream, rest)?;
        }
        let mut changer = Changer::new(watching.watchers, key.clone(), clock);
        changer.open(SessionToken(token), &mut poller.out);
        watch(watching, &key, &mut poller.out);
        poller.drive(&mut changer)?;
        Ok(Audience { poller, changer, clock })
    }

    /// Changes the key so often a second for so long, and waits until everybody has been told.
    fn change(&mut self, per_second: u64, length: Duration) -> Result<(), BenchError> {
        self.changer.begin(self.clock.now(), per_second, length);
        self.poller.drive(&mut self.changer)
    }

    /// Ends the session that changed the key.
    fn leave(mut self) -> Result<Changer, BenchError> {
        self.changer.close(&mut self.poller.out);
        self.poller.drive(&mut self.changer)?;
        Ok(self.changer)
    }
}

fn random() -> Result<u128, BenchError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| BenchError::Protocol(e.to_string()))?;
    Ok(u128::from_le_bytes(bytes))
}

/// All watches of the one key, spread over the connections.
fn watch(watching: &Watching, key: &Key, out: &mut Outbox) {
    for watch in 0..u64::from(watching.watchers) {
        let selector = Selector::Key(key.clone());
        let request = Request::Watch { watch, selector, present: false, cursor: None };
        let link = (watch % u64::from(watching.connections)) as usize;
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
    /// How many changes the schedule has.
    planned: u64,
    told: Told,
    coalesced: u64,
    ended: u64,
    clock: Clock,
}

impl Changer {
    fn new(watchers: u32, key: Key, clock: Clock) -> Changer {
        Changer {
            key,
            phase: Phase::Preparing { deadline: clock.now() + PATIENCE },
            session: SessionId::default(),
            ticket: 0,
            asked: false,
            base: None,
            prepared: false,
            watchers,
            standing: 0,
            schedule: Schedule::new(0, 1),
            planned: 0,
            told: Told::new(watchers, 0),
            coalesced: 0,
            ended: 0,
            clock,
        }
    }

    fn open(&mut self, token: SessionToken, out: &mut Outbox) {
        let ttl_ms = TTL_MAX.as_millis() as u32;
        self.ask(&Request::OpenSession { token, ttl_ms, owner: None, incarnation: None }, out);
    }

    fn begin(&mut self, now: u64, per_second: u64, length: Duration) {
        let end = now + length.as_nanos() as u64;
        self.schedule = Schedule::new(now, per_second);
        self.planned = told::due_in(per_second, length);
        self.told = self.told.after();
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
    fn change(&mut self, now: u64, out: &mut Outbox) -> u64 {
        let next = self.told.made();
        if next >= self.planned {
            return u64::MAX;
        }
        let due = self.schedule.at(next);
        if self.asked || now < due {
            return due.max(now + 1);
        }
        self.told.add(due);
        if next.is_multiple_of(2) {
            self.take(out)
        } else {
            self.leave(out)
        }
        self.schedule.at(next + 1)
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
            // What has no number is the preparation.
            if let Some(number) = number {
                self.told.heard(number, now);
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
        _now: u64,
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
            _ => {
                let push = Push::decode(frame).map_err(bad)?;
                // Told is who has the event, not whose socket has its bytes: a peer's client says no earlier.
                let now = self.clock.now();
                self.heard(&push, now)?;
            }
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
                let next = self.change(now, out);
                let is_over = next == u64::MAX && !self.asked && now >= end;
                if now >= deadline || (is_over && self.told.complete() == self.planned) {
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
    let told = &run.told;
    let (all, made) = (told.complete(), told.made());
    let mut text = format!(
        "{} watchers of one key on {} connections: {made} changes, {all} of them told to everybody; {} events \
         ({:.0} events/s), {} pushes coalesced, {} watches ended\n",
        run.standing,
        options.connections,
        told.events,
        told.events as f64 / usage.seconds,
        run.coalesced,
        run.ended
    );
    let quantiles = |name: &str, histogram: &Histogram<u64>| {
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        format!("{name}: p50 {:.3} ms  p99 {:.3} ms  max {:.3} ms\n", ms(0.5), ms(0.99), ms(1.0))
    };
    text += &quantiles("from the change to a watcher", &told.delays);
    text += &quantiles("from the change to the last watcher", &told.to_last);
    if let Some(servers) = usage.servers {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "server CPU, acquires included: {:.3} us an event",
            servers * 1e6 / told.events.max(1) as f64
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
    fn a_grant_and_its_release_are_two_changes_and_other_grants_are_none() {
        let mut run = Changer::new(2, Key::new("k").unwrap(), Clock::start());
        run.base = Some(7);
        run.told.add(1_000_000);
        run.told.add(2_000_000);
        let epoch = Epoch(8);
        told(&mut run, Happened::Granted { epoch: Epoch(7), barrier: Epoch(7) }, 1_100_000);
        told(&mut run, Happened::Granted { epoch, barrier: epoch }, 2_000_000);
        assert_eq!((run.told.complete(), run.told.events), (0, 1), "one of two, and no other grant");
        told(&mut run, Happened::Granted { epoch, barrier: epoch }, 2_500_000);
        assert_eq!((run.told.complete(), run.told.to_last.max()), (1, 1_500));
        let how = palisade_types::TransitionKind::Released;
        told(&mut run, Happened::Released { epoch, barrier: epoch, how }, 2_500_000);
        assert_eq!((run.told.events, run.told.delays.min()), (3, 500));
    }
}

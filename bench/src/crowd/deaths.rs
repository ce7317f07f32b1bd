//! `deaths`: an owner with thousands of sessions and hundreds of thousands of locks is reported dead
//! at once, while others acquire and release at a fixed rate. Says how the others fare before and
//! meanwhile, and how long it takes until every key of the dead is free.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use palisade_types::{Class, Key, Mode, Name, OnDeath, OperatorAct, Refusal, Reply, SessionId, Ticket};
use palisade_wire::{Frame, Group, Request, Wait, decode_reply};

use super::{Asked, FIND_TIME, SECOND, WINDOW, cluster_of, gauge, name, open, random};
use crate::error::BenchError;
use crate::hello;
use crate::options::{Target, seconds};
use crate::pace::Clock;
use crate::poller::{Actor, Outbox, Turn};
use crate::work::new_histogram;

/// Nobody renews: what a run may take at most.
const TTL: Duration = Duration::from_secs(600);
/// How long until all is free, at most.
const FREE_TIME: u64 = 120 * SECOND;
/// Between two looks at what waits for its release.
const LOOK: Duration = Duration::from_millis(50);

/// What `deaths` does.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeathsOptions {
    /// Sessions that die.
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: u32,
    /// Locks each of them holds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    locks: u32,
    /// Connections they share; the others have as many.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,
    /// Sessions of others.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    others: u32,
    /// What others acquire a second, all together, begun when it is due.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Seconds of that before the deaths.
    #[arg(long, default_value = "5", value_parser = seconds)]
    before: Duration,
    #[command(flatten)]
    target: Target,
}

/// Opens, reports, and says how it went.
pub(crate) fn run(options: &DeathsOptions) -> Result<String, BenchError> {
    let (_cluster, endpoints) = cluster_of(&options.target)?;
    let clock = Clock::start();
    let (mut poller, leader) = hello::connect(&endpoints, 2 * options.connections, clock, FIND_TIME)?;
    let mut crowd = Crowd::new(options)?;
    poller.drive(&mut crowd)?;
    let begun = clock.now();
    crowd.begin(begun, begun + options.before.as_nanos() as u64);
    poller.drive(&mut crowd)?;
    let backlog = Backlog::watch(leader.address);
    crowd.report(clock.now(), &backlog);
    poller.drive(&mut crowd)?;
    Ok(crowd.text(options))
}

/// Looks at the keys that wait for their release, from a thread of its own.
struct Backlog {
    seen: Arc<Seen>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    keys: AtomicU64,
    looks: AtomicU64,
}

impl Backlog {
    fn watch(leader: String) -> Backlog {
        let seen = Arc::new(Seen::default());
        let own = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            while !own.stop.load(Ordering::Relaxed) {
                if let Ok(keys) = gauge(&leader, "palisade_ending_keys") {
                    own.keys.store(keys, Ordering::Relaxed);
                    own.looks.fetch_add(1, Ordering::Release);
                }
                thread::sleep(LOOK);
            }
        });
        Backlog { seen, thread: Some(thread) }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was told when it happened.
            let _ = thread.join();
        }
    }
}

/// Where the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Before { end: u64 },
    Dying { since: u64 },
}

/// A session: first those that die, behind them the others.
#[derive(Clone, Default)]
struct Member {
    id: Option<SessionId>,
    ticket: u64,
    /// When the acquire under way was due.
    due: u64,
}

struct Crowd {
    options: DeathsOptions,
    names: [Name; 2],
    random: u128,
    members: Vec<Member>,
    /// Sessions whose opening has begun, sessions ready, locks asked for and granted.
    begun: u32,
    opened: u32,
    asked: u64,
    granted: u64,
    phase: Phase,
    /// Others with nothing under way, and acquires that are due and wait for one.
    idle: Vec<u32>,
    late: VecDeque<u64>,
    paced_from: u64,
    paced: u64,
    histograms: [Histogram<u64>; 2],
    reported: u32,
    confirmed: u32,
    /// When the last death was confirmed, and the first look at the backlog that counts.
    all_dead: Option<(u64, u64)>,
    freed: u64,
    put_off: Vec<(u64, u32)>,
    backlog: Option<Arc<Seen>>,
}

impl Crowd {
    fn new(options: &DeathsOptions) -> Result<Crowd, BenchError> {
        Ok(Crowd {
            names: [name("doomed")?, name("other")?],
            random: random()?,
            members: vec![Member::default(); (options.sessions + options.others) as usize],
            begun: 0,
            opened: 0,
            asked: 0,
            granted: 0,
            phase: Phase::Opening,
            idle: Vec::new(),
            late: VecDeque::new(),
            paced_from: 0,
            paced: 0,
            histograms: [new_histogram(), new_histogram()],
            reported: 0,
            confirmed: 0,
            all_dead: None,
            freed: 0,
            put_off: Vec::new(),
            backlog: None,
            options: options.clone(),
        })
    }

    fn is_doomed(&self, n: u32) -> bool {
        n < self.options.sessions
    }

    /// The dead and the others share no connection.
    fn link(&self, n: u32) -> usize {
        let behind = if self.is_doomed(n) { 0 } else { self.options.connections };
        (n % self.options.connections + behind) as usize
    }

    fn locks(&self) -> u64 {
        u64::from(self.options.sessions) * u64::from(self.options.locks)
    }

    fn begin(&mut self, now: u64, end: u64) {
        self.paced_from = now;
        self.idle = (self.options.sessions..self.members.len() as u32).collect();
        self.phase = Phase::Before { end };
    }

    fn report(&mut self, now: u64, backlog: &Backlog) {
        self.backlog = Some(Arc::clone(&backlog.seen));
        self.phase = Phase::Dying { since: now };
    }

    fn acquire(&mut self, n: u32, out: &mut Outbox) -> Result<(), BenchError> {
        let link = self.link(n);
        let run = self.random as u32;
        let member = &mut self.members[n as usize];
        member.ticket += 1;
        let lock = if n < self.options.sessions { member.ticket } else { 0 };
        let key = Key::new(&format!("deaths-{run:08x}-{n}/{lock}"));
        let key = key.map_err(|e| BenchError::Protocol(e.to_string()))?;
        let Some(session) = member.id else { return Ok(()) };
        let request = Request::Acquire {
            session,
            ticket: Ticket(member.ticket),
            key,
            class: Class::Advisory,
            resource: None,
            mode: Mode::Exclusive,
            wait: Wait::No,
            on_death: OnDeath::Release,
        };
        request.encode(Asked::Acquire(n).id(), out.to(link));
        Ok(())
    }

    fn release(&self, n: u32, out: &mut Outbox) {
        let member = &self.members[n as usize];
        let Some(session) = member.id else { return };
        let request = Request::Release { session, ticket: Ticket(member.ticket) };
        request.encode(Asked::Release(n).id(), out.to(self.link(n)));
    }

    fn report_one(&self, n: u32, out: &mut Outbox) {
        let Some(session) = self.members[n as usize].id else { return };
        let [by, _] = self.names.clone();
        let act = OperatorAct::ReportDead { session };
        let request = Request::Operate { by: by.clone(), reason: by, act };
        request.encode(Asked::Report(n).id(), out.to(self.link(n)));
    }

    /// Sessions and locks, as many at once as the server takes.
    fn open_more(&mut self, out: &mut Outbox) -> Result<(), BenchError> {
        let (random, all) = (self.random, self.members.len() as u32);
        while self.begun < all && self.begun - self.opened < WINDOW {
            let n = self.begun;
            let owner = &self.names[usize::from(!self.is_doomed(n))];
            open(n, random.wrapping_add(u128::from(n)), TTL, owner, self.link(n), out);
            self.begun += 1;
        }
        if self.opened == all {
            while self.asked < self.locks() && self.asked - self.granted < u64::from(WINDOW) {
                let n = (self.asked % u64::from(self.options.sessions)) as u32;
                self.acquire(n, out)?;
                self.asked += 1;
            }
        }
        Ok(())
    }

    /// Others begin what is due.
    fn pace(&mut self, now: u64, out: &mut Outbox) -> Result<(), BenchError> {
        let elapsed = u128::from(now - self.paced_from);
        let due = (elapsed * u128::from(self.options.rate) / u128::from(SECOND)) as u64;
        while self.paced < due {
            self.paced += 1;
            self.late.push_back(self.paced_from + self.paced * SECOND / self.options.rate);
        }
        while let Some(&due) = self.late.front()
            && let Some(n) = self.idle.pop()
        {
            self.late.pop_front();
            self.members[n as usize].due = due;
            self.acquire(n, out)?;
        }
        Ok(())
    }

    /// Reports of deaths, and those that were put off.
    fn report_more(&mut self, now: u64, out: &mut Outbox) {
        while self.reported < self.options.sessions {
            self.report_one(self.reported, out);
            self.reported += 1;
        }
        while let Some(&(at, n)) = self.put_off.first()
            && at <= now
        {
            self.put_off.remove(0);
            self.report_one(n, out);
        }
    }

    fn is_free(&mut self, now: u64) -> bool {
        let Some(seen) = &self.backlog else { return false };
        let looks = seen.looks.load(Ordering::Acquire);
        if self.confirmed < self.options.sessions {
            return false;
        }
        // Counters are published a little late: the second look from here on is of this time.
        let (_, from) = *self.all_dead.get_or_insert((now, looks + 2));
        self.freed = now;
        looks >= from && seen.keys.load(Ordering::Relaxed) == 0
    }

    fn granted(&mut self, n: u32, now: u64, out: &mut Outbox) {
        if self.is_doomed(n) {
            self.granted += 1;
            return;
        }
        let us = (now - self.members[n as usize].due) / 1_000;
        let window = usize::from(matches!(self.phase, Phase::Dying { .. }));
        self.histograms[window].saturating_record(us.max(1));
        self.release(n, out);
    }

    fn text(&self, options: &DeathsOptions) -> String {
        let Phase::Dying { since } = self.phase else { return String::new() };
        let ms = |at: u64| (at - since) / 1_000_000;
        let freed = ms(self.freed).max(1);
        let line = |what: &str, h: &Histogram<u64>| {
            let at = |q: f64| h.value_at_quantile(q) as f64 / 1_000.0;
            format!(
                "{what}: {} acquires, p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
                h.len(),
                at(0.5),
                at(0.99),
                at(1.0)
            )
        };
        format!(
            "{} sessions with {} locks each reported dead beside {} acquires/s of others\n{}\n{}\n\
             all deaths confirmed after {} ms, everything free after {freed} ms: {} keys/s",
            options.sessions,
            options.locks,
            options.rate,
            line("others before", &self.histograms[0]),
            line("others meanwhile", &self.histograms[1]),
            ms(self.all_dead.map_or(self.freed, |(at, _)| at)),
            self.locks() * 1_000 / freed,
        )
    }
}

impl Actor for Crowd {
    fn on_frame(
        &mut self,
        _link: usize,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError> {
        if frame.kind.group() != Group::Reply {
            // The ends of the dead, which are known.
            return Ok(());
        }
        let reply = decode_reply(frame).map_err(|e| BenchError::Protocol(e.to_string()))?;
        match (Asked::of(frame.id)?, reply) {
            (Asked::Open(n), Reply::Opened { session, .. }) => {
                self.members[n as usize].id = Some(session);
                self.opened += 1;
            }
            (Asked::Acquire(n), Reply::Granted { .. }) => self.granted(n, now, out),
            (Asked::Release(n), Reply::Finished { .. }) => self.idle.push(n),
            (Asked::Report(_), Reply::OperatorDone { .. }) => self.confirmed += 1,
            (Asked::Report(n), Reply::Refused(Refusal::Busy { retry_after_ms })) => {
                self.put_off.push((now + u64::from(retry_after_ms) * 1_000_000, n));
            }
            (_, Reply::Refused(refusal)) => return Err(refusal.into()),
            (asked, other) => return Err(BenchError::Protocol(format!("{other:?} to {asked:?}"))),
        }
        Ok(())
    }

    fn on_turn(&mut self, now: u64, out: &mut Outbox) -> Result<Turn, BenchError> {
        match self.phase {
            Phase::Opening => {
                self.open_more(out)?;
                if self.granted == self.locks() && self.opened as usize == self.members.len() {
                    return Ok(Turn::Done);
                }
            }
            Phase::Before { end } => {
                self.pace(now, out)?;
                if now >= end {
                    return Ok(Turn::Done);
                }
            }
            Phase::Dying { since } => {
                self.report_more(now, out);
                self.pace(now, out)?;
                if self.is_free(now) {
                    return Ok(Turn::Done);
                }
                if now > since + FREE_TIME {
                    return Err(BenchError::Lost("keys of the dead are not free in time".to_owned()));
                }
            }
        }
        Ok(Turn::Until(now + SECOND / 5_000))
    }
}

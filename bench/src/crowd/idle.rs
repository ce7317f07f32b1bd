//! `idle`: sessions that only renew. Renewals never enter the log, so it must not grow.

use std::time::Duration;

use clap::Args;
use palisade_types::{Name, Reply, SessionId};
use palisade_wire::{Frame, Group, Request, decode_reply};

use super::{Asked, FIND_TIME, SECOND, WINDOW, cluster_of, gauge, name, open, random};
use crate::error::BenchError;
use crate::hello;
use crate::options::{Target, seconds};
use crate::pace::Clock;
use crate::poller::{Actor, Outbox, Turn};

/// Sessions renewed in one frame.
const PART: usize = 100;

/// What `idle` does.
#[derive(Args, Clone, Debug)]
pub(crate) struct IdleOptions {
    /// Sessions.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
    /// Connections they share.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Seconds a session outlives its last renewal; it is renewed three times as often.
    #[arg(long, default_value = "9", value_parser = seconds)]
    ttl: Duration,
    /// Seconds to watch the log for.
    #[arg(long, default_value = "30", value_parser = seconds)]
    duration: Duration,
    #[command(flatten)]
    target: Target,
}

/// Opens the sessions, lets them renew, and says by how much the log grew meanwhile.
pub(crate) fn run(options: &IdleOptions) -> Result<String, BenchError> {
    let (_cluster, endpoints) = cluster_of(&options.target)?;
    let clock = Clock::start();
    let (mut poller, leader) = hello::connect(&endpoints, options.connections, clock, FIND_TIME)?;
    let mut idle = Idle::new(options)?;
    poller.drive(&mut idle)?;
    // What the last open has left to do is done within a second.
    idle.until = Some(clock.now() + SECOND);
    poller.drive(&mut idle)?;
    let before = gauge(&leader.address, "palisade_last_index")?;
    let renewed = idle.renewed;
    idle.until = Some(clock.now() + options.duration.as_nanos() as u64);
    poller.drive(&mut idle)?;
    let after = gauge(&leader.address, "palisade_last_index")?;
    Ok(format!(
        "{} sessions, TTL {:?}, {:?}: {} renewals acknowledged, {} refused, {} log entries added",
        options.sessions,
        options.ttl,
        options.duration,
        idle.renewed - renewed,
        idle.refused,
        after - before
    ))
}

struct Idle {
    options: IdleOptions,
    owner: Name,
    token: u128,
    sessions: Vec<Option<SessionId>>,
    opened: u32,
    begun: u32,
    next_part: u32,
    next_at: u64,
    renewed: u64,
    refused: u64,
    /// Opening until it is set.
    until: Option<u64>,
}

impl Idle {
    fn new(options: &IdleOptions) -> Result<Idle, BenchError> {
        Ok(Idle {
            owner: name("idle")?,
            token: random()?,
            sessions: vec![None; options.sessions as usize],
            opened: 0,
            begun: 0,
            next_part: 0,
            next_at: 0,
            renewed: 0,
            refused: 0,
            until: None,
            options: options.clone(),
        })
    }

    fn link(&self, n: u32) -> usize {
        (n % self.options.connections) as usize
    }

    /// The parts are a connection's sessions, a hundred at a time.
    fn parts(&self) -> u32 {
        self.options.connections * self.options.sessions.div_ceil(self.options.connections * PART as u32)
    }

    fn renew(&mut self, now: u64, out: &mut Outbox) {
        let step = self.options.ttl.as_nanos() as u64 / 3 / u64::from(self.parts());
        if self.next_at == 0 {
            self.next_at = now;
        }
        while self.next_at <= now {
            let part = self.next_part;
            let (link, nth) = (part % self.options.connections, part / self.options.connections);
            let own = self.sessions.iter().skip(link as usize).step_by(self.options.connections as usize);
            let sessions: Vec<SessionId> =
                own.skip(nth as usize * PART).take(PART).filter_map(|s| *s).collect();
            if !sessions.is_empty() {
                Request::Renew { sessions }.encode(Asked::Renew(part).id(), out.to(link as usize));
            }
            self.next_part = (part + 1) % self.parts();
            self.next_at += step.max(1);
        }
    }
}

impl Actor for Idle {
    fn on_frame(
        &mut self,
        _link: usize,
        frame: &Frame<'_>,
        _now: u64,
        _out: &mut Outbox,
    ) -> Result<(), BenchError> {
        if frame.kind.group() != Group::Reply {
            return Ok(());
        }
        let reply = decode_reply(frame).map_err(|e| BenchError::Protocol(e.to_string()))?;
        match (Asked::of(frame.id)?, reply) {
            (Asked::Open(n), Reply::Opened { session, .. }) => {
                self.sessions[n as usize] = Some(session);
                self.opened += 1;
            }
            (Asked::Renew(part), Reply::Renewed { refused }) => {
                let (link, nth) = (part % self.options.connections, part / self.options.connections);
                let own = (self.options.sessions - link).div_ceil(self.options.connections) as usize;
                let asked = own.saturating_sub(nth as usize * PART).min(PART);
                self.renewed += (asked - refused.len().min(asked)) as u64;
                self.refused += refused.len() as u64;
            }
            (_, Reply::Refused(refusal)) => return Err(refusal.into()),
            (asked, other) => return Err(BenchError::Protocol(format!("{other:?} to {asked:?}"))),
        }
        Ok(())
    }

    fn on_turn(&mut self, now: u64, out: &mut Outbox) -> Result<Turn, BenchError> {
        while self.begun < self.options.sessions && self.begun - self.opened < WINDOW {
            let n = self.begun;
            open(n, self.token + u128::from(n), self.options.ttl, &self.owner, self.link(n), out);
            self.begun += 1;
        }
        if self.opened > 0 {
            self.renew(now, out);
        }
        match self.until {
            None if self.opened == self.options.sessions => Ok(Turn::Done),
            Some(until) if now >= until => Ok(Turn::Done),
            _ => Ok(Turn::Until(now + SECOND / 1_000)),
        }
    }
}

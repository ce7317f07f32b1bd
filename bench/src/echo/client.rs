//! The load on an echo server: every session has one frame under way.

use palisade_wire::{Frame, Group, Kind};

use crate::error::BenchError;
use crate::forms;
use crate::pace::{Meter, Pacer};
use crate::poller::{Actor, Outbox, Turn};

/// The length of a request: about that of a release.
pub(super) const REQUEST_BYTES: usize = 64;

/// All sessions; the nth lives on connection n modulo their number.
pub(super) struct Callers {
    links: u32,
    /// From when the latency of each session's request counts.
    from: Vec<u64>,
    request: Vec<u8>,
    pacer: Pacer,
    pub(super) meter: Meter,
    end: u64,
}

impl Callers {
    /// Sessions that stop at `end`.
    pub(super) fn new(sessions: u32, links: u32, pacer: Pacer, meter: Meter, end: u64) -> Callers {
        let request = forms::blank(Kind::Describe, REQUEST_BYTES);
        Callers { links, from: vec![0; sessions as usize], request, pacer, meter, end }
    }

    /// Begins.
    pub(super) fn begin(&mut self, now: u64, out: &mut Outbox) {
        for n in 0..self.from.len() as u32 {
            self.idle(n, now, out);
        }
    }

    fn idle(&mut self, n: u32, now: u64, out: &mut Outbox) {
        if let Some(from) = self.pacer.idle(n, now) {
            self.ask(n, from, out);
        }
    }

    fn ask(&mut self, n: u32, from: u64, out: &mut Outbox) {
        self.from[n as usize] = from;
        forms::set_id(&mut self.request, u64::from(n));
        forms::seal(&mut self.request);
        out.to((n % self.links) as usize).extend_from_slice(&self.request);
    }
}

impl Actor for Callers {
    fn on_frame(
        &mut self,
        _link: usize,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError> {
        let from = self.from.get(frame.id.0 as usize).filter(|_| frame.kind.group() == Group::Reply);
        let from = *from.ok_or_else(|| BenchError::Protocol(format!("a {:?} frame", frame.kind)))?;
        self.meter.done(from, now);
        self.idle(frame.id.0 as u32, now, out);
        Ok(())
    }

    fn on_turn(&mut self, now: u64, out: &mut Outbox) -> Result<Turn, BenchError> {
        self.meter.publish();
        if now >= self.end {
            return Ok(Turn::Done);
        }
        self.pacer.tick(now);
        while let Some((n, from)) = self.pacer.next() {
            self.ask(n, from, out);
        }
        Ok(Turn::Until(self.end.min(self.pacer.wake_at())))
    }
}

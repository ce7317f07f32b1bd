//! The core of the generator: one thread, one epoll set. Each turn it reads every readable
//! connection once, hands all frames to an actor, and writes once to every connection the actor has
//! something for.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use palisade_wire::{Frame, Frames};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::error::BenchError;
use crate::pace::Clock;

/// How much is read at once; the largest frame fits.
const READ_BYTES: usize = palisade_wire::FRAME_BYTES_MAX;
/// How many readable connections are learnt of at once.
const EVENTS_MAX: usize = 1024;

/// Decides what is said on the connections.
pub(crate) trait Actor {
    /// A frame has arrived.
    fn on_frame(
        &mut self,
        link: usize,
        frame: &Frame<'_>,
        now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError>;

    /// Everything that had arrived has been handed over: does what is due by the clock.
    fn on_turn(&mut self, now: u64, out: &mut Outbox) -> Result<Turn, BenchError>;
}

/// What follows a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Another when something arrives, at this time at the latest.
    Until(u64),
    /// Nothing.
    Done,
}

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    links: Vec<Out>,
    dirty: Vec<usize>,
}

#[derive(Debug, Default)]
struct Out {
    bytes: Vec<u8>,
    dirty: bool,
    /// The kernel's buffer is full: the connection is watched for room.
    blocked: bool,
}

impl Outbox {
    /// Where to append what a connection is to say; it leaves at the end of the turn.
    pub(crate) fn to(&mut self, link: usize) -> &mut Vec<u8> {
        let out = &mut self.links[link];
        if !out.dirty {
            out.dirty = true;
            self.dirty.push(link);
        }
        &mut out.bytes
    }
}

#[cfg(test)]
impl Outbox {
    /// One of so many connections, none of which exists.
    pub(crate) fn without_sockets(links: u32) -> Outbox {
        Outbox { links: (0..links).map(|_| Out::default()).collect(), dirty: Vec::new() }
    }

    /// Takes what would have been written to a connection.
    pub(crate) fn take(&mut self, link: usize) -> Vec<u8> {
        self.dirty.retain(|&n| n != link);
        let out = &mut self.links[link];
        out.dirty = false;
        std::mem::take(&mut out.bytes)
    }
}

struct Link {
    stream: TcpStream,
    /// The beginning of a frame whose rest has not arrived.
    rest: Vec<u8>,
}

/// Connections and what is on its way through them.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
    links: Vec<Link>,
    /// One for all connections: it stays in the CPU's caches.
    buffer: Vec<u8>,
    /// What the next turn writes.
    pub(crate) out: Outbox,
    clock: Clock,
}

impl Poller {
    /// Without connections.
    pub(crate) fn new(clock: Clock) -> Result<Poller, BenchError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| BenchError::io("epoll", e))?;
        Ok(Poller {
            epoll,
            events: Vec::with_capacity(EVENTS_MAX),
            links: Vec::new(),
            buffer: vec![0; READ_BYTES],
            out: Outbox::default(),
            clock,
        })
    }

    /// Takes over a connection, of which these bytes have been read already.
    pub(crate) fn add(&mut self, stream: TcpStream, rest: Vec<u8>) -> Result<(), BenchError> {
        let fail = |e: io::Error| BenchError::io("a socket", e);
        stream.set_nonblocking(true).map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        let data = EventData::new_u64(self.links.len() as u64);
        epoll::add(&self.epoll, &stream, data, EventFlags::IN).map_err(|e| fail(e.into()))?;
        self.links.push(Link { stream, rest });
        self.out.links.push(Out::default());
        Ok(())
    }

    /// Runs the actor until it is done, it fails, or a connection breaks ([`BenchError::Lost`]).
    pub(crate) fn drive(&mut self, actor: &mut impl Actor) -> Result<(), BenchError> {
        loop {
            let now = self.clock.now();
            let turn = actor.on_turn(now, &mut self.out)?;
            self.flush()?;
            match turn {
                Turn::Done => return Ok(()),
                Turn::Until(at) => self.wait(at.saturating_sub(self.clock.now()))?,
            }
            for n in 0..self.events.len() {
                let event = self.events[n];
                let link = event.data.u64() as usize;
                let flags = event.flags;
                if flags.contains(EventFlags::OUT) {
                    self.has_room(link)?;
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.read(link, actor)?;
                }
            }
        }
    }

    fn wait(&mut self, nanos: u64) -> Result<(), BenchError> {
        let timeout = Timespec::try_from(Duration::from_nanos(nanos)).ok();
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(BenchError::io("epoll", e)),
        }
    }

    fn read(&mut self, n: usize, actor: &mut impl Actor) -> Result<(), BenchError> {
        let link = &mut self.links[n];
        let before = link.rest.len();
        self.buffer[..before].copy_from_slice(&link.rest);
        let arrived = match link.stream.read(&mut self.buffer[before..]) {
            Ok(0) => return Err(BenchError::Lost("the server closed a connection".to_owned())),
            Ok(arrived) => arrived,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(e) => return Err(BenchError::Lost(format!("a connection broke ({e})"))),
        };
        let now = self.clock.now();
        let mut frames = Frames::new(&self.buffer[..before + arrived]);
        while let Some(frame) = frames.next_frame().map_err(|e| BenchError::Protocol(e.to_string()))? {
            actor.on_frame(n, &frame, now, &mut self.out)?;
        }
        let taken = frames.consumed();
        link.rest.clear();
        link.rest.extend_from_slice(&self.buffer[taken..before + arrived]);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BenchError> {
        while let Some(n) = self.out.dirty.pop() {
            self.out.links[n].dirty = false;
            if !self.out.links[n].blocked {
                self.write(n)?;
            }
        }
        Ok(())
    }

    /// Writes once; what does not fit waits for room.
    fn write(&mut self, n: usize) -> Result<(), BenchError> {
        let (link, out) = (&mut self.links[n], &mut self.out.links[n]);
        let written = match link.stream.write(&out.bytes) {
            Ok(written) => written,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(e) => return Err(BenchError::Lost(format!("a connection broke ({e})"))),
        };
        let blocked = written < out.bytes.len();
        if blocked {
            out.bytes.drain(..written);
        } else {
            out.bytes.clear();
        }
        if blocked != out.blocked {
            out.blocked = blocked;
            let room = if blocked { EventFlags::OUT } else { EventFlags::empty() };
            let data = EventData::new_u64(n as u64);
            epoll::modify(&self.epoll, &link.stream, data, EventFlags::IN | room)
                .map_err(|e| BenchError::io("epoll", e))?;
        }
        Ok(())
    }

    fn has_room(&mut self, n: usize) -> Result<(), BenchError> {
        if self.out.links[n].blocked { self.write(n) } else { Ok(()) }
    }
}

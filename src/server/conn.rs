//! One connection: its socket, what it is, and its buffers.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use palisade_types::{ConnId, NodeId, RequestId};
use palisade_wire::VERSION_MIN;

/// A client whose unsent answers exceed this does not read them and is closed.
pub(crate) const CLIENT_UNSENT_MAX: usize = 32 << 20;
/// Watches push no more to a client whose unsent bytes exceed this, until all is sent.
pub(crate) const WATCH_UNSENT_MAX: usize = 64 << 10;
/// Messages to a peer whose unsent bytes exceed this are dropped; Raft sends them again.
pub(crate) const PEER_UNSENT_MAX: usize = 16 << 20;
/// A buffer that grew beyond this is given back once it is empty.
const BUFFER_KEPT: usize = 256 << 10;

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Accepted, has not introduced itself.
    New,
    /// A client.
    Client,
    /// A peer that dialled this node: only its messages arrive here.
    PeerIn(NodeId),
    /// A peer being dialled: the connection is not established, or the answer to the hello is out.
    Dialled(NodeId),
    /// A peer that answered: only messages to it leave here.
    PeerOut(NodeId),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Its name; never reused.
    pub(crate) id: ConnId,
    /// What it is.
    pub(crate) role: Role,
    /// The version of the protocol that was agreed on.
    pub(crate) version: u16,
    pub(super) stream: TcpStream,
    /// Received, not yet a whole frame, or not taken because too much is in flight.
    pub(super) rest: Vec<u8>,
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// What the epoll set watches it for.
    pub(super) interest: u32,
    /// It is in the list of connections with something to send.
    pub(super) dirty: bool,
    /// Frames may wait in `rest` for room.
    pub(super) paused: bool,
    /// Nothing more is read; it is closed once all is sent.
    pub(super) closing: bool,
    /// The attempt to connect has not ended.
    pub(super) connecting: bool,
    /// Watches push here.
    pub(super) watched: bool,
    /// Its watches push no more until it has taken what they have pushed.
    pub(super) congested: bool,
    in_flight: usize,
    /// Requests in flight whose answers may be large, with a weight of their own.
    heavy: Vec<RequestId>,
    /// What one of these weighs.
    heavy_weight: usize,
}

/// How sending went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is left.
    All,
    /// The socket takes no more now.
    Stuck,
}

impl Conn {
    pub(super) fn new(id: ConnId, role: Role, stream: TcpStream, heavy_weight: usize) -> Conn {
        Conn {
            id,
            role,
            version: VERSION_MIN,
            stream,
            rest: Vec::new(),
            out: Vec::new(),
            sent: 0,
            interest: 0,
            dirty: false,
            paused: false,
            closing: false,
            connecting: false,
            watched: false,
            congested: false,
            in_flight: 0,
            heavy: Vec::new(),
            heavy_weight,
        }
    }

    /// Bytes encoded and not yet taken by the socket.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether the attempt to connect has not ended.
    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting
    }

    /// Whether it is closed once all is sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// How much is in flight, by weight.
    pub(crate) fn load(&self) -> usize {
        self.in_flight
    }

    /// A request was taken. A listing weighs more: its answer may fill a frame.
    pub(crate) fn took(&mut self, id: RequestId, heavy: bool) {
        if heavy {
            self.heavy.push(id);
            self.in_flight += self.heavy_weight;
        } else {
            self.in_flight += 1;
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, id: RequestId) {
        let weight = match self.heavy.iter().position(|h| *h == id) {
            Some(at) => {
                self.heavy.swap_remove(at);
                self.heavy_weight
            }
            None => 1,
        };
        self.in_flight = self.in_flight.saturating_sub(weight);
    }

    /// One receive into the buffer. `None` when nothing is there.
    ///
    /// # Errors
    /// When the connection is over; its orderly end is `UnexpectedEof`.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.stream).read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => Ok(Some(n)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// One send of what is unsent.
    ///
    /// # Errors
    /// When the connection is over.
    pub(super) fn send(&mut self) -> io::Result<Sent> {
        if self.unsent() > 0 {
            match (&self.stream).write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
        if self.unsent() > 0 {
            // What is sent must not pile up in front of what is not.
            if self.sent > self.out.len() / 2 {
                self.out.drain(..self.sent);
                self.sent = 0;
            }
            return Ok(Sent::Stuck);
        }
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > BUFFER_KEPT {
            self.out = Vec::new();
        }
        Ok(Sent::All)
    }

    /// The error a failed connection attempt left, if any.
    pub(crate) fn attempt_error(&self) -> Option<io::Error> {
        match self.stream.take_error() {
            Ok(error) => error,
            Err(error) => Some(error),
        }
    }
}

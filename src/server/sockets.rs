//! All sockets of one core, clients and peers, in one epoll set (SOCKETS.md). One task works them in
//! bounded turns: one receive and one send per connection and turn, all that a turn has to say to a
//! connection in one buffer. Connections live in a slab; a name that outlived its connection finds
//! nothing. Nothing here understands frames beyond what bounds the memory of strangers.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use palisade_types::{ConnId, NodeId, Time};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::conn::{CLIENT_UNSENT_MAX, Conn, PEER_UNSENT_MAX, Role, Sent, WATCH_UNSENT_MAX};
use super::metrics::Metrics;
use super::sys::{self, Epoll, Event};

/// Room to receive into behind what is left of the last receive.
const RECEIVE_BYTES: usize = 256 << 10;
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections that have not introduced themselves; beyond them the oldest is closed.
const NEW_MAX: usize = 1_024;
/// The backlog of the listener: as many as connect at once must not wait for a retransmission.
pub(crate) const BACKLOG: i32 = 4_096;
/// How long unacknowledged bytes keep a client's connection alive.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for a peer's: a partition that heals must not wait for TCP's retransmissions.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);

const SLOT_BITS: u32 = 24;
const LISTENER: u64 = u64::MAX;
const DISK: u64 = u64::MAX - 1;

/// Bounds, from the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketLimits {
    /// Accepted connections.
    pub(crate) connections: usize,
    /// Requests in flight per client.
    pub(crate) in_flight: usize,
    /// How long a connection may take to introduce itself.
    pub(crate) hello: Duration,
    /// Ready sockets served in one turn.
    pub(crate) per_turn: usize,
}

/// What became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The listener: somebody connects.
    Listener,
    /// A connection.
    Conn {
        /// Which.
        id: ConnId,
        /// Bytes, or the end, can be received.
        read: bool,
        /// Bytes can be sent, or an attempt to connect has ended.
        write: bool,
    },
}

/// Bytes of one connection, taken out of the set while they are worked on.
#[derive(Debug)]
pub(crate) struct Chunk {
    buffer: Vec<u8>,
    len: usize,
    /// The receive filled all room: there may be more.
    pub(crate) full: bool,
}

impl Chunk {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// The set.
pub(crate) struct Sockets {
    epoll: Epoll,
    listener: Option<TcpListener>,
    limits: SocketLimits,
    metrics: Arc<Metrics>,
    slots: Vec<Option<Conn>>,
    free: Vec<usize>,
    sequence: u64,
    accepted: usize,
    events: Vec<Event>,
    buffer: Vec<u8>,
    /// Connections with something to send, each once.
    dirty: Vec<ConnId>,
    /// Connections whose held-back frames may be taken now.
    resumable: Vec<ConnId>,
    /// Clients that are not read at present: too much in flight, or they do not take their answers.
    unread: BTreeSet<ConnId>,
    /// Accepted and not introduced, oldest first.
    new: VecDeque<(Time, ConnId)>,
    /// Closed since the last look, with what they were.
    closed: Vec<(ConnId, Role)>,
    /// Connections with watches that take no more, or do again, since the last look.
    congestion: Vec<(ConnId, bool)>,
}

impl Sockets {
    /// An empty set over a bound listener, which starts to listen only with [`Sockets::open`].
    pub(crate) fn new(
        listener: TcpListener,
        limits: SocketLimits,
        metrics: Arc<Metrics>,
    ) -> io::Result<Sockets> {
        Ok(Sockets {
            epoll: Epoll::new()?,
            listener: Some(listener),
            events: vec![sys::NO_EVENT; limits.per_turn],
            limits,
            metrics,
            slots: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            accepted: 0,
            buffer: Vec::new(),
            dirty: Vec::new(),
            resumable: Vec::new(),
            unread: BTreeSet::new(),
            new: VecDeque::new(),
            closed: Vec::new(),
            congestion: Vec::new(),
        })
    }

    /// Starts to listen.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        self.epoll.add(listener, sys::READ, LISTENER)
    }

    /// Stops listening; what is connected stays.
    pub(crate) fn stop_listening(&mut self) {
        // Closing the descriptor takes it out of the set.
        self.listener = None;
    }

    /// Ends a wait also when the disk has done something.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub(crate) fn watch_disk(&self, disk: &impl std::os::fd::AsRawFd) -> io::Result<()> {
        self.epoll.add(disk, sys::READ, DISK)
    }

    /// How many connections are open.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Waits until something is ready or the time is over. Adds what is ready, at most one turn's
    /// worth, and returns whether there may be more.
    pub(crate) fn wait(&mut self, timeout: Duration, out: &mut Vec<Ready>) -> io::Result<bool> {
        let n = self.epoll.wait(&mut self.events, timeout)?;
        for event in &self.events[..n] {
            let (events, token) = (event.events, event.u64);
            // A broken connection is read: the error or the end is found there.
            let read = events & (sys::READ | sys::BROKEN) != 0;
            let write = events & (sys::WRITE | sys::BROKEN) != 0;
            match token {
                // Whoever waits looks at the disk after every wait.
                DISK => {}
                LISTENER => out.push(Ready::Listener),
                conn => out.push(Ready::Conn { id: ConnId(conn), read, write }),
            }
        }
        Ok(n == self.events.len())
    }

    /// Takes in those who connect.
    pub(crate) fn accept(&mut self, now: Time) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream, now),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of descriptors: close one that has not introduced itself and go on.
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.drop_oldest_new();
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, now: Time) {
        self.metrics.accepted.one();
        if self.accepted >= self.limits.connections {
            self.metrics.shed.one();
            return;
        }
        if self.new.len() >= NEW_MAX {
            self.drop_oldest_new();
        }
        if let Err(error) = prepare(&stream, CLIENT_TIMEOUT) {
            tracing::debug!(%error, "a connection was gone before it was set up");
            return;
        }
        if let Some(id) = self.insert(stream, Role::New, sys::READ) {
            self.accepted += 1;
            self.new.push_back((now, id));
        }
    }

    fn drop_oldest_new(&mut self) {
        while let Some((_, id)) = self.new.pop_front() {
            if self.get(id).is_some_and(|c| c.role == Role::New) {
                self.shed(id, "too many connections wait to introduce themselves");
                return;
            }
        }
    }

    /// Starts to connect to a peer.
    ///
    /// # Errors
    /// When the attempt fails at once.
    pub(crate) fn dial(&mut self, node: NodeId, address: SocketAddr) -> io::Result<ConnId> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) => return Err(e),
        }
        let stream = TcpStream::from(socket);
        prepare(&stream, PEER_TIMEOUT)?;
        self.insert(stream, Role::Dialled(node), sys::WRITE)
            .ok_or_else(|| io::Error::other("the connection could not be watched"))
    }

    fn insert(&mut self, stream: TcpStream, role: Role, interest: u32) -> Option<ConnId> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.sequence += 1;
        let id = ConnId(self.sequence << SLOT_BITS | slot as u64);
        if let Err(error) = self.epoll.add(&stream, interest, id.0) {
            tracing::warn!(%error, "a connection cannot be watched");
            self.free.push(slot);
            return None;
        }
        let mut conn = Conn::new(id, role, stream, (self.limits.in_flight / 16).max(1));
        conn.interest = interest;
        conn.connecting = matches!(role, Role::Dialled(_));
        self.slots[slot] = Some(conn);
        Some(id)
    }

    fn slot(id: ConnId) -> usize {
        (id.0 & ((1 << SLOT_BITS) - 1)) as usize
    }

    /// A connection, if it still is.
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.slots.get(Self::slot(id))?.as_ref().filter(|c| c.id == id)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slots.get_mut(Self::slot(id))?.as_mut().filter(|c| c.id == id)
    }

    /// Closes a connection, if it still is. Its end is reported by [`Sockets::take_closed`].
    pub(crate) fn close(&mut self, id: ConnId) {
        if self.get(id).is_none() {
            return;
        }
        let slot = Self::slot(id);
        if let Some(conn) = self.slots[slot].take() {
            self.free.push(slot);
            if matches!(conn.role, Role::New | Role::Client | Role::PeerIn(_)) {
                self.accepted -= 1;
            }
            self.unread.remove(&id);
            // Closing the descriptor takes it out of the set: it was never duplicated.
            self.closed.push((id, conn.role));
        }
    }

    /// Closes a connection for a fault of the other side.
    pub(crate) fn shed(&mut self, id: ConnId, why: &str) {
        if let Some(conn) = self.get(id) {
            tracing::debug!(conn = %id, role = ?conn.role, why, "a connection is closed");
            self.metrics.shed.one();
            self.close(id);
        }
    }

    /// What was closed since the last call.
    pub(crate) fn take_closed(&mut self) -> Vec<(ConnId, Role)> {
        std::mem::take(&mut self.closed)
    }

    /// Connections with watches that take no more (true), or do again, since the last call.
    pub(crate) fn take_congestion(&mut self) -> Vec<(ConnId, bool)> {
        std::mem::take(&mut self.congestion)
    }

    /// Whether there are such connections.
    pub(crate) fn has_congestion(&self) -> bool {
        !self.congestion.is_empty()
    }

    /// As [`Sockets::out`], for what a watch pushes.
    pub(crate) fn watch_out(&mut self, id: ConnId) -> Option<&mut Vec<u8>> {
        self.get_mut(id)?.watched = true;
        self.out(id)
    }

    /// One receive, behind what the connection still held. `None` when there is nothing to work on;
    /// a connection that ended is closed. Hand the chunk back with [`Sockets::give_back`].
    pub(crate) fn receive(&mut self, id: ConnId) -> Option<Chunk> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(conn) = self.get_mut(id).filter(|c| !c.closing) else {
            self.buffer = buffer;
            return None;
        };
        let held = conn.rest.len();
        if buffer.len() < held + RECEIVE_BYTES {
            buffer.resize(held + RECEIVE_BYTES, 0);
        }
        buffer[..held].copy_from_slice(&conn.rest);
        match conn.receive(&mut buffer[held..held + RECEIVE_BYTES]) {
            Ok(Some(n)) => {
                conn.rest.clear();
                Some(Chunk { buffer, len: held + n, full: n == RECEIVE_BYTES })
            }
            Ok(None) => {
                self.buffer = buffer;
                None
            }
            Err(error) => {
                self.buffer = buffer;
                tracing::trace!(conn = %id, %error, "a connection ended");
                self.close(id);
                None
            }
        }
    }

    /// What a connection still holds, without a receive: for one that was held back.
    pub(crate) fn held(&mut self, id: ConnId) -> Option<Chunk> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(conn) = self.get_mut(id).filter(|c| !c.closing && !c.rest.is_empty()) else {
            self.buffer = buffer;
            // Nothing was held back but the reading itself.
            self.update_interest(id);
            return None;
        };
        let len = conn.rest.len();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        buffer[..len].copy_from_slice(&conn.rest);
        conn.rest.clear();
        Some(Chunk { buffer, len, full: false })
    }

    /// Ends the work on a chunk: what was not consumed stays with the connection. `held_back` says
    /// that whole frames may be in it, for which there was no room.
    pub(crate) fn give_back(&mut self, id: ConnId, chunk: Chunk, consumed: usize, held_back: bool) {
        if let Some(conn) = self.get_mut(id) {
            conn.rest.extend_from_slice(&chunk.buffer[consumed..chunk.len]);
            if conn.rest.is_empty() && conn.rest.capacity() > RECEIVE_BYTES {
                conn.rest = Vec::new();
            }
            conn.paused = held_back;
        }
        self.buffer = chunk.buffer;
        self.update_interest(id);
    }

    /// Whether another request of a client may be taken now.
    pub(crate) fn has_room(&self, id: ConnId) -> bool {
        self.get(id).is_some_and(|c| !c.closing && c.load() < self.limits.in_flight)
    }

    /// Clients that are not read at present.
    pub(crate) fn unread_clients(&self) -> Vec<ConnId> {
        self.unread.iter().copied().collect()
    }

    /// Whether this is one of them.
    pub(crate) fn is_unread(&self, id: ConnId) -> bool {
        self.unread.contains(&id)
    }

    /// How many ready connections one look takes.
    pub(crate) fn per_look(&self) -> usize {
        self.events.len()
    }

    /// Whether there are connections whose held-back frames may be taken now.
    pub(crate) fn has_resumable(&self) -> bool {
        !self.resumable.is_empty()
    }

    /// Connections whose held-back frames may be taken now.
    pub(crate) fn take_resumable(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.resumable)
    }

    /// Appends to what a connection is to send. `None` when it is gone, or does not read: a client
    /// is closed then, a peer's message is dropped.
    pub(crate) fn out(&mut self, id: ConnId) -> Option<&mut Vec<u8>> {
        let conn = self.get(id)?;
        if conn.closing {
            return None;
        }
        let peer = matches!(conn.role, Role::Dialled(_) | Role::PeerOut(_));
        if conn.unsent() > if peer { PEER_UNSENT_MAX } else { CLIENT_UNSENT_MAX } {
            if !peer {
                self.shed(id, "it does not read its answers");
            }
            return None;
        }
        let dirty = self.get_mut(id).is_some_and(|c| !std::mem::replace(&mut c.dirty, true));
        if dirty {
            self.dirty.push(id);
        }
        self.get_mut(id).map(|c| &mut c.out)
    }

    /// A request of a client was answered.
    pub(crate) fn answered(&mut self, id: ConnId, request: palisade_types::RequestId) {
        let limit = self.limits.in_flight;
        let Some(conn) = self.get_mut(id) else { return };
        conn.answered(request);
        // Half, so that a full connection is not opened and closed for every answer.
        if conn.paused && conn.load() <= limit / 2 {
            conn.paused = false;
            self.resumable.push(id);
        }
    }

    /// A connection reads no more and is closed once all is sent.
    pub(crate) fn close_when_sent(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.closing = true;
            if !std::mem::replace(&mut conn.dirty, true) {
                self.dirty.push(id);
            }
        }
    }

    /// One send for each connection that has something to send.
    pub(crate) fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            self.send(id);
        }
        // Sending adds nothing to the list; keep its allocation.
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
    }

    /// One send for one connection.
    pub(crate) fn send(&mut self, id: ConnId) {
        let Some(conn) = self.get_mut(id) else { return };
        conn.dirty = false;
        if conn.connecting {
            return;
        }
        match conn.send() {
            Ok(Sent::All) if conn.closing => self.close(id),
            Ok(_) => {
                if conn.watched {
                    self.look_at_congestion(id);
                }
                self.update_interest(id);
            }
            Err(error) => {
                tracing::trace!(conn = %id, %error, "a connection ended");
                self.close(id);
            }
        }
    }

    fn look_at_congestion(&mut self, id: ConnId) {
        let Some(conn) = self.get_mut(id) else { return };
        let unsent = conn.unsent();
        let changes = if conn.congested { unsent == 0 } else { unsent > WATCH_UNSENT_MAX };
        if changes {
            conn.congested = !conn.congested;
            let congested = conn.congested;
            self.congestion.push((id, congested));
        }
    }

    /// An attempt to connect has succeeded: from now on it is read.
    pub(crate) fn connected(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.connecting = false;
            self.set_interest(id, sys::READ);
        }
    }

    /// Back-pressure: nothing is read from a connection that does not take its answers or has as much
    /// in flight as it may.
    fn update_interest(&mut self, id: ConnId) {
        let Some(conn) = self.get(id) else { return };
        let stuck = conn.unsent() > 0;
        let write = if stuck { sys::WRITE } else { 0 };
        let peer_out = matches!(conn.role, Role::Dialled(_) | Role::PeerOut(_));
        let read = if conn.paused || conn.closing || (stuck && !peer_out) { 0 } else { sys::READ };
        if conn.connecting {
            return;
        }
        if conn.interest != read | write {
            self.set_interest(id, read | write);
        }
    }

    fn set_interest(&mut self, id: ConnId, interest: u32) {
        let Some(conn) = self.slots.get_mut(Self::slot(id)).and_then(Option::as_mut) else { return };
        conn.interest = interest;
        if conn.role == Role::Client && interest & sys::READ == 0 && !conn.closing {
            self.unread.insert(id);
        } else if !self.unread.is_empty() {
            self.unread.remove(&id);
        }
        if let Err(error) = self.epoll.modify(&conn.stream, interest, id.0) {
            tracing::warn!(conn = %id, %error, "a connection cannot be watched");
            self.close(id);
        }
    }

    /// A connection has introduced itself.
    pub(crate) fn introduce(&mut self, id: ConnId, role: Role) {
        if let Some(conn) = self.get_mut(id) {
            conn.role = role;
            if let Role::PeerIn(_) = role {
                // Peers are few and talk all the time: notice a dead one soon.
                let _ = prepare(&conn.stream, PEER_TIMEOUT);
            }
        }
    }

    /// Closes connections that are late with their introduction.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some((since, id)) = self.new.front().copied() {
            let waiting = self.get(id).is_some_and(|c| c.role == Role::New);
            if waiting && now < since + self.limits.hello {
                return;
            }
            self.new.pop_front();
            if waiting {
                self.shed(id, "it did not introduce itself in time");
            }
        }
    }

    /// When [`Sockets::expire`] is due.
    pub(crate) fn next_deadline(&self) -> Time {
        match self.new.front() {
            Some((since, _)) => *since + self.limits.hello,
            None => Time::FAR,
        }
    }
}

/// Options every connection gets: no waiting for full segments, and dead hosts are noticed.
fn prepare(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(timeout))?;
    let idle = (timeout / 2).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(idle).with_retries(3))
}

/// Binds a listener: without SO_REUSEPORT, so that a second process on the port is refused.
///
/// # Errors
/// As bind(2).
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        // Listening on [::] must not silently include every IPv4 address.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

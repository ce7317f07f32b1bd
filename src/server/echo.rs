//! A node without consensus, log and state: it answers every request at once, through the same
//! sockets, frames and executor as a real one. What it reaches is what the rest of the path leaves
//! over; benches hold results against it. It grants everything to everybody and is of no other use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};
use palisade_types::{
    ClusterId, ConnId, Epoch, Fence, Key, LogIndex, NodeId, Outcome, Refusal, Reply, RequestId, SessionId,
    ShardId, Ticket,
};
use palisade_wire::{
    ClientHello, FRAME_BYTES_MAX, Frame, Frames, Kind, Member, Request, ServerHello, VERSION_MAX,
    encode_reply,
};

use super::conn::Role;
use super::metrics::Metrics;
use super::sockets::{self, Chunk, Ready, SocketLimits, Sockets};
use super::{CoreError, IO_MEMORY, ServeError};
use crate::clock;

/// The defaults of the configuration that matter here.
const LIMITS: SocketLimits =
    SocketLimits { connections: 100_000, in_flight: 1_024, hello: Duration::from_secs(5), per_turn: 48 };

/// One sleep, at most; it ends as soon as a socket is ready.
const WAIT: Duration = Duration::from_secs(1);

/// Answers requests on an address until the process ends.
///
/// # Errors
/// When the port is taken or the host refuses an executor.
pub fn echo(address: SocketAddr) -> Result<(), ServeError> {
    let listener = sockets::bind(address).map_err(|error| ServeError::Listen { address, error })?;
    let executor = LocalExecutorBuilder::new(Placement::Unbound).name("echo").io_memory(IO_MEMORY);
    let run = executor.spawn(move || async move { Echo::new(listener, address)?.run().await });
    let executor = |e: glommio::GlommioError<()>| ServeError::Executor(e.to_string());
    run.map_err(executor)?.join().map_err(executor)?.map_err(ServeError::Core)
}

struct Echo {
    sockets: Sockets,
    hello: ServerHello,
    sessions: u64,
    grants: u64,
}

impl Echo {
    fn new(listener: std::net::TcpListener, address: SocketAddr) -> Result<Echo, CoreError> {
        let node = NodeId(1);
        Ok(Echo {
            sockets: Sockets::new(listener, LIMITS, Arc::new(Metrics::default()))?,
            hello: ServerHello {
                version: VERSION_MAX,
                node,
                cluster: ClusterId(0),
                shards: 1,
                leader: Some(node),
                members: vec![Member { node, address: address.to_string() }],
                frame_bytes_max: FRAME_BYTES_MAX as u32,
                inflight_max: LIMITS.in_flight as u32,
                election_timeout_ms: 1_000,
            },
            sessions: 0,
            grants: 0,
        })
    }

    async fn run(mut self) -> Result<(), CoreError> {
        self.sockets.open()?;
        let mut ready = Vec::new();
        loop {
            self.sockets.wait(WAIT, &mut ready)?;
            for event in ready.drain(..) {
                match event {
                    Ready::Listener => self.sockets.accept(clock::now()),
                    Ready::Conn { id, read, write } => {
                        if write {
                            self.sockets.send(id);
                        }
                        if let Some(chunk) = read.then(|| self.sockets.receive(id)).flatten() {
                            self.take(id, chunk);
                        }
                    }
                }
            }
            self.sockets.flush();
            self.sockets.take_closed();
        }
    }

    fn take(&mut self, id: ConnId, chunk: Chunk) {
        let mut frames = Frames::new(chunk.bytes());
        while let Ok(Some(frame)) = frames.next_frame() {
            if self.answer(id, &frame).is_none() {
                self.sockets.close_when_sent(id);
                break;
            }
        }
        let consumed = frames.consumed();
        self.sockets.give_back(id, chunk, consumed, false);
    }

    /// `None` for what is not the protocol.
    fn answer(&mut self, id: ConnId, frame: &Frame<'_>) -> Option<()> {
        if frame.kind == Kind::ClientHello {
            ClientHello::decode(frame).ok()?;
            self.sockets.introduce(id, Role::Client);
            self.hello.encode(self.sockets.out(id)?);
            return Some(());
        }
        let request = Request::decode(frame).ok()?;
        let reply = self.reply(request);
        self.encode(id, frame.id, &reply)
    }

    fn encode(&mut self, conn: ConnId, id: RequestId, reply: &Reply) -> Option<()> {
        encode_reply(reply, id, self.sockets.out(conn)?);
        Some(())
    }

    fn reply(&mut self, request: Request) -> Reply {
        match request {
            Request::OpenSession { ttl_ms, .. } => {
                self.sessions += 1;
                let session = SessionId { shard: ShardId(0), opened: LogIndex(self.sessions) };
                Reply::Opened { session, ttl_ms, gone_within_ms: u64::from(ttl_ms), short_ttl: false }
            }
            Request::Attach { session, .. } => Reply::Attached { session, ttl_ms: 30_000 },
            Request::Renew { .. } => Reply::Renewed { refused: Vec::new() },
            Request::CloseSession { session } => Reply::SessionClosed { session },
            Request::Acquire { session, ticket, key, .. } => self.grant(session, ticket, key),
            Request::Release { session, ticket } | Request::Cancel { session, ticket } => {
                Reply::Finished { session, ticket, outcome: Outcome::Released }
            }
            Request::Read { .. }
            | Request::Downgrade { .. }
            | Request::Campaign { .. }
            | Request::Proclaim { .. }
            | Request::Put { .. }
            | Request::Delete { .. }
            | Request::Operate { .. }
            | Request::Watch { .. }
            | Request::ClaimResource { .. }
            | Request::Unwatch { .. }
            | Request::Status => {
                Reply::Refused(Refusal::BadRequest { reason: "an echo has no state to read".to_owned() })
            }
        }
    }

    fn grant(&mut self, session: SessionId, ticket: Ticket, key: Key) -> Reply {
        self.grants += 1;
        let epoch = Epoch(self.grants);
        match Fence::new(key, epoch, epoch) {
            Ok(fence) => Reply::Granted { session, ticket, fence },
            Err(error) => Reply::Refused(Refusal::BadRequest { reason: error.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{Class, Mode, OnDeath, SessionToken};
    use palisade_wire::Wait;

    #[test]
    fn it_opens_grants_and_releases() {
        let listener = sockets::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let mut echo = Echo::new(listener, address).unwrap();
        let open =
            Request::OpenSession { token: SessionToken(1), ttl_ms: 500, owner: None, incarnation: None };
        let Reply::Opened { session, .. } = echo.reply(open) else { panic!("not opened") };
        let key = Key::new("k").unwrap();
        let acquire = |ticket| Request::Acquire {
            session,
            ticket: Ticket(ticket),
            key: key.clone(),
            class: Class::Advisory,
            resource: None,
            mode: Mode::Exclusive,
            on_death: OnDeath::Release,
            wait: Wait::No,
        };
        let epochs: Vec<_> = [1, 2].into_iter().map(|t| echo.reply(acquire(t))).collect();
        assert!(matches!(&epochs[..], [Reply::Granted { fence: a, .. }, Reply::Granted { fence: b, .. }]
            if a.epoch() < b.epoch()));
        let release = Request::Release { session, ticket: Ticket(1) };
        assert!(matches!(echo.reply(release), Reply::Finished { .. }));
    }
}

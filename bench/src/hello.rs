//! How a connection begins, and where the leader is.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use palisade_wire::{ClientHello, Frames, Kind, ServerHello, VERSION_MAX, VERSION_MIN};

use crate::error::BenchError;
use crate::pace::Clock;
use crate::poller::Poller;

/// How long a node may take to accept and greet: one that does not may be stopped or half dead.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may take that nobody else could stand in for. Where its queue of connections is full
/// the kernel asks again after one second, and then after two more.
const LONG_PATIENCE: Duration = Duration::from_secs(10);
/// Between two rounds of asking everybody.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection that has been greeted.
struct Greeted {
    stream: TcpStream,
    hello: ServerHello,
    /// What came behind the greeting.
    rest: Vec<u8>,
}

/// Connects to the one server there is; nothing has been read.
pub(crate) fn plain(address: &str) -> Result<(TcpStream, Vec<u8>), BenchError> {
    Ok((dial(address, LONG_PATIENCE)?, Vec::new()))
}

fn dial(address: &str, patience: Duration) -> Result<TcpStream, BenchError> {
    let fail = |e: io::Error| BenchError::io(address, e);
    let target = address
        .to_socket_addrs()
        .map_err(fail)?
        .next()
        .ok_or_else(|| BenchError::Usage(format!("{address} is no address")))?;
    TcpStream::connect_timeout(&target, patience).map_err(fail)
}

/// Connects and exchanges hellos, with what came behind the server's.
pub(crate) fn greeted(address: &str) -> Result<(TcpStream, Vec<u8>), BenchError> {
    greet(address).map(|greeted| (greeted.stream, greeted.rest))
}

fn greet(address: &str) -> Result<Greeted, BenchError> {
    let fail = |e: io::Error| BenchError::io(address, e);
    let mut stream = dial(address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    let hello = ClientHello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        cluster: None,
        credentials: Vec::new(),
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    stream.write_all(&bytes).map_err(fail)?;
    let mut input = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let n = match stream.read(&mut chunk) {
            Ok(n) => n,
            // A read with a time limit says so after this process was stopped and continued.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(fail(e)),
        };
        if n == 0 {
            return Err(fail(io::ErrorKind::UnexpectedEof.into()));
        }
        input.extend_from_slice(&chunk[..n]);
        let mut frames = Frames::new(&input);
        let Some(frame) = frames.next_frame().map_err(|e| BenchError::Protocol(e.to_string()))? else {
            continue;
        };
        if frame.kind != Kind::ServerHello {
            return Err(BenchError::Protocol(format!("{:?} instead of a hello", frame.kind)));
        }
        let hello = ServerHello::decode(&frame).map_err(|e| BenchError::Protocol(e.to_string()))?;
        let rest = input[frames.consumed()..].to_vec();
        return Ok(Greeted { stream, hello, rest });
    }
}

/// The address of the node that says it leads.
fn find_leader(endpoints: &[String]) -> Option<Leader> {
    for endpoint in endpoints {
        let Ok(Greeted { hello, .. }) = greet(endpoint) else { continue };
        let members: Vec<String> = hello.members.iter().map(|m| m.address.clone()).collect();
        let Some(leader) = hello.members.iter().find(|m| Some(m.node) == hello.leader) else { continue };
        return Some(Leader { address: leader.address.clone(), members });
    }
    None
}

/// Where the leader is.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    /// Its address.
    pub(crate) address: String,
    /// The addresses of all nodes.
    pub(crate) members: Vec<String>,
}

/// Connects so often to the leader; looks for it, as long as there is none, for at most `patience`.
pub(crate) fn connect(
    endpoints: &[String],
    connections: u32,
    clock: Clock,
    patience: Duration,
) -> Result<(Poller, Leader), BenchError> {
    let deadline = Instant::now() + patience;
    loop {
        let error = match find_leader(endpoints) {
            None => BenchError::NoLeader(endpoints.to_vec()),
            Some(leader) => match connect_to(&leader, connections, clock) {
                Ok(poller) => return Ok((poller, leader)),
                Err(error) => error,
            },
        };
        if Instant::now() >= deadline {
            return Err(error);
        }
        thread::sleep(PAUSE);
    }
}

/// Connects to a node if it, too, says that it leads.
fn connect_to(leader: &Leader, connections: u32, clock: Clock) -> Result<Poller, BenchError> {
    let mut poller = Poller::new(clock)?;
    for _ in 0..connections {
        let Greeted { stream, hello, rest } = greet(&leader.address)?;
        if hello.leader != Some(hello.node) {
            return Err(BenchError::NoLeader(vec![leader.address.clone()]));
        }
        poller.add(stream, rest)?;
    }
    Ok(poller)
}

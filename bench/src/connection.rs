//! A blocking connection that reads all that has arrived and writes all that is to be said.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use palisade_types::{Refusal, Reply, RequestId};
use palisade_wire::{
    ClientHello, Frames, Group, Kind, Push, Request, ServerHello, VERSION_MAX, VERSION_MIN, decode_reply,
};

/// What ends a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A socket failed.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// The server sent what is not the protocol.
    #[error("the server sent something unexpected: {0}")]
    Protocol(String),
    /// No endpoint knows a leader.
    #[error("no leader found among {0:?}: is the cluster running?")]
    NoLeader(Vec<String>),
    /// The server refused.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// A thread of the generator died.
    #[error("a thread of the generator panicked")]
    Thread,
}

/// Something the server said.
pub(crate) enum Said {
    /// An answer.
    Reply(RequestId, Reply),
    /// Not an answer.
    Push(Push),
}

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    input: Vec<u8>,
    filled: usize,
    output: Vec<u8>,
}

impl Connection {
    /// Connects and shakes hands.
    pub(crate) fn open(address: &str) -> Result<(Connection, ServerHello), BenchError> {
        let fail = |e| BenchError::Io(address.to_owned(), e);
        let stream = TcpStream::connect(address).map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(fail)?;
        let mut connection = Connection {
            stream,
            address: address.to_owned(),
            input: vec![0; 256 * 1024],
            filled: 0,
            output: Vec::with_capacity(64 * 1024),
        };
        let hello = ClientHello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            cluster: None,
            credentials: Vec::new(),
        };
        hello.encode(&mut connection.output);
        connection.flush()?;
        let hello = connection.read_hello()?;
        Ok((connection, hello))
    }

    fn read_hello(&mut self) -> Result<ServerHello, BenchError> {
        loop {
            self.fill()?;
            let mut frames = Frames::new(&self.input[..self.filled]);
            let frame = frames.next_frame().map_err(|e| BenchError::Protocol(e.to_string()))?;
            if let Some(frame) = frame {
                if frame.kind != Kind::ServerHello {
                    return Err(BenchError::Protocol(format!("{:?} instead of a hello", frame.kind)));
                }
                let hello = ServerHello::decode(&frame).map_err(|e| BenchError::Protocol(e.to_string()))?;
                let consumed = frames.consumed();
                self.consume(consumed);
                return Ok(hello);
            }
        }
    }

    /// Appends a request to what [`Connection::flush`] sends.
    pub(crate) fn ask(&mut self, id: RequestId, request: &Request) {
        request.encode(id, &mut self.output);
    }

    /// Sends everything asked, in one write.
    pub(crate) fn flush(&mut self) -> Result<(), BenchError> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.output).map_err(|e| BenchError::Io(self.address.clone(), e))?;
        self.output.clear();
        Ok(())
    }

    /// Waits until something arrives, and hands out all of it.
    pub(crate) fn listen(&mut self, said: &mut Vec<Said>) -> Result<(), BenchError> {
        self.fill()?;
        let mut frames = Frames::new(&self.input[..self.filled]);
        loop {
            let frame = frames.next_frame().map_err(|e| BenchError::Protocol(e.to_string()))?;
            let Some(frame) = frame else { break };
            let bad = |e: palisade_wire::MessageError| BenchError::Protocol(e.to_string());
            match frame.kind.group() {
                Group::Reply => said.push(Said::Reply(frame.id, decode_reply(&frame).map_err(bad)?)),
                Group::Push => said.push(Said::Push(Push::decode(&frame).map_err(bad)?)),
                _ => return Err(BenchError::Protocol(format!("a {:?} frame", frame.kind))),
            }
        }
        let consumed = frames.consumed();
        self.consume(consumed);
        Ok(())
    }

    fn fill(&mut self) -> Result<(), BenchError> {
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        let n = self
            .stream
            .read(&mut self.input[self.filled..])
            .map_err(|e| BenchError::Io(self.address.clone(), e))?;
        if n == 0 {
            let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection");
            return Err(BenchError::Io(self.address.clone(), closed));
        }
        self.filled += n;
        Ok(())
    }

    fn consume(&mut self, n: usize) {
        self.input.copy_within(n..self.filled, 0);
        self.filled -= n;
    }
}

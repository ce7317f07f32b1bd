//! Redis: one node, no quorum and no fence; the lock of its manual, a key with a time to live that only
//! its owner deletes. Sessions share connections by pipelining.

use std::collections::VecDeque;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::window::{Tally, Window, gather, in_batches};
use super::{PeerError, fresh_name};
use crate::work::{Measured, Mix, Work};

/// Deletes the key if the caller's token is in it.
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
/// The time to live of a lock, in milliseconds; nobody holds one for long.
const TTL_MS: &str = "30000";

/// Does the work, of which Redis knows `cycle` only.
pub(crate) async fn run(
    work: &Work,
    endpoints: &[String],
    edge: &mut dyn FnMut(),
) -> Result<Measured, PeerError> {
    if work.mix != Mix::Cycle {
        return Err(PeerError::NoSuchWork("Redis"));
    }
    let name = fresh_name()?;
    let mut first = Pipe::open(endpoints[0].clone()).await?;
    command(&mut first.output, &["SCRIPT", "LOAD", RELEASE]);
    // A string is answered as its length and then itself.
    first.lines(1).await?;
    let script = first.lines(1).await?.remove(0);
    let pipes = in_batches((0..work.connections).map(|_| Pipe::open(endpoints[0].clone()))).await?;
    let window = Window::of(work);
    let mut tasks = JoinSet::new();
    for (n, pipe) in (0..).zip(pipes) {
        let members = (n..work.sessions).step_by(work.connections as usize);
        let members = members.map(|s| Member::new(&name, s, &script)).collect();
        tasks.spawn(pipe.cycle(members, Tally::new(window)));
    }
    gather(work, window, tasks, edge).await
}

/// One write.
pub(crate) async fn probe(endpoint: &str) -> Result<(), PeerError> {
    let mut pipe = Pipe::open(endpoint.to_owned()).await?;
    command(&mut pipe.output, &["SET", "probe", ""]);
    match pipe.lines(1).await?.remove(0).as_str() {
        "+OK" => Ok(()),
        other => Err(PeerError::Answer(other.to_owned())),
    }
}

/// Appends a command as the protocol wants it: an array of strings, each with its length.
fn command(output: &mut Vec<u8>, words: &[&str]) {
    output.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        output.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
}

/// A session: its two commands, ready to send.
struct Member {
    acquire: Vec<u8>,
    release: Vec<u8>,
    asked: Instant,
}

impl Member {
    fn new(name: &str, n: u32, script: &str) -> Member {
        let (key, token) = (format!("{name}:{n}"), format!("token-{n}"));
        let (mut acquire, mut release) = (Vec::new(), Vec::new());
        command(&mut acquire, &["SET", &key, &token, "NX", "PX", TTL_MS]);
        command(&mut release, &["EVALSHA", script, "1", &key, &token]);
        Member { acquire, release, asked: Instant::now() }
    }
}

/// Which answer is awaited.
enum Awaited {
    Acquired(usize),
    Released(usize),
}

/// A connection. All answers to what is asked here are of one line.
struct Pipe {
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
}

impl Pipe {
    async fn open(endpoint: String) -> Result<Pipe, PeerError> {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        Ok(Pipe { stream, output: Vec::new(), input: Vec::new() })
    }

    /// Sends what is to be sent, waits until a line has come, and takes all that have, up to `most`.
    async fn lines(&mut self, most: usize) -> Result<Vec<String>, PeerError> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
        }
        let mut lines = Vec::new();
        loop {
            let mut taken = 0;
            while lines.len() < most
                && let Some(length) = self.input[taken..].windows(2).position(|w| w == b"\r\n")
            {
                let line = &self.input[taken..taken + length];
                lines.push(String::from_utf8_lossy(line).into_owned());
                taken += length + 2;
            }
            self.input.drain(..taken);
            if !lines.is_empty() {
                return Ok(lines);
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(PeerError::Answer("the server closed the connection".to_owned()));
            }
        }
    }

    async fn cycle(mut self, mut members: Vec<Member>, mut tally: Tally) -> Result<Tally, PeerError> {
        let mut awaited = VecDeque::new();
        for n in 0..members.len() {
            self.acquire(&mut members, n, &mut awaited);
        }
        while !awaited.is_empty() {
            for line in self.lines(awaited.len()).await? {
                match (awaited.pop_front(), line.as_str()) {
                    (Some(Awaited::Acquired(n)), "+OK") => {
                        tally.note(members[n].asked);
                        self.output.extend(&members[n].release);
                        awaited.push_back(Awaited::Released(n));
                    }
                    (Some(Awaited::Released(n)), ":1") if tally.is_open() => {
                        self.acquire(&mut members, n, &mut awaited);
                    }
                    (Some(Awaited::Released(_)), ":1") => {}
                    (_, other) => return Err(PeerError::Answer(other.to_owned())),
                }
            }
        }
        Ok(tally)
    }

    fn acquire(&mut self, members: &mut [Member], n: usize, awaited: &mut VecDeque<Awaited>) {
        members[n].asked = Instant::now();
        self.output.extend(&members[n].acquire);
        awaited.push_back(Awaited::Acquired(n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_counted_strings() {
        let mut output = Vec::new();
        command(&mut output, &["SET", "key", ""]);
        assert_eq!(output, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$0\r\n\r\n");
    }
}

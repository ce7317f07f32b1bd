//! A server that answers every frame with a frame and does nothing else: what a socket costs.

use std::io::Write;
use std::net::TcpListener;

use palisade_wire::{Frame, Kind};

use crate::error::BenchError;
use crate::forms;
use crate::pace::Clock;
use crate::poller::{Actor, Outbox, Poller, Turn};

/// The length of an answer: about that of a grant.
pub(super) const ANSWER_BYTES: usize = 48;

/// Answers everything.
pub(super) struct Echo {
    answer: Vec<u8>,
}

impl Echo {
    /// An answer of [`ANSWER_BYTES`] under the id of what it answers.
    pub(super) fn new() -> Echo {
        Echo { answer: forms::blank(Kind::Finished, ANSWER_BYTES) }
    }
}

impl Actor for Echo {
    fn on_frame(
        &mut self,
        link: usize,
        frame: &Frame<'_>,
        _now: u64,
        out: &mut Outbox,
    ) -> Result<(), BenchError> {
        forms::set_id(&mut self.answer, frame.id.0);
        forms::seal(&mut self.answer);
        out.to(link).extend_from_slice(&self.answer);
        Ok(())
    }

    fn on_turn(&mut self, _now: u64, _out: &mut Outbox) -> Result<Turn, BenchError> {
        Ok(Turn::Until(u64::MAX))
    }
}

/// Takes so many connections, and serves them until one is closed.
pub(super) fn serve(listener: &TcpListener, connections: u32) -> Result<(), BenchError> {
    let mut poller = Poller::new(Clock::start())?;
    for _ in 0..connections {
        let (stream, _) = listener.accept().map_err(|e| BenchError::io("the listener", e))?;
        poller.add(stream, Vec::new())?;
    }
    match poller.drive(&mut Echo::new()) {
        Err(BenchError::Lost(_)) => Ok(()),
        end => end,
    }
}

/// The same as a process of its own, which says on stdout where it listens.
pub(super) fn run(connections: u32) -> Result<(), BenchError> {
    let fail = |e| BenchError::io("the listener", e);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", listener.local_addr().map_err(fail)?).map_err(fail)?;
    stdout.flush().map_err(fail)?;
    serve(&listener, connections)
}

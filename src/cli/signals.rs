//! The signals that `lock` catches: those that end it, and those it hands on to the command. And those that end
//! `dev` and `demo`.

use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::{self, Failure};

/// What is caught and handed on, beside the real-time signals: all that has no meaning for this process alone,
/// as faults and limits have. SIGCHLD is caught for ourselves.
const CAUGHT: [i32; 15] = [
    libc::SIGCHLD,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGPWR,
    libc::SIGIO,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// The number of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalNumber(pub(crate) i32);

impl SignalNumber {
    /// The window has another size: no reason to end.
    pub(crate) const WINDOW: SignalNumber = SignalNumber(libc::SIGWINCH);
}

/// A caught signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    /// A child changed its state.
    Child,
    /// Ctrl-Z.
    Stop,
    /// We go on after having been stopped.
    Continue,
    /// Any other.
    Other(SignalNumber),
}

/// Catches signals from its making on.
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Starts catching.
    pub(crate) fn listen() -> Result<Signals, Failure> {
        let caught = CAUGHT.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        let streams = caught.map(|n| Ok((n, signal(SignalKind::from_raw(n))?)));
        let streams: std::io::Result<Vec<_>> = streams.collect();
        Ok(Signals(streams.map_err(|e| Failure::new(exit::OS, format!("cannot watch signals: {e}")))?))
    }

    /// The next signal. Several of one kind may come as one.
    pub(crate) async fn next(&mut self) -> Caught {
        let number = std::future::poll_fn(|cx| {
            for (number, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await;
        match number {
            libc::SIGCHLD => Caught::Child,
            libc::SIGTSTP => Caught::Stop,
            libc::SIGCONT => Caught::Continue,
            other => Caught::Other(SignalNumber(other)),
        }
    }
}

/// The signals that end what runs until it is told to end.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Ends {
    /// Starts catching.
    pub(crate) fn listen() -> Result<Ends, Failure> {
        let on =
            |kind| signal(kind).map_err(|e| Failure::new(exit::OS, format!("cannot watch signals: {e}")));
        Ok(Ends {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hang_up: on(SignalKind::hangup())?,
        })
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = self.hang_up.recv() => libc::SIGHUP,
        }
    }
}

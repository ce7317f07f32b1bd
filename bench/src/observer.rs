//! Watches a run from the side: takes samples at the two ends of the window and says every second how
//! it goes. A thread of its own, so that reading /proc and asking the nodes holds up no request.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::host::{Sampler, Usage};
use crate::scrape::{ClusterWork, Counters};

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Who used the CPU.
    pub(crate) usage: Usage,
    /// What the nodes counted; `None` when they could not be asked.
    pub(crate) cluster: Option<ClusterWork>,
}

/// What to watch.
pub(crate) struct Watch {
    /// The window.
    pub(crate) begin: Instant,
    /// Its end.
    pub(crate) end: Instant,
    /// Whose CPU time to look at.
    pub(crate) sampler: Sampler,
    /// The nodes to ask for their counters.
    pub(crate) nodes: Vec<String>,
    /// Where the generator counts operations.
    pub(crate) operations: Arc<AtomicU64>,
    /// Whether to say every second how it goes.
    pub(crate) progress: bool,
}

/// A thread that watches. Dropping it ends it.
pub(crate) struct Observer {
    thread: JoinHandle<Result<Seen, BenchError>>,
    /// Its end tells the thread that nobody wants to know any more.
    _wanted: Sender<()>,
}

/// Whether progress is shown unless it is asked for.
pub(crate) fn on_a_terminal() -> bool {
    std::io::stderr().is_terminal()
}

impl Observer {
    /// Begins to watch.
    pub(crate) fn start(watch: Watch) -> Observer {
        let (wanted, told) = mpsc::channel();
        // Waits, unless the run has failed meanwhile.
        let sleep_until = move |at: Instant| {
            let left = at.saturating_duration_since(Instant::now());
            match told.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => Ok(()),
                _ => Err(BenchError::Thread),
            }
        };
        Observer { thread: thread::spawn(move || watch.run(sleep_until)), _wanted: wanted }
    }

    /// Waits for the end of the window, and says what was seen.
    pub(crate) fn finish(self) -> Result<Seen, BenchError> {
        self.thread.join().map_err(|_| BenchError::Thread)?
    }
}

impl Watch {
    fn run(&self, sleep_until: impl Fn(Instant) -> Result<(), BenchError>) -> Result<Seen, BenchError> {
        sleep_until(self.begin)?;
        let before = self.sampler.sample()?;
        let counted_before = Counters::fetch(&self.nodes);
        let mut shown = 0;
        let mut second = 1;
        loop {
            let at = self.begin + Duration::from_secs(second);
            if at >= self.end {
                break;
            }
            sleep_until(at)?;
            if self.progress {
                let operations = self.operations.load(Ordering::Relaxed);
                eprintln!("{second:>5} s  {} operations", operations - shown);
                shown = operations;
            }
            second += 1;
        }
        sleep_until(self.end)?;
        let after = self.sampler.sample()?;
        let counted_after = counted_before.as_ref().and_then(|_| Counters::fetch(&self.nodes));
        let cluster = counted_before.zip(counted_after).and_then(|(before, after)| before.until(&after));
        Ok(Seen { usage: before.until(&after), cluster })
    }
}

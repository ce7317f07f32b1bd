//! The part of a run that counts, and the tasks that work in it.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::PeerError;
use crate::work::{Measured, Work, new_histogram};

/// How many sessions are opened or closed at once.
const AT_ONCE: usize = 64;

/// From when to when operations count.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    begin: Instant,
    end: Instant,
}

impl Window {
    /// The window of a run that starts at once.
    pub(crate) fn of(work: &Work) -> Window {
        let begin = Instant::now() + work.warmup;
        Window { begin, end: begin + work.duration }
    }
}

/// What one task saw. A task keeps its latencies as they are: a thousand histograms would be large.
pub(crate) struct Tally {
    window: Window,
    micros: Vec<u32>,
}

impl Tally {
    pub(crate) fn new(window: Window) -> Tally {
        Tally { window, micros: Vec::new() }
    }

    /// Whether another operation is to begin.
    pub(crate) fn is_open(&self) -> bool {
        Instant::now() < self.window.end
    }

    /// Notes an operation that has just ended.
    pub(crate) fn note(&mut self, asked: Instant) {
        let now = Instant::now();
        if now >= self.window.begin && now < self.window.end {
            let micros = now.duration_since(asked).as_micros();
            self.micros.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
    }
}

/// Waits for the window's two edges, calling `edge` at each, and then for the tasks.
pub(crate) async fn gather(
    work: &Work,
    window: Window,
    mut tasks: JoinSet<Result<Tally, PeerError>>,
    edge: &mut dyn FnMut(),
) -> Result<Measured, PeerError> {
    for at in [window.begin, window.end] {
        tokio::time::sleep_until(at.into()).await;
        edge();
    }
    let mut latency = new_histogram();
    let mut operations = 0;
    while let Some(joined) = tasks.join_next().await {
        let tally = joined.map_err(|_| PeerError::Task)??;
        operations += tally.micros.len() as u64;
        for micros in tally.micros {
            latency.saturating_record(u64::from(micros));
        }
    }
    Ok(Measured { operations, seconds: work.duration.as_secs_f64(), latency })
}

/// Runs the futures, a bounded number at a time. The results come in the order they end.
pub(crate) async fn in_batches<T, F>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, PeerError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, PeerError>> + Send + 'static,
{
    let mut done = Vec::new();
    let mut tasks = JoinSet::new();
    for future in futures {
        if tasks.len() >= AT_ONCE
            && let Some(joined) = tasks.join_next().await
        {
            done.push(joined.map_err(|_| PeerError::Task)??);
        }
        tasks.spawn(future);
    }
    while let Some(joined) = tasks.join_next().await {
        done.push(joined.map_err(|_| PeerError::Task)??);
    }
    Ok(done)
}

/// How long a session must live without renewals: the whole run, and time to set it up.
pub(crate) fn lifetime(work: &Work) -> Duration {
    work.warmup + work.duration + Duration::from_secs(60)
}

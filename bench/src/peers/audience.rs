//! What the watchers of a peer's key have been told, and its changes at their times: for peers what
//! [`crate::changes`] is for Palisade.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::PeerError;
use crate::pace::{Clock, Schedule};
use crate::told::{self, Told, Watching};

/// How long the last changes may take to be told.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shared by the tasks that hear and the one that changes the key.
pub(crate) struct Audience {
    clock: Clock,
    told: Mutex<Told>,
    heard: Notify,
}

/// Takes the key, or leaves it.
pub(crate) trait Changer {
    /// Makes the change of this number: even, the key is taken; odd, it is left.
    async fn change(&mut self, number: u64) -> Result<(), PeerError>;
}

impl Audience {
    pub(crate) fn new(watchers: u32) -> Arc<Audience> {
        let told = Mutex::new(Told::new(watchers, 0));
        Arc::new(Audience { clock: Clock::start(), told, heard: Notify::new() })
    }

    /// A watcher has been told of the change of this number, just now.
    pub(crate) fn heard(&self, number: u64) {
        let now = self.clock.now();
        let is_complete = self.with(|told| {
            let before = told.complete();
            told.heard(number, now);
            told.complete() > before
        });
        if is_complete {
            self.heard.notify_one();
        }
    }

    /// Changes the key during the warm-up and then while it counts. `edge` is called as that begins, and when
    /// everybody has been told of its last change. `hearers` are the tasks that hear; none of them ends.
    pub(crate) async fn watch(
        &self,
        watching: &Watching,
        changer: &mut impl Changer,
        hearers: &mut JoinSet<Result<(), PeerError>>,
        edge: &mut dyn FnMut(),
    ) -> Result<Told, PeerError> {
        self.stretch(watching.per_second, watching.warmup, changer, hearers).await?;
        edge();
        self.stretch(watching.per_second, watching.duration, changer, hearers).await?;
        edge();
        Ok(self.with(|told| told.clone()))
    }

    /// Changes the key so often a second for so long, and waits until everybody has been told. A change that
    /// comes late because the last was slow is late from the time it was meant to be.
    async fn stretch(
        &self,
        per_second: u64,
        length: Duration,
        changer: &mut impl Changer,
        hearers: &mut JoinSet<Result<(), PeerError>>,
    ) -> Result<(), PeerError> {
        let begin = self.clock.now();
        let schedule = Schedule::new(begin, per_second);
        let planned = told::due_in(per_second, length);
        self.with(|told| *told = told.after());
        for n in 0..planned {
            let due = schedule.at(n);
            sleep_until(self.clock.instant(due)).await?;
            let number = self.with(|told| {
                told.add(due);
                told.next() - 1
            });
            changer.change(number).await?;
        }
        let end = self.clock.instant(begin) + length;
        sleep_until(end).await?;
        let deadline = tokio::time::sleep_until((end + PATIENCE).into());
        tokio::pin!(deadline);
        while self.with(|told| told.complete()) < planned {
            tokio::select! {
                () = self.heard.notified() => {}
                () = &mut deadline => break,
                ended = hearers.join_next() => return Err(why(ended)),
            }
        }
        Ok(())
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Told) -> T) -> T {
        use_it(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A task that hears has ended, which none should.
fn why(ended: Option<Result<Result<(), PeerError>, tokio::task::JoinError>>) -> PeerError {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Ok(Ok(()))) | None => PeerError::Answer("a watch ended".to_owned()),
        Some(Err(_)) => PeerError::Task,
    }
}

/// Sleeps on a thread that may block: the runtime's own timers are up to a millisecond late, and delays are
/// counted from these times.
async fn sleep_until(at: Instant) -> Result<(), PeerError> {
    let left = at.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(());
    }
    tokio::task::spawn_blocking(move || thread::sleep(left)).await.map_err(|_| PeerError::Task)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells every watcher of a change as it makes it.
    struct Herald {
        audience: Arc<Audience>,
        made: Vec<u64>,
    }

    impl Changer for Herald {
        async fn change(&mut self, number: u64) -> Result<(), PeerError> {
            self.made.push(number);
            self.audience.heard(number);
            self.audience.heard(number);
            Ok(())
        }
    }

    fn run(hearer: Result<(), PeerError>, watchers: u32) -> (Result<Told, PeerError>, Vec<u64>, u32) {
        let watching = Watching {
            watchers,
            connections: 1,
            per_second: 1_000,
            warmup: Duration::from_millis(4),
            duration: Duration::from_millis(6),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let audience = Audience::new(watchers);
            let mut herald = Herald { audience: audience.clone(), made: Vec::new() };
            let (mut hearers, mut edges) = (JoinSet::new(), 0);
            hearers.spawn(async {
                match hearer {
                    Ok(()) => std::future::pending().await,
                    Err(error) => Err(error),
                }
            });
            let told = audience.watch(&watching, &mut herald, &mut hearers, &mut || edges += 1).await;
            (told, herald.made, edges)
        })
    }

    #[test]
    fn the_warm_up_is_not_counted_and_numbers_go_on() {
        let (told, made, edges) = run(Ok(()), 2);
        let told = told.unwrap();
        assert_eq!((told.made(), told.complete(), told.events), (6, 6, 12));
        assert_eq!((made, edges), ((0..10).collect(), 2));
    }

    #[test]
    fn a_watch_that_ends_ends_the_run() {
        let (told, _, _) = run(Err(PeerError::NoSuchWork("x")), 3);
        assert!(matches!(told, Err(PeerError::NoSuchWork("x"))));
    }
}

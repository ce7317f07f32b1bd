//! The watchdog: glommio 0.9.0 can park an executor that still has runnable tasks (it takes a
//! preemption between arming and first checking its preempt timer for "nothing to do"). A signal
//! interrupts the sleeping system call and the executor goes on. So the loop of every core stores the
//! time at every sleep, which it takes at least every few milliseconds, and a plain thread sends
//! SIGUSR2 to a core whose time is old. The count of these, and the longest delay seen, double as a
//! stall metric.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use palisade_types::Time;

use super::sys;
use crate::clock;

/// How often an executor stores the time, at least.
pub(crate) const PULSE: Duration = Duration::from_millis(10);
/// A heartbeat older than this is stale.
const STALE: Duration = Duration::from_millis(30);

/// The heartbeat of one executor.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    thread: AtomicI32,
    beat: AtomicU64,
    rescues: AtomicU64,
    longest_ns: AtomicU64,
}

impl Heartbeat {
    /// Called once by the thread of the executor.
    pub(crate) fn start(&self) {
        self.beat.store(clock::now().0, Ordering::Relaxed);
        self.thread.store(sys::thread_id(), Ordering::Release);
    }

    /// Called by the executor at least every [`PULSE`].
    pub(crate) fn beat(&self, now: Time) {
        // Only the executor stores it.
        let gap = now.0.saturating_sub(self.beat.load(Ordering::Relaxed));
        self.beat.store(now.0, Ordering::Relaxed);
        let late = gap.saturating_sub(PULSE.as_nanos() as u64);
        if late > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.store(late, Ordering::Relaxed);
        }
    }

    /// How long ago the executor was last seen alive; `None` before it started.
    pub(crate) fn age(&self) -> Option<Duration> {
        let beat = self.beat.load(Ordering::Relaxed);
        (beat > 0).then(|| clock::now().since(Time(beat)))
    }

    /// How often the watchdog interrupted it.
    pub(crate) fn rescues(&self) -> u64 {
        self.rescues.load(Ordering::Relaxed)
    }

    /// The longest delay of its beat.
    pub(crate) fn longest_stall(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }
}

/// The watching thread; it ends when this is dropped.
pub(crate) struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to watch.
    ///
    /// # Errors
    /// When the signal handler or the thread cannot be had.
    pub(crate) fn start(beats: Vec<Arc<Heartbeat>>) -> std::io::Result<Watchdog> {
        sys::install_wake_signal()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(PULSE);
                beats.iter().for_each(|b| rescue_if_stale(b));
            }
        })?;
        Ok(Watchdog { stop, thread: Some(thread) })
    }
}

fn rescue_if_stale(heartbeat: &Heartbeat) {
    let thread = heartbeat.thread.load(Ordering::Acquire);
    if thread == 0 || heartbeat.age().is_none_or(|age| age <= STALE) {
        return;
    }
    // An executor that ended keeps its number; there is nobody to wake then.
    if sys::wake_thread(thread).is_ok() {
        heartbeat.rescues.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Only a panic of the thread could be reported, and its hook has done that.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glommio::{LocalExecutorBuilder, Placement};
    use std::time::Instant;

    /// Four executors with our settings on the machine's CPUs, each with a busy task, and threads
    /// that only burn CPU beside them: all of them must reach a count of beats that a parked one
    /// never would.
    #[test]
    fn executors_never_stop_for_good_under_load() {
        const BEATS: u64 = 200;
        let beats: Vec<Arc<Heartbeat>> = (0..4).map(|_| Arc::default()).collect();
        let watchdog = Watchdog::start(beats.clone()).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let burners: Vec<_> = (0..4)
            .map(|_| {
                let done = Arc::clone(&done);
                std::thread::spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        let executors: Vec<_> = beats.iter().map(|b| spawn_busy(Arc::clone(b), BEATS)).collect();
        for executor in executors {
            executor.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        burners.into_iter().for_each(|b| b.join().unwrap());
        drop(watchdog);
    }

    fn spawn_busy(beat: Arc<Heartbeat>, beats: u64) -> glommio::ExecutorJoinHandle<()> {
        let builder = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20);
        builder
            .spawn(move || async move {
                beat.start();
                let beating = Arc::clone(&beat);
                let pulse = glommio::spawn_local(async move {
                    loop {
                        glommio::timer::sleep(PULSE).await;
                        beating.beat(clock::now());
                    }
                });
                let busy = glommio::spawn_local(async {
                    loop {
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_micros(500) {
                            std::hint::spin_loop();
                        }
                        glommio::timer::sleep(Duration::from_micros(50)).await;
                    }
                });
                let mut seen = 0;
                let mut last = 0;
                while seen < beats {
                    glommio::timer::sleep(Duration::from_millis(2)).await;
                    let now = beat.beat.load(Ordering::Relaxed);
                    seen += u64::from(now != last);
                    last = now;
                }
                busy.cancel().await;
                pulse.cancel().await;
            })
            .unwrap()
    }

    #[test]
    fn a_signal_interrupts_a_sleeping_system_call() {
        sys::install_wake_signal().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(sys::thread_id()).unwrap();
            // Not restarted: the pause of a read on an idle pipe ends with EINTR.
            let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut byte = [0];
            std::io::Read::read(&mut &reader, &mut byte).unwrap_err().kind()
        });
        let thread = told.recv().unwrap();
        while !sleeper.is_finished() {
            // It may be gone by now: then there is nothing to wake.
            let _ = sys::wake_thread(thread);
            std::thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), std::io::ErrorKind::Interrupted);
    }
}

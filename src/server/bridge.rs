//! How a glommio task waits for an epoll set.
//!
//! glommio polls a freshly made `TcpStream` once for reading, through its main ring, on whatever
//! descriptor the stream wraps. So a stream around a duplicate of the epoll descriptor completes
//! when the set has something ready: the first poll of a read only waits for that, the second tries
//! recv(2), which fails with ENOTSOCK, and that failure is the answer "ready". It is one-shot: one
//! stream for each wait. This leans on a detail of glommio 0.9.0, hence the exact version in
//! Cargo.toml, [`self_test`] at every start, and polling by time where the test fails.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::{AsyncRead, FutureExt};
use glommio::net::TcpStream;
use glommio::timer::Timer;

use super::sys::{self, Epoll};

/// Between two looks at the set where the bridge does not work.
const POLLING: Duration = Duration::from_millis(1);

/// One wait for an epoll set to have something ready. May be polled from any task of the executor
/// that made it, again and again; it stays ready once it is.
pub(crate) struct Readiness {
    waiting: RefCell<Waiting>,
}

enum Waiting {
    Bridge(TcpStream),
    Timer(Timer),
    Done,
}

impl Readiness {
    /// Starts to wait. With `bridge` false it waits for a millisecond instead.
    pub(crate) fn new(set: &Epoll, bridge: bool) -> io::Result<Readiness> {
        let waiting = if bridge {
            Waiting::Bridge(sys::poll_stream(set)?)
        } else {
            Waiting::Timer(Timer::new(POLLING))
        };
        Ok(Readiness { waiting: RefCell::new(waiting) })
    }

    /// Whether the set may have something ready.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.waiting.borrow_mut();
        let ready = match &mut *waiting {
            // Whatever the read returns, even an error, the wait is over.
            Waiting::Bridge(stream) => Pin::new(stream).poll_read(cx, &mut [0]).map(drop),
            Waiting::Timer(timer) => Pin::new(timer).poll(cx).map(drop),
            Waiting::Done => Poll::Ready(()),
        };
        if ready.is_ready() {
            *waiting = Waiting::Done;
        }
        ready
    }
}

/// Whether the bridge works here: it must not complete while the set is idle, and must once a
/// descriptor in it is readable. Run it on the executor that will use the bridge.
pub(crate) async fn self_test() -> bool {
    match test_once().await {
        Ok(works) => works,
        Err(error) => {
            tracing::warn!(%error, "the self-test of the epoll bridge could not run");
            false
        }
    }
}

async fn test_once() -> io::Result<bool> {
    let set = Epoll::new()?;
    let (reader, mut writer) = std::os::unix::net::UnixStream::pair()?;
    set.add(&reader, sys::READ, 1)?;
    for _ in 0..2 {
        let wait = Readiness::new(&set, true)?;
        if within(Duration::from_millis(5), &wait).await {
            return Ok(false);
        }
        io::Write::write_all(&mut writer, &[1])?;
        if !within(Duration::from_secs(2), &wait).await {
            return Ok(false);
        }
        // Level-triggered: a new wait is over at once while the byte is unread.
        if !within(Duration::from_secs(2), &Readiness::new(&set, true)?).await {
            return Ok(false);
        }
        io::Read::read_exact(&mut &reader, &mut [0])?;
    }
    debug_assert!(set.as_raw_fd() >= 0);
    Ok(true)
}

async fn within(limit: Duration, wait: &Readiness) -> bool {
    let ready = async {
        std::future::poll_fn(|cx| wait.poll(cx)).await;
        true
    };
    let late = async {
        Timer::new(limit).await;
        false
    };
    ready.or(late).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use glommio::{LocalExecutorBuilder, Placement};

    #[test]
    fn the_bridge_wakes_a_task_when_the_set_is_ready_and_not_before() {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20);
        assert!(executor.spawn(self_test).unwrap().join().unwrap());
    }

    #[test]
    fn polling_by_time_stands_in_for_the_bridge() {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20);
        let run = executor.spawn(|| async {
            let set = Epoll::new().unwrap();
            within(Duration::from_secs(5), &Readiness::new(&set, false).unwrap()).await
        });
        assert!(run.unwrap().join().unwrap());
    }

    #[test]
    fn waiting_leaves_no_descriptor_behind() {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20);
        let run = executor.spawn(|| async {
            let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let set = Epoll::new().unwrap();
            let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
            set.add(&reader, sys::READ, 1).unwrap();
            io::Write::write_all(&mut writer, &[1]).unwrap();
            let before = open();
            for _ in 0..500 {
                let wait = Readiness::new(&set, true).unwrap();
                std::future::poll_fn(|cx| wait.poll(cx)).await;
            }
            // Other tests of this process open and close descriptors meanwhile.
            open() < before + 200
        });
        assert!(run.unwrap().join().unwrap());
    }
}

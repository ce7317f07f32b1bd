//! Ending well: tell the guards, wait for the work under them to stop, then let go. A lock that is
//! released while its work still runs protects nothing.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::command::Command;
use crate::error::{CallError, LostReason, ShutDownError};
use crate::session::{Handle, Session};

/// How long the close may take when every guard is gone; what it does not reach expires.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// Hears of SIGTERM and SIGINT, from [`Termination::listen`] on. From then on these signals do not end the
/// process any more, not even when this is dropped: the program must end by itself.
#[derive(Debug)]
pub struct Termination {
    terminate: Signal,
    interrupt: Signal,
    came: bool,
}

impl Termination {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system lets nobody listen for signals.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn listen() -> io::Result<Termination> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Termination { terminate, interrupt, came: false })
    }

    /// Completes when one of them has come since, and from then on at once. Dropping the future loses
    /// nothing.
    pub async fn received(&mut self) {
        if !self.came {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            self.came = true;
        }
    }
}

impl Session {
    /// Shuts the session down. Every guard and leadership of it is lost at once, with
    /// [`LostReason::ShuttingDown`]; whoever still waits for a lock gets that as an error, and nothing new
    /// is granted. From here on the session is not renewed any more, so the locks stay taken until their
    /// guards are dropped (each is released then), but no longer than the rest of the lease.
    ///
    /// Waits for the guards for at most `within`, then closes the session under a short deadline of its own
    /// (3 s, and no longer than calls may take). If guards remain, the session is left to expire.
    ///
    /// May be called again, also by others: they wait for the same end. A session that was closed or shut
    /// down before is no error.
    ///
    /// ```no_run
    /// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let guard = session.fenced("invoices/run", "billing-db").acquire().await?;
    /// let work = tokio::spawn(async move {
    ///     let reason = guard.lost().await;
    ///     println!("stopping: {reason}");
    ///     // Put things in order here, then drop the guard: that releases the lock.
    ///     drop(guard);
    /// });
    /// session.shut_down(Duration::from_secs(10)).await?;
    /// work.await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ShutDownError::GuardsRemain`] when `within` was too short; [`ShutDownError::Call`] with
    /// [`CallError::SessionLost`] when the session was lost before its guards were dropped, with
    /// [`CallError::Unavailable`] when no usable cluster confirmed the close in time.
    pub async fn shut_down(&self, within: Duration) -> Result<(), ShutDownError> {
        shut_down(&self.handle, within).await
    }

    /// Shuts the session down when this process gets SIGTERM or SIGINT, as [`Session::shut_down`] says, and
    /// tells the end of it. Listens from this call on, as [`Termination`] does; the future is to be spawned.
    /// It does not keep the session open: of one that is closed or dropped by then there is nothing to shut
    /// down. A program that opens one session after the other listens by a [`Termination`] of its own, lest a
    /// signal come between two of them.
    ///
    /// ```no_run
    /// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// # async fn lead() {}
    /// use std::time::Duration;
    ///
    /// let shutting_down = tokio::spawn(session.shut_down_at_signal(Duration::from_secs(10))?);
    /// let leadership = session.campaign("scheduler", "10.0.0.7:9000").lead().await?;
    /// tokio::select! {
    ///     reason = leadership.lost() => eprintln!("stopping: {reason}"),
    ///     () = lead() => {}
    /// }
    /// drop(leadership);
    /// shutting_down.await??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the system lets nobody listen for signals.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn shut_down_at_signal(
        &self,
        within: Duration,
    ) -> io::Result<impl Future<Output = Result<(), ShutDownError>> + Send + use<>> {
        let mut termination = Termination::listen()?;
        let session: Weak<Handle> = Arc::downgrade(&self.handle);
        Ok(async move {
            termination.received().await;
            match session.upgrade() {
                Some(handle) => shut_down(&handle, within).await,
                None => Ok(()),
            }
        })
    }
}

async fn shut_down(handle: &Handle, within: Duration) -> Result<(), ShutDownError> {
    let (reply, answer) = oneshot::channel();
    handle.shared.send(Command::Drain { tag: handle.tag, reply })?;
    let Ok(mut drain) = answer.await else { return before(handle) };
    let over = async {
        let done = drain.wait_for(|drain| drain.left == 0 || drain.over.is_some()).await;
        // A driver that has gone took the session with it.
        done.map_or(Some(LostReason::Stopped), |drain| drain.over.clone())
    };
    let Ok(over) = tokio::time::timeout(within, over).await else {
        let left = drain.borrow().left;
        return Err(ShutDownError::GuardsRemain { left, gone_within: handle.opened().gone_within });
    };
    match over {
        None => close(handle).await,
        Some(LostReason::Closed) => Ok(()),
        Some(LostReason::Stopped) => Err(CallError::Stopped.into()),
        Some(reason) => Err(CallError::SessionLost(reason).into()),
    }
}

/// The end of a session that was over before it was to be shut down.
fn before(handle: &Handle) -> Result<(), ShutDownError> {
    match handle.lost_now() {
        Some(LostReason::Closed | LostReason::ShuttingDown) => Ok(()),
        Some(LostReason::Stopped) | None => Err(CallError::Stopped.into()),
        Some(reason) => Err(CallError::SessionLost(reason).into()),
    }
}

async fn close(handle: &Handle) -> Result<(), ShutDownError> {
    let (reply, answer) = oneshot::channel();
    handle.shared.send(Command::Close { tag: handle.tag, reply: Some(reply) })?;
    Ok(handle.shared.answer_within(CLOSE_WITHIN, answer).await?)
}

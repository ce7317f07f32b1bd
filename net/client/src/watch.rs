//! Watches: streams of what changes.
//!
//! A watch has a task and a connection of its own, to any node. Between them and the application lies a
//! short queue; while that is full the connection is not read, and nothing else of the client is held
//! up: sessions are renewed over another connection. The server then keeps its place in the history,
//! leaves out all but the newest change of each key when it is far behind, and in the end begins anew;
//! the stream says so.

use std::sync::Arc;

use palisade_client_core::{self as core, Input, LinkId, WatchAction, WatchFrom};
pub use palisade_client_core::{Listing, WatchItem};
use palisade_types::{Cursor, Refusal, Selector};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::client::Shared;
use crate::clock::{self, Alarm};
use crate::driver::random;
use crate::link::{Link, LinkEvent};

/// Items that may wait for the application.
const QUEUE: usize = 256;
/// Pieces of what was received that may wait behind them.
const LINK_EVENTS: usize = 4;

/// Why a watch is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The cursor belongs to another cluster, or to this one before it was restored from a backup. What
    /// was known may not hold there: watch anew from the present state.
    #[error("the cluster is another one, or was restored: watch anew from the present state")]
    ClusterReset,
    /// The cluster refuses for good.
    #[error(transparent)]
    Refused(Refusal),
    /// The watch's task no longer runs: its runtime has shut down, or the system gives no timer.
    #[error("the watch has stopped")]
    Stopped,
}

impl WatchError {
    /// Whether the same watch, begun again, can never go on. One of a cluster that was reset can be begun
    /// from the present state.
    pub fn is_final(&self) -> bool {
        match self {
            WatchError::Refused(refusal) => refusal.is_final(),
            WatchError::ClusterReset | WatchError::Stopped => true,
        }
    }
}

/// A watch that has not begun. Made by [`crate::Client::watch`].
#[must_use = "nothing is watched before `start` is called"]
pub struct WatchRequest {
    shared: Arc<Shared>,
    selector: Selector,
    from: WatchFrom,
}

impl WatchRequest {
    pub(crate) fn new(shared: Arc<Shared>, selector: Selector) -> WatchRequest {
        WatchRequest { shared, selector, from: WatchFrom::Present }
    }

    /// Begin with what happens from now on, instead of with the present state.
    pub fn from_now(self) -> WatchRequest {
        WatchRequest { from: WatchFrom::Now, ..self }
    }

    /// Go on behind what is known already, instead of beginning with the present state.
    pub fn after(self, cursor: Cursor) -> WatchRequest {
        WatchRequest { from: WatchFrom::Cursor(cursor), ..self }
    }

    /// Begins the watch, on the current tokio runtime. It does not wait for the cluster.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self) -> Watch {
        let (items, queue) = mpsc::channel(QUEUE);
        let WatchRequest { shared, selector, from } = self;
        let task = tokio::spawn(run(Arc::clone(&shared), selector, from, items)).abort_handle();
        Watch { queue, task, over: None, _shared: shared }
    }
}

/// A stream of what changes: see [`WatchItem`]. It resumes by itself at another node when its connection
/// breaks, with no gap and no repetition; where that cannot be, it begins anew with the present state
/// and says why. Dropping it ends it.
///
/// ```no_run
/// # async fn example(client: palisade_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use palisade_client::{Selector, WatchItem};
///
/// let mut watch = client.watch(Selector::prefix("jobs/")?).start();
/// loop {
///     match watch.next().await? {
///         WatchItem::Row(event) | WatchItem::Change { event, .. } => println!("{event:?}"),
///         WatchItem::Listing(why) => println!("from the beginning: {why:?}"),
///         WatchItem::Listed { cursor } => println!("all is known, up to {cursor}"),
///         WatchItem::Progress { .. } => {}
///     }
/// }
/// # }
/// ```
pub struct Watch {
    queue: mpsc::Receiver<Result<WatchItem, WatchError>>,
    task: AbortHandle,
    over: Option<WatchError>,
    /// The client's task must live as long: the blocking front runs both on one thread.
    _shared: Arc<Shared>,
}

impl Watch {
    /// The next item. A mark of progress comes about every five seconds when nothing else does. Dropping
    /// the future loses nothing.
    ///
    /// # Errors
    /// [`WatchError`], and again whenever it is called.
    pub async fn next(&mut self) -> Result<WatchItem, WatchError> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        let next = self.queue.recv().await.unwrap_or(Err(WatchError::Stopped));
        if let Err(error) = &next {
            self.over = Some(error.clone());
        }
        next
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task of a watch: what [`crate::driver`] is for sessions.
async fn run(
    shared: Arc<Shared>,
    selector: Selector,
    from: WatchFrom,
    items: mpsc::Sender<Result<WatchItem, WatchError>>,
) {
    let (Ok(seed), Ok(mut alarm)) = (random().map(u64::from_le_bytes), Alarm::new()) else { return };
    let Ok(mut watch) = core::Watch::new(shared.config.clone(), selector, from, seed, clock::now()) else {
        return;
    };
    let (events_in, mut events) = mpsc::channel(LINK_EVENTS);
    let mut link: Option<(LinkId, Link)> = None;
    loop {
        while let Some(action) = watch.poll_action() {
            match action {
                WatchAction::Dial { link: id, endpoint } => {
                    link = Some((id, Link::start(id, endpoint, events_in.clone())));
                }
                WatchAction::Hangup { link: id } => drop(link.take_if(|(current, _)| *current == id)),
                WatchAction::Send { link: id, bytes } => {
                    if let Some((_, link)) = link.as_ref().filter(|(current, _)| *current == id) {
                        link.send(bytes);
                    }
                }
                // Nothing is read while the application does not read either.
                WatchAction::Item(item) => {
                    if items.send(Ok(item)).await.is_err() {
                        return;
                    }
                }
                WatchAction::Failed(error) => {
                    let error = match error {
                        core::WatchError::ClusterReset => WatchError::ClusterReset,
                        core::WatchError::Refused(refusal) => WatchError::Refused(refusal),
                    };
                    // Nobody reads any more? Then nobody needs to know.
                    let _ = items.send(Err(error)).await;
                    return;
                }
                WatchAction::LinkDown { endpoint, error } => {
                    tracing::debug!(endpoint, ?error, "a watch lost its connection");
                    shared.trouble.note_link(&endpoint, &error);
                }
            }
        }
        if alarm.set(watch.next_deadline()).is_err() {
            return;
        }
        tokio::select! {
            // What has arrived before the time: it may have waited while the application did not read.
            biased;
            Some(event) = events.recv() => match event {
                LinkEvent::Up(id) => watch.handle(clock::now(), Input::Connected { link: id }),
                LinkEvent::Received(id, bytes) => {
                    watch.handle(clock::now(), Input::Received { link: id, bytes: &bytes });
                }
                LinkEvent::Down(id, endpoint, error) => {
                    shared.trouble.note(format!("{endpoint}: {error}"));
                    watch.handle(clock::now(), Input::Disconnected { link: id });
                }
            },
            rung = alarm.rung() => match rung {
                Ok(()) => watch.handle(clock::now(), Input::Tick),
                Err(_) => return,
            },
        }
    }
}

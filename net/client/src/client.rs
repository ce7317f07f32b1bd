//! The client: a handle to a task that speaks with the cluster.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palisade_client_core::{CallRequest, CoreConfig, LinkError};
use palisade_types::reply::{NodeStatus, ReadMark};
use palisade_types::{
    Description, LockRow, LogIndex, OperatorRow, Reply, ResourceRow, Selector, SessionId, SessionRow,
};
use tokio::sync::{mpsc, oneshot};

use crate::command::{Command, Tag};
use crate::config::ClientConfig;
use crate::driver::Driver;
use crate::error::{CallError, ConnectError};
use crate::session::SessionBuilder;
use crate::watch::WatchRequest;

/// What all handles share.
pub(crate) struct Shared {
    commands: mpsc::UnboundedSender<Command>,
    tags: AtomicU64,
    call_timeout: Duration,
    pub(crate) trouble: Trouble,
    /// For connections of their own.
    pub(crate) config: CoreConfig,
}

/// What went wrong last on the way to the cluster, for messages.
#[derive(Clone, Default)]
pub(crate) struct Trouble(Arc<Mutex<String>>);

impl Trouble {
    /// Remembers it.
    pub(crate) fn note(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Remembers why a link was given up, unless it merely broke: the reason is then known better.
    pub(crate) fn note_link(&self, endpoint: &str, error: &LinkError) {
        let text = match error {
            LinkError::Closed => return,
            LinkError::Timeout => "does not answer".to_owned(),
            LinkError::Silent => "has fallen silent".to_owned(),
            LinkError::Protocol(what) => format!("does not speak our protocol: {what}"),
            LinkError::Refused { text, .. } => format!("refuses us: {text}"),
            LinkError::OtherCluster => "belongs to another cluster".to_owned(),
            LinkError::NotLeader { leader: Some(leader) } => format!("says that node {leader} leads"),
            LinkError::NotLeader { leader: None } => "knows no leader".to_owned(),
            LinkError::Compacted => "no longer keeps what a watch needs".to_owned(),
            LinkError::Refusing(refusal) => refusal.to_string(),
        };
        self.note(format!("{endpoint}: {text}"));
    }

    fn text(&self) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if text.is_empty() { "no answer".to_owned() } else { text }
    }
}

impl Shared {
    pub(crate) fn next_tag(&self) -> Tag {
        Tag(self.tags.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn send(&self, command: Command) -> Result<(), CallError> {
        self.commands.send(command).map_err(|_| CallError::Stopped)
    }

    /// Waits for an answer as long as calls may take.
    pub(crate) async fn answer<T>(
        &self,
        answer: oneshot::Receiver<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        self.answer_within(self.call_timeout, answer).await
    }

    /// Waits for an answer no longer than this, and no longer than calls may take.
    pub(crate) async fn answer_within<T>(
        &self,
        time: Duration,
        answer: oneshot::Receiver<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let waited = time.min(self.call_timeout);
        match tokio::time::timeout(waited, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(CallError::Stopped),
            Err(_) => Err(CallError::Unavailable { waited, last: self.trouble.text() }),
        }
    }
}

/// An answer and what it promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// What was asked for.
    pub value: T,
    /// The consistency it has, and the revision it describes.
    pub read: ReadMark,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows, in order.
    pub rows: Vec<T>,
    /// There are more behind the last of these.
    pub more: bool,
    /// The consistency of this page, and the revision it describes. Pages of one listing are read
    /// one after the other and may describe different revisions.
    pub read: ReadMark,
}

/// A client of one cluster: finds the leader, reconnects, retries. Cheap to clone. Its task ends
/// when the last clone, session and guard is gone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use palisade_client::{Client, ClientConfig};
///
/// let endpoints = ["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"];
/// let client = Client::connect(ClientConfig::new(endpoints))?;
/// let answer = client.describe("invoices/run").await?;
/// println!("epoch {} at revision {}", answer.value.epoch, answer.read.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Starts a client on the current tokio runtime (which must have I/O and time enabled). It does
    /// not wait for the cluster: calls do.
    ///
    /// # Errors
    /// [`ConnectError::Config`], and [`ConnectError::System`] when the kernel gives no timer.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn connect(config: ClientConfig) -> Result<Client, ConnectError> {
        let (client, driver) = Client::begin(config)?;
        tokio::spawn(driver.run());
        Ok(client)
    }

    /// The handle, and what is to run for it on a runtime, this one.
    pub(crate) fn begin(config: ClientConfig) -> Result<(Client, Driver), ConnectError> {
        if let Some(fault) = config.fault() {
            return Err(ConnectError::Config(fault));
        }
        let (commands, orders) = mpsc::unbounded_channel();
        let trouble = Trouble::default();
        let call_timeout = config.call_timeout;
        let driver = Driver::new(&config, orders, trouble.clone())?;
        let config = config.for_core();
        let shared = Shared { commands, tags: AtomicU64::new(1), call_timeout, trouble, config };
        Ok((Client { shared: Arc::new(shared) }, driver))
    }

    /// A session to be opened.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder::new(self.shared.clone())
    }

    /// All about a key: who holds it, who waits, what happened to it last. Linearizable, from the leader.
    ///
    /// # Errors
    /// [`CallError::Unavailable`], [`CallError::Name`], [`CallError::Refused`].
    pub async fn describe(&self, key: &str) -> Result<Answer<Description>, CallError> {
        self.read().describe(key).await
    }

    /// A page of the keys that have a record, in order, behind `after`. At most `rows` rows, and at
    /// most 1,000. Linearizable, from the leader.
    ///
    /// ```no_run
    /// # async fn example(client: palisade_client::Client) -> Result<(), palisade_client::CallError> {
    /// let mut after = None;
    /// loop {
    ///     let page = client.locks(after.as_deref(), 1000).await?;
    ///     for row in &page.rows {
    ///         println!("{} {}", row.key, row.epoch);
    ///     }
    ///     match page.rows.last() {
    ///         Some(last) if page.more => after = Some(last.key.to_string()),
    ///         _ => return Ok(()),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn locks(&self, after: Option<&str>, rows: u32) -> Result<Page<LockRow>, CallError> {
        self.read().locks(after, rows).await
    }

    /// A page of the live sessions, in order, behind `after`; otherwise as [`Client::locks`].
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn sessions(&self, after: Option<SessionId>, rows: u32) -> Result<Page<SessionRow>, CallError> {
        self.read().sessions(after, rows).await
    }

    /// A page of the resources that locks name, in order, behind `after`, each with the keys that protect it:
    /// more than one are a conflict, for their locks do not exclude each other. `conflicts`: only those.
    /// Otherwise as [`Client::locks`].
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn resources(
        &self,
        conflicts: bool,
        after: Option<&str>,
        rows: u32,
    ) -> Result<Page<ResourceRow>, CallError> {
        self.read().resources(conflicts, after, rows).await
    }

    /// What the node that this client is connected to says of itself: local, and no statement about
    /// the cluster. To ask a certain node, give a client that endpoint alone.
    ///
    /// # Errors
    /// [`CallError::Unavailable`], [`CallError::Refused`].
    pub async fn status(&self) -> Result<NodeStatus, CallError> {
        match self.call(CallRequest::Status).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// A page of what operators did to sessions and keys, oldest first, behind a revision
    /// (`LogIndex(0)` begins at the oldest of the last 1,000); otherwise as [`Client::locks`].
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn operator_acts(&self, after: LogIndex, rows: u32) -> Result<Page<OperatorRow>, CallError> {
        self.read().operator_acts(after, rows).await
    }

    /// A watch of keys or sessions, not yet begun.
    pub fn watch(&self, selector: Selector) -> WatchRequest {
        WatchRequest::new(self.shared.clone(), selector)
    }

    pub(crate) async fn call(&self, request: CallRequest) -> Result<Reply, CallError> {
        let (reply, answer) = oneshot::channel();
        let tag = self.shared.next_tag();
        self.shared.send(Command::Read { tag, request, reply })?;
        // A call that nobody waits for any more is not repeated.
        let _asked = Asked { shared: &self.shared, tag };
        self.shared.answer(answer).await
    }
}

struct Asked<'a> {
    shared: &'a Shared,
    tag: Tag,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let _ = self.shared.send(Command::DropRead { tag: self.tag });
    }
}

/// A server that answers a call with something else does not speak our protocol.
pub(crate) fn unexpected(reply: &Reply) -> CallError {
    match reply {
        Reply::Refused(refusal) => CallError::Refused(refusal.clone()),
        _ => CallError::Refused(palisade_types::Refusal::BadRequest {
            reason: "the answer does not fit the question".to_owned(),
        }),
    }
}

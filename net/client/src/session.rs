//! Sessions: the unit of liveness. A session owns locks, waits and ephemeral keys; when it ends they end
//! with it.

use std::sync::Arc;
use std::time::Duration;

use palisade_client_core::SessionSpec;
use palisade_types::{Name, SessionId};
use tokio::sync::oneshot;

use crate::client::Shared;
use crate::command::{Command, Lease, LostReceiver, Opened, Tag};
use crate::error::{CallError, LostReason, name};
use crate::lock::{AdvisoryRequest, FencedRequest};
use crate::renewals::Renewals;

/// What a session is to be like. Made by [`crate::Client::session`].
#[derive(Clone)]
#[must_use = "a builder opens nothing until `open` is awaited"]
pub struct SessionBuilder {
    shared: Arc<Shared>,
    ttl: Option<Duration>,
    owner: Option<String>,
    incarnation: Option<String>,
}

impl SessionBuilder {
    pub(crate) fn new(shared: Arc<Shared>) -> SessionBuilder {
        SessionBuilder { shared, ttl: None, owner: None, incarnation: None }
    }

    /// For how long a silent session lives: 500 ms to 1 h, 30 s by default. Shorter frees the locks
    /// of a dead process sooner; below three election timeouts (6 s) a change of leader may end a
    /// session whose owner is well.
    pub fn ttl(mut self, ttl: Duration) -> SessionBuilder {
        self.ttl = Some(ttl);
        self
    }

    /// A tag for people and for death reports, such as a host name. Shown to whoever is denied.
    pub fn owner(mut self, owner: impl Into<String>) -> SessionBuilder {
        self.owner = Some(owner.into());
        self
    }

    /// A tag that tells this life of the owner from its earlier ones, such as a pod's uid.
    pub fn incarnation(mut self, incarnation: impl Into<String>) -> SessionBuilder {
        self.incarnation = Some(incarnation.into());
        self
    }

    /// Opens the session. It renews itself from now on, in the background, until it is closed, lost,
    /// or the last handle and guard is dropped. Dropping the future gives the session up.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] after the configured time without a usable cluster,
    /// [`CallError::Name`] for a bad tag, [`CallError::Refused`].
    pub async fn open(self) -> Result<Session, CallError> {
        let spec = SessionSpec {
            ttl: self.ttl.unwrap_or_default(),
            owner: tag_name("owner", self.owner.as_deref())?,
            incarnation: tag_name("incarnation", self.incarnation.as_deref())?,
        };
        let tag = self.shared.next_tag();
        let lease = Arc::new(Lease::default());
        let (lost_in, lost) = tokio::sync::watch::channel(None);
        let (reply, answer) = oneshot::channel();
        // From here on dropping the future closes whatever comes of the open.
        let mut handle = Handle { shared: self.shared, tag, lease: lease.clone(), lost, opened: None };
        handle.shared.send(Command::Open { tag, spec, lease, lost: lost_in, reply })?;
        let opened = handle.shared.answer(answer).await?;
        handle.opened = Some(opened);
        Ok(Session { handle: Arc::new(handle) })
    }
}

fn tag_name(what: &'static str, text: Option<&str>) -> Result<Option<Name>, CallError> {
    text.map(|t| name(what, t)).transpose()
}

/// The last owner of a session in this process: when it goes, the session is closed.
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tag: Tag,
    pub(crate) lease: Arc<Lease>,
    pub(crate) lost: LostReceiver,
    opened: Option<Opened>,
}

impl Handle {
    pub(crate) fn opened(&self) -> &Opened {
        self.opened.as_ref().expect("a session is handed out only after its open was answered")
    }

    /// Why it is lost, if the driver has noticed yet.
    pub(crate) fn lost_now(&self) -> Option<LostReason> {
        lost_now(&self.lost)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Without a driver nothing is renewed, and the session expires.
        let _ = self.shared.send(Command::Close { tag: self.tag, reply: None });
    }
}

/// What the driver has reported so far.
pub(crate) fn lost_now(lost: &LostReceiver) -> Option<LostReason> {
    let seen = lost.borrow().clone();
    seen.or_else(|| lost.has_changed().is_err().then_some(LostReason::Stopped))
}

/// Waits for the driver's report.
pub(crate) async fn lost(mut lost: LostReceiver) -> LostReason {
    match lost.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or(LostReason::Stopped),
        Err(_) => LostReason::Stopped,
    }
}

/// An open session. Cheap to clone; it renews itself at a third of its TTL, undisturbed by what the
/// application does, and is closed when the last clone and the last guard are dropped, on whatever thread.
/// A program that is told to end calls [`Session::shut_down`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use palisade_client::{Client, ClientConfig};
///
/// let client = Client::connect(ClientConfig::new(["127.0.0.1:7401"]))?;
/// let session = client.session().ttl(Duration::from_secs(15)).owner("host-7").open().await?;
/// println!("session {}, gone within {:?} of a crash", session.id(), session.gone_within());
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    pub(crate) handle: Arc<Handle>,
}

impl Session {
    /// Its id: in listings, and to ask why it ended.
    pub fn id(&self) -> SessionId {
        self.handle.opened().session
    }

    /// The TTL the cluster granted.
    pub fn ttl(&self) -> Duration {
        self.handle.opened().ttl
    }

    /// If this process dies, its locks are free again within this time, unless the leader changes.
    pub fn gone_within(&self) -> Duration {
        self.handle.opened().gone_within
    }

    /// Whether the TTL is so short that a change of leader may outlast it.
    pub fn is_short(&self) -> bool {
        self.handle.opened().short_ttl
    }

    /// Whether the session may still be relied upon. Asks the clock, so the answer is right even if
    /// this process was stopped a moment ago.
    pub fn is_valid(&self) -> bool {
        self.handle.lost_now().is_none() && !self.handle.lease.remaining().is_zero()
    }

    /// How long the session may still be relied upon without another renewal; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        if self.handle.lost_now().is_some() { Duration::ZERO } else { self.handle.lease.remaining() }
    }

    /// Completes when the session is lost, a margin (a tenth of the TTL, at most 1 s) before silence
    /// can end the lease elsewhere. May be awaited any number of times.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        lost(self.handle.lost.clone())
    }

    /// Its renewals as they are acknowledged: for a process beside this one that is to end with the lease
    /// although this one is stopped, hung or dead.
    pub fn renewals(&self) -> Renewals {
        Renewals::of(self.handle.lease.clone())
    }

    /// A lock for correctness: names the resource it protects, and its guard's fence is to be shown
    /// to that resource with every write.
    pub fn fenced(&self, key: impl Into<String>, resource: impl Into<String>) -> FencedRequest {
        FencedRequest::new(self.handle.clone(), key.into(), resource.into())
    }

    /// A lock for efficiency: running twice would be waste, not corruption.
    pub fn advisory(&self, key: impl Into<String>) -> AdvisoryRequest {
        AdvisoryRequest::new(self.handle.clone(), key.into())
    }

    /// Ends the session, and with it every lock and wait it still has: their guards are lost.
    /// Dropping the future does not take the close back.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] when no usable cluster confirmed it in time: it is still tried, and
    /// at the latest the session expires. [`CallError::SessionLost`] when it was lost before.
    pub async fn close(self) -> Result<(), CallError> {
        let (reply, answer) = oneshot::channel();
        self.handle.shared.send(Command::Close { tag: self.handle.tag, reply: Some(reply) })?;
        self.handle.shared.answer(answer).await
    }
}

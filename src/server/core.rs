//! The loop of one core: everything that happened since the last turn goes into the shard, the turn
//! is finished, and what the shard asks for is carried out. One task, bounded turns, one place where
//! it sleeps.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::FutureExt;
use glommio::timer::Timer;
use palisade_shard::{Actions, Input, Shard, ShardConfig};
use palisade_types::reply::NodeStatus;
use palisade_types::{ConnId, LogIndex, NodeId, Term, Time};
use palisade_wal::{DiskFault, OpId, Recovered};

use super::bridge::{self, Readiness};
use super::conn::Role;
use super::disk::Disk;
use super::inbox::{Event, Inbox, Outside, Owner, Report};
use super::members::Members;
use super::metrics::Metrics;
use super::peers::Peers;
use super::sockets::{Ready, Sockets};
use super::stages::Stages;
use super::sys::Epoll;
use super::{fatal, inbox};
use crate::clock;

/// How long a stopping node waits for the disk.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// A loop that did not run for so long was held up.
const PAUSE: Duration = Duration::from_millis(200);
/// Looks at the sockets in one turn of the loop …
const LOOKS_PER_TURN: usize = 2;
/// … if fewer than this were ready at the first.
const FEW_READY: usize = 16;
/// Turns of the sockets after a pause, at most: others wait too.
const DRAIN_TURNS_MAX: usize = 1_000;

/// What a core is built from, on its own thread.
pub(crate) struct CoreParts {
    pub(crate) dir: PathBuf,
    pub(crate) members: Members,
    /// The first write of BOOT, for a node that forms alone.
    pub(crate) store: Option<palisade_wal::DiskOp>,
    pub(crate) shard: ShardConfig,
    pub(crate) recovered: Recovered,
    /// Of every random draw of this core.
    pub(crate) seed: u64,
    pub(crate) settings: Settings,
    pub(crate) peers: std::collections::BTreeMap<NodeId, String>,
    pub(crate) listener: std::net::TcpListener,
    pub(crate) limits: super::sockets::SocketLimits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) outside: (async_channel::Sender<Outside>, async_channel::Receiver<Outside>),
}

/// What clients are told of this node.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) members: Vec<palisade_wire::Member>,
    pub(crate) in_flight: u32,
    pub(crate) election_min_ms: u32,
}

/// One core.
pub(crate) struct Core {
    pub(super) sockets: Sockets,
    pub(super) peers: Peers,
    pub(super) members: Members,
    pub(super) shard: Option<Shard>,
    /// What the shard is made from once the cluster is formed.
    unborn: Option<(ShardConfig, Recovered, u64)>,
    pub(super) actions: Actions,
    pub(super) disk: Disk,
    pub(super) settings: Settings,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stages: Stages,
    pub(super) scratch: Vec<u8>,
    inbox: Rc<Inbox>,
    ready: Vec<Ready>,
    readiness: Option<Readiness>,
    timer: Option<(Time, Timer)>,
    bridge: bool,
    bell: Bell,
    stopping: Option<Time>,
    pub(super) published: Time,
    /// The end of the last turn of the sockets.
    turned: Time,
}

impl Core {
    /// Prepares the executor this runs on and everything that needs it.
    ///
    /// # Errors
    /// What the disk or the sockets refused.
    pub(crate) async fn new(parts: CoreParts) -> Result<Core, CoreError> {
        let inbox = Rc::new(Inbox::default());
        let disk = Disk::open(&parts.dir, Rc::clone(&inbox), Arc::clone(&parts.metrics)).await?;
        let bridge = bridge::self_test().await;
        if !bridge {
            tracing::warn!("the epoll bridge does not work here: sockets are polled every millisecond");
        }
        let (sender, receiver) = parts.outside;
        glommio::spawn_local(inbox::pump(Rc::clone(&inbox), receiver)).detach();
        let sockets = Sockets::new(parts.listener, parts.limits, Arc::clone(&parts.metrics))?;
        let bell = Bell::new(sockets.epoll())?;
        let core = Core {
            sockets,
            peers: Peers::new(parts.peers, sender, parts.seed ^ 1),
            members: parts.members,
            shard: None,
            unborn: Some((parts.shard, parts.recovered, parts.seed)),
            actions: Actions::default(),
            disk,
            settings: parts.settings,
            metrics: parts.metrics,
            stages: Stages::new(clock::now()),
            scratch: Vec::new(),
            inbox,
            ready: Vec::new(),
            readiness: None,
            timer: None,
            bridge,
            bell,
            stopping: None,
            published: Time::ZERO,
            turned: clock::now(),
        };
        if let Some(op) = parts.store {
            core.disk.start(Owner::Boot, op);
        }
        Ok(core)
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// What the sockets refused.
    pub(crate) async fn run(mut self) -> Result<(), CoreError> {
        self.form_if_ready(clock::now());
        self.sockets.open()?;
        loop {
            self.sleep().await?;
            let now = clock::now();
            self.metrics.turns.one();
            self.take_inbox(now);
            // Sockets before time: what has arrived must count before anything expires, and after
            // every sleep, because the sleep may have been a long pause of the whole process.
            self.drain_sockets(now)?;
            self.sockets.expire(now);
            self.peers.act(now, &mut self.sockets);
            if let Some(shard) = &mut self.shard {
                shard.finish_turn(now, &mut self.actions);
            }
            self.carry_out(now);
            // Disks and peers have their work; now the answers.
            if let Some(shard) = &mut self.shard {
                shard.apply_turn(now, &mut self.actions);
            }
            if !self.actions.is_empty() {
                self.carry_out(now);
            }
            self.bury_closed(now);
            self.publish(now);
            if self.may_end(now) {
                return Ok(());
            }
        }
    }

    /// Does what the shard asks for, and sends all that it has to say.
    fn carry_out(&mut self, now: Time) {
        let replies = self.actions.replies.len() + self.actions.pushes.len();
        let decided = self.stages.take(now, &mut self.actions.passed);
        self.perform();
        self.sockets.flush();
        self.stages.replied(decided, replies);
    }

    /// Sleeps until something is in the inbox, a socket is ready or something is due. Never returns
    /// without having given glommio the chance to turn its rings: it does so only when this task
    /// waits.
    async fn sleep(&mut self) -> Result<(), CoreError> {
        let deadline = self.next_deadline();
        let now = clock::now();
        let at_once = deadline <= now || self.sockets.has_resumable();
        self.bell.ring(self.sockets.epoll(), at_once)?;
        if self.readiness.is_none() {
            self.readiness = Some(Readiness::new(self.sockets.epoll(), self.bridge)?);
        }
        // An armed timer that is early only wakes this once for nothing.
        if deadline != Time::FAR && !at_once && self.timer.as_ref().is_none_or(|(armed, _)| deadline < *armed)
        {
            self.timer = Some((deadline, Timer::new(deadline.since(now))));
        }
        let (inbox, readiness, timer) = (&self.inbox, &mut self.readiness, &mut self.timer);
        std::future::poll_fn(|cx| {
            let mut awake = inbox.poll(cx).is_ready();
            if readiness.as_ref().is_some_and(|r| r.poll(cx).is_ready()) {
                *readiness = None;
                awake = true;
            }
            if timer.as_mut().is_some_and(|(_, t)| t.poll(cx).is_ready()) {
                *timer = None;
                awake = true;
            }
            if awake { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        Ok(())
    }

    fn next_deadline(&self) -> Time {
        let shard = self.shard.as_ref().map_or(Time::FAR, Shard::next_deadline);
        let stop = self.stopping.map_or(Time::FAR, |since| since + STOP_PATIENCE);
        shard.min(self.peers.next_deadline()).min(self.sockets.next_deadline()).min(stop)
    }

    fn take_inbox(&mut self, now: Time) {
        for event in self.inbox.take() {
            match event {
                Event::Disk { owner: Owner::Shard, id, result } => self.disk_done(now, id, result),
                Event::Disk { owner: Owner::Boot, result, .. } => self.boot_written(now, result),
                Event::Outside(Outside::Status(reply)) => {
                    // Whoever asked may have given up.
                    let _ = reply.send(self.report());
                }
                Event::Outside(Outside::Resolved { node, result }) => {
                    self.peers.on_resolved(node, result, now, &mut self.sockets);
                }
                Event::Outside(Outside::Stop) => {
                    tracing::info!("stopping");
                    self.sockets.stop_listening();
                    self.stopping.get_or_insert(now);
                }
            }
        }
    }

    fn disk_done(&mut self, now: Time, id: OpId, result: Result<(), DiskFault>) {
        if let Some(shard) = &mut self.shard {
            shard.handle(now, Input::Disk { id, result }, &mut self.actions);
        }
    }

    fn boot_written(&mut self, now: Time, result: Result<(), DiskFault>) {
        if let Err(fault) = result {
            fatal(&format!("the disk failed: {fault}"));
        }
        match self.members.on_written() {
            Some(op) => self.disk.start(Owner::Boot, op),
            None => {
                tracing::info!("the cluster is formed: all initial members have met");
                self.form_if_ready(now);
            }
        }
    }

    /// The shard comes to life when the cluster is formed: nobody votes before.
    fn form_if_ready(&mut self, now: Time) {
        if !self.members.is_formed() {
            tracing::info!(missing = ?self.members.missing(), "waiting to meet all initial members");
            return;
        }
        let Some((config, recovered, seed)) = self.unborn.take() else { return };
        match Shard::new(config, recovered, seed, now) {
            Ok(shard) => self.shard = Some(shard),
            Err(error) => fatal(&format!("the shard cannot start: {error}")),
        }
    }

    /// One turn of the sockets, and a second look when the first found few: what arrived meanwhile
    /// shares the block, and so the sync, of what it found. After a pause of this process as many
    /// turns as it takes to read all that arrived, so that no renewal that is already here is taken
    /// for silence.
    fn drain_sockets(&mut self, now: Time) -> Result<(), CoreError> {
        let paused = now.since(self.turned) > PAUSE;
        let turns = if paused { DRAIN_TURNS_MAX } else { LOOKS_PER_TURN };
        for turn in 1..=turns {
            let worked = self.work_sockets(now)?;
            let again = if paused { worked.more } else { (1..FEW_READY).contains(&worked.ready) };
            if !again || turn == turns {
                break;
            }
        }
        self.turned = clock::now();
        Ok(())
    }

    /// Works the sockets that are ready, a bounded number.
    fn work_sockets(&mut self, now: Time) -> Result<Worked, CoreError> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let mut more = self.sockets.ready(&mut ready)?;
        for event in &ready {
            match *event {
                Ready::Bell => {}
                Ready::Listener => self.sockets.accept(now),
                Ready::Conn { id, read, write } => more |= self.work_conn(id, read, write, now),
            }
        }
        let found = ready.len();
        self.ready = ready;
        for id in self.sockets.take_resumable() {
            if let Some(chunk) = self.sockets.held(id) {
                self.take_frames(id, chunk, now);
            }
        }
        Ok(Worked { ready: found, more })
    }

    /// Returns whether there may be more to read.
    fn work_conn(&mut self, id: ConnId, read: bool, write: bool, now: Time) -> bool {
        let Some(conn) = self.sockets.get(id) else { return false };
        if let (Role::Dialled(node), true) = (conn.role, conn.is_connecting()) {
            match conn.attempt_error() {
                Some(error) => {
                    self.peers.on_closed(node, id, now, &error.to_string());
                    self.sockets.close(id);
                }
                None if write => {
                    self.sockets.connected(id);
                    let hello = self.members.hello(node);
                    if let Some(out) = self.sockets.out(id) {
                        hello.encode(out);
                    }
                }
                None => {}
            }
            return false;
        }
        if write {
            self.sockets.send(id);
        }
        if !read {
            return false;
        }
        match self.sockets.receive(id) {
            Some(chunk) => {
                let full = chunk.full;
                self.take_frames(id, chunk, now);
                full
            }
            None => false,
        }
    }

    /// Tells the parts what was closed during this turn.
    fn bury_closed(&mut self, now: Time) {
        for (id, role) in self.sockets.take_closed() {
            match role {
                Role::Client => {
                    if let Some(shard) = &mut self.shard {
                        shard.handle(now, Input::ConnClosed { conn: id }, &mut self.actions);
                    }
                }
                Role::Dialled(node) | Role::PeerOut(node) => {
                    self.peers.on_closed(node, id, now, "the peer closed the connection");
                }
                Role::New | Role::PeerIn(_) => {}
            }
        }
    }

    fn may_end(&mut self, now: Time) -> bool {
        let Some(since) = self.stopping else { return false };
        if self.inbox.disk_in_flight() == 0 {
            return true;
        }
        if now < since + STOP_PATIENCE {
            return false;
        }
        tracing::warn!("the disk does not finish; stopping without it");
        true
    }

    /// What this node says of itself.
    pub(super) fn status(&self) -> NodeStatus {
        match &self.shard {
            Some(shard) => shard.status(),
            None => NodeStatus {
                node: self.members.identity().node,
                role: "forming".to_owned(),
                term: Term(0),
                leader: None,
                last: LogIndex(0),
                durable: LogIndex(0),
                commit: LogIndex(0),
                applied: LogIndex(0),
                sessions: 0,
                keys: 0,
                log_bytes: 0,
                boot: self.members.boot(),
            },
        }
    }

    fn report(&self) -> Report {
        Report {
            status: self.status(),
            missing: self.members.missing(),
            formed: self.members.is_formed(),
            serving: self.shard.as_ref().is_some_and(Shard::is_serving),
            linked: self.peers.linked(),
        }
    }
}

/// What a look at the sockets found.
struct Worked {
    /// How many were ready.
    ready: usize,
    /// There may be more to read.
    more: bool,
}

/// A way to make the next sleep end at once, through the rings and not around them: a socket that
/// always has a byte to read, watched only when it is wanted.
struct Bell {
    reader: std::os::unix::net::UnixStream,
    _writer: std::os::unix::net::UnixStream,
    ringing: bool,
}

impl Bell {
    fn new(epoll: &Epoll) -> std::io::Result<Bell> {
        let (reader, mut writer) = std::os::unix::net::UnixStream::pair()?;
        std::io::Write::write_all(&mut writer, &[1])?;
        epoll.add(&reader, 0, Ready::BELL)?;
        Ok(Bell { reader, _writer: writer, ringing: false })
    }

    fn ring(&mut self, epoll: &Epoll, on: bool) -> std::io::Result<()> {
        if on != self.ringing {
            self.ringing = on;
            epoll.modify(&self.reader, if on { super::sys::READ } else { 0 }, Ready::BELL)?;
        }
        Ok(())
    }
}

/// Why a core cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// A file.
    #[error("the disk failed: {0}")]
    Disk(#[from] DiskFault),
    /// A socket or the epoll set.
    #[error("sockets: {0}")]
    Io(#[from] std::io::Error),
}

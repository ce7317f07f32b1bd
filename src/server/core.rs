//! The loop of one core: everything that happened since the last turn goes into the shard, the turn
//! is finished, and what the shard asks for is carried out. One task, bounded turns, one place where
//! it sleeps: an epoll set of all sockets and the log's ring. The executor's own rings, which make
//! files and carry messages of other threads, get their turn now and then; to turn them at every
//! wake cost more than the work of a block (RESULTS.md).

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use glommio::timer::Timer;
use palisade_fence::{Signer, SigningKey};
use palisade_shard::{Actions, CoreId, DrainId, Input, Machine, Shard, ShardConfig};
use palisade_types::reply::NodeStatus;
use palisade_types::{ConnId, LogIndex, NodeId, Term, Time};
use palisade_wal::{DiskFault, DiskResult, OpId, Recovered};
use palisade_wire::PeerHello;

use super::conn::Role;
use super::disk::{Disk, Wanted};
use super::inbox::{Event, Inbox, Outside, Owner, Report};
use super::mark::Mark;
use super::members::Members;
use super::metrics::Metrics;
use super::peers::Peers;
use super::sockets::{Ready, Sockets};
use super::stages::Stages;
use super::stopping::Stopping;
use super::watchdog::{Heartbeat, PULSE};
use super::{fatal, inbox};
use crate::clock;

/// How long a stopping node waits for the disk.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// A loop that did not run for so long was held up.
const PAUSE: Duration = Duration::from_millis(200);
/// Looks at the sockets in one turn of the loop, that of the sleep among them …
const LOOKS_PER_TURN: usize = 2;
/// … if fewer than this were ready at the first.
const FEW_READY: usize = 16;
/// Between two turns of the executor's rings, and so at least between two beats: as long as messages
/// of other threads may wait …
const VISIT: Duration = PULSE;
/// … while a file is made ahead of its use …
const VISIT_LATER: Duration = Duration::from_millis(1);
/// … and while the log waits for a file.
const VISIT_NOW: Duration = Duration::from_micros(100);
/// The executor turns its rings when all tasks wait, so the loop waits for a timer: one that is over
/// when the executor first looks at it, but not yet when it is made.
const A_MOMENT: Duration = Duration::from_micros(5);
/// Looks after a pause, at most: others wait too.
const DRAIN_LOOKS_MAX: usize = 1_000;

/// How long a node that has started waits for the others to let it in. Those who are there do so at once.
const INTRODUCTIONS: Duration = Duration::from_secs(1);

/// The one core that has sockets of clients.
const CORE: CoreId = CoreId(0);

/// What a core is built from, on its own thread.
pub(crate) struct CoreParts {
    pub(crate) dir: PathBuf,
    pub(crate) members: Members,
    pub(crate) shard: ShardConfig,
    pub(crate) recovered: Recovered,
    /// The state of the snapshot in `recovered`, if there is one.
    pub(crate) state: Option<Machine>,
    /// Of every random draw of this core.
    pub(crate) seed: u64,
    pub(crate) settings: Settings,
    /// What fences are signed with, if they are.
    pub(crate) signing_key: Option<SigningKey>,
    pub(crate) peers: std::collections::BTreeMap<NodeId, String>,
    pub(crate) listener: std::net::TcpListener,
    pub(crate) limits: super::sockets::SocketLimits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) heartbeat: Arc<Heartbeat>,
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
    /// Peers that have introduced themselves and wait for BOOT: on which connection, whom this node had dialled, and
    /// what was said.
    pub(super) waiting: Vec<(ConnId, Option<NodeId>, PeerHello)>,
    /// Until then a node that has started takes no part, unless all others have let it in.
    introduced: Time,
    pub(super) shard: Option<Shard>,
    lease_reads: bool,
    /// What the shard is made from once the cluster is formed.
    unborn: Option<(ShardConfig, Recovered, Option<Machine>, u64)>,
    pub(super) actions: Actions,
    pub(super) disk: Disk,
    pub(super) settings: Settings,
    /// Until it is known which cluster this is.
    pub(super) signing_key: Option<SigningKey>,
    pub(super) signer: Option<Signer>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stages: Stages,
    pub(super) scratch: Vec<u8>,
    inbox: Rc<Inbox>,
    ready: Vec<Ready>,
    /// There may be more ready than `ready` tells.
    more: bool,
    /// The shard waits for this mark of the sockets.
    mark: Option<Mark>,
    heartbeat: Arc<Heartbeat>,
    /// When the executor's rings were last turned.
    visited: Time,
    stopping: Option<Stopping>,
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
        let (sender, receiver) = parts.outside;
        glommio::spawn_local(inbox::pump(Rc::clone(&inbox), receiver)).detach();
        let sockets = Sockets::new(parts.listener, parts.limits, Arc::clone(&parts.metrics))?;
        sockets.watch_disk(&disk)?;
        let mut core = Core {
            sockets,
            peers: Peers::new(parts.peers, sender, parts.seed ^ 1),
            members: parts.members,
            waiting: Vec::new(),
            introduced: clock::now() + INTRODUCTIONS,
            shard: None,
            lease_reads: parts.shard.lease_reads,
            unborn: Some((parts.shard, parts.recovered, parts.state, parts.seed)),
            actions: Actions::default(),
            disk,
            settings: parts.settings,
            signing_key: parts.signing_key,
            signer: None,
            metrics: parts.metrics,
            stages: Stages::new(clock::now()),
            scratch: Vec::new(),
            inbox,
            ready: Vec::new(),
            more: false,
            mark: None,
            heartbeat: parts.heartbeat,
            visited: Time::ZERO,
            stopping: None,
            published: Time::ZERO,
            turned: clock::now(),
        };
        // A node that is alone forms by itself.
        if let Some(op) = core.members.write() {
            core.disk.start(Owner::Boot, op);
        }
        Ok(core)
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// What the sockets refused.
    pub(crate) async fn run(mut self) -> Result<(), CoreError> {
        if !self.members.is_formed() {
            tracing::info!(missing = ?self.members.missing(), "waiting to meet all initial members");
        }
        self.form_if_ready(clock::now());
        self.sockets.open()?;
        loop {
            self.sleep().await?;
            let now = clock::now();
            self.metrics.turns.one();
            self.begin_turn();
            self.take_inbox(now);
            // Sockets before time: what has arrived must count before anything expires, and after
            // every sleep, because the sleep may have been a long pause of the whole process.
            self.drain_sockets(now)?;
            self.sockets.expire(now);
            self.note_congestion(now);
            self.peers.act(now, &mut self.sockets);
            self.form_if_ready(now);
            self.serve_leases(now);
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

    /// What is sent in this turn is sent after this look at the clock of leases.
    fn begin_turn(&mut self) {
        if let Some(shard) = self.shard.as_mut().filter(|_| self.lease_reads) {
            shard.lease_time(clock::lease_now());
        }
    }

    /// All reads of this turn have arrived: only now is it looked up whether the lease holds, with a
    /// clock read anew. This process may have stood still since the turn began.
    fn serve_leases(&mut self, now: Time) {
        if let Some(shard) = self.shard.as_mut().filter(|_| self.lease_reads) {
            shard.serve_leases(now, clock::lease_now(), &mut self.actions);
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

    /// Sleeps until a socket is ready, something is in the inbox or something is due. A step of the
    /// disk that leads only to its next step does not end the sleep.
    async fn sleep(&mut self) -> Result<(), CoreError> {
        loop {
            let now = clock::now();
            self.heartbeat.beat(now);
            if now >= self.next_visit() {
                Timer::new(A_MOMENT).await;
                self.visited = clock::now();
            }
            let deadline = self.next_deadline();
            let marking = self.mark.as_ref().is_some_and(Mark::wants_look);
            let told = self.sockets.has_resumable() || self.sockets.has_congestion() || marking;
            let at_once = told || !self.inbox.is_empty();
            let limit =
                if at_once { Duration::ZERO } else { deadline.min(self.next_visit()).since(clock::now()) };
            self.more = self.sockets.wait(limit, &mut self.ready)?;
            self.disk.reap();
            let woken = at_once || !self.ready.is_empty() || !self.inbox.is_empty();
            if woken || clock::now() >= deadline {
                return Ok(());
            }
        }
    }

    /// When the executor's rings are to be turned again.
    fn next_visit(&self) -> Time {
        self.visited
            + match self.disk.files_wanted() {
                Wanted::Nobody => VISIT,
                Wanted::Later => VISIT_LATER,
                Wanted::Now => VISIT_NOW,
            }
    }

    fn next_deadline(&self) -> Time {
        let shard = self.shard.as_ref().map_or(Time::FAR, Shard::next_deadline);
        let stop = self.stopping.map_or(Time::FAR, |stopping| stopping.next_deadline(STOP_PATIENCE));
        let mark = self.mark.as_ref().map_or(Time::FAR, Mark::next_deadline);
        let waits = self.unborn.is_some() && self.members.is_formed();
        let shard = if waits { shard.min(self.introduced) } else { shard };
        shard.min(self.peers.next_deadline()).min(self.sockets.next_deadline()).min(stop).min(mark)
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
                    self.begin_stop(now);
                }
            }
        }
    }

    fn disk_done(&mut self, now: Time, id: OpId, result: DiskResult) {
        if let Some(shard) = &mut self.shard {
            shard.handle(now, Input::Disk { id, result }, &mut self.actions);
        }
    }

    fn boot_written(&mut self, now: Time, result: DiskResult) {
        if let Err(fault) = result {
            fatal(&format!("the disk failed: {fault}"));
        }
        let was_formed = self.members.is_formed();
        let (next, done) = self.members.on_written();
        if let Some(op) = next {
            self.disk.start(Owner::Boot, op);
        }
        if self.members.is_formed() && !was_formed {
            tracing::info!("the cluster is formed: all initial members have met");
        }
        if done {
            self.meet_again(now);
            self.form_if_ready(now);
        }
    }

    /// The shard comes to life when the cluster is formed and the others have let this start in, as far as they are
    /// there: nobody votes before. Who is turned away by one of them does not take part with the rest.
    pub(super) fn form_if_ready(&mut self, now: Time) {
        let alone = now < self.introduced && !self.peers.all_linked();
        if self.unborn.is_none() || !self.members.is_formed() || alone {
            return;
        }
        let Some((mut config, recovered, state, seed)) = self.unborn.take() else { return };
        config.watch.cluster = self.members.cluster_identity();
        self.begin_signing();
        match Shard::new(config, recovered, state, seed, now) {
            Ok(shard) => self.shard = Some(shard),
            Err(error) => fatal(&format!("the shard cannot start: {error}")),
        }
    }

    /// Works what the sleep found ready, and takes a second look when it found few: what arrived
    /// meanwhile shares the block, and so the sync, of what it found. After a pause of this process as
    /// many looks as it takes to read all that arrived, so that no renewal that is already here is
    /// taken for silence.
    fn drain_sockets(&mut self, now: Time) -> Result<(), CoreError> {
        let paused = now.since(self.turned) > PAUSE;
        let looks = if paused { DRAIN_LOOKS_MAX } else { LOOKS_PER_TURN };
        for look in 1..=looks {
            let found = self.ready.len();
            let more = self.work_sockets(now);
            self.advance_mark(now, !more);
            // What the sleep found may be older than the pause.
            let again = if paused { more || look == 1 } else { (1..FEW_READY).contains(&found) };
            if !again || look == looks {
                break;
            }
            self.more = self.sockets.wait(Duration::ZERO, &mut self.ready)?;
        }
        // What was written meanwhile is synced now, not after this turn.
        self.disk.reap();
        self.turned = clock::now();
        Ok(())
    }

    /// The shard wants a mark: it begins with the next look.
    pub(super) fn begin_mark(&mut self, drain: DrainId) {
        let held = self.sockets.unread_clients();
        let (conns, per_look) = (self.sockets.len(), self.sockets.per_look());
        self.mark = Some(Mark::begin(drain, clock::now(), held, conns, per_look));
    }

    fn advance_mark(&mut self, now: Time, complete: bool) {
        let Some(mark) = &mut self.mark else { return };
        let sockets = &self.sockets;
        let unread = || sockets.unread_clients();
        let Some(drain) = mark.looked(now, complete, |id| sockets.is_unread(id), unread) else { return };
        self.mark = None;
        if let Some(shard) = &mut self.shard {
            shard.handle(now, Input::Drained { core: CORE, drain }, &mut self.actions);
        }
    }

    /// Works the sockets that are ready, a bounded number. Returns whether there may be more to read.
    fn work_sockets(&mut self, now: Time) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        let mut more = std::mem::take(&mut self.more);
        for event in ready.drain(..) {
            match event {
                Ready::Listener => self.sockets.accept(now),
                Ready::Conn { id, read, write } => more |= self.work_conn(id, read, write, now),
            }
        }
        self.ready = ready;
        for id in self.sockets.take_resumable() {
            if let Some(chunk) = self.sockets.held(id) {
                self.take_frames(id, chunk, now);
            }
        }
        more
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

    /// Tells the shard whose connections take no more of what watches push, and whose do again.
    fn note_congestion(&mut self, now: Time) {
        for (conn, congested) in self.sockets.take_congestion() {
            let Some(shard) = &mut self.shard else { return };
            let input = if congested { Input::Congested { conn } } else { Input::Cleared { conn } };
            shard.handle(now, input, &mut self.actions);
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

    fn begin_stop(&mut self, now: Time) {
        self.sockets.stop_listening();
        if self.stopping.is_none() {
            let is_linked = !self.peers.linked().is_empty();
            let election_min = Duration::from_millis(u64::from(self.settings.election_min_ms));
            let shard = self.shard.as_mut();
            self.stopping = Some(Stopping::begin(now, shard, is_linked, election_min, &mut self.actions));
        }
    }

    fn may_end(&mut self, now: Time) -> bool {
        let Some(stopping) = &mut self.stopping else { return false };
        let is_linked = !self.peers.linked().is_empty();
        let Some(since) = stopping.waits_for_disk_since(now, self.shard.as_ref(), is_linked) else {
            return false;
        };
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
                snapshot: LogIndex(0),
                boot: self.members.boot(),
                cluster: None,
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

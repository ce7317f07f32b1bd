//! The task behind a client: turns the core's actions into connections and answers, and gives it
//! what arrives and what time it is.

mod drain;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use palisade_client_core::{
    Action, CallId, ClaimId, ClaimResult, Conflict, Core, Event, Input, LinkId, SessionHandle, WriteId,
    margin,
};
use palisade_types::{Refusal, Reply, SessionToken};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::{mpsc, oneshot};

use crate::client::Trouble;
use crate::clock::{self, Alarm};
use crate::command::{
    ClaimEvent, Command, ConflictSender, DrainSender, Lease, LostSender, Opened, Shown, Tag,
};
use crate::config::ClientConfig;
use crate::error::{AcquireError, CallError, ConnectError, LostReason};
use crate::link::{Link, LinkEvent};

/// Commands and link events taken in one turn before the core's actions are carried out.
const TURN: usize = 256;
/// Link events that may wait; beyond them the connection is not read.
const LINK_EVENTS: usize = 64;
/// How long the task goes on, once nobody holds a handle, to bring closes and releases home.
const LINGER: Duration = Duration::from_secs(5);

type Answer<T> = oneshot::Sender<Result<T, CallError>>;

struct SessionEntry {
    tag: Tag,
    lease: Arc<Lease>,
    lost: LostSender,
    opening: Option<Answer<Opened>>,
    closing: Option<Answer<()>>,
    /// It is being shut down: how far that is.
    draining: Option<DrainSender>,
    ttl: Duration,
}

struct ClaimEntry {
    tag: Tag,
    session: SessionHandle,
    granted: bool,
    events: mpsc::UnboundedSender<ClaimEvent>,
    lost: LostSender,
    conflict: Option<ConflictSender>,
    releasing: Option<Answer<()>>,
    downgrading: Option<oneshot::Sender<Result<Shown, Refusal>>>,
}

/// See the module.
pub(crate) struct Driver {
    core: Core,
    alarm: Alarm,
    orders: mpsc::UnboundedReceiver<Command>,
    events_in: mpsc::Sender<LinkEvent>,
    events: mpsc::Receiver<LinkEvent>,
    links: HashMap<LinkId, Link>,
    session_tags: HashMap<Tag, SessionHandle>,
    sessions: HashMap<SessionHandle, SessionEntry>,
    claim_tags: HashMap<Tag, ClaimId>,
    claims: HashMap<ClaimId, ClaimEntry>,
    call_tags: HashMap<Tag, CallId>,
    calls: HashMap<CallId, Answer<Reply>>,
    write_tags: HashMap<Tag, WriteId>,
    writes: HashMap<WriteId, (Tag, Answer<()>)>,
    trouble: Trouble,
    /// Nobody holds a handle any more.
    alone: bool,
}

/// What woke the task.
enum Woken {
    Order(Command),
    Link(LinkEvent),
    Alarm,
    /// Nobody holds a handle any more.
    Alone,
}

impl Driver {
    pub(crate) fn new(
        config: &ClientConfig,
        orders: mpsc::UnboundedReceiver<Command>,
        trouble: Trouble,
    ) -> Result<Driver, ConnectError> {
        let core = Core::new(config.for_core(), u64::from_le_bytes(random()?), clock::now())
            .map_err(|e| ConnectError::Config(e.to_string()))?;
        let (events_in, events) = mpsc::channel(LINK_EVENTS);
        Ok(Driver {
            core,
            alarm: Alarm::new()?,
            orders,
            events_in,
            events,
            links: HashMap::new(),
            session_tags: HashMap::new(),
            sessions: HashMap::new(),
            claim_tags: HashMap::new(),
            claims: HashMap::new(),
            call_tags: HashMap::new(),
            calls: HashMap::new(),
            write_tags: HashMap::new(),
            writes: HashMap::new(),
            trouble,
            alone: false,
        })
    }

    /// Runs until nobody holds a handle, and a little longer to say goodbye.
    pub(crate) async fn run(mut self) {
        loop {
            match self.next().await {
                Ok(Woken::Alone) => break,
                Ok(woken) => self.turn(woken),
                // Without a clock nothing can be promised: every guard is lost with this task.
                Err(error) => return tracing::error!(%error, "the timer failed; the client stops"),
            }
        }
        let goodbye = async {
            while !self.core.is_idle() {
                match self.next().await {
                    Ok(Woken::Alone) | Err(_) => return,
                    Ok(woken) => self.turn(woken),
                }
            }
        };
        // Whatever is not brought home by then ends with its session.
        let _ = tokio::time::timeout(LINGER, goodbye).await;
    }

    async fn next(&mut self) -> io::Result<Woken> {
        self.alarm.set(self.core.next_deadline())?;
        tokio::select! {
            // Deadlines first: after a stop, lost guards must know before anything else happens.
            biased;
            rung = self.alarm.rung() => rung.map(|()| Woken::Alarm),
            Some(event) = self.events.recv() => Ok(Woken::Link(event)),
            order = self.orders.recv(), if !self.alone => match order {
                Some(order) => Ok(Woken::Order(order)),
                None => {
                    self.alone = true;
                    Ok(Woken::Alone)
                }
            },
        }
    }

    /// Takes what woke us and what else is there, then does what the core says.
    fn turn(&mut self, woken: Woken) {
        match woken {
            Woken::Alarm => self.core.handle(clock::now(), Input::Tick),
            Woken::Link(event) => self.link_event(event),
            Woken::Order(order) => self.order(order),
            Woken::Alone => (),
        }
        for _ in 0..TURN {
            if let Ok(event) = self.events.try_recv() {
                self.link_event(event);
            } else if let Ok(order) = self.orders.try_recv() {
                self.order(order);
            } else {
                break;
            }
        }
        while let Some(action) = self.core.poll_action() {
            self.perform(action);
        }
    }

    fn link_event(&mut self, event: LinkEvent) {
        let now = clock::now();
        match event {
            LinkEvent::Up(link) => self.core.handle(now, Input::Connected { link }),
            LinkEvent::Received(link, bytes) => {
                self.core.handle(now, Input::Received { link, bytes: &bytes })
            }
            LinkEvent::Down(link, endpoint, error) => {
                if self.links.remove(&link).is_some() {
                    self.trouble.note(format!("{endpoint}: {error}"));
                    self.core.handle(now, Input::Disconnected { link });
                }
            }
        }
    }

    fn order(&mut self, order: Command) {
        let now = clock::now();
        match order {
            Command::Open { tag, spec, lease, lost, reply } => {
                let Ok(token) = random() else {
                    let _ = reply.send(Err(CallError::Stopped));
                    return;
                };
                let handle = self.core.open_session(now, spec, SessionToken(u128::from_le_bytes(token)));
                let opening = Some(reply);
                let ttl = Duration::ZERO;
                let entry = SessionEntry { tag, lease, lost, opening, closing: None, draining: None, ttl };
                self.session_tags.insert(tag, handle);
                self.sessions.insert(handle, entry);
            }
            Command::Close { tag, reply } => self.close(tag, reply),
            Command::Drain { tag, reply } => self.drain(tag, reply),
            Command::Acquire { session, tag, spec, events, lost, conflict } => {
                let handle = match self.usable(session) {
                    Ok(handle) => handle,
                    Err(gone) => return drop(events.send(ClaimEvent::Failed(gone.into()))),
                };
                let claim = self.core.acquire(now, handle, spec);
                self.claim_tags.insert(tag, claim);
                let entry = ClaimEntry {
                    tag,
                    session: handle,
                    granted: false,
                    events,
                    lost,
                    conflict,
                    releasing: None,
                    downgrading: None,
                };
                self.claims.insert(claim, entry);
            }
            Command::Release { tag, reply } => match self.claim_tags.get(&tag) {
                Some(claim) => {
                    if let Some(entry) = self.claims.get_mut(claim) {
                        entry.releasing = Some(reply);
                    }
                    self.core.release(now, *claim);
                }
                None => {
                    // It was lost, and its guard knows why.
                    let _ = reply.send(Err(CallError::SessionLost(LostReason::Closed)));
                }
            },
            Command::Downgrade { tag, reply } => {
                // Whoever waits for a claim that is gone learns from its guard why.
                if let Some(claim) = self.claim_tags.get(&tag)
                    && let Some(entry) = self.claims.get_mut(claim).filter(|entry| !entry.is_lost())
                {
                    entry.downgrading = Some(reply);
                    self.core.downgrade(now, *claim);
                }
            }
            Command::Proclaim { claim, tag, value, reply } => {
                let held = |claim: &&ClaimId| self.claims.get(claim).is_some_and(|entry| !entry.is_lost());
                let Some(claim) = self.claim_tags.get(&claim).filter(held) else {
                    let _ = reply.send(Err(CallError::SessionLost(LostReason::Closed)));
                    return;
                };
                let write = self.core.proclaim(now, *claim, value);
                self.write_tags.insert(tag, write);
                self.writes.insert(write, (tag, reply));
            }
            Command::Abandon { tag } => {
                if let Some(claim) = self.claim_tags.remove(&tag) {
                    let entry = self.claims.remove(&claim);
                    self.core.abandon(now, claim);
                    self.note_drained(entry.map(|entry| entry.session));
                }
            }
            Command::Write { session, tag, spec, reply } => {
                let handle = match self.usable(session) {
                    Ok(handle) => handle,
                    Err(gone) => return drop(reply.send(Err(gone))),
                };
                let write = self.core.write(now, handle, spec);
                self.write_tags.insert(tag, write);
                self.writes.insert(write, (tag, reply));
            }
            Command::DropWrite { tag } => {
                if let Some(write) = self.write_tags.remove(&tag) {
                    self.writes.remove(&write);
                    self.core.drop_write(now, write);
                }
            }
            Command::Read { tag, request, reply } => {
                let call = self.core.call(now, request);
                self.call_tags.insert(tag, call);
                self.calls.insert(call, reply);
            }
            Command::DropRead { tag } => {
                if let Some(call) = self.call_tags.remove(&tag)
                    && self.calls.remove(&call).is_some()
                {
                    self.core.drop_call(call);
                }
            }
        }
    }

    fn close(&mut self, tag: Tag, reply: Option<Answer<()>>) {
        let Some(handle) = self.session_tags.get(&tag) else {
            if let Some(reply) = reply {
                let _ = reply.send(Ok(()));
            }
            return;
        };
        if let Some(entry) = self.sessions.get_mut(handle) {
            entry.lease.void();
            entry.closing = reply.or(entry.closing.take());
        }
        self.core.close_session(clock::now(), *handle);
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Dial { link, endpoint } => {
                self.links.insert(link, Link::start(link, endpoint, self.events_in.clone()));
            }
            Action::Hangup { link } => {
                self.links.remove(&link);
            }
            Action::Send { link, bytes } => {
                if let Some(link) = self.links.get(&link) {
                    link.send(bytes);
                }
            }
            Action::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::SessionOpened { handle, session, ttl, gone_within, short_ttl } => {
                let Some(entry) = self.sessions.get_mut(&handle) else { return };
                entry.ttl = ttl;
                if let Some(deadline) = self.core.deadline(handle) {
                    entry.lease.extend(deadline, deadline + margin(ttl));
                }
                if let Some(reply) = entry.opening.take() {
                    // Nobody waits any more? Then the close is already on its way to us.
                    let _ = reply.send(Ok(Opened { session, ttl, gone_within, short_ttl }));
                }
            }
            Event::Renewed { handle, deadline } => {
                if let Some(entry) = self.sessions.get(&handle).filter(|e| e.is_believed()) {
                    entry.lease.extend(deadline, deadline + margin(entry.ttl));
                }
            }
            Event::SessionDelayed { refusal, .. } | Event::ClaimDelayed { refusal, .. } => {
                self.trouble.note(refusal.to_string());
            }
            Event::SessionFailed { handle, reason } | Event::SessionLost { handle, reason } => {
                self.session_over(handle, LostReason::of_core(reason));
            }
            Event::SessionClosed { handle } => self.session_over(handle, LostReason::Closed),
            Event::CallDone { call, result } => {
                if let Some(reply) = self.calls.remove(&call) {
                    let _ = reply.send(result.map(|r| *r).map_err(CallError::Refused));
                }
            }
            Event::WriteDone { write, result } => self.write_over(write, result.map_err(CallError::Refused)),
            Event::WriteLost { write, reason } => {
                self.write_over(write, Err(CallError::SessionLost(LostReason::of_core(reason))));
            }
            Event::LinkUp { endpoint, node, leader } => {
                tracing::debug!(endpoint, %node, ?leader, "connected");
            }
            Event::LinkDown { endpoint, error } => {
                tracing::debug!(endpoint, ?error, "disconnected");
                self.trouble.note_link(&endpoint, &error);
            }
            Event::ClaimQueued { claim, place, holder } => {
                if let Some(entry) = self.claims.get(&claim) {
                    let _ = entry.events.send(ClaimEvent::Queued { place, holder });
                }
            }
            Event::ClaimGranted { claim, fence } => {
                let shown = (fence, self.core.signature(claim));
                if let Some(entry) = self.claims.get_mut(&claim) {
                    entry.granted = true;
                    // Nobody waits any more? Then the claim's abandoning is already on its way to us.
                    let _ = entry.events.send(ClaimEvent::Granted(shown));
                }
            }
            Event::ClaimConflict { claim, conflict } => {
                if let Some(told) = self.claims.get(&claim).and_then(|entry| entry.conflict.as_ref()) {
                    told.send_replace(Some(conflict));
                }
            }
            Event::ResourceConflict { key, conflict } => {
                let Conflict { resource, other, keys } = conflict;
                tracing::warn!(%key, %resource, %other, keys, "another key protects the same resource");
            }
            Event::ClaimDowngraded { claim, fence } => {
                let signature = self.core.signature(claim);
                self.claim_converted(claim, Ok((fence, signature)));
            }
            Event::ClaimKept { claim, refusal } => self.claim_converted(claim, Err(refusal)),
            Event::ClaimDone { claim, result } => self.claim_done(claim, result),
            Event::ClaimLost { claim, reason } => self.claim_lost(claim, LostReason::of_core(reason)),
        }
    }

    fn session_over(&mut self, handle: SessionHandle, reason: LostReason) {
        let Some(mut entry) = self.sessions.remove(&handle) else { return };
        self.session_tags.remove(&entry.tag);
        match reason {
            LostReason::DeadlinePassed => entry.lease.miss(),
            _ => entry.lease.void(),
        }
        if let Some(reply) = entry.opening.take() {
            let error = match &reason {
                LostReason::Refused(refusal) => CallError::Refused(refusal.clone()),
                other => CallError::SessionLost(other.clone()),
            };
            let _ = reply.send(Err(error));
        }
        if let Some(reply) = entry.closing.take() {
            let _ = reply.send(match &reason {
                LostReason::Closed => Ok(()),
                other => Err(CallError::SessionLost(other.clone())),
            });
        }
        if let Some(left) = entry.draining.take() {
            left.send_modify(|drain| drain.over = Some(reason.clone()));
        }
        report(&entry.lost, reason);
    }

    fn write_over(&mut self, write: WriteId, result: Result<(), CallError>) {
        if let Some((tag, reply)) = self.writes.remove(&write) {
            self.write_tags.remove(&tag);
            let _ = reply.send(result);
        }
    }

    fn claim_converted(&mut self, claim: ClaimId, result: Result<Shown, Refusal>) {
        if let Some(reply) = self.claims.get_mut(&claim).and_then(|entry| entry.downgrading.take()) {
            // Nobody waits any more? Then the claim's abandoning is already on its way to us.
            let _ = reply.send(result);
        }
    }

    fn claim_done(&mut self, claim: ClaimId, result: ClaimResult) {
        let Some(mut entry) = self.claims.remove(&claim) else { return };
        self.claim_tags.remove(&entry.tag);
        if let Some(reply) = entry.releasing.take() {
            let _ = reply.send(match result {
                ClaimResult::Refused(refusal) => Err(CallError::Refused(refusal)),
                _ => Ok(()),
            });
            return self.note_drained(Some(entry.session));
        }
        let error = match result {
            ClaimResult::Denied { holder, waiting } => AcquireError::Held { holder, waiting },
            ClaimResult::Taken => AcquireError::Taken,
            ClaimResult::TimedOut | ClaimResult::Cancelled | ClaimResult::Released => AcquireError::TimedOut,
            ClaimResult::Refused(refusal) => CallError::Refused(refusal).into(),
        };
        let _ = entry.events.send(ClaimEvent::Failed(error));
    }

    fn claim_lost(&mut self, claim: ClaimId, reason: LostReason) {
        let Some(mut entry) = self.claims.remove(&claim) else { return };
        self.claim_tags.remove(&entry.tag);
        let error = CallError::SessionLost(reason.clone());
        if let Some(reply) = entry.releasing.take() {
            let _ = reply.send(Err(error.clone()));
        }
        let _ = entry.events.send(ClaimEvent::Failed(error.into()));
        report(&entry.lost, reason);
        self.note_drained(Some(entry.session));
    }
}

/// Reports a loss. It is final: a later reason does not replace an earlier one.
fn report(lost: &LostSender, reason: LostReason) {
    lost.send_if_modified(|seen| {
        let is_first = seen.is_none();
        seen.get_or_insert(reason);
        is_first
    });
}

/// Random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => (),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(bytes)
}

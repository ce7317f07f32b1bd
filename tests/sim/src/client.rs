//! A client process: the real client core behind simulated connections, a clock of its own, and an
//! application that believes what the core tells it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use palisade_client_core::{
    Action, CallId, ClaimId, Core, CoreConfig, Event as Told, Input, LinkId, SessionHandle, margin,
};
use palisade_types::{ConnId, Fence, Key, Mode, Rng, SessionId, Time};

use crate::check::locks::Believer;
use crate::check::{Checked, Violation, demand};
use crate::clock::{Clock, RATE_PPM_MAX};
use crate::links::{address, node_at};
use crate::options::Options;
use crate::world::{ClientInput, Event, Phase, World};

/// A session as the application knows it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: Option<SessionId>,
    ttl: Duration,
}

impl Session {
    /// A session that is being opened.
    pub(crate) fn new(ttl: Duration) -> Session {
        Session { id: None, ttl }
    }
}

/// A claim as the application knows it.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) session: SessionHandle,
    pub(crate) key: Key,
    /// How the application holds it: shared from the moment it asks for a downgrade.
    pub(crate) mode: Mode,
    /// It is a campaign.
    pub(crate) leads: bool,
    /// Set when it was granted; while it is downgraded the application holds nothing.
    pub(crate) fence: Option<Fence>,
    /// When it was granted, or made, in true time.
    pub(crate) since: Time,
    /// The application is done with it and holds nothing any more.
    pub(crate) given_up: bool,
}

/// A client: its machine, and the process on it if one runs.
pub struct Client {
    /// The process; `None` while it is down.
    pub(crate) core: Option<Core>,
    /// Counts the starts of the process.
    pub life: u64,
    pub(crate) clock: Clock,
    pub(crate) paused: bool,
    inbox: Vec<ClientInput>,
    wake: Time,
    links: BTreeMap<LinkId, ConnId>,
    pub(crate) sessions: BTreeMap<SessionHandle, Session>,
    pub(crate) claims: BTreeMap<ClaimId, Claim>,
    /// Calls without an answer yet.
    pub(crate) calls: BTreeSet<CallId>,
    pub(crate) rng: Rng,
    /// For resources, apart, so that the rest of a seed's course stays what it was.
    pub(crate) resources: Rng,
}

impl Client {
    pub(crate) fn new(index: usize, options: &Options, rng: &mut Rng) -> Client {
        Client {
            core: None,
            life: 0,
            clock: Clock::draw(rng, options.clocks_ppm.min(RATE_PPM_MAX)),
            paused: false,
            inbox: Vec::new(),
            wake: Time::FAR,
            links: BTreeMap::new(),
            sessions: BTreeMap::new(),
            claims: BTreeMap::new(),
            calls: BTreeSet::new(),
            rng: rng.fork(),
            resources: Rng::new(options.seed ^ 0x2e50_u64.wrapping_add(index as u64) << 32),
        }
    }

    /// The claims it holds, as it believes.
    pub(crate) fn held(&self) -> impl Iterator<Item = (ClaimId, &Claim, &Fence)> {
        self.claims
            .iter()
            .filter(|(_, c)| !c.given_up)
            .filter_map(|(id, c)| c.fence.as_ref().map(|fence| (*id, c, fence)))
    }

    /// Whether by its own clock it may still believe in this session at a true time.
    pub(crate) fn believes(&self, session: SessionHandle, now: Time) -> bool {
        let deadline = self.core.as_ref().and_then(|c| c.deadline(session));
        deadline.is_some_and(|d| self.clock.local(now) < d)
    }
}

impl World {
    /// Starts a client's process: it knows nothing of the one before.
    pub(crate) fn start_client(&mut self, client: usize) -> Checked {
        if self.clients[client].core.is_some() || self.phase == Phase::Quiet {
            return Ok(());
        }
        let endpoints = (0..self.nodes.len()).map(address).collect();
        let seed = self.rng.next_u64();
        let now = self.now;
        let c = &mut self.clients[client];
        c.life += 1;
        c.paused = false;
        c.wake = Time::FAR;
        let core = Core::new(CoreConfig::new(endpoints), seed, c.clock.local(now));
        c.core = Some(core.map_err(|e| Violation::new("config", e.to_string()))?);
        let life = c.life;
        self.trace.event(now, 10, &[client as u64, life]);
        self.trace.line(|| format!("c{client} starts"));
        self.queue.push(now, Event::Step { client, life });
        self.after_client(client)
    }

    /// The process dies with everything it knew.
    pub fn crash_client(&mut self, client: usize, down: Option<Duration>) {
        if let Some(down) = down {
            self.queue.push(self.now + down, Event::StartClient { client });
        }
        let silent = self.rng.per_mille(500);
        let c = &mut self.clients[client];
        if c.core.take().is_none() {
            return;
        }
        c.life += 1;
        c.paused = false;
        c.inbox.clear();
        c.sessions.clear();
        c.claims.clear();
        c.calls.clear();
        let conns: Vec<ConnId> = std::mem::take(&mut c.links).into_values().collect();
        self.trace.line(|| format!("c{client} dies"));
        for conn in conns {
            self.hang_up(conn, silent);
        }
    }

    pub(crate) fn hang_up(&mut self, conn: ConnId, silent: bool) {
        self.links.get_mut(conn).client_closed = true;
        if !silent {
            self.send_to_node(conn, crate::world::NodeInput::Closed { conn });
        }
    }

    /// The process stands still; its clock goes on.
    pub fn pause_client(&mut self, client: usize, length: Option<Duration>) {
        let c = &mut self.clients[client];
        if c.core.is_none() || c.paused {
            return;
        }
        c.paused = true;
        let life = c.life;
        self.trace.line(|| format!("c{client} is paused"));
        if let Some(length) = length {
            self.queue.push(self.now + length, Event::ResumeClient { client, life });
        }
    }

    /// It wakes up. What it was about to do it does first: it writes under the locks it believes to
    /// hold, before it has looked at a clock or read a byte. This is the zombie the fence is for.
    pub(crate) fn resume_client(&mut self, client: usize, life: u64) -> Checked {
        let c = &mut self.clients[client];
        if c.life != life || !c.paused {
            return Ok(());
        }
        c.paused = false;
        self.trace.line(|| format!("c{client} wakes up"));
        let held: Vec<ClaimId> = self.clients[client].held().map(|(id, _, _)| id).collect();
        for claim in held {
            self.write_under(client, claim);
        }
        let inbox = std::mem::take(&mut self.clients[client].inbox);
        for input in inbox {
            self.client_input(client, life, input)?;
        }
        self.tick_client(client)
    }

    pub(crate) fn client_wake(&mut self, client: usize, life: u64) -> Checked {
        let c = &mut self.clients[client];
        if c.life != life || c.wake > self.now {
            return Ok(());
        }
        c.wake = Time::FAR;
        if c.paused {
            return Ok(());
        }
        self.tick_client(client)
    }

    fn tick_client(&mut self, client: usize) -> Checked {
        let now = self.now;
        let c = &mut self.clients[client];
        let Some(core) = &mut c.core else { return Ok(()) };
        core.handle(c.clock.local(now), Input::Tick);
        self.after_client(client)
    }

    /// Something arrives at a client.
    pub(crate) fn client_input(&mut self, client: usize, life: u64, input: ClientInput) -> Checked {
        let now = self.now;
        let c = &mut self.clients[client];
        if c.life != life || c.core.is_none() {
            return Ok(());
        }
        if c.paused {
            c.inbox.push(input);
            return Ok(());
        }
        let (ClientInput::Connected { conn }
        | ClientInput::Refused { conn }
        | ClientInput::Closed { conn }
        | ClientInput::Bytes { conn, .. }) = &input;
        let connection = self.links.get_mut(*conn);
        if connection.client_closed {
            return Ok(());
        }
        let link = connection.link;
        let local = c.clock.local(now);
        let Some(core) = &mut c.core else { return Ok(()) };
        match input {
            ClientInput::Connected { .. } => core.handle(local, Input::Connected { link }),
            ClientInput::Bytes { bytes, .. } => core.handle(local, Input::Received { link, bytes: &bytes }),
            ClientInput::Refused { .. } | ClientInput::Closed { .. } => {
                connection.client_closed = true;
                core.handle(local, Input::Disconnected { link });
            }
        }
        self.trace.event(now, 11, &[client as u64, link.0]);
        self.after_client(client)
    }

    /// Does what a client's core wants done, and comes back when it asks for it.
    pub(crate) fn after_client(&mut self, client: usize) -> Checked {
        while let Some(action) = self.clients[client].core.as_mut().and_then(Core::poll_action) {
            match action {
                Action::Dial { link, endpoint } => self.dial(client, link, &endpoint)?,
                Action::Hangup { link } => {
                    if let Some(conn) = self.clients[client].links.remove(&link) {
                        self.hang_up(conn, false);
                    }
                }
                Action::Send { link, bytes } => {
                    if let Some(&conn) = self.clients[client].links.get(&link) {
                        self.trace.bytes(&bytes);
                        self.send_to_node(conn, crate::world::NodeInput::Bytes { conn, bytes });
                    }
                }
                Action::Event(event) => self.told(client, event)?,
            }
        }
        let now = self.now;
        let c = &mut self.clients[client];
        let Some(core) = &c.core else { return Ok(()) };
        let next = core.next_deadline();
        let at = c.clock.truth(next).max(now + Duration::from_micros(50));
        if next < Time::FAR && at < c.wake {
            c.wake = at;
            self.queue.push(at, Event::Wake { client, life: c.life });
        }
        Ok(())
    }

    fn dial(&mut self, client: usize, link: LinkId, endpoint: &str) -> Checked {
        let node = node_at(endpoint).filter(|n| *n < self.nodes.len());
        let Some(node) = node else {
            return Err(Violation::new("codec", format!("client {client} dials {endpoint}")));
        };
        let life = self.clients[client].life;
        let conn = self.links.dial(client, life, link, node);
        self.clients[client].links.insert(link, conn);
        self.send_to_node(conn, crate::world::NodeInput::Connect { conn });
        Ok(())
    }

    /// The core tells the application something.
    fn told(&mut self, client: usize, event: Told) -> Checked {
        self.trace.line(|| format!("c{client} is told {event:?}"));
        let now = self.now;
        let c = &mut self.clients[client];
        match event {
            Told::SessionOpened { handle, session, ttl, .. } => {
                if let Some(known) = c.sessions.get_mut(&handle) {
                    demand(known.id.is_none() || known.id == Some(session), "S8", || {
                        format!("the open of one session gave {:?}, then {session}", known.id)
                    })?;
                    *known = Session { id: Some(session), ttl };
                }
                if let Some(deadline) = c.core.as_ref().and_then(|core| core.deadline(handle)) {
                    self.lease(client, handle, deadline);
                }
            }
            Told::Renewed { handle, deadline } => self.lease(client, handle, deadline),
            Told::SessionFailed { handle, .. }
            | Told::SessionLost { handle, .. }
            | Told::SessionClosed { handle } => {
                c.sessions.remove(&handle);
                c.claims.retain(|_, claim| claim.session != handle);
            }
            Told::ClaimGranted { claim, fence } | Told::ClaimDowngraded { claim, fence } => {
                self.granted(client, claim, &fence)?;
            }
            Told::ClaimKept { claim, .. } => self.release(client, claim),
            Told::ClaimDone { claim, .. } | Told::ClaimLost { claim, .. } => {
                c.claims.remove(&claim);
            }
            Told::CallDone { call, .. } => {
                c.calls.remove(&call);
            }
            Told::ClaimQueued { .. }
            | Told::ClaimDelayed { .. }
            | Told::SessionDelayed { .. }
            | Told::WriteDone { .. }
            | Told::WriteLost { .. }
            | Told::ClaimConflict { .. }
            | Told::ResourceConflict { .. }
            | Told::LinkUp { .. }
            | Told::LinkDown { .. } => {}
        }
        self.trace.event(now, 12, &[client as u64]);
        Ok(())
    }

    /// The client's lease lasts until the deadline plus the margin, on its clock.
    fn lease(&mut self, client: usize, handle: SessionHandle, deadline: Time) {
        let c = &self.clients[client];
        let Some(session) = c.sessions.get(&handle) else { return };
        let Some(id) = session.id else { return };
        let until = c.clock.truth(deadline + margin(session.ttl));
        self.sessions.on_lease(id, until);
    }

    fn granted(&mut self, client: usize, claim: ClaimId, fence: &Fence) -> Checked {
        let now = self.now;
        let Some(known) = self.clients[client].claims.get_mut(&claim) else { return Ok(()) };
        demand(known.fence.is_none() || known.fence.as_ref() == Some(fence), "S8", || {
            format!("one claim got {:?}, then {fence}", known.fence)
        })?;
        demand(*fence.key() == known.key, "S8", || format!("a claim of {} got {fence}", known.key))?;
        known.fence = Some(fence.clone());
        known.since = now;
        let (session, mode, leads) = (known.session, known.mode, known.leads);
        // Whom an operator has ousted before the grant arrived cannot know it.
        let ousted = self.witness.ousted(fence);
        if known.given_up || ousted || !self.clients[client].believes(session, now) {
            return Ok(());
        }
        let others: Vec<Believer> = self.believers(fence.key(), Some((client, claim)));
        self.locks.on_holding(client, fence, mode, leads, &others)?;
        if self.clients[client].rng.per_mille(700) {
            self.write_under(client, claim);
        }
        Ok(())
    }

    /// Who believes to hold a key, by their own clocks.
    pub(crate) fn believers(&self, key: &Key, but: Option<(usize, ClaimId)>) -> Vec<Believer> {
        let mut all = Vec::new();
        for (client, c) in self.clients.iter().enumerate() {
            for (id, claim, fence) in c.held() {
                // Whom an operator has ousted cannot know it at once: that is what the fence is for.
                if self.witness.ousted(fence) {
                    continue;
                }
                if claim.key == *key && but != Some((client, id)) && c.believes(claim.session, self.now) {
                    all.push(Believer { client, fence: fence.clone(), mode: claim.mode });
                }
            }
        }
        all
    }
}

//! What the applications do: open sessions, acquire hot and cold keys with and without waiting,
//! write to the resource under their locks, release, give up, put and delete ephemeral keys, read, close.

use core::time::Duration;

use palisade_client_core::{
    AcquireSpec, CallRequest, ClaimId, Query, ReadFrom, SessionHandle, SessionSpec, WriteSpec,
};
use palisade_types::{
    Class, Epoch, Key, LogIndex, Mode, Name, OnDeath, OperatorAct, Rng, SessionId, SessionToken, Time, Value,
};
use palisade_wire::Wait;

use crate::check::Checked;
use crate::client::{Claim, Session};
use crate::options::WorkloadOptions;
use crate::resource::Write;
use crate::world::{Event, Phase, World};

/// A session awaits and holds at most about so many keys, mostly.
const CLAIMS: usize = 4;

/// A reader waits for at most so many answers.
const CALLS: usize = 8;

fn draw_key(rng: &mut Rng, o: &WorkloadOptions) -> Key {
    let text = match rng.per_mille(700) {
        true => format!("hot-{}", rng.below(o.hot_keys)),
        false => format!("cold-{}", rng.below(o.cold_keys)),
    };
    Key::new(&text).expect("a name")
}

fn draw_acquire(rng: &mut Rng, o: &WorkloadOptions) -> AcquireSpec {
    let key = draw_key(rng, o);
    let advisory = match rng.per_mille(30) {
        true => rng.per_mille(500),
        false => key.ends_with('3'),
    };
    let wait = match rng.below(10) {
        0..=2 => Wait::No,
        3..=6 => Wait::Millis(rng.between(50, 4_000) as u32),
        _ => Wait::Forever,
    };
    let class = if advisory { Class::Advisory } else { Class::Fenced };
    let resource = (class == Class::Fenced).then(|| key.clone());
    let mode = if rng.per_mille(o.shared) { Mode::Shared } else { Mode::Exclusive };
    // Only keys that few want: they stay closed until somebody reports the death.
    let closes = key.starts_with("cold") && rng.per_mille(100);
    let on_death = if closes { OnDeath::Quarantine } else { OnDeath::Release };
    AcquireSpec { resource, mode, wait, on_death, ..AcquireSpec::new(key, class) }
}

fn draw_campaign(rng: &mut Rng) -> AcquireSpec {
    let key = Key::new(&format!("election-{}", rng.below(3))).expect("a name");
    let wait = if rng.per_mille(300) { Wait::No } else { Wait::Forever };
    AcquireSpec { wait, value: Some(draw_said(rng)), ..AcquireSpec::new(key, Class::Election) }
}

fn draw_said(rng: &mut Rng) -> Value {
    vec![rng.below(256) as u8; rng.below(30) as usize].into()
}

/// Few keys, so that clients contend for them, and some more.
fn draw_value_key(rng: &mut Rng, o: &WorkloadOptions) -> Key {
    let most = if rng.per_mille(600) { o.hot_keys } else { o.hot_keys + 20 };
    Key::new(&format!("value-{}", rng.below(most))).expect("a name")
}

/// Mostly a put of a few bytes, now and then of many; sometimes a delete.
fn draw_write(rng: &mut Rng, o: &WorkloadOptions) -> WriteSpec {
    let key = draw_value_key(rng, o);
    if rng.per_mille(250) {
        return WriteSpec::Delete { key };
    }
    let len = if rng.per_mille(30) { rng.below(16_385) } else { rng.below(40) };
    let byte = rng.below(256) as u8;
    WriteSpec::Put { key, value: vec![byte; len as usize].into() }
}

fn draw_query(rng: &mut Rng, o: &WorkloadOptions) -> Query {
    let rows = rng.between(1, 20) as u32;
    match rng.below(13) {
        12 => Query::Describe { key: Key::new(&format!("election-{}", rng.below(3))).expect("a name") },
        8..=10 => Query::Get { key: draw_value_key(rng, o) },
        11 => {
            let prefix = rng.per_mille(500).then(|| Name::new("value-1").expect("a name"));
            Query::ListValues { prefix, after: None, rows }
        }
        0..=4 => Query::Describe { key: draw_key(rng, o) },
        5 => Query::ListLocks { after: None, rows },
        6 => Query::ListSessions { after: None, rows },
        _ => Query::ListOperatorActs { after: LogIndex(0), rows },
    }
}

/// Mostly a key protects a resource of its own; those it shares with other keys are few.
fn draw_resource(rng: &mut Rng, key: &Key) -> Name {
    match rng.per_mille(600) {
        true => key.clone(),
        false => Name::new(&format!("resource-{}", rng.below(4))).expect("a name"),
    }
}

/// Now and then a read is of the registry of resources instead.
fn divert(rng: &mut Rng, request: CallRequest) -> CallRequest {
    if !rng.per_mille(120) {
        return request;
    }
    let (conflicts, rows) = (rng.per_mille(500), rng.between(1, 20) as u32);
    let after = rng.per_mille(300).then(|| Name::new("resource-1").expect("a name"));
    let query = Query::ListResources { conflicts, after, rows };
    match request {
        CallRequest::Read { from, .. } => CallRequest::Read { query, from },
        CallRequest::ReadByLease { .. } => CallRequest::ReadByLease { query },
        CallRequest::ReadStale { .. } => CallRequest::ReadStale { query },
        other => other,
    }
}

/// What a client with sessions reads: it is connected to the leader, or wants to be.
fn draw_read(rng: &mut Rng, o: &WorkloadOptions) -> CallRequest {
    let query = draw_query(rng, o);
    match rng.below(16) {
        0 => CallRequest::Status,
        1..=2 => CallRequest::ReadStale { query },
        3..=4 => CallRequest::Read { query, from: ReadFrom::Any },
        5..=9 => CallRequest::ReadByLease { query },
        _ => CallRequest::Read { query, from: ReadFrom::Leader },
    }
}

/// What a client without sessions reads: any node will do.
fn draw_any_read(rng: &mut Rng, o: &WorkloadOptions) -> CallRequest {
    let query = draw_query(rng, o);
    match rng.below(10) {
        0 => CallRequest::Status,
        1..=3 => CallRequest::ReadStale { query },
        _ => CallRequest::Read { query, from: ReadFrom::Any },
    }
}

impl World {
    /// A client does the next thing, and comes back after a while.
    pub(crate) fn client_step(&mut self, client: usize, life: u64) -> Checked {
        let now = self.now;
        let c = &mut self.clients[client];
        if c.life != life || c.core.is_none() || self.phase == Phase::Quiet {
            return Ok(());
        }
        let o = self.options.workload;
        let gap = Duration::from_nanos(c.rng.between(1, 2 * o.gap.as_nanos() as u64));
        self.queue.push(now + gap, Event::Step { client, life });
        if c.paused {
            return Ok(());
        }
        self.trace.event(now, 13, &[client as u64]);
        if client >= o.clients && c.calls.len() >= CALLS {
            // The nodes have little room in some runs: who waits for so much asks for no more.
            return Ok(());
        }
        if client >= o.clients {
            let request = match client - o.clients < o.lease_readers {
                true => CallRequest::ReadByLease { query: draw_query(&mut c.rng, &o) },
                false => draw_any_read(&mut c.rng, &o),
            };
            let request = divert(&mut c.resources, request);
            self.call(client, request);
            return self.after_client(client);
        }
        if c.sessions.len() < o.sessions {
            self.open_session(client);
            return self.after_client(client);
        }
        match c.rng.below(100) {
            0..=36 => self.acquire_some(client, draw_acquire),
            37..=41 => self.acquire_some(client, |rng, _| draw_campaign(rng)),
            42..=43 => self.proclaim_some(client),
            44..=49 => self.write_some(client),
            50..=71 => self.use_held(client),
            72..=73 => self.downgrade_some(client),
            74..=79 => self.give_up_some(client),
            80..=95 => self.read_some(client),
            96 => self.operate_some(client),
            _ => self.close_some(client),
        }
        self.release_old(client);
        self.after_client(client)
    }

    /// Opens a session.
    pub fn open_session(&mut self, client: usize) -> Option<SessionHandle> {
        let now = self.now;
        let o = self.options.workload;
        let c = &mut self.clients[client];
        let ttl = c.rng.between(o.ttl_min.as_millis() as u64, o.ttl_max.as_millis() as u64);
        let token = SessionToken(u128::from(c.rng.next_u64()) << 64 | u128::from(c.rng.next_u64()));
        let owner = Name::new(&format!("client-{client}")).ok();
        let spec = SessionSpec { ttl: Duration::from_millis(ttl), owner, incarnation: None };
        let handle = c.core.as_mut()?.open_session(c.clock.local(now), spec, token);
        c.sessions.insert(handle, Session::new(Duration::from_millis(ttl)));
        Some(handle)
    }

    /// Makes a claim.
    pub fn acquire(&mut self, client: usize, session: SessionHandle, spec: AcquireSpec) -> Option<ClaimId> {
        let now = self.now;
        let c = &mut self.clients[client];
        let (key, mode, leads) = (spec.key.clone(), spec.mode, spec.class == Class::Election);
        let id = c.core.as_mut()?.acquire(c.clock.local(now), session, spec);
        c.claims.insert(id, Claim { session, key, mode, leads, fence: None, since: now, given_up: false });
        Some(id)
    }

    fn acquire_some(&mut self, client: usize, draw: fn(&mut Rng, &WorkloadOptions) -> AcquireSpec) {
        let o = self.options.workload;
        let Some(session) = self.draw_session(client) else { return };
        let c = &mut self.clients[client];
        let claims = c.claims.values().filter(|claim| claim.session == session).count();
        if claims >= CLAIMS && !c.rng.per_mille(50) {
            return;
        }
        let mut spec = draw(&mut c.rng, &o);
        if spec.resource.is_some() {
            spec.resource = Some(draw_resource(&mut c.resources, &spec.key));
        }
        self.acquire(client, session, spec);
    }

    /// Puts or deletes an ephemeral key, and sometimes does not wait for the answer.
    fn write_some(&mut self, client: usize) {
        let now = self.now;
        let o = self.options.workload;
        let Some(session) = self.draw_session(client) else { return };
        let c = &mut self.clients[client];
        let spec = draw_write(&mut c.rng, &o);
        let impatient = c.rng.per_mille(100);
        let Some(core) = &mut c.core else { return };
        let write = core.write(c.clock.local(now), session, spec);
        if impatient {
            core.drop_write(c.clock.local(now), write);
        }
    }

    /// One of the sessions that are open.
    fn draw_session(&mut self, client: usize) -> Option<SessionHandle> {
        let c = &mut self.clients[client];
        let open: Vec<SessionHandle> =
            c.sessions.iter().filter(|(_, s)| s.id.is_some()).map(|(h, _)| *h).collect();
        if open.is_empty() {
            return None;
        }
        Some(open[c.rng.below(open.len() as u64) as usize])
    }

    /// One of the claims that are held and fit.
    fn draw_held(&mut self, client: usize, fits: impl Fn(&Claim) -> bool) -> Option<ClaimId> {
        let c = &mut self.clients[client];
        let held: Vec<ClaimId> = c.held().filter(|(_, claim, _)| fits(claim)).map(|(id, ..)| id).collect();
        held.get(c.rng.below(held.len().max(1) as u64) as usize).copied()
    }

    /// Turns an exclusive lock into a shared one: from this call until it is told the new fence the
    /// application holds nothing. Once in a while it tries that with a shared one.
    fn downgrade_some(&mut self, client: usize) {
        let now = self.now;
        let odd = self.clients[client].rng.per_mille(50);
        let fits = |claim: &Claim| !claim.leads && (claim.mode == Mode::Exclusive || odd);
        let Some(claim) = self.draw_held(client, fits) else { return };
        let c = &mut self.clients[client];
        if let (Some(core), Some(known)) = (&mut c.core, c.claims.get_mut(&claim)) {
            (known.mode, known.fence) = (Mode::Shared, None);
            core.downgrade(c.clock.local(now), claim);
        }
    }

    /// A leader says something else.
    fn proclaim_some(&mut self, client: usize) {
        let now = self.now;
        let Some(claim) = self.draw_held(client, |claim| claim.leads) else { return };
        let c = &mut self.clients[client];
        let said = draw_said(&mut c.rng);
        if let Some(core) = &mut c.core {
            core.proclaim(c.clock.local(now), claim, said);
        }
    }

    /// Writes under a lock that is held.
    fn use_held(&mut self, client: usize) {
        let c = &mut self.clients[client];
        let held: Vec<ClaimId> = c.held().map(|(id, _, _)| id).collect();
        if !held.is_empty() {
            let claim = held[c.rng.below(held.len() as u64) as usize];
            self.write_under(client, claim);
        }
    }

    /// Sends a write under a claim to the resource, whatever the time is.
    pub fn write_under(&mut self, client: usize, claim: ClaimId) {
        let now = self.now;
        let c = &mut self.clients[client];
        let Some(known) = c.claims.get(&claim) else { return };
        let Some(fence) = known.fence.clone() else { return };
        let zombie = !c.believes(known.session, now);
        let delay = Duration::from_micros(c.rng.between(50, 5_000));
        self.trace
            .line(|| format!("c{client} writes under {fence}{}", if zombie { ", a zombie" } else { "" }));
        let write = Write { client, fence, mode: known.mode, sent: now, zombie };
        self.queue.push(now + delay, Event::Write(Box::new(write)));
    }

    /// A write arrives at the resource.
    pub(crate) fn write_arrives(&mut self, write: &Write) -> Checked {
        let holders = self.believers(write.fence.key(), None);
        let valid = holders.iter().any(|b| b.client == write.client && b.fence == write.fence);
        let verdict = self.resource.write(write, valid)?;
        self.trace.event(self.now, 14, &[write.client as u64, write.fence.epoch().0, verdict as u64]);
        self.trace.line(|| format!("the resource: {verdict:?} {} of c{}", write.fence, write.client));
        Ok(())
    }

    /// Releases what has been held for long enough, and often what has not.
    fn release_old(&mut self, client: usize) {
        let now = self.now;
        let hold = self.options.workload.hold;
        let c = &mut self.clients[client];
        let held: Vec<(ClaimId, Time)> = c.held().map(|(id, claim, _)| (id, claim.since)).collect();
        for (claim, since) in held {
            if now.since(since) > hold || self.clients[client].rng.per_mille(100) {
                self.release(client, claim);
            }
        }
    }

    /// Releases a claim: from this call on the application holds nothing.
    pub fn release(&mut self, client: usize, claim: ClaimId) {
        let now = self.now;
        let c = &mut self.clients[client];
        if let (Some(core), Some(known)) = (&mut c.core, c.claims.get_mut(&claim)) {
            known.given_up = true;
            core.release(c.clock.local(now), claim);
        }
    }

    /// Drops a claim, granted or not, without waiting for anything.
    fn give_up_some(&mut self, client: usize) {
        let now = self.now;
        let c = &mut self.clients[client];
        let all: Vec<ClaimId> = c.claims.iter().filter(|(_, k)| !k.given_up).map(|(id, _)| *id).collect();
        if all.is_empty() {
            return;
        }
        let claim = all[c.rng.below(all.len() as u64) as usize];
        c.claims.remove(&claim);
        if let Some(core) = &mut c.core {
            core.abandon(c.clock.local(now), claim);
        }
    }

    fn read_some(&mut self, client: usize) {
        let o = self.options.workload;
        let c = &mut self.clients[client];
        let request = draw_read(&mut c.rng, &o);
        let request = divert(&mut c.resources, request);
        self.call(client, request);
    }

    /// Makes a call.
    pub fn call(&mut self, client: usize, request: CallRequest) {
        let now = self.now;
        let c = &mut self.clients[client];
        if let Some(core) = &mut c.core {
            c.calls.insert(core.call(c.clock.local(now), request));
        }
    }

    /// An operator acts on anybody's session or key, with what it knows of them, which may be old.
    fn operate_some(&mut self, client: usize) {
        let o = self.options.workload;
        let sessions: Vec<SessionId> =
            self.clients.iter().flat_map(|c| c.sessions.values().filter_map(|s| s.id)).collect();
        let held: Vec<(Key, Epoch)> = self
            .clients
            .iter()
            .flat_map(|c| c.held().map(|(_, claim, fence)| (claim.key.clone(), fence.epoch())))
            .collect();
        let c = &mut self.clients[client];
        // Those whose keys are closed until somebody reports their death come up now and then.
        let closed = self.witness.quarantined();
        let closed = closed.get(c.rng.below(closed.len().max(1) as u64) as usize).copied();
        let session = sessions.get(c.rng.below(sessions.len().max(1) as u64) as usize).copied();
        let grant = held.get(c.rng.below(held.len().max(1) as u64) as usize).cloned();
        let act = match (c.rng.below(10), session, grant) {
            _ if closed.is_some() && c.rng.per_mille(500) => {
                let session = closed.unwrap_or_default();
                OperatorAct::ReportDead { session }
            }
            (0, Some(session), _) => OperatorAct::ReportDead { session },
            (1, Some(session), _) => OperatorAct::Evict { session },
            (looked @ 2..=3, _, _) => {
                let key = draw_key(&mut c.rng, &o);
                // What a look at the key would have shown, now or a grant ago.
                let epoch = Epoch(self.witness.last_epoch(&key).0.saturating_sub(looked - 2));
                OperatorAct::Retire { key, epoch }
            }
            (_, _, Some((key, epoch))) => OperatorAct::ForceRelease { key, epoch },
            _ => return,
        };
        let name = |text| Name::new(text).expect("a name");
        self.call(client, CallRequest::Operate { by: name("operator"), reason: name("a drill"), act });
    }

    fn close_some(&mut self, client: usize) {
        let c = &mut self.clients[client];
        let all: Vec<SessionHandle> = c.sessions.keys().copied().collect();
        if let Some(&handle) = all.get(c.rng.below(all.len().max(1) as u64) as usize) {
            self.close(client, handle);
        }
    }

    /// Closes a session.
    pub fn close(&mut self, client: usize, handle: SessionHandle) {
        let now = self.now;
        let c = &mut self.clients[client];
        // From this call on the application holds nothing of it.
        c.claims.retain(|_, claim| claim.session != handle);
        if let Some(core) = &mut c.core {
            core.close_session(c.clock.local(now), handle);
        }
    }

    /// The application ends: closes its sessions and does nothing more.
    pub(crate) fn wind_down(&mut self, client: usize) -> Checked {
        let all: Vec<SessionHandle> = self.clients[client].sessions.keys().copied().collect();
        for handle in all {
            self.close(client, handle);
        }
        self.after_client(client)
    }
}

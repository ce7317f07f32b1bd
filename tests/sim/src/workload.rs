//! What the applications do: open sessions, acquire hot and cold keys with and without waiting,
//! write to the resource under their locks, release, give up, read, close.

use core::time::Duration;

use palisade_client_core::{AcquireSpec, CallRequest, ClaimId, Query, ReadFrom, SessionHandle, SessionSpec};
use palisade_types::{Class, Epoch, Key, LogIndex, Name, OperatorAct, Rng, SessionId, SessionToken, Time};
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
    AcquireSpec { key, class, resource, wait }
}

fn draw_query(rng: &mut Rng, o: &WorkloadOptions) -> Query {
    let rows = rng.between(1, 20) as u32;
    match rng.below(8) {
        0..=4 => Query::Describe { key: draw_key(rng, o) },
        5 => Query::ListLocks { after: None, rows },
        6 => Query::ListSessions { after: None, rows },
        _ => Query::ListOperatorActs { after: LogIndex(0), rows },
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
            self.call(client, request);
            return self.after_client(client);
        }
        if c.sessions.len() < o.sessions {
            self.open_session(client);
            return self.after_client(client);
        }
        match c.rng.below(100) {
            0..=49 => self.acquire_some(client),
            50..=73 => self.use_held(client),
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
        let key = spec.key.clone();
        let id = c.core.as_mut()?.acquire(c.clock.local(now), session, spec);
        c.claims.insert(id, Claim { session, key, fence: None, since: now, given_up: false });
        Some(id)
    }

    fn acquire_some(&mut self, client: usize) {
        let o = self.options.workload;
        let c = &mut self.clients[client];
        let open: Vec<SessionHandle> =
            c.sessions.iter().filter(|(_, s)| s.id.is_some()).map(|(h, _)| *h).collect();
        if open.is_empty() {
            return;
        }
        let session = open[c.rng.below(open.len() as u64) as usize];
        let claims = c.claims.values().filter(|claim| claim.session == session).count();
        if claims >= CLAIMS && !c.rng.per_mille(50) {
            return;
        }
        let spec = draw_acquire(&mut c.rng, &o);
        self.acquire(client, session, spec);
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
        let write = Write { client, fence, sent: now, zombie };
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
        let request = draw_read(&mut self.clients[client].rng, &o);
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
        let session = sessions.get(c.rng.below(sessions.len().max(1) as u64) as usize).copied();
        let grant = held.get(c.rng.below(held.len().max(1) as u64) as usize).cloned();
        let act = match (c.rng.below(10), session, grant) {
            (0, Some(session), _) => OperatorAct::ReportDead { session },
            (1, Some(session), _) => OperatorAct::Evict { session },
            (2..=3, _, _) => OperatorAct::Retire { key: draw_key(&mut c.rng, &o) },
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

//! Playing by hand: a world without a storm, and clients that do what a test says.

use core::time::Duration;

use palisade_client_core::{AcquireSpec, ClaimId, SessionHandle, SessionSpec};
use palisade_types::{Class, Description, Fence, Key, Mode, SessionId, SessionToken, Time};
use palisade_wire::Wait;

use crate::check::Checked;
use crate::client::Claim;
use crate::options::{FaultOptions, NetworkOptions, Options, Profile};
use crate::resource::Resource;
use crate::trace::Story;
use crate::world::World;

impl Options {
    /// A run in which nothing goes wrong by itself and nobody does anything by himself.
    pub fn by_hand(seed: u64, nodes: usize, clients: usize) -> Options {
        let mut options = Options::draw(seed, Profile::Swarm);
        options.nodes = nodes;
        options.storm = Duration::from_secs(3_600);
        options.faults =
            FaultOptions { shapes: vec![crate::network::Shape::Split], ..FaultOptions::default() };
        options.network = NetworkOptions {
            floor: Duration::from_micros(200),
            tail: Duration::from_micros(300),
            loss_per_mille: 0,
            duplicate_per_mille: 0,
            late_per_mille: 0,
            ordered: true,
        };
        options.shard.in_hand_max = 1_000;
        options.workload.clients = clients;
        options.workload.readers = 0;
        options.leases = false;
        options.workload.sessions = 0;
        options.workload.gap = Duration::from_secs(100_000);
        options
    }
}

impl World {
    /// A world to be played by hand, in which everything has been started.
    pub fn by_hand(seed: u64, nodes: usize, clients: usize) -> World {
        let mut world = World::new(Options::by_hand(seed, nodes, clients), Story::Keep);
        world.begin();
        world
    }

    /// Lets so much time pass.
    ///
    /// # Errors
    /// The first rule found broken.
    pub fn pass(&mut self, time: Duration) -> Checked {
        self.run_until(self.now() + time)
    }

    /// Lets time pass until this holds, at most so long. Says whether it came to hold.
    ///
    /// # Errors
    /// The first rule found broken.
    pub fn pass_until(
        &mut self,
        most: Duration,
        mut holds: impl FnMut(&World) -> bool,
    ) -> Result<bool, crate::check::Violation> {
        let end = self.now() + most;
        while !holds(self) {
            if self.now() >= end {
                return Ok(false);
            }
            self.pass(Duration::from_millis(1))?;
        }
        Ok(true)
    }

    /// A client opens a session with this TTL.
    ///
    /// # Errors
    /// A rule found broken.
    pub fn client_opens(
        &mut self,
        client: usize,
        ttl: Duration,
    ) -> Result<SessionHandle, crate::check::Violation> {
        let token = SessionToken(u128::from(self.rng.next_u64()));
        let now = self.now();
        let c = &mut self.clients[client];
        let local = c.clock.local(now);
        let core = c.core.as_mut().expect("the client runs");
        let handle = core.open_session(local, SessionSpec { ttl, ..SessionSpec::default() }, token);
        c.sessions.insert(handle, crate::client::Session::new(ttl));
        self.after_client(client)?;
        Ok(handle)
    }

    /// A client acquires a key that protects the resource of the same name.
    ///
    /// # Errors
    /// A rule found broken.
    pub fn client_acquires(
        &mut self,
        client: usize,
        session: SessionHandle,
        key: &str,
        wait: Wait,
    ) -> Result<ClaimId, crate::check::Violation> {
        let key = Key::new(key).expect("a name");
        let resource = Some(key.clone());
        let spec = AcquireSpec { resource, wait, ..AcquireSpec::new(key, Class::Fenced) };
        self.client_claims(client, session, spec)
    }

    /// A client campaigns to lead an election.
    ///
    /// # Errors
    /// A rule found broken.
    pub fn client_campaigns(
        &mut self,
        client: usize,
        session: SessionHandle,
        election: &str,
        wait: Wait,
    ) -> Result<ClaimId, crate::check::Violation> {
        let key = Key::new(election).expect("a name");
        let value = Some(format!("client {client}").into_bytes().into());
        let spec = AcquireSpec { value, wait, ..AcquireSpec::new(key, Class::Election) };
        self.client_claims(client, session, spec)
    }

    fn client_claims(
        &mut self,
        client: usize,
        session: SessionHandle,
        spec: AcquireSpec,
    ) -> Result<ClaimId, crate::check::Violation> {
        let (key, leads) = (spec.key.clone(), spec.class == Class::Election);
        let now = self.now();
        let c = &mut self.clients[client];
        let local = c.clock.local(now);
        let id = c.core.as_mut().expect("the client runs").acquire(local, session, spec);
        c.claims.insert(
            id,
            Claim { session, key, mode: Mode::Exclusive, leads, fence: None, since: now, given_up: false },
        );
        self.after_client(client)?;
        Ok(id)
    }

    /// A client releases a claim.
    ///
    /// # Errors
    /// A rule found broken.
    pub fn client_releases(&mut self, client: usize, claim: ClaimId) -> Checked {
        self.release(client, claim);
        self.after_client(client)
    }

    /// A client gives a claim up, granted or not, and waits for nothing.
    ///
    /// # Errors
    /// A rule found broken.
    pub fn client_abandons(&mut self, client: usize, claim: ClaimId) -> Checked {
        let now = self.now();
        let c = &mut self.clients[client];
        c.claims.remove(&claim);
        if let Some(core) = &mut c.core {
            core.abandon(c.clock.local(now), claim);
        }
        self.after_client(client)
    }

    /// A paused client wakes up, and writes first of all.
    ///
    /// # Errors
    /// A rule found broken.
    pub fn client_wakes(&mut self, client: usize) -> Checked {
        let life = self.clients[client].life;
        self.resume_client(client, life)
    }

    /// Every operation of a node's disk takes so much longer from now on.
    pub fn slow_disk(&mut self, node: usize, by: Duration) {
        self.nodes[node].disk_slow = by;
    }

    /// The fence a client was granted, if it believes to hold the claim.
    pub fn fence(&self, client: usize, claim: ClaimId) -> Option<Fence> {
        let c = &self.clients[client];
        let known = c.claims.get(&claim)?;
        known.fence.clone().filter(|_| c.believes(known.session, self.now))
    }

    /// The id of a client's session, once it is open.
    pub fn session(&self, client: usize, session: SessionHandle) -> Option<SessionId> {
        self.clients[client].sessions.get(&session)?.id
    }

    /// Whether the client still has this claim, in whatever state.
    pub fn has_claim(&self, client: usize, claim: ClaimId) -> bool {
        self.clients[client].claims.contains_key(&claim)
    }

    /// What the applied state of a node says of a key.
    pub fn describe(&self, node: usize, key: &str) -> Option<Description> {
        let key = Key::new(key).expect("a name");
        Some(self.nodes[node].shard.as_ref()?.machine().describe(&key, 0))
    }

    /// The node that leads and serves.
    pub fn serving(&self) -> Option<usize> {
        self.leader().filter(|n| self.nodes[*n].shard.as_ref().is_some_and(palisade_shard::Shard::is_serving))
    }

    /// The highest term any node is in.
    pub fn term(&self) -> u64 {
        let terms = self.nodes.iter().filter_map(|n| n.shard.as_ref()).map(|s| s.raft().status().term.0);
        terms.max().unwrap_or(0)
    }

    /// How many commands are committed.
    pub fn committed(&self) -> u64 {
        self.raft.committed().0
    }

    /// The protected resource.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// True time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.now().since(Time::ZERO)
    }
}

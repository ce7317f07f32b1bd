//! etcd: a session is a lease; sessions share HTTP/2 connections, or have one each.

use std::time::Instant;

use etcd_client::{Client, Compare, CompareOp, LockOptions, PutOptions, Txn, TxnOp};
use tokio::task::JoinSet;

use super::window::{Tally, Window, gather, in_batches, lifetime};
use super::{PeerError, fresh_name};
use crate::work::{Measured, Mix, Work};

/// Does the work: connections go to the endpoints in turn, sessions to the connections in turn.
pub(crate) async fn run(
    work: &Work,
    endpoints: &[String],
    edge: &mut dyn FnMut(),
) -> Result<Measured, PeerError> {
    let name = fresh_name()?;
    let clients = in_batches((0..work.connections).map(|n| connect(at(endpoints, n)))).await?;
    let ttl = lifetime(work).as_secs() as i64;
    let open = |n| Session::open(clients[n as usize % clients.len()].clone(), ttl, name.clone(), n);
    let sessions = in_batches((0..work.sessions).map(open)).await?;
    if work.mix == Mix::Read {
        in_batches(sessions.iter().cloned().map(Session::put)).await?;
    }
    let window = Window::of(work);
    let mut tasks = JoinSet::new();
    for session in sessions.iter().cloned() {
        let tally = Tally::new(window);
        match work.mix {
            Mix::Cycle => tasks.spawn(session.cycle(tally)),
            Mix::Contend => tasks.spawn(session.contend(tally, name.clone())),
            Mix::Read => tasks.spawn(session.read(tally)),
            Mix::Renew => tasks.spawn(session.renew(tally)),
            Mix::Session => tasks.spawn(session.open_and_close(tally, ttl)),
        };
    }
    let measured = gather(work, window, tasks, edge).await?;
    in_batches(sessions.into_iter().map(Session::close)).await?;
    Ok(measured)
}

/// The node that leads, by its client endpoint; an error while there is none, or one does not answer.
pub(crate) async fn leader(endpoints: &[String]) -> Result<String, PeerError> {
    let mut found = None;
    for endpoint in endpoints {
        let status = connect(endpoint.clone()).await?.status().await?;
        let own = status.header().map(etcd_client::ResponseHeader::member_id);
        if own == Some(status.leader()) {
            found = Some(endpoint.clone());
        }
    }
    found.ok_or_else(|| PeerError::Answer("no node leads".to_owned()))
}

/// One write through one node.
pub(crate) async fn probe(endpoint: &str) -> Result<(), PeerError> {
    connect(endpoint.to_owned()).await?.put("probe", "", None).await?;
    Ok(())
}

pub(super) fn at(endpoints: &[String], n: u32) -> String {
    endpoints[n as usize % endpoints.len()].clone()
}

/// A connection of its own; the client dials at its first call.
pub(super) async fn connect(endpoint: String) -> Result<Client, PeerError> {
    Ok(Client::connect([format!("http://{endpoint}")], None).await?)
}

#[derive(Clone)]
struct Session {
    client: Client,
    lease: i64,
    key: String,
}

impl Session {
    async fn open(mut client: Client, ttl: i64, name: String, n: u32) -> Result<Session, PeerError> {
        let lease = client.lease_grant(ttl, None).await?.id();
        Ok(Session { client, lease, key: format!("{name}/{n}") })
    }

    async fn close(mut self) -> Result<(), PeerError> {
        self.client.lease_revoke(self.lease).await?;
        Ok(())
    }

    async fn put(mut self) -> Result<(), PeerError> {
        let options = PutOptions::new().with_lease(self.lease);
        self.client.put(self.key, "holder", Some(options)).await?;
        Ok(())
    }

    /// The lock without a queue: the key is created if nobody has it, bound to the lease.
    async fn cycle(mut self, mut tally: Tally) -> Result<Tally, PeerError> {
        while tally.is_open() {
            let asked = Instant::now();
            let free = Compare::create_revision(self.key.clone(), CompareOp::Equal, 0);
            let options = PutOptions::new().with_lease(self.lease);
            let take = TxnOp::put(self.key.clone(), "holder", Some(options));
            let answer = self.client.txn(Txn::new().when([free]).and_then([take])).await?;
            if !answer.succeeded() {
                return Err(PeerError::Answer(format!("{} is held by another", self.key)));
            }
            tally.note(asked);
            self.client.delete(self.key.clone(), None).await?;
        }
        Ok(tally)
    }

    /// The lock with a queue: etcd's own Lock service.
    async fn contend(mut self, mut tally: Tally, name: String) -> Result<Tally, PeerError> {
        while tally.is_open() {
            let asked = Instant::now();
            let options = LockOptions::new().with_lease(self.lease);
            let held = self.client.lock(name.clone(), Some(options)).await?;
            tally.note(asked);
            self.client.unlock(held.key()).await?;
        }
        Ok(tally)
    }

    /// A Range is linearizable unless it asks not to be.
    async fn read(mut self, mut tally: Tally) -> Result<Tally, PeerError> {
        while tally.is_open() {
            let asked = Instant::now();
            let answer = self.client.get(self.key.clone(), None).await?;
            if answer.kvs().len() != 1 {
                return Err(PeerError::Answer(format!("{} is not there", self.key)));
            }
            tally.note(asked);
        }
        Ok(tally)
    }

    async fn renew(mut self, mut tally: Tally) -> Result<Tally, PeerError> {
        let (mut keeper, mut answers) = self.client.lease_keep_alive(self.lease).await?;
        while tally.is_open() {
            let asked = Instant::now();
            keeper.keep_alive().await?;
            let answer = answers.message().await?;
            if answer.is_none_or(|a| a.ttl() <= 0) {
                return Err(PeerError::Answer("the lease is gone".to_owned()));
            }
            tally.note(asked);
        }
        Ok(tally)
    }

    async fn open_and_close(mut self, mut tally: Tally, ttl: i64) -> Result<Tally, PeerError> {
        while tally.is_open() {
            let asked = Instant::now();
            let lease = self.client.lease_grant(ttl, None).await?.id();
            tally.note(asked);
            self.client.lease_revoke(lease).await?;
        }
        Ok(tally)
    }
}

//! Connections between clients and nodes: streams of bytes that arrive in order or not at all, with
//! half-open ends, and the server's part of the protocol: greeting, frames, answers.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::BytesMut;
use palisade_client_core::LinkId;
use palisade_types::{ConnId, LogIndex, NodeId, Reply, RequestId};
use palisade_wire::{
    ClientHello, Group, Kind, Member, Push, Request, ServerHello, VERSION, common_version, encode_reply,
    take_frame,
};

use crate::check::{Checked, Violation, demand};
use crate::node::CLUSTER;
use crate::world::{ClientInput, Event, NodeInput, World};

/// A request under way, and what was committed anywhere when it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// The committed index at its arrival.
    pub committed: LogIndex,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: usize,
    pub(crate) client_life: u64,
    pub(crate) link: LinkId,
    pub(crate) node: usize,
    node_life: Option<u64>,
    /// Bytes were lost on the way: nothing may follow them.
    up_dead: bool,
    down_dead: bool,
    server_closed: bool,
    pub(crate) client_closed: bool,
    buffer: BytesMut,
    greeted: bool,
    asked: BTreeMap<RequestId, Asked>,
}

/// All connections there ever were.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: Vec<Connection>,
}

impl Links {
    /// A client dials.
    pub(crate) fn dial(&mut self, client: usize, client_life: u64, link: LinkId, node: usize) -> ConnId {
        self.all.push(Connection {
            client,
            client_life,
            link,
            node,
            node_life: None,
            up_dead: false,
            down_dead: false,
            server_closed: false,
            client_closed: false,
            buffer: BytesMut::new(),
            greeted: false,
            asked: BTreeMap::new(),
        });
        ConnId(self.all.len() as u64)
    }

    pub(crate) fn get(&self, conn: ConnId) -> &Connection {
        &self.all[conn.0 as usize - 1]
    }

    pub(crate) fn get_mut(&mut self, conn: ConnId) -> &mut Connection {
        &mut self.all[conn.0 as usize - 1]
    }

    /// The server takes it. False if it is gone already.
    pub(crate) fn accept(&mut self, conn: ConnId, life: u64) -> bool {
        let c = self.get_mut(conn);
        c.node_life = Some(life);
        !c.server_closed
    }

    /// The server learns that it is closed. False if it knew.
    pub(crate) fn close_at_server(&mut self, conn: ConnId) -> bool {
        let c = self.get_mut(conn);
        let open = !c.server_closed && c.node_life.is_some();
        c.server_closed = true;
        c.asked.clear();
        open
    }

    /// Every request on a connection that stands was answered.
    pub(crate) fn all_answered(&self) -> Checked {
        for c in self.all.iter().filter(|c| !c.server_closed && !c.client_closed && !c.up_dead) {
            if let Some((id, asked)) = c.asked.iter().next() {
                return Err(Violation::new(
                    "L4",
                    format!(
                        "node {} never answered request {id} of client {}: {:?}",
                        c.node + 1,
                        c.client,
                        asked.request
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl World {
    fn client_end(&self, client: usize) -> usize {
        self.nodes.len() + client
    }

    /// Something for a client, over the connection.
    pub(crate) fn send_to_client(&mut self, conn: ConnId, input: impl FnOnce(ConnId) -> ClientInput) {
        let (client, life, node, dead) = {
            let c = self.links.get(conn);
            (c.client, c.client_life, c.node, c.down_dead || c.client_closed)
        };
        if dead {
            return;
        }
        let end = self.client_end(client);
        match self.network.stream(self.now, node, end) {
            Some(at) => self.queue.push(at, Event::Client { client, life, input: input(conn) }),
            None => {
                self.links.get_mut(conn).down_dead = true;
                self.break_later(conn);
            }
        }
    }

    /// Something for a node, over the connection.
    pub(crate) fn send_to_node(&mut self, conn: ConnId, input: NodeInput) {
        let (client, node, dead) = {
            let c = self.links.get(conn);
            (c.client, c.node, c.up_dead)
        };
        if dead {
            return;
        }
        let end = self.client_end(client);
        match self.network.stream(self.now, end, node) {
            Some(at) => self.queue.push(at, Event::Node { node, life: 0, input }),
            None => {
                self.links.get_mut(conn).up_dead = true;
                self.break_later(conn);
            }
        }
    }

    /// Bytes were lost: sooner or later both ends learn that the connection is broken. Sometimes
    /// they do not, and must notice the silence.
    fn break_later(&mut self, conn: ConnId) {
        let (client, life, node) = {
            let c = self.links.get(conn);
            (c.client, c.client_life, c.node)
        };
        let after = Duration::from_millis(self.rng.between(50, 6_000));
        self.queue.push(self.now + after, Event::Node { node, life: 0, input: NodeInput::Closed { conn } });
        if self.rng.per_mille(500) {
            let after = Duration::from_millis(self.rng.between(50, 6_000));
            let input = ClientInput::Closed { conn };
            self.queue.push(self.now + after, Event::Client { client, life, input });
        }
    }

    /// A node's process is gone, and its ends of all connections with it. When it was killed the
    /// system says so to the clients; when the power failed nobody does.
    pub(crate) fn break_links_of_node(&mut self, node: usize, life: u64, silent: bool) {
        for i in 0..self.links.all.len() {
            let c = &mut self.links.all[i];
            if c.node != node || c.server_closed || c.node_life != Some(life) {
                continue;
            }
            c.server_closed = true;
            c.asked.clear();
            let conn = ConnId(i as u64 + 1);
            if !silent {
                self.send_to_client(conn, |conn| ClientInput::Closed { conn });
            }
            self.links.get_mut(conn).down_dead = true;
        }
    }

    /// Bytes arrive at a node: greets, and takes the requests apart.
    pub(crate) fn receive(
        &mut self,
        conn: ConnId,
        node: usize,
        leader: Option<NodeId>,
        bytes: &[u8],
    ) -> Result<Vec<(RequestId, Request)>, Violation> {
        let life = self.nodes[node].life;
        let committed = self.raft.committed();
        let mut requests = Vec::new();
        let mut hello = false;
        let c = self.links.get_mut(conn);
        if c.server_closed || c.node_life != Some(life) {
            return Ok(requests);
        }
        c.buffer.extend_from_slice(bytes);
        let broken = |e: String| Violation::new("codec", format!("what a client sent does not decode: {e}"));
        while let Some(frame) = take_frame(&mut c.buffer).map_err(|e| broken(e.to_string()))? {
            let frame = frame.as_frame();
            if frame.kind == Kind::ClientHello {
                let h = ClientHello::decode(&frame).map_err(|e| broken(e.to_string()))?;
                hello = common_version(h.version_min, h.version_max).is_some();
                c.greeted = true;
                continue;
            }
            demand(c.greeted && frame.kind.group() == Group::Request, "codec", || {
                format!("a client sent {:?}", frame.kind)
            })?;
            let request = Request::decode(&frame).map_err(|e| broken(e.to_string()))?;
            let asked = Asked { request: request.clone(), committed };
            let twice = c.asked.insert(frame.id, asked);
            demand(twice.is_none(), "codec", || format!("a client used request id {} twice", frame.id))?;
            requests.push((frame.id, request));
        }
        if self.trace.is_told() {
            for (id, request) in &requests {
                let client = self.links.get(conn).client;
                self.trace.line(|| format!("n{} <- c{client} {conn}/{id} {request:?}", node + 1));
            }
        }
        if hello {
            self.greet(conn, node, leader);
        }
        Ok(requests)
    }

    fn greet(&mut self, conn: ConnId, node: usize, leader: Option<NodeId>) {
        let members =
            self.nodes.iter().map(|n| Member { node: n.id, address: address(n.id.0 as usize - 1) }).collect();
        let hello = ServerHello {
            version: VERSION,
            node: self.nodes[node].id,
            cluster: CLUSTER,
            shards: 1,
            leader,
            members,
            frame_bytes_max: palisade_wire::FRAME_BYTES_MAX as u32,
            inflight_max: 1_000,
            election_timeout_ms: self.options.raft.election_min.as_millis() as u32,
        };
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        self.send_to_client(conn, |conn| ClientInput::Bytes { conn, bytes });
    }

    /// Sends a turn's answers and pushes, gathered per connection. Each is looked at first.
    pub(crate) fn answer(
        &mut self,
        node: usize,
        replies: Vec<(ConnId, RequestId, Reply)>,
        pushes: Vec<(ConnId, Push)>,
    ) -> Checked {
        let life = self.nodes[node].life;
        let leads = self.nodes[node].shard.as_ref().is_some_and(palisade_shard::Shard::is_serving);
        let mut gathered: BTreeMap<ConnId, Vec<u8>> = BTreeMap::new();
        for (conn, id, reply) in replies {
            let c = self.links.get_mut(conn);
            if c.server_closed || c.node_life != Some(life) {
                continue;
            }
            let Some(asked) = c.asked.remove(&id) else {
                return Err(Violation::new(
                    "L4",
                    format!("request {id} on {conn} is answered, but not asked: {reply:?}"),
                ));
            };
            let client = c.client;
            self.trace.line(|| format!("n{} -> c{client} {conn}/{id} {reply:?}", node + 1));
            self.reads.on_reply(conn, leads, &asked, &reply)?;
            self.witness.on_reply(&asked, &reply)?;
            if let Reply::Granted { session, ticket, fence } = &reply {
                self.locks.on_granted(*session, *ticket, fence)?;
            }
            encode_reply(&reply, id, gathered.entry(conn).or_default());
        }
        for (conn, push) in pushes {
            let c = self.links.get(conn);
            if c.server_closed || c.node_life != Some(life) {
                continue;
            }
            let client = c.client;
            self.trace.line(|| format!("n{} -> c{client} {conn} {push:?}", node + 1));
            self.witness.on_push(&push)?;
            if !self.watchers.is_empty() {
                self.watched.on_push(&push)?;
                self.congest(node, conn);
            }
            if let Push::Granted { session, ticket, fence } = &push {
                self.locks.on_granted(*session, *ticket, fence)?;
            }
            push.encode(gathered.entry(conn).or_default());
        }
        for (conn, bytes) in gathered {
            self.trace.bytes(&bytes);
            self.send_to_client(conn, |conn| ClientInput::Bytes { conn, bytes });
        }
        Ok(())
    }
}

/// Where a node listens.
pub(crate) fn address(node: usize) -> String {
    format!("node-{}:7400", node + 1)
}

/// The node that listens there.
pub(crate) fn node_at(address: &str) -> Option<usize> {
    address.strip_prefix("node-")?.strip_suffix(":7400")?.parse::<usize>().ok()?.checked_sub(1)
}

//! What arrives on connections, frame by frame: introductions, requests of clients, messages of
//! peers. Whatever breaks the protocol gets an answer that says so and a closed connection.

use bytes::Bytes;
use palisade_shard::{Input, peer_codec};
use palisade_types::{ConnId, NodeId, Refusal, Reply, RequestId, Time};
use palisade_wire::{
    ClientHello, FRAME_BYTES_MAX, Frame, Frames, HEADER_BYTES, HelloRefused, Kind, PeerHello, ProtocolError,
    REQUEST_BODY_BYTES_MAX, RefusedReason, Request, ServerHello, VERSION_MAX, VERSION_MIN, common_version,
    encode_reply_in,
};

use super::conn::Role;
use super::core::Core;
use super::inbox::Owner;
use super::members::Met;
use super::outdated;
use super::sockets::Chunk;

/// The most bytes of an unfinished frame a client or a stranger may leave here.
const UNFINISHED_MAX: usize = HEADER_BYTES + REQUEST_BODY_BYTES_MAX;

impl Core {
    /// Works through the whole frames of a chunk, as far as there is room for what they ask.
    pub(super) fn take_frames(&mut self, id: ConnId, chunk: Chunk, now: Time) {
        let mut frames = Frames::new(chunk.bytes());
        let mut held_back = false;
        while let Some(conn) = self.sockets.get(id) {
            if conn.role == Role::Client && !self.sockets.has_room(id) {
                held_back = true;
                break;
            }
            match frames.next_frame() {
                Ok(Some(frame)) => self.take_frame(id, frame, now),
                Ok(None) => break,
                Err(error) => {
                    self.protocol_error(id, error.to_string());
                    break;
                }
            }
        }
        let consumed = frames.consumed();
        let left = chunk.bytes().len() - consumed;
        let known = self.sockets.get(id).map(|c| c.role);
        if !held_back && left > UNFINISHED_MAX && matches!(known, Some(Role::New | Role::Client)) {
            self.protocol_error(id, format!("a client's frame has at most {UNFINISHED_MAX} bytes"));
        }
        self.sockets.give_back(id, chunk, consumed, held_back);
    }

    fn take_frame(&mut self, id: ConnId, frame: Frame<'_>, now: Time) {
        let Some(role) = self.sockets.get(id).filter(|c| !c.is_closing()).map(|c| c.role) else { return };
        match (role, frame.kind) {
            (Role::New, Kind::ClientHello) => self.client_hello(id, &frame),
            (Role::New, Kind::PeerHello) => self.peer_hello(id, &frame, now),
            (Role::New, _) => {
                self.refuse(id, RefusedReason::Malformed, "the first frame is a hello".to_owned())
            }
            (Role::Client, _) => self.request(id, &frame, now),
            (Role::PeerIn(node), Kind::Peer) => self.peer_message(id, node, &frame, now),
            (Role::Dialled(node), Kind::PeerHello) => self.peer_answer(id, node, &frame, now),
            (Role::Dialled(node), Kind::HelloRefused) => self.refused(id, node, &frame, now),
            (role, kind) => self.protocol_error(id, format!("a {kind:?} frame has no place here ({role:?})")),
        }
    }

    fn client_hello(&mut self, id: ConnId, frame: &Frame<'_>) {
        let hello = match ClientHello::decode(frame) {
            Ok(hello) => hello,
            Err(error) => return self.refuse(id, RefusedReason::Malformed, error.to_string()),
        };
        let identity = self.members.identity();
        let Some(version) = common_version(hello.version_min, hello.version_max) else {
            let text = format!("this node speaks protocol versions {VERSION_MIN} to {VERSION_MAX}");
            return self.refuse(id, RefusedReason::Version, text);
        };
        if hello.cluster.is_some_and(|c| c != identity.cluster) {
            let text = format!("this is cluster {} ({})", identity.cluster, identity.cluster_name);
            return self.refuse(id, RefusedReason::Cluster, text);
        }
        let answer = ServerHello {
            version,
            node: identity.node,
            cluster: identity.cluster,
            shards: identity.shards,
            leader: self.shard.as_ref().and_then(palisade_shard::Shard::leader),
            members: self.settings.members.clone(),
            frame_bytes_max: FRAME_BYTES_MAX as u32,
            inflight_max: self.settings.in_flight,
            election_timeout_ms: self.settings.election_min_ms,
        };
        self.sockets.introduce(id, Role::Client);
        if let Some(conn) = self.sockets.get_mut(id) {
            conn.version = version;
        }
        if let Some(out) = self.sockets.out(id) {
            answer.encode(out);
        }
    }

    fn peer_hello(&mut self, id: ConnId, frame: &Frame<'_>, now: Time) {
        match PeerHello::decode(frame) {
            Ok(hello) => self.meet(id, hello, now),
            Err(error) => self.refuse(id, RefusedReason::Malformed, error.to_string()),
        }
    }

    /// A peer has dialled this node and introduced itself. Its answer may have to wait for the disk.
    fn meet(&mut self, id: ConnId, hello: PeerHello, now: Time) {
        self.end_if_outdated(&hello);
        let met = self.members.meet(&hello, self.is_connected(hello.node, id));
        self.write_boot();
        match met {
            Err((reason, text)) => {
                tracing::warn!(peer = %hello.node, text, "a peer is refused");
                self.refuse(id, reason, text);
            }
            Ok(Met::Wait) => self.waiting.push((id, None, hello)),
            Ok(Met::In { out }) => {
                self.let_out(out);
                self.sockets.introduce(id, Role::PeerIn(hello.node));
                let answer = self.members.hello(hello.node);
                if let Some(out) = self.sockets.out(id) {
                    answer.encode(out);
                }
                if let Some(before) = self.peers.on_incoming(hello.node, id, now) {
                    self.sockets.close(before);
                }
            }
        }
    }

    fn peer_answer(&mut self, id: ConnId, node: NodeId, frame: &Frame<'_>, now: Time) {
        let refused = match PeerHello::decode(frame) {
            Err(error) => error.to_string(),
            Ok(hello) if hello.node != node => {
                format!(
                    "node {} answers at its address: check `peers`, and whose directory it was started with",
                    hello.node
                )
            }
            Ok(hello) => return self.meet_answer(id, node, hello, now),
        };
        self.peers.on_refused(node, &refused, now);
        self.sockets.close(id);
    }

    /// A peer that this node has dialled has answered.
    fn meet_answer(&mut self, id: ConnId, node: NodeId, hello: PeerHello, now: Time) {
        self.end_if_outdated(&hello);
        let met = self.members.meet(&hello, self.is_connected(node, id));
        self.write_boot();
        match met {
            Ok(Met::Wait) => self.waiting.push((id, Some(node), hello)),
            Ok(Met::In { out }) => {
                self.let_out(out);
                self.sockets.introduce(id, Role::PeerOut(node));
                self.peers.on_linked(node, id);
                self.form_if_ready(now);
            }
            Err((reason, text)) => {
                if reason == RefusedReason::Twice {
                    self.peers.on_busy(node, &text, now);
                } else {
                    self.peers.on_refused(node, &text, now);
                }
                self.sockets.close(id);
            }
        }
    }

    /// BOOT has been written: those who waited for it are met again.
    pub(super) fn meet_again(&mut self, now: Time) {
        for (id, dialled, hello) in std::mem::take(&mut self.waiting) {
            if self.sockets.get(id).is_none_or(|c| c.is_closing()) {
                continue;
            }
            match dialled {
                None => self.meet(id, hello, now),
                Some(node) => self.meet_answer(id, node, hello, now),
            }
        }
    }

    /// Whether a peer has another connection from its side than this one.
    fn is_connected(&self, node: NodeId, but: ConnId) -> bool {
        self.peers.incoming(node).is_some_and(|id| id != but && self.sockets.get(id).is_some())
    }

    fn write_boot(&mut self) {
        if let Some(op) = self.members.write() {
            self.disk.start(Owner::Boot, op);
        }
    }

    /// Closes the connections of peers that have turned out to be old copies. They dial again, and are told.
    fn let_out(&mut self, nodes: Vec<NodeId>) {
        for node in nodes {
            tracing::warn!(peer = %node, "a peer is let out: another member has let in a later start of it");
            let conns = [self.peers.incoming(node), self.peers.conn(node)];
            conns.into_iter().flatten().for_each(|id| self.sockets.close(id));
        }
    }

    fn end_if_outdated(&self, hello: &PeerHello) {
        if let Some(why) = self.members.is_outdated(hello) {
            outdated(&why);
        }
    }

    /// A peer that this node has dialled will not talk to it.
    fn refused(&mut self, id: ConnId, node: NodeId, frame: &Frame<'_>, now: Time) {
        match HelloRefused::decode(frame) {
            Ok(HelloRefused { reason: RefusedReason::Outdated, text }) => outdated(&text),
            Ok(HelloRefused { reason: RefusedReason::Twice, text }) => self.peers.on_busy(node, &text, now),
            Ok(refused) => {
                self.peers.on_refused(node, &format!("it refused this node: {}", refused.text), now);
            }
            Err(error) => self.peers.on_refused(node, &error.to_string(), now),
        }
        self.sockets.close(id);
    }

    fn peer_message(&mut self, id: ConnId, from: NodeId, frame: &Frame<'_>, now: Time) {
        // One copy of the frame: its blocks share these bytes from here to the disk and into apply.
        match peer_codec::decode(&Bytes::copy_from_slice(frame.body)) {
            Ok((shard, message)) => {
                self.metrics.peer_received.one();
                if shard.0 >= self.members.identity().shards || self.peers.incoming(from) != Some(id) {
                    // Of no shard of ours, or on a connection that a newer one has replaced.
                    self.metrics.peer_astray.one();
                } else if let Some(own) = &mut self.shard {
                    own.handle(now, Input::Peer { from, message }, &mut self.actions);
                }
            }
            Err(error) => {
                tracing::error!(peer = %from, %error, "a peer sent bytes that are no message");
                self.protocol_error(id, error.to_string());
            }
        }
    }

    fn request(&mut self, id: ConnId, frame: &Frame<'_>, now: Time) {
        let request = match Request::decode(frame) {
            Ok(request) => request,
            Err(error) => return self.protocol_error(id, error.to_string()),
        };
        self.metrics.requests.one();
        let heavy = matches!(&request, Request::Read { query, .. } if query.rows().is_some());
        if let Request::Renew { .. } = request {
            self.metrics.renewals.one();
        }
        if let Some(conn) = self.sockets.get_mut(id) {
            conn.took(frame.id, heavy);
        }
        match &mut self.shard {
            Some(shard) => {
                let input = Input::Request { conn: id, id: frame.id, request };
                shard.handle(now, input, &mut self.actions);
            }
            None => {
                let reply = match request {
                    Request::Status => Reply::Status(Box::new(self.status())),
                    _ => Reply::Refused(Refusal::NotLeader { leader: None }),
                };
                self.answer(id, frame.id, &reply);
            }
        }
    }

    /// Encodes an answer into its connection's buffer.
    pub(super) fn answer(&mut self, conn: ConnId, id: RequestId, reply: &Reply) {
        self.metrics.replies.one();
        self.sockets.answered(conn, id);
        let signature = self.signature_with(conn, reply);
        let version = match reply {
            Reply::Status(_) => self.sockets.get(conn).map_or(VERSION_MIN, |conn| conn.version),
            // What is signed is signed for a version that knows of it, and all else is the same in all.
            _ => VERSION_MAX,
        };
        if let Some(out) = self.sockets.out(conn) {
            encode_reply_in(version, reply, signature.as_ref(), id, out);
        }
    }

    fn refuse(&mut self, id: ConnId, reason: RefusedReason, text: String) {
        self.metrics.shed.one();
        if let Some(out) = self.sockets.out(id) {
            HelloRefused { reason, text }.encode(out);
        }
        self.sockets.close_when_sent(id);
    }

    fn protocol_error(&mut self, id: ConnId, text: String) {
        self.metrics.shed.one();
        tracing::debug!(conn = %id, text, "a connection broke the protocol");
        if let Some(out) = self.sockets.out(id) {
            ProtocolError { text }.encode(out);
        }
        self.sockets.close_when_sent(id);
    }
}

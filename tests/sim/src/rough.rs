//! A rough client: it speaks the bare protocol, without the client core, and does all that a well-behaved
//! client never does. It uses tickets twice and for something else, sends ticket 0, goes on with sessions
//! that it has just closed, fills sessions and the state to their limits, and asks nodes that do not lead.
//! Every answer is checked like any other. What it sends is in `drills.rs`.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::BytesMut;
use palisade_client_core::LinkId;
use palisade_types::{ConnId, Fence, Refusal, Reply, RequestId, Rng, SessionId, SessionToken, Ticket, Time};
use palisade_wire::{ClientHello, Group, Kind, Request, VERSION_MAX, VERSION_MIN, decode_reply, take_frame};

use crate::check::{Checked, Violation};
use crate::world::{ClientInput, Event, NodeInput, Phase, World};

/// The longest time between two of its steps; half of that on average.
const GAP_MS: u64 = 240;
/// A connection on which nothing has been heard for so long is left.
const SILENCE: Duration = Duration::from_secs(2);
/// It keeps so many sessions open.
const SESSIONS: usize = 2;

/// A session as it knows it.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) id: SessionId,
    pub(crate) token: SessionToken,
    /// The last ticket drawn.
    pub(crate) last: u64,
}

/// A rough client. Seen from the network it is one more client.
pub struct Rough {
    life: u64,
    conn: Option<ConnId>,
    up: bool,
    /// It has been told that the node does not lead.
    astray: bool,
    heard: Time,
    buffer: BytesMut,
    next_request: u64,
    asked: BTreeMap<RequestId, Request>,
    /// What is to be sent at its time.
    later: Vec<(Time, Vec<Request>)>,
    pub(crate) sessions: Vec<Own>,
    /// Grants it was told of, the newest last.
    pub(crate) granted: Vec<(SessionId, Ticket, Fence)>,
    /// Ids of sessions that have ended.
    pub(crate) ended: Vec<SessionId>,
    pub(crate) rng: Rng,
    /// It fills one session with ranges of tickets in this run, and did so.
    pub(crate) fills: bool,
}

impl Rough {
    pub(crate) fn new(rng: &mut Rng) -> Rough {
        let mut rng = rng.fork();
        Rough {
            life: 0,
            conn: None,
            up: false,
            astray: false,
            heard: Time::ZERO,
            buffer: BytesMut::new(),
            next_request: 0,
            asked: BTreeMap::new(),
            later: Vec::new(),
            sessions: Vec::new(),
            granted: Vec::new(),
            ended: Vec::new(),
            fills: rng.per_mille(500),
            rng,
        }
    }

    fn encode(&mut self, requests: Vec<Request>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for request in requests {
            self.next_request += 1;
            let id = RequestId(self.next_request);
            request.encode(id, &mut bytes);
            self.asked.insert(id, request);
        }
        bytes
    }

    /// Takes an answer. True if the session is to be attached.
    fn learn(&mut self, asked: &Request, reply: Reply) -> bool {
        match (asked, reply) {
            (Request::OpenSession { token, .. }, Reply::Opened { session, .. })
                if self.sessions.iter().all(|own| own.id != session) =>
            {
                self.sessions.push(Own { id: session, token: *token, last: 0 });
            }
            (_, Reply::Granted { session, ticket, fence }) => {
                self.granted.push((session, ticket, fence));
                if self.granted.len() > 20 {
                    self.granted.remove(0);
                }
            }
            (_, Reply::Refused(Refusal::SessionEnded { session, .. }) | Reply::SessionClosed { session }) => {
                self.sessions.retain(|own| own.id != session);
                self.ended.push(session);
                if self.ended.len() > 8 {
                    self.ended.remove(0);
                }
            }
            (_, Reply::Refused(Refusal::NotAttached { .. })) => return true,
            (_, Reply::Refused(Refusal::NotLeader { .. } | Refusal::Interrupted { .. })) => {
                self.astray = true;
            }
            (_, Reply::Renewed { refused }) => {
                for refusal in refused {
                    if let Refusal::SessionEnded { session, .. } = refusal {
                        self.sessions.retain(|own| own.id != session);
                    }
                }
            }
            _ => {}
        }
        false
    }
}

impl World {
    /// The place of a rough client among the clients' ends of the network, and the reverse.
    fn rough_end(&self, rough: usize) -> usize {
        self.clients.len() + self.watchers.len() + rough
    }

    pub(crate) fn as_rough(&self, client: usize) -> Option<usize> {
        client.checked_sub(self.clients.len() + self.watchers.len())
    }

    /// Its process starts; it never dies, but hangs up often.
    pub(crate) fn start_rough(&mut self, rough: usize) -> Checked {
        let end = self.rough_end(rough);
        let r = &mut self.roughs[rough];
        r.life += 1;
        self.queue.push(self.now, Event::Step { client: end, life: r.life });
        Ok(())
    }

    /// It does the next thing, and comes back after a while.
    pub(crate) fn rough_step(&mut self, rough: usize, life: u64) -> Checked {
        let now = self.now;
        let end = self.rough_end(rough);
        if self.phase == Phase::Quiet || self.roughs[rough].life != life {
            return Ok(());
        }
        let r = &mut self.roughs[rough];
        let gap = Duration::from_millis(r.rng.between(1, GAP_MS));
        self.queue.push(now + gap, Event::Step { client: end, life });
        self.trace.event(now, 30, &[end as u64]);
        let silent = now.since(r.heard) > SILENCE;
        let leave = r.rng.per_mille(15) || silent || (r.astray && r.rng.per_mille(700));
        if r.conn.is_some() && leave {
            self.rough_leaves(rough, silent);
        }
        if self.roughs[rough].conn.is_none() {
            self.rough_dials(rough);
            return Ok(());
        }
        if self.roughs[rough].up {
            let requests = self.draw_drill(rough);
            self.rough_sends(rough, requests);
        }
        Ok(())
    }

    /// Something that was put off is due.
    pub(crate) fn rough_wake(&mut self, rough: usize, life: u64) -> Checked {
        let now = self.now;
        let r = &mut self.roughs[rough];
        if r.life != life || self.phase == Phase::Quiet {
            return Ok(());
        }
        let (due, later) = std::mem::take(&mut r.later).into_iter().partition(|(at, _)| *at <= now);
        r.later = later;
        let due: Vec<(Time, Vec<Request>)> = due;
        for (_, requests) in due {
            self.rough_sends(rough, requests);
        }
        Ok(())
    }

    /// Sends requests at a later time, over whichever connection there is then.
    pub(crate) fn rough_later(&mut self, rough: usize, after: Duration, requests: Vec<Request>) {
        let client = self.rough_end(rough);
        let at = self.now + after;
        let r = &mut self.roughs[rough];
        r.later.push((at, requests));
        self.queue.push(at, Event::Wake { client, life: r.life });
    }

    fn rough_sends(&mut self, rough: usize, requests: Vec<Request>) {
        let r = &mut self.roughs[rough];
        let Some(conn) = r.conn.filter(|_| r.up && !requests.is_empty()) else { return };
        let bytes = r.encode(requests);
        self.trace.bytes(&bytes);
        self.send_to_node(conn, NodeInput::Bytes { conn, bytes });
    }

    fn rough_leaves(&mut self, rough: usize, silent: bool) {
        let r = &mut self.roughs[rough];
        (r.up, r.astray) = (false, false);
        r.asked.clear();
        if let Some(conn) = r.conn.take() {
            self.hang_up(conn, silent);
        }
    }

    /// Mostly the leader, if there is one.
    fn rough_dials(&mut self, rough: usize) {
        let (now, end) = (self.now, self.rough_end(rough));
        let (leader, nodes) = (self.leader(), self.nodes.len() as u64);
        let r = &mut self.roughs[rough];
        let any = r.rng.below(nodes) as usize;
        let node = leader.filter(|_| r.rng.per_mille(850)).unwrap_or(any);
        r.heard = now;
        r.buffer.clear();
        let conn = self.links.dial(end, r.life, LinkId(0), node);
        r.conn = Some(conn);
        self.send_to_node(conn, NodeInput::Connect { conn });
    }

    pub(crate) fn rough_input(&mut self, rough: usize, input: ClientInput) -> Checked {
        let now = self.now;
        let r = &mut self.roughs[rough];
        let (ClientInput::Connected { conn }
        | ClientInput::Refused { conn }
        | ClientInput::Closed { conn }
        | ClientInput::Bytes { conn, .. }) = &input;
        let conn = *conn;
        if r.conn != Some(conn) {
            return Ok(());
        }
        r.heard = now;
        match input {
            ClientInput::Connected { .. } => {
                let (version_min, version_max) = (VERSION_MIN, VERSION_MAX);
                let mut bytes = Vec::new();
                ClientHello { version_min, version_max, cluster: None, credentials: Vec::new() }
                    .encode(&mut bytes);
                self.send_to_node(conn, NodeInput::Bytes { conn, bytes });
                Ok(())
            }
            ClientInput::Refused { .. } | ClientInput::Closed { .. } => {
                self.links.get_mut(conn).client_closed = true;
                r.conn = None;
                (r.up, r.astray) = (false, false);
                r.asked.clear();
                Ok(())
            }
            ClientInput::Bytes { bytes, .. } => self.rough_hears(rough, &bytes),
        }
    }

    fn rough_hears(&mut self, rough: usize, bytes: &[u8]) -> Checked {
        let broken = |e: String| Violation::new("codec", format!("what a node sent does not decode: {e}"));
        let r = &mut self.roughs[rough];
        r.buffer.extend_from_slice(bytes);
        let mut attach = false;
        while let Some(frame) = take_frame(&mut r.buffer).map_err(|e| broken(e.to_string()))? {
            let frame = frame.as_frame();
            if frame.kind == Kind::ServerHello {
                r.up = true;
                attach = true;
            }
            if frame.kind.group() == Group::Reply {
                let reply = decode_reply(&frame).map_err(|e| broken(e.to_string()))?;
                if let Some(asked) = r.asked.remove(&frame.id) {
                    attach |= r.learn(&asked, reply);
                }
            }
        }
        if attach {
            let attach = |own: &Own| Request::Attach { token: own.token, session: own.id };
            let requests = self.roughs[rough].sessions.iter().map(attach).collect();
            self.rough_sends(rough, requests);
        }
        Ok(())
    }

    /// Whether it should open another session.
    pub(crate) fn rough_wants_session(&self, rough: usize) -> bool {
        self.roughs[rough].sessions.len() < SESSIONS
    }
}

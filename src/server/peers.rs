//! The links to the other nodes. Each node dials every other and sends on the connection it dialled;
//! what a peer has to say arrives on the connection the peer dialled. A lost link is dialled again
//! with growing, jittered pauses. What cannot be sent is dropped: Raft sends again.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use palisade_types::{ConnId, NodeId, Rng, Time};

use super::inbox::Outside;
use super::sockets::Sockets;

/// The pause after the first failure …
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// … doubles up to this.
const PAUSE_MAX: Duration = Duration::from_millis(1_000);
/// After a peer has refused this node there is no hurry.
const PAUSE_REFUSED: Duration = Duration::from_secs(5);
/// How long an attempt, with the exchange of hellos, may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long a look-up of a name may take before it is started anew.
const LOOK_UP: Duration = Duration::from_secs(10);

/// The links of one core.
pub(crate) struct Peers {
    links: BTreeMap<NodeId, Link>,
    rng: Rng,
    outside: async_channel::Sender<Outside>,
    /// The newest connection each peer has dialled.
    incoming: BTreeMap<NodeId, ConnId>,
}

struct Link {
    address: String,
    state: State,
    pause: Duration,
    /// Which of several addresses is next.
    turn: usize,
    /// The last failure logged: the same one is not logged again.
    reported: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pausing { until: Time },
    LookingUp { until: Time },
    Dialling { conn: ConnId, until: Time },
    Linked { conn: ConnId },
}

impl Peers {
    /// Links to all of these, none up yet. Look-ups of names report to `outside`.
    pub(crate) fn new(
        addresses: BTreeMap<NodeId, String>,
        outside: async_channel::Sender<Outside>,
        seed: u64,
    ) -> Peers {
        let link = |address| Link {
            address,
            state: State::Pausing { until: Time::ZERO },
            pause: PAUSE_MIN,
            turn: 0,
            reported: String::new(),
        };
        Peers {
            links: addresses.into_iter().map(|(node, address)| (node, link(address))).collect(),
            rng: Rng::new(seed),
            outside,
            incoming: BTreeMap::new(),
        }
    }

    /// Starts the attempts that are due and ends those that took too long.
    pub(crate) fn act(&mut self, now: Time, sockets: &mut Sockets) {
        let due: Vec<NodeId> = self.links.iter().filter(|(_, l)| l.due() <= now).map(|(n, _)| *n).collect();
        for node in due {
            match self.links.get(&node).map(|l| l.state) {
                Some(State::Dialling { conn, .. }) => {
                    // Its end comes back through `on_closed`, which plans the next attempt.
                    self.report(node, "no answer in time");
                    sockets.close(conn);
                    self.pause(node, now, PAUSE_MIN);
                }
                Some(_) => self.start(node, now, sockets),
                None => {}
            }
        }
    }

    /// When [`Peers::act`] is due.
    pub(crate) fn next_deadline(&self) -> Time {
        self.links.values().map(Link::due).min().unwrap_or(Time::FAR)
    }

    fn start(&mut self, node: NodeId, now: Time, sockets: &mut Sockets) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if let Ok(address) = link.address.parse::<SocketAddr>() {
            self.dial(node, address, now, sockets);
            return;
        }
        link.state = State::LookingUp { until: now + LOOK_UP };
        // The resolver blocks: it gets a thread of its own for each look-up, and they are rare.
        let (address, outside) = (link.address.clone(), self.outside.clone());
        let look_up = move || {
            let result = address.to_socket_addrs().map(Iterator::collect).map_err(|e| e.to_string());
            // Nobody is left to tell only when the node has ended.
            let _ = outside.send_blocking(Outside::Resolved { node, result });
        };
        if let Err(e) = std::thread::Builder::new().name("resolver".into()).spawn(look_up) {
            self.fail(node, now, &format!("no thread for the look-up of its name: {e}"), PAUSE_MIN);
        }
    }

    /// A name was looked up.
    pub(crate) fn on_resolved(
        &mut self,
        node: NodeId,
        result: Result<Vec<SocketAddr>, String>,
        now: Time,
        sockets: &mut Sockets,
    ) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if !matches!(link.state, State::LookingUp { .. }) {
            return;
        }
        link.turn = link.turn.wrapping_add(1);
        match result {
            Ok(addresses) if !addresses.is_empty() => {
                let address = addresses[link.turn % addresses.len()];
                self.dial(node, address, now, sockets);
            }
            Ok(_) => self.fail(node, now, "its name has no address", PAUSE_MIN),
            Err(why) => self.fail(node, now, &format!("its name cannot be looked up: {why}"), PAUSE_MIN),
        }
    }

    fn dial(&mut self, node: NodeId, address: SocketAddr, now: Time, sockets: &mut Sockets) {
        match sockets.dial(node, address) {
            Ok(conn) => self.set(node, State::Dialling { conn, until: now + ATTEMPT }),
            Err(e) => self.fail(node, now, &e.to_string(), PAUSE_MIN),
        }
    }

    /// The peer has answered the hello and is let in.
    pub(crate) fn on_linked(&mut self, node: NodeId, conn: ConnId) {
        if let Some(link) = self.links.get_mut(&node) {
            tracing::info!(peer = %node, address = %link.address, "linked to a peer");
            link.state = State::Linked { conn };
            link.pause = PAUSE_MIN;
            link.reported.clear();
        }
    }

    /// The peer will not talk, or is not let in.
    pub(crate) fn on_refused(&mut self, node: NodeId, why: &str, now: Time) {
        self.fail(node, now, why, PAUSE_REFUSED);
    }

    /// The peer does not talk to this node, or this node to it, as long as an earlier process is connected: that may
    /// be over soon.
    pub(crate) fn on_busy(&mut self, node: NodeId, why: &str, now: Time) {
        self.fail(node, now, why, PAUSE_MIN);
    }

    /// A connection that this node had dialled is closed.
    pub(crate) fn on_closed(&mut self, node: NodeId, conn: ConnId, now: Time, why: &str) {
        match self.links.get(&node).map(|l| l.state) {
            Some(State::Linked { conn: c }) if c == conn => {
                tracing::info!(peer = %node, "the link to a peer is lost");
                self.pause(node, now, PAUSE_MIN);
            }
            Some(State::Dialling { conn: c, .. }) if c == conn => self.fail(node, now, why, PAUSE_MIN),
            _ => {}
        }
    }

    /// A peer has dialled this node: the connection it had before, if it is still there, is to be
    /// closed. Its own attempt shows that it is up, so ours need not wait.
    pub(crate) fn on_incoming(&mut self, node: NodeId, conn: ConnId, now: Time) -> Option<ConnId> {
        if let Some(link) = self.links.get_mut(&node) {
            link.pause = PAUSE_MIN;
            if let State::Pausing { until } = &mut link.state {
                *until = now.min(*until);
            }
        }
        self.incoming.insert(node, conn)
    }

    /// The newest connection that a peer has dialled; it may be closed.
    pub(crate) fn incoming(&self, node: NodeId) -> Option<ConnId> {
        self.incoming.get(&node).copied()
    }

    /// Where to send what is for a node; `None` while there is no link.
    pub(crate) fn conn(&self, node: NodeId) -> Option<ConnId> {
        match self.links.get(&node)?.state {
            State::Linked { conn } => Some(conn),
            _ => None,
        }
    }

    /// Whether there is a link to each.
    pub(crate) fn all_linked(&self) -> bool {
        self.links.values().all(|link| matches!(link.state, State::Linked { .. }))
    }

    /// The nodes with a link.
    pub(crate) fn linked(&self) -> Vec<NodeId> {
        self.links.keys().copied().filter(|n| self.conn(*n).is_some()).collect()
    }

    fn set(&mut self, node: NodeId, state: State) {
        if let Some(link) = self.links.get_mut(&node) {
            link.state = state;
        }
    }

    fn fail(&mut self, node: NodeId, now: Time, why: &str, at_least: Duration) {
        self.report(node, why);
        self.pause(node, now, at_least);
    }

    fn report(&mut self, node: NodeId, why: &str) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if link.reported != why {
            tracing::warn!(peer = %node, address = %link.address, why, "no link to a peer");
            why.clone_into(&mut link.reported);
        }
    }

    fn pause(&mut self, node: NodeId, now: Time, at_least: Duration) {
        let Some(link) = self.links.get_mut(&node) else { return };
        let pause = link.pause.max(at_least);
        link.pause = (link.pause * 2).min(PAUSE_MAX);
        // Between half and all of it: nodes that failed together do not come back together.
        let ns = palisade_types::time::nanos(pause);
        let jittered = Duration::from_nanos(self.rng.between(ns / 2, ns));
        link.state = State::Pausing { until: now + jittered };
    }
}

impl Link {
    fn due(&self) -> Time {
        match self.state {
            State::Pausing { until } | State::LookingUp { until } | State::Dialling { until, .. } => until,
            State::Linked { .. } => Time::FAR,
        }
    }
}

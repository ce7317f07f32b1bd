//! One connection at a time: which server to dial, when to leave it, where to go next.

use ::core::time::Duration;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::{ClusterId, NodeId, RequestId, Rng, Time};
use palisade_wire::{Member, ServerHello};

use crate::api::{CallId, ClaimId, LinkId, SessionHandle, WriteId};
use crate::config::CoreConfig;
use crate::resources::PostId;

/// How often in a row hints are followed at once. Beyond that they are followed with a pause.
const HOPS_MAX: u32 = 4;
/// A single request is waited for so many silence timeouts, however much else is answered.
const PATIENCE: u32 = 5;

/// What a request on the way was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Open, attach or close.
    Session(SessionHandle),
    Renew(Vec<SessionHandle>),
    /// Acquire, cancel or release.
    Claim(ClaimId),
    Call(CallId),
    /// Put, delete, or a release that gives one up.
    Write(WriteId),
    /// A key's claim to a resource.
    Post(PostId),
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) what: What,
    pub(crate) sent: Time,
}

/// A connection that has greeted.
#[derive(Debug)]
pub(crate) struct Up {
    pub(crate) node: NodeId,
    /// Whom it named as leader when it greeted.
    pub(crate) leader: Option<NodeId>,
    pub(crate) inflight_max: usize,
    pub(crate) pending: BTreeMap<RequestId, Pending>,
}

impl Up {
    pub(crate) fn leads(&self) -> bool {
        self.leader == Some(self.node)
    }
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Stage {
    Dialing,
    Greeting,
    Up(Up),
}

/// A connection, or the attempt at one.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) endpoint: String,
    pub(crate) stage: Stage,
    /// When something last arrived, or when the stage began.
    pub(crate) heard: Time,
    /// The beginning of a frame that is not whole yet.
    pub(crate) rest: Vec<u8>,
    /// Frames to be sent.
    pub(crate) out: Vec<u8>,
}

impl Link {
    pub(crate) fn up(&self) -> Option<&Up> {
        match &self.stage {
            Stage::Up(up) => Some(up),
            Stage::Dialing | Stage::Greeting => None,
        }
    }

    pub(crate) fn up_mut(&mut self) -> Option<&mut Up> {
        match &mut self.stage {
            Stage::Up(up) => Some(up),
            Stage::Dialing | Stage::Greeting => None,
        }
    }

    /// When to stop waiting for it.
    pub(crate) fn deadline(&self, config: &CoreConfig) -> Time {
        match &self.stage {
            Stage::Dialing | Stage::Greeting => self.heard + config.dial_timeout,
            Stage::Up(up) => match up.pending.first_key_value() {
                None => Time::FAR,
                // Request ids rise, so the first is the oldest.
                Some((_, oldest)) => {
                    let silent = self.heard.max(oldest.sent) + config.silence_timeout;
                    silent.min(oldest.sent + config.silence_timeout * PATIENCE)
                }
            },
        }
    }
}

/// Everything known about the servers, and the connection in use.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) link: Option<Link>,
    /// Without a connection, none is tried before.
    pub(crate) rest_until: Time,
    pub(crate) cluster: Option<ClusterId>,
    /// The endpoints configured, then addresses learnt.
    known: Vec<String>,
    configured: usize,
    cursor: usize,
    members: Vec<Member>,
    prefer: Option<String>,
    /// An address that failed, not to be hinted to again before this time.
    avoid: Option<(String, Time)>,
    failures: u32,
    hops: u32,
    next_link: u64,
    next_request: u64,
}

impl Net {
    pub(crate) fn new(config: &CoreConfig, rng: &mut Rng, now: Time) -> Net {
        Net {
            link: None,
            rest_until: now,
            cluster: config.cluster,
            known: config.endpoints.clone(),
            configured: config.endpoints.len(),
            cursor: rng.below(config.endpoints.len() as u64) as usize,
            members: Vec::new(),
            prefer: None,
            avoid: None,
            failures: 0,
            hops: 0,
            next_link: 0,
            next_request: 0,
        }
    }

    /// Begins a connection to the server hinted at, or to the next in turn.
    pub(crate) fn dial(&mut self, now: Time) -> (LinkId, String) {
        // A server hinted at takes its place in the turn: when it fails, the next one is asked.
        let hinted = self.prefer.take().and_then(|address| self.known.iter().position(|k| *k == address));
        self.cursor = hinted.unwrap_or((self.cursor + 1) % self.known.len());
        let endpoint = self.known[self.cursor].clone();
        self.next_link += 1;
        let id = LinkId(self.next_link);
        self.link = Some(Link {
            id,
            endpoint: endpoint.clone(),
            stage: Stage::Dialing,
            heard: now,
            rest: Vec::new(),
            out: Vec::new(),
        });
        (id, endpoint)
    }

    /// Takes what a server says of its cluster.
    pub(crate) fn learn(&mut self, hello: &ServerHello) {
        self.cluster = Some(hello.cluster);
        self.members.clone_from(&hello.members);
        self.known.truncate(self.configured);
        for member in &self.members {
            if !self.known.contains(&member.address) {
                self.known.push(member.address.clone());
            }
        }
        self.cursor %= self.known.len();
    }

    /// How many addresses are known.
    pub(crate) fn known_len(&self) -> usize {
        self.known.len()
    }

    /// How many members the cluster has, as far as it has said.
    pub(crate) fn members_len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// A server did what it was asked: the search is over.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.hops = 0;
        self.avoid = None;
    }

    /// Plans the next attempt after a server failed.
    pub(crate) fn failed(&mut self, now: Time, endpoint: String, config: &CoreConfig, rng: &mut Rng) {
        self.avoid = Some((endpoint, now + config.backoff_max));
        self.rest(now, config, rng);
    }

    /// Plans the next attempt after a server named the leader, or knew none.
    pub(crate) fn hinted(
        &mut self,
        now: Time,
        from: Option<NodeId>,
        leader: Option<NodeId>,
        config: &CoreConfig,
        rng: &mut Rng,
    ) {
        let target = leader.and_then(|leader| self.members.iter().find(|m| m.node == leader));
        let Some(target) = target.map(|m| m.address.clone()).filter(|a| !self.avoided(a, now)) else {
            self.rest(now, config, rng);
            return;
        };
        self.prefer = Some(target);
        self.hops += 1;
        if leader == from || self.hops > HOPS_MAX {
            self.rest(now, config, rng);
            return;
        }
        self.rest_until = now;
    }

    fn avoided(&self, address: &str, now: Time) -> bool {
        self.avoid.as_ref().is_some_and(|(bad, until)| bad == address && now < *until)
    }

    /// A pause that grows with every round of failures, with jitter.
    fn rest(&mut self, now: Time, config: &CoreConfig, rng: &mut Rng) {
        let rounds = self.failures / self.known.len() as u32;
        self.failures = self.failures.saturating_add(1);
        self.rest_until = now + backoff(config, rounds, rng);
    }
}

/// Between half and all of `backoff_min` doubled `times` times, at most `backoff_max`.
pub(crate) fn backoff(config: &CoreConfig, times: u32, rng: &mut Rng) -> Duration {
    let full = config.backoff_min.saturating_mul(1 << times.min(16)).min(config.backoff_max);
    jittered(full / 2, rng)
}

/// Between the duration and twice as much.
pub(crate) fn jittered(least: Duration, rng: &mut Rng) -> Duration {
    least + Duration::from_nanos(rng.below(palisade_types::time::nanos(least).saturating_add(1)))
}

//! Random work over random faults, against a naive cluster. What must hold at every step: a client
//! that believes in a grant is right as long as it believes in its session. What must hold in the
//! end: every ticket drawn is finished, and nothing is held that nobody wants.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::server::{Server, State};
use kit::{World, key, refused};
use palisade_client_core::{AcquireSpec, ClaimId, Event, LinkId, SessionHandle, SessionSpec};
use palisade_types::{Class, Fence, NodeId, Refusal, Reply, RequestId, Rng, SessionId, SessionToken, Ticket};
use palisade_wire::{Push, Request, Wait};

const TTL_MS: u64 = 4_000;
const STEPS: usize = 3_000;

struct Chaos {
    w: World,
    server: Server,
    rng: Rng,
    leader: u32,
    attached: BTreeSet<SessionId>,
    attached_on: Option<LinkId>,
    sessions: BTreeSet<SessionHandle>,
    /// Sessions by handle, as reported.
    open: BTreeMap<SessionHandle, SessionId>,
    claims: BTreeMap<ClaimId, SessionHandle>,
    /// Grants the client believes in.
    held: BTreeMap<ClaimId, (SessionId, Ticket, Fence)>,
    next_token: u128,
    calm: bool,
    seen: Seen,
}

/// What a seed has met: a test of nothing would pass.
#[derive(Default, Debug)]
struct Seen {
    grants: u32,
    lost: u32,
    cuts: u32,
    late: u32,
}

impl Chaos {
    fn new(seed: u64) -> Chaos {
        Chaos {
            w: World::new(),
            server: Server::default(),
            rng: Rng::new(seed),
            leader: 1,
            attached: BTreeSet::new(),
            attached_on: None,
            sessions: BTreeSet::new(),
            open: BTreeMap::new(),
            claims: BTreeMap::new(),
            held: BTreeMap::new(),
            next_token: 1,
            calm: false,
            seen: Seen::default(),
        }
    }

    fn pick<T: Copy>(&mut self, all: impl ExactSizeIterator<Item = T>) -> Option<T> {
        let n = self.rng.below(all.len() as u64) as usize;
        all.into_iter().nth(n)
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0 => self.open_one(),
            1 | 2 => self.acquire(),
            3 => {
                if let Some(claim) = self.pick(self.claims.clone().keys().copied()) {
                    self.give_up(claim);
                }
            }
            4 => self.fault(),
            5 => self.late_arrival(),
            6 | 7 => {
                let ms = self.rng.below(80);
                self.w.advance(ms);
            }
            _ => self.serve(),
        }
        self.look();
    }

    fn open_one(&mut self) {
        if self.sessions.len() >= 3 {
            return;
        }
        let ttl = Duration::from_millis(TTL_MS);
        let token = SessionToken(self.next_token);
        self.next_token += 1;
        let spec = SessionSpec { ttl, owner: None, incarnation: None };
        let handle = self.w.core.open_session(self.w.now, spec, token);
        self.sessions.insert(handle);
        self.w.run();
    }

    fn acquire(&mut self) {
        let Some(session) = self.pick(self.sessions.clone().iter().copied()) else { return };
        let wait = match self.rng.below(3) {
            0 => Wait::No,
            1 => Wait::Forever,
            _ => Wait::Millis(self.rng.below(500) as u32),
        };
        let key = key(["a", "b"][self.rng.below(2) as usize]);
        let spec = AcquireSpec { wait, ..AcquireSpec::new(key, Class::Advisory) };
        let claim = self.w.core.acquire(self.w.now, session, spec);
        self.claims.insert(claim, session);
        self.w.run();
    }

    fn give_up(&mut self, claim: ClaimId) {
        if self.rng.below(2) == 0 {
            self.w.core.release(self.w.now, claim);
        } else {
            self.w.core.abandon(self.w.now, claim);
            self.claims.remove(&claim);
        }
        self.held.remove(&claim);
        self.w.run();
    }

    fn fault(&mut self) {
        match self.rng.below(6) {
            0 | 1 if self.w.link.is_some() => {
                self.seen.cuts += 1;
                self.w.cut();
            }
            2 => {
                self.leader = self.leader % 3 + 1;
                if self.w.link.is_some() && self.rng.below(2) == 0 {
                    self.w.push(Push::LeaderChanged { leader: Some(NodeId(self.leader)) });
                }
            }
            3 if self.rng.below(20) == 0 => {
                let ms = self.rng.below(TTL_MS * 2);
                self.w.freeze(ms);
            }
            4 if self.rng.below(10) == 0 => {
                if let Some(session) = self.pick(self.sessions.clone().iter().copied()) {
                    self.w.core.close_session(self.w.now, session);
                    self.w.run();
                }
            }
            5 if self.rng.below(20) == 0 => {
                if let Some(session) = self.pick(self.open.clone().keys().copied()) {
                    self.w.core.stop_renewing(self.w.now, session);
                    self.w.run();
                }
            }
            _ => {}
        }
    }

    /// A request of a connection long gone comes out of some buffer.
    fn late_arrival(&mut self) {
        let Some(n) = self.pick(0..self.w.stranded.len()) else { return };
        let request = self.w.stranded.swap_remove(n);
        // What only the leader keeps in memory for a connection dies with it.
        if !matches!(request, Request::Renew { .. } | Request::Attach { .. }) {
            self.seen.late += 1;
            self.server.expire(self.w.now);
            self.server.apply(self.w.now, &request);
        }
    }

    fn serve(&mut self) {
        self.w.run();
        if self.w.dialed.is_some() {
            if !self.calm && self.rng.below(4) == 0 {
                self.w.fail_dial();
            } else {
                let leader = if self.calm || self.rng.below(5) > 0 { Some(self.leader) } else { None };
                self.w.greet(leader);
            }
            return;
        }
        if self.w.link != self.attached_on {
            self.attached_on = self.w.link;
            self.attached.clear();
        }
        if self.w.link.is_none() {
            return;
        }
        self.server.expire(self.w.now);
        if let Some((id, request)) = self.w.requests.pop_front() {
            self.answer(id, &request);
        }
        for push in std::mem::take(&mut self.server.pushes) {
            let session = match &push {
                Push::Granted { session, .. } | Push::SessionEnded { session, .. } => *session,
                _ => continue,
            };
            if self.w.link.is_some() && self.attached.contains(&session) {
                self.w.push(push);
            }
        }
    }

    fn answer(&mut self, id: RequestId, request: &Request) {
        if !self.calm
            && let Some(refusal) = self.whim(request)
        {
            return self.w.reply(id, refused(refusal));
        }
        let reply = self.server.apply(self.w.now, request);
        match reply {
            Reply::Opened { session, .. } | Reply::Attached { session, .. } => {
                self.attached.insert(session);
            }
            _ => {}
        }
        if !self.calm && self.rng.below(30) == 0 {
            let leader = Some(NodeId(self.leader));
            return self.w.reply(id, refused(Refusal::Interrupted { leader }));
        }
        self.w.reply(id, reply);
    }

    /// A refusal out of the blue.
    fn whim(&mut self, request: &Request) -> Option<Refusal> {
        let leader = Some(NodeId(self.leader));
        let session = match request {
            Request::Acquire { session, .. } | Request::Release { session, .. } => Some(*session),
            _ => None,
        };
        match self.rng.below(60) {
            0 => Some(Refusal::NotLeader { leader }),
            1 | 2 => Some(Refusal::Busy { retry_after_ms: self.rng.below(50) as u32 }),
            3 => Some(Refusal::NotAttached { session: session? }),
            4 if session.is_some() => Some(Refusal::QuotaExceeded { what: "log".to_string(), limit: 1 }),
            _ => None,
        }
    }

    /// Takes the events and checks what the client believes.
    fn look(&mut self) {
        for event in self.w.take_events() {
            match event {
                Event::SessionOpened { handle, session, .. } => {
                    assert_eq!(self.open.insert(handle, session), None);
                }
                Event::SessionLost { handle, .. }
                | Event::SessionFailed { handle, .. }
                | Event::SessionClosed { handle } => {
                    self.seen.lost += 1;
                    assert!(self.sessions.remove(&handle), "a session ends once");
                    self.open.remove(&handle);
                }
                Event::ClaimGranted { claim, fence } => {
                    self.seen.grants += 1;
                    let session = self.open[&self.claims[&claim]];
                    let ticket = self.w.core.ticket(claim).unwrap();
                    assert!(self.held.insert(claim, (session, ticket, fence)).is_none());
                }
                Event::ClaimDone { claim, .. } | Event::ClaimLost { claim, .. } => {
                    assert!(self.claims.remove(&claim).is_some(), "nothing is said of what is over");
                    self.held.remove(&claim);
                }
                _ => {}
            }
        }
        assert!(self.claims.values().all(|s| self.sessions.contains(s)), "claims end with their session");
        self.server.expire(self.w.now);
        for (claim, (session, ticket, fence)) in &self.held {
            let handle = self.claims[claim];
            if self.w.core.deadline(handle).is_none_or(|deadline| deadline <= self.w.now) {
                continue; // its next tick will say so
            }
            assert!(self.server.is_live(*session), "{session} is believed in and gone");
            assert_eq!(self.server.claims.get(&(*session, *ticket)), Some(&State::Held(fence.clone())));
        }
    }

    /// Lets everything settle without faults.
    fn calm_down(&mut self) {
        self.calm = true;
        for claim in self.claims.keys().copied().collect::<Vec<_>>() {
            self.give_up(claim);
        }
        for _ in 0..4_000 {
            self.serve();
            self.w.advance(2);
            self.look();
        }
        assert_eq!(self.claims, BTreeMap::new(), "every release is answered");
        assert_eq!(self.sessions.len(), self.open.len(), "every session is open");
        for ((session, ticket), state) in &self.server.claims {
            assert!(matches!(state, State::Finished(_)), "{session} {ticket}: {state:?}");
        }
        for session in self.open.values() {
            let tickets: Vec<u64> =
                self.server.claims.keys().filter(|(s, _)| s == session).map(|(_, t)| t.0).collect();
            let all: Vec<u64> = (1..=tickets.len() as u64).collect();
            assert_eq!(tickets, all, "every number drawn is finished");
        }
    }
}

#[test]
fn no_grant_is_believed_wrongly_and_no_ticket_is_left_open() {
    let mut met = Seen::default();
    for seed in 0..200 {
        let mut chaos = Chaos::new(seed);
        for _ in 0..STEPS {
            chaos.step();
        }
        chaos.calm_down();
        met.grants += chaos.seen.grants;
        met.lost += chaos.seen.lost;
        met.cuts += chaos.seen.cuts;
        met.late += chaos.seen.late;
    }
    assert!(met.grants > 1_000 && met.lost > 100 && met.cuts > 1_000 && met.late > 1_000, "{met:?}");
}

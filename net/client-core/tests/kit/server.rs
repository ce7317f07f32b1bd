//! A cluster as its clients see it, in a few lines: sessions that expire, keys with queues, tickets
//! (DESIGN sections 2 and 3). No replication: it is one machine that changes its address.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade_types::{
    Cause, Epoch, Fence, HolderInfo, Key, LogIndex, Mode, Outcome, Refusal, Reply, SessionId, SessionToken,
    Standing, Ticket, Time,
};
use palisade_wire::{Push, Request, Wait};

use super::session_id;

pub(crate) type Claim = (SessionId, Ticket);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Held(Fence),
    Queued(Key),
    Finished(Outcome),
}

#[derive(Default)]
struct Lock {
    epoch: u64,
    holder: Option<Claim>,
    queue: Vec<Claim>,
}

struct Live {
    token: SessionToken,
    ttl_ms: u32,
    heard: Time,
}

#[derive(Default)]
pub(crate) struct Server {
    next_id: u64,
    live: BTreeMap<SessionId, Live>,
    ended: BTreeMap<SessionToken, SessionId>,
    locks: BTreeMap<Key, Lock>,
    pub(crate) claims: BTreeMap<Claim, State>,
    /// News for whoever is attached.
    pub(crate) pushes: Vec<Push>,
}

const CAUSE: Cause = Cause::Expired { silent_ms: 1 };

impl Server {
    pub(crate) fn is_live(&self, session: SessionId) -> bool {
        self.live.contains_key(&session)
    }

    /// Ends every session that was silent for its TTL.
    pub(crate) fn expire(&mut self, now: Time) {
        let dead = |live: &Live| now >= live.heard + Duration::from_millis(u64::from(live.ttl_ms));
        let all: Vec<SessionId> = self.live.iter().filter(|(_, l)| dead(l)).map(|(id, _)| *id).collect();
        all.into_iter().for_each(|session| self.end(session));
    }

    fn end(&mut self, session: SessionId) {
        let Some(live) = self.live.remove(&session) else { return };
        self.ended.insert(live.token, session);
        self.pushes.push(Push::SessionEnded { session, cause: CAUSE });
        let claims: Vec<Claim> = self.claims.keys().filter(|(s, _)| *s == session).copied().collect();
        claims.into_iter().for_each(|claim| self.give_up(claim, Outcome::Released));
    }

    /// Applies a request. `None` from a session that has ended.
    pub(crate) fn apply(&mut self, now: Time, request: &Request) -> Reply {
        let ended = |session| Reply::Refused(Refusal::SessionEnded { session, cause: CAUSE });
        match *request {
            Request::OpenSession { token, ttl_ms, .. } => self.open(now, token, ttl_ms),
            Request::Attach { session, .. } => match self.live.get(&session) {
                Some(live) => Reply::Attached { session, ttl_ms: live.ttl_ms },
                None => ended(session),
            },
            Request::Renew { ref sessions } => {
                let mut refused = Vec::new();
                for &session in sessions {
                    match self.live.get_mut(&session) {
                        Some(live) => live.heard = now,
                        None => refused.push(Refusal::SessionEnded { session, cause: CAUSE }),
                    }
                }
                Reply::Renewed { refused }
            }
            Request::CloseSession { session } => {
                self.end(session);
                Reply::SessionClosed { session }
            }
            Request::Acquire { session, .. }
            | Request::Release { session, .. }
            | Request::Cancel { session, .. }
                if !self.is_live(session) =>
            {
                ended(session)
            }
            Request::Acquire { session, ticket, ref key, wait, .. } => {
                self.acquire((session, ticket), key, wait != Wait::No)
            }
            Request::Release { session, ticket } => {
                self.give_up((session, ticket), Outcome::Released);
                self.answer((session, ticket))
            }
            Request::Cancel { session, ticket } => {
                if !matches!(self.claims.get(&(session, ticket)), Some(State::Held(_))) {
                    self.give_up((session, ticket), Outcome::Cancelled);
                }
                self.answer((session, ticket))
            }
            Request::ClaimResource { .. } => {
                Reply::ResourceClaimed { revision: LogIndex(1), keys: 1, other: None }
            }
            Request::Read { .. } | Request::Operate { .. } | Request::Status => {
                unreachable!("nobody calls here")
            }
            Request::Put { .. }
            | Request::Delete { .. }
            | Request::Downgrade { .. }
            | Request::Campaign { .. }
            | Request::Watch { .. }
            | Request::Unwatch { .. }
            | Request::Proclaim { .. } => unreachable!("nobody does that here"),
        }
    }

    fn open(&mut self, now: Time, token: SessionToken, ttl_ms: u32) -> Reply {
        if let Some(&session) = self.ended.get(&token) {
            return Reply::Refused(Refusal::SessionEnded { session, cause: CAUSE });
        }
        let known = self.live.iter().find(|(_, live)| live.token == token).map(|(id, _)| *id);
        let session = known.unwrap_or_else(|| {
            self.next_id += 1;
            let session = session_id(self.next_id);
            self.live.insert(session, Live { token, ttl_ms, heard: now });
            session
        });
        Reply::Opened { session, ttl_ms, gone_within_ms: u64::from(ttl_ms), short_ttl: false }
    }

    fn acquire(&mut self, claim: Claim, key: &Key, wait: bool) -> Reply {
        if let Some(State::Finished(outcome)) = self.claims.get(&claim) {
            return Reply::Refused(Refusal::TicketFinished { ticket: claim.1, outcome: *outcome });
        }
        if self.claims.contains_key(&claim) {
            return self.answer(claim);
        }
        let lock = self.locks.entry(key.clone()).or_default();
        match (lock.holder, wait) {
            (None, _) => self.grant(claim, key),
            (Some(holder), false) => {
                let waiting = lock.queue.len() as u32;
                self.claims.insert(claim, State::Finished(Outcome::Denied));
                let holder = Server::holder(holder);
                return Reply::Denied { session: claim.0, ticket: claim.1, waiting, holder };
            }
            (Some(_), true) => {
                lock.queue.push(claim);
                self.claims.insert(claim, State::Queued(key.clone()));
            }
        }
        self.answer(claim)
    }

    fn grant(&mut self, claim: Claim, key: &Key) {
        let lock = self.locks.entry(key.clone()).or_default();
        lock.epoch += 1;
        lock.holder = Some(claim);
        let epoch = Epoch(lock.epoch);
        self.claims.insert(claim, State::Held(Fence::new(key.clone(), epoch, epoch).unwrap()));
    }

    /// Finishes a ticket, whatever its state, and lets the next in line in.
    fn give_up(&mut self, claim: Claim, outcome: Outcome) {
        let was = self.claims.get(&claim).cloned();
        match was {
            Some(State::Finished(_)) => return,
            Some(State::Held(ref fence)) => {
                let lock = self.locks.get_mut(fence.key()).unwrap();
                lock.holder = None;
                if !lock.queue.is_empty() {
                    let next = lock.queue.remove(0);
                    self.grant(next, fence.key());
                    let Some(State::Held(fence)) = self.claims.get(&next) else { unreachable!() };
                    let (session, ticket, fence) = (next.0, next.1, fence.clone());
                    self.pushes.push(Push::Granted { session, ticket, fence });
                }
            }
            Some(State::Queued(ref key)) => {
                self.locks.get_mut(key).unwrap().queue.retain(|waiting| *waiting != claim);
            }
            None => {}
        }
        let held = matches!(was, Some(State::Held(_)));
        let outcome = if held { outcome } else { Outcome::Cancelled };
        self.claims.insert(claim, State::Finished(outcome));
    }

    fn answer(&self, (session, ticket): Claim) -> Reply {
        match &self.claims[&(session, ticket)] {
            State::Held(fence) => Reply::Granted { session, ticket, fence: fence.clone() },
            State::Finished(outcome) => Reply::Finished { session, ticket, outcome: *outcome },
            State::Queued(key) => {
                let lock = &self.locks[key];
                let place = lock.queue.iter().position(|c| *c == (session, ticket)).unwrap() as u32;
                let holder = Server::holder(lock.holder.unwrap());
                Reply::Queued { session, ticket, place, holder }
            }
        }
    }

    fn holder((session, _): Claim) -> Box<HolderInfo> {
        Box::new(HolderInfo {
            session,
            owner: None,
            incarnation: None,
            epoch: Epoch(1),
            mode: Mode::Exclusive,
            held_ms: 0,
            standing: Standing::Live,
        })
    }
}

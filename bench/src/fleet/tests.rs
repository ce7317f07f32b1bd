//! The sessions against answers made by hand: no sockets, no clock.

use std::collections::VecDeque;

use palisade_types::{
    Cause, Epoch, Fence, Key, LogIndex, Outcome as End, Refusal, Reply, RequestId, SessionId, ShardId, Ticket,
};
use palisade_wire::{Frames, Push, Request, Wait, encode_reply};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Sessions, and everything they have asked that has not been looked at.
struct World {
    fleet: Fleet,
    out: Outbox,
    links: u32,
    asked: VecDeque<(RequestId, Request)>,
    now: u64,
    opened: u64,
}

fn world(options: impl Fn(&mut LoadOptions)) -> World {
    let work = crate::work::Work {
        mix: Mix::Cycle,
        sessions: 2,
        connections: 1,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(10),
    };
    let mut all = LoadOptions::of(&work, &[], &[]);
    options(&mut all);
    all.check().unwrap();
    let fleet = Fleet::new(&all, 42, 0).unwrap();
    let out = Outbox::without_sockets(all.connections);
    World { fleet, out, links: all.connections, asked: VecDeque::new(), now: 1, opened: 100 }
}

impl World {
    /// Opens the sessions and begins the work.
    fn begun(mut self) -> World {
        self.fleet.open(self.now, &mut self.out);
        while let Some((id, request)) = self.next() {
            assert!(matches!(request, Request::OpenSession { .. }), "{request:?}");
            let reply = self.opens();
            self.answer(id, &reply).unwrap();
        }
        assert_eq!(self.fleet.on_turn(self.now, &mut self.out).unwrap(), Turn::Done);
        self.fleet.begin(Pacer::closed(), (0, 100 * SECOND), self.now, &mut self.out);
        self
    }

    fn opens(&mut self) -> Reply {
        self.opened += 1;
        let session = SessionId { shard: ShardId(0), opened: LogIndex(self.opened) };
        Reply::Opened { session, ttl_ms: 30_000, gone_within_ms: 30_000, short_ttl: false }
    }

    /// What was asked, in order.
    fn next(&mut self) -> Option<(RequestId, Request)> {
        for link in 0..self.links as usize {
            let bytes = self.out.take(link);
            let mut frames = Frames::new(&bytes);
            while let Some(frame) = frames.next_frame().unwrap() {
                self.asked.push_back((frame.id, Request::decode(&frame).unwrap()));
            }
            assert_eq!(frames.consumed(), bytes.len());
        }
        self.asked.pop_front()
    }

    fn answer(&mut self, id: RequestId, reply: &Reply) -> Result<(), BenchError> {
        let mut bytes = Vec::new();
        encode_reply(reply, id, &mut bytes);
        self.say(&bytes)
    }

    fn push(&mut self, push: &Push) -> Result<(), BenchError> {
        let mut bytes = Vec::new();
        push.encode(&mut bytes);
        self.say(&bytes)
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        self.now += 1_000;
        let frame = Frames::new(bytes).next_frame().unwrap().unwrap();
        self.fleet.on_frame(0, &frame, self.now, &mut self.out)
    }

    /// The next request, which must be an acquire.
    fn acquire(&mut self) -> Asked {
        match self.next() {
            Some((id, Request::Acquire { session, ticket, key, wait, .. })) => {
                Asked { id, session, ticket, key, wait }
            }
            other => panic!("{other:?} is no acquire"),
        }
    }

    fn grant(&mut self, asked: &Asked, epoch: u64) -> Result<(), BenchError> {
        let fence = fence(&asked.key, epoch);
        self.answer(asked.id, &Reply::Granted { session: asked.session, ticket: asked.ticket, fence })
    }

    /// The next request, which must be the release of this.
    fn release(&mut self, of: &Asked) {
        let (id, request) = self.next().unwrap();
        assert_eq!(request, Request::Release { session: of.session, ticket: of.ticket });
        let finished = Reply::Finished { session: of.session, ticket: of.ticket, outcome: End::Released };
        self.answer(id, &finished).unwrap();
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Asked {
    id: RequestId,
    session: SessionId,
    ticket: Ticket,
    key: Key,
    wait: Wait,
}

fn fence(key: &Key, epoch: u64) -> Fence {
    Fence::new(key.clone(), Epoch(epoch), Epoch(1)).unwrap()
}

fn contend(options: &mut LoadOptions) {
    options.mix = Mix::Contend;
    options.survive = true;
}

#[test]
fn a_session_acquires_releases_and_begins_anew() {
    let mut world = world(|o| o.keys = Some(2)).begun();
    let (first, second) = (world.acquire(), world.acquire());
    assert_eq!((first.ticket, first.wait, second.ticket), (Ticket(1), Wait::No, Ticket(1)));
    assert_ne!((first.session, &first.key), (second.session, &second.key));
    world.grant(&first, 1).unwrap();
    world.release(&first);
    let again = world.acquire();
    assert_eq!((again.session, again.ticket, &again.key), (first.session, Ticket(2), &first.key));
    assert_eq!(world.next(), None);
    let outcome = world.fleet.into_outcome();
    assert_eq!((outcome.operations, outcome.grants_judged, outcome.errors), (1, 1, 0));
}

#[test]
fn an_epoch_granted_twice_and_a_key_not_asked_for_are_violations() {
    let mut world = world(|o| o.keys = Some(2)).begun();
    let (first, second) = (world.acquire(), world.acquire());
    world.grant(&first, 7).unwrap();
    world.release(&first);
    let again = world.acquire();
    let judged = world.grant(&again, 7);
    assert!(matches!(judged, Err(BenchError::Violation(_))), "{judged:?}");
    let other = Asked { key: first.key.clone(), ..second };
    let judged = world.grant(&other, 8);
    assert!(matches!(judged, Err(BenchError::Violation(_))), "{judged:?}");
}

#[test]
fn a_second_holder_is_a_violation() {
    let hold = |o: &mut LoadOptions| {
        contend(o);
        o.hold_ms = 5;
    };
    let mut world = world(hold).begun();
    let (first, second) = (world.acquire(), world.acquire());
    assert_eq!(first.key, second.key);
    world.grant(&first, 1).unwrap();
    assert_eq!(world.next(), None, "the lock is held");
    let judged = world.grant(&second, 2);
    assert!(matches!(judged, Err(BenchError::Violation(_))), "{judged:?}");
}

#[test]
fn a_lock_is_held_for_as_long_as_was_asked_and_then_handed_over() {
    let hold = |o: &mut LoadOptions| {
        contend(o);
        o.hold_ms = 5;
    };
    let mut world = world(hold).begun();
    let (first, second) = (world.acquire(), world.acquire());
    assert_eq!(first.wait, Wait::Forever);
    world.grant(&first, 1).unwrap();
    world.now += 5_000_000;
    world.fleet.on_turn(world.now, &mut world.out).unwrap();
    world.release(&first);
    let fence = fence(&second.key, 2);
    let push = Push::Granted { session: second.session, ticket: second.ticket, fence };
    world.push(&push).unwrap();
    // The answer to a repeated acquire says the same again, and counts once.
    world.push(&push).unwrap();
    assert_eq!(world.fleet.into_outcome().operations, 2);
}

#[test]
fn a_request_that_was_put_off_is_repeated_when_the_server_said() {
    let mut world = world(|o| o.sessions = 1).begun();
    let asked = world.acquire();
    world.answer(asked.id, &Reply::Refused(Refusal::Busy { retry_after_ms: 20 })).unwrap();
    world.fleet.on_turn(world.now, &mut world.out).unwrap();
    assert_eq!(world.next(), None);
    world.now += 20_000_000;
    world.fleet.on_turn(world.now, &mut world.out).unwrap();
    assert_eq!(world.acquire(), asked);
    assert_eq!(world.fleet.into_outcome().errors, 1);
}

#[test]
fn on_a_new_connection_sessions_are_shown_and_what_was_unanswered_is_repeated() {
    let mut world = world(contend).begun();
    let (first, second) = (world.acquire(), world.acquire());
    world.grant(&first, 1).unwrap();
    // The release is under way, the other waits, and the connection breaks.
    assert!(world.next().is_some());
    let lost = world.answer(second.id, &Reply::Refused(Refusal::Interrupted { leader: None }));
    assert!(matches!(lost, Err(BenchError::Lost(_))));
    world.fleet.reconnected(world.now, &mut world.out);
    let shown = [world.next().unwrap(), world.next().unwrap()];
    assert_eq!(world.next(), None, "nothing is asked before the sessions are known");
    for (id, request) in shown {
        let Request::Attach { session, .. } = request else { panic!("{request:?}") };
        world.answer(id, &Reply::Attached { session, ttl_ms: 30_000 }).unwrap();
    }
    world.release(&first);
    assert_eq!(world.acquire(), second);
    // A new leader is told of all sessions at once.
    world.fleet.on_turn(world.now, &mut world.out).unwrap();
    world.acquire();
    let renewal = world.next().unwrap().1;
    assert_eq!(renewal, Request::Renew { sessions: vec![first.session, second.session] });
    assert_eq!(world.fleet.into_outcome().recoveries, 1);
}

#[test]
fn a_session_that_ended_is_replaced_and_its_lock_forgotten() {
    let hold = |o: &mut LoadOptions| {
        contend(o);
        o.hold_ms = 5;
    };
    let mut world = world(hold).begun();
    let (first, second) = (world.acquire(), world.acquire());
    world.grant(&first, 1).unwrap();
    let cause = Cause::Expired { silent_ms: 30_000 };
    world.push(&Push::SessionEnded { session: first.session, cause }).unwrap();
    world.grant(&second, 2).unwrap();
    let (id, request) = world.next().unwrap();
    assert!(matches!(request, Request::OpenSession { .. }));
    let reply = world.opens();
    world.answer(id, &reply).unwrap();
    let anew = world.acquire();
    assert_ne!(anew.session, first.session);
    assert_eq!(anew.ticket, Ticket(1));
}

#[test]
fn a_grant_that_comes_after_the_lease_ran_out_is_not_judged() {
    let mut world = world(contend).begun();
    let (first, second) = (world.acquire(), world.acquire());
    world.grant(&second, 2).unwrap();
    world.now += 31 * SECOND;
    world.grant(&first, 1).unwrap();
    assert_eq!(world.fleet.into_outcome().grants_judged, 1);
}

#[test]
fn without_survive_a_change_of_leader_ends_the_run() {
    let mut world = world(|_| ()).begun();
    let lost = world.push(&Push::LeaderChanged { leader: None });
    assert!(matches!(lost, Err(BenchError::Lost(_))));
}

#[test]
fn sessions_are_opened_and_closed_as_operations() {
    let mut world = world(|o| (o.mix, o.sessions) = (Mix::Session, 1)).begun();
    let (id, request) = world.next().unwrap();
    let Request::OpenSession { token, .. } = request else { panic!("{request:?}") };
    let reply = world.opens();
    world.answer(id, &reply).unwrap();
    let (id, request) = world.next().unwrap();
    let Request::CloseSession { session } = request else { panic!("{request:?}") };
    world.answer(id, &Reply::SessionClosed { session }).unwrap();
    world.push(&Push::SessionEnded { session, cause: Cause::Closed }).unwrap();
    let Some((_, Request::OpenSession { token: next, .. })) = world.next() else { panic!("no open") };
    assert_ne!(token, next);
    assert_eq!(world.fleet.into_outcome().operations, 1);
}

#[test]
fn at_the_end_nothing_begins_and_sessions_are_closed() {
    let mut world = world(|o| o.sessions = 1).begun();
    let asked = world.acquire();
    assert_eq!(world.fleet.on_turn(100 * SECOND, &mut world.out).unwrap(), Turn::Done);
    while world.next().is_some() {}
    world.fleet.close(world.now, &mut world.out);
    let (id, request) = world.next().unwrap();
    assert_eq!(request, Request::CloseSession { session: asked.session });
    world.grant(&asked, 1).unwrap();
    world.release(&asked);
    assert_eq!(world.next(), None);
    world.answer(id, &Reply::SessionClosed { session: asked.session }).unwrap();
    assert_eq!(world.fleet.on_turn(world.now, &mut world.out).unwrap(), Turn::Done);
}

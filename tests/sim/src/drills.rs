//! What rough clients send: short drills, each a handful of requests in one piece, so that the log has
//! them in this order and mostly in one block. Together they get every answer there is.

use core::time::Duration;

use palisade_types::reply::Consistency;
use palisade_types::{
    Class, ClusterIdentity, Cursor, Epoch, Key, LogIndex, Mode, Name, NodeId, OnDeath, OperatorAct, Rng,
    Selector, SessionId, SessionToken, ShardId, Term, Ticket, Value,
};
use palisade_wire::{Query, Request, Wait};

use crate::node::SHARD;
use crate::rough::Own;
use crate::world::World;

/// So many finished tickets, none next to another, fill a session: the limit is 2,000.
const RANGES: u64 = 2_000;
/// Deletes sent in one piece on the way there.
const RANGES_AT_ONCE: u64 = 100;
/// The sizes of values that together fill the state but for less than a new key costs.
const FILLING: [usize; 8] = [14_000, 7_000, 3_500, 1_800, 900, 450, 200, 60];

/// Draws the requests of a session.
struct Pen {
    session: SessionId,
    last: u64,
    out: Vec<Request>,
}

impl Pen {
    fn ticket(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn acquire(&mut self, ticket: u64, key: &Key, mode: Mode, wait: Wait) {
        let (session, ticket, key) = (self.session, Ticket(ticket), key.clone());
        let (class, on_death) = (Class::Advisory, OnDeath::Release);
        self.out.push(Request::Acquire { session, ticket, key, class, resource: None, mode, wait, on_death });
    }

    fn campaign(&mut self, ticket: u64, key: &Key, bytes: usize, wait: Wait) {
        let (session, ticket, key) = (self.session, Ticket(ticket), key.clone());
        self.out.push(Request::Campaign { session, ticket, key, value: value(bytes), wait });
    }

    fn proclaim(&mut self, ticket: u64, leads: u64, bytes: usize) {
        let (session, ticket, leads) = (self.session, Ticket(ticket), Ticket(leads));
        self.out.push(Request::Proclaim { session, ticket, leads, value: value(bytes) });
    }

    fn downgrade(&mut self, ticket: u64, holds: u64) {
        let (session, ticket, holds) = (self.session, Ticket(ticket), Ticket(holds));
        self.out.push(Request::Downgrade { session, ticket, holds });
    }

    fn put(&mut self, ticket: u64, key: &Key, bytes: usize) {
        let (session, ticket, key) = (self.session, Ticket(ticket), key.clone());
        self.out.push(Request::Put { session, ticket, key, value: value(bytes) });
    }

    fn delete(&mut self, ticket: u64, key: &Key) {
        let (session, ticket, key) = (self.session, Ticket(ticket), key.clone());
        self.out.push(Request::Delete { session, ticket, key });
    }

    fn release(&mut self, ticket: u64) {
        self.out.push(Request::Release { session: self.session, ticket: Ticket(ticket) });
    }

    fn cancel(&mut self, ticket: u64) {
        self.out.push(Request::Cancel { session: self.session, ticket: Ticket(ticket) });
    }

    /// Asks how a ticket was finished.
    fn probe(&mut self, ticket: u64) {
        self.release(ticket);
        self.cancel(ticket);
    }

    /// One of each command under this ticket.
    fn one_of_each(&mut self, ticket: u64) {
        let key = key("any");
        self.acquire(ticket, &key, Mode::Exclusive, Wait::Forever);
        self.acquire(ticket, &key, Mode::Shared, Wait::Forever);
        self.campaign(ticket, &key, 1, Wait::Forever);
        self.proclaim(ticket, 1, 1);
        self.downgrade(ticket, 1);
        self.put(ticket, &key, 1);
        self.delete(ticket, &key);
    }

    fn claim(&mut self, resource: &str, key: &Key) {
        let resource = Name::new(resource).expect("a name");
        self.out.push(Request::ClaimResource { resource, key: key.clone() });
    }

    fn operate(&mut self, act: OperatorAct) {
        let name = |text| Name::new(text).expect("a name");
        self.out.push(Request::Operate { by: name("operator"), reason: name("a drill"), act });
    }
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a name")
}

fn value(bytes: usize) -> Value {
    vec![7; bytes].into()
}

fn token(rng: &mut Rng) -> SessionToken {
    SessionToken(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
}

fn open(token: SessionToken, ttl_ms: u32) -> Request {
    Request::OpenSession { token, ttl_ms, owner: None, incarnation: None }
}

/// A lock from its grant to its end, each command of it also under tickets that are used otherwise.
fn lock_drill(pen: &mut Pen, rng: &mut Rng) {
    let key = key(&format!("rough-{}", rng.below(3)));
    let (mode, other) = match rng.per_mille(500) {
        true => (Mode::Exclusive, Mode::Shared),
        false => (Mode::Shared, Mode::Exclusive),
    };
    let (held, denied, waits) = (pen.ticket(), pen.ticket(), pen.ticket());
    pen.acquire(held, &key, mode, Wait::No);
    pen.acquire(held, &key, mode, Wait::No);
    pen.acquire(held, &key, other, Wait::No);
    pen.acquire(denied, &key, other, Wait::No);
    pen.acquire(waits, &key, other, Wait::Forever);
    pen.acquire(waits, &key, other, Wait::Forever);
    pen.cancel(held);
    pen.one_of_each(held);
    let fresh = pen.ticket();
    pen.downgrade(fresh, waits);
    pen.cancel(waits);
    pen.release(held);
    pen.one_of_each(held);
    [held, denied, waits, fresh].into_iter().for_each(|ticket| pen.probe(ticket));
    let fresh = pen.ticket();
    pen.downgrade(fresh, held);
    let fresh = pen.ticket();
    pen.proclaim(fresh, held, 1);
}

/// A campaign, its proclamations, and locks and campaigns on keys of the wrong class.
fn class_drill(pen: &mut Pen, rng: &mut Rng) {
    let lock = key(&format!("rough-{}", rng.below(3)));
    let election = key(&format!("choice-{}", rng.below(2)));
    let (holds, leads, waits) = (pen.ticket(), pen.ticket(), pen.ticket());
    pen.acquire(holds, &lock, Mode::Exclusive, Wait::No);
    pen.campaign(leads, &election, 3, Wait::No);
    pen.campaign(leads, &election, 3, Wait::No);
    pen.campaign(leads, &election, 4, Wait::No);
    pen.campaign(waits, &election, 3, Wait::Forever);
    let denied = pen.ticket();
    pen.campaign(denied, &election, 3, Wait::No);
    let said = pen.ticket();
    pen.proclaim(said, leads, 5);
    pen.proclaim(said, leads, 5);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let refused = pen.ticket();
        pen.acquire(refused, &election, mode, Wait::No);
        pen.probe(refused);
    }
    let refused = pen.ticket();
    pen.campaign(refused, &lock, 1, Wait::No);
    let refused = pen.ticket();
    pen.proclaim(refused, holds, 1);
    let refused = pen.ticket();
    pen.downgrade(refused, leads);
    [waits, leads, holds, said, denied].into_iter().for_each(|ticket| pen.probe(ticket));
}

/// A lock that is turned into a shared one, and one that an operator takes away.
fn change_drill(pen: &mut Pen, rng: &mut Rng, epoch: impl Fn(&Key) -> Epoch) {
    let key = key(&format!("rough-{}", rng.below(3)));
    let (first, second, third) = (pen.ticket(), pen.ticket(), pen.ticket());
    pen.acquire(first, &key, Mode::Exclusive, Wait::Forever);
    pen.downgrade(second, first);
    pen.downgrade(second, first);
    pen.downgrade(third, second);
    [first, second, third].into_iter().for_each(|ticket| pen.probe(ticket));
    let forced = pen.ticket();
    pen.acquire(forced, &key, Mode::Exclusive, Wait::No);
    // If nobody comes between, the log grants it under the third epoch from now.
    let epoch = Epoch(epoch(&key).0 + 3);
    for _ in 0..2 {
        pen.operate(OperatorAct::ForceRelease { key: key.clone(), epoch });
    }
    pen.operate(OperatorAct::ForceRelease { key: key.clone(), epoch: Epoch(epoch.0 + 7) });
    pen.probe(forced);
    let held = pen.ticket();
    pen.acquire(held, &key, Mode::Exclusive, Wait::No);
    let epoch = Epoch(epoch.0 + 1);
    pen.operate(OperatorAct::Retire { key: key.clone(), epoch });
    pen.release(held);
    for epoch in [epoch, epoch, Epoch(1)] {
        pen.operate(OperatorAct::Retire { key: key.clone(), epoch });
    }
}

/// Nothing goes on after the end, and an end ends once.
fn farewell_drill(pen: &mut Pen, rng: &mut Rng, own: &Own) {
    let session = own.id;
    let held = pen.ticket();
    pen.acquire(held, &key("rough-9"), Mode::Exclusive, Wait::No);
    pen.put(held + 1, &key("rough-value"), 10);
    match rng.below(3) {
        0 => pen.out.push(Request::CloseSession { session }),
        1 => pen.operate(OperatorAct::Evict { session }),
        _ => pen.operate(OperatorAct::ReportDead { session }),
    }
    pen.one_of_each(held + 2);
    pen.probe(held);
    pen.out.push(Request::CloseSession { session });
    pen.operate(OperatorAct::Evict { session });
    pen.operate(OperatorAct::ReportDead { session });
    pen.out.push(open(own.token, 1_500));
    pen.out.push(Request::Renew { sessions: vec![session] });
}

/// A session holds and puts as many keys as it may.
fn keys_drill(pen: &mut Pen) {
    let first = pen.last + 1;
    for n in 0..9 {
        let ticket = pen.ticket();
        pen.acquire(ticket, &key(&format!("rough-many-{n}")), Mode::Shared, Wait::No);
    }
    for mode in [Mode::Exclusive, Mode::Shared] {
        let ticket = pen.ticket();
        pen.acquire(ticket, &key("rough-many"), mode, Wait::No);
    }
    let (campaign, put) = (pen.ticket(), pen.ticket());
    pen.campaign(campaign, &key("choice-9"), 1, Wait::No);
    pen.put(put, &key("rough-value"), 1);
    (first..=pen.last).for_each(|ticket| pen.release(ticket));
}

/// The state is full; whoever frees something is let through.
fn quota_drill(pen: &mut Pen, rng: &mut Rng) {
    let leads = pen.ticket();
    pen.campaign(leads, &key("choice-8"), 1, Wait::No);
    for (n, bytes) in FILLING.into_iter().enumerate() {
        let ticket = pen.ticket();
        pen.put(ticket, &key(&format!("rough-full-{n}")), bytes);
    }
    for n in 0..FILLING.len() {
        let ticket = pen.ticket();
        pen.put(ticket, &key(&format!("rough-full-{n}")), 1_500);
    }
    let said = pen.ticket();
    pen.proclaim(said, leads, 4_000);
    pen.release(leads);
    for n in 3..FILLING.len() {
        let ticket = pen.ticket();
        pen.delete(ticket, &key(&format!("rough-full-{n}")));
    }
    for mode in [Mode::Exclusive, Mode::Shared] {
        let ticket = pen.ticket();
        pen.acquire(ticket, &key("rough-new"), mode, Wait::No);
        pen.release(ticket);
    }
    for n in 0..3 {
        pen.claim(&format!("rough-full-{}-{n}", rng.below(1 << 40)), &key("rough-new"));
    }
    let campaign = pen.ticket();
    pen.campaign(campaign, &key("choice-7"), 8_000, Wait::No);
    pen.release(campaign);
    pen.out.push(open(token(rng), 1_500));
    for n in 0..3 {
        let ticket = pen.ticket();
        pen.delete(ticket, &key(&format!("rough-full-{n}")));
    }
}

/// Ephemeral keys, of which others have some too.
fn values_drill(pen: &mut Pen, rng: &mut Rng) {
    for _ in 0..4 {
        let key = key(&format!("value-{}", rng.below(4)));
        let (put, delete) = (pen.ticket(), pen.ticket());
        pen.put(put, &key, rng.below(30) as usize);
        if rng.per_mille(700) {
            pen.delete(delete, &key);
        }
        pen.probe(put);
    }
}

/// Claims to resources, of which some are on record, some new, and some beside another key's.
fn claims_drill(pen: &mut Pen, rng: &mut Rng) {
    for _ in 0..4 {
        let key = key(&format!("rough-{}", rng.below(3)));
        pen.claim(&format!("rough-resource-{}", rng.below(6)), &key);
    }
}

/// Ticket 0, sessions and cursors of elsewhere, tokens that are wrong, times that no session has.
fn nonsense_drill(pen: &mut Pen, rng: &mut Rng) {
    pen.one_of_each(0);
    pen.probe(0);
    let (session, elsewhere) = (pen.session, SessionId { shard: ShardId(9), opened: pen.session.opened });
    let (class, mode, on_death) = (Class::Fenced, Mode::Exclusive, OnDeath::Release);
    let (ticket, key, wait, resource) = (Ticket(pen.last + 1), key("rough-1"), Wait::No, None);
    pen.out.push(Request::Acquire { session, ticket, key, class, resource, mode, wait, on_death });
    pen.session = elsewhere;
    pen.one_of_each(1);
    pen.probe(1);
    pen.session = session;
    pen.out.push(Request::CloseSession { session: elsewhere });
    pen.operate(OperatorAct::Evict { session: elsewhere });
    pen.operate(OperatorAct::ReportDead { session: elsewhere });
    pen.out.push(open(token(rng), 100));
    pen.out.push(Request::Attach { token: SessionToken(1), session });
    let never = SessionId { shard: SHARD, opened: LogIndex(1) };
    pen.out.push(Request::Attach { token: SessionToken(1), session: never });
    pen.out.push(Request::Renew { sessions: vec![never, elsewhere] });
    pen.session = never;
    pen.one_of_each(1);
    pen.probe(1);
    pen.session = session;
    pen.out.push(Request::CloseSession { session: never });
}

/// Each kind of read with each consistency, pages without rows, and watches that stand and do not.
fn reads_drill(pen: &mut Pen, rng: &mut Rng) {
    let after = LogIndex(0);
    for rows in [0, 5] {
        for consistency in [Consistency::Linearizable, Consistency::Lease, Consistency::Stale] {
            let queries = [
                Query::Describe { key: key("rough-1") },
                Query::Get { key: key("value-1") },
                Query::ListLocks { after: None, rows },
                Query::ListSessions { after: None, rows },
                Query::ListOperatorActs { after, rows },
                Query::ListValues { prefix: None, after: None, rows },
                Query::ListResources { conflicts: rows == 0, after: None, rows },
            ];
            pen.out.extend(queries.into_iter().map(|query| Request::Read { consistency, query }));
        }
    }
    pen.out.push(Request::Status);
    let watch = rng.next_u64();
    let elsewhere = Cursor::new(ClusterIdentity(1), SHARD, after);
    let known = Cursor::new(crate::node::WATCH_CLUSTER, SHARD, after);
    let shardless = Cursor::new(crate::node::WATCH_CLUSTER, ShardId(9), after);
    for (add, cursor) in [(0, None), (0, None), (1, Some(elsewhere)), (2, Some(known)), (3, Some(shardless))]
    {
        let watch = watch.wrapping_add(add);
        pen.out.push(Request::Watch { watch, selector: Selector::Sessions, present: false, cursor });
    }
    for add in 0..4 {
        pen.out.push(Request::Unwatch { watch: watch.wrapping_add(add) });
    }
}

/// What is sent at about the time at which the wait of `waits` ends, while `held` has the key.
fn late_drill(pen: &mut Pen, rng: &mut Rng, held: u64, waits: u64, forced: (Key, Epoch)) {
    if rng.per_mille(150) {
        return pen.cancel(waits);
    }
    if rng.per_mille(150) {
        return pen.out.push(Request::CloseSession { session: pen.session });
    }
    pen.release(held);
    match rng.below(10) {
        0..=1 => {}
        2..=3 => pen.release(waits),
        4..=5 => {
            let fresh = pen.ticket();
            pen.downgrade(fresh, waits);
            pen.release(fresh);
        }
        _ => pen.operate(OperatorAct::ForceRelease { key: forced.0, epoch: forced.1 }),
    }
}

impl World {
    /// The next drill of a rough client.
    pub(crate) fn draw_drill(&mut self, rough: usize) -> Vec<Request> {
        let wants = self.rough_wants_session(rough);
        let r = &mut self.roughs[rough];
        let ids: Vec<SessionId> = r.sessions.iter().map(|own| own.id).collect();
        let mut out = Vec::new();
        if !ids.is_empty() {
            out.push(Request::Renew { sessions: ids });
        }
        if wants {
            let token = token(&mut r.rng);
            out.extend([open(token, 1_500), open(token, 1_500)]);
        }
        let at = r.rng.below(r.sessions.len().max(1) as u64) as usize;
        let Some(own) = r.sessions.get(at).cloned() else { return out };
        let mut rng = r.rng.fork();
        let mut pen = Pen { session: own.id, last: own.last, out };
        match rng.below(100) {
            0..=19 => lock_drill(&mut pen, &mut rng),
            20..=34 => class_drill(&mut pen, &mut rng),
            35..=49 => change_drill(&mut pen, &mut rng, |key| self.witness.last_epoch(key)),
            50..=54 => farewell_drill(&mut pen, &mut rng, &own),
            55..=59 => keys_drill(&mut pen),
            60..=63 => quota_drill(&mut pen, &mut rng),
            64..=68 => values_drill(&mut pen, &mut rng),
            69..=71 => claims_drill(&mut pen, &mut rng),
            72..=75 => nonsense_drill(&mut pen, &mut rng),
            76..=79 => reads_drill(&mut pen, &mut rng),
            80..=83 => self.transfer_drill(&mut pen, &mut rng),
            84..=96 => self.wait_drill(rough, &mut pen, &mut rng),
            _ => self.ranges_drill(rough, &mut pen),
        }
        if let Some(known) = self.roughs[rough].sessions.iter_mut().find(|known| known.id == own.id) {
            known.last = known.last.max(pen.last);
        }
        pen.out
    }

    /// Leadership is handed over, again, and to nodes that there are and are not.
    fn transfer_drill(&mut self, pen: &mut Pen, rng: &mut Rng) {
        let nodes = self.nodes.len() as u32;
        let leader = self.leader().and_then(|node| self.nodes[node].shard.as_ref());
        let Some(term) = leader.map(|shard| shard.raft().status().term).filter(|_| nodes > 1) else { return };
        let gone = self.nodes.iter().position(|node| node.shard.is_none() || node.paused);
        let any = rng.below(u64::from(nodes)) as usize;
        let to = gone.or_else(|| rng.per_mille(700).then_some(any)).map(|node| NodeId(1 + node as u32));
        pen.operate(OperatorAct::Transfer { term, to: Some(NodeId(9)) });
        pen.operate(OperatorAct::Transfer { term: Term(term.0 + 7), to: None });
        pen.operate(OperatorAct::Transfer { term, to });
        pen.operate(OperatorAct::Transfer { term, to });
    }

    /// A wait that ends while something else is on its way to the log.
    fn wait_drill(&mut self, rough: usize, pen: &mut Pen, rng: &mut Rng) {
        let key = key(&format!("rough-wait-{rough}"));
        let (held, waits) = (pen.ticket(), pen.ticket());
        let wait = rng.between(5, 60);
        pen.acquire(held, &key, Mode::Exclusive, Wait::No);
        pen.acquire(waits, &key, Mode::Exclusive, Wait::Millis(wait as u32));
        let epoch = Epoch(self.witness.last_epoch(&key).0 + 2);
        let mut late = Pen { session: pen.session, last: pen.last, out: Vec::new() };
        late_drill(&mut late, rng, held, waits, (key, epoch));
        // The wait ends so long after the request has arrived, which takes a while itself.
        let early = Duration::from_micros(rng.below(12_000));
        self.rough_later(rough, Duration::from_millis(wait).saturating_sub(early), late.out);
        pen.last = late.last;
        let mut after = Pen { session: pen.session, last: pen.last, out: Vec::new() };
        after.probe(waits);
        after.probe(held);
        self.rough_later(rough, Duration::from_millis(wait + 300), after.out);
    }

    /// A session runs out of ranges of tickets: from then on it can but end.
    fn ranges_drill(&mut self, rough: usize, pen: &mut Pen) {
        let r = &mut self.roughs[rough];
        if !std::mem::take(&mut r.fills) {
            return;
        }
        let first = pen.last + 2;
        let ids: Vec<SessionId> = r.sessions.iter().map(|own| own.id).collect();
        let mut after = Duration::ZERO;
        for from in (0..RANGES).step_by(RANGES_AT_ONCE as usize) {
            let mut part = Pen { session: pen.session, last: 0, out: Vec::new() };
            part.out.push(Request::Renew { sessions: ids.clone() });
            for n in from..from + RANGES_AT_ONCE {
                part.delete(first + 2 * n, &key("nobody's"));
            }
            after += Duration::from_millis(30);
            self.rough_later(rough, after, part.out);
        }
        pen.last = first + 2 * RANGES + 2;
        for _ in 0..20 {
            let mut part = Pen { session: pen.session, last: pen.last, out: Vec::new() };
            for _ in 0..2 {
                let ticket = part.ticket() + 1_000;
                part.one_of_each(ticket);
                part.probe(ticket);
                part.probe(first);
            }
            after += Duration::from_millis(30);
            self.rough_later(rough, after, part.out);
            pen.last = part.last;
        }
        let mut end = Pen { session: pen.session, last: pen.last, out: Vec::new() };
        end.out.push(Request::CloseSession { session: pen.session });
        self.rough_later(rough, after + Duration::from_millis(30), end.out);
    }
}

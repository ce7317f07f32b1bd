//! How sessions die on a shard: what holds an end back, when it comes, how many go together, and what
//! passes meanwhile.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

impl Node {
    /// A request whose turn ends, without waiting for its answer.
    fn hand(&mut self, conn: ConnId, request: Request) -> RequestId {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        self.input(Some(Input::Request { conn, id, request }));
        id
    }

    /// As `open_on`, at however much load.
    fn open_in_time(&mut self, conn: ConnId, token: u128, ttl_ms: u32) -> SessionId {
        let token = SessionToken(token);
        let id = self.hand(conn, Request::OpenSession { token, ttl_ms, owner: None, incarnation: None });
        for _ in 0..10 {
            if let Some(at) = self.replies.iter().position(|r| r.1 == id) {
                let Reply::Opened { session, .. } = self.replies.swap_remove(at).2 else {
                    panic!("not opened")
                };
                return session;
            }
            self.pass(Duration::from_millis(5));
        }
        panic!("every request is answered")
    }

    fn ended(&self, session: SessionId) -> Option<Cause> {
        self.shard.machine().ended(session)
    }
}

#[test]
fn nobody_is_ended_before_every_core_has_read_what_had_arrived() {
    let mut node = Node::start();
    let (late, dead) = (node.open(1, 2000), node.open_on(ConnId(2), 2, 2000));
    node.deaf = true;
    node.pass(4 * SECOND);
    assert_eq!((node.ended(late), node.ended(dead)), (None, None), "a mark is owed");
    assert!(node.shard.expiry_lag() > SECOND, "and that can be seen");
    // The renewal was in the socket's buffer all the time; the core reads it, and then gives the mark.
    node.hand(CONN, Request::Renew { sessions: vec![late] });
    node.deaf = false;
    node.pass(Duration::from_millis(50));
    assert_eq!(node.ended(late), None);
    assert!(matches!(node.ended(dead), Some(Cause::Expired { .. })));
    assert_eq!(node.shard.expiry_lag(), Duration::ZERO);
}

#[test]
fn a_turn_in_which_nobody_is_due_asks_for_no_mark() {
    let mut node = Node::start();
    node.open(1, 2000);
    node.deaf = true;
    node.pass(2 * SECOND);
    assert_eq!(node.drain, None);
    node.pass(SECOND);
    assert!(node.drain.is_some());
}

/// U32: a TTL means what it says.
#[test]
fn the_next_waiter_is_granted_between_the_ttl_and_the_bound_told_in_the_reply() {
    for ttl_ms in [500, 1_000, 2_000, 5_000, 30_000, 3_600_000] {
        let mut node = Node::start();
        let token = SessionToken(1);
        let open = Request::OpenSession { token, ttl_ms, owner: None, incarnation: None };
        let Reply::Opened { session, ttl_ms: granted, gone_within_ms, short_ttl } = node.ask(open) else {
            panic!("not opened")
        };
        assert_eq!((granted, short_ttl), (ttl_ms, ttl_ms < 6_000), "three election timeouts are 6 s");
        assert_eq!(gone_within_ms, u64::from(ttl_ms) + u64::from(ttl_ms) / 100 + 1_000);
        node.epoch(session, 1, "k");
        let waiter = node.open_on(ConnId(2), 2, 3_600_000);
        node.ask_on(ConnId(2), acquire(waiter, 1, "k", Wait::Forever));
        node.ask(Request::Renew { sessions: vec![session] });
        // Silent from here on.
        let silent = node.now;
        while node.pushes.is_empty() {
            node.pass(Duration::from_millis(50));
            let renew = Request::Renew { sessions: vec![waiter] };
            if node.now.since(silent).as_secs().is_multiple_of(600) {
                node.ask_on(ConnId(2), renew);
            }
        }
        let took = node.now.since(silent).as_millis() as u64;
        assert!(matches!(node.pushes[..], [(CONN, Push::SessionEnded { .. }), (_, Push::Granted { .. })]));
        assert!((u64::from(ttl_ms)..=gone_within_ms).contains(&took), "TTL {ttl_ms}: {took}");
    }
}

/// U15: a live waiter is dropped by nobody, however long it waits.
#[test]
fn waiters_that_live_are_granted_in_order_after_a_wait_of_many_ttls() {
    let mut node = Node::start();
    let sessions: Vec<SessionId> = (1..=6).map(|n| node.open(n, 2_000)).collect();
    node.epoch(sessions[0], 1, "k");
    for &session in &sessions[1..] {
        assert!(matches!(node.acquire(session, 1, "k", Wait::Forever), Reply::Queued { .. }));
    }
    for _ in 0..60 {
        node.pass(SECOND);
        let renewed = node.ask(Request::Renew { sessions: sessions.clone() });
        assert_eq!(renewed, Reply::Renewed { refused: Vec::new() });
    }
    assert_eq!(node.pushes, [], "30 TTLs later nobody was dropped or let in");
    for (epoch, pair) in (2..).zip(sessions.windows(2)) {
        node.ask(Request::Release { session: pair[0], ticket: Ticket(1) });
        let told: Vec<_> = node.pushes.drain(..).collect();
        let [(_, Push::Granted { session, fence, .. })] = &told[..] else { panic!("{told:?}") };
        assert_eq!((*session, fence.epoch().0), (pair[1], epoch));
    }
}

/// U17: no herd.
#[test]
fn one_release_before_thousands_of_waiters_sends_one_answer_and_one_grant() {
    let mut node = Node::start();
    let holder = node.open(1, 0);
    node.epoch(holder, 1, "k");
    let waiters = 2_000;
    let mut sessions = Vec::new();
    for n in 0..waiters {
        let conn = ConnId(10 + n);
        let session = node.open_in_time(conn, 10 + u128::from(n), 3_600_000);
        node.hand(conn, acquire(session, 1, "k", Wait::Forever));
        sessions.push((conn, session));
    }
    node.pass(Duration::from_millis(50));
    let is_queued = |r: &(ConnId, RequestId, Reply)| matches!(r.2, Reply::Queued { .. });
    assert_eq!(node.replies.iter().filter(|r| is_queued(r)).count(), waiters as usize);
    node.replies.clear();
    let log = node.shard.applied().0;
    let id = node.hand(CONN, Request::Release { session: holder, ticket: Ticket(1) });
    node.pass(5 * SECOND);
    assert_eq!(node.shard.applied().0, log + 1, "the grant is in the entry of the release");
    assert!(matches!(node.replies[..], [(CONN, answered, Reply::Finished { .. })] if answered == id));
    let (conn, session) = sessions[0];
    assert!(
        matches!(node.pushes[..], [(to, Push::Granted { session: s, .. })] if to == conn && s == session),
        "{} messages",
        node.pushes.len()
    );
}

/// U23: very many sessions end at the same instant.
#[test]
fn many_sessions_that_end_together_are_bounded_work_an_entry_and_take_nobody_with_them() {
    let mut node = Node::start();
    let (dead, keys) = (100, 60);
    for n in 0..dead {
        let session = node.open_in_time(ConnId(2), 100 + n, 5_000);
        for ticket in 1..=keys {
            node.hand(ConnId(2), acquire(session, ticket, &format!("{n}/{ticket}"), Wait::No));
        }
    }
    node.pass(Duration::from_millis(20));
    let live: Vec<SessionId> = (1..=50).map(|n| node.open_in_time(CONN, n, 5_000)).collect();
    let held: u64 = node.shard.machine().counts().claims;
    assert_eq!(held, dead as u64 * keys);
    // The leader changes, so that all of them have the same deadline.
    node.restart();
    for (token, &session) in (1..).zip(&live) {
        node.ask(Request::Attach { token: SessionToken(token), session });
    }
    let began = node.now;
    let (mut freed, mut most, mut lag, mut left) = (0, 0, Duration::ZERO, held);
    let mut done_at = None;
    while node.now.since(began) < 8 * SECOND {
        if node.now.since(began).as_secs().is_multiple_of(2) {
            let renewed = node.ask(Request::Renew { sessions: live.clone() });
            assert_eq!(renewed, Reply::Renewed { refused: Vec::new() }, "no live session is lost");
        }
        let before = node.shard.applied().0;
        node.now = node.now + Duration::from_millis(5);
        node.input(None);
        let entries = node.shard.applied().0 - before;
        let now_left = node.shard.machine().counts().claims;
        most = most.max((left - now_left).div_ceil(entries.max(1)));
        freed += left - now_left;
        left = now_left;
        lag = lag.max(node.shard.expiry_lag());
        if left == 0 && done_at.is_none() {
            done_at = Some(node.now);
        }
    }
    assert_eq!((freed, left, node.shard.machine().backlog_len()), (held, 0, 0));
    assert!(most <= 50, "{most} keys in an entry");
    assert_eq!(node.shard.expiry_lag(), Duration::ZERO, "the lag returns to zero");
    assert!(lag <= Duration::from_millis(200), "it was never long: {lag:?}");
    assert_eq!(node.shard.machine().counts().sessions, 50);
    let took = done_at.expect("all are free").since(began);
    let due = Duration::from_millis(5_550);
    assert!(took < due + SECOND, "at 20,000 keys a second, after the deadline: {took:?}");
}

/// U25: who renews or releases passes when the server is at its limit.
#[test]
fn renewals_and_releases_pass_when_acquires_are_turned_away() {
    let mut node = Node::start();
    let (holder, crowd) = (node.open(1, 2_000), node.open_on(ConnId(2), 2, 60_000));
    node.epoch(holder, 1, "k");
    let mut out = Actions::default();
    // All in one turn: the disk takes none of it meanwhile.
    let mut busy = 0;
    for n in 0..60_000 {
        let id = RequestId(1_000_000 + n);
        let request = acquire(crowd, 1 + n, "k", Wait::Forever);
        node.shard.handle(node.now, Input::Request { conn: ConnId(2), id, request }, &mut out);
        busy += out.replies.drain(..).filter(|r| matches!(r.2, Reply::Refused(Refusal::Busy { .. }))).count();
    }
    assert!(busy > 0, "new acquires are turned away");
    let renew = RequestId(1);
    let request = Request::Renew { sessions: vec![holder] };
    node.shard.handle(node.now, Input::Request { conn: CONN, id: renew, request }, &mut out);
    let release = RequestId(2);
    let request = Request::Release { session: holder, ticket: Ticket(1) };
    node.shard.handle(node.now, Input::Request { conn: CONN, id: release, request }, &mut out);
    assert!(out.replies.is_empty(), "both were taken: {:?}", out.replies);
    node.input(None);
    node.pass(Duration::from_millis(50));
    let reply = |id| node.replies.iter().find(|r| r.0 == CONN && r.1 == id).map(|r| &r.2);
    assert_eq!(reply(renew), Some(&Reply::Renewed { refused: Vec::new() }));
    assert!(matches!(reply(release), Some(Reply::Finished { outcome: Outcome::Released, .. })));
}

#[test]
fn with_several_cores_the_last_of_them_ends_the_wait() {
    let mut node = Node::start();
    node.cores = 1;
    node.shard = {
        let recovered = recover_shard(&node.disk.platter(), &node.identity, SHARD).expect("a valid log");
        let raft = palisade_raft_config(&node.identity);
        let wal = WalConfig::new(&node.identity, SHARD, 2);
        let mut config = ShardConfig::new(node.identity.node, raft, wal, node.identity.limits);
        config.client_cores = 3;
        node.disk.crash(&mut palisade_types::Rng::new(1));
        Shard::new(config, recovered, None, 2, node.now).expect("a valid configuration")
    };
    node.lead();
    let session = node.open(1, 1_000);
    node.pass(4 * SECOND);
    assert_eq!(node.ended(session), None, "two cores have not answered");
    node.cores = 3;
    let drain = DrainId(1);
    for core in [1, 2].map(CoreId) {
        node.input(Some(Input::Drained { core, drain }));
    }
    node.pass(Duration::from_millis(50));
    assert!(node.ended(session).is_some());
}

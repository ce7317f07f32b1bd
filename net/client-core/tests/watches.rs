//! A watch against scripted nodes: whatever happens to connections, the stream misses nothing, repeats
//! nothing, and says so where that cannot be.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::VecDeque;
use std::time::Duration;

use palisade_client_core::{
    CoreConfig, Input, LinkError, LinkId, Listing, Watch, WatchAction, WatchError, WatchFrom, WatchItem,
};
use palisade_types::{
    ClusterId, ClusterIdentity, Cursor, Epoch, Event, Happened, Key, LogIndex, NodeId, Refusal, Reply,
    RequestId, Selector, SessionId, ShardId, Time, TransitionKind,
};
use palisade_wire::{
    Frames, HelloRefused, Kind, Member, Push, RefusedReason, Request, ServerHello, WatchEnd, encode_reply,
};

const CLUSTER: ClusterId = ClusterId(77);
const IDENTITY: ClusterIdentity = ClusterIdentity(0x77);
const SHARD: ShardId = ShardId(0);

struct World {
    watch: Watch,
    now: Time,
    items: Vec<WatchItem>,
    downs: Vec<LinkError>,
    failed: Option<WatchError>,
    dialed: VecDeque<(LinkId, String)>,
    link: Option<(LinkId, NodeId)>,
    asked: VecDeque<(RequestId, Request)>,
}

fn endpoint(node: u32) -> String {
    format!("node{node}:740{node}")
}

fn cursor(revision: u64) -> Cursor {
    Cursor::new(IDENTITY, SHARD, LogIndex(revision))
}

fn event(revision: u64, what: Happened) -> Event {
    let (key, session) = (Some(Key::new("k").unwrap()), SessionId::default());
    Event { revision: LogIndex(revision), key, session, owner: None, what }
}

fn granted(revision: u64) -> Event {
    let epoch = Epoch(revision);
    event(revision, Happened::Granted { epoch, barrier: epoch })
}

fn released(revision: u64) -> Event {
    event(
        revision,
        Happened::Released {
            epoch: Epoch(revision),
            barrier: Epoch(revision),
            how: TransitionKind::Released,
        },
    )
}

fn held(revision: u64) -> Event {
    let epoch = Epoch(revision);
    event(revision, Happened::Held { epoch, barrier: epoch, ending: false })
}

fn change(event: Event, upto: u64) -> WatchItem {
    WatchItem::Change { event, coalesced: false, cursor: Some(cursor(upto)) }
}

impl World {
    fn new(from: WatchFrom) -> World {
        let config = CoreConfig::new((1..=3).map(endpoint).collect());
        let now = Time::from_millis(1_000);
        let watch = Watch::new(config, Selector::Keys, from, 1, now).unwrap();
        let mut world = World {
            watch,
            now,
            items: Vec::new(),
            downs: Vec::new(),
            failed: None,
            dialed: VecDeque::new(),
            link: None,
            asked: VecDeque::new(),
        };
        world.act();
        world
    }

    fn act(&mut self) {
        while let Some(action) = self.watch.poll_action() {
            match action {
                WatchAction::Dial { link, endpoint } => self.dialed.push_back((link, endpoint)),
                WatchAction::Hangup { link } => {
                    if self.link.is_some_and(|(l, _)| l == link) {
                        self.link = None;
                    }
                }
                WatchAction::Send { bytes, .. } => {
                    let mut frames = Frames::new(&bytes);
                    while let Some(frame) = frames.next_frame().unwrap() {
                        if frame.kind != Kind::ClientHello {
                            self.asked.push_back((frame.id, Request::decode(&frame).unwrap()));
                        }
                    }
                }
                WatchAction::Item(item) => self.items.push(item),
                WatchAction::Failed(error) => assert_eq!(self.failed.replace(error), None),
                WatchAction::LinkDown { error, .. } => self.downs.push(error),
            }
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.watch.handle(self.now, input);
        self.act();
    }

    /// Lets the time come at which something is due.
    fn tick(&mut self) -> Duration {
        let before = self.now;
        self.now = self.now.max(self.watch.next_deadline());
        self.input(Input::Tick);
        self.now.since(before)
    }

    /// The next node dialled answers and is asked.
    fn connect(&mut self) -> Request {
        while self.dialed.is_empty() {
            self.tick();
        }
        let (link, address) = self.dialed.pop_front().unwrap();
        let node = NodeId((1..=3).find(|n| endpoint(*n) == address).unwrap());
        self.link = Some((link, node));
        self.input(Input::Connected { link });
        let members = (1..=3).map(|n| Member { node: NodeId(n), address: endpoint(n) }).collect();
        let hello = ServerHello {
            version: 1,
            node,
            cluster: CLUSTER,
            shards: 1,
            leader: Some(NodeId(1)),
            members,
            frame_bytes_max: 1 << 20,
            inflight_max: 10,
            election_timeout_ms: 1_000,
        };
        self.bytes(|out| hello.encode(out));
        self.asked.back().unwrap().1.clone()
    }

    fn bytes(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        let (link, _) = self.link.expect("a connection");
        // Cut anywhere.
        for chunk in bytes.chunks(7) {
            self.input(Input::Received { link, bytes: chunk });
        }
    }

    fn answer(&mut self, reply: &Reply) {
        let (id, _) = self.asked.pop_front().expect("something was asked");
        self.bytes(|out| encode_reply(reply, id, out));
    }

    fn number(&self) -> u64 {
        match self.asked.back() {
            Some((_, Request::Watch { watch, .. })) => *watch,
            other => panic!("{other:?} is no watch"),
        }
    }

    /// Connects, and is told that the watch stands behind a revision.
    fn stand(&mut self, revision: u64) -> (u64, Request) {
        let request = self.connect();
        (self.accept(revision), request)
    }

    fn accept(&mut self, revision: u64) -> u64 {
        let watch = self.number();
        let reply = Reply::Watching { watch, cluster: IDENTITY, shard: SHARD, revision: LogIndex(revision) };
        self.answer(&reply);
        // That it stands is said, unless the present state follows.
        if let Some(WatchItem::Progress { .. }) = self.items.last() {
            self.items.pop();
        }
        watch
    }

    fn tell(&mut self, watch: u64, flags: &str, upto: u64, events: &[Event]) {
        let has = |flag: &str| flags.contains(flag);
        let push = Push::Events {
            watch,
            present: has("present"),
            coalesced: has("coalesced"),
            continued: has("continued"),
            upto: LogIndex(upto),
            events: events.iter().cloned().collect(),
        };
        self.bytes(|out| push.encode(out));
    }

    fn progress(&mut self, watch: u64, upto: u64) {
        self.bytes(|out| Push::Progress { watch, upto: LogIndex(upto) }.encode(out));
    }

    fn drop_link(&mut self) {
        let (link, _) = self.link.take().expect("a connection");
        self.asked.clear();
        self.input(Input::Disconnected { link });
    }

    fn take(&mut self) -> Vec<WatchItem> {
        std::mem::take(&mut self.items)
    }
}

fn asks(request: &Request) -> (bool, Option<Cursor>) {
    match request {
        Request::Watch { present, cursor, .. } => (*present, cursor.clone()),
        other => panic!("{other:?} is no watch"),
    }
}

#[test]
fn a_watch_goes_on_at_another_node_behind_the_last_it_knows() {
    let mut w = World::new(WatchFrom::Now);
    let (watch, request) = w.stand(10);
    assert_eq!(asks(&request), (false, None));
    let first = w.link.unwrap().1;
    w.tell(watch, "", 14, &[released(12), granted(12), released(13)]);
    // In the midst of a revision the place to go on is before it.
    assert_eq!(w.take(), [change(released(12), 11), change(granted(12), 12), change(released(13), 13)]);
    assert_eq!(w.watch.cursor(), Some(cursor(14)), "nothing else happened up to there");
    w.progress(watch, 20);
    assert_eq!(w.take(), [WatchItem::Progress { cursor: cursor(20) }]);
    w.drop_link();
    let (watch, request) = w.stand(20);
    assert_ne!(w.link.unwrap().1, first, "another node");
    assert_eq!(asks(&request), (false, Some(cursor(20))));
    w.tell(watch, "", 21, &[granted(21)]);
    assert_eq!(w.take(), [change(granted(21), 21)]);
}

#[test]
fn a_watch_that_nothing_was_told_of_goes_on_where_it_began() {
    let mut w = World::new(WatchFrom::Now);
    w.stand(10);
    w.drop_link();
    assert_eq!(asks(&w.connect()), (false, Some(cursor(10))));
    let mut w = World::new(WatchFrom::Cursor(cursor(7)));
    assert_eq!(asks(&w.connect()), (false, Some(cursor(7))));
}

#[test]
fn what_was_told_of_half_a_revision_is_not_told_again() {
    let mut w = World::new(WatchFrom::Now);
    let (watch, _) = w.stand(10);
    w.tell(watch, "continued", 11, &[granted(11), released(12), granted(12)]);
    assert_eq!(w.take(), [change(granted(11), 11), change(released(12), 11), change(granted(12), 11)]);
    w.drop_link();
    let (watch, request) = w.stand(11);
    assert_eq!(asks(&request), (false, Some(cursor(11))));
    w.tell(watch, "", 13, &[released(12), granted(12), released(12), granted(13)]);
    assert_eq!(w.take(), [change(released(12), 12), change(granted(13), 13)]);
}

#[test]
fn a_node_that_goes_back_in_time_is_left() {
    for wrong in ["known", "progress"] {
        let mut w = World::new(WatchFrom::Cursor(cursor(10)));
        let (watch, _) = w.stand(10);
        match wrong {
            "known" => w.tell(watch, "", 11, &[granted(10)]),
            _ => w.progress(watch, 9),
        }
        assert!(matches!(w.downs[..], [LinkError::Protocol(_)]), "{wrong}");
        assert_eq!(w.take(), []);
    }
}

#[test]
fn the_present_state_is_whole_or_begins_anew() {
    let mut w = World::new(WatchFrom::Present);
    let (watch, request) = w.stand(10);
    assert_eq!(asks(&request), (true, None));
    w.tell(watch, "present continued", 10, &[held(10)]);
    w.tell(watch, "present continued", 12, &[released(12)]);
    let told = w.take();
    let row = WatchItem::Change { event: released(12), coalesced: false, cursor: None };
    assert_eq!(told, [WatchItem::Listing(Listing::Asked), WatchItem::Row(held(10)), row]);
    w.drop_link();
    let (watch, request) = w.stand(12);
    assert!(asks(&request).0, "the whole of it, anew");
    w.tell(watch, "present", 15, &[held(15)]);
    w.tell(watch, "", 16, &[released(16)]);
    assert_eq!(
        w.take(),
        [
            WatchItem::Listing(Listing::Interrupted),
            WatchItem::Row(held(15)),
            WatchItem::Listed { cursor: cursor(15) },
            change(released(16), 16)
        ]
    );
}

#[test]
fn a_history_that_is_gone_is_looked_for_at_every_node_and_then_said() {
    let mut w = World::new(WatchFrom::Cursor(cursor(10)));
    let mut nodes = Vec::new();
    for _ in 0..2 {
        assert_eq!(asks(&w.connect()), (false, Some(cursor(10))));
        nodes.push(w.link.unwrap().1);
        w.answer(&Reply::Refused(Refusal::Compacted { oldest: LogIndex(50) }));
        assert_eq!(w.downs.last(), Some(&LinkError::Compacted));
    }
    w.connect();
    nodes.push(w.link.unwrap().1);
    nodes.sort();
    assert_eq!(nodes, [NodeId(1), NodeId(2), NodeId(3)]);
    w.answer(&Reply::Refused(Refusal::Compacted { oldest: LogIndex(50) }));
    assert_eq!(w.take(), []);
    let (_, request) = w.asked.back().unwrap();
    assert_eq!(asks(request), (true, Some(cursor(10))), "a state that is not older than what is known");
    let watch = w.accept(60);
    w.tell(watch, "present", 60, &[held(60)]);
    assert_eq!(
        w.take(),
        [
            WatchItem::Listing(Listing::Compacted),
            WatchItem::Row(held(60)),
            WatchItem::Listed { cursor: cursor(60) }
        ]
    );
}

#[test]
fn one_node_that_still_knows_is_enough() {
    let mut w = World::new(WatchFrom::Cursor(cursor(10)));
    w.connect();
    w.answer(&Reply::Refused(Refusal::Compacted { oldest: LogIndex(50) }));
    let (watch, _) = w.stand(10);
    w.tell(watch, "", 11, &[granted(11)]);
    assert_eq!(w.take(), [change(granted(11), 11)], "and there is no gap to speak of");
}

#[test]
fn who_is_too_slow_is_told_so_and_begins_anew() {
    let mut w = World::new(WatchFrom::Now);
    let (watch, _) = w.stand(10);
    let coalesced = |event, upto| WatchItem::Change { event, coalesced: true, cursor: Some(cursor(upto)) };
    w.tell(watch, "coalesced", 40, &[granted(35), granted(39)]);
    assert_eq!(w.take(), [coalesced(granted(35), 10), coalesced(granted(39), 39)], "all of it or nothing");
    w.bytes(|out| Push::WatchEnded { watch, why: WatchEnd::Resync, oldest: LogIndex(90) }.encode(out));
    let next = w.accept(100);
    assert_ne!(watch, next);
    w.tell(watch, "", 91, &[granted(91)]);
    w.tell(next, "present", 100, &[]);
    assert_eq!(
        w.take(),
        [WatchItem::Listing(Listing::Lagged), WatchItem::Listed { cursor: cursor(100) }],
        "what still comes of the watch that ended is passed over"
    );
}

#[test]
fn another_cluster_is_an_error_and_never_silence() {
    let mut w = World::new(WatchFrom::Cursor(cursor(10)));
    w.connect();
    w.answer(&Reply::Refused(Refusal::ClusterReset));
    assert_eq!(w.failed, Some(WatchError::ClusterReset));
    assert_eq!(w.watch.next_deadline(), Time::FAR);

    // Restored under a new id: every node says that it is another cluster.
    let mut w = World::new(WatchFrom::Now);
    w.stand(10);
    w.drop_link();
    for _ in 0..3 {
        while w.dialed.is_empty() {
            w.tick();
        }
        let (link, _) = w.dialed.pop_front().unwrap();
        w.link = Some((link, NodeId(1)));
        w.input(Input::Connected { link });
        let text = "this is another cluster".to_string();
        w.bytes(|out| HelloRefused { reason: RefusedReason::Cluster, text }.encode(out));
    }
    assert_eq!(w.failed, Some(WatchError::ClusterReset));
}

#[test]
fn a_node_that_is_silent_is_left_whether_it_waits_or_hangs() {
    let mut w = World::new(WatchFrom::Now);
    let (watch, _) = w.stand(10);
    w.progress(watch, 11);
    let silence = w.tick();
    assert_eq!((w.downs.last(), silence), (Some(&LinkError::Silent), Duration::from_secs(12)));
    w.dialed.clear();
    w.watch.handle(w.now, Input::Tick);
    w.act();
    w.connect();
    let silence = w.tick();
    assert_eq!((w.downs.last(), silence), (Some(&LinkError::Silent), Duration::from_secs(2)), "unanswered");
}

#[test]
fn what_a_node_refuses_at_present_is_asked_elsewhere_and_what_is_final_ends_the_watch() {
    let mut w = World::new(WatchFrom::Now);
    w.connect();
    let first = w.link.unwrap().1;
    let what = "watches of this node".to_string();
    w.answer(&Reply::Refused(Refusal::QuotaExceeded { what, limit: 5 }));
    w.connect();
    assert_ne!(w.link.unwrap().1, first);
    w.answer(&Reply::Refused(Refusal::NotLeader { leader: None }));
    w.connect();
    let refusal = Refusal::BadRequest { reason: "no".to_string() };
    w.answer(&Reply::Refused(refusal.clone()));
    assert_eq!(w.failed, Some(WatchError::Refused(refusal)));
}

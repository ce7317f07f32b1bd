//! A watcher: the real watch of the client core behind simulated connections, and an application that
//! keeps its cursor when it dies.

use core::time::Duration;
use std::collections::BTreeMap;

use palisade_client_core::{
    CoreConfig, Input, LinkError, LinkId, Watch, WatchAction, WatchError, WatchFrom, WatchItem,
};
use palisade_types::{ConnId, Cursor, LogIndex, Rng, Selector, Time};

use crate::check::watches::Stream;
use crate::check::{Checked, Violation};
use crate::clock::{Clock, RATE_PPM_MAX};
use crate::links::{address, node_at};
use crate::node::SHARD;
use crate::options::Options;
use crate::world::{ClientInput, Event, NodeInput, Phase, World};

/// The mean time between two deaths of a watcher.
const LIFE: Duration = Duration::from_secs(8);

/// A watcher: what it wants, and the process if one runs. Seen from the network it is one more client.
pub struct Watcher {
    watch: Option<Watch>,
    life: u64,
    clock: Clock,
    wake: Time,
    links: BTreeMap<LinkId, ConnId>,
    selector: Selector,
    /// What it has been told since it began.
    pub stream: Stream,
    /// Streams that it began before.
    pub before: Vec<Stream>,
    cursor: Option<Cursor>,
    rng: Rng,
}

fn draw_selector(rng: &mut Rng) -> Selector {
    let named = |selector: Result<Selector, _>| selector.expect("a name");
    match rng.below(6) {
        0 => Selector::Sessions,
        1 => named(Selector::key("hot-0")),
        2 => named(Selector::prefix("hot-")),
        3 => named(Selector::prefix("cold-1")),
        _ => Selector::Keys,
    }
}

/// Some watch elections and ephemeral keys alone. Drawn apart from all else, so that a seed keeps its course
/// otherwise.
fn draw_other_selector(rng: &mut Rng) -> Option<Selector> {
    let named = |selector: Result<Selector, _>| Some(selector.expect("a name"));
    match rng.below(12) {
        0 | 1 => named(Selector::key(&format!("election-{}", rng.below(3)))),
        2 => named(Selector::prefix("election-")),
        3 => named(Selector::prefix("value-")),
        4 => named(Selector::key("value-0")),
        _ => None,
    }
}

impl Watcher {
    /// `others` is drawn from for what was added to the first kinds of watchers.
    pub(crate) fn new(options: &Options, rng: &mut Rng, others: &mut Rng) -> Watcher {
        let mut rng = rng.fork();
        let selector = draw_selector(&mut rng);
        let selector = draw_other_selector(others).unwrap_or(selector);
        Watcher {
            watch: None,
            life: 0,
            clock: Clock::draw(&mut rng, options.clocks_ppm.min(RATE_PPM_MAX)),
            wake: Time::FAR,
            links: BTreeMap::new(),
            stream: Stream::new(selector.clone(), None),
            before: Vec::new(),
            selector,
            cursor: None,
            rng,
        }
    }
}

impl World {
    /// The place of a watcher among the clients' ends of the network, and the reverse.
    fn watcher_end(&self, watcher: usize) -> usize {
        self.clients.len() + watcher
    }

    pub(crate) fn as_watcher(&self, client: usize) -> Option<usize> {
        client.checked_sub(self.clients.len()).filter(|watcher| *watcher < self.watchers.len())
    }

    /// Starts a watcher's process: behind the cursor it has kept, or anew.
    pub(crate) fn start_watcher(&mut self, watcher: usize) -> Checked {
        let now = self.now;
        let end = self.watcher_end(watcher);
        let endpoints = (0..self.nodes.len()).map(address).collect();
        let w = &mut self.watchers[watcher];
        if w.watch.is_some() {
            return Ok(());
        }
        w.life += 1;
        w.wake = Time::FAR;
        let from = match w.cursor.clone().filter(|_| w.rng.per_mille(850)) {
            Some(cursor) => {
                let revision = cursor.revision(SHARD).unwrap_or(LogIndex(0));
                w.stream.restart(&self.watched, revision);
                WatchFrom::Cursor(cursor)
            }
            None => {
                let present = w.rng.per_mille(700);
                let stream = Stream::new(w.selector.clone(), None);
                w.before.push(std::mem::replace(&mut w.stream, stream));
                w.cursor = None;
                if present { WatchFrom::Present } else { WatchFrom::Now }
            }
        };
        let seed = w.rng.next_u64();
        let config = CoreConfig::new(endpoints);
        let watch = Watch::new(config, w.selector.clone(), from.clone(), seed, w.clock.local(now));
        w.watch = Some(watch.map_err(|e| Violation::new("config", e.to_string()))?);
        let life = w.life;
        self.trace.event(now, 20, &[end as u64, life]);
        self.trace.line(|| format!("w{watcher} starts: {from:?}"));
        let dies = Duration::from_nanos(self.watchers[watcher].rng.between(1, 2 * LIFE.as_nanos() as u64));
        self.queue.push(now + dies, Event::Step { client: end, life });
        self.after_watcher(watcher)
    }

    /// The process dies; in the calm it lives on.
    pub(crate) fn watcher_step(&mut self, watcher: usize, life: u64) -> Checked {
        if self.phase != Phase::Storm || self.watchers[watcher].life != life {
            return Ok(());
        }
        let end = self.watcher_end(watcher);
        let w = &mut self.watchers[watcher];
        w.watch = None;
        w.life += 1;
        let conns: Vec<ConnId> = std::mem::take(&mut w.links).into_values().collect();
        let down = Duration::from_millis(w.rng.between(10, 6_000));
        let silent = w.rng.per_mille(300);
        self.trace.line(|| format!("w{watcher} dies"));
        self.queue.push(self.now + down, Event::StartClient { client: end });
        conns.into_iter().for_each(|conn| self.hang_up(conn, silent));
        Ok(())
    }

    pub(crate) fn watcher_wake(&mut self, watcher: usize, life: u64) -> Checked {
        let now = self.now;
        let w = &mut self.watchers[watcher];
        if w.life != life || w.wake > now {
            return Ok(());
        }
        w.wake = Time::FAR;
        if let Some(watch) = &mut w.watch {
            watch.handle(w.clock.local(now), Input::Tick);
        }
        self.after_watcher(watcher)
    }

    pub(crate) fn watcher_input(&mut self, watcher: usize, life: u64, input: ClientInput) -> Checked {
        let now = self.now;
        let w = &mut self.watchers[watcher];
        let (ClientInput::Connected { conn }
        | ClientInput::Refused { conn }
        | ClientInput::Closed { conn }
        | ClientInput::Bytes { conn, .. }) = &input;
        let connection = self.links.get_mut(*conn);
        if w.life != life || connection.client_closed {
            return Ok(());
        }
        let (link, local) = (connection.link, w.clock.local(now));
        let Some(watch) = &mut w.watch else { return Ok(()) };
        match input {
            ClientInput::Connected { .. } => watch.handle(local, Input::Connected { link }),
            ClientInput::Bytes { bytes, .. } => watch.handle(local, Input::Received { link, bytes: &bytes }),
            ClientInput::Refused { .. } | ClientInput::Closed { .. } => {
                connection.client_closed = true;
                watch.handle(local, Input::Disconnected { link });
            }
        }
        self.after_watcher(watcher)
    }

    fn after_watcher(&mut self, watcher: usize) -> Checked {
        while let Some(action) = self.watchers[watcher].watch.as_mut().and_then(Watch::poll_action) {
            match action {
                WatchAction::Dial { link, endpoint } => self.watcher_dials(watcher, link, &endpoint)?,
                WatchAction::Hangup { link } => {
                    if let Some(conn) = self.watchers[watcher].links.remove(&link) {
                        self.hang_up(conn, false);
                    }
                }
                WatchAction::Send { link, bytes } => {
                    if let Some(&conn) = self.watchers[watcher].links.get(&link) {
                        self.trace.bytes(&bytes);
                        self.send_to_node(conn, NodeInput::Bytes { conn, bytes });
                    }
                }
                WatchAction::Item(item) => {
                    self.trace.line(|| format!("w{watcher} is told {item:?}"));
                    self.watchers[watcher].stream.on_item(&self.watched, &item)?;
                    let w = &mut self.watchers[watcher];
                    let listing = matches!(item, WatchItem::Listing(_));
                    w.cursor = match item {
                        WatchItem::Change { cursor: Some(cursor), .. }
                        | WatchItem::Listed { cursor }
                        | WatchItem::Progress { cursor } => Some(cursor),
                        // What was known is given up for the present state.
                        _ if listing => None,
                        _ => w.cursor.take(),
                    };
                    w.cursor = w.stream.keeps(w.cursor.take());
                }
                WatchAction::Failed(WatchError::ClusterReset) => {
                    return Err(Violation::new("W6", "a watcher is told of another cluster"));
                }
                WatchAction::Failed(WatchError::Refused(refusal)) => {
                    return Err(Violation::new("W6", format!("a watch is refused: {refusal}")));
                }
                WatchAction::LinkDown { error: LinkError::Protocol(text), .. } => {
                    return Err(Violation::new("W6", format!("to a watcher a node says nonsense: {text}")));
                }
                WatchAction::LinkDown { .. } => {}
            }
        }
        let (now, end) = (self.now, self.watcher_end(watcher));
        let w = &mut self.watchers[watcher];
        let Some(watch) = &w.watch else { return Ok(()) };
        let next = watch.next_deadline();
        let at = w.clock.truth(next).max(now + Duration::from_micros(50));
        if next < Time::FAR && at < w.wake {
            w.wake = at;
            self.queue.push(at, Event::Wake { client: end, life: w.life });
        }
        Ok(())
    }

    fn watcher_dials(&mut self, watcher: usize, link: LinkId, endpoint: &str) -> Checked {
        let node = node_at(endpoint).filter(|n| *n < self.nodes.len());
        let Some(node) = node else {
            return Err(Violation::new("codec", format!("a watcher dials {endpoint}")));
        };
        let (life, end) = (self.watchers[watcher].life, self.watcher_end(watcher));
        let conn = self.links.dial(end, life, link, node);
        self.watchers[watcher].links.insert(link, conn);
        self.send_to_node(conn, NodeInput::Connect { conn });
        Ok(())
    }

    /// Now and then a watcher's connection takes no more for a while.
    pub(crate) fn congest(&mut self, node: usize, conn: ConnId) {
        let client = self.links.get(conn).client;
        let Some(watcher) = self.as_watcher(client).filter(|_| self.phase == Phase::Storm) else { return };
        let rng = &mut self.watchers[watcher].rng;
        if !rng.per_mille(20) {
            return;
        }
        let length = Duration::from_millis(rng.between(10, 8_000));
        let input = |on| NodeInput::Congested { conn, on };
        self.queue.push(self.now, Event::Node { node, life: 0, input: input(true) });
        self.queue.push(self.now + length, Event::Node { node, life: 0, input: input(false) });
    }

    /// The run is over: everybody was told everything.
    pub(crate) fn finish_watchers(&self) -> Checked {
        self.watchers.iter().try_for_each(|w| w.stream.finish(&self.watched))
    }

    /// Changes told, changes that stood for others, how often streams began anew, and what observers of
    /// elections have told.
    pub(crate) fn watch_counts(&self) -> (u64, u64, u64, u64) {
        let streams = self.watchers.iter().flat_map(|w| w.before.iter().chain([&w.stream]));
        streams.fold((0, 0, 0, 0), |(told, coalesced, anew, observed), s| {
            (told + s.told, coalesced + s.coalesced, anew + s.anew, observed + s.observed())
        })
    }
}

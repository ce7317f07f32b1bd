//! A watch: one stream of one cluster, over one connection at a time, to any node. It goes on behind
//! what it knows when the connection changes, so that nothing is missed and nothing is told twice;
//! and where that cannot be, it says so in the stream.
//!
//! It has a connection of its own, so that an application that does not read its watch holds up
//! nothing but its watch: the shell then simply stops reading, and the server makes do.

use ::core::time::Duration;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use palisade_types::{
    ClusterIdentity, Cursor, Event, Events, LogIndex, NodeId, Refusal, Reply, RequestId, Rng, Selector,
    ShardId, Time,
};
use palisade_wire::{Frame, Frames, Push, RefusedReason, Request, WatchEnd};

use crate::api::{Input, LinkError, LinkId};
use crate::config::{CoreConfig, NoEndpoints};
use crate::greeting::Incoming;
use crate::net::{Net, Stage};

/// A node that says nothing of a watch for so long is left: it marks progress every 5 s.
const SILENCE: Duration = Duration::from_secs(12);

/// Where a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// With what happens from now on.
    Now,
    /// With the present state.
    Present,
    /// Behind what is known already.
    Cursor(Cursor),
}

/// Why the present state is told, now or again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// It was asked for.
    Asked,
    /// No node keeps what happened since the last event: changes may have been missed.
    Compacted,
    /// This watch was read so slowly that changes were missed.
    Lagged,
    /// The connection broke before the present state was whole.
    Interrupted,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// The present state follows, anew: whatever was known is to be forgotten.
    Listing(Listing),
    /// A row of the present state.
    Row(Event),
    /// The present state is whole. While it was being told, changes of what had been told already
    /// may have come among the rows.
    Listed {
        /// Where to go on.
        cursor: Cursor,
    },
    /// A change.
    Change {
        /// Of what.
        event: Event,
        /// Earlier changes were left out, because this watch is read so slowly. They would say nothing that
        /// those that are told do not: see [`palisade_types::Happened::grant`].
        coalesced: bool,
        /// Where to go on, once this is dealt with; while the present state is being told, nowhere yet.
        cursor: Option<Cursor>,
    },
    /// The watch stands, and nothing else has happened.
    Progress {
        /// Up to here.
        cursor: Cursor,
    },
}

/// Why a watch is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The cursor belongs to another cluster, or to this one before it was restored from a backup:
    /// what was known may not hold there. Watch anew from the present state.
    #[error("the cluster is another one, or was restored: watch anew from the present state")]
    ClusterReset,
    /// The cluster refuses for good.
    #[error(transparent)]
    Refused(Refusal),
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchAction {
    /// As [`crate::Action::Dial`].
    Dial {
        /// Its number.
        link: LinkId,
        /// `host:port`.
        endpoint: String,
    },
    /// As [`crate::Action::Hangup`].
    Hangup {
        /// Which.
        link: LinkId,
    },
    /// As [`crate::Action::Send`].
    Send {
        /// On which connection.
        link: LinkId,
        /// Whole frames.
        bytes: Vec<u8>,
    },
    /// Tell the application.
    Item(WatchItem),
    /// The watch is over.
    Failed(WatchError),
    /// For logs: a connection was given up.
    LinkDown {
        /// Where it led.
        endpoint: String,
        /// Why.
        error: LinkError,
    },
}

/// What is known of the present connection's watch.
#[derive(Debug)]
enum Phase {
    /// Nothing is asked yet.
    Idle,
    /// Asked, and not answered.
    Asked { id: RequestId, since: Time },
    /// It tells.
    Told { since: Time },
}

/// A watch without I/O, driven like [`crate::Core`].
#[derive(Debug)]
pub struct Watch {
    config: CoreConfig,
    rng: Rng,
    net: Net,
    selector: Selector,
    phase: Phase,
    /// The number of the watch on the present connection.
    number: u64,
    /// All is known up to here.
    known: Option<(ClusterIdentity, ShardId, LogIndex)>,
    /// The present state is to be told first, and why.
    list: Option<Listing>,
    /// It is being told.
    listing: bool,
    /// Of this revision so many events have been told, but not all.
    part: (LogIndex, u32),
    /// So many of them are still to be passed over, because they are told again.
    skip: u32,
    /// Nodes that no longer keep what is needed.
    compacted: BTreeSet<NodeId>,
    /// Servers of other clusters.
    strangers: BTreeSet<String>,
    is_over: bool,
    actions: VecDeque<WatchAction>,
}

impl Watch {
    /// A watch that has not begun. The seed is for jitter, and for which node is asked first.
    ///
    /// # Errors
    /// [`NoEndpoints`] when the configuration names no server.
    pub fn new(
        config: CoreConfig,
        selector: Selector,
        from: WatchFrom,
        seed: u64,
        now: Time,
    ) -> Result<Watch, NoEndpoints> {
        if config.endpoints.is_empty() {
            return Err(NoEndpoints);
        }
        let mut rng = Rng::new(seed);
        let net = Net::new(&config, &mut rng, now);
        let list = (from == WatchFrom::Present).then_some(Listing::Asked);
        let known = match from {
            WatchFrom::Cursor(cursor) => {
                let first = cursor.revisions.first().copied();
                first.map(|(shard, revision)| (cursor.cluster, shard, revision))
            }
            WatchFrom::Now | WatchFrom::Present => None,
        };
        let mut watch = Watch {
            config,
            rng,
            net,
            selector,
            phase: Phase::Idle,
            number: 0,
            known,
            list,
            listing: false,
            part: (LogIndex(0), 0),
            skip: 0,
            compacted: BTreeSet::new(),
            strangers: BTreeSet::new(),
            is_over: false,
            actions: VecDeque::new(),
        };
        watch.settle(now);
        Ok(watch)
    }

    /// Where to go on, as far as is known.
    pub fn cursor(&self) -> Option<Cursor> {
        self.known.map(|(cluster, shard, revision)| Cursor::new(cluster, shard, revision))
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        if self.is_over {
            return;
        }
        match input {
            Input::Tick => {}
            Input::Connected { link } => self.net.connected(now, link),
            Input::Disconnected { link } => {
                if self.net.is_current(link) {
                    self.leave(now, LinkError::Closed);
                }
            }
            Input::Received { link, bytes } => self.received(now, link, bytes),
        }
        self.check_link(now);
        self.settle(now);
    }

    /// The next thing to do, until there is none.
    pub fn poll_action(&mut self) -> Option<WatchAction> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let link = self.net.link.as_mut()?;
        if link.out.is_empty() {
            return None;
        }
        Some(WatchAction::Send { link: link.id, bytes: ::core::mem::take(&mut link.out) })
    }

    /// When to hand over [`Input::Tick`].
    pub fn next_deadline(&self) -> Time {
        if self.is_over {
            return Time::FAR;
        }
        match &self.net.link {
            None => self.net.rest_until,
            Some(_) => self.patience(),
        }
    }

    /// When the present connection is given up.
    fn patience(&self) -> Time {
        let Some(link) = &self.net.link else { return Time::FAR };
        match (&link.stage, &self.phase) {
            (Stage::Dialing | Stage::Greeting, _) => link.deadline(&self.config),
            (Stage::Up(_), Phase::Asked { since, .. }) => *since + self.config.silence_timeout,
            (Stage::Up(_), Phase::Told { since }) => *since + SILENCE,
            (Stage::Up(_), Phase::Idle) => Time::FAR,
        }
    }

    fn check_link(&mut self, now: Time) {
        if self.net.link.is_some() && now >= self.patience() {
            let error =
                if matches!(self.phase, Phase::Idle) { LinkError::Timeout } else { LinkError::Silent };
            self.leave(now, error);
        }
    }

    fn settle(&mut self, now: Time) {
        if !self.is_over && self.net.link.is_none() && now >= self.net.rest_until {
            let (link, endpoint) = self.net.dial(now);
            self.actions.push_back(WatchAction::Dial { link, endpoint });
        }
    }

    /// Gives the connection up; another node is tried, after a pause.
    fn leave(&mut self, now: Time, error: LinkError) {
        let Some(link) = self.net.link.take() else { return };
        if error != LinkError::Closed {
            self.actions.push_back(WatchAction::Hangup { link: link.id });
        }
        self.actions.push_back(WatchAction::LinkDown { endpoint: link.endpoint.clone(), error });
        self.phase = Phase::Idle;
        if self.listing {
            self.listing = false;
            self.list = Some(Listing::Interrupted);
        }
        self.net.failed(now, link.endpoint, &self.config, &mut self.rng);
    }

    fn fail(&mut self, error: WatchError) {
        if let Some(link) = self.net.link.take() {
            self.actions.push_back(WatchAction::Hangup { link: link.id });
        }
        self.is_over = true;
        self.actions.push_back(WatchAction::Failed(error));
    }

    fn received(&mut self, now: Time, id: LinkId, bytes: &[u8]) {
        let Some(link) = self.net.link.as_mut().filter(|l| l.id == id) else { return };
        let mut held = ::core::mem::take(&mut link.rest);
        held.extend_from_slice(bytes);
        let mut frames = Frames::new(&held);
        loop {
            let result = match frames.next_frame() {
                Ok(Some(frame)) => self.frame(now, &frame),
                Ok(None) => break,
                Err(error) => Err(LinkError::Protocol(error.to_string())),
            };
            if let Err(error) = result {
                self.leave(now, error);
            }
            if self.is_over || !self.net.is_current(id) {
                return;
            }
        }
        let consumed = frames.consumed();
        held.drain(..consumed);
        if let Some(link) = self.net.link.as_mut() {
            link.rest = held;
        }
    }

    fn frame(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), LinkError> {
        let done = match Incoming::of(frame) {
            Ok(Incoming::Hello(hello)) => self.net.greeted(&hello).map(|()| self.ask(now)),
            Ok(Incoming::Reply(id, reply, _)) => self.reply(now, id, reply),
            Ok(Incoming::Push(push, _)) => self.push(now, push),
            Err(error) => Err(error),
        };
        if let Err(LinkError::OtherCluster | LinkError::Refused { reason: RefusedReason::Cluster, .. }) = done
        {
            self.stranger();
        }
        done
    }

    /// The server belongs to another cluster. When all do, ours is gone.
    fn stranger(&mut self) {
        let Some(link) = &self.net.link else { return };
        self.strangers.insert(link.endpoint.clone());
        if self.strangers.len() >= self.net.known_len() && self.config.cluster.is_none() {
            self.fail(WatchError::ClusterReset);
        }
    }

    /// Asks for the watch, on a connection that has greeted.
    fn ask(&mut self, now: Time) {
        self.number += 1;
        let request = Request::Watch {
            watch: self.number,
            selector: self.selector.clone(),
            present: self.list.is_some(),
            cursor: self.cursor(),
        };
        let id = self.net.next_request();
        if let Some(link) = self.net.link.as_mut() {
            request.encode(id, &mut link.out);
        }
        self.phase = Phase::Asked { id, since: now };
    }

    fn reply(&mut self, now: Time, id: RequestId, reply: Reply) -> Result<(), LinkError> {
        let other = || Err(LinkError::Protocol("an answer to nothing that was asked".to_string()));
        match self.phase {
            Phase::Asked { id: asked, .. } if asked == id => {}
            _ => return other(),
        }
        match reply {
            Reply::Watching { watch, cluster, shard, revision } if watch == self.number => {
                self.watching(now, cluster, shard, revision)
            }
            Reply::Refused(refusal) => self.refused(now, refusal),
            _ => other(),
        }
    }

    fn watching(
        &mut self,
        now: Time,
        cluster: ClusterIdentity,
        shard: ShardId,
        revision: LogIndex,
    ) -> Result<(), LinkError> {
        if self.known.is_some_and(|(known, ..)| known != cluster) {
            self.fail(WatchError::ClusterReset);
            return Ok(());
        }
        self.phase = Phase::Told { since: now };
        self.net.succeeded();
        self.compacted.clear();
        self.strangers.clear();
        if self.known.is_none() {
            self.known = Some((cluster, shard, revision));
        }
        self.skip = if self.list.is_none() { self.part.1 } else { 0 };
        if let Some(why) = self.list.take() {
            self.listing = true;
            self.part = (LogIndex(0), 0);
            self.item(WatchItem::Listing(why));
        } else if let Some(cursor) = self.cursor() {
            self.item(WatchItem::Progress { cursor });
        }
        Ok(())
    }

    fn refused(&mut self, now: Time, refusal: Refusal) -> Result<(), LinkError> {
        let node = self.net.link.as_ref().and_then(|l| l.up()).map(|up| up.node);
        match refusal {
            Refusal::ClusterReset => self.fail(WatchError::ClusterReset),
            Refusal::Compacted { .. } => {
                let seen = node.is_some_and(|node| !self.compacted.insert(node));
                if !seen && self.compacted.len() < self.net.members_len() {
                    return Err(LinkError::Compacted);
                }
                // Nobody keeps it: the present state must do.
                self.compacted.clear();
                self.list = Some(Listing::Compacted);
                self.ask(now);
            }
            refusal if refusal.is_final() => self.fail(WatchError::Refused(refusal)),
            Refusal::NotLeader { leader } => return Err(LinkError::NotLeader { leader }),
            refusal => return Err(LinkError::Refusing(refusal)),
        }
        Ok(())
    }

    fn push(&mut self, now: Time, push: Push) -> Result<(), LinkError> {
        match push {
            Push::Events { watch, present, coalesced, continued, upto, events } if self.is_mine(watch) => {
                self.phase = Phase::Told { since: now };
                if self.listing != present {
                    return Err(LinkError::Protocol("rows of the present state out of place".to_string()));
                }
                match present {
                    true => self.rows(continued, upto, &events),
                    false => self.changes(coalesced, continued, upto, &events),
                }
            }
            Push::Progress { watch, upto } if self.is_mine(watch) => {
                self.phase = Phase::Told { since: now };
                if !self.listing {
                    self.move_to(upto)?;
                    if let Some(cursor) = self.cursor() {
                        self.item(WatchItem::Progress { cursor });
                    }
                }
                Ok(())
            }
            Push::WatchEnded { watch, why: WatchEnd::Resync, .. } if self.is_mine(watch) => {
                self.listing = false;
                self.list = Some(Listing::Lagged);
                self.ask(now);
                Ok(())
            }
            // Of a watch that has ended, or of no concern here.
            _ => Ok(()),
        }
    }

    fn is_mine(&self, watch: u64) -> bool {
        watch == self.number && matches!(self.phase, Phase::Told { .. })
    }

    fn item(&mut self, item: WatchItem) {
        self.actions.push_back(WatchAction::Item(item));
    }

    /// All is known up to a revision.
    fn move_to(&mut self, upto: LogIndex) -> Result<(), LinkError> {
        let Some((_, _, revision)) = &mut self.known else { return Ok(()) };
        if upto < *revision {
            return Err(LinkError::Protocol("a watch went back in time".to_string()));
        }
        if upto >= self.part.0 {
            self.part = (LogIndex(0), 0);
        }
        *revision = upto;
        Ok(())
    }

    fn rows(&mut self, continued: bool, upto: LogIndex, events: &Events) -> Result<(), LinkError> {
        for event in decoded(events)? {
            self.item(match event.what.is_present() {
                true => WatchItem::Row(event),
                false => WatchItem::Change { event, coalesced: false, cursor: None },
            });
        }
        if !continued {
            self.move_to(upto)?;
            self.listing = false;
            if let Some(cursor) = self.cursor() {
                self.item(WatchItem::Listed { cursor });
            }
        }
        Ok(())
    }

    fn changes(
        &mut self,
        coalesced: bool,
        continued: bool,
        upto: LogIndex,
        events: &Events,
    ) -> Result<(), LinkError> {
        let events = decoded(events)?;
        let Some((cluster, shard, known)) = self.known else { return Ok(()) };
        let last = events.last().map(|event| event.revision);
        let mut rest = events.into_iter().peekable();
        while let Some(event) = rest.next() {
            let revision = event.revision;
            if revision <= known {
                return Err(LinkError::Protocol("a change that was known already".to_string()));
            }
            if revision == self.part.0 && self.skip > 0 && !coalesced {
                // It was told before the connection broke in the midst of a revision.
                self.skip -= 1;
                continue;
            }
            let more =
                rest.peek().map_or(continued && last == Some(revision), |next| next.revision == revision);
            let told = if self.part.0 == revision { self.part.1 } else { 0 };
            self.part = (revision, told + 1);
            let upto = match (coalesced && rest.peek().is_some(), more) {
                // What was left out before this change may have its newest behind it.
                (true, _) => known,
                (false, true) => revision.prev(),
                (false, false) => revision,
            };
            let cursor = Some(Cursor::new(cluster, shard, upto));
            self.item(WatchItem::Change { event, coalesced, cursor });
        }
        if !continued {
            self.skip = 0;
        }
        self.move_to(upto)
    }
}

fn decoded(events: &Events) -> Result<Vec<Event>, LinkError> {
    events.decode().map_err(|error| LinkError::Protocol(error.to_string()))
}

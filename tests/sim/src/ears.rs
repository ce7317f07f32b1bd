//! Nodes that stand still, whole or in part. The sockets of a node apart from its shard: they may lie unread while the shard goes on, as when
//! another core owns them and is held up. Then the shard's mark waits for them, and no session may
//! end whose renewal lay there when its deadline passed.

use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::BytesMut;
use palisade_machine::Command;
use palisade_shard::{CoreId, DrainId, Input, Shard};
use palisade_types::{Block, Cause, SessionId, Time};
use palisade_wire::{Kind, Request, take_frame};

use crate::check::{Checked, demand};
use crate::clock::Clock;
use crate::node::Node;
use crate::world::{Event, NodeInput, World};

/// What one turn saw in the unread sockets: who is renewed there, and since when, by the node's clock.
type Unread = Rc<Vec<(SessionId, Time)>>;

/// The sockets of one process.
#[derive(Default)]
pub(crate) struct Ears {
    /// What clients send lies unread, …
    deaf: bool,
    /// … here, with the time of its arrival by the node's clock.
    unread: Vec<(Time, NodeInput)>,
    /// The shard waits for this mark.
    drain: Option<DrainId>,
    /// Expiries the shard has decided.
    expiries: u64,
    /// Those of them that are not in its log yet, in order: when they were decided, and beside what.
    decided: VecDeque<(Time, Unread)>,
}

impl Ears {
    /// Whether this lies in a socket that nobody reads; then it is kept.
    pub(crate) fn keep(&mut self, clock: Clock, now: Time, input: NodeInput) -> Option<NodeInput> {
        let of_client =
            matches!(input, NodeInput::Connect { .. } | NodeInput::Bytes { .. } | NodeInput::Closed { .. });
        if self.deaf && of_client {
            self.unread.push((clock.local(now), input));
            return None;
        }
        Some(input)
    }

    /// Whether nobody reads them.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// The shard asks for a mark.
    pub(crate) fn ask(&mut self, drain: DrainId) {
        self.drain = Some(drain);
    }

    /// All that was readable has been handed in: the mark, if one is asked for.
    pub(crate) fn mark(&mut self) -> Option<Input> {
        let drain = self.drain.take_if(|_| !self.deaf)?;
        Some(Input::Drained { core: CoreId(0), drain })
    }

    fn renewals(&self) -> Unread {
        let mut found = Vec::new();
        for (arrived, input) in &self.unread {
            let NodeInput::Bytes { bytes, .. } = input else { continue };
            let mut bytes = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = take_frame(&mut bytes) {
                let frame = frame.as_frame();
                if frame.kind == Kind::Renew
                    && let Ok(Request::Renew { sessions }) = Request::decode(&frame)
                {
                    found.extend(sessions.into_iter().map(|session| (session, *arrived)));
                }
            }
        }
        Rc::new(found)
    }

    /// After a turn: what was decided in it was decided beside what lies unread.
    pub(crate) fn note_decisions(&mut self, local: Time, shard: &Shard) {
        let new = shard.counters().expiries - self.expiries;
        self.expiries += new;
        if new > 0 {
            let unread = self.renewals();
            self.decided.extend((0..new).map(|_| (local, Rc::clone(&unread))));
        }
        if !shard.is_serving() {
            self.decided.clear();
        }
    }

    /// Blocks that a leader has put into its log.
    ///
    /// # Errors
    /// S11 when an expiry among them came although a renewal had arrived in time.
    pub(crate) fn on_proposed(&mut self, blocks: &[Block], shard: &Shard, slack: Duration) -> Checked {
        let commands = blocks.iter().flat_map(Block::commands).filter_map(|c| Command::decode(c).ok());
        for command in commands {
            let Command::EndSession { session, cause: Cause::Expired { silent_ms }, .. } = command else {
                continue;
            };
            let Some((decided, unread)) = self.decided.pop_front() else { continue };
            let Some(view) = shard.machine().session(session) else { continue };
            let ttl = u64::from(view.ttl_ms);
            let span = Duration::from_millis(ttl + ttl.div_ceil(100)) + slack / 2;
            let overdue = Duration::from_millis(silent_ms + 1).saturating_sub(span);
            let deadline = decided - overdue;
            let in_time = unread.iter().find(|(of, arrived)| *of == session && *arrived < deadline);
            demand(in_time.is_none(), "S11", || {
                format!("{session} expires with its deadline {deadline}, a renewal lay unread: {in_time:?}")
            })?;
        }
        Ok(())
    }
}

impl World {
    /// A node's shard goes on, but what clients send to it lies unread.
    pub fn deafen_node(&mut self, node: usize, length: Option<Duration>) {
        let n: &mut Node = &mut self.nodes[node];
        if n.shard.is_none() || n.ears.deaf {
            return;
        }
        n.ears.deaf = true;
        let life = n.life;
        self.trace.line(|| format!("n{} reads no clients", node + 1));
        if let Some(length) = length {
            self.queue.push(self.now + length, Event::Hear { node, life });
        }
    }

    /// It reads all that lies there.
    pub(crate) fn hear_node(&mut self, node: usize, life: u64) -> Checked {
        let n = &mut self.nodes[node];
        if n.life != life || !n.ears.deaf {
            return Ok(());
        }
        n.ears.deaf = false;
        let unread = std::mem::take(&mut n.ears.unread);
        n.inbox.extend(unread.into_iter().map(|(_, input)| input));
        self.trace.line(|| format!("n{} reads its clients again", node + 1));
        self.go_on(node)
    }

    /// The process stands still; its clock and its disk go on.
    pub fn pause_node(&mut self, node: usize, length: Option<Duration>) {
        let n = &mut self.nodes[node];
        if n.shard.is_none() || n.paused {
            return;
        }
        n.paused = true;
        let life = n.life;
        self.trace.line(|| format!("n{} is paused", node + 1));
        if let Some(length) = length {
            self.queue.push(self.now + length, Event::Resume { node, life });
        }
    }

    /// A turn, unless the process stands still.
    pub(crate) fn go_on(&mut self, node: usize) -> Checked {
        if self.nodes[node].paused { Ok(()) } else { self.run_turn(node) }
    }

    /// It goes on, with everything that has arrived meanwhile.
    pub(crate) fn resume_node(&mut self, node: usize, life: u64) -> Checked {
        let n = &mut self.nodes[node];
        if n.life != life || !n.paused {
            return Ok(());
        }
        n.paused = false;
        self.trace.line(|| format!("n{} goes on", node + 1));
        self.run_turn(node)
    }

    /// The node a client of a test is connected to reads its clients again.
    ///
    /// # Errors
    /// A rule found broken.
    pub fn node_hears(&mut self, node: usize) -> Checked {
        let life = self.nodes[node].life;
        self.hear_node(node, life)
    }

    /// Whether a session lives, by what a node has applied.
    pub fn lives(&self, node: usize, session: SessionId) -> bool {
        self.nodes[node].shard.as_ref().is_some_and(|s| s.machine().session(session).is_some())
    }

    /// Whether a renewal of a session lies unread at a node.
    pub fn lies_unread(&self, node: usize, session: SessionId) -> bool {
        self.nodes[node].ears.renewals().iter().any(|(of, _)| *of == session)
    }
}

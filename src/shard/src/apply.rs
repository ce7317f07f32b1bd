//! Committed blocks enter the state machine here, and the answers come out: this is the only place
//! from which a client learns that something took effect.

use alloc::string::ToString;

use palisade_machine::{Applied, Effect};
use palisade_types::{Block, Edge, LogIndex, Mutant, OperatorAct, Outcome, Reply, SessionId, Term, Time};
use palisade_wire::Push;

use crate::action::{Actions, Note, Stop};
use crate::clocks::{bound, span};
use crate::pending::Origin;
use crate::shard::Shard;

impl Shard {
    /// Applies one committed block and answers whoever waits for its commands.
    pub(crate) fn apply_block(&mut self, now: Time, block: &Block, out: &mut Actions) {
        assert_eq!(block.first(), self.applied.next(), "blocks are applied in order, each once");
        assert_eq!(block.prev_chain(), self.applied_chain, "a committed block follows another history");
        self.clock.observe(now, block.clock_ms());
        let by_index_only = self.config.mutants.has(Mutant::B14);
        let mut lost = alloc::vec::Vec::new();
        let origins = self
            .pending
            .committed(block.term(), block.first(), block.last(), by_index_only, |o| lost.push(o));
        for origin in lost {
            self.answer_lost(origin, out);
        }
        let mut effects = core::mem::take(&mut self.effects);
        // What the next commands will touch is fetched together, not one by one when each is applied.
        let (mut ahead, mut warmed) = (block.commands(), 0);
        for (place, command) in block.commands().enumerate() {
            if place == warmed {
                warmed += self.machine.warm(&mut ahead);
            }
            let index = LogIndex(block.first().0 + place as u64);
            effects.clear();
            let at = Applied { index, clock_ms: block.clock_ms() };
            if let Err(error) = self.machine.apply(at, command, &mut effects) {
                out.stop.get_or_insert(Stop::Apply(error.to_string()));
                break;
            }
            self.watches.record(self.machine.news());
            let origin = origins.as_ref().and_then(|o| o.get(place)).copied();
            for effect in effects.drain(..) {
                self.act_on_effect(now, origin, effect, out);
            }
            if origin == Some(Origin::Sweep) {
                self.sweeping = false;
            }
        }
        self.effects = effects;
        let before = Edge {
            index: self.applied,
            term: self.applied_term,
            chain: self.applied_chain,
            clock_ms: block.clock_ms(),
        };
        self.applied = block.last();
        self.applied_chain = block.chain();
        self.applied_term = block.term();
        self.counters.blocks_applied += 1;
        self.counters.commands_applied += u64::from(block.count());
        if self.leading == Some(block.term()) && !self.serving {
            self.start_serving(now, block.term(), out);
        }
        if out.stop.is_none() {
            self.mark_block(now, block, before);
        }
    }

    /// The first entry of this leadership is applied: every session gets one full TTL from now.
    fn start_serving(&mut self, now: Time, term: Term, out: &mut Actions) {
        self.serving = true;
        let mut count = 0;
        for session in self.machine.sessions_iter() {
            self.clocks.start(now, session.session, span(session.ttl_ms, self.config.expiry_slack));
            count += 1;
        }
        out.notes.push(Note::Serving { term, sessions: count });
    }

    fn act_on_effect(&mut self, now: Time, origin: Option<Origin>, effect: Effect, out: &mut Actions) {
        match effect {
            Effect::Reply(reply) => self.answer(now, origin, reply, out),
            Effect::Granted { session, ticket, fence } => {
                self.waits.stop(session, ticket);
                if let Some(conn) = self.links.conn_of(session) {
                    out.pushes.push((conn, Push::Granted { session, ticket, fence }));
                }
            }
            Effect::Forced { session, ticket } => {
                if let Some(conn) = self.links.conn_of(session) {
                    out.pushes.push((conn, Push::Finished { session, ticket, outcome: Outcome::Forced }));
                }
            }
            Effect::SessionOpened { session, ttl_ms } => {
                if self.serving {
                    self.clocks.start(now, session, span(ttl_ms, self.config.expiry_slack));
                }
            }
            Effect::SessionEnded { session, cause } => {
                self.clocks.remove(session);
                self.waits.stop_session(session);
                if let Some(conn) = self.links.conn_of(session) {
                    out.pushes.push((conn, Push::SessionEnded { session, cause }));
                }
                self.links.detach(session);
                out.notes.push(Note::SessionEnded { session, cause });
            }
        }
    }

    fn answer(&mut self, now: Time, origin: Option<Origin>, reply: Reply, out: &mut Actions) {
        match origin {
            Some(Origin::Client { conn, id, wait_until }) => {
                let reply = self.complete(reply);
                match &reply {
                    Reply::Opened { session, .. } => self.links.attach(conn, *session),
                    Reply::Queued { session, ticket, .. } => {
                        if let Some(deadline) = wait_until {
                            self.waits.start(*session, *ticket, deadline);
                        }
                    }
                    Reply::Finished { session, ticket, .. } => self.waits.stop(*session, *ticket),
                    Reply::OperatorDone { .. } => self.counters.operator_acts += 1,
                    _ => {}
                }
                out.replies.push((conn, id, reply));
            }
            Some(Origin::Transfer { conn, id, term, to }) => {
                self.transfer_recorded(now, conn, id, OperatorAct::Transfer { term, to }, reply, out);
            }
            Some(Origin::WaitOver { session, ticket }) => self.push_wait_over(session, ticket, reply, out),
            Some(Origin::Expiry | Origin::Sweep) | None => {}
        }
    }

    /// A claim's time to wait ran out: it gets what apply decided, be it that the grant came first.
    fn push_wait_over(
        &mut self,
        session: SessionId,
        ticket: palisade_types::Ticket,
        reply: Reply,
        out: &mut Actions,
    ) {
        let Some(conn) = self.links.conn_of(session) else { return };
        match reply {
            Reply::Finished { outcome, .. } => {
                out.pushes.push((conn, Push::Finished { session, ticket, outcome }));
            }
            Reply::Granted { fence, .. } => out.pushes.push((conn, Push::Granted { session, ticket, fence })),
            _ => {}
        }
    }

    /// Adds what only the leader knows to an answer of the state machine.
    fn complete(&self, reply: Reply) -> Reply {
        let Reply::Opened { session, ttl_ms, .. } = reply else { return reply };
        let gone_within_ms = bound(ttl_ms, self.config.expiry_slack).as_millis() as u64;
        let three_elections = self.config.raft.election_max.as_millis() as u64 * 3;
        Reply::Opened { session, ttl_ms, gone_within_ms, short_ttl: u64::from(ttl_ms) < three_elections }
    }

    fn answer_lost(&mut self, origin: Origin, out: &mut Actions) {
        if let Origin::Client { conn, id, .. } | Origin::Transfer { conn, id, .. } = origin {
            let refusal = palisade_types::Refusal::NotLeader { leader: self.leader_hint() };
            out.replies.push((conn, id, Reply::Refused(refusal)));
        }
    }
}

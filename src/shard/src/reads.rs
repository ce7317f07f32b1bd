//! Reads (DESIGN section 7): how each is admitted by the consistency it asks for, and how it is
//! answered from what this node has applied.

use alloc::boxed::Box;
use core::time::Duration;

use palisade_raft::{NotLeader, ReadAnswer};
use palisade_types::limits::PAGE_ROWS_MAX;
use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::{Mutant, NodeId, Refusal, Reply, Time};
use palisade_wire::Query;

use crate::action::Actions;
use crate::request::{RETRY_AFTER_MS, bad};
use crate::rounds::{Item, Read};
use crate::shard::Shard;
use crate::turn::refuse_read;

impl Shard {
    /// Takes a read, of any consistency, at any node. What is stale is answered here and now, with or
    /// without a leader; all else joins the next round, or at a node that does not lead the next
    /// question to the leader. Who asks for the lease waits for the end of the turn.
    pub(crate) fn take_read(
        &mut self,
        now: Time,
        consistency: Consistency,
        read: Read,
        out: &mut Actions,
    ) -> Result<(), Refusal> {
        if read.query.rows() == Some(0) {
            return Err(bad("a page has at least one row"));
        }
        match (consistency, self.leading) {
            (Consistency::Stale, _) => {
                self.counters.stale_reads += 1;
                self.answer_read(now, Consistency::Stale, &read, out);
                Ok(())
            }
            (Consistency::Lease, Some(_)) if self.config.lease_reads => self.join_leases(read),
            (_, Some(_)) => self.join(Item::Read(read)),
            (_, None) => self.join_remote(now, read),
        }
    }

    fn join_leases(&mut self, read: Read) -> Result<(), Refusal> {
        if self.leases.len() >= self.config.in_hand_max {
            return Err(Refusal::Busy { retry_after_ms: RETRY_AFTER_MS });
        }
        self.leases.join(read);
        Ok(())
    }

    /// A read for which the leader is to be asked.
    fn join_remote(&mut self, now: Time, read: Read) -> Result<(), Refusal> {
        if self.leader().is_none() {
            return Err(Refusal::NotLeader { leader: None });
        }
        if self.remote.len() >= self.config.in_hand_max {
            return Err(Refusal::Busy { retry_after_ms: RETRY_AFTER_MS });
        }
        match self.config.mutants.has(Mutant::F1) {
            true => self.remote.join_unasked(read, now, self.raft.commit()),
            false => self.remote.join(read, now),
        }
        Ok(())
    }

    /// How long a read waits here for the leader and for this node to catch up, before it is sent to
    /// the leader: a leader that is silent for so long is taken for dead anyway.
    pub(crate) fn read_patience(&self) -> Duration {
        self.config.raft.election_min
    }

    /// Asks the leader how new the answers must be for which reads wait here.
    pub(crate) fn ask_leader(&mut self, now: Time, out: &mut Actions) {
        if self.leading.is_some() || !self.remote.wants_ask(now) {
            return;
        }
        match self.raft.ask_read_index(now) {
            // Questions and answers get lost, and nobody says so.
            Ok(ask) => self.remote.asked(ask, now + self.config.raft.heartbeat * 2),
            // Elected a moment ago: they join its rounds when this shard has read that.
            Err(NotLeader { leader }) if leader == Some(self.config.node) => {}
            Err(NotLeader { leader }) => {
                self.remote.take_unanswered().iter().for_each(|read| refuse_read(read, leader, out));
            }
        }
    }

    pub(crate) fn on_read_answer(&mut self, answer: ReadAnswer, out: &mut Actions) {
        self.remote.answered(answer).iter().for_each(|read| refuse_read(read, None, out));
    }

    /// This node follows another leader, or none: with none there is nobody to ask.
    pub(crate) fn follow_reads(&mut self, leader: Option<NodeId>, out: &mut Actions) {
        match leader {
            Some(_) => self.remote.ask_again(),
            None => self.remote.take_unanswered().iter().for_each(|read| refuse_read(read, None, out)),
        }
    }

    /// Answers the reads whose index is applied.
    pub(crate) fn serve_remote(&mut self, now: Time, out: &mut Actions) {
        for read in self.remote.take_applied(self.applied) {
            self.counters.follower_reads += 1;
            self.answer_read(now, Consistency::Linearizable, &read, out);
        }
    }

    /// Sends those on that have waited for too long.
    pub(crate) fn give_up_reads(&mut self, now: Time, out: &mut Actions) {
        let leader = self.leader();
        for read in self.remote.take_overdue(now, self.read_patience()) {
            refuse_read(&read, leader, out);
        }
    }

    /// Answers a read from the applied state. That the answer is as new as it says is the caller's
    /// business.
    pub(crate) fn answer_read(
        &mut self,
        now: Time,
        consistency: Consistency,
        read: &Read,
        out: &mut Actions,
    ) {
        self.counters.reads += 1;
        let mark = ReadMark { consistency, revision: self.applied };
        out.replies.push((read.conn, read.id, self.look_up(now, mark, &read.query)));
    }

    /// The answer to a query. A page is bounded by [`PAGE_ROWS_MAX`].
    fn look_up(&self, now: Time, read: ReadMark, query: &Query) -> Reply {
        let clock_ms = self.clock.now_ms(now);
        let page = |rows: u32| rows.min(PAGE_ROWS_MAX);
        match query {
            Query::Describe { key } => {
                Reply::Described { read, description: Box::new(self.machine.describe(key, clock_ms)) }
            }
            Query::ListLocks { after, rows } => {
                let (rows, more) = self.machine.list_locks(after.as_deref(), page(*rows), clock_ms);
                Reply::Locks { read, rows, more }
            }
            Query::ListSessions { after, rows } => {
                let (rows, more) = self.machine.list_sessions(*after, page(*rows));
                Reply::Sessions { read, rows, more }
            }
            Query::ListOperatorActs { after, rows } => {
                let (rows, more) = self.machine.list_operator_acts(*after, page(*rows), clock_ms);
                Reply::OperatorActs { read, rows, more }
            }
            Query::Get { key } => Reply::Value { read, row: self.machine.get(key) },
            Query::ListValues { prefix, after, rows } => {
                let prefix = prefix.as_deref().unwrap_or_default();
                let (rows, more) = self.machine.list_values(prefix, after.as_deref(), page(*rows));
                Reply::Values { read, rows, more }
            }
            Query::ListResources { conflicts, after, rows } => {
                let (rows, more) = self.machine.list_resources(*conflicts, after.as_deref(), page(*rows));
                Reply::Resources { read, rows, more }
            }
        }
    }
}

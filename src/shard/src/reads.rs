//! Reads (DESIGN section 7): how each is admitted by the consistency it asks for, and how it is
//! answered from what this node has applied.

use alloc::boxed::Box;

use palisade_types::limits::PAGE_ROWS_MAX;
use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::{Refusal, Reply, Time};
use palisade_wire::Query;

use crate::action::Actions;
use crate::request::bad;
use crate::rounds::{Item, Read};
use crate::shard::Shard;

impl Shard {
    /// Takes a read, of any consistency, at any node. What is stale is answered here and now, with or
    /// without a leader; all else joins the next round.
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
                self.answer_read(now, Consistency::Stale, &read, out);
                Ok(())
            }
            (_, Some(_)) => self.join(Item::Read(read)),
            (_, None) => Err(Refusal::NotLeader { leader: self.leader() }),
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
        }
    }
}

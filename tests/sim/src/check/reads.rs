//! What a read's answer may show: for one that promises to be new, nothing older than what was
//! acknowledged to anybody before it was asked (R11); for one that does not, at least nothing older
//! than what the same connection has seen before (R12).

use std::collections::BTreeMap;

use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::{ConnId, LogIndex, Reply};
use palisade_wire::Request;

use super::{Checked, demand};
use crate::links::Asked;

/// Answers to reads that were looked at, by what they promise and who gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// All of them.
    pub all: u64,
    /// Linearizable ones of nodes that did not lead.
    pub follower: u64,
    /// Those given by lease.
    pub lease: u64,
    /// Stale ones.
    pub stale: u64,
}

/// The check.
#[derive(Debug, Default)]
pub struct ReadsCheck {
    /// The newest revision that each connection was shown.
    seen: BTreeMap<ConnId, LogIndex>,
    /// What was looked at.
    pub counts: ReadCounts,
}

/// The mark of an answer to a read.
pub fn mark_of(reply: &Reply) -> Option<ReadMark> {
    match reply {
        Reply::Described { read, .. }
        | Reply::Locks { read, .. }
        | Reply::Sessions { read, .. }
        | Reply::OperatorActs { read, .. }
        | Reply::Value { read, .. }
        | Reply::Values { read, .. }
        | Reply::Resources { read, .. } => Some(*read),
        _ => None,
    }
}

impl ReadsCheck {
    /// A node answers a request on a connection; `leads` says whether it serves as the leader.
    ///
    /// # Errors
    /// R11, R12.
    pub fn on_reply(&mut self, conn: ConnId, leads: bool, asked: &Asked, reply: &Reply) -> Checked {
        let (Request::Read { consistency: wanted, .. }, Some(read)) = (&asked.request, mark_of(reply)) else {
            return Ok(());
        };
        let ReadMark { consistency: got, revision } = read;
        let fits = match wanted {
            Consistency::Linearizable | Consistency::Stale => got == *wanted,
            Consistency::Lease => got != Consistency::Stale,
        };
        demand(fits, "R11", || format!("a {wanted} read got a {got} answer"))?;
        demand(got == Consistency::Stale || revision >= asked.committed, "R11", || {
            format!("a {got} read shows {revision}, {} was committed before it arrived", asked.committed)
        })?;
        let seen = self.seen.entry(conn).or_default();
        demand(revision >= *seen, "R12", || {
            format!("a {got} read shows {revision}, the connection has seen {seen}")
        })?;
        *seen = revision;
        self.counts.all += 1;
        match got {
            Consistency::Linearizable if !leads => self.counts.follower += 1,
            Consistency::Linearizable => {}
            Consistency::Lease => self.counts.lease += 1,
            Consistency::Stale => self.counts.stale += 1,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_wire::Query;

    const CONN: ConnId = ConnId(1);

    fn asked(consistency: Consistency, committed: u64) -> Asked {
        let query = Query::ListSessions { after: None, rows: 1 };
        Asked { request: Request::Read { consistency, query }, committed: LogIndex(committed) }
    }

    fn shown(consistency: Consistency, revision: u64) -> Reply {
        let read = ReadMark { consistency, revision: LogIndex(revision) };
        Reply::Sessions { read, rows: Vec::new(), more: false }
    }

    fn rule(checked: Checked) -> &'static str {
        checked.expect_err("a rule is broken").rule
    }

    #[test]
    fn a_read_that_shows_less_than_was_acknowledged_is_found_unless_it_promises_nothing() {
        let mut c = ReadsCheck::default();
        for consistency in [Consistency::Linearizable, Consistency::Lease] {
            let old = c.on_reply(CONN, true, &asked(consistency, 9), &shown(consistency, 8));
            assert_eq!(rule(old), "R11");
        }
        let stale = Consistency::Stale;
        assert_eq!(c.on_reply(CONN, false, &asked(stale, 9), &shown(stale, 8)), Ok(()));
        let refused_lease = shown(Consistency::Linearizable, 9);
        assert_eq!(c.on_reply(CONN, false, &asked(Consistency::Lease, 9), &refused_lease), Ok(()));
        assert_eq!(c.counts, ReadCounts { all: 2, follower: 1, lease: 0, stale: 1 });
    }

    #[test]
    fn an_answer_of_less_than_was_asked_for_is_found() {
        let mut c = ReadsCheck::default();
        for (wanted, got) in [
            (Consistency::Linearizable, Consistency::Stale),
            (Consistency::Linearizable, Consistency::Lease),
            (Consistency::Lease, Consistency::Stale),
        ] {
            assert_eq!(rule(c.on_reply(CONN, true, &asked(wanted, 1), &shown(got, 5))), "R11");
        }
    }

    #[test]
    fn a_connection_that_is_taken_back_in_time_is_found() {
        let mut c = ReadsCheck::default();
        let stale = Consistency::Stale;
        assert_eq!(c.on_reply(CONN, false, &asked(stale, 9), &shown(stale, 8)), Ok(()));
        assert_eq!(c.on_reply(ConnId(2), false, &asked(stale, 9), &shown(stale, 3)), Ok(()));
        assert_eq!(rule(c.on_reply(CONN, false, &asked(stale, 9), &shown(stale, 7))), "R12");
    }
}

//! Ephemeral keys in the naive machine: one vector, in the order in which they were put.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use palisade_types::{Cause, Happened, Key, Outcome, Refusal, Reply, SessionId, Ticket, ValueRow};

use super::{Model, bad_ticket, tickets_full};
use crate::Applied;

/// The rows as they are read, and the keys of the dead, first to go first.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    rows: Vec<ValueRow>,
    dying: Vec<(Key, Cause)>,
}

impl Values {
    fn find(&self, key: &str) -> Option<&ValueRow> {
        self.rows.iter().find(|row| row.key.as_str() == key)
    }

    fn remove(&mut self, key: &Key) -> Option<ValueRow> {
        let place = self.rows.iter().position(|row| row.key == *key)?;
        Some(self.rows.remove(place))
    }

    /// All of them, in the order of their keys.
    pub(super) fn sorted(&self) -> Vec<ValueRow> {
        let mut all = self.rows.clone();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// How many keys a session has put.
    pub(super) fn of(&self, session: SessionId) -> usize {
        self.rows.iter().filter(|row| row.session == session).count()
    }

    /// What they count in the account of the state.
    pub(super) fn cost(&self) -> u64 {
        self.rows.iter().map(|row| 192 + row.key.len() as u64 + row.value.len() as u64).sum()
    }

    /// How many keys of the dead are still there.
    pub(super) fn ending(&self) -> usize {
        self.dying.len()
    }

    /// A session has ended, and so many of its keys may go at once: those are returned.
    pub(super) fn end(&mut self, session: SessionId, cause: Cause, now: usize) -> Vec<ValueRow> {
        let mut gone = Vec::new();
        let own = |row: &&ValueRow| row.session == session;
        let mut keys: Vec<Key> = self.rows.iter().filter(own).map(|row| row.key.clone()).collect();
        keys.sort();
        for (n, key) in keys.into_iter().enumerate() {
            if n < now {
                gone.extend(self.remove(&key));
                continue;
            }
            self.rows.iter_mut().filter(|row| row.key == key).for_each(|row| row.ending = true);
            self.dying.push((key, cause));
        }
        gone
    }

    /// The next key to go, and why.
    pub(super) fn sweep(&mut self) -> Option<(ValueRow, Cause)> {
        if self.dying.is_empty() {
            return None;
        }
        let (key, cause) = self.dying.remove(0);
        Some((self.remove(&key)?, cause))
    }
}

impl Model {
    pub(super) fn put(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        key: Key,
        value: &[u8],
    ) -> Reply {
        if let Some(reply) = self.not_new(session, ticket) {
            return reply;
        }
        let known = self.values.find(&key).cloned();
        let refusal = match &known {
            Some(row) if row.session != session => Some(other(row)),
            Some(row) if row.value.len() < value.len() => {
                self.over_quota((value.len() - row.value.len()) as u64)
            }
            Some(_) => None,
            None => {
                let more = 192 + key.len() as u64 + value.len() as u64;
                self.full(session).or_else(|| self.over_quota(more))
            }
        };
        if let Some(refusal) = refusal {
            self.finish(session, ticket, Outcome::Refused);
            return Reply::Refused(refusal);
        }
        self.finish(session, ticket, Outcome::Done);
        self.values.remove(&key);
        let row = ValueRow {
            key,
            value: value.into(),
            session,
            owner: self.live(session).and_then(|s| s.owner.clone()),
            created: known.map_or(at.index, |row| row.created),
            modified: at.index,
            ending: false,
        };
        let what = Happened::Put { created: row.created, value: row.value.clone() };
        self.tell(Some(&row.key), session, row.owner.as_ref(), what);
        self.values.rows.push(row);
        Reply::PutDone { session, ticket, revision: at.index }
    }

    pub(super) fn delete(&mut self, session: SessionId, ticket: Ticket, key: &Key) -> Reply {
        if let Some(reply) = self.not_new(session, ticket) {
            return reply;
        }
        if let Some(row) = self.values.find(key).filter(|row| row.session != session).cloned() {
            self.finish(session, ticket, Outcome::Refused);
            return Reply::Refused(other(&row));
        }
        self.finish(session, ticket, Outcome::Done);
        let removed = self.values.remove(key);
        if let Some(row) = &removed {
            self.tell(Some(key), session, row.owner.as_ref(), Happened::Deleted);
        }
        Reply::Deleted { session, ticket, existed: removed.is_some() }
    }

    /// The answer to a command of one step whose session or ticket alone decides it.
    pub(super) fn not_new(&self, session: SessionId, ticket: Ticket) -> Option<Reply> {
        let Some(s) = self.live(session) else { return Some(self.gone(session)) };
        if ticket.0 == 0 || ticket.0 >= 1 << 60 {
            return Some(bad_ticket());
        }
        if self.held_by(session, ticket).is_some() || self.awaited_by(session, ticket).is_some() {
            return Some(Reply::Refused(Refusal::TicketMismatch { ticket }));
        }
        if let Some(outcome) = Model::outcome(s, ticket) {
            return Some(Reply::Refused(Refusal::TicketFinished { ticket, outcome }));
        }
        (self.ticket_weight(s, Some(ticket)) > 2_000).then(tickets_full)
    }

    /// Why a session may have no key more.
    pub(super) fn full(&self, session: SessionId) -> Option<Refusal> {
        let limit = self.limits.keys_per_session;
        let keys = self.claims_of(session).len() + self.values.of(session);
        let what = "keys held, awaited or put".to_string();
        (keys >= limit as usize).then_some(Refusal::SessionFull { what, limit: limit.into() })
    }

    /// See `Machine::get`.
    pub fn get(&self, key: &Key) -> Option<Box<ValueRow>> {
        self.values.find(key).cloned().map(Box::new)
    }

    /// See `Machine::list_values`.
    pub fn list_values(&self, prefix: &str, after: Option<&str>, rows: u32) -> (Vec<ValueRow>, bool) {
        let mut all = self.values.sorted();
        all.retain(|row| row.key.starts_with(prefix) && after.is_none_or(|after| row.key.as_str() > after));
        let mut bytes = 0;
        let fits = |row: &&ValueRow| {
            bytes += row.value.len();
            bytes <= 256 * 1024
        };
        let most = all.iter().take(rows.min(1_000) as usize).take_while(fits).count();
        let more = all.len() > most;
        all.truncate(most);
        (all, more)
    }
}

fn other(row: &ValueRow) -> Refusal {
    Refusal::OwnedByOther { session: row.session, owner: row.owner.clone() }
}

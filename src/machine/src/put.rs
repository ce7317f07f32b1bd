//! Put and delete, what becomes of a session's keys when it ends, and the reads (DESIGN section 5).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use palisade_types::limits::{PAGE_ROWS_MAX, PAGE_VALUE_BYTES_MAX, TICKET_RANGES_MAX, VALUE_COST};
use palisade_types::{
    Cause, Happened, Key, LogIndex, Mutant, Outcome, Refusal, Reply, SessionId, Ticket, ValueRow,
};

use crate::acquire::{KEYS_OF_A_SESSION, bad_ticket, tickets_full};
use crate::machine::{Applied, Machine};
use crate::session::Life;
use crate::slab::Slot;
use crate::tickets::TICKET_MAX;
use crate::values::Value;

impl Machine {
    /// Gives a key of the session a value. The order of the questions is part of the replicated
    /// behaviour.
    pub(crate) fn put(
        &mut self,
        at: Applied,
        session: SessionId,
        ticket: Ticket,
        key: &str,
        value: &[u8],
    ) -> Reply {
        let owner = match self.new_ticket(session, ticket) {
            Ok(owner) => owner,
            Err(reply) => return reply,
        };
        if let Some(refusal) = self.no_put(owner, key, value) {
            return self.refuse_ticket(owner, ticket, refusal);
        }
        self.sessions.records[owner].tickets.finish(ticket, Outcome::Done);
        let key = Key::new(key).expect("checked when the command was decoded");
        self.set_value(at, owner, key, Arc::from(value));
        Reply::PutDone { session, ticket, revision: at.index }
    }

    /// Removes a key of the session; one that is not there is as good as removed.
    pub(crate) fn delete(&mut self, session: SessionId, ticket: Ticket, key: &str) -> Reply {
        let owner = match self.new_ticket(session, ticket) {
            Ok(owner) => owner,
            Err(reply) => return reply,
        };
        if let Some(refusal) = self.owned_by_other(owner, key) {
            return self.refuse_ticket(owner, ticket, refusal);
        }
        self.sessions.records[owner].tickets.finish(ticket, Outcome::Done);
        let key = Key::new(key).expect("checked when the command was decoded");
        let removed = self.remove_value(&key);
        if let Some(value) = &removed {
            self.tell_value(&key, value, Happened::Deleted);
        }
        Reply::Deleted { session, ticket, existed: removed.is_some() }
    }

    /// The live session, if this is a ticket that it has not seen and has room for; else the answer.
    pub(crate) fn new_ticket(&self, session: SessionId, ticket: Ticket) -> Result<Slot, Reply> {
        let Some(owner) = self.find_session(session) else { return Err(self.not_live(session)) };
        if ticket.0 == 0 || ticket > TICKET_MAX {
            return Err(bad_ticket());
        }
        let record = &self.sessions.records[owner];
        if record.open.find(ticket).is_some() {
            return Err(Reply::Refused(Refusal::TicketMismatch { ticket }));
        }
        if record.tickets.is_finished(ticket) {
            let outcome = record.tickets.outcome(ticket);
            return Err(Reply::Refused(Refusal::TicketFinished { ticket, outcome }));
        }
        if record.tickets.count_with(ticket) + record.open.len() > TICKET_RANGES_MAX {
            return Err(tickets_full());
        }
        Ok(owner)
    }

    pub(crate) fn refuse_ticket(&mut self, owner: Slot, ticket: Ticket, refusal: Refusal) -> Reply {
        self.sessions.records[owner].tickets.finish(ticket, Outcome::Refused);
        Reply::Refused(refusal)
    }

    /// Why a session may not put a key.
    fn no_put(&self, owner: Slot, key: &str, value: &[u8]) -> Option<Refusal> {
        if let Some(refusal) = self.owned_by_other(owner, key)
            && !self.mutants.has(Mutant::V2)
        {
            return Some(refusal);
        }
        let (keys_max, size) = (self.limits.keys_per_session, value.len() as u64);
        let Some(before) = self.values.find(key) else {
            if self.sessions.records[owner].keys() >= keys_max as usize {
                let what = String::from(KEYS_OF_A_SESSION);
                return Some(Refusal::SessionFull { what, limit: u64::from(keys_max) });
            }
            return self.over_quota(VALUE_COST + key.len() as u64 + size);
        };
        let more = size.checked_sub(before.bytes.len() as u64).filter(|more| *more > 0)?;
        self.over_quota(more)
    }

    fn owned_by_other(&self, owner: Slot, key: &str) -> Option<Refusal> {
        let value = self.values.find(key)?;
        if value.session == self.sessions.records[owner].opened {
            return None;
        }
        Some(Refusal::OwnedByOther { session: self.id(value.session), owner: value.owner.clone() })
    }

    /// The one place where an ephemeral key gets a value.
    fn set_value(&mut self, at: Applied, owner: Slot, key: Key, bytes: Arc<[u8]>) {
        let record = &self.sessions.records[owner];
        let (session, tag) = (record.opened, record.owner.clone());
        let created = self.values.find(&key).map_or(at.index, |value| value.created);
        let what = Happened::Put { created, value: bytes.clone() };
        let value = Value { bytes, session, owner: tag, created, modified: at.index, ending: None };
        self.tell_value(&key, &value, what);
        let before = self.values.insert(key, value);
        if before.as_ref().is_none_or(|value| value.session != session) {
            self.count_value(session, true);
        }
        if let Some(robbed) = before.filter(|value| value.session != session) {
            self.count_value(robbed.session, false);
        }
    }

    /// The one place where an ephemeral key goes, whatever the reason.
    fn remove_value(&mut self, key: &Key) -> Option<Value> {
        let value = self.values.remove(key)?;
        self.count_value(value.session, false);
        Some(value)
    }

    /// A live session has one key more or less.
    fn count_value(&mut self, session: LogIndex, more: bool) {
        let Some(slot) = self.sessions.find(session) else { return };
        if let Life::Live { values, .. } = &mut self.sessions.records[slot].life {
            *values = if more { *values + 1 } else { *values - 1 };
        }
    }

    /// Removes some of the keys that a session has put which has just ended; the rest joins the backlog.
    pub(crate) fn drop_values(&mut self, session: LogIndex, cause: Cause, budget: u32) {
        for (n, key) in self.values.take_keys(session).into_iter().enumerate() {
            if n < budget as usize {
                self.vanish(&key, cause);
            } else {
                self.values.leave(key, cause);
            }
        }
    }

    /// Removes a key from the backlog, if one is there.
    pub(crate) fn sweep_value(&mut self) {
        let Some(key) = self.values.next_ending() else { return };
        let cause = self.values.find(&key).and_then(|value| value.ending);
        self.vanish(&key, cause.expect("only keys of ended sessions are in the backlog"));
    }

    /// Removes a key whose session has ended.
    fn vanish(&mut self, key: &Key, cause: Cause) {
        if let Some(value) = self.remove_value(key)
            && !self.mutants.has(Mutant::W5)
        {
            self.tell_value(key, &value, Happened::Vanished { cause });
        }
    }

    /// An ephemeral key and its value.
    pub fn get(&self, key: &Key) -> Option<Box<ValueRow>> {
        let value = self.values.find(key)?;
        Some(Box::new(self.value_row(key, value)))
    }

    /// A page of the ephemeral keys with a prefix in the order of their keys, from behind `after`, of at
    /// most [`PAGE_ROWS_MAX`] rows and [`PAGE_VALUE_BYTES_MAX`] bytes of values; and whether more follow.
    pub fn list_values(&self, prefix: &str, after: Option<&str>, rows: u32) -> (Vec<ValueRow>, bool) {
        let most = rows.min(PAGE_ROWS_MAX) as usize;
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (key, value) in self.values.after(prefix, after) {
            bytes += value.bytes.len();
            if page.len() >= most || bytes > PAGE_VALUE_BYTES_MAX {
                return (page, true);
            }
            page.push(self.value_row(key, value));
        }
        (page, false)
    }

    fn value_row(&self, key: &Key, value: &Value) -> ValueRow {
        ValueRow {
            key: key.clone(),
            value: value.bytes.clone(),
            session: self.id(value.session),
            owner: value.owner.clone(),
            created: value.created,
            modified: value.modified,
            ending: value.ending.is_some(),
        }
    }
}

//! One number for the whole replicated state: equal states, equal digests, whatever the seeds of the
//! hash maps and the places of the records.

use palisade_types::hash::Xxh3;
use palisade_types::{Cause, Class, Key, LogIndex, Name, OperatorAct, TransitionKind};

use crate::claims::{List, State};
use crate::describe::Happened;
use crate::machine::Machine;
use crate::session::Session;

use crate::slab::Slot;
use crate::values::Value;

/// Feeds fields to the hash, each with its length fixed or said.
struct Digest(Xxh3);

impl Digest {
    fn u64(&mut self, v: u64) {
        self.0.update(&v.to_le_bytes());
    }

    fn u128(&mut self, v: u128) {
        self.0.update(&v.to_le_bytes());
    }

    fn name(&mut self, v: Option<&Name>) {
        let text = v.map_or("", Name::as_str);
        self.u64(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn bytes(&mut self, v: &[u8]) {
        self.u64(v.len() as u64);
        self.0.update(v);
    }

    fn cause(&mut self, v: Cause) {
        let (code, detail) = match v {
            Cause::Closed => (1, 0),
            Cause::Expired { silent_ms } => (2, silent_ms),
            Cause::Forgotten => (3, 0),
            Cause::ReportedDead { action } => (4, action.0),
            Cause::Evicted { action } => (5, action.0),
        };
        self.u64(code);
        self.u64(detail);
    }

    fn act(&mut self, v: &OperatorAct) {
        let (code, number, key) = match v {
            OperatorAct::ReportDead { session } => (1, session.opened.0, None),
            OperatorAct::Evict { session } => (2, session.opened.0, None),
            OperatorAct::ForceRelease { key, epoch } => (3, epoch.0, Some(key)),
            OperatorAct::Retire { key, epoch } => (4, epoch.0, Some(key)),
            OperatorAct::Transfer { term, .. } => (5, term.0, None),
        };
        self.u64(code);
        self.u64(number);
        self.name(key);
        if let OperatorAct::Transfer { to, .. } = v {
            self.u64(to.map_or(0, |node| u64::from(node.0)));
        }
    }

    fn value(&mut self, key: &Key, v: &Value) {
        self.name(Some(key));
        self.u64(v.bytes.len() as u64);
        self.0.update(&v.bytes);
        self.u64(v.session.0);
        self.name(v.owner.as_ref());
        self.u64(v.created.0);
        self.u64(v.modified.0);
        self.u64(u64::from(v.ending.is_some()));
        if let Some(cause) = v.ending {
            self.cause(cause);
        }
    }

    fn happened(&mut self, v: &Happened) {
        self.u64(v.revision.0);
        self.u64(v.clock_ms);
        self.u64(v.session.0);
        self.u64(v.epoch.0);
        match v.kind {
            TransitionKind::Granted => self.u64(1),
            TransitionKind::Released => self.u64(2),
            TransitionKind::SessionEnded(cause) => {
                self.u64(3);
                self.cause(cause);
            }
            TransitionKind::Forced => self.u64(4),
            TransitionKind::Downgraded => self.u64(5),
        }
    }
}

impl Machine {
    /// A hash of the whole replicated state. Takes time in proportion to it.
    pub fn digest(&self) -> u128 {
        let mut d = Digest(Xxh3::new());
        d.u64(self.applied.0);
        d.u64(self.locks.epoch_floor.0);
        d.u64(self.state_bytes());
        d.u64(self.sessions.live() as u64);
        for session in self.sessions.after(LogIndex(0)) {
            self.digest_session(&mut d, session);
        }
        d.u64(self.locks.records.len() as u64);
        for slot in self.locks.after(None) {
            self.digest_lock(&mut d, slot);
        }
        d.u64(u64::from(self.locks.idle_len()));
        for lock in self.locks.idle() {
            d.name(Some(&lock.key));
        }
        for list in [&self.wanted, &self.unwanted] {
            self.digest_list(&mut d, list);
        }
        d.u64(self.due.len() as u64);
        for &slot in &self.due {
            d.name(Some(&self.locks.records[slot].key));
        }
        for session in self.sessions.quarantined_after(LogIndex(0)) {
            d.u64(session.opened.0);
        }
        d.u64(self.values.len() as u64);
        for (key, value) in self.values.iter() {
            d.value(key, value);
        }
        for key in self.values.ending() {
            d.name(Some(key));
        }
        d.u64(self.resources.last());
        d.u64(self.resources.len() as u64);
        for (number, resource, key) in self.resources.iter() {
            d.u64(number);
            d.name(Some(resource));
            d.name(Some(key));
        }
        for ended in self.ended.iter() {
            d.u64(ended.opened.0);
            d.u128(ended.token.0);
            d.cause(ended.cause);
        }
        for record in self.acts.iter() {
            d.u64(record.revision.0);
            d.u64(record.clock_ms);
            d.name(Some(&record.by));
            d.name(Some(&record.reason));
            d.act(&record.act);
        }
        d.0.digest128()
    }

    fn digest_session(&self, d: &mut Digest, session: &Session) {
        d.u64(session.opened.0);
        d.u128(session.token.0);
        d.u64(u64::from(session.ttl_ms()));
        d.name(session.owner.as_ref());
        d.name(session.incarnation.as_ref());
        let (low, ranges) = session.tickets.ranges();
        d.u64(low);
        d.u64(ranges.len() as u64);
        for &(first, last) in ranges {
            d.u64(first);
            d.u64(last);
        }
        d.u64(session.tickets.outcomes().count() as u64);
        for word in session.tickets.outcomes() {
            d.u64(word);
        }
    }

    fn digest_lock(&self, d: &mut Digest, slot: Slot) {
        let lock = &self.locks.records[slot];
        d.name(Some(&lock.key));
        d.u64(lock.epoch.0);
        d.u64(match lock.class {
            Class::Fenced => 1,
            Class::Advisory => 2,
            Class::Election => 3,
        });
        d.name(lock.resource.as_ref());
        let transitions = self.transitions(slot);
        d.u64(transitions.len() as u64);
        for happened in &transitions {
            d.happened(happened);
        }
        d.u64(self.holders_of(slot).count() as u64);
        for claim in self.holders_of(slot) {
            let (epoch, barrier) = self.tenure_of(claim);
            d.u64(epoch.0);
            d.u64(barrier.0);
            let record = &self.claims.records[claim];
            d.u64(if record.is_shared() { self.holders.hold(record.beside).was.0 } else { 0 });
            self.digest_claim(d, claim);
        }
        self.digest_list(d, &lock.queue);
    }

    fn digest_list(&self, d: &mut Digest, list: &List) {
        d.u64(u64::from(list.len));
        for (slot, _) in self.claims.iter(list) {
            self.digest_claim(d, slot);
        }
    }

    fn digest_claim(&self, d: &mut Digest, slot: Slot) {
        let claim = &self.claims.records[slot];
        let session = &self.sessions.records[claim.session];
        d.u64(session.opened.0);
        d.name(session.owner.as_ref());
        d.u64(claim.ticket.0);
        d.u64(claim.since.clock_ms);
        d.u64(u64::from(claim.flags));
        d.u64(match claim.state {
            State::Queued => 0,
            State::Held => 1,
            State::Ending => 2,
            State::Quarantined => 3,
        });
        d.name(claim.resource.as_ref());
        if let Some((campaign, value)) = self.candidates.said(slot) {
            d.bytes(campaign);
            d.bytes(value);
        }
        if let Some(cause) = session.ended() {
            d.cause(cause);
        }
    }
}

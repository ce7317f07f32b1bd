//! What watchers learn, in the naive machine: said where it happens.

use super::*;
use palisade_types::{Event, Happened};

impl Model {
    /// See `Machine::news`.
    pub fn news(&self) -> &[Event] {
        &self.news
    }

    /// Says something of a key, or without one of a session.
    pub(super) fn tell(
        &mut self,
        key: Option<&Key>,
        session: SessionId,
        owner: Option<&Name>,
        what: Happened,
    ) {
        let (key, owner) = (key.cloned(), owner.cloned());
        self.news.push(Event { revision: self.now, key, session, owner, what });
    }

    /// Says that a claim was granted its key.
    pub(super) fn tell_grant(&mut self, key: &Key, claim: &Claim) {
        let (epoch, barrier) = (Epoch(claim.epoch), Epoch(claim.barrier));
        let what = match said(claim) {
            Some(value) => Happened::Elected { epoch, value: value.clone() },
            None => Happened::Granted { epoch, barrier },
        };
        self.tell(Some(key), claim.session, claim.owner.as_ref(), what);
    }

    /// Says that a claim no longer holds its key.
    pub(super) fn tell_release(&mut self, key: &Key, claim: &Claim, how: TransitionKind) {
        let (epoch, barrier) = (Epoch(claim.epoch), Epoch(claim.barrier));
        self.tell(Some(key), claim.session, claim.owner.as_ref(), Happened::Released { epoch, barrier, how });
    }

    /// What who watches from the beginning knows of keys: who holds what, what leaders say, and the
    /// ephemeral keys; as rows of a present state.
    pub fn present(&self) -> Vec<Event> {
        let mut rows = Vec::new();
        let row = |key: &Key, session, owner: &Option<Name>, what| Event {
            revision: self.now,
            key: Some(key.clone()),
            session,
            owner: owner.clone(),
            what,
        };
        for (key, lock) in &self.locks {
            for claim in &lock.holders {
                let (epoch, barrier) = (Epoch(claim.epoch), Epoch(claim.barrier));
                let ending = self.live(claim.session).is_none();
                let what = match said(claim) {
                    Some(value) => Happened::Leads { epoch, ending, value: value.clone() },
                    None => Happened::Held { epoch, barrier, ending },
                };
                rows.push(row(key, claim.session, &claim.owner, what));
            }
        }
        for row_of in self.values.sorted() {
            let ValueRow { key, value, session, owner, created, modified, ending } = row_of;
            rows.push(row(&key, session, &owner, Happened::Stands { created, modified, ending, value }));
        }
        rows
    }
}

fn said(claim: &Claim) -> Option<&Value> {
    claim.proclaimed.as_ref().or(claim.value.as_ref())
}

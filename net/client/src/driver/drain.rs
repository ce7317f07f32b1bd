//! Shutting a session down: it is renewed no more, its guards hear that they are lost, and each releases
//! its lock when the work under it has ended.

use palisade_client_core::{ClaimId, SessionHandle};
use tokio::sync::{oneshot, watch};

use super::{ClaimEntry, Driver, SessionEntry, report};
use crate::clock;
use crate::command::{ClaimEvent, Drain, Tag};
use crate::error::{CallError, LostReason};

impl SessionEntry {
    /// Whether a renewal makes it last longer for those who rely on it.
    pub(super) fn is_believed(&self) -> bool {
        self.closing.is_none() && self.draining.is_none()
    }
}

impl ClaimEntry {
    /// Whether its guard has been told that it is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }
}

impl Driver {
    /// The session, if new things may be asked for in it.
    pub(super) fn usable(&self, tag: Tag) -> Result<SessionHandle, CallError> {
        let known =
            self.session_tags.get(&tag).and_then(|handle| Some((*handle, self.sessions.get(handle)?)));
        match known {
            Some((handle, entry)) if entry.draining.is_none() => Ok(handle),
            Some(_) => Err(CallError::SessionLost(LostReason::ShuttingDown)),
            None => Err(CallError::SessionLost(LostReason::Closed)),
        }
    }

    pub(super) fn drain(&mut self, tag: Tag, reply: oneshot::Sender<watch::Receiver<Drain>>) {
        let Some(handle) = self.session_tags.get(&tag).copied() else { return };
        let Some(entry) = self.sessions.get_mut(&handle) else { return };
        if let Some(draining) = &entry.draining {
            let _ = reply.send(draining.subscribe());
            return;
        }
        let (draining, how_far) = watch::channel(Drain::default());
        entry.draining = Some(draining);
        // The lease itself goes on to its end: until then nobody else is granted anything of it.
        entry.lease.miss();
        report(&entry.lost, LostReason::ShuttingDown);
        self.core.stop_renewing(clock::now(), handle);
        self.lose_guards_and_waits(handle);
        self.note_drained(Some(handle));
        let _ = reply.send(how_far);
    }

    /// Guards are told; who waits still is told that it is over, and withdrawn.
    fn lose_guards_and_waits(&mut self, handle: SessionHandle) {
        let claims = self.claims.iter().filter(|(_, entry)| entry.session == handle);
        let (held, waiting): (Vec<ClaimId>, Vec<ClaimId>) =
            claims.map(|(claim, _)| *claim).partition(|claim| self.claims[claim].granted);
        for claim in held {
            report(&self.claims[&claim].lost, LostReason::ShuttingDown);
        }
        for claim in waiting {
            let Some(entry) = self.claims.remove(&claim) else { continue };
            self.claim_tags.remove(&entry.tag);
            let over = CallError::SessionLost(LostReason::ShuttingDown);
            let _ = entry.events.send(ClaimEvent::Failed(over.into()));
            self.core.abandon(clock::now(), claim);
        }
    }

    /// Counts what is left, if this session is being shut down.
    pub(super) fn note_drained(&self, session: Option<SessionHandle>) {
        let Some(handle) = session else { return };
        if let Some(draining) = self.sessions.get(&handle).and_then(|entry| entry.draining.as_ref()) {
            let left = self.claims.values().filter(|entry| entry.session == handle).count();
            draining.send_modify(|drain| drain.left = left);
        }
    }
}

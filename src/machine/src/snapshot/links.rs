//! The machine of a snapshot's records: places, links and indexes. Nothing is followed before it is known to
//! lead to a record, and nothing that could go round in circles is followed further than it says.

use alloc::vec::Vec;

use foldhash::fast::FixedState;

use super::SnapshotFault;
use super::restore::{Head, Parts, Restore};
use crate::claims::{Claims, List, State};
use crate::ended::Ended;
use crate::holders::Holders;
use crate::locks::Locks;
use crate::machine::Machine;
use crate::operate::Acts;
use crate::resources::Resources;
use crate::session::{Life, Sessions};
use crate::slab::{NONE, Slab, Slot};
use crate::values::Values;

pub(super) type Checked = Result<(), SnapshotFault>;

pub(super) fn require(holds: bool, what: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(SnapshotFault::Contradiction(what)) }
}

fn found<T>(it: Option<T>, what: &'static str) -> Result<T, SnapshotFault> {
    it.ok_or(SnapshotFault::Contradiction(what))
}

impl Restore {
    pub(super) fn build(self, head: Head) -> Result<Machine, SnapshotFault> {
        const PLACES: &str = "a place has no record and is not free, or both";
        let Parts {
            free,
            sessions,
            locks,
            histories,
            claims,
            holds,
            groups,
            candidates,
            idle,
            due,
            ended,
            acts,
            values,
            ending,
            resources,
        } = self.parts;
        let [free_sessions, free_locks, free_claims, free_holds, free_groups] = free;
        let hasher = FixedState::with_seed(self.hash_seed);
        let sessions = found(Slab::restored(sessions, free_sessions), PLACES)?;
        let histories = found(Slab::restored(histories, free_locks.clone()), PLACES)?;
        let locks = found(Slab::restored(locks, free_locks), PLACES)?;
        let claims = found(Slab::restored(claims, free_claims), PLACES)?;
        let holds = found(Slab::restored(holds, free_holds), PLACES)?;
        let groups = found(Slab::restored(groups, free_groups), PLACES)?;
        let mut machine = Machine::new(self.limits, self.shard, self.hash_seed, self.mutants);
        machine.applied = head.applied;
        machine.sessions = found(Sessions::restored(sessions, hasher), "two sessions have one id or token")?;
        let locks = Locks::restored(locks, histories, (self.limits.idle_keys, head.epoch_floor), hasher);
        machine.locks = found(locks, "two records have one key")?;
        machine.claims = Claims::restored(claims);
        machine.holders = Holders::restored(holds, groups);
        (machine.wanted, machine.unwanted) = (head.wanted, head.unwanted);
        require(machine.locks.restore_idle(&idle), "the idle keys are not those that nobody holds")?;
        machine.ended = found(
            Ended::restored(ended, self.limits.ended_sessions, hasher),
            "too many sessions ended, or two with one id or token",
        )?;
        machine.acts = Acts::restored(acts);
        machine.values = found(Values::restored(values, ending), "ephemeral keys are not in order")?;
        let resources = Resources::restored(resources, head.resources_last);
        machine.resources = found(resources, "claims to resources are not in order")?;
        machine.link_claims()?;
        machine.link_holders()?;
        machine.link_queues()?;
        machine.link_backlog()?;
        machine.link_due(&due)?;
        for (claim, campaign, proclaimed) in candidates {
            require(machine.claims.records.get(claim).is_some(), "a candidate has no claim")?;
            require(machine.candidates.restore(claim, campaign, proclaimed), "a claim is two candidates")?;
        }
        machine.link_values()?;
        machine.judge()?;
        Ok(machine)
    }
}

impl Machine {
    /// Claims are of sessions and keys that are there, and each ticket is one claim.
    fn link_claims(&mut self) -> Checked {
        let Machine { claims, sessions, locks, .. } = self;
        let mut quarantined = Vec::new();
        for (slot, claim) in claims.records.iter() {
            require(locks.records.get(claim.lock).is_some(), "a claim is of no key")?;
            require(sessions.records.get(claim.session).is_some(), "a claim is of no session")?;
            let session = &mut sessions.records[claim.session];
            require(session.open.find(claim.ticket).is_none(), "two claims have one ticket")?;
            require(!session.tickets.is_finished(claim.ticket), "a claim has a finished ticket")?;
            session.open.add(claim.ticket, slot);
            session.open.held += u32::from(claim.state != State::Queued);
            let is_dead = matches!(claim.state, State::Ending | State::Quarantined);
            require(session.is_live() != is_dead, "a claim lives, and its session does not, or the reverse")?;
            if claim.state == State::Quarantined {
                quarantined.push(claim.session);
            }
        }
        for session in quarantined {
            sessions.quarantine(session);
        }
        for (_, session) in sessions.records.iter() {
            require(session.is_live() || session.open.held > 0, "a session has ended and holds nothing")?;
        }
        Ok(())
    }

    /// Every claim that does not wait holds its key: alone, or in the group of the key's holders.
    fn link_holders(&self) -> Checked {
        let (mut holders, mut held, mut groups) = (0, 0, 0);
        for (slot, lock) in self.locks.records.iter() {
            if lock.holder == NONE {
                continue;
            }
            let first = found(self.claims.records.get(lock.holder), "a key's holder is no claim")?;
            require(first.lock == slot && first.state != State::Queued, "a key's holder does not hold it")?;
            if !first.is_shared() {
                require(lock.beside == NONE && first.beside == NONE, "who holds alone is in a group")?;
                holders += 1;
                continue;
            }
            groups += 1;
            held += self.link_group(slot)?;
        }
        require(groups == self.holders.groups_slab().len(), "a group is no key's")?;
        require(held == self.holders.holds().len(), "a holder is in no group")?;
        let waiting = self.claims.records.iter().filter(|(_, c)| c.state == State::Queued).count();
        require(holders + held + waiting == self.claims.records.len(), "a claim neither holds nor waits")
    }

    /// How many share a key.
    fn link_group(&self, slot: Slot) -> Result<usize, SnapshotFault> {
        let lock = &self.locks.records[slot];
        let group = found(self.holders.groups_slab().get(lock.beside), "a shared key has no group")?;
        let (mut at, tail) = group.ends();
        let (mut before, mut len, mut ending, mut last) = (NONE, 0, 0, 0);
        let lowest = self.holders.holds().get(at).map_or(0, |hold| hold.epoch.0);
        while at != NONE {
            let hold = found(self.holders.holds().get(at), "a group has a holder that is not there")?;
            let claim = found(self.claims.records.get(hold.claim), "a holder has no claim")?;
            let is_its = claim.lock == slot && claim.beside == at && claim.state != State::Queued;
            require(is_its && claim.is_shared(), "a holder's claim is not its own")?;
            require(before != NONE || hold.claim == lock.holder, "the first holder is not the key's")?;
            let (prev, next) = hold.links();
            require(prev == before && hold.epoch.0 > last, "holders are not in order")?;
            let is_fence = hold.barrier.0 > 0 && hold.barrier.0 <= lowest && hold.epoch <= lock.epoch;
            require(is_fence, "a holder's fence contradicts another's")?;
            ending += u32::from(claim.state == State::Ending);
            (before, at, len, last) = (at, next, len + 1, hold.epoch.0);
        }
        let is_whole = tail == before && len == group.len && len > 0 && ending == group.ending;
        require(is_whole, "a group does not know its holders")?;
        Ok(len as usize)
    }

    /// Queues are of waiters for their key; each stands in one.
    fn link_queues(&mut self) -> Checked {
        let Machine { locks, claims, .. } = self;
        let mut queued = 0;
        for (slot, lock) in locks.records.iter() {
            require(lock.queue.len == 0 || lock.holder != NONE, "a key is free and awaited")?;
            let is_whole = claims.restore_list(&lock.queue, |c| c.lock == slot && c.state == State::Queued);
            require(is_whole, "a queue is broken")?;
            claims.restore_chunks(&lock.queue);
            queued += lock.queue.len as usize;
        }
        let waiting = claims.records.iter().filter(|(_, c)| c.state == State::Queued).count();
        require(queued == waiting, "a waiter is in no queue")
    }

    /// The backlog is of the keys of the dead, and who is on no list has no neighbours.
    fn link_backlog(&self) -> Checked {
        for (list, is_wanted) in [(&self.wanted, true), (&self.unwanted, false)] {
            let awaited = |lock: Slot| self.locks.records[lock].queue.len > 0;
            let fits = |c: &crate::claims::Claim| c.state == State::Ending && awaited(c.lock) == is_wanted;
            require(self.claims.restore_list(list, fits), "the backlog is broken")?;
        }
        let mut ending = 0;
        for (_, claim) in self.claims.records.iter() {
            let is_alone = claim.prev == NONE && claim.next == NONE;
            match claim.state {
                State::Ending => ending += 1,
                State::Queued => {}
                State::Held | State::Quarantined => require(is_alone, "a holder is on a list")?,
            }
        }
        require(ending == self.wanted.len as u64 + u64::from(self.unwanted.len), "a key is in no backlog")
    }

    fn link_due(&mut self, due: &[Slot]) -> Checked {
        let marked = self.locks.records.iter().filter(|(_, lock)| lock.is_due).count();
        require(marked == due.len(), "keys that are due are not those on their list")?;
        let mut sorted = due.to_vec();
        sorted.sort_unstable();
        require(sorted.is_sorted_by(|a, b| a < b), "a key is due twice")?;
        for &slot in due {
            let lock = found(self.locks.records.get(slot), "a key that is due is not there")?;
            require(lock.is_due && lock.holder != NONE, "a key on the list is not due")?;
        }
        self.due = due.iter().copied().collect();
        Ok(())
    }

    /// Sessions count their ephemeral keys.
    fn link_values(&mut self) -> Checked {
        let Machine { values, sessions, .. } = self;
        for (session, count) in values.owners() {
            let slot = found(sessions.find(session), "an ephemeral key is of no session")?;
            if let Life::Live { values, .. } = &mut sessions.records[slot].life {
                *values = count;
            }
        }
        for (_, value) in values.iter().filter(|(_, value)| value.ending.is_some()) {
            require(sessions.find(value.session).is_none(), "an ephemeral key goes, and its session lives")?;
        }
        Ok(())
    }
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0 && self.head == NONE && self.tail == NONE
    }
}

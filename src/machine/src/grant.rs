//! Who holds a key: granting it, leaving it, and letting the next in line in (DESIGN sections 1 and 3).

use alloc::vec::Vec;

use palisade_types::limits::SHARED_GRANTS_PER_ENTRY;
use palisade_types::{Class, Epoch, Fence, Happened, Mutant, SessionId, TransitionKind};

use crate::claims::{Claim, State};
use crate::locks::{Tenure, bytes_of};
use crate::machine::{Applied, Effect, Machine};
use crate::news::of_grant;
use crate::slab::{NONE, Slot};

impl Machine {
    /// Makes a claim a holder of a key that nobody holds, or of one that is shared and that it shares:
    /// one epoch higher than the grant before. Returns its fence.
    pub(crate) fn grant(&mut self, at: Applied, lock: Slot, claim: Slot) -> Fence {
        let record = &mut self.claims.records[claim];
        let by = record.session;
        let owner = &mut self.sessions.records[by];
        assert!(owner.is_live() || self.mutants.has(Mutant::B22), "a grant only ever goes to a live session");
        owner.open.held += 1;
        record.state = State::Held;
        record.since = at.when();
        let held = &mut self.locks.records[lock];
        assert!(held.epoch < Epoch::MAX, "epochs stay below 2^63");
        held.epoch.0 += 1;
        let epoch = held.epoch;
        if held.resource != record.resource {
            self.locks.name_bytes += bytes_of(record.resource.as_ref());
            self.locks.name_bytes -= bytes_of(held.resource.as_ref());
            held.resource.clone_from(&record.resource);
        }
        let barrier = if record.is_shared() {
            self.join_holders(lock, claim)
        } else {
            assert!(held.holder == NONE, "who holds exclusively holds alone");
            held.holder = claim;
            epoch
        };
        let (held, owner) = (&self.locks.records[lock], &self.sessions.records[by]);
        let session = SessionId { shard: self.shard, opened: owner.opened };
        let what = match held.class {
            Class::Election => Happened::Elected { epoch, value: self.candidates.value(claim) },
            _ => Happened::Granted { epoch, barrier },
        };
        self.news.push(of_grant(at.index, held, session, owner.owner.as_ref(), what));
        Fence::new(held.key.clone(), epoch, barrier).expect("a grant's epoch is in range")
    }

    /// Adds a claim to those that share its key; returns its barrier.
    fn join_holders(&mut self, lock: Slot, claim: Slot) -> Epoch {
        let held = &mut self.locks.records[lock];
        if held.holder == NONE {
            held.holder = claim;
            held.beside = self.holders.create();
        } else {
            assert!(self.claims.records[held.holder].is_shared(), "nobody joins who holds exclusively");
        }
        let (hold, barrier) = self.holders.join(held.beside, claim, held.epoch);
        self.claims.records[claim].beside = hold;
        if self.mutants.has(Mutant::L1) { held.epoch } else { barrier }
    }

    /// The epoch and the barrier of a claim that holds its key.
    pub(crate) fn tenure_of(&self, claim: Slot) -> (Epoch, Epoch) {
        let record = &self.claims.records[claim];
        if record.is_shared() {
            let hold = self.holders.hold(record.beside);
            assert!(hold.claim == claim && record.state != State::Queued, "only a holder has a fence");
            return (hold.epoch, hold.barrier);
        }
        let lock = &self.locks.records[record.lock];
        assert_eq!(lock.holder, claim, "only a holder has a fence");
        (lock.epoch, lock.epoch)
    }

    /// What a claim that holds its key shows the resource. An exclusive holder's epoch is the lowest
    /// among the holders, so it is the barrier too.
    pub(crate) fn fence(&self, claim: Slot) -> Fence {
        let (epoch, barrier) = self.tenure_of(claim);
        let key = self.locks.records[self.claims.records[claim].lock].key.clone();
        Fence::new(key, epoch, barrier).expect("a grant's epoch is in range")
    }

    /// Ends the claim that holds a key, and lets in whoever is next in the same step. The claim is on no
    /// list; its ticket has been dealt with.
    pub(crate) fn vacate(
        &mut self,
        at: Applied,
        claim: Slot,
        how: TransitionKind,
        effects: &mut Vec<Effect>,
    ) {
        let (epoch, barrier) = self.tenure_of(claim);
        let ended = self.remove_claim(claim);
        let owner = &mut self.sessions.records[ended.session];
        owner.open.remove(ended.ticket);
        owner.open.held -= 1;
        let session = owner.opened;
        let id = SessionId { shard: self.shard, opened: session };
        let what = Happened::Released { epoch, barrier, how };
        self.news.push(of_grant(at.index, &self.locks.records[ended.lock], id, owner.owner.as_ref(), what));
        if !owner.is_live() && owner.open.is_empty() {
            self.sessions.records.remove(ended.session);
        }
        self.leave_holders(&ended);
        let tenure = Tenure { session, epoch, granted: ended.since, ended: at.when(), how };
        self.locks.history_mut(ended.lock).record(tenure);
        self.admit(at, ended.lock, effects);
    }

    /// Takes a claim off its key, of which it was a holder.
    pub(crate) fn leave_holders(&mut self, claim: &Claim) {
        let lock = &mut self.locks.records[claim.lock];
        if !claim.is_shared() {
            lock.holder = NONE;
            return;
        }
        if claim.state == State::Ending {
            self.holders.group_mut(lock.beside).ending -= 1;
        }
        lock.holder = self.holders.leave(lock.beside, claim.beside);
        if lock.holder == NONE {
            lock.beside = NONE;
        }
    }

    /// Lets in whoever may enter from the head of a key's queue: the first, if nobody holds the key, and
    /// those that can share it. As many of these as the entry has room for; the rest is for a sweep. A
    /// key that nobody holds or awaits becomes idle.
    pub(crate) fn admit(&mut self, at: Applied, lock: Slot, effects: &mut Vec<Effect>) {
        let was_awaited = self.locks.records[lock].queue.len > 0;
        loop {
            let record = &self.locks.records[lock];
            let (next, is_held) = (record.queue.head, record.holder != NONE);
            if next == NONE || (is_held && !self.can_share(lock, next)) {
                self.set_due(lock, false);
                break;
            }
            if is_held {
                if self.shared_grants == SHARED_GRANTS_PER_ENTRY {
                    self.set_due(lock, true);
                    break;
                }
                self.shared_grants += 1;
            }
            self.claims.dequeue(&mut self.locks.records[lock].queue, next);
            let fence = self.grant(at, lock, next);
            let record = &self.claims.records[next];
            let session = self.id(self.sessions.records[record.session].opened);
            effects.push(Effect::Granted { session, ticket: record.ticket, fence });
        }
        let record = &self.locks.records[lock];
        if record.holder == NONE {
            self.locks.make_idle(lock);
        } else if was_awaited && record.queue.len == 0 {
            self.sort_backlog(lock);
        }
    }

    /// Whether the first waiter of a key that is held may join its holders.
    fn can_share(&self, lock: Slot, waiter: Slot) -> bool {
        let holder = self.locks.records[lock].holder;
        self.claims.records[waiter].is_shared() && self.claims.records[holder].is_shared()
    }

    /// Puts a key at the end of those whose waiters wait for room in an entry, or takes it off.
    fn set_due(&mut self, lock: Slot, is_due: bool) {
        let record = &mut self.locks.records[lock];
        if record.is_due == is_due {
            return;
        }
        record.is_due = is_due;
        if is_due {
            self.due.push_back(lock);
        } else {
            self.due.retain(|&slot| slot != lock);
        }
    }

    /// What the dead hold stands in the backlog's list for keys that somebody waits for, or in the other.
    /// To be called when a key's queue begins or is gone: moves what the dead hold of it to where it
    /// belongs now.
    pub(crate) fn sort_backlog(&mut self, lock: Slot) {
        let record = &self.locks.records[lock];
        let state = |claim: Slot| self.claims.records[claim].state;
        let ending: Vec<Slot> = if !self.claims.records[record.holder].is_shared() {
            [record.holder].into_iter().filter(|&claim| state(claim) == State::Ending).collect()
        } else if self.holders.group(record.beside).ending > 0 {
            let claims = self.holders.iter(record.beside).map(|hold| hold.claim);
            claims.filter(|&claim| state(claim) == State::Ending).collect()
        } else {
            return;
        };
        let Machine { claims, wanted, unwanted, .. } = self;
        let (from, to) = if record.queue.len > 0 { (unwanted, wanted) } else { (wanted, unwanted) };
        for claim in ending {
            claims.unlink(from, claim);
            claims.link(to, claim);
        }
    }

    /// Puts a key of a dead session in the backlog.
    pub(crate) fn put_off(&mut self, claim: Slot) {
        let record = &mut self.claims.records[claim];
        record.state = State::Ending;
        let is_shared = record.is_shared();
        let lock = &self.locks.records[record.lock];
        if is_shared {
            self.holders.group_mut(lock.beside).ending += 1;
        }
        let list = if lock.queue.len > 0 { &mut self.wanted } else { &mut self.unwanted };
        self.claims.link(list, claim);
    }

    /// Removes a claim's record, and the value that came with it.
    pub(crate) fn remove_claim(&mut self, claim: Slot) -> Claim {
        let record = self.claims.remove(claim);
        if self.locks.records[record.lock].class == Class::Election {
            self.candidates.remove(claim);
        }
        record
    }
}

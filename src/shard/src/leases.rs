//! Reads by lease (DESIGN section 7). Whether the lease holds is looked up once a turn, with a time
//! that was read after all of them had arrived: a pause between a look at the clock and the arrival of
//! a read would otherwise make an old leader answer a new question.

use alloc::vec::Vec;
use core::mem::take;

use palisade_types::reply::Consistency;
use palisade_types::{LogIndex, Time};

use crate::action::Actions;
use crate::rounds::{Item, Read};
use crate::shard::Shard;

/// Reads that asked for the lease, at a node that leads.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// They arrived in this turn.
    arrived: Vec<Read>,
    /// The lease held after they arrived; what was committed then is not applied yet.
    applying: Vec<(LogIndex, Vec<Read>)>,
}

impl Leases {
    /// Joins those of this turn.
    pub(crate) fn join(&mut self, read: Read) {
        self.arrived.push(read);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.arrived.len() + self.applying.iter().map(|(_, reads)| reads.len()).sum::<usize>()
    }

    /// Leadership was lost: everything in hand.
    pub(crate) fn take_all(&mut self) -> Vec<Read> {
        let applying = take(&mut self.applying).into_iter().flat_map(|(_, reads)| reads);
        take(&mut self.arrived).into_iter().chain(applying).collect()
    }
}

/// Indexes rise: what can be answered comes first.
fn take_applied(applying: &mut Vec<(LogIndex, Vec<Read>)>, applied: LogIndex) -> Vec<(LogIndex, Vec<Read>)> {
    let ready = applying.partition_point(|(index, _)| *index <= applied);
    applying.drain(..ready).collect()
}

impl Shard {
    /// What the clock of leases shows (CLOCK_BOOTTIME), read before anything is sent that follows.
    pub fn lease_time(&mut self, at: Time) {
        self.raft.lease_time(at);
    }

    /// Answers the reads by lease that have arrived, if the lease holds at `at`, which was read from the
    /// clock of leases after the last of them arrived. If it does not, they wait for a round like others.
    pub fn serve_leases(&mut self, now: Time, at: Time, out: &mut Actions) {
        let reads = take(&mut self.leases.arrived);
        if reads.is_empty() {
            return;
        }
        if self.serving && self.raft.holds_lease(at) {
            self.leases.applying.push((self.raft.commit(), reads));
            self.serve_leased(now, out);
        } else {
            reads.into_iter().for_each(|read| self.rounds.join(Item::Read(read)));
        }
    }

    /// Answers those that waited only for apply.
    pub(crate) fn serve_leased(&mut self, now: Time, out: &mut Actions) {
        let applied = self.applied;
        for (_, reads) in take_applied(&mut self.leases.applying, applied) {
            self.counters.lease_reads += reads.len() as u64;
            reads.iter().for_each(|read| self.answer_read(now, Consistency::Lease, read, out));
        }
    }
}

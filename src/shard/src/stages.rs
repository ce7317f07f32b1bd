//! How long the blocks of a leader take from one stage to the next. For measuring only: nothing is
//! decided by it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use palisade_types::{LogIndex, Time};

/// A part of the way of a command through a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the first command of a block to its sealing.
    Queue,
    /// From the sealing to the end of this node's own sync.
    Disk,
    /// From the sealing until a quorum's disks hold the block.
    Replicate,
    /// From there until it is applied here.
    Apply,
}

/// A block went through a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Which stage.
    pub stage: Stage,
    /// How long it took, to the beginning of the turn that saw its end.
    pub took: Duration,
    /// How many commands went through.
    pub commands: u32,
}

#[derive(Debug)]
struct Under {
    last: LogIndex,
    commands: u32,
    sealed_at: Time,
    committed_at: Time,
}

/// The blocks of this leadership that are under way.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// Not yet applied here, or not yet on this node's own disk.
    blocks: VecDeque<Under>,
    /// How many of them are behind each stage, from the front.
    durable: usize,
    committed: usize,
    applied: usize,
}

impl Stages {
    /// A block was sealed whose first command came at `opened_at`.
    pub(crate) fn sealed(
        &mut self,
        now: Time,
        opened_at: Time,
        last: LogIndex,
        commands: u32,
        out: &mut Vec<Passed>,
    ) {
        out.push(Passed { stage: Stage::Queue, took: now.since(opened_at), commands });
        self.blocks.push_back(Under { last, commands, sealed_at: now, committed_at: now });
    }

    /// This node's disk holds the log up to `durable`, a quorum's up to `commit`, and it is applied
    /// up to `applied`.
    pub(crate) fn reached(
        &mut self,
        now: Time,
        durable: LogIndex,
        commit: LogIndex,
        applied: LogIndex,
        out: &mut Vec<Passed>,
    ) {
        while let Some(b) = self.blocks.get(self.durable).filter(|b| b.last <= durable) {
            out.push(Passed { stage: Stage::Disk, took: now.since(b.sealed_at), commands: b.commands });
            self.durable += 1;
        }
        while let Some(b) = self.blocks.get_mut(self.committed).filter(|b| b.last <= commit) {
            b.committed_at = now;
            out.push(Passed { stage: Stage::Replicate, took: now.since(b.sealed_at), commands: b.commands });
            self.committed += 1;
        }
        while let Some(b) = self.blocks.get(self.applied).filter(|b| b.last <= applied) {
            out.push(Passed { stage: Stage::Apply, took: now.since(b.committed_at), commands: b.commands });
            self.applied += 1;
        }
        // The own disk may lag behind the others', which then commit and apply without it.
        let done = self.durable.min(self.applied);
        self.blocks.drain(..done);
        self.durable -= done;
        self.committed -= done;
        self.applied -= done;
    }

    /// The leadership is over.
    pub(crate) fn clear(&mut self) {
        *self = Stages::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn every_block_passes_every_stage_once_and_is_forgotten() {
        let (mut stages, mut out) = (Stages::default(), Vec::new());
        stages.sealed(at(3), at(1), LogIndex(10), 10, &mut out);
        stages.sealed(at(4), at(4), LogIndex(12), 2, &mut out);
        // Two others were faster than this node's own disk.
        stages.reached(at(6), LogIndex(0), LogIndex(10), LogIndex(0), &mut out);
        stages.reached(at(7), LogIndex(0), LogIndex(10), LogIndex(10), &mut out);
        stages.reached(at(9), LogIndex(12), LogIndex(12), LogIndex(12), &mut out);
        stages.reached(at(20), LogIndex(12), LogIndex(12), LogIndex(12), &mut out);
        let seen: Vec<_> = out.iter().map(|p| (p.stage, p.took.as_millis(), p.commands)).collect();
        assert_eq!(
            seen,
            [
                (Stage::Queue, 2, 10),
                (Stage::Queue, 0, 2),
                (Stage::Replicate, 3, 10),
                (Stage::Apply, 1, 10),
                (Stage::Disk, 6, 10),
                (Stage::Disk, 5, 2),
                (Stage::Replicate, 5, 2),
                (Stage::Apply, 0, 2),
            ]
        );
        assert!(stages.blocks.is_empty());
    }
}

//! Crashes: at every operation, with every operation under way half done, again and again.

use alloc::vec;
use alloc::vec::Vec;
use palisade_types::{Block, HardState, LogIndex, Rng, Term, Time};

use super::{Run, block, config, formatted, hard, recover};
use crate::*;

/// One persist as it was appended.
struct Step {
    hard_state: Option<HardState>,
    keep: usize,
    blocks: Vec<Block>,
}

/// A run with all that was appended since the start, to judge what a crash leaves.
struct Judged {
    run: Run,
    base: Vec<Block>,
    base_hard: HardState,
    steps: Vec<Step>,
}

impl Judged {
    fn start(disk: SimDisk, seed: u64) -> Judged {
        let recovered = recover(&disk).unwrap();
        let (base, base_hard) = (recovered.blocks.clone(), recovered.hard_state);
        let wal = Wal::open(config(seed), recovered.tail, Time::ZERO);
        let log = recovered.blocks;
        let run = Run { disk, wal, now: Time::ZERO, log, persist: 0, open_ops: Default::default() };
        Judged { run, base, base_hard, steps: vec![] }
    }

    fn append(&mut self, rng: &mut Rng) {
        let run = &mut self.run;
        let in_force = self.steps.iter().rev().find_map(|s| s.hard_state).unwrap_or(self.base_hard);
        let floor = run.log.last().map_or(Term(1), Block::term).max(in_force.term);
        let hard_state = rng.per_mille(300).then(|| hard(floor.0 + rng.below(2), 1 + rng.below(3) as u32));
        // A vote is given once in a term.
        let hard_state = hard_state.filter(|h| h.term > in_force.term);
        let term = hard_state.map_or(in_force.term, |h| h.term);
        let mut step = Step { hard_state, keep: run.log.len(), blocks: vec![] };
        if term > Term(0) {
            if rng.per_mille(200) {
                step.keep -= rng.below(3).min(step.keep as u64) as usize;
            }
            let cut = (step.keep < run.log.len())
                .then(|| run.log[..step.keep].last().map_or(LogIndex(0), Block::last));
            run.log.truncate(step.keep);
            for _ in 0..rng.below(4) {
                let next = block(&run.log, term.0, 1 + rng.below(2) as usize, rng.below(4000) as usize);
                run.log.push(next.clone());
                step.blocks.push(next);
            }
            run.persist += 1;
            run.wal.append(run.persist, hard_state, cut, step.blocks.clone(), LogIndex(0));
            self.steps.push(step);
        }
    }

    /// Everything a crash may leave: what was durable, and what was appended since, in order; an
    /// append of several blocks may be there in part.
    fn allowed(&self) -> Vec<Vec<Block>> {
        let durable = self.run.wal.durable() as usize;
        let mut log = self.base.clone();
        let mut allowed = vec![];
        for (number, step) in self.steps.iter().enumerate() {
            if number >= durable {
                allowed.push(log.clone());
            }
            log.truncate(step.keep);
            for block in &step.blocks {
                if number >= durable {
                    allowed.push(log.clone());
                }
                log.push(block.clone());
            }
        }
        allowed.push(log);
        allowed
    }

    fn allowed_hard(&self) -> Vec<HardState> {
        let durable = self.run.wal.durable() as usize;
        let (old, new) = self.steps.split_at(durable);
        let mut allowed = vec![old.iter().rev().find_map(|s| s.hard_state).unwrap_or(self.base_hard)];
        allowed.extend(new.iter().filter_map(|s| s.hard_state));
        allowed
    }

    fn check(&self, what: &str) -> Recovered {
        let recovered = match recover(&self.run.disk) {
            Ok(recovered) => recovered,
            Err(fault) => panic!("{what}: a crash alone is never refused: {fault}"),
        };
        assert!(self.allowed().contains(&recovered.blocks), "{what}: the log is none that was written");
        let found = (recovered.hard_state.term, recovered.hard_state.vote);
        assert!(self.allowed_hard().iter().any(|h| (h.term, h.vote) == found), "{what}: {found:?}");
        let raised = recovered.notes.iter().any(|n| matches!(n, Note::TermRaised { .. }));
        assert!(!raised, "{what}: a block of a term that is not durable");
        recovered
    }
}

#[test]
fn a_crash_at_any_moment_leaves_what_was_acknowledged() {
    let mut suspects = 0;
    let mut torn = 0;
    for seed in 0..1500 {
        let mut rng = Rng::new(seed);
        let mut disk = formatted();
        for start in 0..6 {
            let mut judged = Judged::start(disk, seed * 10 + start);
            for _ in 0..rng.below(40) {
                match rng.below(10) {
                    0..=3 => judged.append(&mut rng),
                    4 => judged.run.now = judged.run.now + core::time::Duration::from_millis(rng.below(20)),
                    5..=7 => judged.run.begin(),
                    _ => {
                        // Operations end in any order.
                        let turns = rng.below(1 + judged.run.open_ops.len() as u64) as usize;
                        judged
                            .run
                            .open_ops
                            .rotate_left(turns.min(judged.run.open_ops.len().saturating_sub(1)));
                        judged.run.end_one();
                    }
                }
            }
            if rng.per_mille(700) {
                judged.run.disk.crash(&mut rng);
            } else {
                judged.run.disk.kill(&mut rng);
            }
            let recovered = judged.check(&std::format!("seed {seed}, start {start}"));
            suspects += recovered.notes.iter().filter(|n| matches!(n, Note::SuspectTail { .. })).count();
            torn += recovered.notes.iter().filter(|n| matches!(n, Note::TornTail { .. })).count();
            disk = judged.run.disk;
        }
    }
    assert!(suspects > 100 && torn > 100, "the test met {suspects} suspect and {torn} torn tails");
}

/// Every history of up to four appends, with a crash after every number of operations.
#[test]
fn short_histories_crash_at_every_operation() {
    for history in 0..256u64 {
        for stop in 0..14 {
            for harm in 0..3 {
                let mut rng = Rng::new(history * 1000 + stop * 10 + harm);
                let mut judged = Judged::start(formatted(), history);
                let mut ended = 0;
                let mut choice = Rng::new(history);
                let mut left = 4;
                loop {
                    judged.run.begin();
                    if ended == stop {
                        break;
                    }
                    if left > 0 && choice.per_mille(600) {
                        left -= 1;
                        judged.append(&mut choice);
                    } else if judged.run.end_one() {
                        ended += 1;
                    } else if left == 0 {
                        break;
                    }
                }
                judged.run.disk.crash(&mut rng);
                judged.check(&std::format!("history {history}, stop {stop}, harm {harm}"));
            }
        }
    }
}

#[test]
fn a_dropped_tail_stays_dropped_through_crashes_of_the_next_starts() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut run = Run::fresh();
        for _ in 0..rng.between(1, 6) {
            run.append(1, rng.below(3000) as usize);
            run.settle();
        }
        // The last append is in flight when the power fails.
        run.append(1, 3000);
        run.begin();
        run.disk.crash(&mut rng);
        let first = recover(&run.disk).unwrap().blocks;
        let mut disk = run.disk;
        for start in 0..rng.between(1, 5) {
            let mut again = Run::start(disk, seed + start);
            for _ in 0..rng.below(3) {
                again.begin();
                again.end_one();
            }
            again.begin();
            again.disk.crash(&mut rng);
            assert_eq!(recover(&again.disk).unwrap().blocks, first, "seed {seed}");
            disk = again.disk;
        }
        // Another block takes its place; nothing of the old one shows any more.
        let mut run = Run::start(disk, seed + 99);
        run.append(2, 100);
        run.settle();
        run.disk.crash(&mut rng);
        assert_eq!(recover(&run.disk).unwrap().blocks, run.log);
    }
}

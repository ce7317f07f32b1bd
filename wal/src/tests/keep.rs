//! Crashes while snapshots are written, the log is cut behind them, and a leader's replaces it: the
//! old state or the new one, never none and never another.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_types::{Block, Edge, HardState, LogIndex, Mutants, Rng, SnapshotId, Time};

use super::snapshots::{edge_of, state, state_of};
use super::{Run, block, config, formatted, hard, identity};
use crate::*;

/// One persist.
struct Step {
    keep: usize,
    blocks: Vec<Block>,
    /// The log that replaced everything.
    replaced: Option<Vec<Block>>,
}

/// A node with all it was told since its start. Logs are kept here from index 1 on, also the part that
/// the node has only as a snapshot.
pub(crate) struct Node {
    pub(crate) run: Run,
    mutants: Mutants,
    base: Vec<Block>,
    steps: Vec<Step>,
    term: u64,
    commit: usize,
    /// Logs of leaders whose snapshots were handed in, up to the snapshot.
    received: Vec<Vec<Block>>,
    /// That of the one being written, and its name.
    coming: Option<(SnapshotId, Vec<Block>)>,
}

fn recover(disk: &SimDisk, mutants: Mutants) -> Result<Recovered, RecoverError> {
    recover_with(disk, &identity(), super::SHARD, mutants)
}

impl Node {
    /// A new node.
    pub(crate) fn new(mutants: Mutants) -> Node {
        Node::start(formatted(), vec![], 1, mutants)
    }

    fn start(disk: SimDisk, log: Vec<Block>, seed: u64, mutants: Mutants) -> Node {
        let recovered = recover(&disk, mutants).unwrap();
        let (HardState { term, commit, .. }, persist) = (recovered.hard_state, 0);
        let wal = Wal::open(WalConfig { mutants, ..config(seed) }, recovered.tail, Time::ZERO);
        let run = Run { disk, wal, now: Time::ZERO, log: log.clone(), persist, open_ops: Default::default() };
        let commit = log.partition_point(|b| b.last() <= commit);
        let base = log;
        Node { run, mutants, base, steps: vec![], term: term.0, commit, received: vec![], coming: None }
    }

    fn hint(&self) -> LogIndex {
        self.run.log[..self.commit].last().map_or(LogIndex(0), Block::last)
    }

    pub(crate) fn append(&mut self, rng: &mut Rng) {
        let hint = self.hint();
        let run = &mut self.run;
        self.term += u64::from(rng.per_mille(200)) + u64::from(self.term == 0);
        let mut keep = run.log.len();
        if rng.per_mille(250) {
            keep -= rng.below(3).min((keep - self.commit) as u64) as usize;
        }
        let cut = (keep < run.log.len()).then(|| run.log[..keep].last().map_or(LogIndex(0), Block::last));
        run.log.truncate(keep);
        let mut blocks = vec![];
        for _ in 0..rng.below(4) {
            let next = block(&run.log, self.term, 1 + rng.below(2) as usize, rng.below(2500) as usize);
            run.log.push(next.clone());
            blocks.push(next);
        }
        run.persist += 1;
        run.wal.append(run.persist, Some(hard(self.term, 1)), cut, blocks.clone(), hint);
        self.steps.push(Step { keep, blocks, replaced: None });
    }

    /// More of the log is committed: nothing that a leader's snapshot, which is, contradicts.
    pub(crate) fn commit(&mut self, rng: &mut Rng) {
        let log = &self.run.log;
        let common = self.coming.as_ref().map_or(log.len(), |(_, other)| {
            let same = log.iter().zip(other).take_while(|(a, b)| a == b).count();
            if same == other.len() { log.len() } else { same }
        });
        self.commit += rng.below(1 + common.saturating_sub(self.commit) as u64) as usize;
    }

    fn is_newer(&self, edge: &Edge) -> bool {
        self.run.wal.snapshot().is_none_or(|s| s.last < edge.index)
    }

    /// Begins a snapshot of what is committed.
    pub(crate) fn snapshot(&mut self) {
        let Some(edge) = self.run.log[..self.commit].last().map(edge_of) else { return };
        if !self.run.wal.is_writing_snapshot() && self.is_newer(&edge) {
            self.run.hand_snapshot(edge, 3);
        }
    }

    /// A leader sends its snapshot: of a log that goes on from what is committed here, often otherwise.
    pub(crate) fn receive(&mut self, rng: &mut Rng) {
        let mut log = self.run.log.clone();
        log.truncate(self.commit + rng.below(1 + (log.len() - self.commit) as u64) as usize);
        let own = rng.per_mille(200);
        self.term += u64::from(!own);
        for _ in 0..if own { 0 } else { rng.between(1, 4) } {
            log.push(block(&log, self.term, 1 + rng.below(2) as usize, 77));
        }
        let Some(edge) = log.last().map(edge_of) else { return };
        if self.run.wal.is_writing_snapshot() || !self.is_newer(&edge) || edge.index <= self.hint() {
            return;
        }
        // Its term is on its way to the disk before its first chunk.
        let hint = self.hint();
        self.run.persist += 1;
        self.run.wal.append(self.run.persist, Some(hard(self.term, 1)), None, vec![], hint);
        let keep = self.run.log.len();
        self.steps.push(Step { keep, blocks: vec![], replaced: None });
        let id = self.run.hand_snapshot(edge, 3);
        self.received.push(log.clone());
        self.coming = Some((id, log));
    }

    /// Goes on where a snapshot has become durable.
    pub(crate) fn take_end(&mut self) {
        let Some(end) = self.run.wal.take_snapshot_end() else { return };
        let id = end.expect("the disk has room");
        assert_eq!(self.run.wal.snapshot(), Some(id));
        let Some((_, log)) = self.coming.take_if(|(coming, _)| *coming == id) else { return };
        let has = self.run.log.iter().any(|b| edge_of(b) == id.edge());
        if !has {
            self.run.persist += 1;
            self.run.wal.install(self.run.persist, id);
            self.run.log = log.clone();
            self.steps.push(Step { keep: 0, blocks: vec![], replaced: Some(log) });
        }
        let reached = self.run.log.iter().position(|b| b.last() == id.last);
        self.commit = self.commit.max(reached.map_or(0, |p| p + 1));
    }

    pub(crate) fn compact(&mut self, rng: &mut Rng) {
        let upto = if rng.per_mille(500) { u64::MAX } else { rng.below(1 + self.hint().0) };
        self.run.wal.compact(LogIndex(upto));
    }

    /// Everything a crash may leave of the log.
    fn allowed(&self) -> Vec<Vec<Block>> {
        let durable = self.run.wal.durable() as usize;
        let mut log = self.base.clone();
        let mut allowed = vec![];
        for (number, step) in self.steps.iter().enumerate() {
            if number >= durable {
                allowed.push(log.clone());
            }
            if let Some(replaced) = &step.replaced {
                log = replaced.clone();
                continue;
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

    /// Recovers, and returns the whole log that this stands for.
    pub(crate) fn check(&self) -> Result<Vec<Block>, String> {
        let recovered = recover(&self.run.disk, self.mutants).map_err(|e| std::format!("refused: {e}"))?;
        let allowed = self.allowed();
        let fits = |log: &&Vec<Block>| is_of(&recovered, log);
        let found = match allowed.iter().find(fits) {
            Some(log) => log,
            None => {
                let received = self.received.iter().find(fits).ok_or("a log that never was")?;
                let edge = received.last().map(edge_of);
                let had = |log: &Vec<Block>| log.iter().map(edge_of).any(|e| Some(e) == edge);
                if allowed.iter().all(had) {
                    return Err("what follows the snapshot was dropped".into());
                }
                received
            }
        };
        if recovered.snapshot.map(|s| s.last) < self.run.wal.snapshot().map(|s| s.last) {
            return Err("a durable snapshot is gone".into());
        }
        if let Some(id) = recovered.snapshot
            && state(&self.run.disk, id) != state_of(&id.edge())
        {
            return Err("another state".into());
        }
        if recovered.notes.iter().any(|n| matches!(n, Note::TermRaised { .. })) {
            return Err("something of a term that is not durable".into());
        }
        Ok(found.clone())
    }

    /// Loses power or is killed, and starts again.
    pub(crate) fn crash(mut self, rng: &mut Rng) -> Result<Node, String> {
        if rng.per_mille(700) {
            self.run.disk.crash(rng);
        } else {
            self.run.disk.kill(rng);
        }
        let log = self.check()?;
        Ok(Node::start(self.run.disk, log, rng.next_u64(), self.mutants))
    }
}

/// Whether what was recovered is this log, in part as a snapshot.
fn is_of(recovered: &Recovered, log: &[Block]) -> bool {
    let edge = |index: LogIndex| log.iter().map(edge_of).find(|e| e.index == index);
    let base = recovered.base;
    let rest = log.iter().filter(|b| b.first() > base.index);
    let snapshot =
        recovered.snapshot.map_or(Some(Edge::default()), |s| edge(s.last).filter(|e| *e == s.edge()));
    let based = base == Edge::default() || edge(base.index) == Some(base);
    based && snapshot.is_some_and(|s| s.index >= base.index) && rest.eq(recovered.blocks.iter())
}

/// A history of random doings, with so many starts.
pub(crate) fn history(seed: u64, starts: u64, mutants: Mutants) -> Result<Vec<usize>, String> {
    let mut rng = Rng::new(seed);
    let mut node = Node::new(mutants);
    let mut met = vec![0; 4];
    for _ in 0..starts {
        for _ in 0..rng.below(120) {
            match rng.below(20) {
                0..=4 => node.append(&mut rng),
                5 | 6 => node.commit(&mut rng),
                7 => node.snapshot(),
                8 if rng.per_mille(300) => node.receive(&mut rng),
                9 => node.compact(&mut rng),
                10..=13 => node.run.begin(),
                _ => {
                    let ops = &mut node.run.open_ops;
                    let turns = rng.below(1 + ops.len() as u64) as usize;
                    ops.rotate_left(turns.min(ops.len().saturating_sub(1)));
                    node.run.end_one();
                    node.take_end();
                }
            }
        }
        node = node.crash(&mut rng)?;
        let recovered = recover(&node.run.disk, mutants).map_err(|e| std::format!("{e}"))?;
        met[0] += usize::from(recovered.base.index > LogIndex(0));
        met[1] += usize::from(recovered.snapshot.is_some());
        met[2] += recovered.notes.iter().filter(|n| matches!(n, Note::Restarted { .. })).count();
        met[3] += recovered.notes.iter().filter(|n| matches!(n, Note::Leftover { .. })).count();
    }
    Ok(met)
}

#[test]
fn a_crash_at_any_moment_leaves_the_old_state_or_the_new() {
    let mut met = [0; 4];
    for seed in 0..700 {
        match history(seed, 6, Mutants::NONE) {
            Ok(found) => met.iter_mut().zip(found).for_each(|(sum, n)| *sum += n),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    assert!(met.iter().all(|n| *n > 20), "based, snapshots, restarts, leftovers: {met:?}");
}

/// A node with two snapshots behind it does what is asked; the power fails after every number of
/// operations, with what is under way in many ways half done.
fn at_every_operation(mutants: Mutants, act: impl Fn(&mut Node, &mut Rng)) -> Result<usize, String> {
    let mut stop = 0;
    loop {
        let mut done = 0;
        for harm in 0..12 {
            let mut rng = Rng::new(5);
            let mut node = Node::new(mutants);
            for _ in 0..3 {
                for _ in 0..9 {
                    node.append(&mut rng);
                    node.commit(&mut rng);
                }
                node.snapshot();
                node.run.settle();
                node.take_end();
            }
            act(&mut node, &mut rng);
            done = 0;
            while done < stop {
                node.run.begin();
                if !node.run.end_one() {
                    break;
                }
                node.take_end();
                done += 1;
            }
            node.run.begin();
            let mut rng = Rng::new(stop * 100 + harm);
            let node =
                node.crash(&mut rng).map_err(|e| std::format!("operation {stop}, harm {harm}: {e}"))?;
            // And once more, in the middle of the next start.
            let mut node = node;
            node.run.begin();
            node.run.end_one();
            node.run.begin();
            node.crash(&mut rng).map_err(|e| std::format!("operation {stop}, harm {harm}, again: {e}"))?;
        }
        if done < stop {
            return Ok(stop as usize);
        }
        stop += 1;
    }
}

#[test]
fn a_snapshot_of_ones_own_crashes_at_every_operation() {
    let operations = at_every_operation(Mutants::NONE, |node, rng| {
        while !node.run.wal.is_writing_snapshot() {
            node.append(rng);
            node.commit = node.run.log.len();
            node.snapshot();
        }
    });
    let operations = operations.unwrap();
    assert!(operations > 10, "{operations}");
}

#[test]
fn compaction_crashes_at_every_operation() {
    let operations = at_every_operation(Mutants::NONE, |node, _| node.run.wal.compact(LogIndex(u64::MAX)));
    assert!(operations.unwrap() > 2);
}

#[test]
fn an_install_crashes_at_every_operation() {
    for seed in 0..6 {
        let operations = at_every_operation(Mutants::NONE, |node, _| {
            let mut rng = Rng::new(seed);
            node.append(&mut rng);
            while !node.run.wal.is_writing_snapshot() {
                node.receive(&mut rng);
            }
            node.append(&mut rng);
        });
        let operations = operations.unwrap();
        assert!(operations > 8, "seed {seed}: {operations}");
    }
}

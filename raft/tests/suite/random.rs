//! Random schedules: loss, repetition, reordering, slow disks, crashes, pauses, partitions. The
//! judge watches every step; afterwards the cluster must come to one log and take new blocks.

use palisade_raft::Role;
use palisade_types::{Mutant, Mutants, NodeId, Rng, Time};

use crate::cluster::Cluster;

struct World {
    cluster: Cluster,
    rng: Rng,
    /// Links that lose everything, from and to.
    cut: Vec<(NodeId, NodeId)>,
    /// Nodes whose disk or process stands still.
    stuck: Vec<u32>,
    /// Of a thousand packets, so many are lost, and so many repeated.
    loss: u64,
    repeat: u64,
    /// Of a thousand steps, so many give a disk the time to finish something.
    disk: u64,
}

impl World {
    fn new(seed: u64, mutants: Mutants) -> World {
        let mut rng = Rng::new(seed);
        let size = [3, 3, 5, 4][rng.below(4) as usize];
        let (messages, bytes, slice) = (1 + rng.below(6), 1 + rng.below(400), 1 + rng.below(3));
        let (keep, window) = ([0, 0, 0, 300][rng.below(4) as usize], 1 + rng.below(4));
        let cluster = Cluster::with_logs(&vec![&[][..]; size], seed, |config| {
            config.inflight_messages_max = messages as usize;
            config.append_bytes_max = bytes as usize;
            config.committed_blocks_max = slice as usize;
            config.log_keep_bytes = keep;
            config.snapshot_window = window as u32;
            config.mutants = mutants;
        });
        let (loss, repeat, disk) = (rng.below(200), rng.below(100), rng.between(40, 250));
        World { cluster, rng, cut: Vec::new(), stuck: Vec::new(), loss, repeat, disk }
    }

    fn any_node(&mut self) -> u32 {
        let ids = self.cluster.ids();
        ids[self.rng.below(ids.len() as u64) as usize]
    }

    fn deliver_any(&mut self) {
        if self.cluster.wire.is_empty() {
            return self.pass_time();
        }
        // Mostly the oldest, so that time does not run away from the messages.
        let len = self.cluster.wire.len() as u64;
        let at = if self.rng.per_mille(700) { 0 } else { self.rng.below(len) };
        let packet = self.cluster.wire.remove(at as usize);
        if self.cut.contains(&(packet.from, packet.to)) || self.rng.per_mille(self.loss) {
            return;
        }
        if self.rng.per_mille(self.repeat) {
            self.cluster.wire.push(packet.clone());
        }
        self.cluster.deliver(packet);
    }

    fn pass_time(&mut self) {
        let step = self.rng.between(1, 60) * 1_000_000;
        self.cluster.now = Time(self.cluster.now.0 + step);
        for id in self.cluster.ids() {
            let due = self.cluster.node(id).raft.next_deadline() <= self.cluster.now;
            if due && !self.stuck.contains(&id) {
                self.cluster.tick(id);
            }
        }
    }

    fn crash(&mut self) {
        let id = self.any_node();
        // Of what the disk was asked for, some prefix may have got there.
        let pending = self.cluster.node(id).pending.len() as u64;
        for _ in 0..self.rng.below(pending + 1) {
            let node = self.cluster.node(id);
            let persist = node.pending.pop_front().expect("counted");
            node.disk.perform(&persist);
        }
        self.cluster.restart(id);
    }

    /// Everybody who believes to lead hands over, to somebody or to whoever is able.
    fn transfer(&mut self) {
        let (to, now) = (self.any_node(), self.cluster.now);
        let to = self.rng.per_mille(500).then_some(NodeId(to));
        for id in self.cluster.leaders() {
            // It may be under way, or to itself.
            let _ = self.cluster.node(id).raft.transfer(now, to);
        }
    }

    fn change_faults(&mut self) {
        let (a, b) = (self.any_node(), self.any_node());
        match self.rng.below(5) {
            0 => self.cut.push((NodeId(a), NodeId(b))),
            1 => self.cut.extend([(NodeId(a), NodeId(b)), (NodeId(b), NodeId(a))]),
            2 => self.stuck.push(a),
            _ => {
                self.cut.clear();
                self.stuck.clear();
            }
        }
    }

    fn act(&mut self) {
        if self.rng.per_mille(self.disk) {
            let id = self.any_node();
            if !self.stuck.contains(&id) {
                let count = self.rng.between(1, 2) as usize;
                self.cluster.persist(id, count);
            }
        }
        match self.rng.below(1000) {
            0..800 => self.deliver_any(),
            800..920 => self.pass_time(),
            920..960 => {
                for id in self.cluster.leaders() {
                    let handing_over = self.cluster.node(id).raft.is_transferring();
                    assert_eq!(self.cluster.propose(id, "work").is_err(), handing_over, "it leads");
                }
            }
            960..962 => self.transfer(),
            962..970 => {
                for id in self.cluster.leaders() {
                    let _ = self.cluster.round(id);
                }
            }
            970..990 => {
                for id in self.cluster.ids() {
                    match self.rng.below(3) {
                        0 => {}
                        1 => self.cluster.snapshot_begin(id),
                        _ => self.cluster.snapshot_finish(id),
                    }
                }
            }
            990..995 => self.crash(),
            _ => self.change_faults(),
        }
        // Usually work is taken at once, sometimes several events gather first.
        if self.rng.per_mille(800) {
            for id in self.cluster.ids() {
                self.cluster.ready(id);
            }
        }
    }

    fn check_logs(&self) {
        let logs: Vec<_> = self.cluster.nodes.values().map(|n| n.memory()).collect();
        self.cluster.judge.logs_match(&logs);
    }

    /// Faults end; the cluster must find one leader, agree, and work.
    fn heal(&mut self) {
        let all = self.cluster.ids();
        self.cluster.wire.clear();
        self.cluster.run(&all, 20_000);
        let leaders = self.cluster.leaders();
        assert_eq!(leaders.len(), 1, "one leader after healing");
        let term = self.cluster.status(leaders[0]).term;
        self.check_logs();
        let block = self.cluster.propose(leaders[0], "after the storm").expect("it leads");
        let round = self.cluster.round(leaders[0]).expect("it has committed in its term");
        self.cluster.run(&all, 1_000);
        assert_eq!(self.cluster.node(leaders[0]).confirmed, Some(round.id));
        for &id in &all {
            let status = self.cluster.status(id);
            assert_eq!((status.commit, status.durable), (block.last(), block.last()), "node {id} has it all");
            assert_eq!(status.term, term, "a healthy cluster keeps its term");
            assert_eq!(self.cluster.nodes[&NodeId(id)].applied, self.cluster.judge.committed);
        }
    }
}

fn run(seed: u64, mutants: Mutants) -> (usize, usize, Vec<String>) {
    let mut world = World::new(seed, mutants);
    for step in 0..3_000 {
        world.act();
        if step % 100 == 0 {
            world.check_logs();
        }
    }
    world.heal();
    (world.cluster.judge.committed.len(), world.cluster.judge.installs, world.cluster.trace)
}

#[test]
fn no_schedule_breaks_safety_and_every_storm_ends() {
    let (mut committed, mut installed) = (0, 0);
    for seed in 1..=150 {
        let (blocks, installs, _) = run(seed, Mutants::NONE);
        committed += blocks;
        installed += installs;
    }
    assert!(committed > 150 * 20, "the storms leave room for work: {committed}");
    assert!(installed > 150, "and for snapshots: {installed}");
}

#[test]
fn one_seed_gives_one_run() {
    assert_eq!(run(7, Mutants::NONE).2, run(7, Mutants::NONE).2);
}

#[test]
fn a_cluster_left_alone_keeps_its_leader() {
    let mut cluster = Cluster::new(5);
    let all = cluster.ids();
    cluster.run(&all, 5_000);
    let leaders = cluster.leaders();
    let term = cluster.status(1).term;
    cluster.run(&all, 120_000);
    assert_eq!((cluster.leaders(), cluster.status(1).term), (leaders.clone(), term));
    let follower = all.iter().find(|&&id| id != leaders[0]).expect("a follower");
    assert_eq!(cluster.status(*follower).role, Role::Follower);
}

/// The first seed that finds a bug that was switched on.
fn killed_by(mutant: Mutant, seeds: u64) -> Option<u64> {
    (1..=seeds).find(|&seed| std::panic::catch_unwind(|| run(seed, Mutants::only(mutant))).is_err())
}

#[test]
fn every_bug_switched_on_is_found() {
    let all = [
        Mutant::B1,
        Mutant::B3,
        Mutant::B4,
        Mutant::B6,
        Mutant::B8,
        Mutant::B9,
        Mutant::B13,
        Mutant::B40,
        Mutant::S1,
        Mutant::H4,
    ];
    for mutant in all {
        assert!(killed_by(mutant, 500).is_some(), "{mutant:?} lives");
    }
}

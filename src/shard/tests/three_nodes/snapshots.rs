//! Snapshots of three nodes: taken at the same places, sent to one that was away, and started from.

use super::*;
use palisade_shard::read_state;

/// Small ones, and nothing of the log kept behind them.
fn small(config: &mut ShardConfig) {
    config.snapshot_bytes = 4_096;
    config.raft.log_keep_bytes = 0;
}

fn work(c: &mut Cluster, session: SessionId, tickets: core::ops::Range<u64>) {
    for ticket in tickets {
        let leader = c.leader().expect("a leader");
        assert!(matches!(c.ask(leader, acquire(session, ticket)), Reply::Granted { .. }));
        c.ask(leader, Request::Release { session, ticket: Ticket(ticket) });
    }
}

/// The node loses its process and starts from its disk.
fn restart(c: &mut Cluster, at: usize) {
    let Node { identity, disk, .. } = &c.nodes[at];
    let recovered = recover_shard(disk, identity, SHARD).expect("a whole directory");
    let raft = palisade_raft::Config::new(identity.node, SHARD, identity.voters.clone());
    let mut config = ShardConfig::new(
        identity.node,
        raft,
        WalConfig::new(identity, SHARD, 77 + at as u64),
        identity.limits,
    );
    small(&mut config);
    let id = recovered.snapshot.expect("it has taken one");
    let state = read_state(disk, identity, &config, id).expect("a state");
    c.nodes[at].shard = Shard::new(config, recovered, Some(state), 88 + at as u64, c.now).expect("a shard");
}

#[test]
fn who_was_away_for_long_gets_a_snapshot_and_has_the_same_state() {
    let mut c = Cluster::new(small);
    let session = c.open();
    let (leader, follower) = (c.leader().expect("a leader"), c.follower());
    let third = 3 - leader - follower;
    c.cut = vec![(leader, follower), (third, follower), (follower, leader), (follower, third)];
    work(&mut c, session, 1..80);
    c.pass(Duration::from_millis(300));
    let taken = [leader, third].map(|at| c.nodes[at].shard.snapshot().expect("one was taken"));
    assert_eq!(taken[0], taken[1], "both have the same one");
    assert!(c.nodes[leader].shard.raft().base().index > c.nodes[follower].shard.raft().status().last);
    c.cut.clear();
    c.pass_until(|c| c.nodes[follower].shard.applied() == c.nodes[leader].shard.applied());
    c.pass(Duration::from_millis(300));
    let shard = |at: usize| &c.nodes[at].shard;
    assert_eq!(shard(follower).counters().snapshots_installed, 1);
    assert_eq!(shard(follower).machine().digest(), shard(leader).machine().digest());
    assert_eq!(shard(follower).applied_chain(), shard(leader).applied_chain());
    let (mark, epoch) = described(&c.ask(follower, read(Consistency::Linearizable)));
    assert_eq!((mark.consistency, epoch), (Consistency::Linearizable, 79));
    // It starts from what it installed.
    restart(&mut c, follower);
    c.pass_until(|c| c.nodes[follower].shard.applied() == c.nodes[leader].shard.applied());
    assert_eq!(c.nodes[follower].shard.machine().digest(), c.nodes[leader].shard.machine().digest());
}

#[test]
fn all_start_from_their_snapshots_and_go_on() {
    let mut c = Cluster::new(small);
    let session = c.open();
    work(&mut c, session, 1..120);
    c.pass(Duration::from_millis(300));
    let leader = c.leader().expect("a leader");
    let (applied, bytes) = (c.nodes[leader].shard.applied(), c.nodes[leader].shard.raft().log_bytes());
    assert!(bytes < 16_384, "{bytes} bytes of log stay in memory");
    (0..3).for_each(|at| restart(&mut c, at));
    c.wire.clear();
    c.pass_until(|c| c.leader().is_some());
    let leader = c.leader().expect("a leader");
    assert!(c.nodes[leader].shard.applied() > applied);
    let (_, epoch) = described(&c.ask(leader, read(Consistency::Linearizable)));
    assert_eq!(epoch, 119);
}

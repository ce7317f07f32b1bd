//! Faults of the catalogue (`tests/FAULTS.md`) that no rule of the paper names.

use palisade_raft::{
    Append, AppendReply, AppendResult, Message, PreVoteReply, ReadIndexReply, Role, VoteReply,
};
use palisade_types::{LogIndex, NodeId, Term, Time};

use crate::cluster::{Cluster, Packet};

/// B19: a term that was heard of in whatever message is in force before anything else is taken.
#[test]
fn what_a_leader_is_given_after_it_heard_of_a_later_term_is_refused_and_never_stamped_with_it() {
    let (term, index) = (Term(9), LogIndex(0));
    let rejected = AppendResult::Rejected { prev_index: index, hint_index: index, hint_term: Term(0) };
    let heartbeat =
        Append { term, prev_term: Term(0), prev_index: index, commit: index, round: 0, blocks: Vec::new() };
    let ask = palisade_raft::AskId { boot: 1, count: 1 };
    let messages = [
        Message::VoteReply(VoteReply { term, granted: false }),
        Message::PreVoteReply(PreVoteReply { term, asked: Term(2), granted: false }),
        Message::AppendReply(AppendReply { term, round: 0, result: rejected }),
        Message::Append(heartbeat),
        Message::ReadIndexReply(ReadIndexReply { term, ask, index: None }),
    ];
    for message in messages {
        let mut cluster = Cluster::new(3);
        cluster.elect(1, &[1, 2, 3]);
        let before = cluster.status(1);
        cluster.deliver(Packet { from: NodeId(2), to: NodeId(1), message: message.clone() });
        assert!(cluster.propose(1, "x").is_err(), "{message:?}");
        let after = cluster.status(1);
        assert_eq!((after.role, after.term), (Role::Follower, term), "{message:?}");
        assert_eq!((after.last, after.last_term), (before.last, Term(1)), "{message:?}");
    }
}

/// B48: a cluster of five whose messages take 10 ms loses its leader. Says how many terms that takes.
fn terms_of_a_failover(seed: u64) -> u64 {
    const STEP: u64 = 10_000_000;
    let mut cluster = Cluster::with_logs(&[&[][..]; 5], seed, |_| ());
    cluster.run(&[1, 2, 3, 4, 5], 6_000);
    let [dead] = cluster.leaders()[..] else { panic!("seed {seed}: {:?}", cluster.leaders()) };
    let term = cluster.status(dead).term;
    let others: Vec<u32> = (1..=5).filter(|id| *id != dead).collect();
    for _ in 0..3_000 {
        // What was sent in the step before arrives in this one.
        let arriving = cluster.take_packets(None, None);
        cluster.now = Time(cluster.now.0 + STEP);
        for packet in arriving.into_iter().filter(|p| p.from.0 != dead && p.to.0 != dead) {
            cluster.deliver(packet);
        }
        for &id in &others {
            if cluster.node(id).raft.next_deadline() <= cluster.now {
                cluster.tick(id);
            }
            cluster.settle_follower(id);
        }
        if let Some(&leader) = cluster.leaders().iter().find(|id| **id != dead) {
            return cluster.status(leader).term.0 - term.0;
        }
    }
    panic!("seed {seed}: nobody is elected");
}

#[test]
fn a_leader_that_dies_is_nearly_always_replaced_by_the_first_election() {
    let terms: u64 = (1..=100).map(terms_of_a_failover).sum();
    assert!(terms < 130, "100 changes of leader took {terms} elections: timers fall into step");
}

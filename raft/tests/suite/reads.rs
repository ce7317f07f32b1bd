//! Read indexes for followers (thesis, section 6.4): each answer belongs to one question.

use palisade_raft::{AskId, Message, ReadAnswer, ReadIndexReply};
use palisade_types::{LogIndex, NodeId};

use crate::cluster::{Cluster, Packet};

const ALL: [u32; 3] = [1, 2, 3];

/// Three nodes, of which the first leads and has committed in its term.
fn led() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &ALL);
    cluster.run(&ALL, 300);
    cluster
}

fn ask(cluster: &mut Cluster, id: u32) -> AskId {
    let now = cluster.now;
    cluster.node(id).raft.ask_read_index(now).expect("it follows a leader")
}

/// The leader answers what it was asked, as the shard does: after a round.
fn answer(cluster: &mut Cluster, leader: u32, among: &[u32]) -> LogIndex {
    let questions = std::mem::take(&mut cluster.node(leader).questions);
    let round = cluster.round(leader).expect("it leads and has committed");
    cluster.settle(among);
    assert_eq!(cluster.node(leader).confirmed, Some(round.id));
    for (node, ask) in questions {
        cluster.node(leader).raft.answer_read_index(node, ask, round.read_index);
    }
    cluster.settle(among);
    round.read_index
}

fn take_answer(cluster: &mut Cluster, id: u32) -> Option<ReadAnswer> {
    cluster.node(id).read_answer.take()
}

#[test]
fn a_follower_learns_the_leaders_commit_index_of_after_its_question() {
    let mut cluster = led();
    let block = cluster.propose(1, "x").unwrap();
    cluster.settle(&ALL);
    let asked = ask(&mut cluster, 2);
    cluster.settle(&ALL);
    assert_eq!(cluster.node(1).questions, [(NodeId(2), asked)]);
    let index = answer(&mut cluster, 1, &ALL);
    assert_eq!(index, block.last());
    assert_eq!(take_answer(&mut cluster, 2), Some(ReadAnswer { ask: asked, index: Some(index) }));
}

#[test]
fn a_node_without_a_leader_and_the_leader_itself_have_nobody_to_ask() {
    let mut cluster = Cluster::new(3);
    let now = cluster.now;
    assert_eq!(cluster.node(2).raft.ask_read_index(now).unwrap_err().leader, None);
    cluster.elect(1, &ALL);
    let now = cluster.now;
    assert_eq!(cluster.node(1).raft.ask_read_index(now).unwrap_err().leader, Some(NodeId(1)));
}

#[test]
fn a_repeated_or_late_answer_is_never_taken_for_that_to_a_newer_question() {
    let mut cluster = led();
    let first = ask(&mut cluster, 2);
    cluster.ready(2);
    let question: Vec<Packet> = cluster.take_packets(Some(2), Some(1));
    question.iter().cloned().for_each(|p| cluster.deliver(p));
    cluster.ready(1);
    let index = answer(&mut cluster, 1, &ALL);
    assert_eq!(take_answer(&mut cluster, 2), Some(ReadAnswer { ask: first, index: Some(index) }));
    let old = Packet {
        from: NodeId(1),
        to: NodeId(2),
        message: Message::ReadIndexReply(ReadIndexReply {
            term: cluster.status(1).term,
            ask: first,
            index: Some(index),
        }),
    };
    // Something is committed, and asked for anew; then the old answer comes again.
    cluster.propose(1, "y").unwrap();
    cluster.settle(&ALL);
    let second = ask(&mut cluster, 2);
    cluster.deliver(old.clone());
    cluster.ready(2);
    assert_eq!(take_answer(&mut cluster, 2), None);
    // The same after a restart, whose questions count from 1 again.
    cluster.take_packets(None, None);
    cluster.restart(2);
    cluster.run(&ALL, 300);
    let third = ask(&mut cluster, 2);
    assert!(third.count == first.count && third > second);
    cluster.deliver(old);
    cluster.ready(2);
    assert_eq!(take_answer(&mut cluster, 2), None);
    // And a question that is repeated on the way is no new one to the leader.
    cluster.settle(&ALL);
    answer(&mut cluster, 1, &ALL);
    question.into_iter().for_each(|p| cluster.deliver(p));
    cluster.settle(&ALL);
    assert_eq!(cluster.node(1).questions, []);
}

#[test]
fn a_node_that_no_longer_leads_says_so() {
    let mut cluster = led();
    let asked = ask(&mut cluster, 2);
    cluster.ready(2);
    let question = cluster.take_packets(Some(2), Some(1));
    // Alone for too long, node 1 gives up its leadership.
    cluster.run(&[1], 3_000);
    assert_eq!(cluster.leaders(), []);
    question.into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(1);
    cluster.take_packets(Some(1), Some(2)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(2);
    assert_eq!(take_answer(&mut cluster, 2), Some(ReadAnswer { ask: asked, index: None }));
}

#[test]
fn a_deposed_leader_answers_nobody() {
    let mut cluster = led();
    let asked = ask(&mut cluster, 2);
    cluster.settle(&ALL);
    let questions = std::mem::take(&mut cluster.node(1).questions);
    assert_eq!(questions, [(NodeId(2), asked)]);
    cluster.elect(3, &ALL);
    cluster.node(1).raft.answer_read_index(NodeId(2), asked, LogIndex(1));
    cluster.settle(&ALL);
    assert_eq!(take_answer(&mut cluster, 2), None);
}

#[test]
fn followers_hear_of_a_commit_soon_although_nothing_follows_it_and_of_others_with_the_next_block() {
    let mut cluster = led();
    cluster.run(&ALL, 10);
    let block = cluster.propose(1, "x").unwrap();
    cluster.settle(&ALL);
    assert_eq!((cluster.status(1).commit, cluster.status(2).commit), (block.last(), block.last().prev()));
    // Sooner than the next heartbeat.
    cluster.run(&ALL, 6);
    assert_eq!((cluster.status(2).commit, cluster.status(3).commit), (block.last(), block.last()));
    // While block follows block each tells of the one before, and nothing else is sent.
    let sent = |cluster: &mut Cluster| {
        let before = cluster.sent;
        for _ in 0..10 {
            cluster.propose(1, "y").unwrap();
            cluster.run(&ALL, 3);
        }
        cluster.sent - before
    };
    cluster.run(&ALL, 100);
    let (blocks, one_heartbeat) = (10 * 4, 4);
    let sent = sent(&mut cluster);
    assert!(sent <= blocks + one_heartbeat, "{sent}: two appends and two answers a block");
}

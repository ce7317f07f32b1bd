//! Handing leadership over (thesis, section 3.10).

use std::time::Duration;

use palisade_raft::{Config, Message, ProposeError, Role, TimeoutNow, TransferError, Vote};
use palisade_types::{LogIndex, NodeId, Term, Time};

use crate::cluster::{Cluster, Packet};

const ALL: [u32; 3] = [1, 2, 3];

fn led(adjust: impl Fn(&mut Config)) -> Cluster {
    let mut cluster = Cluster::with_logs(&[&[], &[], &[]], 1, adjust);
    cluster.now = cluster.now + Duration::from_secs(2);
    cluster.elect(1, &ALL);
    cluster.propose(1, "x").expect("it leads");
    cluster.settle(&ALL);
    cluster
}

fn transfer(cluster: &mut Cluster, to: Option<u32>) -> Result<(), TransferError> {
    let now = cluster.now;
    let result = cluster.node(1).raft.transfer(now, to.map(NodeId));
    cluster.node(1).raft.check();
    result
}

fn wait(cluster: &mut Cluster, millis: u64) {
    cluster.now = cluster.now + Duration::from_millis(millis);
}

/// The invitations under way to a node, taken off the wire.
fn invitations(cluster: &mut Cluster, to: u32) -> Vec<Packet> {
    let (taken, others): (Vec<Packet>, Vec<Packet>) = cluster
        .take_packets(None, None)
        .into_iter()
        .partition(|p| p.to == NodeId(to) && matches!(p.message, Message::TimeoutNow(_)));
    cluster.wire = others;
    taken
}

fn invitation(term: u64, last: u64) -> Packet {
    let message = Message::TimeoutNow(TimeoutNow { term: Term(term), last_index: LogIndex(last) });
    Packet { from: NodeId(1), to: NodeId(2), message }
}

#[test]
fn the_one_named_leads_without_a_timeout_although_all_hear_the_leader() {
    for to in [2, 3] {
        let mut cluster = led(|_| ());
        let term = cluster.status(1).term;
        transfer(&mut cluster, Some(to)).unwrap();
        cluster.settle(&ALL);
        assert_eq!(cluster.leaders(), [to], "no time has passed");
        assert_eq!(cluster.status(to).term, term.next());
        let status = cluster.status(1);
        assert_eq!((status.role, status.leader), (Role::Follower, Some(NodeId(to))));
        cluster.propose(to, "y").unwrap();
        cluster.run(&ALL, 20);
        assert_eq!(cluster.status(1).commit, cluster.status(to).last);
    }
}

#[test]
fn without_a_name_it_is_one_who_holds_everything_and_is_there() {
    let mut cluster = led(|_| ());
    // Node 3 is not heard of any more; node 2 has what it has, and is.
    for _ in 0..5 {
        wait(&mut cluster, 100);
        cluster.tick(1);
        cluster.settle(&[1, 2]);
    }
    transfer(&mut cluster, None).unwrap();
    cluster.settle(&[1, 2]);
    assert_eq!(cluster.leaders(), [2]);

    let mut cluster = led(|_| ());
    // Node 3 is heard of, but its disk lacks the last block.
    cluster.propose(1, "y").unwrap();
    cluster.ready(1);
    cluster.persist(1, usize::MAX);
    let packets = cluster.take_packets(Some(1), None);
    packets.into_iter().for_each(|p| cluster.deliver(p));
    cluster.settle_follower(2);
    cluster.ready(3);
    transfer(&mut cluster, None).unwrap();
    cluster.take_packets(Some(2), Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(1);
    assert_eq!(cluster.node(1).raft.invited(), Some(NodeId(2)));
}

#[test]
fn nothing_is_proposed_meanwhile_and_again_after_it_was_given_up() {
    let mut cluster = led(|_| ());
    transfer(&mut cluster, Some(2)).unwrap();
    assert!(cluster.node(1).raft.is_transferring());
    assert_eq!(cluster.propose(1, "y").unwrap_err(), ProposeError::HandingOver);
    assert_eq!(transfer(&mut cluster, None), Err(TransferError::UnderWay));
    // Node 2 does not answer; the leader goes on with node 3.
    for _ in 0..9 {
        wait(&mut cluster, 100);
        cluster.tick(1);
        cluster.settle(&[1, 3]);
        assert_eq!(cluster.propose(1, "y").unwrap_err(), ProposeError::HandingOver);
    }
    wait(&mut cluster, 100);
    cluster.tick(1);
    assert!(!cluster.node(1).raft.is_transferring());
    cluster.propose(1, "y").unwrap();
    cluster.settle(&[1, 3]);
    assert_eq!(cluster.status(1).commit, cluster.status(1).last);
    assert_eq!(transfer(&mut cluster, Some(3)), Ok(()), "and another one can begin");
}

#[test]
fn the_invitation_waits_until_everything_is_committed_and_on_the_disk_of_the_invited() {
    let mut cluster = led(|_| ());
    cluster.propose(1, "y").unwrap();
    transfer(&mut cluster, Some(2)).unwrap();
    cluster.ready(1);
    cluster.persist(1, usize::MAX);
    assert_eq!(invitations(&mut cluster, 2).len(), 0);
    // Node 3 makes it committed; node 2 has it in memory only.
    cluster.take_packets(Some(1), None).into_iter().for_each(|p| cluster.deliver(p));
    cluster.settle_follower(3);
    cluster.ready(2);
    cluster.take_packets(None, Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(1);
    assert_eq!(cluster.status(1).commit, cluster.status(1).last);
    assert_eq!(invitations(&mut cluster, 2).len(), 0);
    cluster.settle_follower(2);
    cluster.take_packets(Some(2), Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(1);
    assert_eq!(invitations(&mut cluster, 2).len(), 1);
}

#[test]
fn an_invitation_that_is_lost_is_sent_again_with_the_next_heartbeat() {
    let mut cluster = led(|_| ());
    transfer(&mut cluster, Some(2)).unwrap();
    cluster.ready(1);
    assert_eq!(invitations(&mut cluster, 2).len(), 1);
    cluster.wire.clear();
    wait(&mut cluster, 100);
    cluster.tick(1);
    cluster.settle(&ALL);
    assert_eq!(cluster.leaders(), [2]);
}

#[test]
fn votes_that_are_lost_are_asked_for_again_and_still_pass() {
    let mut cluster = led(|_| ());
    let term = cluster.status(1).term;
    transfer(&mut cluster, Some(2)).unwrap();
    cluster.ready(1);
    invitations(&mut cluster, 2).into_iter().for_each(|p| cluster.deliver(p));
    // Its questions reach nobody.
    cluster.settle_follower(2);
    cluster.wire.clear();
    wait(&mut cluster, 100);
    cluster.tick(2);
    cluster.settle(&ALL);
    assert_eq!((cluster.leaders(), cluster.status(2).term), (vec![2], term.next()));
}

#[test]
fn an_invitation_counts_only_where_its_sender_is_followed_in_its_term() {
    let mut cluster = led(|_| ());
    let (term, last) = (cluster.status(1).term.0, cluster.status(1).last.0);
    cluster.elect(3, &ALL);
    let now = cluster.status(2).term;
    // Late, of a term to come, of one that does not lead, and of this term but another sender.
    for stale in [term, now.0] {
        cluster.deliver(invitation(stale, last));
        assert_eq!((cluster.status(2).role, cluster.status(2).term), (Role::Follower, now), "{stale}");
    }
    let foreign = Packet { from: NodeId(9), ..invitation(now.0, last) };
    cluster.deliver(foreign);
    assert_eq!(cluster.status(2).term, now);
    cluster.deliver(invitation(now.0 + 5, last));
    assert_eq!((cluster.status(2).role, cluster.status(2).term), (Role::Follower, Term(now.0 + 5)));
}

#[test]
fn a_repeated_invitation_does_nothing_more() {
    let mut cluster = led(|_| ());
    transfer(&mut cluster, Some(2)).unwrap();
    cluster.ready(1);
    let packets = invitations(&mut cluster, 2);
    packets.iter().cloned().for_each(|p| cluster.deliver(p));
    let term = cluster.status(2).term;
    packets.iter().cloned().for_each(|p| cluster.deliver(p));
    cluster.settle(&ALL);
    packets.iter().cloned().for_each(|p| cluster.deliver(p));
    cluster.settle(&ALL);
    assert_eq!((cluster.status(2).role, cluster.status(2).term), (Role::Leader, term));
}

#[test]
fn who_lacks_a_block_or_has_a_disk_that_hangs_does_not_stand() {
    let mut cluster = led(|_| ());
    let (term, last) = (cluster.status(1).term, cluster.status(1).last.0);
    cluster.deliver(invitation(term.0, last + 1));
    assert_eq!(cluster.status(2).role, Role::Follower);
    cluster.propose(1, "y").unwrap();
    cluster.ready(1);
    cluster.take_packets(Some(1), Some(2)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(2);
    cluster.deliver(invitation(term.0, last + 1));
    assert_eq!(cluster.status(2).role, Role::Follower, "its disk does not have it yet");
    // The write hangs; what is asked for is there all the same.
    wait(&mut cluster, 2_000);
    cluster.deliver(invitation(term.0, last));
    assert_eq!(cluster.status(2).role, Role::Follower);
    cluster.persist(2, usize::MAX);
    cluster.deliver(invitation(term.0, last));
    assert_eq!(cluster.status(2).role, Role::Candidate);
}

#[test]
fn the_mark_of_a_vote_passes_stickiness_in_the_next_term_only() {
    for (ahead, invited, passes) in [(1, true, true), (1, false, false), (2, true, false)] {
        let mut cluster = led(|_| ());
        let status = cluster.status(1);
        let vote = Vote {
            term: Term(status.term.0 + ahead),
            last_term: status.last_term,
            last_index: status.last,
            invited,
        };
        for to in [1, 3] {
            cluster.deliver(Packet { from: NodeId(2), to: NodeId(to), message: Message::Vote(vote) });
            let granted = cluster.status(to).vote == Some(NodeId(2));
            assert_eq!(
                (granted, cluster.status(to).term == vote.term),
                (passes, passes),
                "{ahead} {invited}"
            );
        }
    }
}

#[test]
fn the_lease_is_forgone_before_anything_is_sent_and_does_not_come_back() {
    let mut cluster = led(|config| config.leases = true);
    let beat = |cluster: &mut Cluster| {
        let now = cluster.now;
        cluster.node(1).raft.lease_time(now);
        cluster.tick(1);
        cluster.settle(&[1, 3]);
        cluster.node(1).raft.holds_lease(now)
    };
    wait(&mut cluster, 100);
    assert!(beat(&mut cluster));
    // Node 2 does not hear; it could be invited until the end of the term, by a message that is late.
    transfer(&mut cluster, Some(2)).unwrap();
    let now = cluster.now;
    assert!(!cluster.node(1).raft.holds_lease(now));
    for _ in 0..20 {
        wait(&mut cluster, 100);
        assert!(!beat(&mut cluster));
    }
    assert!(!cluster.node(1).raft.is_transferring());
}

#[test]
fn a_new_leader_hands_over_once_it_has_committed_in_its_term() {
    let mut cluster = Cluster::new(3);
    cluster.now = cluster.now + Duration::from_secs(3);
    cluster.tick(1);
    while cluster.status(1).role != Role::Leader {
        for id in ALL {
            cluster.ready(id);
            cluster.persist(id, usize::MAX);
        }
        cluster.take_packets(None, None).into_iter().for_each(|p| cluster.deliver(p));
    }
    assert_eq!(cluster.status(1).commit, LogIndex(0));
    transfer(&mut cluster, None).unwrap();
    cluster.ready(1);
    assert_eq!(cluster.node(1).raft.invited(), None);
    cluster.settle(&ALL);
    assert_ne!(cluster.leaders(), [1]);
    assert_eq!(cluster.leaders().len(), 1);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut cluster = led(|_| ());
    assert_eq!(transfer(&mut cluster, Some(1)), Err(TransferError::LeadsAlready(NodeId(1))));
    assert_eq!(transfer(&mut cluster, Some(4)), Err(TransferError::NotAVoter(NodeId(4))));
    let now = cluster.now;
    let follower = cluster.node(2).raft.transfer(now, None);
    assert_eq!(follower, Err(TransferError::NotLeader { leader: Some(NodeId(1)) }));
    let mut alone = Cluster::new(1);
    alone.run(&[1], 3_000);
    assert_eq!(transfer(&mut alone, None), Err(TransferError::Alone));
    assert!(alone.node(1).raft.next_deadline() > Time::ZERO);
}

#[test]
fn a_leader_that_cannot_reach_anybody_steps_down_as_ever() {
    let mut cluster = led(|_| ());
    transfer(&mut cluster, None).unwrap();
    for _ in 0..25 {
        wait(&mut cluster, 100);
        cluster.tick(1);
        cluster.settle(&[1]);
    }
    assert_eq!(cluster.status(1).role, Role::Follower);
    assert!(!cluster.node(1).raft.is_transferring());
}

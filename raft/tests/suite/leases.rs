//! The lease of a leader (thesis, section 6.4.1): from the sending of what a quorum answered, for less
//! than the shortest election timeout, and void over stalls and hand-overs.

use std::time::Duration;

use palisade_raft::{Config, LEASE_DRIFT_PERCENT, Role};
use palisade_types::Time;

use crate::cluster::{Cluster, Packet};

const ALL: [u32; 3] = [1, 2, 3];
/// The lease of the default configuration: a second less a tenth.
const LEASE: Duration = Duration::from_millis(900);

fn with_leases(config: &mut Config) {
    config.leases = true;
}

/// Three nodes, of which the first leads and has committed; its clock of leases is the cluster's.
fn led() -> Cluster {
    let mut cluster = Cluster::with_logs(&[&[], &[], &[]], 1, with_leases);
    // Who has just started votes for nobody.
    cluster.now = cluster.now + Duration::from_secs(2);
    cluster.elect(1, &ALL);
    cluster
}

fn lease_time(cluster: &mut Cluster) {
    let now = cluster.now;
    cluster.node(1).raft.lease_time(now);
}

/// A round is sent and answered at once.
fn round(cluster: &mut Cluster) -> Time {
    lease_time(cluster);
    cluster.round(1).expect("it leads and has committed");
    cluster.settle(&ALL);
    cluster.now
}

fn holds(cluster: &mut Cluster, at: Time) -> bool {
    cluster.node(1).raft.holds_lease(at)
}

#[test]
fn a_lease_lasts_for_the_shortest_election_timeout_less_the_allowance_for_clocks() {
    assert_eq!(LEASE_DRIFT_PERCENT, 10);
    let mut cluster = led();
    let before = cluster.now;
    assert!(!holds(&mut cluster, before), "nobody has answered anything yet");
    let sent = round(&mut cluster);
    assert!(holds(&mut cluster, sent));
    assert!(holds(&mut cluster, Time(sent.0 + LEASE.as_nanos() as u64 - 1)));
    assert!(!holds(&mut cluster, sent + LEASE));
}

#[test]
fn a_lease_runs_from_when_the_round_was_sent_not_from_when_it_was_answered() {
    let mut cluster = led();
    lease_time(&mut cluster);
    let sent = cluster.now;
    cluster.round(1).unwrap();
    cluster.ready(1);
    let packets: Vec<Packet> = cluster.take_packets(Some(1), Some(2));
    packets.into_iter().for_each(|p| cluster.deliver(p));
    cluster.settle_follower(2);
    // The answer takes its time.
    for _ in 0..5 {
        cluster.now = cluster.now + Duration::from_millis(100);
        lease_time(&mut cluster);
    }
    let at = cluster.now;
    assert!(!holds(&mut cluster, at));
    cluster.take_packets(Some(2), Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    assert!(holds(&mut cluster, at));
    assert!(!holds(&mut cluster, sent + LEASE));
}

#[test]
fn heartbeats_renew_the_lease_and_silence_ends_it() {
    let mut cluster = led();
    round(&mut cluster);
    for _ in 0..30 {
        cluster.now = cluster.now + Duration::from_millis(100);
        lease_time(&mut cluster);
        cluster.tick(1);
        cluster.settle(&ALL);
        let at = cluster.now;
        assert!(holds(&mut cluster, at));
    }
    let last = cluster.now;
    for _ in 0..9 {
        cluster.now = cluster.now + Duration::from_millis(100);
        lease_time(&mut cluster);
        cluster.tick(1);
        cluster.settle(&[1]);
    }
    assert_eq!(cluster.status(1).role, Role::Leader, "it has not noticed yet that it is alone");
    assert!(!holds(&mut cluster, last + LEASE));
}

#[test]
fn a_stall_ends_the_lease_until_the_next_round() {
    let mut cluster = led();
    let sent = round(&mut cluster);
    // A heartbeat and a tenth of a timeout may pass between two turns, and no more.
    cluster.now = sent + Duration::from_millis(200);
    lease_time(&mut cluster);
    let at = cluster.now;
    assert!(holds(&mut cluster, at));
    cluster.now = at + Duration::from_millis(201);
    lease_time(&mut cluster);
    let at = cluster.now;
    assert!(!holds(&mut cluster, at), "it could have lasted on, were the clock to be trusted");
    let at = round(&mut cluster);
    assert!(holds(&mut cluster, at));
}

#[test]
fn an_answer_from_before_a_stall_renews_nothing() {
    let mut cluster = led();
    lease_time(&mut cluster);
    cluster.round(1).unwrap();
    cluster.ready(1);
    let packets: Vec<Packet> = cluster.take_packets(Some(1), Some(2));
    packets.into_iter().for_each(|p| cluster.deliver(p));
    cluster.settle_follower(2);
    cluster.now = cluster.now + Duration::from_millis(300);
    lease_time(&mut cluster);
    cluster.take_packets(Some(2), Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    let at = cluster.now;
    assert!(!holds(&mut cluster, at));
}

#[test]
fn a_leadership_that_was_offered_to_another_has_no_lease_any_more() {
    let mut cluster = led();
    round(&mut cluster);
    cluster.node(1).raft.forgo_lease();
    let at = round(&mut cluster);
    assert!(!holds(&mut cluster, at));
    // In the next term it begins anew.
    cluster.elect(2, &ALL);
    cluster.elect(1, &ALL);
    let at = round(&mut cluster);
    assert!(holds(&mut cluster, at));
}

#[test]
fn without_leases_allowed_there_is_none() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &ALL);
    let at = round(&mut cluster);
    assert!(!holds(&mut cluster, at));
}

#[test]
fn a_node_that_has_just_started_grants_no_vote_for_the_shortest_election_timeout() {
    for leases in [false, true] {
        let mut cluster = Cluster::with_logs(&[&[], &[], &[]], 1, |config| config.leases = leases);
        // Node 2 comes back as node 1 stands.
        cluster.now = cluster.now + Duration::from_secs(3);
        cluster.restart(2);
        cluster.now = cluster.now + Duration::from_millis(999);
        cluster.tick(1);
        cluster.settle(&[1, 2]);
        assert_eq!(cluster.status(1).role == Role::Leader, !leases);
        cluster.now = cluster.now + Duration::from_millis(101);
        cluster.tick(1);
        cluster.settle(&[1, 2]);
        assert_eq!(cluster.status(1).role, Role::Leader, "it is asked again");
    }
}

/// What the leader before it had acknowledged may be behind the new one's commit index until then.
#[test]
fn a_new_leader_has_no_lease_before_it_has_committed_in_its_term() {
    let mut cluster = led();
    cluster.now = cluster.now + Duration::from_secs(3);
    let at = cluster.now;
    cluster.node(2).raft.lease_time(at);
    cluster.tick(2);
    // Their votes reach the disks of 2 and 3; the first block of the term does not.
    while cluster.status(2).role != Role::Leader {
        cluster.settle_follower(2);
        cluster.take_packets(Some(2), Some(3)).into_iter().for_each(|p| cluster.deliver(p));
        cluster.settle_follower(3);
        cluster.take_packets(Some(3), Some(2)).into_iter().for_each(|p| cluster.deliver(p));
    }
    cluster.now = cluster.node(2).raft.next_deadline();
    let at = cluster.now;
    cluster.node(2).raft.lease_time(at);
    cluster.tick(2);
    cluster.ready(2);
    cluster.take_packets(Some(2), Some(3)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(3);
    cluster.take_packets(Some(3), Some(2)).into_iter().for_each(|p| cluster.deliver(p));
    assert!(!cluster.node(2).raft.holds_lease(at), "a quorum has answered, and nothing is committed");
    cluster.settle(&[2, 3]);
    assert!(cluster.node(2).raft.holds_lease(at), "nothing but the commit was missing");
}

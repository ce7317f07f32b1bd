use palisade_types::{ClusterId, ClusterLimits, Name, StartNonce};
use palisade_wal::{boot_file, read_boot};

use super::*;

fn identity(node: u32, incarnation: u128) -> Identity {
    Identity {
        cluster: ClusterId(5),
        cluster_name: Name::new("orders").unwrap(),
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
        shards: 1,
        voters: vec![NodeId(1), NodeId(2), NodeId(3)],
        limits: ClusterLimits::default(),
    }
}

/// A node started on what it had on record, with this nonce.
fn start(identity: Identity, record: BootRecord, nonce: u128) -> Members {
    let mut boot = read_boot(&identity, &boot_file(&identity)).unwrap();
    let mut record = record;
    record.starts.begin(StartNonce(nonce));
    boot.commit(boot.stage(record));
    Members::new(identity, boot)
}

fn first(node: u32) -> Members {
    start(identity(node, u128::from(node) * 11), BootRecord::default(), u128::from(node) * 100)
}

impl Members {
    /// All that is to be written is written.
    fn settle(&mut self) {
        let mut op = self.write();
        while let Some(DiskOp::Write { file, .. }) = op {
            assert_eq!(file, BOOT_FILE);
            op = self.on_written().0;
        }
    }

    /// Meets a peer until it is in or refused.
    fn met(&mut self, hello: &PeerHello) -> Result<Vec<NodeId>, RefusedReason> {
        loop {
            match self.meet(hello, false) {
                Ok(Met::In { out }) => {
                    self.settle();
                    return Ok(out);
                }
                Ok(Met::Wait) => self.settle(),
                Err((reason, text)) => {
                    assert!(!text.is_empty());
                    return Err(reason);
                }
            }
        }
    }
}

/// Three nodes that have all met.
fn formed() -> Vec<Members> {
    let mut all: Vec<Members> = (1..=3).map(first).collect();
    for _ in 0..2 {
        for to in 0..3 {
            for from in (0..3).filter(|from| *from != to) {
                let hello = all[from].hello(NodeId(to as u32 + 1));
                all[to].met(&hello).unwrap();
            }
        }
    }
    assert!(all.iter().all(Members::is_formed));
    all
}

/// The same node, started again on what is durable.
fn again(members: &Members, nonce: u128) -> Members {
    start(members.identity.clone(), members.boot.value().clone(), nonce)
}

#[test]
fn a_peer_is_let_in_once_both_copies_of_its_start_and_of_the_members_are_written() {
    let (mut one, two, three) = (first(1), first(2), first(3));
    one.met(&two.hello(NodeId(1))).unwrap();
    let hello = three.hello(NodeId(1));
    assert_eq!(one.meet(&hello, false).unwrap(), Met::Wait);
    let op = one.write().expect("there is something to write");
    assert_eq!(one.meet(&hello, false).unwrap(), Met::Wait, "while it is being written");
    let (second, done) = one.on_written();
    assert!(!done && !one.is_formed());
    let (DiskOp::Write { parts: a, .. }, DiskOp::Write { parts: b, .. }) = (op, second.unwrap()) else {
        panic!("both are writes")
    };
    assert_ne!(a[0].0, b[0].0);
    assert_eq!(one.meet(&hello, false).unwrap(), Met::Wait);
    let (next, done) = one.on_written();
    assert!(next.is_none() && done);
    assert!(one.is_formed());
    assert_eq!(one.meet(&hello, false).unwrap(), Met::In { out: vec![] });
    assert_eq!(one.boot.value().known.iter().map(|k| k.node.0).collect::<Vec<_>>(), [2, 3]);
    let all = [Incarnation(11), Incarnation(22), Incarnation(33)];
    assert_eq!(one.cluster_identity(), ClusterIdentity::of(ClusterId(5), all));
    assert_eq!(one.hello(NodeId(2)).expects, Some(Incarnation(22)));
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let mut all = formed();
    let good = all[1].hello(NodeId(1));
    let one = &mut all[0];
    let mut reason = |change: &dyn Fn(&mut PeerHello)| {
        let mut hello = good.clone();
        change(&mut hello);
        one.met(&hello).unwrap_err()
    };
    assert_eq!(reason(&|h| (h.version_min, h.version_max) = (900, 901)), RefusedReason::Version);
    assert_eq!(reason(&|h| h.cluster = ClusterId(6)), RefusedReason::Cluster);
    assert_eq!(reason(&|h| h.shards = 2), RefusedReason::Cluster);
    assert_eq!(reason(&|h| h.node = NodeId(7)), RefusedReason::Stranger);
    assert_eq!(reason(&|h| h.expects = Some(Incarnation(12))), RefusedReason::Stranger);
    assert_eq!(reason(&|h| h.incarnation = Incarnation(23)), RefusedReason::Outdated);
}

#[test]
fn an_old_copy_is_refused_by_who_saw_a_later_start_also_after_restarts_and_is_told() {
    let mut all = formed();
    let old = all[1].boot.value().clone();
    let two = again(&all[1], 201);
    all[0].met(&two.hello(NodeId(1))).unwrap();
    // Node 1 is started anew: what it knows is on its disk.
    let mut one = again(&all[0], 101);
    let mut copy = start(identity(2, 22), old, 202);
    for nonce in 203..210 {
        assert_eq!(one.met(&copy.hello(NodeId(1))), Err(RefusedReason::Outdated));
        assert!(copy.is_outdated(&one.hello(NodeId(2))).is_some());
        copy = again(&copy, nonce);
    }
    assert_eq!(two.is_outdated(&one.hello(NodeId(2))), None);
    one.met(&two.hello(NodeId(1))).unwrap();
    one.met(&again(&two, 300).hello(NodeId(1))).unwrap();
}

#[test]
fn an_old_copy_is_let_out_by_who_hears_of_the_later_start() {
    let mut all = formed();
    let old = all[1].boot.value().clone();
    let two = again(&all[1], 201);
    all[0].met(&two.hello(NodeId(1))).unwrap();
    let copy = start(identity(2, 22), old, 202);
    let (from_one, from_copy) = (all[0].hello(NodeId(3)), copy.hello(NodeId(3)));
    let three = &mut all[2];
    assert_eq!(three.met(&from_copy), Ok(vec![]), "node 3 knows nothing of the later start");
    assert_eq!(three.met(&from_one), Ok(vec![NodeId(2)]));
    assert_eq!(three.met(&from_copy), Err(RefusedReason::Outdated));
    // The other way round it is never let in.
    let mut all = formed();
    all[0].met(&two.hello(NodeId(1))).unwrap();
    let from_one = all[0].hello(NodeId(3));
    all[2].met(&from_one).unwrap();
    assert_eq!(all[2].met(&from_copy), Err(RefusedReason::Outdated));
    all[2].met(&two.hello(NodeId(3))).unwrap();
}

#[test]
fn of_two_copies_the_one_that_is_connected_stays() {
    let mut all = formed();
    let copy = again(&all[1], 202);
    let (reason, _) = all[0].meet(&copy.hello(NodeId(1)), true).unwrap_err();
    assert_eq!(reason, RefusedReason::Twice);
    let original = all[1].hello(NodeId(1));
    assert_eq!(all[0].meet(&original, true).unwrap(), Met::In { out: vec![] }, "it may connect again");
    // Once the original is gone, it may have been a mere restart; then the original is the old one.
    all[0].met(&copy.hello(NodeId(1))).unwrap();
    assert_eq!(all[0].met(&original), Err(RefusedReason::Outdated));
    // Two copies that are started at the same time show one number and two nonces.
    let other = again(&all[1], 203);
    assert_eq!(all[0].met(&other.hello(NodeId(1))), Err(RefusedReason::Outdated));
}

#[test]
fn a_directory_formatted_anew_is_told_to_end_by_who_knows_the_other() {
    let all = formed();
    let fresh = start(identity(2, 23), BootRecord::default(), 9);
    assert!(fresh.is_outdated(&all[0].hello(NodeId(2))).is_some());
    // While the cluster is not formed it is as good as the first one.
    let (mut one, old) = (first(1), first(2));
    one.met(&old.hello(NodeId(1))).unwrap();
    assert_eq!(fresh.is_outdated(&one.hello(NodeId(2))), None);
    one.met(&fresh.hello(NodeId(1))).unwrap();
}

#[test]
fn a_lone_node_forms_by_itself() {
    let mut identity = identity(1, 11);
    identity.voters = vec![NodeId(1)];
    let mut members = start(identity, BootRecord::default(), 1);
    members.settle();
    assert!(members.is_formed());
}

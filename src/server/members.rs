//! Who belongs to the cluster: what this node says of itself to peers, whom it lets in, and the
//! formation (DESIGN section 17), whose result is stored in BOOT before anybody votes.

use std::collections::BTreeMap;

use palisade_shard::{Formation, Verdict};
use palisade_types::{ClusterIdentity, Incarnation, NodeId};
use palisade_wal::slots::Staged;
use palisade_wal::{BOOT_FILE, BootRecord, DiskOp, Identity, OpId, Slots};
use palisade_wire::{PeerHello, RefusedReason, VERSION_MAX, VERSION_MIN, common_version};

/// The members as this node knows them.
pub(crate) struct Members {
    identity: Identity,
    boot: Slots<BootRecord>,
    formation: Formation,
    storing: Option<Storing>,
    /// The highest boot counter each peer has shown.
    boots: BTreeMap<NodeId, u64>,
}

struct Storing {
    staged: Staged<BootRecord>,
    written: usize,
}

/// Why a peer is not let in: the code and the text it is told.
pub(crate) type Refusal = (RefusedReason, String);

impl Members {
    /// From the directory. Also returns what to write first, where that is already known.
    pub(crate) fn new(identity: Identity, boot: Slots<BootRecord>) -> (Members, Option<DiskOp>) {
        let formation =
            Formation::new(identity.node, identity.incarnation, &identity.voters, &boot.value().members);
        let mut members = Members { identity, boot, formation, storing: None, boots: BTreeMap::new() };
        let op = members.formation.alone().map(|all| members.store(all));
        (members, op)
    }

    /// Whether this node may vote and answer.
    pub(crate) fn is_formed(&self) -> bool {
        self.formation.is_formed()
    }

    /// The members not met yet.
    pub(crate) fn missing(&self) -> Vec<NodeId> {
        self.formation.missing()
    }

    /// Whose directory this is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How often this node has started.
    pub(crate) fn boot(&self) -> u64 {
        self.boot.value().boots
    }

    /// What cursors carry: the cluster and the incarnations of its initial members. Known once the
    /// cluster is formed.
    pub(crate) fn cluster_identity(&self) -> ClusterIdentity {
        let members: BTreeMap<NodeId, Incarnation> = self.boot.value().members.iter().copied().collect();
        ClusterIdentity::of(self.identity.cluster, members.into_values())
    }

    /// How this node introduces itself to a peer.
    pub(crate) fn hello(&self, to: NodeId) -> PeerHello {
        PeerHello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            cluster: self.identity.cluster,
            shards: self.identity.shards,
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            boot: self.boot(),
            expects: self.formation.known(to),
        }
    }

    /// Judges a peer's introduction. It may have been the last one missing: then what it returns is to
    /// be written.
    ///
    /// # Errors
    /// Why the peer is not let in.
    pub(crate) fn meet(&mut self, hello: &PeerHello) -> Result<Option<DiskOp>, Refusal> {
        if common_version(hello.version_min, hello.version_max).is_none() {
            let text = format!(
                "node {} speaks protocol versions {} to {VERSION_MAX}, not {} to {}",
                self.identity.node, VERSION_MIN, hello.version_min, hello.version_max
            );
            return Err((RefusedReason::Version, text));
        }
        if hello.cluster != self.identity.cluster || hello.shards != self.identity.shards {
            let text = format!(
                "node {} belongs to cluster {} with {} shards, not to {} with {}",
                self.identity.node, self.identity.cluster, self.identity.shards, hello.cluster, hello.shards
            );
            return Err((RefusedReason::Cluster, text));
        }
        if let Some(expected) = hello.expects.filter(|e| *e != self.identity.incarnation) {
            let text = format!(
                "node {} knows node {} as incarnation {expected}, and this is {}: the directory was formatted anew",
                hello.node, self.identity.node, self.identity.incarnation
            );
            return Err((RefusedReason::Stranger, text));
        }
        if let Some(seen) = self.boots.get(&hello.node).filter(|b| **b > hello.boot) {
            let text = format!(
                "node {} shows boot {} after {seen}: its directory was rolled back or copied",
                hello.node, hello.boot
            );
            return Err((RefusedReason::Stranger, text));
        }
        let store = match self.formation.on_peer(hello.node, hello.incarnation) {
            Verdict::Accept => None,
            Verdict::Store(all) => Some(self.store(all)),
            Verdict::Refuse(stranger) => return Err((RefusedReason::Stranger, stranger.to_string())),
        };
        self.boots.insert(hello.node, hello.boot);
        Ok(store)
    }

    fn store(&mut self, members: Vec<(NodeId, Incarnation)>) -> DiskOp {
        let record = BootRecord { boots: self.boot.value().boots, members };
        let staged = self.boot.stage(record);
        let op = copy(&staged, 0);
        self.storing = Some(Storing { staged, written: 0 });
        op
    }

    /// A write of BOOT is durable: the next one, or nothing, and then the cluster is formed.
    pub(crate) fn on_written(&mut self) -> Option<DiskOp> {
        let mut storing = self.storing.take()?;
        storing.written += 1;
        if storing.written < storing.staged.copies.len() {
            let op = copy(&storing.staged, storing.written);
            self.storing = Some(storing);
            return Some(op);
        }
        self.boot.commit(storing.staged);
        self.formation.on_stored();
        None
    }
}

/// The write of one copy; each has a sync of its own.
fn copy(staged: &Staged<BootRecord>, which: usize) -> DiskOp {
    let (offset, page) = &staged.copies[which];
    DiskOp::Write {
        id: OpId(which as u64),
        file: BOOT_FILE.to_owned(),
        parts: vec![(*offset, vec![page.clone()])],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{ClusterId, ClusterLimits, Name};
    use palisade_wal::{boot_file, read_boot};

    fn identity(node: u32, incarnation: u128) -> Identity {
        Identity {
            cluster: ClusterId(5),
            cluster_name: Name::new("orders").unwrap(),
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            shards: 1,
            voters: vec![NodeId(1), NodeId(2)],
            limits: ClusterLimits::default(),
        }
    }

    fn members(node: u32, incarnation: u128) -> Members {
        let identity = identity(node, incarnation);
        let boot = read_boot(&identity, &boot_file(&identity)).unwrap();
        let (members, op) = Members::new(identity, boot);
        assert!(op.is_none());
        members
    }

    #[test]
    fn two_nodes_form_once_both_copies_of_the_record_are_written() {
        let (mut one, two) = (members(1, 11), members(2, 22));
        let first = one.meet(&two.hello(NodeId(1))).unwrap().expect("the last one missing was met");
        assert_eq!(first.file(), BOOT_FILE);
        assert!(!one.is_formed());
        let second = one.on_written().expect("the other copy, after a sync of the first");
        assert!(!one.is_formed());
        let (DiskOp::Write { parts: a, .. }, DiskOp::Write { parts: b, .. }) = (first, second) else {
            panic!("both are writes")
        };
        assert_ne!(a[0].0, b[0].0);
        assert!(one.on_written().is_none());
        assert!(one.is_formed());
        assert!(one.meet(&two.hello(NodeId(1))).unwrap().is_none());
        let both = [Incarnation(11), Incarnation(22)];
        assert_eq!(one.cluster_identity(), ClusterIdentity::of(ClusterId(5), both));
        assert_eq!(one.hello(NodeId(2)).expects, Some(Incarnation(22)));
    }

    #[test]
    fn strangers_are_refused_with_the_reason() {
        let mut one = members(1, 11);
        let good = members(2, 22).hello(NodeId(1));
        let reason = |m: &mut Members, hello: PeerHello| m.meet(&hello).unwrap_err().0;
        assert_eq!(
            reason(&mut one, PeerHello { version_min: 900, version_max: 901, ..good }),
            RefusedReason::Version
        );
        assert_eq!(reason(&mut one, PeerHello { cluster: ClusterId(6), ..good }), RefusedReason::Cluster);
        assert_eq!(reason(&mut one, PeerHello { shards: 2, ..good }), RefusedReason::Cluster);
        assert_eq!(reason(&mut one, PeerHello { node: NodeId(7), ..good }), RefusedReason::Stranger);
        assert_eq!(
            reason(&mut one, PeerHello { expects: Some(Incarnation(12)), ..good }),
            RefusedReason::Stranger
        );
        one.meet(&PeerHello { boot: 4, ..good }).unwrap();
        assert_eq!(reason(&mut one, PeerHello { boot: 3, ..good }), RefusedReason::Stranger);
        assert_eq!(
            reason(&mut one, PeerHello { incarnation: Incarnation(23), boot: 5, ..good }),
            RefusedReason::Stranger
        );
    }

    #[test]
    fn a_lone_node_forms_by_itself() {
        let mut identity = identity(1, 11);
        identity.voters = vec![NodeId(1)];
        let boot = read_boot(&identity, &boot_file(&identity)).unwrap();
        let (mut members, op) = Members::new(identity, boot);
        assert!(op.is_some());
        assert!(members.on_written().is_some());
        assert!(members.on_written().is_none());
        assert!(members.is_formed());
    }
}

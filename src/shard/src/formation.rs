//! The formation of a cluster (DESIGN section 17): a formatted node neither votes nor stands until
//! it has met every initial member and durably stored all their incarnations. Afterwards it accepts
//! only these, so that a node wiped and formatted anew is a stranger.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use palisade_types::{Incarnation, NodeId};

/// What a node knows of the incarnations of its cluster's members.
#[derive(Debug)]
pub struct Formation {
    own: NodeId,
    voters: Vec<NodeId>,
    met: BTreeMap<NodeId, Incarnation>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Some members are not met yet.
    Meeting,
    /// All are met; their incarnations are being stored.
    Storing,
    /// Stored.
    Formed,
}

/// What to do about a peer that introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is who it says, as far as this node can know.
    Accept,
    /// The same, and it was the last one missing: store these durably, then call
    /// [`Formation::on_stored`].
    Store(Vec<(NodeId, Incarnation)>),
    /// It is not let in.
    Refuse(Stranger),
}

/// Why a peer is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    /// No member has this number.
    #[error("node {0} is no member of this cluster")]
    NotAMember(NodeId),
    /// It says it is this node.
    #[error("node {0} introduced itself with this node's own number")]
    Myself(NodeId),
    /// Its directory is not the one this cluster was formed with.
    #[error(
        "node {node} has incarnation {shown}, this cluster was formed with {known}: its directory was formatted anew. \
         Restore its directory, or replace it under a new number"
    )]
    OtherIncarnation {
        /// Who.
        node: NodeId,
        /// What it showed.
        shown: Incarnation,
        /// What is known.
        known: Incarnation,
    },
}

impl Formation {
    /// From what the directory holds: `stored` is empty until the cluster was formed.
    pub fn new(
        own: NodeId,
        incarnation: Incarnation,
        voters: &[NodeId],
        stored: &[(NodeId, Incarnation)],
    ) -> Formation {
        let mut met: BTreeMap<NodeId, Incarnation> = stored.iter().copied().collect();
        met.insert(own, incarnation);
        let state = if stored.is_empty() { State::Meeting } else { State::Formed };
        Formation { own, voters: voters.to_vec(), met, state }
    }

    /// Whether this node may vote, stand and answer.
    pub fn is_formed(&self) -> bool {
        self.state == State::Formed
    }

    /// The members not met yet.
    pub fn missing(&self) -> Vec<NodeId> {
        self.voters.iter().filter(|n| !self.met.contains_key(n)).copied().collect()
    }

    /// The incarnation a member is known by.
    pub fn known(&self, node: NodeId) -> Option<Incarnation> {
        self.met.get(&node).copied()
    }

    /// A node of one member has nobody to meet: what to store, if that is so.
    pub fn alone(&mut self) -> Option<Vec<(NodeId, Incarnation)>> {
        self.complete()
    }

    /// A peer introduced itself.
    pub fn on_peer(&mut self, node: NodeId, shown: Incarnation) -> Verdict {
        if node == self.own {
            return Verdict::Refuse(Stranger::Myself(node));
        }
        if !self.voters.contains(&node) {
            return Verdict::Refuse(Stranger::NotAMember(node));
        }
        match self.met.get(&node) {
            Some(known) if *known == shown => Verdict::Accept,
            // Until the cluster is formed nobody has voted: a directory formatted anew is as good as the first.
            Some(known) if self.state != State::Meeting => {
                Verdict::Refuse(Stranger::OtherIncarnation { node, shown, known: *known })
            }
            _ => {
                self.met.insert(node, shown);
                self.complete().map_or(Verdict::Accept, Verdict::Store)
            }
        }
    }

    /// The incarnations are durable.
    pub fn on_stored(&mut self) {
        assert!(self.state == State::Storing, "nothing was to be stored");
        self.state = State::Formed;
    }

    fn complete(&mut self) -> Option<Vec<(NodeId, Incarnation)>> {
        if self.state != State::Meeting || !self.missing().is_empty() {
            return None;
        }
        self.state = State::Storing;
        Some(self.met.iter().map(|(n, i)| (*n, *i)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOTERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn fresh() -> Formation {
        Formation::new(NodeId(1), Incarnation(11), &VOTERS, &[])
    }

    #[test]
    fn is_formed_only_when_all_are_met_and_stored() {
        let mut f = fresh();
        assert_eq!(f.missing(), [NodeId(2), NodeId(3)]);
        assert_eq!(f.on_peer(NodeId(2), Incarnation(22)), Verdict::Accept);
        assert!(!f.is_formed());
        let all = alloc::vec![
            (NodeId(1), Incarnation(11)),
            (NodeId(2), Incarnation(22)),
            (NodeId(3), Incarnation(33))
        ];
        assert_eq!(f.on_peer(NodeId(3), Incarnation(33)), Verdict::Store(all));
        assert!(!f.is_formed(), "not before it is durable");
        f.on_stored();
        assert!(f.is_formed());
        assert_eq!(f.on_peer(NodeId(2), Incarnation(22)), Verdict::Accept);
    }

    #[test]
    fn a_member_formatted_anew_is_a_stranger_once_the_cluster_is_formed() {
        let mut f = fresh();
        assert_eq!(f.on_peer(NodeId(2), Incarnation(22)), Verdict::Accept);
        assert_eq!(f.on_peer(NodeId(2), Incarnation(23)), Verdict::Accept, "nobody has voted yet");
        assert!(matches!(f.on_peer(NodeId(3), Incarnation(33)), Verdict::Store(_)));
        let stranger =
            Stranger::OtherIncarnation { node: NodeId(2), shown: Incarnation(24), known: Incarnation(23) };
        assert_eq!(
            f.on_peer(NodeId(2), Incarnation(24)),
            Verdict::Refuse(stranger),
            "while it is being stored"
        );
        f.on_stored();
        assert_eq!(f.on_peer(NodeId(2), Incarnation(24)), Verdict::Refuse(stranger));
    }

    #[test]
    fn refuses_who_is_no_member_or_claims_to_be_this_node() {
        let mut f = fresh();
        assert_eq!(f.on_peer(NodeId(9), Incarnation(1)), Verdict::Refuse(Stranger::NotAMember(NodeId(9))));
        assert_eq!(f.on_peer(NodeId(1), Incarnation(5)), Verdict::Refuse(Stranger::Myself(NodeId(1))));
    }

    #[test]
    fn a_stored_formation_stands_after_a_restart_and_a_lone_node_forms_by_itself() {
        let stored =
            [(NodeId(1), Incarnation(11)), (NodeId(2), Incarnation(22)), (NodeId(3), Incarnation(33))];
        assert!(Formation::new(NodeId(1), Incarnation(11), &VOTERS, &stored).is_formed());
        let mut lone = Formation::new(NodeId(1), Incarnation(11), &VOTERS[..1], &[]);
        assert_eq!(lone.alone(), Some(alloc::vec![(NodeId(1), Incarnation(11))]));
    }
}

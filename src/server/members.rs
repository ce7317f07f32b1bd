//! Who belongs to the cluster: what this node says of itself to peers, whom it lets in, and the
//! formation (DESIGN section 17), whose result is stored in BOOT before anybody votes.

use std::collections::BTreeMap;

use palisade_shard::{Astray, Formation, Showing, Stranger, Verdict, starts};
use palisade_types::{Acquaintance, ClusterIdentity, Incarnation, NodeId, Start, Starts};
use palisade_wal::slots::Staged;
use palisade_wal::{BOOT_FILE, BootRecord, DiskOp, Identity, OpId, Slots};
use palisade_wire::{PeerHello, RefusedReason, VERSION_MAX, VERSION_MIN, common_version};

/// The members as this node knows them.
pub(crate) struct Members {
    identity: Identity,
    /// What is durable.
    boot: Slots<BootRecord>,
    /// What is to be.
    wanted: BootRecord,
    formation: Formation,
    storing: Option<Storing>,
    /// What others have on record of members: by who said so, and of whom.
    heard: BTreeMap<(NodeId, NodeId), Start>,
    /// What each peer has shown when it was let in.
    shown: BTreeMap<NodeId, Starts>,
}

struct Storing {
    staged: Staged<BootRecord>,
    written: usize,
}

/// Why a peer is not let in: the code and the text it is told.
pub(crate) type Refusal = (RefusedReason, String);

/// What an introduction came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// The peer is let in. So are no longer, by what it has said, these.
    In { out: Vec<NodeId> },
    /// Its start is not durable here yet: ask again after the next [`Members::on_written`].
    Wait,
}

impl Members {
    /// From the directory. Ask [`Members::write`] next: a node that is alone has something to write.
    pub(crate) fn new(identity: Identity, boot: Slots<BootRecord>) -> Members {
        let formation =
            Formation::new(identity.node, identity.incarnation, &identity.voters, &boot.value().members);
        let wanted = boot.value().clone();
        let (heard, shown) = (BTreeMap::new(), BTreeMap::new());
        let mut members = Members { identity, boot, wanted, formation, storing: None, heard, shown };
        if let Some(all) = members.formation.alone() {
            members.wanted.members = all;
        }
        members
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
        self.boot.value().starts.number
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
            starts: self.boot.value().starts.clone(),
            expects: self.formation.known(to),
            // Before that a member may be formatted anew, and what is on record of it then means nothing.
            known: if self.is_formed() { self.boot.value().known.clone() } else { Vec::new() },
        }
    }

    /// Why this node must not go on, if a peer has a start of it on record that is none of its own.
    pub(crate) fn is_outdated(&self, hello: &PeerHello) -> Option<String> {
        let stranger = self.formation.known(hello.node).is_some_and(|known| known != hello.incarnation);
        if hello.cluster != self.identity.cluster || stranger {
            return None;
        }
        if hello.expects.is_some_and(|e| e != self.identity.incarnation) && !hello.known.is_empty() {
            let text = "this directory was formatted anew: restore the one it had, or replace the node under a new number";
            return Some(format!(
                "node {} knows another incarnation of node {}; {text}",
                hello.node, self.identity.node
            ));
        }
        let own = &self.boot.value().starts;
        let known = hello.known.iter().find(|k| k.node == self.identity.node)?;
        let why = starts::judge(Some(known.start), &[], own).err().filter(Astray::is_final)?;
        Some(format!("node {} says that node {} {why}", hello.node, self.identity.node))
    }

    /// Whether a member has been met with this incarnation.
    fn is_ours(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.formation.known(node) == Some(incarnation)
    }

    /// Judges a peer's introduction; `connected` tells that an earlier one of it still has its connection.
    /// There may be something to write then: see [`Members::write`].
    ///
    /// # Errors
    /// Why the peer is not let in.
    pub(crate) fn meet(&mut self, hello: &PeerHello, connected: bool) -> Result<Met, Refusal> {
        self.fits(hello)?;
        let node = hello.node;
        let same_incarnation = self.is_ours(node, hello.incarnation);
        match self.formation.on_peer(node, hello.incarnation) {
            Verdict::Accept => {}
            Verdict::Store(all) => self.wanted.members = all,
            Verdict::Refuse(stranger @ Stranger::OtherIncarnation { .. }) => {
                return Err((RefusedReason::Outdated, stranger.to_string()));
            }
            Verdict::Refuse(stranger) => return Err((RefusedReason::Stranger, stranger.to_string())),
        }
        if !same_incarnation {
            // Another directory than the one met before, while the cluster is not formed: its starts begin anew.
            self.wanted.known.retain(|k| k.node != node);
            self.shown.remove(&node);
            self.heard.retain(|(_, of), _| *of != node);
        }
        let known = self.wanted.known.iter().find(|k| k.node == node).map(|k| k.start);
        match starts::judge(known, &self.heard_of(node), &hello.starts) {
            Err(why) => {
                let reason = if why.is_final() { RefusedReason::Outdated } else { RefusedReason::Stranger };
                return Err((reason, format!("node {node} {why}")));
            }
            Ok(Showing::Later(_)) if connected => {
                let text = format!(
                    "node {node} has another process, which is still connected: two of them have one directory or a copy                      of it, or the end of the other has not been noticed yet. If this goes on, stop one of them"
                );
                return Err((RefusedReason::Twice, text));
            }
            Ok(Showing::Later(start)) => {
                self.wanted.known.retain(|k| k.node != node);
                self.wanted.known.push(Acquaintance { node, start });
                self.wanted.known.sort_by_key(|k| k.node);
                return Ok(Met::Wait);
            }
            Ok(Showing::Same)
                if !self.boot.value().known.iter().any(|k| k.node == node && Some(k.start) == known) =>
            {
                return Ok(Met::Wait);
            }
            Ok(Showing::Same | Showing::Plain) => {}
        }
        self.shown.insert(node, hello.starts.clone());
        Ok(Met::In { out: self.hear(hello) })
    }

    /// Whether the two speak one protocol for one cluster.
    fn fits(&self, hello: &PeerHello) -> Result<(), Refusal> {
        let own = &self.identity;
        if common_version(hello.version_min, hello.version_max).is_none() {
            let text = format!(
                "node {} speaks protocol versions {VERSION_MIN} to {VERSION_MAX}, not {} to {}",
                own.node, hello.version_min, hello.version_max
            );
            return Err((RefusedReason::Version, text));
        }
        if hello.cluster != own.cluster || hello.shards != own.shards {
            let text = format!(
                "node {} belongs to cluster {} with {} shards, not to {} with {}: check `peers`, and whose directory each                  node was started with",
                own.node, own.cluster, own.shards, hello.cluster, hello.shards
            );
            return Err((RefusedReason::Cluster, text));
        }
        if let Some(expected) = hello.expects.filter(|e| *e != own.incarnation) {
            let text = format!(
                "node {} knows node {} as incarnation {expected}, and this is {}: the directory was formatted anew",
                hello.node, own.node, own.incarnation
            );
            return Err((RefusedReason::Stranger, text));
        }
        Ok(())
    }

    fn heard_of(&self, node: NodeId) -> Vec<Start> {
        self.heard.iter().filter(|((_, of), _)| *of == node).map(|(_, start)| *start).collect()
    }

    /// Takes what a peer has on record of others, and says who cannot stay.
    fn hear(&mut self, hello: &PeerHello) -> Vec<NodeId> {
        self.heard.retain(|(from, _), _| *from != hello.node);
        if !self.is_formed() {
            return Vec::new();
        }
        for known in hello.known.iter().filter(|k| k.node != self.identity.node && k.node != hello.node) {
            self.heard.insert((hello.node, known.node), known.start);
        }
        let astray = |(node, shown): (&NodeId, &Starts)| {
            let why = starts::judge(None, &self.heard_of(*node), shown).err()?;
            // One that has been started since is another matter: it comes by itself.
            let older = self.heard_of(*node).iter().all(|start| start.number <= shown.number);
            (why.is_final() && older).then_some(*node)
        };
        let out: Vec<NodeId> = self.shown.iter().filter_map(astray).collect();
        out.iter().for_each(|node| drop(self.shown.remove(node)));
        out
    }

    /// What to write next, if something is to be written and nothing is being.
    pub(crate) fn write(&mut self) -> Option<DiskOp> {
        if self.storing.is_some() || self.wanted == *self.boot.value() {
            return None;
        }
        let staged = self.boot.stage(self.wanted.clone());
        let op = copy(&staged, 0);
        self.storing = Some(Storing { staged, written: 0 });
        Some(op)
    }

    /// A write of BOOT is durable. Returns whether a record is in force now that was not before.
    pub(crate) fn on_written(&mut self) -> (Option<DiskOp>, bool) {
        let Some(mut storing) = self.storing.take() else { return (None, false) };
        storing.written += 1;
        if storing.written < storing.staged.copies.len() {
            let op = copy(&storing.staged, storing.written);
            self.storing = Some(storing);
            return (Some(op), false);
        }
        self.boot.commit(storing.staged);
        if !self.formation.is_formed() && !self.boot.value().members.is_empty() {
            self.formation.on_stored();
        }
        (self.write(), true)
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
mod tests;

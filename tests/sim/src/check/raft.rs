//! R1 to R8, R13 and R14: Raft's promises, over all nodes and restarts, against mirrors of the
//! nodes' logs that are kept here and not taken from the nodes' word. What a node has in a snapshot
//! alone is in its mirror all the same, as the blocks that were committed up to there.

use std::collections::BTreeMap;

use palisade_raft::{Role, Status};
use palisade_types::{Block, Edge, HardState, LogIndex, NodeId, SnapshotId, Term};

use super::{Checked, Violation, demand};

/// A block as the checkers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its term.
    pub term: Term,
    /// The index of its first command.
    pub first: LogIndex,
    /// The index of its last command.
    pub last: LogIndex,
    /// The chain hash, which stands for the whole log up to here.
    pub chain: u128,
}

impl From<&Block> for Entry {
    fn from(b: &Block) -> Entry {
        Entry { term: b.term(), first: b.first(), last: b.last(), chain: b.chain() }
    }
}

/// A log as a list of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log(Vec<Entry>);

impl Log {
    /// A log of these blocks.
    pub fn of(blocks: &[Block]) -> Log {
        Log(blocks.iter().map(Entry::from).collect())
    }

    /// The index of the last command.
    pub fn last(&self) -> LogIndex {
        self.0.last().map_or(LogIndex(0), |e| e.last)
    }

    /// The term of the last block.
    pub fn last_term(&self) -> Term {
        self.0.last().map_or(Term(0), |e| e.term)
    }

    /// The block that holds this index.
    pub fn at(&self, index: LogIndex) -> Option<&Entry> {
        let place = self.0.partition_point(|e| e.last < index);
        self.0.get(place).filter(|e| e.first <= index)
    }

    /// Whether this edge is one of its own.
    pub fn reaches(&self, edge: &Edge) -> bool {
        edge.index == LogIndex(0)
            || self.at(edge.index).is_some_and(|e| (e.last, e.chain) == (edge.index, edge.chain))
    }

    /// Whether it holds exactly this block.
    pub fn holds(&self, entry: &Entry) -> bool {
        self.at(entry.last).is_some_and(|e| e == entry)
    }

    /// The blocks that end above this index.
    pub fn above(&self, index: LogIndex) -> &[Entry] {
        &self.0[self.0.partition_point(|e| e.last <= index)..]
    }

    /// How many blocks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The end of the last block for which this holds; 0 if it holds for none.
    pub fn last_where(&self, holds: impl Fn(&Entry) -> bool) -> LogIndex {
        self.0.iter().rev().find(|e| holds(e)).map_or(LogIndex(0), |e| e.last)
    }

    /// Drops what ends above this index, which must be a block's edge.
    ///
    /// # Errors
    /// R3 when it cuts through a block.
    pub fn truncate(&mut self, after: LogIndex) -> Checked {
        let keep = self.0.partition_point(|e| e.last <= after);
        self.0.truncate(keep);
        demand(self.last() == after, "R3", || format!("a truncation after {after} cuts a block"))
    }

    /// Adds a block, which must continue the log.
    ///
    /// # Errors
    /// R3 when it does not.
    pub fn push(&mut self, entry: Entry) -> Checked {
        let last = self.last();
        demand(entry.first == last.next() && entry.term >= self.last_term(), "R3", || {
            format!("{entry:?} does not continue a log that ends at {last} in term {}", self.last_term())
        })?;
        self.0.push(entry);
        Ok(())
    }
}

/// What is known of one node.
#[derive(Clone, Debug, Default)]
struct Node {
    /// What it has accepted into its log, durable or not.
    log: Log,
    /// What a power failure would leave for certain.
    durable: Log,
    hard_state: HardState,
    /// The lowest truncation accepted and perhaps not yet durable: a crash may leave either log.
    truncating: Option<LogIndex>,
    up: bool,
    term: Term,
    commit: LogIndex,
    leads: Option<Term>,
    /// Applied, or part of the snapshot it started from: every committed block once, in order.
    applied: LogIndex,
    /// The newest snapshot that it has on its disk.
    snapshot: Option<SnapshotId>,
    progress: BTreeMap<NodeId, LogIndex>,
}

/// The checker.
pub struct RaftCheck {
    nodes: Vec<Node>,
    leaders: BTreeMap<Term, usize>,
    /// The chain hash of every block that any node ever accepted, by term and last index.
    chains: BTreeMap<(Term, LogIndex), u128>,
    /// The committed log: the oracle.
    committed: Vec<Entry>,
    /// For each of these, the term in which it was first seen to be committed.
    committed_in: Vec<Term>,
    blocks: Vec<Block>,
    states: BTreeMap<LogIndex, u128>,
    snapshots: BTreeMap<LogIndex, SnapshotId>,
    /// How often a snapshot took the place of a node's state.
    pub installs: u64,
    /// How often a node became leader.
    pub leader_changes: u64,
}

impl RaftCheck {
    /// A checker of so many empty voters.
    pub fn new(nodes: usize) -> RaftCheck {
        RaftCheck {
            nodes: vec![Node::default(); nodes],
            leaders: BTreeMap::new(),
            chains: BTreeMap::new(),
            committed: Vec::new(),
            committed_in: Vec::new(),
            blocks: Vec::new(),
            states: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            installs: 0,
            leader_changes: 0,
        }
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// The committed commands.
    pub fn committed(&self) -> LogIndex {
        self.committed.last().map_or(LogIndex(0), |e| e.last)
    }

    /// The committed blocks of which some node has delivered the content, in order from the first.
    pub fn committed_blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// What of a node's log a power failure would leave for certain.
    pub fn durable_log(&self, node: usize) -> &Log {
        &self.nodes[node].durable
    }

    /// Which hard state a power failure would leave for certain.
    pub fn durable_hard_state(&self, node: usize) -> HardState {
        self.nodes[node].hard_state
    }

    /// The log a node has accepted.
    pub fn accepted_log(&self, node: usize) -> &Log {
        &self.nodes[node].log
    }

    /// A node started with what it found on its disk.
    ///
    /// # Errors
    /// R7 or R4 when something durable is not there any more, R14 when an entry is of a later term, R8
    /// when snapshot and log do not meet, or an older snapshot came back.
    pub fn on_start(
        &mut self,
        node: usize,
        hard_state: HardState,
        snapshot: Option<SnapshotId>,
        base: Edge,
        blocks: &[Block],
    ) -> Checked {
        for b in blocks {
            self.learn(node, &Entry::from(b))?;
        }
        let applied = snapshot.map_or(LogIndex(0), |id| id.last);
        if let Some(id) = snapshot {
            self.know_snapshot(node, id)?;
        }
        let had = self.nodes[node].snapshot.map_or(LogIndex(0), |id| id.last);
        demand(applied >= had && base.index <= applied, "R8", || {
            format!(
                "node {} starts from a snapshot at {applied} and a log behind {}, it had one at {had}",
                node + 1,
                base.index
            )
        })?;
        let mut log = self.committed_upto(node, base)?;
        for b in blocks {
            log.push(Entry::from(b))?;
        }
        let n = &mut self.nodes[node];
        let before = n.hard_state;
        let kept = hard_state.term > before.term
            || (hard_state.term == before.term && (before.vote.is_none() || hard_state.vote == before.vote));
        demand(kept, "R7", || {
            format!("node {} came back with {hard_state:?} after {before:?} was durable", node + 1)
        })?;
        demand(log.last() >= applied, "R8", || {
            format!("node {} has a log up to {} and a snapshot at {applied}", node + 1, log.last())
        })?;
        demand(blocks.is_empty() || log.last_term() <= hard_state.term, "R14", || {
            format!("node {} holds a block of term {} in {hard_state:?}", node + 1, log.last_term())
        })?;
        // What was durable is still there, but for what a truncation under way may have taken away.
        let kept = n.truncating.unwrap_or(n.durable.last());
        for e in n.durable.0.iter().take_while(|e| e.last <= kept) {
            demand(log.holds(e), "R9", || format!("node {} lost {e:?}, which was durable", node + 1))?;
        }
        *n = Node {
            durable: log.clone(),
            log,
            hard_state,
            up: true,
            term: hard_state.term,
            commit: applied,
            applied,
            snapshot,
            ..Node::default()
        };
        Ok(())
    }

    /// The committed log up to this edge, which a node has.
    fn committed_upto(&self, node: usize, edge: Edge) -> Result<Log, Violation> {
        let end = self.committed.partition_point(|e| e.last <= edge.index);
        let log = Log(self.committed[..end].to_vec());
        let there = log.0.last().map_or((LogIndex(0), Term(0), 0), |e| (e.last, e.term, e.chain));
        demand((edge.index, edge.term, edge.chain) == there, "R8", || {
            format!("node {} has a snapshot or log that meets at {edge:?}, committed is {there:?}", node + 1)
        })?;
        Ok(log)
    }

    /// The log of a node that holds these blocks behind this committed edge.
    ///
    /// # Errors
    /// R8 when the edge is not committed, or the blocks do not follow it.
    pub fn whole_log(&self, node: usize, base: Edge, blocks: &[Block]) -> Result<Log, Violation> {
        let mut log = self.committed_upto(node, base)?;
        blocks.iter().try_for_each(|b| log.push(Entry::from(b)))?;
        Ok(log)
    }

    /// A node has a snapshot: of a committed edge, and the same as others have of it.
    fn know_snapshot(&mut self, node: usize, id: SnapshotId) -> Checked {
        let known = *self.snapshots.entry(id.last).or_insert(id);
        demand(known == id, "S7", || format!("node {} has {id:?}, another node {known:?}", node + 1))?;
        self.committed_upto(node, id.edge()).map(|_| ())
    }

    /// A node's disk holds a snapshot, complete, under its name.
    ///
    /// # Errors
    /// S7 when another node has another one of the same index, R8 when it is of what was not committed.
    pub fn on_snapshot(&mut self, node: usize, id: SnapshotId) -> Checked {
        self.know_snapshot(node, id)?;
        let n = &mut self.nodes[node];
        if n.snapshot.is_none_or(|newest| newest.last < id.last) {
            n.snapshot = Some(id);
        }
        Ok(())
    }

    /// The newest snapshot on a node's disk.
    pub fn snapshot(&self, node: usize) -> Option<SnapshotId> {
        self.nodes[node].snapshot
    }

    /// A node exchanges its log for a snapshot.
    ///
    /// # Errors
    /// R2 at a leader, R8 when the snapshot is not on its disk, R4 when it goes back.
    pub fn on_installing(&mut self, node: usize, leads: Option<Term>, id: SnapshotId) -> Checked {
        let log = self.committed_upto(node, id.edge())?;
        let n = &mut self.nodes[node];
        demand(leads.is_none(), "R2", || format!("node {} installs {id:?} while it leads", node + 1))?;
        demand(n.snapshot == Some(id), "R8", || {
            format!("node {} installs {id:?}, on its disk is {:?}", node + 1, n.snapshot)
        })?;
        demand(id.last > n.log.last() || !n.log.0.iter().any(|e| log.0.last() == Some(e)), "R4", || {
            format!("node {} drops a log that holds the edge of {id:?}", node + 1)
        })?;
        // A crash may leave the old log or the new one: for certain only what both hold.
        let both = n.durable.last_where(|e| log.holds(e));
        n.truncating = Some(n.truncating.map_or(both, |t| t.min(both)));
        n.log = log;
        Ok(())
    }

    /// The disk has exchanged the log.
    ///
    /// # Errors
    /// R8.
    pub fn on_install_durable(&mut self, node: usize, id: SnapshotId) -> Checked {
        let log = self.committed_upto(node, id.edge())?;
        let n = &mut self.nodes[node];
        n.durable = log;
        if n.durable.0.last() == n.log.0.last() {
            n.truncating = None;
        }
        Ok(())
    }

    /// A snapshot took the place of a node's state.
    ///
    /// # Errors
    /// R5 when that goes back.
    pub fn on_installed(&mut self, node: usize, id: SnapshotId) -> Checked {
        let n = &mut self.nodes[node];
        demand(id.last > n.applied, "R5", || {
            format!("node {} installs a state of {} over one of {}", node + 1, id.last, n.applied)
        })?;
        n.applied = id.last;
        self.installs += 1;
        Ok(())
    }

    /// A node is down.
    pub fn on_stop(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].leads = None;
    }

    fn learn(&mut self, node: usize, entry: &Entry) -> Checked {
        let known = *self.chains.entry((entry.term, entry.last)).or_insert(entry.chain);
        demand(known == entry.chain, "R3", || {
            format!("node {} has another log at {entry:?} than a node before it", node + 1)
        })
    }

    /// A node changed its log in memory; it leads this term now, if any.
    ///
    /// # Errors
    /// R2, R3, or R4 when it drops something committed.
    pub fn on_accepted(
        &mut self,
        node: usize,
        leads: Option<Term>,
        truncate: Option<LogIndex>,
        blocks: &[Block],
    ) -> Checked {
        for b in blocks {
            self.learn(node, &Entry::from(b))?;
        }
        let n = &mut self.nodes[node];
        if let Some(after) = truncate {
            demand(n.leads.is_none() || n.leads != leads, "R2", || {
                format!("node {} truncates its log after {after} while it leads", node + 1)
            })?;
            demand(after >= n.commit, "R4", || {
                format!("node {} truncates after {after}, below its commit index {}", node + 1, n.commit)
            })?;
            n.log.truncate(after)?;
            n.truncating = Some(n.truncating.map_or(after, |t| t.min(after)));
        }
        blocks.iter().try_for_each(|b| n.log.push(Entry::from(b)))
    }

    /// A node's disk holds more than before.
    ///
    /// # Errors
    /// R7 when the hard state goes back, R14 when a block is durable before its term is.
    pub fn on_durable(
        &mut self,
        node: usize,
        hard_state: Option<HardState>,
        truncate: Option<LogIndex>,
        blocks: &[Entry],
    ) -> Checked {
        let n = &mut self.nodes[node];
        if let Some(new) = hard_state {
            let old = n.hard_state;
            let forward =
                new.term > old.term || (new.term == old.term && (old.vote.is_none() || new.vote == old.vote));
            demand(forward, "R7", || format!("node {}'s hard state goes from {old:?} to {new:?}", node + 1))?;
            n.hard_state = new;
        }
        if let Some(after) = truncate {
            n.durable.truncate(after)?;
        }
        for &e in blocks {
            demand(e.term <= n.hard_state.term, "R14", || {
                format!("node {}: {e:?} is durable, its term is not: {:?}", node + 1, n.hard_state)
            })?;
            n.durable.push(e)?;
        }
        if n.durable.0.last() == n.log.0.last() {
            n.truncating = None;
        }
        Ok(())
    }

    /// Looks at a node after it did something.
    ///
    /// # Errors
    /// R1, R4, R6, R7 or R13.
    pub fn on_status(&mut self, node: usize, status: &Status) -> Checked {
        let n = &mut self.nodes[node];
        demand(status.term >= n.term, "R7", || {
            format!("node {}'s term goes from {} to {}", node + 1, n.term, status.term)
        })?;
        demand(status.commit >= n.commit, "R7", || {
            format!("node {}'s commit index goes from {} to {}", node + 1, n.commit, status.commit)
        })?;
        demand(status.last == n.log.last(), "R3", || {
            format!("node {} says its log ends at {}, it ends at {}", node + 1, status.last, n.log.last())
        })?;
        let snapshot = n.snapshot.map_or(LogIndex(0), |id| id.last);
        demand(status.base <= snapshot && status.snapshot <= snapshot, "R8", || {
            format!("node {}: {status:?}, its disk has a snapshot at {snapshot}", node + 1)
        })?;
        n.term = status.term;
        let leads = (status.role == Role::Leader).then_some(status.term);
        let (was, committed) = (n.leads, n.commit);
        n.leads = leads;
        n.commit = status.commit;
        if leads != was {
            n.progress.clear();
        }
        if let Some(term) = leads.filter(|_| leads != was) {
            self.on_leader(node, term)?;
        }
        if status.commit > committed {
            self.on_commit(node, committed, status.commit)?;
        }
        self.on_progress(node, status)
    }

    fn on_leader(&mut self, node: usize, term: Term) -> Checked {
        self.leader_changes += 1;
        let first = *self.leaders.entry(term).or_insert(node);
        demand(first == node, "R1", || {
            format!("nodes {} and {} both lead term {term}", first + 1, node + 1)
        })?;
        // A late vote can still make a leader of a term that others have left; it need not hold what
        // was committed in later ones.
        let binding = self.committed.iter().zip(&self.committed_in).filter(|(_, t)| **t < term);
        for (e, _) in binding {
            demand(self.nodes[node].log.holds(e), "R4", || {
                format!("node {} leads term {term} without {e:?}, which is committed", node + 1)
            })?;
        }
        Ok(())
    }

    fn on_commit(&mut self, node: usize, before: LogIndex, commit: LogIndex) -> Checked {
        let known = self.committed();
        let new: Vec<Entry> =
            self.nodes[node].log.above(before).iter().take_while(|e| e.last <= commit).copied().collect();
        demand(new.last().map(|e| e.last) == Some(commit), "R5", || {
            format!("node {} commits up to {commit}, which is no edge of its log", node + 1)
        })?;
        for e in new {
            if e.last <= known {
                let place = self.committed.partition_point(|c| c.last < e.last);
                demand(self.committed[place] == e, "R5", || {
                    format!("node {} commits {e:?}, others {:?}", node + 1, self.committed[place])
                })?;
                continue;
            }
            let holders = self.nodes.iter().filter(|n| n.durable.holds(&e)).count();
            demand(holders >= self.quorum(), "R6", || {
                format!("node {} commits {e:?}, which is on {holders} disks only", node + 1)
            })?;
            self.committed.push(e);
            self.committed_in.push(self.nodes[node].term);
        }
        Ok(())
    }

    fn on_progress(&mut self, node: usize, status: &Status) -> Checked {
        if status.role != Role::Leader {
            return Ok(());
        }
        for p in &status.voters {
            let n = &mut self.nodes[node];
            let before = n.progress.insert(p.node, p.match_index).unwrap_or(LogIndex(0));
            demand(
                p.next > p.match_index && p.match_index <= status.last && p.match_index >= before,
                "R13",
                || format!("node {} believes of node {}: {p:?}, before: match {before}", node + 1, p.node),
            )?;
        }
        Ok(())
    }

    /// A node hands committed blocks to its state machine.
    ///
    /// # Errors
    /// R5 when they are not the committed ones, or not the next.
    pub fn on_applied(&mut self, node: usize, blocks: &[Block]) -> Checked {
        for b in blocks {
            let n = &mut self.nodes[node];
            demand(b.first() == n.applied.next(), "R5", || {
                format!("node {} applies {b:?} after {}", node + 1, n.applied)
            })?;
            n.applied = b.last();
            let place = self.committed.partition_point(|c| c.last < b.last());
            let fits = self.committed.get(place) == Some(&Entry::from(b));
            demand(fits, "R5", || format!("node {} applies {b:?}, which is not committed", node + 1))?;
            if place == self.blocks.len() {
                self.blocks.push(b.clone());
            }
        }
        Ok(())
    }

    /// Demands that the leader of this term, if it still leads, holds this block.
    ///
    /// # Errors
    /// R9: somebody acknowledged another block in its term.
    pub fn leader_holds(&self, term: Term, entry: &Entry) -> Checked {
        let Some(&leader) = self.leaders.get(&term) else { return Ok(()) };
        let n = &self.nodes[leader];
        demand(n.leads != Some(term) || n.log.holds(entry), "R9", || {
            format!("{entry:?} is acknowledged in term {term}, whose leader holds another log")
        })
    }

    /// A node has this state after it applied up to this index.
    ///
    /// # Errors
    /// R5 when another node had another state there.
    pub fn on_state(&mut self, node: usize, applied: LogIndex, digest: u128) -> Checked {
        let known = *self.states.entry(applied).or_insert(digest);
        demand(known == digest, "R5", || {
            format!("node {}'s state at {applied} differs from another node's", node + 1)
        })
    }

    /// How far a node has applied.
    pub fn applied(&self, node: usize) -> LogIndex {
        self.nodes[node].applied
    }

    /// The node that leads the highest term, among those that are up.
    pub fn leader(&self) -> Option<usize> {
        (0..self.nodes.len())
            .filter(|&n| self.nodes[n].up)
            .max_by_key(|&n| self.nodes[n].leads)
            .filter(|&n| self.nodes[n].leads.is_some())
    }

    /// Demands that all nodes have the same log, all of it committed and known to be.
    ///
    /// # Errors
    /// L3.
    pub fn converged(&self) -> Checked {
        let committed = self.committed();
        for (i, n) in self.nodes.iter().enumerate() {
            let same = n.log == self.nodes[0].log && n.commit == committed && n.log.last() == committed;
            if !same {
                return Err(Violation::new(
                    "L3",
                    format!(
                        "node {} has a log up to {}, committed {}, of {committed}",
                        i + 1,
                        n.log.last(),
                        n.commit
                    ),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

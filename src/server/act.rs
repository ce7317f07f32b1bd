//! Carries out what the shard asks for.

use std::time::Duration;

use palisade_shard::{Note, peer_codec};
use palisade_types::{Cause, NodeId, ShardId, Time};
use palisade_wire::{Push, VERSION_MAX};

use super::core::Core;
use super::fatal;
use super::inbox::Owner;

/// How old a gauge may be.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);

impl Core {
    /// Carries out the actions of a turn and forgets them.
    pub(super) fn perform(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for note in actions.notes.drain(..) {
            log(self.members.identity().node, &note);
        }
        if let Some(stop) = actions.stop.take() {
            fatal(&stop.to_string());
        }
        // The disk first: its operation is under way while the rest is encoded.
        for op in actions.disk.drain(..) {
            self.disk.start(Owner::Shard, op);
        }
        for (node, message) in actions.peers.drain(..) {
            self.send_to_peer(node, &message);
        }
        for (conn, id, reply) in actions.replies.drain(..) {
            self.answer(conn, id, &reply);
        }
        for (conn, push) in actions.pushes.drain(..) {
            let signature = self.signature_with_push(conn, &push);
            let out = match push {
                Push::Events { .. } | Push::Progress { .. } | Push::WatchEnded { .. } => {
                    self.sockets.watch_out(conn)
                }
                _ => self.sockets.out(conn),
            };
            if let Some(out) = out {
                self.metrics.pushes.one();
                // What is signed is signed for a version that knows of it, and all else is the same in all.
                push.encode_in(VERSION_MAX, signature.as_ref(), out);
            }
        }
        if let Some(drain) = actions.drain.take() {
            self.begin_mark(drain);
        }
        // Nothing above adds actions; the allocations are kept.
        self.actions = actions;
    }

    fn send_to_peer(&mut self, node: NodeId, message: &palisade_raft::Message) {
        self.scratch.clear();
        let conn = self.peers.conn(node);
        match conn.and_then(|conn| self.sockets.out(conn)) {
            Some(out) => {
                peer_codec::encode(ShardId(0), message, &mut self.scratch);
                palisade_wire::encode_peer(out, &[&self.scratch]);
                self.metrics.peer_sent.one();
            }
            None => self.metrics.peer_dropped.one(),
        }
    }

    /// States what others count, now and then: no turn pays for it.
    pub(super) fn publish(&mut self, now: Time) {
        if now < self.published + PUBLISH_EVERY {
            return;
        }
        self.published = now;
        self.stages.publish(now, &self.metrics);
        self.metrics.connections.set(self.sockets.len() as u64);
        let Some(shard) = &self.shard else { return };
        let counters = shard.counters();
        self.metrics.blocks_sealed.set(counters.blocks_sealed);
        self.metrics.blocks_applied.set(counters.blocks_applied);
        self.metrics.commands_applied.set(counters.commands_applied);
        self.metrics.sessions_renewed.set(counters.renewals);
        self.metrics.reads.set(counters.reads);
        self.metrics.follower_reads.set(counters.follower_reads);
        self.metrics.stale_reads.set(counters.stale_reads);
        self.metrics.lease_reads.set(counters.lease_reads);
        self.metrics.rounds.set(counters.rounds);
        self.metrics.expiries.set(counters.expiries);
        self.metrics.leader_changes.set(counters.leader_changes);
        self.metrics.turned_away.set(counters.turned_away);
        self.metrics.stalled_ms.set(counters.stalled_ms);
        self.metrics.operator_acts.set(counters.operator_acts);
        self.metrics.hand_overs.set(counters.hand_overs);
        self.metrics.hand_overs_given_up.set(counters.hand_overs_given_up);
        let watches = shard.watch_counters();
        self.metrics.watches.set(watches.watches);
        self.metrics.watch_deliveries.set(watches.deliveries);
        self.metrics.watch_coalesced.set(watches.coalesced);
        self.metrics.watch_resyncs.set(watches.resyncs);
        let status = shard.status();
        self.metrics.term.set(status.term.0);
        self.metrics.leads.set(u64::from(status.leader == Some(status.node)));
        self.metrics.last_index.set(status.last.0);
        self.metrics.durable_index.set(status.durable.0);
        self.metrics.commit_index.set(status.commit.0);
        self.metrics.applied_index.set(status.applied.0);
        self.metrics.sessions.set(status.sessions);
        self.metrics.keys.set(status.keys);
        let counts = shard.machine().counts();
        self.metrics.ending_keys.set(counts.backlog);
        self.metrics.expiry_lag_ms.set(shard.expiry_lag().as_millis() as u64);
        self.metrics.values.set(counts.values);
        self.metrics.value_bytes.set(counts.value_bytes);
        self.metrics.state_bytes.set(counts.state_bytes);
        self.metrics.resources.set(counts.resources);
        self.metrics.resource_conflicts.set(counts.resource_conflicts);
        self.metrics.log_bytes.set(status.log_bytes);
        self.metrics.snapshot_index.set(status.snapshot.0);
        self.metrics.snapshot_bytes.set(shard.snapshot().map_or(0, |id| id.bytes));
        self.metrics.snapshots_taken.set(counters.snapshots_taken);
        self.metrics.snapshots_installed.set(counters.snapshots_installed);
        self.metrics.snapshot_chunks_sent.set(counters.snapshot_chunks_sent);
    }
}

fn log(node: NodeId, note: &Note) {
    match note {
        Note::Leading { term } => tracing::info!(%node, %term, "leading"),
        Note::Serving { term, sessions } => tracing::info!(%node, %term, sessions, "serving as the leader"),
        Note::HandingOver { to } => {
            tracing::info!(%node, to = ?to.map(|node| node.0), "handing the leadership over");
        }
        Note::HandOverGivenUp => tracing::warn!(%node, "nobody has taken the leadership over; leading on"),
        Note::Deposed { term } => tracing::info!(%node, %term, "no longer leading"),
        Note::Following { leader, term } => {
            tracing::info!(%node, %leader, %term, "following");
        }
        Note::SessionEnded { session, cause: Cause::Closed } => {
            tracing::debug!(%node, %session, "a session was closed")
        }
        Note::SessionEnded { session, cause } => tracing::info!(%node, %session, %cause, "a session ended"),
        Note::SnapshotTaken(id) => {
            tracing::info!(%node, last = %id.last, bytes = id.bytes, "a snapshot is durable");
        }
        Note::SnapshotInstalled(id) => {
            tracing::info!(%node, last = %id.last, bytes = id.bytes, "the leader's snapshot is installed");
        }
        Note::SnapshotGivenUp { last, why } => {
            tracing::warn!(%node, %last, why, "a snapshot came to nothing; another is taken later");
        }
        Note::SnapshotUnreadable { last, fault } => {
            tracing::error!(%node, %last, %fault, "the newest snapshot cannot be read; another is taken");
        }
        Note::Stalled { ms } => tracing::warn!(%node, ms, "this node was held up; sessions are credited"),
    }
}

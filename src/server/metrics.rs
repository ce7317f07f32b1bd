//! Counters of one core: written by its executor, read by the administration thread, without locks.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($(#[doc = $doc:literal])* $field:ident, $kind:literal, $name:literal;)*) => {
        /// The counters and gauges of one core.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $($(#[doc = $doc])* pub(crate) $field: Metric,)*
            /// Where an operation spends its time.
            pub(crate) stages: [StageMetrics; STAGES.len()],
        }

        impl Metrics {
            /// Appends them all in the text format of Prometheus, with a `core` label.
            pub(crate) fn render(cores: &[std::sync::Arc<Metrics>], out: &mut String) {
                $(
                    header(out, $name, $kind, concat!($($doc),*).trim());
                    for (core, metrics) in cores.iter().enumerate() {
                        // Writing to a String cannot fail.
                        let _ = writeln!(out, "{}{{core=\"{core}\"}} {}", $name, metrics.$field.get());
                    }
                )*
                render_stages(cores, out);
            }
        }
    };
}

metrics! {
    /// Turns of the loop.
    turns, "counter", "palisade_turns_total";
    /// Batches of the log written and synced.
    log_batches, "counter", "palisade_log_batches_total";
    /// Times a file was made durable (fdatasync or fsync), of any kind.
    syncs, "counter", "palisade_device_syncs_total";
    /// Bytes written to files and synced.
    synced_bytes, "counter", "palisade_synced_bytes_total";
    /// Nanoseconds from the start of a write to the end of its sync, summed.
    sync_ns, "counter", "palisade_sync_nanoseconds_total";
    /// Segments of the log created.
    segments, "counter", "palisade_log_segments_created_total";
    /// Requests of clients taken.
    requests, "counter", "palisade_requests_total";
    /// Renewal frames among them.
    renewals, "counter", "palisade_renewal_frames_total";
    /// Answers given.
    replies, "counter", "palisade_replies_total";
    /// Messages pushed unasked.
    pushes, "counter", "palisade_pushes_total";
    /// Signatures made of fences of grants, those of answers that were repeated included.
    fences_signed, "counter", "palisade_fences_signed_total";
    /// Messages sent to peers.
    peer_sent, "counter", "palisade_peer_messages_sent_total";
    /// Messages received from peers.
    peer_received, "counter", "palisade_peer_messages_received_total";
    /// Messages to peers dropped: no link, or its buffer was full.
    peer_dropped, "counter", "palisade_peer_messages_dropped_total";
    /// Messages from peers dropped: of a shard that is not here, or of an earlier connection of the peer.
    peer_astray, "counter", "palisade_peer_messages_astray_total";
    /// Connections accepted.
    accepted, "counter", "palisade_connections_accepted_total";
    /// Connections refused or closed by this node: full, late with their hello, malformed, too slow.
    shed, "counter", "palisade_connections_shed_total";
    /// Blocks this node sealed as a leader.
    blocks_sealed, "counter", "palisade_blocks_sealed_total";
    /// Blocks applied.
    blocks_applied, "counter", "palisade_blocks_applied_total";
    /// Commands (entries of the log) applied.
    commands_applied, "counter", "palisade_commands_applied_total";
    /// Sessions renewed.
    sessions_renewed, "counter", "palisade_sessions_renewed_total";
    /// Reads answered, of any consistency.
    reads, "counter", "palisade_reads_total";
    /// Linearizable reads answered by this node while another led.
    follower_reads, "counter", "palisade_follower_reads_total";
    /// Reads answered by lease.
    lease_reads, "counter", "palisade_lease_reads_total";
    /// Stale reads answered.
    stale_reads, "counter", "palisade_stale_reads_total";
    /// Confirmation rounds started as a leader.
    rounds, "counter", "palisade_rounds_total";
    /// Sessions this node decided to expire.
    expiries, "counter", "palisade_sessions_expired_total";
    /// Changes of leadership seen.
    leader_changes, "counter", "palisade_leader_changes_total";
    /// Requests answered with Busy or QuotaExceeded.
    turned_away, "counter", "palisade_requests_turned_away_total";
    /// Operators' actions answered as done by this node.
    operator_acts, "counter", "palisade_operator_acts_total";
    /// Leaderships this node began to hand over.
    hand_overs, "counter", "palisade_hand_overs_total";
    /// Those of them that nobody took in time.
    hand_overs_given_up, "counter", "palisade_hand_overs_given_up_total";
    /// Milliseconds this node was held up, as credited to sessions.
    stalled_ms, "counter", "palisade_stalled_milliseconds_total";
    /// Pushes to watches.
    watch_deliveries, "counter", "palisade_watch_deliveries_total";
    /// Pushes that told a slow watch only the newest change of each key.
    watch_coalesced, "counter", "palisade_watch_coalesced_total";
    /// Watches ended because their client was too slow.
    watch_resyncs, "counter", "palisade_watch_resyncs_total";
    /// Watches served.
    watches, "gauge", "palisade_watches";
    /// Connections open.
    connections, "gauge", "palisade_connections";
    /// The current term.
    term, "gauge", "palisade_term";
    /// Whether this node leads.
    leads, "gauge", "palisade_leads";
    /// The last command in the log.
    last_index, "gauge", "palisade_last_index";
    /// Durable in this node's log up to here.
    durable_index, "gauge", "palisade_durable_index";
    /// Committed, as far as this node knows.
    commit_index, "gauge", "palisade_commit_index";
    /// Applied up to here.
    applied_index, "gauge", "palisade_applied_index";
    /// Milliseconds for which the silent session that is overdue for longest lives on past its deadline; at
    /// the leader.
    expiry_lag_ms, "gauge", "palisade_expiry_lag_milliseconds";
    /// Keys of ended sessions that wait for their release.
    ending_keys, "gauge", "palisade_ending_keys";
    /// Live sessions.
    sessions, "gauge", "palisade_sessions";
    /// Records of keys.
    keys, "gauge", "palisade_keys";
    /// Ephemeral keys.
    values, "gauge", "palisade_ephemeral_keys";
    /// Bytes of the names and values of ephemeral keys.
    value_bytes, "gauge", "palisade_ephemeral_bytes";
    /// Bytes of the state, by the account that the quota is for.
    state_bytes, "gauge", "palisade_state_bytes";
    /// Resources that keys claim to protect.
    resources, "gauge", "palisade_resources";
    /// Resources that more than one key claims to protect.
    resource_conflicts, "gauge", "palisade_resource_conflicts";
    /// Bytes of the log.
    log_bytes, "gauge", "palisade_log_bytes";
    /// Index of the state that the newest snapshot on this disk holds.
    snapshot_index, "gauge", "palisade_snapshot_index";
    /// Bytes of that snapshot.
    snapshot_bytes, "gauge", "palisade_snapshot_bytes";
    /// Snapshots taken of the own state, and durable.
    snapshots_taken, "counter", "palisade_snapshots_taken_total";
    /// Snapshots of a leader that took the place of the own state.
    snapshots_installed, "counter", "palisade_snapshots_installed_total";
    /// Chunks of snapshots sent to other nodes.
    snapshot_chunks_sent, "counter", "palisade_snapshot_chunks_sent_total";
}

/// The stages of an operation, in order.
pub(crate) const STAGES: [&str; 5] = ["queue", "disk", "replicate", "apply", "reply"];
/// The quantiles of a stage that are published.
pub(crate) const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// One stage, as it was in the last seconds.
#[derive(Debug, Default)]
pub(crate) struct StageMetrics {
    /// In microseconds, one for each of [`QUANTILES`].
    pub(crate) quantiles: [Metric; QUANTILES.len()],
    /// Microseconds of all operations since the start, summed.
    pub(crate) sum: Metric,
    /// Operations since the start.
    pub(crate) count: Metric,
}

const STAGE_NAME: &str = "palisade_stage_microseconds";

fn render_stages(cores: &[std::sync::Arc<Metrics>], out: &mut String) {
    header(
        out,
        STAGE_NAME,
        "summary",
        "Time of operations in each stage of a leader; quantiles of the last ten seconds.",
    );
    for (core, metrics) in cores.iter().enumerate() {
        for (stage, numbers) in STAGES.iter().zip(&metrics.stages) {
            let labels = format!("core=\"{core}\",stage=\"{stage}\"");
            // Writing to a String cannot fail.
            for (quantile, value) in QUANTILES.iter().zip(&numbers.quantiles) {
                let _ = writeln!(out, "{STAGE_NAME}{{{labels},quantile=\"{quantile}\"}} {}", value.get());
            }
            let _ = writeln!(out, "{STAGE_NAME}_sum{{{labels}}} {}", numbers.sum.get());
            let _ = writeln!(out, "{STAGE_NAME}_count{{{labels}}} {}", numbers.count.get());
        }
    }
}

/// One number. Relaxed: each stands for itself.
#[derive(Debug, Default)]
pub(crate) struct Metric(AtomicU64);

impl Metric {
    /// Counts one.
    pub(crate) fn one(&self) {
        self.add(1);
    }

    /// Counts several.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// States a gauge.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Appends the two lines before a metric's values.
pub(crate) fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn metrics_render_as_prometheus_text() {
        let core = Arc::new(Metrics::default());
        core.syncs.add(3);
        let mut out = String::new();
        Metrics::render(&[core], &mut out);
        assert!(out.contains(
            "# HELP palisade_device_syncs_total Times a file was made durable (fdatasync or fsync), of any kind.\n\
             # TYPE palisade_device_syncs_total counter\npalisade_device_syncs_total{core=\"0\"} 3\n"
        ));
    }
}

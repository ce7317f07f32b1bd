//! The counters of the nodes, from their administration port.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The administration port lies so far above the clients'.
const ADMIN_PORT_OFFSET: u16 = 100;
/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Counters of one node, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct NodeCounters {
    syncs: u64,
    synced_bytes: u64,
    commands_applied: u64,
    blocks_sealed: u64,
}

impl NodeCounters {
    /// Out of the text format of Prometheus; a counter has a line a core.
    fn parse(text: &str) -> Option<NodeCounters> {
        let sum = |name: &str| sum(text, name);
        Some(NodeCounters {
            syncs: sum("palisade_device_syncs_total")?,
            synced_bytes: sum("palisade_synced_bytes_total")?,
            commands_applied: sum("palisade_commands_applied_total")?,
            blocks_sealed: sum("palisade_blocks_sealed_total")?,
        })
    }

    /// What was added since; `None` when the node started anew meanwhile.
    fn since(&self, before: &NodeCounters) -> Option<NodeCounters> {
        Some(NodeCounters {
            syncs: self.syncs.checked_sub(before.syncs)?,
            synced_bytes: self.synced_bytes.checked_sub(before.synced_bytes)?,
            commands_applied: self.commands_applied.checked_sub(before.commands_applied)?,
            blocks_sealed: self.blocks_sealed.checked_sub(before.blocks_sealed)?,
        })
    }
}

/// A metric out of the text format of Prometheus, its cores together.
fn sum(text: &str, name: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (_, value) = rest.strip_prefix('{').and_then(|r| r.split_once('}')).unwrap_or(("", rest));
        value.strip_prefix(' ')?.trim().parse::<u64>().ok()
    });
    let first = values.next()?;
    Some(first + values.sum::<u64>())
}

/// One metric of one node.
pub(crate) fn gauge(endpoint: &str, name: &str) -> Option<u64> {
    sum(&fetch_text(endpoint)?, name)
}

/// The counters of all nodes at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Counters(Vec<NodeCounters>);

/// What a cluster did in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ClusterWork {
    /// Syncs of all nodes' disks.
    pub(crate) syncs: u64,
    /// Bytes synced by all nodes.
    pub(crate) synced_bytes: u64,
    /// Entries of the log, each counted once.
    pub(crate) entries: u64,
    /// Blocks of the log, each counted once.
    pub(crate) blocks: u64,
}

impl Counters {
    /// Asks all nodes; `None` when one does not say.
    pub(crate) fn fetch(endpoints: &[String]) -> Option<Counters> {
        let all: Option<Vec<NodeCounters>> = endpoints.iter().map(|e| fetch(e)).collect();
        all.filter(|nodes| !nodes.is_empty()).map(Counters)
    }

    /// What was done between these and later ones; `None` when a node started anew meanwhile.
    pub(crate) fn until(&self, later: &Counters) -> Option<ClusterWork> {
        let mut work = ClusterWork::default();
        for (before, after) in self.0.iter().zip(&later.0) {
            let node = after.since(before)?;
            work.syncs += node.syncs;
            work.synced_bytes += node.synced_bytes;
            // Every node applies every entry; a follower may lag at the edges.
            work.entries = work.entries.max(node.commands_applied);
            // Only the leader seals.
            work.blocks += node.blocks_sealed;
        }
        Some(work)
    }
}

fn fetch(endpoint: &str) -> Option<NodeCounters> {
    NodeCounters::parse(&fetch_text(endpoint)?)
}

fn fetch_text(endpoint: &str) -> Option<String> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let port = port.parse::<u16>().ok()?.checked_add(ADMIN_PORT_OFFSET)?;
    let address = (host, port).to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP palisade_device_syncs_total Times.\n# TYPE palisade_device_syncs_total counter\n\
        palisade_device_syncs_total{core=\"0\"} 3\npalisade_device_syncs_total{core=\"1\"} 4\n\
        palisade_synced_bytes_total{core=\"0\"} 4096\npalisade_commands_applied_total 12\n\
        palisade_blocks_sealed_total{core=\"0\"} 2\n";

    #[test]
    fn counters_are_summed_over_cores() {
        let counters = NodeCounters { syncs: 7, synced_bytes: 4096, commands_applied: 12, blocks_sealed: 2 };
        assert_eq!(NodeCounters::parse(TEXT), Some(counters));
        assert_eq!(NodeCounters::parse("palisade_device_syncs_total 1\n"), None);
    }

    #[test]
    fn entries_count_once_and_syncs_on_every_node() {
        let node = |n| NodeCounters { syncs: n, synced_bytes: 10 * n, commands_applied: n, blocks_sealed: 0 };
        let leader = |n| NodeCounters { blocks_sealed: n, ..node(n) };
        let before = Counters(vec![leader(1), node(1), node(1)]);
        let after = Counters(vec![leader(5), node(4), node(3)]);
        let work = ClusterWork { syncs: 9, synced_bytes: 90, entries: 4, blocks: 4 };
        assert_eq!(before.until(&after), Some(work));
        assert_eq!(after.until(&before), None);
    }
}

//! The named works of a comparison, and which system does which of them.

use std::time::Duration;

use crate::work::{Mix, Work};

/// A system beside Palisade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Peer {
    /// Three nodes.
    Etcd,
    /// Three nodes.
    Zookeeper,
    /// One node: no quorum, no fence.
    Redis,
}

/// A named work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) mix: Mix,
    pub(crate) sessions: u32,
    pub(crate) connections: u32,
}

const fn preset(name: &'static str, mix: Mix, sessions: u32, connections: u32) -> Preset {
    Preset { name, mix, sessions, connections }
}

/// Those that run unless the command line names others, in this order.
pub(crate) const PRESETS: [Preset; 8] = [
    preset("cycle-1000x4", Mix::Cycle, 1000, 4),
    preset("cycle-1000x16", Mix::Cycle, 1000, 16),
    preset("cycle-1000", Mix::Cycle, 1000, 1000),
    preset("cycle-64", Mix::Cycle, 64, 64),
    preset("contend-32", Mix::Contend, 32, 32),
    preset("read-256", Mix::Read, 256, 256),
    preset("read-256x4", Mix::Read, 256, 4),
    preset("solo", Mix::Cycle, 1, 1),
];

/// Those that run only if they are named.
const MORE: [Preset; 2] =
    [preset("session-32", Mix::Session, 32, 32), preset("renew-256", Mix::Renew, 256, 256)];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().chain(&MORE)
}

/// The preset of that name, for the command line.
pub(crate) fn parse(name: &str) -> Result<&'static Preset, String> {
    all().find(|p| p.name == name).ok_or_else(|| {
        let names: Vec<_> = all().map(|p| p.name).collect();
        format!("the works are {}", names.join(", "))
    })
}

/// Where a system's connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// All to the leader.
    Leader,
    /// To all nodes in turn.
    All,
}

impl Arrangement {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arrangement::Leader => "leader",
            Arrangement::All => "all nodes",
        }
    }
}

impl Preset {
    pub(crate) fn work(&self, warmup: Duration, duration: Duration) -> Work {
        let Preset { mix, sessions, connections, .. } = *self;
        Work { mix, sessions, connections, warmup, duration }
    }

    /// Whether each session has a connection of its own.
    fn is_connection_each(&self) -> bool {
        self.connections == self.sessions
    }

    /// The arrangements in which a peer, or Palisade, does this work; or why it does not.
    pub(crate) fn plan(&self, peer: Option<Peer>) -> Result<&'static [Arrangement], &'static str> {
        let Some(peer) = peer else { return Ok(&[Arrangement::Leader]) };
        self.refusal(peer).map_or_else(|| Ok(self.arrangements(peer)), Err)
    }

    /// Why a peer does not do this work.
    fn refusal(&self, peer: Peer) -> Option<&'static str> {
        match peer {
            Peer::Etcd => None,
            Peer::Zookeeper if self.mix == Mix::Renew => Some("its client renews by itself"),
            Peer::Zookeeper if self.is_connection_each() => None,
            Peer::Zookeeper => Some("a session is a connection and cannot share one"),
            Peer::Redis if self.mix == Mix::Cycle => None,
            Peer::Redis => Some("one node has no sessions, no fair hand-over and no quorum to read from"),
        }
    }

    /// The arrangements a peer is measured in; the better one is quoted.
    fn arrangements(&self, peer: Peer) -> &'static [Arrangement] {
        let spreads = peer != Peer::Redis && self.is_connection_each() && self.sessions > 1;
        if spreads { &[Arrangement::Leader, Arrangement::All] } else { &[Arrangement::Leader] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_sessions_and_connections() {
        for preset in all() {
            assert_eq!(parse(preset.name), Ok(preset), "{}", preset.name);
            let Some((_, numbers)) = preset.name.split_once('-') else {
                assert_eq!((preset.name, preset.sessions, preset.connections), ("solo", 1, 1));
                continue;
            };
            let (sessions, connections) = numbers.split_once('x').unwrap_or((numbers, numbers));
            assert_eq!(sessions, preset.sessions.to_string());
            assert_eq!(connections, preset.connections.to_string());
        }
        assert!(parse("cycle").unwrap_err().contains("solo"));
    }

    #[test]
    fn a_peer_is_not_asked_for_what_it_cannot_do() {
        let does = |peer| -> Vec<_> { all().filter(|p| p.refusal(peer).is_none()).map(|p| p.name).collect() };
        assert_eq!(does(Peer::Etcd).len(), all().count());
        let own_connections = ["cycle-1000", "cycle-64", "contend-32", "read-256", "solo", "session-32"];
        assert_eq!(does(Peer::Zookeeper), own_connections);
        assert_eq!(does(Peer::Redis), ["cycle-1000x4", "cycle-1000x16", "cycle-1000", "cycle-64", "solo"]);
    }

    #[test]
    fn only_connections_of_their_own_are_spread_over_the_nodes() {
        let spread = |peer, name| parse(name).unwrap().arrangements(peer).contains(&Arrangement::All);
        assert!(spread(Peer::Etcd, "cycle-64") && spread(Peer::Zookeeper, "read-256"));
        assert!(!spread(Peer::Etcd, "cycle-1000x4") && !spread(Peer::Redis, "cycle-64"));
        assert!(!spread(Peer::Zookeeper, "solo"));
    }
}

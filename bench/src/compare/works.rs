//! The named works of a comparison, and which system does which of them.

use std::time::Duration;

use crate::told::Watching;
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

/// What is done in a work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Sessions with one operation under way each.
    Mix(Mix),
    /// Watchers of one key, which is changed so often a second.
    Watch { per_second: u64 },
}

/// A named work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) doing: Doing,
    /// Or watchers.
    pub(crate) sessions: u32,
    pub(crate) connections: u32,
}

const fn preset(name: &'static str, mix: Mix, sessions: u32, connections: u32) -> Preset {
    Preset { name, doing: Doing::Mix(mix), sessions, connections }
}

const fn watch(name: &'static str, watchers: u32, connections: u32) -> Preset {
    Preset { name, doing: Doing::Watch { per_second: CHANGES_PER_SECOND }, sessions: watchers, connections }
}

/// Changes of the watched key.
const CHANGES_PER_SECOND: u64 = 5;

/// Those that run unless the command line names others, in this order.
pub(crate) const PRESETS: [Preset; 9] = [
    preset("cycle-1000x4", Mix::Cycle, 1000, 4),
    preset("cycle-1000x16", Mix::Cycle, 1000, 16),
    preset("cycle-1000", Mix::Cycle, 1000, 1000),
    preset("cycle-64", Mix::Cycle, 64, 64),
    preset("contend-32", Mix::Contend, 32, 32),
    preset("read-256", Mix::Read, 256, 256),
    preset("read-256x4", Mix::Read, 256, 4),
    preset("solo", Mix::Cycle, 1, 1),
    watch("watch-2000x20", 2000, 20),
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

const BOTH: [Arrangement; 2] = [Arrangement::Leader, Arrangement::All];

impl Arrangement {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arrangement::Leader => "leader",
            Arrangement::All => "all nodes",
        }
    }
}

impl Preset {
    /// What the sessions do, and for how long; or that the key is watched.
    pub(crate) fn task(&self, warmup: Duration, duration: Duration) -> Task {
        let Preset { doing, sessions, connections, .. } = *self;
        match doing {
            Doing::Mix(mix) => Task::Work(Work { mix, sessions, connections, warmup, duration }),
            Doing::Watch { per_second } => {
                let watchers = sessions;
                Task::Watch(Watching { watchers, connections, per_second, warmup, duration })
            }
        }
    }

    fn is_watch(&self) -> bool {
        matches!(self.doing, Doing::Watch { .. })
    }

    /// Whether each session has a connection of its own.
    fn is_connection_each(&self) -> bool {
        self.connections == self.sessions
    }

    /// The arrangements in which a peer, or Palisade, does this work; or why it does not.
    pub(crate) fn plan(&self, peer: Option<Peer>) -> Result<&'static [Arrangement], &'static str> {
        if peer.is_none() && self.is_watch() {
            return Ok(&BOTH);
        }
        let Some(peer) = peer else { return Ok(&[Arrangement::Leader]) };
        self.refusal(peer).map_or_else(|| Ok(self.arrangements(peer)), Err)
    }

    /// Why a peer does not do this work.
    fn refusal(&self, peer: Peer) -> Option<&'static str> {
        match peer {
            Peer::Etcd => None,
            Peer::Zookeeper if self.is_watch() && !self.is_connection_each() => {
                Some("a connection has one watch of a path, and its client tells the watchers")
            }
            Peer::Zookeeper if self.doing == Doing::Mix(Mix::Renew) => Some("its client renews by itself"),
            Peer::Zookeeper if self.is_connection_each() => None,
            Peer::Zookeeper => Some("a session is a connection and cannot share one"),
            Peer::Redis if self.doing == Doing::Mix(Mix::Cycle) => None,
            Peer::Redis if self.is_watch() => {
                Some("its messages are no part of its log: what is lost stays lost")
            }
            Peer::Redis => Some("one node has no sessions, no fair hand-over and no quorum to read from"),
        }
    }

    /// The arrangements a peer is measured in; the better one is quoted.
    fn arrangements(&self, peer: Peer) -> &'static [Arrangement] {
        if self.is_watch() {
            return &BOTH;
        }
        let spreads = peer != Peer::Redis && self.is_connection_each() && self.sessions > 1;
        if spreads { &BOTH } else { &[Arrangement::Leader] }
    }
}

/// What a system is asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// Operations.
    Work(Work),
    /// Events.
    Watch(Watching),
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

    #[test]
    fn watchers_are_at_the_leader_and_then_at_all_nodes_in_every_system() {
        let watch = parse("watch-2000x20").unwrap();
        for peer in [None, Some(Peer::Etcd)] {
            assert_eq!(watch.plan(peer), Ok(&BOTH[..]));
        }
        assert!(watch.plan(Some(Peer::Zookeeper)).unwrap_err().contains("one watch of a path"));
        let Task::Watch(watching) = watch.task(Duration::ZERO, Duration::from_secs(1)) else { panic!() };
        assert_eq!((watching.watchers, watching.connections, watching.per_second), (2000, 20, 5));
    }
}

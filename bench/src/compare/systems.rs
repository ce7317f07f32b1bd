//! The systems of a comparison: how each is started, and how it is made to do a work.

use std::path::{Path, PathBuf};

use super::peer;
use super::results::PALISADE;
use super::works::{Arrangement, Peer};
use crate::changes;
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::host::Usage;
use crate::load;
use crate::options::LoadOptions;
use crate::told::{Told, Watching};
use crate::work::{Measured, Work};

/// As many nodes as the peers have.
const NODES: u32 = 3;

/// Why a system could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SystemError {
    /// Palisade, its load generator, or this machine.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A peer or its driver.
    #[cfg(feature = "peers")]
    #[error(transparent)]
    Peer(#[from] crate::peers::PeerError),
}

/// A system that can be started, once a round.
pub(crate) trait System {
    /// What it is called in tables.
    fn name(&self) -> &'static str;

    /// Which version is measured.
    fn version(&self) -> &str;

    /// Which peer it is; none, and it is Palisade.
    fn peer(&self) -> Option<Peer>;

    /// Starts servers on a directory that is not there yet, and warms them up if they need more than a
    /// work's own warm-up.
    fn start(&self, dir: PathBuf) -> Result<Box<dyn Running>, SystemError>;
}

/// Running servers; dropping them stops them.
pub(crate) trait Running {
    /// Does a work, and says what the machine did in its window.
    fn measure(&mut self, work: &Work, at: Arrangement) -> Result<(Measured, Usage), SystemError>;

    /// Has a key watched there and changed, and says what its watchers were told, and what the machine did
    /// meanwhile.
    fn watch(&mut self, watching: &Watching, at: Arrangement) -> Result<(Told, Usage), SystemError>;
}

/// A peer, from where peers are unpacked or installed; a sentence if it cannot be measured here.
pub(crate) fn find(peer: Peer, peers_dir: Option<&Path>) -> Result<Box<dyn System>, String> {
    peer::find(peer, peers_dir).map_err(|why| format!("{}: {why}", name(peer)))
}

/// What a peer is called in tables.
pub(super) fn name(peer: Peer) -> &'static str {
    match peer {
        Peer::Etcd => "etcd",
        Peer::Zookeeper => "ZooKeeper",
        Peer::Redis => "Redis",
    }
}

/// Ours: `palisade dev` with all connections to the leader.
pub(crate) struct Palisade {
    /// The server.
    pub(crate) program: PathBuf,
    /// Node i listens on this port plus i.
    pub(crate) port: u16,
}

impl System for Palisade {
    fn name(&self) -> &'static str {
        PALISADE
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn peer(&self) -> Option<Peer> {
        None
    }

    fn start(&self, dir: PathBuf) -> Result<Box<dyn Running>, SystemError> {
        Ok(Box::new(Cluster::start(NODES, &dir, self.port, &self.program)?))
    }
}

impl Running for Cluster {
    fn measure(&mut self, work: &Work, _: Arrangement) -> Result<(Measured, Usage), SystemError> {
        let report = load::run(&LoadOptions::of(work, &self.endpoints, &self.pids))?;
        Ok((report.measured, report.usage))
    }

    fn watch(&mut self, watching: &Watching, at: Arrangement) -> Result<(Told, Usage), SystemError> {
        let at_leader = at == Arrangement::Leader;
        Ok(changes::measure(watching, at_leader, &self.endpoints, &self.pids)?)
    }
}

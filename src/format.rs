//! `palisade format`: makes a node's directory. What it writes into the identity can never be
//! changed by a configuration file: cluster, node, shards, voters, limits. The cluster's id is a hash
//! of what all members must agree on, so that separate calls on separate hosts agree; the incarnation
//! is drawn at random, so that a directory formatted anew is a stranger to the cluster.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use palisade_types::codec::Writer;
use palisade_types::hash::hash128;
use palisade_types::{ClusterId, ClusterLimits, Incarnation, Name, NodeId, ShardId};
use palisade_wal::{
    BOOT_FILE, IDENTITY_FILE, Identity, boot_file, hard_state_file, identity_file, initial_hard_state,
    shard_dir,
};

use crate::config;
use crate::server::directory::{self, DirectoryError, failed, write_new};

/// The most members a cluster starts with.
pub const MEMBERS_MAX: usize = 15;

/// What a node is to be.
#[derive(Clone, Debug)]
pub struct FormatSpec {
    /// The cluster's name: equal on all members.
    pub cluster: Name,
    /// This node.
    pub node: NodeId,
    /// Where each member is reached, this node included, as `host:port`: equal on all members.
    pub peers: BTreeMap<NodeId, String>,
    /// How many shards: equal on all members. This version runs one.
    pub shards: u32,
    /// The limits that apply reads: equal on all members.
    pub limits: ClusterLimits,
    /// Where this node listens; `None`: its address in `peers`, or all interfaces where that is a name.
    pub listen: Option<SocketAddr>,
    /// Written into the configuration: allows listening beyond loopback.
    pub insecure: bool,
}

impl FormatSpec {
    /// The usual node: one shard, the default limits.
    pub fn new(cluster: Name, node: NodeId, peers: BTreeMap<NodeId, String>) -> FormatSpec {
        FormatSpec {
            cluster,
            node,
            peers,
            shards: 1,
            limits: ClusterLimits::default(),
            listen: None,
            insecure: false,
        }
    }

    /// The id of the cluster: every member computes the same.
    pub fn cluster_id(&self) -> ClusterId {
        let mut bytes = b"palisade cluster, version 1\n".to_vec();
        let mut w = Writer(&mut bytes);
        w.name(&self.cluster);
        w.u32(self.peers.len() as u32);
        for (node, address) in &self.peers {
            w.u32(node.0);
            w.bytes(address.as_bytes());
        }
        w.u32(self.shards);
        self.limits.encode(&mut bytes);
        ClusterId(hash128(&bytes))
    }

    fn check(&self) -> Result<(), FormatError> {
        let bad = |why: String| Err(FormatError::Spec(why));
        if self.peers.is_empty() || self.peers.len() > MEMBERS_MAX {
            return bad(format!("a cluster has 1 to {MEMBERS_MAX} members, not {}", self.peers.len()));
        }
        if self.peers.contains_key(&NodeId(0)) {
            return bad("node ids start at 1".into());
        }
        if !self.peers.contains_key(&self.node) {
            return bad(format!("node {} is not among the peers", self.node));
        }
        if self.shards != 1 {
            return bad(format!("{} shards: this version runs exactly one", self.shards));
        }
        for (node, address) in &self.peers {
            if let Err(why) = config::check_address(address) {
                return bad(format!("the address \"{address}\" of node {node}: {why}"));
            }
            if self.peers.iter().any(|(other, a)| other != node && a == address) {
                return bad(format!("two members have the address \"{address}\""));
            }
        }
        Ok(())
    }

    fn listen(&self) -> Result<SocketAddr, FormatError> {
        let own = &self.peers[&self.node];
        if let Some(listen) = self.listen {
            return Ok(listen);
        }
        if let Ok(address) = own.parse() {
            return Ok(address);
        }
        // A name: the interfaces it means are not ours to guess.
        let port = own.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port.map(|port| SocketAddr::from(([0, 0, 0, 0], port)))
            .ok_or_else(|| FormatError::Spec(format!("the address \"{own}\" has no port")))
    }
}

/// Why a directory was not formatted.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The node or cluster asked for makes no sense.
    #[error("{0}")]
    Spec(String),
    /// The directory already is a node's.
    #[error("{0}: already formatted; it is left alone")]
    AlreadyFormatted(String),
    /// There are other things in the directory.
    #[error("{dir}: not empty: it holds `{entry}`; it is left alone")]
    NotEmpty {
        /// The directory.
        dir: String,
        /// One of the things.
        entry: String,
    },
    /// The configuration that would be written is none.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// Formats a directory, making it if it does not exist, and returns the identity written. When this
/// returns, everything is durable; the identity is written last, so that an interrupted format leaves
/// no node.
///
/// # Errors
/// See [`FormatError`]; a directory that is not empty is never touched.
pub fn format(dir: &Path, spec: &FormatSpec) -> Result<Identity, FormatError> {
    spec.check()?;
    let listen = spec.listen()?;
    let settings = config::template(listen, spec.insecure, &spec.peers);
    // What is written must be readable; whether it may listen there is asked when it is served.
    match config::Config::parse(&dir.join(config::FILE), &settings) {
        Ok(_) | Err(config::ConfigError::Exposed { .. }) => {}
        Err(e) => return Err(e.into()),
    }
    std::fs::create_dir_all(dir).map_err(failed(dir, "create the directory"))?;
    refuse_strangers(dir)?;
    let _lock = directory::lock_new(dir)?;
    refuse_used(dir)?;

    let identity = Identity {
        cluster: spec.cluster_id(),
        cluster_name: spec.cluster.clone(),
        node: spec.node,
        incarnation: draw_incarnation()?,
        shards: spec.shards,
        voters: spec.peers.keys().copied().collect(),
        limits: spec.limits,
    };
    for shard in (0..spec.shards).map(ShardId) {
        let path = dir.join(shard_dir(shard));
        std::fs::create_dir_all(&path).map_err(failed(&path, "create the directory"))?;
        write_new(dir, &hard_state_file(shard), &initial_hard_state(&identity, shard))?;
    }
    write_new(dir, config::FILE, settings.as_bytes())?;
    write_new(dir, BOOT_FILE, &boot_file(&identity))?;
    write_new(dir, IDENTITY_FILE, &identity_file(&identity))?;
    if let Some(parent) = dir.canonicalize().map_err(failed(dir, "resolve"))?.parent() {
        directory::sync_dir(parent)?;
    }
    Ok(identity)
}

/// Before even the lock file is made.
fn refuse_strangers(dir: &Path) -> Result<(), FormatError> {
    let names = directory::entries(dir)?;
    if names.iter().any(|n| n == IDENTITY_FILE) {
        return Err(FormatError::AlreadyFormatted(dir.display().to_string()));
    }
    match names.into_iter().find(|n| !directory::is_ours(n)) {
        Some(entry) => Err(FormatError::NotEmpty { dir: dir.display().to_string(), entry }),
        None => Ok(()),
    }
}

/// Under the lock: what an interrupted format left may be written over, a log may not.
fn refuse_used(dir: &Path) -> Result<(), FormatError> {
    refuse_strangers(dir)?;
    let shard = dir.join(shard_dir(ShardId(0)));
    if !shard.exists() {
        return Ok(());
    }
    match directory::entries(&shard)?.into_iter().find(|n| n != "HARDSTATE" && n != "HARDSTATE.tmp") {
        Some(entry) => Err(FormatError::NotEmpty { dir: shard.display().to_string(), entry }),
        None => Ok(()),
    }
}

fn draw_incarnation() -> Result<Incarnation, DirectoryError> {
    let mut bytes = [0; 16];
    read_random(&mut bytes)?;
    Ok(Incarnation(u128::from_le_bytes(bytes)))
}

/// Fills a buffer with random bytes of the kernel.
pub(crate) fn read_random(bytes: &mut [u8]) -> Result<(), DirectoryError> {
    let path = Path::new("/dev/urandom");
    let mut file = std::fs::File::open(path).map_err(failed(path, "open"))?;
    file.read_exact(bytes).map_err(failed(path, "read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> FormatSpec {
        let peers = (1..=3).map(|n| (NodeId(n), format!("127.0.0.1:740{n}"))).collect();
        FormatSpec::new(Name::new("orders").unwrap(), NodeId(2), peers)
    }

    #[test]
    fn a_formatted_directory_can_be_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/node");
        let identity = format(&path, &spec()).unwrap();
        let _lock = directory::lock(&path).unwrap();
        assert_eq!(directory::identity(&path).unwrap(), identity);
        assert_eq!(identity.voters, [NodeId(1), NodeId(2), NodeId(3)]);
        let config = config::Config::read(&path).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7402");
        assert_eq!(config.peers, spec().peers);
        let recovered =
            palisade_wal::recover_shard(&directory::DirectorySource(&path), &identity, ShardId(0)).unwrap();
        assert!(recovered.blocks.is_empty());
    }

    #[test]
    fn every_start_raises_the_boot_counter() {
        let dir = tempfile::tempdir().unwrap();
        let identity = format(dir.path(), &spec()).unwrap();
        for boots in 1..=3 {
            assert_eq!(directory::raise_boot(dir.path(), &identity).unwrap().value().starts.number, boots);
        }
    }

    #[test]
    fn members_agree_on_the_cluster_and_differ_in_incarnation() {
        let dirs: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let first = format(dirs[0].path(), &spec()).unwrap();
        let second = format(dirs[1].path(), &FormatSpec { node: NodeId(3), ..spec() }).unwrap();
        assert_eq!(first.cluster, second.cluster);
        assert_ne!(first.incarnation, second.incarnation);
        let id = spec().cluster_id();
        let mut others = [spec(), spec(), spec()];
        others[0].cluster = Name::new("order").unwrap();
        others[1].limits.sessions += 1;
        others[2].peers.insert(NodeId(3), "127.0.0.1:7404".into());
        assert!(others.iter().all(|o| o.cluster_id() != id));
    }

    #[test]
    fn a_directory_that_holds_something_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        assert!(matches!(format(dir.path(), &spec()).unwrap_err(), FormatError::NotEmpty { .. }));
        assert_eq!(directory::entries(dir.path()).unwrap(), ["thesis.tex"]);
        let dir = tempfile::tempdir().unwrap();
        let identity = format(dir.path(), &spec()).unwrap();
        assert!(matches!(format(dir.path(), &spec()).unwrap_err(), FormatError::AlreadyFormatted(_)));
        assert_eq!(directory::identity(dir.path()).unwrap(), identity);
    }

    #[test]
    fn an_interrupted_format_can_be_repeated_but_never_over_a_log() {
        let dir = tempfile::tempdir().unwrap();
        format(dir.path(), &spec()).unwrap();
        std::fs::remove_file(dir.path().join(IDENTITY_FILE)).unwrap();
        let lock = directory::lock(dir.path()).unwrap();
        assert!(matches!(directory::identity(dir.path()).unwrap_err(), DirectoryError::Unformatted { .. }));
        drop(lock);
        format(dir.path(), &spec()).unwrap();
        std::fs::remove_file(dir.path().join(IDENTITY_FILE)).unwrap();
        std::fs::write(dir.path().join("shard-0000/wal-0000000000000001"), "x").unwrap();
        assert!(matches!(format(dir.path(), &spec()).unwrap_err(), FormatError::NotEmpty { .. }));
    }

    #[test]
    fn a_directory_belongs_to_one_process() {
        let dir = tempfile::tempdir().unwrap();
        format(dir.path(), &spec()).unwrap();
        let lock = directory::lock(dir.path()).unwrap();
        assert!(matches!(directory::lock(dir.path()).unwrap_err(), DirectoryError::InUse { .. }));
        drop(lock);
        lock_soon(dir.path());
    }

    /// Locks a directory that nobody has locked. Processes that other tests start hold its descriptors too, until
    /// they have become another program.
    fn lock_soon(dir: &Path) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while let Err(error) = directory::lock(dir) {
            assert!(std::time::Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_directory_stays_locked_when_its_lock_file_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        format(dir.path(), &spec()).unwrap();
        let lock = directory::lock(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(directory::LOCK_FILE)).unwrap();
        assert!(matches!(directory::lock(dir.path()).unwrap_err(), DirectoryError::InUse { .. }));
        assert!(!dir.path().join(directory::LOCK_FILE).exists(), "nothing was done there");
        drop(lock);
        lock_soon(dir.path());
    }

    #[test]
    fn a_process_started_by_the_owner_of_a_directory_does_not_keep_it_locked() {
        let dir = tempfile::tempdir().unwrap();
        format(dir.path(), &spec()).unwrap();
        let lock = directory::lock(dir.path()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        drop(lock);
        lock_soon(dir.path());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_is_no_node_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let at = |p: &str| directory::lock(&dir.path().join(p)).unwrap_err();
        assert!(matches!(at("nowhere"), DirectoryError::Missing { .. }));
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        assert!(matches!(at("empty"), DirectoryError::Unformatted { .. }));
        std::fs::create_dir_all(dir.path().join("home/photos")).unwrap();
        assert!(matches!(at("home"), DirectoryError::Foreign { .. }));
        assert_eq!(
            directory::entries(&dir.path().join("home")).unwrap(),
            ["photos"],
            "nothing was written there"
        );
    }

    #[test]
    fn specs_that_make_no_sense_are_refused() {
        let mut bad: Vec<FormatSpec> = (0..5).map(|_| spec()).collect();
        bad[0].node = NodeId(9);
        bad[1].shards = 2;
        bad[2].peers.insert(NodeId(3), "127.0.0.1:7401".into());
        bad[3].peers.insert(NodeId(3), "nowhere".into());
        bad[4].peers.insert(NodeId(0), "127.0.0.1:7400".into());
        let dir = tempfile::tempdir().unwrap();
        for spec in bad {
            assert!(matches!(format(dir.path(), &spec).unwrap_err(), FormatError::Spec(_)));
        }
        assert!(directory::entries(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn a_member_reached_by_name_listens_on_all_interfaces_only_when_told_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let mut named = spec();
        named.peers.insert(NodeId(2), "db2.example:7402".into());
        format(dir.path(), &named).unwrap();
        let refused = config::Config::read(dir.path()).unwrap_err();
        assert!(matches!(refused, config::ConfigError::Exposed { .. }), "{refused}");
    }
}

//! The directories of `palisade dev`: where they are, whose they are, and when they may be wiped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use palisade::config::ADMIN_PORT_OFFSET;
use palisade::format::{FormatError, FormatSpec};
use palisade::server::directory::{self, DirectoryLock};
use palisade_types::{ClusterId, Name, NodeId};
use palisade_wal::{BOOT_FILE, IDENTITY_FILE, Identity, read_boot, read_identity};

use super::exit::{self, Failure};

/// The name of the cluster that `dev` makes; `--fresh` wipes no other.
const CLUSTER: &str = "dev";
/// Held while `dev` runs. Never unlinked.
const CLAIM_FILE: &str = "dev.lock";

/// What `dev` was asked to run.
pub(crate) struct Layout {
    /// Holds one directory for each node.
    pub(crate) dir: PathBuf,
    /// How many.
    pub(crate) nodes: u32,
    /// Node i listens on this plus i.
    pub(crate) port: u16,
}

impl Layout {
    /// The directory of a node.
    pub(crate) fn node_dir(&self, node: u32) -> PathBuf {
        self.dir.join(format!("node-{node}"))
    }

    /// Where all nodes listen, in order.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        (1..=self.nodes).map(|n| self.address(n)).collect()
    }

    fn address(&self, node: u32) -> String {
        format!("127.0.0.1:{}", u32::from(self.port) + node)
    }

    /// Every address the nodes listen on, administration included.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddrV4> {
        let first = u32::from(self.port);
        let ports = (1..=self.nodes).flat_map(move |n| [first + n, first + n + u32::from(ADMIN_PORT_OFFSET)]);
        ports.filter_map(|port| Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, u16::try_from(port).ok()?)))
    }

    /// The identity that all nodes share.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.spec(1).cluster_id()
    }

    fn spec(&self, node: u32) -> FormatSpec {
        let peers: BTreeMap<NodeId, String> =
            (1..=self.nodes).map(|n| (NodeId(n), self.address(n))).collect();
        FormatSpec::new(Name::new(CLUSTER).expect("a fixed name that follows the rules"), NodeId(node), peers)
    }
}

/// The directory given, or `palisade/dev` in the user's state directory (XDG base directories).
pub(crate) fn locate(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    locate_in(given, |name| std::env::var_os(name).map(PathBuf::from))
}

fn locate_in(given: Option<PathBuf>, variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(dir) = given {
        return Ok(dir);
    }
    // The specification wants relative paths ignored.
    let state = variable("XDG_STATE_HOME").filter(|p| p.is_absolute());
    let home = || variable("HOME").filter(|p| p.is_absolute()).map(|h| h.join(".local/state"));
    match state.or_else(home) {
        Some(base) => Ok(base.join("palisade/dev")),
        None => Err(Failure::new(exit::CONFIG, "neither XDG_STATE_HOME nor HOME is set: give --dir DIR")),
    }
}

/// Makes the directory if need be and claims it for this process, until the file is dropped.
pub(crate) fn claim(dir: &Path) -> Result<File, Failure> {
    let trouble = |e: io::Error| Failure::new(exit::CONFIG, format!("{}: {e}", dir.display()));
    std::fs::create_dir_all(dir).map_err(trouble)?;
    let path = dir.join(CLAIM_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(trouble)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Failure::new(exit::CONFIG, format!("{}: in use by another `palisade dev`", dir.display())))
        }
        Err(std::fs::TryLockError::Error(e)) => Err(trouble(e)),
    }
}

/// Formats what is not there yet, and checks that what is there is this cluster.
pub(crate) fn prepare(layout: &Layout) -> Result<(), Failure> {
    let mut missing = Vec::new();
    let mut lived = None;
    for node in 1..=layout.nodes {
        let dir = layout.node_dir(node);
        match identity(&dir)? {
            None => missing.push(node),
            Some(identity) => {
                let expected = layout.cluster();
                if identity.node != NodeId(node) || identity.cluster != expected {
                    let message = format!(
                        "{}: belongs to node {} of another cluster (other --nodes or --port?): \
                         use another --dir, or --fresh to start anew",
                        dir.display(),
                        identity.node
                    );
                    return Err(Failure::new(exit::CONFIG, message));
                }
                if has_lived(&dir, &identity) {
                    lived = Some(node);
                }
            }
        }
    }
    if let (Some(node), Some(gone)) = (lived, missing.first()) {
        // A new directory would be a stranger to the nodes that have met the old one.
        let message = format!(
            "{}: node {node} has run and the directory of node {gone} is missing: \
             restore it, or use --fresh to start anew",
            layout.dir.display()
        );
        return Err(Failure::new(exit::CONFIG, message));
    }
    for node in missing {
        palisade::format::format(&layout.node_dir(node), &layout.spec(node))
            .map_err(|e| format_failure(&e))?;
    }
    Ok(())
}

/// The exit code of a failed format.
pub(crate) fn format_failure(error: &FormatError) -> Failure {
    let code = if matches!(error, FormatError::Spec(_)) { exit::USAGE } else { exit::CONFIG };
    Failure::new(code, error.to_string())
}

/// Whose directory it is, if it is a node's.
fn identity(dir: &Path) -> Result<Option<Identity>, Failure> {
    let path = dir.join(IDENTITY_FILE);
    match std::fs::read(&path) {
        Ok(bytes) => match read_identity(&bytes) {
            Ok(read) => Ok(Some(read.identity)),
            Err(e) => Err(Failure::new(exit::CONFIG, format!("{}: {e}", dir.display()))),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::new(exit::CONFIG, format!("{}: {e}", path.display()))),
    }
}

/// Whether a node has ever been started on the directory. What cannot be read counts as a life.
fn has_lived(dir: &Path, identity: &Identity) -> bool {
    let Ok(bytes) = std::fs::read(dir.join(BOOT_FILE)) else { return true };
    read_boot(identity, &bytes).map_or(true, |slots| slots.value().starts.number > 0)
}

/// Removes the nodes' directories: all of them or, if one of them is not a `dev` node's or is in use,
/// none.
pub(crate) fn wipe(layout: &Layout) -> Result<(), Failure> {
    let trouble = |path: &Path, e: io::Error| Failure::new(exit::CONFIG, format!("{}: {e}", path.display()));
    let mut doomed: Vec<(PathBuf, DirectoryLock)> = Vec::new();
    for entry in std::fs::read_dir(&layout.dir).map_err(|e| trouble(&layout.dir, e))? {
        let path = entry.map_err(|e| trouble(&layout.dir, e))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if name.strip_prefix("node-").is_none_or(|n| n.parse::<u32>().is_err()) {
            continue;
        }
        match identity(&path)? {
            Some(identity) if identity.cluster_name.as_str() == CLUSTER => {
                let lock = directory::lock(&path).map_err(|e| Failure::new(exit::CONFIG, e.to_string()))?;
                doomed.push((path, lock));
            }
            // An unfinished format is finished later, anything else is refused there.
            None => (),
            Some(other) => {
                let message =
                    format!("{}: belongs to the cluster {}: not wiped", path.display(), other.cluster_name);
                return Err(Failure::new(exit::CONFIG, message));
            }
        }
    }
    for (path, lock) in doomed {
        remove(&path).map_err(|e| trouble(&path, e))?;
        drop(lock);
    }
    Ok(())
}

/// Removes a node's directory, its identity last but for the lock: after an interruption it can be
/// wiped again, and no node starts on what is left.
fn remove(dir: &Path) -> io::Result<()> {
    let identity = dir.join(IDENTITY_FILE);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else if name != IDENTITY_FILE && name != directory::LOCK_FILE {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_file(identity)?;
    std::fs::remove_dir_all(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dir: &Path) -> Layout {
        Layout { dir: dir.to_owned(), nodes: 3, port: 7400 }
    }

    fn identities(layout: &Layout) -> Vec<Option<Identity>> {
        (1..=layout.nodes).map(|n| identity(&layout.node_dir(n)).unwrap()).collect()
    }

    #[test]
    fn the_directory_is_the_one_given_or_in_the_users_state_directory() {
        let with = |state: Option<&str>, home: Option<&str>| {
            let (state, home) = (state.map(PathBuf::from), home.map(PathBuf::from));
            locate_in(None, move |name| if name == "HOME" { home.clone() } else { state.clone() })
        };
        assert_eq!(with(Some("/s"), Some("/h")).unwrap(), Path::new("/s/palisade/dev"));
        assert_eq!(with(Some("relative"), Some("/h")).unwrap(), Path::new("/h/.local/state/palisade/dev"));
        assert_eq!(with(None, None).unwrap_err().code, exit::CONFIG);
        assert_eq!(locate_in(Some("d".into()), |_| None).unwrap(), Path::new("d"));
    }

    #[test]
    fn a_second_start_keeps_the_nodes_and_fresh_makes_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        prepare(&layout).unwrap();
        let first = identities(&layout);
        prepare(&layout).unwrap();
        assert_eq!(identities(&layout), first);
        wipe(&layout).unwrap();
        prepare(&layout).unwrap();
        for (old, new) in first.into_iter().zip(identities(&layout)) {
            assert_ne!(old.unwrap().incarnation, new.unwrap().incarnation);
        }
    }

    #[test]
    fn another_number_of_nodes_or_port_is_another_cluster() {
        let dir = tempfile::tempdir().unwrap();
        prepare(&layout(dir.path())).unwrap();
        let other_port = Layout { port: 7500, ..layout(dir.path()) };
        assert_eq!(prepare(&other_port).unwrap_err().code, exit::CONFIG);
        let fewer = Layout { nodes: 1, ..layout(dir.path()) };
        assert_eq!(prepare(&fewer).unwrap_err().code, exit::CONFIG);
        wipe(&other_port).unwrap();
        prepare(&other_port).unwrap();
    }

    #[test]
    fn fresh_wipes_nothing_that_is_not_a_dev_node() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        prepare(&layout).unwrap();
        std::fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        std::fs::create_dir(dir.path().join("node-letters")).unwrap();
        let mut foreign = layout.spec(4);
        foreign.cluster = Name::new("orders").unwrap();
        foreign.peers.insert(NodeId(4), "127.0.0.1:7404".to_owned());
        palisade::format::format(&layout.node_dir(4), &foreign).unwrap();
        let before = identities(&layout);
        assert_eq!(wipe(&layout).unwrap_err().code, exit::CONFIG);
        assert_eq!(identities(&layout), before, "all or none");
        std::fs::remove_dir_all(layout.node_dir(4)).unwrap();
        wipe(&layout).unwrap();
        assert!(dir.path().join("thesis.tex").exists() && dir.path().join("node-letters").exists());
        assert!(!layout.node_dir(1).exists());
    }

    #[test]
    fn fresh_leaves_a_node_alone_that_runs() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        prepare(&layout).unwrap();
        let lock = directory::lock(&layout.node_dir(2)).unwrap();
        assert_eq!(wipe(&layout).unwrap_err().code, exit::CONFIG);
        assert!(identities(&layout).iter().all(Option::is_some));
        drop(lock);
        wipe(&layout).unwrap();
    }

    #[test]
    fn a_directory_missing_beside_nodes_that_never_ran_is_made_and_one_dev_at_a_time_runs() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let claimed = claim(dir.path()).unwrap();
        assert_eq!(claim(dir.path()).unwrap_err().code, exit::CONFIG);
        drop(claimed);
        prepare(&layout).unwrap();
        std::fs::remove_dir_all(layout.node_dir(2)).unwrap();
        prepare(&layout).unwrap();
        assert!(identities(&layout).iter().all(Option::is_some));
    }
}

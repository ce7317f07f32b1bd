//! Where the peers' programs are, and which versions.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compare::Peer;

/// What ZooKeeper's server needs on its class path, without versions in the names.
const ZOOKEEPER_JARS: [&str; 9] = [
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-simple",
    "netty-all",
    "metrics-core",
    "commons-cli",
    "commons-io",
    "snappy-java",
];

/// A peer that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The server.
    Etcd(PathBuf),
    /// The virtual machine, and the class path.
    ZooKeeper(PathBuf, String),
    /// The server.
    Redis(PathBuf),
}

/// What a peer misses.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not installed: no {0}")]
pub(crate) struct Missing(String);

impl Program {
    /// Looks for a peer below the prefix where packages are unpacked, or in the folders of a search path
    /// where the distribution's own package is installed.
    pub(crate) fn find(peer: Peer, prefix: Option<&Path>, search: &OsStr) -> Result<Program, Missing> {
        let missing = |path: &Path| Missing(path.display().to_string());
        let unpacked = || prefix.ok_or_else(|| Missing("--peers-dir".to_owned()));
        match peer {
            Peer::Etcd => {
                let path = unpacked()?.join("root-etcd-server/usr/bin/etcd");
                if path.is_file() { Ok(Program::Etcd(path)) } else { Err(missing(&path)) }
            }
            Peer::Zookeeper => {
                let java = on_path("java", search)?;
                let dir = unpacked()?.join("root-zk/usr/share/java");
                let jars = ZOOKEEPER_JARS.map(|jar| dir.join(format!("{jar}.jar")));
                if let Some(jar) = jars.iter().find(|jar| !jar.is_file()) {
                    return Err(missing(jar));
                }
                let jars: Vec<_> = jars.iter().map(|jar| jar.display().to_string()).collect();
                Ok(Program::ZooKeeper(java, jars.join(":")))
            }
            Peer::Redis => on_path("redis-server", search).map(Program::Redis),
        }
    }

    /// The version, as the program or the name of its archive says.
    pub(crate) fn version(&self) -> String {
        let version = match self {
            Program::Etcd(path) => said(path).and_then(|text| after(&text, "etcd Version: ")),
            Program::Redis(path) => said(path).and_then(|text| after(&text, " v=")),
            Program::ZooKeeper(_, jars) => {
                let real = jars.split(':').next().and_then(|jar| fs::canonicalize(jar).ok());
                let name = real.and_then(|path| path.file_stem().map(|n| n.to_string_lossy().into_owned()));
                name.and_then(|name| after(&name, "zookeeper-"))
            }
        };
        version.unwrap_or_else(|| "unknown".to_owned())
    }
}

fn on_path(name: &str, search: &OsStr) -> Result<PathBuf, Missing> {
    let found = std::env::split_paths(search).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Missing(format!("{name} on the search path")))
}

/// What a program prints when asked for its version.
fn said(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The word after a mark.
fn after(text: &str, mark: &str) -> Option<String> {
    text.split_once(mark)?.1.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_named() {
        let nowhere = Some(Path::new("/nonexistent"));
        for (peer, name) in [(Peer::Etcd, "etcd"), (Peer::Zookeeper, "java"), (Peer::Redis, "redis-server")] {
            let missing = Program::find(peer, nowhere, OsStr::new("/nonexistent")).unwrap_err().to_string();
            assert!(missing.starts_with("not installed: no ") && missing.contains(name), "{missing}");
        }
    }

    #[test]
    fn a_version_is_the_word_after_its_mark() {
        assert_eq!(after("etcd Version: 3.5.30\nGit SHA: x", "etcd Version: "), Some("3.5.30".to_owned()));
        assert_eq!(after("zookeeper-3.9.6", "zookeeper-"), Some("3.9.6".to_owned()));
        assert_eq!(after("nothing", "v="), None);
    }
}

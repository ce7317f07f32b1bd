//! Looking at the directory of a node that is stopped. Nothing in it is changed.

use std::path::{Path, PathBuf};

use palisade_types::{Incarnation, NodeId, ShardId};
use palisade_wal::{
    BOOT_FILE, IDENTITY_FILE, Identity, RecoverError, ShardView, Source, inspect_shard, read_boot,
    read_identity,
};

use crate::server::directory::{self, DirectoryError, DirectoryLock, DirectorySource};

/// What a directory holds. As long as this lives no node can use it.
#[derive(Debug)]
pub struct NodeView {
    /// Whose it is.
    pub identity: Identity,
    /// One copy of that is unreadable.
    pub identity_damaged: bool,
    /// The starts so far, and the members met.
    pub boot: Result<BootView, RecoverError>,
    /// Each shard.
    pub shards: Vec<(ShardId, ShardView)>,
    _lock: DirectoryLock,
}

/// The BOOT record.
#[derive(Debug)]
pub struct BootView {
    /// How often the node has started.
    pub boots: u64,
    /// Whom it has met, once it has met all.
    pub members: Vec<(NodeId, Incarnation)>,
    /// A copy is unreadable or was not finished.
    pub incomplete: bool,
}

/// Reads all of a directory that no node uses.
///
/// # Errors
/// When it is in use, or no directory of a node, or cannot be listed. What is wrong with its files is
/// part of the view.
pub fn inspect(dir: &Path) -> Result<NodeView, DirectoryError> {
    let lock = directory::lock(dir)?;
    let source = DirectorySource(dir);
    let refused = |error| DirectoryError::Recover { dir: PathBuf::from(dir), error };
    let read = source.read(IDENTITY_FILE).map_err(|e| refused(e.into()))?;
    let read = read_identity(&read).map_err(refused)?;
    let identity = read.identity;
    let mut shards = Vec::new();
    for shard in (0..identity.shards).map(ShardId) {
        shards.push((shard, inspect_shard(&source, &identity, shard).map_err(refused)?));
    }
    let boot = boot_view(&source, &identity);
    Ok(NodeView { identity, identity_damaged: read.copy_damaged, boot, shards, _lock: lock })
}

fn boot_view(source: &dyn Source, identity: &Identity) -> Result<BootView, RecoverError> {
    let slots = read_boot(identity, &source.read(BOOT_FILE)?)?;
    let record = slots.value();
    Ok(BootView {
        boots: record.starts.number,
        members: record.members.clone(),
        incomplete: slots.is_incomplete(),
    })
}

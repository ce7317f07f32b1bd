//! `IDENTITY`: whose directory this is. Written once by `format`, as the last file, in two copies.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use palisade_types::{ClusterId, ClusterLimits, DecodeError, Incarnation, Name, NodeId, Reader, ShardId};

use crate::boot::{BOOT_FILE, boot_file};
use crate::error::RecoverError;
use crate::hard::{hard_state_file, initial_hard_state};
use crate::page::{self, Owner, PAGE, PageFault, WHOLE_NODE};

/// The file's name.
pub const IDENTITY_FILE: &str = "IDENTITY";
/// The most voters an identity can name.
pub const VOTERS_MAX: usize = 64;

const MAGIC: [u8; 4] = *b"PIDN";
const COPIES: usize = 2;

/// What a node is, for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id: a hash of its name, members, shards and limits.
    pub cluster: ClusterId,
    /// The cluster's name, for people.
    pub cluster_name: Name,
    /// This node.
    pub node: NodeId,
    /// Drawn at random when the directory was formatted.
    pub incarnation: Incarnation,
    /// How many shards the cluster has.
    pub shards: u32,
    /// The voters the cluster starts with, rising.
    pub voters: Vec<NodeId>,
    /// The limits that apply reads.
    pub limits: ClusterLimits,
}

impl Identity {
    /// Whose records the files of a shard hold.
    pub fn owner(&self, shard: ShardId) -> Owner {
        Owner { cluster: self.cluster, node: self.node, incarnation: self.incarnation, shard }
    }
}

/// The bytes of a new `IDENTITY` file.
///
/// # Panics
/// With more than [`VOTERS_MAX`] voters: the caller has checked them.
pub fn identity_file(identity: &Identity) -> Vec<u8> {
    assert!(identity.voters.len() <= VOTERS_MAX, "more voters than an identity can name");
    let owner = identity.owner(WHOLE_NODE);
    let copies: Vec<Vec<u8>> = (0..COPIES)
        .map(|copy| {
            page::seal(MAGIC, copy as u16, &owner, |w| {
                w.name(&identity.cluster_name);
                w.u32(identity.shards);
                w.u32(identity.voters.len() as u32);
                for voter in &identity.voters {
                    w.u32(voter.0);
                }
                identity.limits.encode(w.0);
            })
        })
        .collect();
    page::concat(&copies)
}

/// All files of a newly formatted node, by name relative to its directory, in the order to be written:
/// the identity comes last, so that a directory that has one is complete. Each is to be synced, and
/// every directory, before the next is begun.
pub fn format_files(identity: &Identity) -> Vec<(String, Vec<u8>)> {
    let shards = (0..identity.shards).map(ShardId);
    let mut files: Vec<_> = shards.map(|s| (hard_state_file(s), initial_hard_state(identity, s))).collect();
    files.push((BOOT_FILE.to_string(), boot_file(identity)));
    files.push((IDENTITY_FILE.to_string(), identity_file(identity)));
    files
}

/// What [`read_identity`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRead {
    /// The identity.
    pub identity: Identity,
    /// One of the two copies is unreadable: write the file anew.
    pub copy_damaged: bool,
}

/// Reads the bytes of an `IDENTITY` file.
///
/// # Errors
/// [`RecoverError::Newer`]; [`RecoverError::Damaged`] when both copies are unreadable or differ.
pub fn read_identity(file: &[u8]) -> Result<IdentityRead, RecoverError> {
    let damaged = |offset: u64, what: &str| RecoverError::Damaged {
        file: IDENTITY_FILE.to_string(),
        offset,
        what: what.to_string(),
    };
    let mut found: Option<Identity> = None;
    let mut copy_damaged = false;
    for copy in 0..COPIES {
        let offset = copy * PAGE;
        match page::open(file, offset, MAGIC) {
            Err(PageFault::Newer(format)) => {
                return Err(RecoverError::Newer { file: IDENTITY_FILE.to_string(), format });
            }
            Err(PageFault::Bad) => copy_damaged = true,
            Ok(page) => {
                let mut fields = page.fields;
                let identity = decode(page.owner, &mut fields)
                    .map_err(|_| damaged(offset as u64, "its fields make no sense"))?;
                if page.kind != copy as u16 || found.as_ref().is_some_and(|f| *f != identity) {
                    return Err(damaged(offset as u64, "the two copies differ"));
                }
                found = Some(identity);
            }
        }
    }
    match found {
        Some(identity) => Ok(IdentityRead { identity, copy_damaged }),
        None => Err(damaged(0, "neither copy of the identity is readable")),
    }
}

fn decode(owner: Owner, r: &mut Reader<'_>) -> Result<Identity, DecodeError> {
    let cluster_name = r.name()?;
    let shards = r.u32()?;
    let count = r.u32()? as usize;
    if count > VOTERS_MAX {
        return Err(DecodeError::TooLong { what: "voters", max: VOTERS_MAX });
    }
    let mut voters = Vec::with_capacity(count);
    for _ in 0..count {
        voters.push(NodeId(r.u32()?));
    }
    Ok(Identity {
        cluster: owner.cluster,
        cluster_name,
        node: owner.node,
        incarnation: owner.incarnation,
        shards,
        voters,
        limits: ClusterLimits::decode(r)?,
    })
}

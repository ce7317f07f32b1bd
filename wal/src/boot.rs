//! `BOOT`: how often the node has started, and whom it has met. A slots file.

use alloc::vec::Vec;
use palisade_types::{DecodeError, Incarnation, NodeId, Reader, Writer};

use crate::error::RecoverError;
use crate::identity::{Identity, VOTERS_MAX};
use crate::page::WHOLE_NODE;
use crate::slots::{SlotValue, Slots};

/// The file's name.
pub const BOOT_FILE: &str = "BOOT";

/// What a node keeps about its starts and its fellow members.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BootRecord {
    /// How often the node has started. Every start raises it durably before anything is sent.
    pub boots: u64,
    /// The incarnations of all initial members, by rising id, this node included; empty until all have
    /// met. With them stored the node may vote, and accepts only these.
    pub members: Vec<(NodeId, Incarnation)>,
}

impl SlotValue for BootRecord {
    const MAGIC: [u8; 4] = *b"PBOT";

    fn encode(&self, w: &mut Writer<'_>) {
        assert!(self.members.len() <= VOTERS_MAX, "more members than voters");
        w.u64(self.boots);
        w.u32(self.members.len() as u32);
        for (node, incarnation) in &self.members {
            w.u32(node.0);
            w.u128(incarnation.0);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<BootRecord, DecodeError> {
        let boots = r.u64()?;
        let count = r.u32()? as usize;
        if count > VOTERS_MAX {
            return Err(DecodeError::TooLong { what: "members", max: VOTERS_MAX });
        }
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            members.push((NodeId(r.u32()?), Incarnation(r.u128()?)));
        }
        Ok(BootRecord { boots, members })
    }
}

/// The bytes of a new `BOOT` file.
pub fn boot_file(identity: &Identity) -> Vec<u8> {
    Slots::create(identity.owner(WHOLE_NODE), BootRecord::default()).0
}

/// Reads a `BOOT` file.
///
/// # Errors
/// See [`Slots::read`].
pub fn read_boot(identity: &Identity, bytes: &[u8]) -> Result<Slots<BootRecord>, RecoverError> {
    Slots::read(identity.owner(WHOLE_NODE), BOOT_FILE, bytes)
}

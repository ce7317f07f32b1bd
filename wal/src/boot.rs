//! `BOOT`: the starts of the node, whom it has met, and which start of each it let in last. A slots file.

use alloc::vec::Vec;
use palisade_types::starts::STARTS_MAX;
use palisade_types::{
    Acquaintance, DecodeError, Incarnation, NodeId, Reader, Start, StartNonce, Starts, Writer,
};

use crate::error::RecoverError;
use crate::identity::{Identity, VOTERS_MAX};
use crate::page::WHOLE_NODE;
use crate::slots::{SlotValue, Slots};

/// The file's name.
pub const BOOT_FILE: &str = "BOOT";

/// What a node keeps about its starts and its fellow members.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BootRecord {
    /// The node's starts. Each is made durable here before anything is sent.
    pub starts: Starts,
    /// The incarnations of all initial members, by rising id, this node included; empty until all have
    /// met. With them stored the node may vote, and accepts only these.
    pub members: Vec<(NodeId, Incarnation)>,
    /// The latest start of each other member that was let in, by rising id: durable before it is.
    pub known: Vec<Acquaintance>,
}

impl SlotValue for BootRecord {
    const MAGIC: [u8; 4] = *b"PBOT";
    /// Format 1 ended with the members.
    const FORMAT: u16 = 2;

    fn encode(&self, w: &mut Writer<'_>) {
        assert!(
            self.members.len() <= VOTERS_MAX && self.known.len() <= VOTERS_MAX,
            "more members than voters"
        );
        assert!(self.starts.nonces.len() <= STARTS_MAX, "more starts than are kept");
        w.u64(self.starts.number);
        w.u32(self.members.len() as u32);
        for (node, incarnation) in &self.members {
            w.u32(node.0);
            w.u128(incarnation.0);
        }
        w.u32(self.starts.nonces.len() as u32);
        for nonce in &self.starts.nonces {
            w.u128(nonce.0);
        }
        w.u32(self.known.len() as u32);
        for known in &self.known {
            w.u32(known.node.0);
            w.u64(known.start.number);
            w.u128(known.start.nonce.0);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<BootRecord, DecodeError> {
        let number = r.u64()?;
        let mut members = Vec::new();
        for _ in 0..count(r, "members", VOTERS_MAX)? {
            members.push((NodeId(r.u32()?), Incarnation(r.u128()?)));
        }
        let mut nonces = Vec::new();
        for _ in 0..count(r, "starts", STARTS_MAX)? {
            nonces.push(StartNonce(r.u128()?));
        }
        let mut known = Vec::new();
        for _ in 0..count(r, "known starts", VOTERS_MAX)? {
            let node = NodeId(r.u32()?);
            known
                .push(Acquaintance { node, start: Start { number: r.u64()?, nonce: StartNonce(r.u128()?) } });
        }
        Ok(BootRecord { starts: Starts { number, nonces }, members, known })
    }
}

fn count(r: &mut Reader<'_>, what: &'static str, max: usize) -> Result<usize, DecodeError> {
    match r.u32()? as usize {
        count if count <= max => Ok(count),
        _ => Err(DecodeError::TooLong { what, max }),
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

//! Stand-in until the machine's snapshots are merged: a state is the commands that made it.
#![allow(missing_docs)]
use crate::machine::{Applied, Machine};
use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::*;

#[derive(Default)]
pub struct Standin {
    history: Vec<(u64, u64, Vec<u8>)>,
    frozen: Option<(usize, usize, bool)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SnapshotFault(String);

impl Standin {
    pub(crate) fn note(&mut self, at: Applied, command: &[u8]) {
        self.history.push((at.index.0, at.clock_ms, command.to_vec()));
    }
}

impl Machine {
    pub fn freeze(&mut self) {
        assert!(self.standin.frozen.is_none());
        self.standin.frozen = Some((0, self.standin.history.len(), false));
    }
    pub fn is_frozen(&self) -> bool {
        self.standin.frozen.is_some()
    }
    pub fn thaw(&mut self) {
        self.standin.frozen = None;
    }
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let (mut at, end, any) = self.standin.frozen?;
        if at == end && any {
            self.standin.frozen = None;
            return None;
        }
        let mut out = Vec::new();
        out.push(1);
        while at < end && out.len() < 3_000 {
            let (index, clock, command) = &self.standin.history[at];
            let mut w = Writer(&mut out);
            w.u64(*index);
            w.u64(*clock);
            w.bytes(command);
            at += 1;
        }
        self.standin.frozen = Some((at, end, true));
        Some(out)
    }
}

pub struct Restore(Machine);

impl Restore {
    pub fn new(limits: ClusterLimits, shard: ShardId, hash_seed: u64, mutants: Mutants) -> Restore {
        Restore(Machine::new(limits, shard, hash_seed, mutants))
    }
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), SnapshotFault> {
        let fault = |_| SnapshotFault(String::from("damaged"));
        let mut r = Reader::new(chunk);
        r.u8().map_err(fault)?;
        while r.remaining() > 0 {
            let (index, clock_ms) = (r.u64().map_err(fault)?, r.u64().map_err(fault)?);
            let command = r.bytes("command", 1 << 20).map_err(fault)?;
            let at = Applied { index: LogIndex(index), clock_ms };
            self.0.apply(at, command, &mut Vec::new()).map_err(|_| SnapshotFault(String::from("damaged")))?;
        }
        Ok(())
    }
    pub fn finish(self) -> Result<Machine, SnapshotFault> {
        Ok(self.0)
    }
}

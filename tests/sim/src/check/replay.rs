//! S7: the state is what the log says and nothing else. Replayed from its beginning on a machine of its own,
//! whose hash tables have another seed, the committed log gives the digest that the nodes have, whatever
//! they went through.

use palisade_machine::{Applied, Machine};
use palisade_types::{Block, LogIndex, Mutants};

use super::{Checked, Violation, demand};
use crate::node::{SHARD, limits};

/// The seed of the hash tables of the machine that replays.
const HASH_SEED: u64 = 0x5eed_0f57;

/// Replays a whole log and compares.
///
/// # Errors
/// S7 when the digests differ, R5 when a command does not apply.
pub fn equals(blocks: &[Block], mutants: Mutants, digest: u128) -> Checked {
    let mut machine = Machine::new(limits(), SHARD, HASH_SEED, mutants);
    let mut effects = Vec::new();
    for block in blocks {
        for (place, command) in block.commands().enumerate() {
            let at = Applied { index: LogIndex(block.first().0 + place as u64), clock_ms: block.clock_ms() };
            effects.clear();
            machine.apply(at, command, &mut effects).map_err(|e| Violation::new("R5", e.to_string()))?;
        }
    }
    let own = machine.digest();
    demand(own == digest, "S7", || {
        format!("replayed up to {} the log gives {own:x}, the nodes have {digest:x}", machine.applied())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_the_log_does_not_give_is_found() {
        let empty = Machine::new(limits(), SHARD, 1, Mutants::NONE).digest();
        assert_eq!(equals(&[], Mutants::NONE, empty), Ok(()));
        assert_eq!(equals(&[], Mutants::NONE, empty ^ 1).unwrap_err().rule, "S7");
    }
}

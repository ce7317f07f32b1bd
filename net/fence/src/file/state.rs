//! The state beside a fenced file: lines of text that an operator can read, and a checksum.
//!
//! ```text
//! palisade-fence 1
//! key reports/daily
//! floor 8
//! write 41
//! done 8 report of 2026-12-03
//! crc 1c291ca3
//! ```

use std::fmt::Write;

use palisade_types::{Epoch, Key};

use crate::operation::OperationId;

const MAGIC: &str = "palisade-fence 1";

/// Floor, number of writes, operations done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The floor of the key.
    pub(super) floor: u64,
    /// How many writes have counted; the content of the last lies under a name with this number until it is in place.
    pub(super) number: u64,
    /// Operations done, the oldest first, with the epoch of each.
    operations: Vec<(u64, String)>,
}

impl State {
    /// The epoch under which an operation was done.
    pub(super) fn done(&self, id: &OperationId) -> Option<Epoch> {
        self.operations.iter().find(|(_, done)| done == id.as_str()).map(|(epoch, _)| Epoch(*epoch))
    }

    /// Puts an operation on record, and forgets the oldest beyond `keep`.
    pub(super) fn record(&mut self, id: &OperationId, epoch: Epoch, keep: usize) {
        self.operations.push((epoch.0, id.as_str().to_owned()));
        let old = self.operations.len().saturating_sub(keep);
        self.operations.drain(..old);
    }

    pub(super) fn to_text(&self, key: &Key) -> String {
        let mut text = format!("{MAGIC}\nkey {key}\nfloor {}\nwrite {}\n", self.floor, self.number);
        for (epoch, id) in &self.operations {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "done {epoch} {id}");
        }
        let crc = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "crc {crc:08x}");
        text
    }

    /// Reads what [`State::to_text`] wrote, and says what is wrong with anything else.
    pub(super) fn parse(bytes: &[u8], key: &Key) -> Result<State, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
        let body_len = text.trim_end_matches('\n').rfind('\n').ok_or("it is cut off")? + 1;
        let (body, last) = text.split_at(body_len);
        let crc = last.strip_prefix("crc ").and_then(|l| l.strip_suffix('\n')).ok_or("it is cut off")?;
        if crc != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
            return Err("its checksum does not fit");
        }
        let mut lines = body.lines();
        if lines.next() != Some(MAGIC) {
            return Err("it is of another version");
        }
        if lines.next().and_then(|l| l.strip_prefix("key ")) != Some(key.as_str()) {
            return Err("it belongs to another key");
        }
        let mut number = |name: &str| {
            let line = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?;
            line.parse::<u64>().ok()
        };
        let floor = number("floor").ok_or("its floor is no number")?;
        let count = number("write").ok_or("its number of writes is no number")?;
        let mut operations = Vec::new();
        for line in lines {
            let done = line.strip_prefix("done ").and_then(|l| l.split_once(' '));
            let done = done.and_then(|(epoch, id)| Some((epoch.parse::<u64>().ok()?, id.to_owned())));
            operations.push(done.ok_or("a line of it is no operation")?);
        }
        Ok(State { floor, number: count, operations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("reports/daily").expect("a name")
    }

    fn state() -> State {
        let mut state = State { floor: 8, number: 41, ..State::default() };
        for n in 0..5 {
            state.record(&OperationId::new(&format!("report of {n}")).expect("a name"), Epoch(8), 3);
        }
        state
    }

    #[test]
    fn what_is_written_is_read_and_only_the_last_operations_are_kept() {
        let state = state();
        assert_eq!(State::parse(state.to_text(&key()).as_bytes(), &key()), Ok(state.clone()));
        assert_eq!(state.done(&OperationId::new("report of 1").expect("a name")), None);
        assert_eq!(state.done(&OperationId::new("report of 2").expect("a name")), Some(Epoch(8)));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        let text = state().to_text(&key()).into_bytes();
        for len in 0..text.len() {
            assert!(State::parse(&text[..len], &key()).is_err(), "cut at {len}");
        }
        for at in 0..text.len() {
            let mut bad = text.clone();
            bad[at] ^= 1;
            assert!(State::parse(&bad, &key()).is_err(), "byte {at}");
        }
        assert!(State::parse(&text, &Key::new("another").expect("a name")).is_err());
    }
}

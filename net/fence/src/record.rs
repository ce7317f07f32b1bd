//! What a resource stores about its fence, as lines of text that an operator can read: beside the content
//! ([`crate::FencedFile`]) or before it in the same object ([`Record::seal`]).
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

use palisade_types::{Epoch, Fence, Floor, Key, Refused};

use crate::operation::OperationId;

const MAGIC: &str = "palisade-fence 1";

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// They end too early or were changed.
    #[error("the record of its fence is cut off or its checksum does not fit")]
    Damaged,
    /// They are of another version of this format.
    #[error("the record of its fence is of another version")]
    Version,
    /// They belong to another key: two locks do not protect one resource.
    #[error("the record of its fence belongs to another key")]
    OtherKey,
}

/// The floor of a key, how often the resource was written, and the operations done. The number of writes makes two
/// records differ always, also where the content is the same: who compares what he read with what is there, by a
/// hash for example, is not deceived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    floor: u64,
    number: u64,
    /// The oldest first, with the epoch of each.
    operations: Vec<(u64, String)>,
}

/// What is to be done about a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Store this record together with the content, in one atomic step that fails if the record read is no longer there.
    Write(Record),
    /// The operation was done before, under the grant with this epoch: the content stays as it is.
    Before {
        /// The epoch it was done under.
        epoch: Epoch,
        /// What to store with that content all the same, in one atomic step, before the answer is given: whoever
        /// is told that it was done has acted, and shuts out those before it. `None` if the floor is as high already.
        raised: Option<Record>,
    },
}

impl Record {
    /// The floor of the key; 0 if nobody has written.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// How often the resource was written under a fence.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Applies the rule ([`Floor::admit`]) to a write, and remembers its operation, if it is one, among the last `keep`.
    ///
    /// # Errors
    /// [`Refused`] when the epoch is below the floor.
    pub fn admit(
        &self,
        fence: &Fence,
        operation: Option<&OperationId>,
        keep: usize,
    ) -> Result<Step, Refused> {
        let Floor(floor) = Floor(self.floor).admit(fence)?;
        let mut next = Record { floor, number: self.number + 1, operations: self.operations.clone() };
        if let Some(id) = operation {
            if let Some((epoch, _)) = self.operations.iter().find(|(_, done)| done == id.as_str()) {
                let raised = (floor > self.floor).then_some(next);
                return Ok(Step::Before { epoch: Epoch(*epoch), raised });
            }
            next.operations.push((fence.epoch().0, id.as_str().to_owned()));
            let old = next.operations.len().saturating_sub(keep);
            next.operations.drain(..old);
        }
        Ok(Step::Write(next))
    }

    /// The record as text.
    pub fn to_text(&self, key: &Key) -> String {
        let mut text = format!("{MAGIC}\nkey {key}\nfloor {}\nwrite {}\n", self.floor, self.number);
        for (epoch, id) in &self.operations {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "done {epoch} {id}");
        }
        let crc = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "crc {crc:08x}");
        text
    }

    /// Record and content in one piece, for resources that hold one piece of bytes each.
    pub fn seal(&self, key: &Key, content: &[u8]) -> Vec<u8> {
        let mut bytes = self.to_text(key).into_bytes();
        bytes.extend_from_slice(content);
        bytes
    }

    /// Takes apart what [`Record::seal`] made.
    ///
    /// # Errors
    /// When it is no record of this key.
    pub fn open<'a>(bytes: &'a [u8], key: &Key) -> Result<(Record, &'a [u8]), RecordError> {
        // No line of a record before its last begins so.
        let crc = bytes.windows(5).position(|w| w == b"\ncrc ").ok_or(RecordError::Damaged)? + 1;
        let end = crc + b"crc 00000000\n".len();
        if bytes.len() < end {
            return Err(RecordError::Damaged);
        }
        let (body, line) = (&bytes[..crc], &bytes[crc..end]);
        if line != format!("crc {:08x}\n", crc32fast::hash(body)).as_bytes() {
            return Err(RecordError::Damaged);
        }
        let body = std::str::from_utf8(body).map_err(|_| RecordError::Damaged)?;
        Ok((Record::from_lines(body, key)?, &bytes[end..]))
    }

    /// Reads what [`Record::to_text`] wrote.
    ///
    /// # Errors
    /// When it is no record of this key.
    pub fn parse(bytes: &[u8], key: &Key) -> Result<Record, RecordError> {
        match Record::open(bytes, key)? {
            (record, []) => Ok(record),
            _ => Err(RecordError::Damaged),
        }
    }

    fn from_lines(body: &str, key: &Key) -> Result<Record, RecordError> {
        let mut lines = body.lines();
        if lines.next() != Some(MAGIC) {
            return Err(RecordError::Version);
        }
        if lines.next().and_then(|l| l.strip_prefix("key ")) != Some(key.as_str()) {
            return Err(RecordError::OtherKey);
        }
        let mut number = |name: &str| {
            let line = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?;
            line.parse::<u64>().ok()
        };
        let floor = number("floor").ok_or(RecordError::Damaged)?;
        let count = number("write").ok_or(RecordError::Damaged)?;
        let mut operations = Vec::new();
        for line in lines {
            let done = line.strip_prefix("done ").and_then(|l| l.split_once(' '));
            let done = done.and_then(|(epoch, id)| Some((epoch.parse::<u64>().ok()?, id.to_owned())));
            operations.push(done.ok_or(RecordError::Damaged)?);
        }
        Ok(Record { floor, number: count, operations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("reports/daily").unwrap()
    }

    fn record() -> Record {
        let fence = Fence::new(key(), Epoch(8), Epoch(8)).unwrap();
        (0..5).fold(Record::default(), |record, n| {
            let id = OperationId::new(&format!("crc of {n}")).unwrap();
            match record.admit(&fence, Some(&id), 3).unwrap() {
                Step::Write(next) => next,
                before => panic!("{before:?}"),
            }
        })
    }

    #[test]
    fn what_is_written_is_read_and_only_the_last_operations_are_kept() {
        let record = record();
        assert_eq!((record.floor(), record.number()), (8, 5));
        assert_eq!(Record::parse(record.to_text(&key()).as_bytes(), &key()), Ok(record.clone()));
        let sealed = record.seal(&key(), b"\ncrc of the content");
        assert_eq!(Record::open(&sealed, &key()), Ok((record.clone(), &b"\ncrc of the content"[..])));
        let again = |n| {
            let id = OperationId::new(&format!("crc of {n}")).unwrap();
            record.admit(&Fence::new(key(), Epoch(9), Epoch(9)).unwrap(), Some(&id), 3).unwrap()
        };
        assert!(matches!(again(1), Step::Write(_)));
        let Step::Before { epoch, raised: Some(raised) } = again(2) else { panic!("it was done") };
        assert_eq!((epoch, raised.floor(), raised.number()), (Epoch(8), 9, 6));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        let text = record().to_text(&key()).into_bytes();
        for len in 0..text.len() {
            assert!(Record::parse(&text[..len], &key()).is_err(), "cut at {len}");
        }
        for at in 0..text.len() {
            let mut bad = text.clone();
            bad[at] ^= 1;
            assert!(Record::parse(&bad, &key()).is_err(), "byte {at}");
        }
        let other = Key::new("another").unwrap();
        assert_eq!(Record::parse(&text, &other), Err(RecordError::OtherKey));
    }

    #[test]
    fn the_same_content_twice_is_never_the_same_bytes() {
        let fence = Fence::new(key(), Epoch(8), Epoch(8)).unwrap();
        let Ok(Step::Write(next)) = record().admit(&fence, None, 3) else { panic!("it is admitted") };
        assert_ne!(record().seal(&key(), b"same"), next.seal(&key(), b"same"));
    }
}

//! The protected resource: for each key one stored floor and the rule of DESIGN section 1, and a
//! record of every write that was shown to it.

use std::collections::BTreeMap;

use palisade_types::{Epoch, Fence, Floor, Key, Mode, Time};

use crate::check::{Checked, demand};

/// A write on its way to the resource.
#[derive(Clone, Debug)]
pub struct Write {
    /// The client that sent it.
    pub client: usize,
    /// Under which grant.
    pub fence: Fence,
    /// Of which mode.
    pub mode: Mode,
    /// When it was sent.
    pub sent: Time,
    /// The sender's lease had run out when it sent this: it was paused, and does not know yet.
    pub zombie: bool,
}

/// The resource's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Written.
    Accepted,
    /// Somebody newer has acted.
    Refused,
}

/// The resource, and what it has seen.
#[derive(Debug, Default)]
pub struct Resource {
    floors: BTreeMap<Key, Floor>,
    /// The newest grant that has written, and the newest exclusive one.
    newest: BTreeMap<Key, (Epoch, Epoch)>,
    /// Writes accepted.
    pub accepted: u64,
    /// Writes refused.
    pub refused: u64,
    /// Writes of clients whose lease had run out, that were accepted because nobody newer had acted.
    pub zombies_accepted: u64,
    /// Writes of clients whose lease had run out, that were refused.
    pub zombies_refused: u64,
}

impl Resource {
    /// A write arrives. `valid` says that its sender still holds the lock, by its own clock and in
    /// truth, while the write arrives.
    ///
    /// # Errors
    /// S1 when a write passes after one under a newer grant that excludes it, be it that it is exclusive
    /// itself or the newer one is; or when a valid holder is refused.
    pub fn write(&mut self, write: &Write, valid: bool) -> Result<Verdict, crate::check::Violation> {
        let key = write.fence.key();
        let floor = self.floors.get(key).copied().unwrap_or_default();
        let newest = self.newest.get(key).copied().unwrap_or_default();
        match floor.admit(&write.fence) {
            Ok(raised) => {
                self.floors.insert(key.clone(), raised);
                let epoch = write.fence.epoch();
                let exclusive = if write.mode == Mode::Exclusive { epoch } else { Epoch(0) };
                self.newest.insert(key.clone(), (newest.0.max(epoch), newest.1.max(exclusive)));
                self.accepted += 1;
                self.zombies_accepted += u64::from(write.zombie);
                self.admitted(write, newest)?;
                Ok(Verdict::Accepted)
            }
            Err(refused) => {
                self.refused += 1;
                self.zombies_refused += u64::from(write.zombie);
                demand(!valid, "S1", || {
                    format!("client {} holds {} and was refused: {refused}", write.client, write.fence)
                })?;
                Ok(Verdict::Refused)
            }
        }
    }

    fn admitted(&self, write: &Write, (newest, newest_exclusive): (Epoch, Epoch)) -> Checked {
        let past = match write.mode {
            Mode::Exclusive => newest,
            Mode::Shared => newest_exclusive,
        };
        demand(write.fence.epoch() >= past, "S1", || {
            format!("the resource took {} ({}) after epoch {past}", write.fence, write.mode)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(epoch: u64) -> Write {
        let fence = Fence::new(Key::new("k").unwrap(), Epoch(epoch), Epoch(epoch)).unwrap();
        Write { client: 0, fence, mode: Mode::Exclusive, sent: Time::ZERO, zombie: true }
    }

    #[test]
    fn a_zombie_is_refused_once_somebody_newer_has_written() {
        let mut r = Resource::default();
        assert_eq!(r.write(&write(1), false), Ok(Verdict::Accepted));
        assert_eq!(r.write(&write(2), false), Ok(Verdict::Accepted));
        assert_eq!(r.write(&write(1), false), Ok(Verdict::Refused));
        assert_eq!((r.zombies_accepted, r.zombies_refused), (2, 1));
    }

    /// A resource that gets the rule wrong: its floors are lost, and everybody passes.
    fn forgets(r: &mut Resource, write: &Write) -> Result<Verdict, crate::check::Violation> {
        r.floors.clear();
        r.write(write, false)
    }

    #[test]
    fn readers_and_writers_past_newer_ones_are_seen_and_readers_beside_readers_are_not() {
        let shared = |epoch, barrier| {
            let fence = Fence::new(Key::new("k").unwrap(), Epoch(epoch), Epoch(barrier)).unwrap();
            Write { mode: Mode::Shared, fence, ..write(epoch) }
        };
        let mut r = Resource::default();
        for write in [write(2), shared(4, 3), shared(3, 3)] {
            assert_eq!(
                r.write(&write, false),
                Ok(Verdict::Accepted),
                "the barrier is that of the first reader"
            );
        }
        assert_eq!(r.write(&write(2), false), Ok(Verdict::Refused), "the writer before the readers");
        assert_eq!(forgets(&mut r, &write(2)).unwrap_err().rule, "S1");
        assert_eq!(r.write(&write(5), false), Ok(Verdict::Accepted));
        assert_eq!(r.write(&shared(4, 3), false), Ok(Verdict::Refused), "a reader before the next writer");
        assert_eq!(forgets(&mut r, &shared(4, 3)).unwrap_err().rule, "S1");
    }

    #[test]
    fn a_valid_holder_that_is_refused_is_a_violation() {
        let mut r = Resource::default();
        assert_eq!(r.write(&write(2), true), Ok(Verdict::Accepted));
        assert!(r.write(&write(1), true).is_err());
    }
}

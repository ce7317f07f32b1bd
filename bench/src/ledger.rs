//! What was granted, key by key: judges the service by its own words, in every run.

/// The state of a key as the grants tell it.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The highest epoch granted.
    epoch: u64,
    /// The session that was granted the key and has not begun to release it.
    holder: Option<u32>,
}

/// All grants of a run. Keys and sessions are numbers from 0.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    keys: Vec<Entry>,
    grants: u64,
}

/// A grant that must not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    /// Its epoch is not above all before.
    #[error("key {key}: session {session} was granted epoch {epoch} after epoch {before} had been granted")]
    Epoch {
        /// Which key.
        key: u32,
        /// Granted to whom.
        session: u32,
        /// The epoch granted.
        epoch: u64,
        /// The highest before.
        before: u64,
    },
    /// Another session holds the key.
    #[error("key {key}: session {session} was granted epoch {epoch} while session {holder} holds the key")]
    Overlap {
        /// Which key.
        key: u32,
        /// Granted to whom.
        session: u32,
        /// The epoch granted.
        epoch: u64,
        /// Who holds it.
        holder: u32,
    },
}

impl Ledger {
    /// So many keys, never granted.
    pub(crate) fn new(keys: u32) -> Ledger {
        Ledger { keys: vec![Entry::default(); keys as usize], grants: 0 }
    }

    /// A grant was seen.
    pub(crate) fn granted(&mut self, key: u32, session: u32, epoch: u64) -> Result<(), Violation> {
        let entry = &mut self.keys[key as usize];
        if let Some(holder) = entry.holder {
            return Err(Violation::Overlap { key, session, epoch, holder });
        }
        if epoch <= entry.epoch {
            return Err(Violation::Epoch { key, session, epoch, before: entry.epoch });
        }
        *entry = Entry { epoch, holder: Some(session) };
        self.grants += 1;
        Ok(())
    }

    /// The holder is about to release the key, or has lost it with its session.
    pub(crate) fn let_go(&mut self, key: u32, session: u32) {
        let entry = &mut self.keys[key as usize];
        if entry.holder == Some(session) {
            entry.holder = None;
        }
    }

    /// Who holds a key.
    pub(crate) fn holder(&self, key: u32) -> Option<u32> {
        self.keys[key as usize].holder
    }

    /// How many grants were found in order.
    pub(crate) fn grants(&self) -> u64 {
        self.grants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_histories_are_clean() {
        let mut ledger = Ledger::new(2);
        for epoch in 1..=3 {
            ledger.granted(0, epoch as u32, epoch).unwrap();
            ledger.let_go(0, epoch as u32);
        }
        // Another key counts its epochs by itself, and epochs may be left out.
        ledger.granted(1, 9, 1).unwrap();
        ledger.let_go(1, 9);
        ledger.granted(1, 9, 70).unwrap();
        assert_eq!((ledger.grants(), ledger.holder(1), ledger.holder(0)), (5, Some(9), None));
    }

    #[test]
    fn an_epoch_that_does_not_rise_is_a_violation() {
        let mut ledger = Ledger::new(1);
        ledger.granted(0, 1, 5).unwrap();
        ledger.let_go(0, 1);
        for epoch in [5, 4] {
            let found = ledger.granted(0, 2, epoch);
            assert_eq!(found, Err(Violation::Epoch { key: 0, session: 2, epoch, before: 5 }));
        }
        ledger.granted(0, 2, 6).unwrap();
    }

    #[test]
    fn two_holders_are_a_violation_whatever_the_epoch() {
        let mut ledger = Ledger::new(1);
        ledger.granted(0, 1, 5).unwrap();
        let found = ledger.granted(0, 2, 6);
        assert_eq!(found, Err(Violation::Overlap { key: 0, session: 2, epoch: 6, holder: 1 }));
    }

    #[test]
    fn only_the_holder_lets_go() {
        let mut ledger = Ledger::new(1);
        ledger.granted(0, 1, 5).unwrap();
        ledger.let_go(0, 2);
        assert_eq!(ledger.holder(0), Some(1));
    }
}

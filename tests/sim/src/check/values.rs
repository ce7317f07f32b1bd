//! E1 to E3: ephemeral keys as clients see them, told from their answers and from the ends and deletes in
//! the log alone, without the naive machine.

use std::collections::{BTreeMap, BTreeSet};

use palisade_machine::Command;
use palisade_types::{Key, LogIndex, SessionId, ValueRow};

use super::{Checked, demand};

/// What was acknowledged and what ended.
#[derive(Debug, Default)]
pub struct ValuesCheck {
    /// Acknowledged puts of each key: when, and whose.
    puts: BTreeMap<Key, BTreeMap<LogIndex, SessionId>>,
    /// Deletes in the log, whatever became of them.
    deletes: BTreeSet<(Key, SessionId)>,
    ended: BTreeMap<SessionId, LogIndex>,
    /// How many different puts were acknowledged.
    pub acknowledged: u64,
}

impl ValuesCheck {
    /// The log holds a command.
    pub fn on_command(&mut self, command: &Command) {
        if let Command::Delete { session, key, .. } = command {
            self.deletes.insert((key.clone(), *session));
        }
    }

    /// The log ends a session.
    pub fn on_ended(&mut self, session: SessionId, index: LogIndex) {
        self.ended.insert(session, index);
    }

    /// A put is acknowledged.
    ///
    /// # Errors
    /// E2 when another session had the key at that time, and nothing took it away from it.
    pub fn on_put(&mut self, key: &Key, session: SessionId, revision: LogIndex) -> Checked {
        let puts = self.puts.entry(key.clone()).or_default();
        self.acknowledged += u64::from(puts.insert(revision, session).is_none());
        let before = puts.range(..revision).next_back().map(|(_, s)| *s);
        let after = puts.range(revision.next()..).next().map(|(r, s)| (*r, *s));
        if let Some(before) = before {
            self.may_follow(key, before, session, revision)?;
        }
        match after {
            Some((revision, after)) => self.may_follow(key, session, after, revision),
            None => Ok(()),
        }
    }

    fn may_follow(&self, key: &Key, before: SessionId, after: SessionId, revision: LogIndex) -> Checked {
        let gone = before == after
            || self.ended.get(&before).is_some_and(|end| *end < revision)
            || self.deletes.contains(&(key.clone(), before));
        demand(gone, "E2", || format!("{key} of session {before} was put by session {after} at {revision}"))
    }

    /// A read that arrived when all up to `arrived` was committed shows this row, at a revision.
    ///
    /// # Errors
    /// E1 when it shows a session's key after its end and does not say so; E3 when it is older than an
    /// acknowledged put.
    pub fn on_row(&self, arrived: LogIndex, revision: LogIndex, row: &ValueRow) -> Checked {
        let end = self.ended.get(&row.session).filter(|end| **end <= revision);
        demand(end.is_some() == row.ending, "E1", || {
            format!("{row:?} is shown at {revision}, its session ended at {end:?}")
        })?;
        let newest = self.puts.get(&row.key).and_then(|puts| puts.range(..=arrived).next_back());
        demand(newest.is_none_or(|(put, _)| *put <= row.modified), "E3", || {
            format!("{row:?} is shown, while a put at {newest:?} was acknowledged")
        })
    }

    /// The same, and there is no such key.
    ///
    /// # Errors
    /// E3 when one was put, and nothing took it away.
    pub fn on_nothing(&self, arrived: LogIndex, revision: LogIndex, key: &Key) -> Checked {
        let newest = self.puts.get(key).and_then(|puts| puts.range(..=arrived).next_back());
        let Some((put, session)) = newest else { return Ok(()) };
        let gone = self.ended.get(session).is_some_and(|end| *end <= revision)
            || self.deletes.contains(&(key.clone(), *session));
        demand(gone, "E3", || format!("{key} is not there at {revision}, session {session} put it at {put}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::Ticket;

    fn session(n: u64) -> SessionId {
        SessionId { opened: LogIndex(n), ..SessionId::default() }
    }

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn row(of: u64, modified: u64, ending: bool) -> ValueRow {
        ValueRow {
            key: key(),
            value: [].into(),
            session: session(of),
            owner: None,
            created: LogIndex(modified),
            modified: LogIndex(modified),
            ending,
        }
    }

    #[test]
    fn a_key_put_by_another_is_seen_whichever_acknowledgement_comes_first() {
        for order in [[0, 1], [1, 0]] {
            let mut c = ValuesCheck::default();
            let puts = [(session(1), LogIndex(10)), (session(2), LogIndex(20))];
            let results = order.map(|n| c.on_put(&key(), puts[n].0, puts[n].1));
            assert_eq!(results[1].as_ref().unwrap_err().rule, "E2");
        }
        let mut c = ValuesCheck::default();
        c.on_ended(session(1), LogIndex(15));
        let delete = Command::Delete { session: session(2), ticket: Ticket(9), key: key() };
        c.on_command(&delete);
        for (of, at) in [(1, 10), (2, 20), (3, 30)] {
            assert_eq!(c.on_put(&key(), session(of), LogIndex(at)), Ok(()));
        }
        assert_eq!(c.on_put(&key(), session(1), LogIndex(40)).unwrap_err().rule, "E2");
        assert_eq!(c.acknowledged, 4);
    }

    #[test]
    fn a_value_after_its_sessions_end_and_an_old_value_are_seen() {
        let mut c = ValuesCheck::default();
        c.on_put(&key(), session(1), LogIndex(10)).unwrap();
        c.on_put(&key(), session(1), LogIndex(20)).unwrap();
        let (at, rule) = (LogIndex(25), |checked: Checked| checked.err().map(|v| v.rule));
        assert_eq!(rule(c.on_row(at, at, &row(1, 20, false))), None);
        assert_eq!(rule(c.on_row(LogIndex(15), at, &row(1, 10, false))), None, "the put came later");
        assert_eq!(rule(c.on_row(at, at, &row(1, 10, false))), Some("E3"));
        assert_eq!(rule(c.on_nothing(at, at, &key())), Some("E3"));
        assert_eq!(rule(c.on_row(at, at, &row(1, 20, true))), Some("E1"), "it has not ended");
        c.on_ended(session(1), LogIndex(24));
        assert_eq!(rule(c.on_row(at, at, &row(1, 20, false))), Some("E1"));
        assert_eq!(rule(c.on_row(at, at, &row(1, 20, true))), None);
        assert_eq!(rule(c.on_nothing(at, at, &key())), None);
    }
}

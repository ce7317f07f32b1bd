//! A ledger in one file, kept by redb: each call that changes something is one transaction, synced before it returns.

use std::path::Path;
use std::time::Duration;

use palisade_types::{Epoch, Fence, Floor, Key, Name};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::clock::unix_seconds;
use crate::error::Failed;
use crate::ledger::Ledger;
use crate::operation::{Begun, OperationId, Past};

/// Key to floor.
const FLOORS: TableDefinition<'_, &str, u64> = TableDefinition::new("floors");
/// Resource and operation id to whether it is done, the epoch, and when it was begun, in seconds since 1970.
const OPERATIONS: TableDefinition<'_, (&str, &str), (bool, u64, u64)> = TableDefinition::new("operations");
/// Key to the epoch under which a write is on its way to a resource behind a gateway.
const IN_FLIGHT: TableDefinition<'_, &str, u64> = TableDefinition::new("in_flight");

/// Why the ledger's file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct LedgerError(Box<redb::Error>);

impl<E: Into<redb::Error>> From<E> for LedgerError {
    fn from(e: E) -> LedgerError {
        LedgerError(Box::new(e.into()))
    }
}

/// A [`Ledger`] in one file. Only one process can have it open; a second is refused by [`RedbLedger::open`].
pub struct RedbLedger(Database);

impl std::fmt::Debug for RedbLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedbLedger")
    }
}

impl RedbLedger {
    /// Opens the ledger in this file, or makes it.
    ///
    /// # Errors
    /// When the file cannot be made or read, is no ledger, or is open elsewhere.
    pub fn open(path: &Path) -> Result<RedbLedger, LedgerError> {
        let database = Database::create(path)?;
        let made = database.begin_write()?;
        made.open_table(FLOORS)?;
        made.open_table(OPERATIONS)?;
        made.open_table(IN_FLIGHT)?;
        made.commit()?;
        // The file itself must be found again after a power cut.
        if let Some(dir) = path.parent() {
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            std::fs::File::open(dir)
                .and_then(|dir| dir.sync_all())
                .map_err(|e| LedgerError(Box::new(redb::Error::Io(e))))?;
        }
        Ok(RedbLedger(database))
    }

    /// Forgets the operations of a resource that were begun longer ago than this, by the wall clock. How long ids are kept is how
    /// long a retry may be late: one that comes later is done again. Returns how many are forgotten.
    ///
    /// # Errors
    /// When the file could not be read or written.
    pub fn forget_operations(&self, resource: &Name, older_than: Duration) -> Result<usize, LedgerError> {
        let limit = unix_seconds().saturating_sub(older_than.as_secs());
        let write = self.0.begin_write()?;
        let forgotten = {
            let mut operations = write.open_table(OPERATIONS)?;
            let mut old = Vec::new();
            for row in operations.range((resource.as_str(), "")..)? {
                let (at, record) = row?;
                let (of, id) = at.value();
                if of != resource.as_str() {
                    break;
                }
                if record.value().2 < limit {
                    old.push(id.to_owned());
                }
            }
            for id in &old {
                operations.remove((resource.as_str(), id.as_str()))?;
            }
            old.len()
        };
        write.commit()?;
        Ok(forgotten)
    }

    /// As [`Ledger::admit`], and in the same durable step puts on record that a write of this key is on its way to
    /// somebody who knows no fences. After a crash its outcome is unknown: [`RedbLedger::in_flight`].
    ///
    /// # Errors
    /// As for [`Ledger::admit`].
    pub fn depart(&self, fence: &Fence) -> Result<(), Failed<LedgerError>> {
        let write = self.0.begin_write().map_err(failed)?;
        raise(&write, fence)?;
        write
            .open_table(IN_FLIGHT)
            .map_err(failed)?
            .insert(fence.key().as_str(), fence.epoch().0)
            .map_err(failed)?;
        write.commit().map_err(failed)
    }

    /// The outcome of the write on its way is known. Not synced by itself: to forget this is to be careful.
    ///
    /// # Errors
    /// When the file could not be read or written.
    pub fn arrive(&self, key: &Key) -> Result<(), LedgerError> {
        let mut write = self.0.begin_write()?;
        write.set_durability(Durability::None)?;
        write.open_table(IN_FLIGHT)?.remove(key.as_str())?;
        Ok(write.commit()?)
    }

    /// The keys of writes that were on their way when the process ended, with the epoch of each.
    ///
    /// # Errors
    /// When the file could not be read.
    pub fn in_flight(&self) -> Result<Vec<(Key, Epoch)>, LedgerError> {
        let table = self.0.begin_read()?.open_table(IN_FLIGHT)?;
        let mut keys = Vec::new();
        for row in table.iter()? {
            let (key, epoch) = row?;
            let key = Key::new(key.value()).map_err(|_| redb::Error::Corrupted("a key is no name".into()))?;
            keys.push((key, Epoch(epoch.value())));
        }
        Ok(keys)
    }
}

/// Why a floor is not lowered.
#[derive(Debug, thiserror::Error)]
pub enum NotLowered {
    /// It is not above what it should be lowered to.
    #[error("the floor of {key} is {floor}, which is not above {to}: there is nothing to lower")]
    NotAbove {
        /// Of which key.
        key: Key,
        /// As it is, and stays.
        floor: u64,
        /// What was asked for.
        to: u64,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl RedbLedger {
    /// Lowers the floor of a key, against the rule, and returns what it was: the remedy for an epoch that somebody invented, which
    /// shuts out all who were granted the key. To be used by people, when nobody writes: whoever has an epoch of `to` or later is
    /// let in again, so `to` is at least the last epoch that the cluster has granted (`palisade describe KEY`).
    ///
    /// # Errors
    /// [`NotLowered`]; nothing has changed.
    pub fn lower_floor(&self, key: &Key, to: Epoch) -> Result<u64, NotLowered> {
        let write = self.0.begin_write().map_err(LedgerError::from)?;
        let before = {
            let mut floors = write.open_table(FLOORS).map_err(LedgerError::from)?;
            let before = floors.get(key.as_str()).map_err(LedgerError::from)?.map_or(0, |f| f.value());
            if before <= to.0 {
                return Err(NotLowered::NotAbove { key: key.clone(), floor: before, to: to.0 });
            }
            floors.insert(key.as_str(), to.0).map_err(LedgerError::from)?;
            before
        };
        write.commit().map_err(LedgerError::from)?;
        Ok(before)
    }
}

/// Applies the rule to the key's floor within a transaction. Whether that changed the floor.
fn raise(write: &WriteTransaction, fence: &Fence) -> Result<bool, Failed<LedgerError>> {
    let mut floors = write.open_table(FLOORS).map_err(failed)?;
    let stored = floors.get(fence.key().as_str()).map_err(failed)?.map_or(0, |f| f.value());
    let Floor(floor) = Floor(stored).admit(fence)?;
    let changed = floor != stored;
    if changed {
        floors.insert(fence.key().as_str(), floor).map_err(failed)?;
    }
    Ok(changed)
}

/// What redb says in a call that can also refuse.
fn failed<E: Into<redb::Error>>(e: E) -> Failed<LedgerError> {
    Failed::Ledger(e.into().into())
}

impl Ledger for RedbLedger {
    type Error = LedgerError;

    fn admit(&self, fence: &Fence) -> Result<(), Failed<LedgerError>> {
        let write = self.0.begin_write().map_err(failed)?;
        // An unchanged floor is durable already; the transaction is dropped.
        if !raise(&write, fence)? {
            return Ok(());
        }
        write.commit().map_err(failed)
    }

    fn begin(
        &self,
        fence: &Fence,
        resource: &Name,
        operation: &OperationId,
    ) -> Result<Begun, Failed<LedgerError>> {
        let write = self.0.begin_write().map_err(failed)?;
        raise(&write, fence)?;
        let begun = {
            let mut operations = write.open_table(OPERATIONS).map_err(failed)?;
            let at = (resource.as_str(), operation.as_str());
            let known = operations.get(at).map_err(failed)?.map(|record| record.value());
            match known {
                Some((true, epoch, _)) => Begun::Before(Past::Done { epoch: Epoch(epoch) }),
                Some((false, epoch, _)) => Begun::Before(Past::Unknown { epoch: Epoch(epoch) }),
                None => {
                    operations.insert(at, (false, fence.epoch().0, unix_seconds())).map_err(failed)?;
                    Begun::New
                }
            }
        };
        write.commit().map_err(failed)?;
        Ok(begun)
    }

    fn done(&self, resource: &Name, operation: &OperationId, epoch: Epoch) -> Result<(), LedgerError> {
        let write = self.0.begin_write()?;
        {
            let mut operations = write.open_table(OPERATIONS)?;
            let at = (resource.as_str(), operation.as_str());
            let known = operations.get(at)?.map(|record| record.value());
            match known {
                Some((true, ..)) => return Ok(()),
                Some((false, _, begun)) => operations.insert(at, (true, epoch.0, begun))?,
                None => operations.insert(at, (true, epoch.0, unix_seconds()))?,
            };
        }
        Ok(write.commit()?)
    }

    fn not_done(&self, resource: &Name, operation: &OperationId) -> Result<Option<Epoch>, LedgerError> {
        let write = self.0.begin_write()?;
        {
            let mut operations = write.open_table(OPERATIONS)?;
            let at = (resource.as_str(), operation.as_str());
            let known = operations.get(at)?.map(|record| record.value());
            if let Some((true, epoch, _)) = known {
                return Ok(Some(Epoch(epoch)));
            }
            operations.remove(at)?;
        }
        write.commit()?;
        Ok(None)
    }

    fn floor(&self, key: &Key) -> Result<u64, LedgerError> {
        let floors = self.0.begin_read()?.open_table(FLOORS)?;
        Ok(floors.get(key.as_str())?.map_or(0, |floor| floor.value()))
    }
}

//! The resource of the demo: an account in a SQLite file, with the recipe of `net/fence/recipes/sqlite.md`.

use std::path::Path;
use std::time::Duration;

use palisade_fence::{Fence, sql};
use rusqlite::{Connection, OptionalExtension, Result, TransactionBehavior, params};

/// What is in the account before anybody writes.
pub(super) const START: i64 = 100;

const TABLES: &str = "
CREATE TABLE account (balance INTEGER NOT NULL) STRICT;
CREATE TABLE entry (
    number INTEGER PRIMARY KEY, worker TEXT NOT NULL, epoch INTEGER NOT NULL, amount INTEGER NOT NULL
) STRICT;";
/// A writer waits at most so long for another one's transaction.
const BUSY: Duration = Duration::from_secs(10);

/// A balance, and who has changed it by how much.
pub(super) struct Books(Connection);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Written,
    /// Nothing is changed: somebody newer has written.
    Refused {
        floor: u64,
    },
}

/// A line of the books: who, under which epoch, has changed the balance by how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) worker: String,
    pub(super) epoch: u64,
    pub(super) amount: i64,
}

/// All that the file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) balance: i64,
    /// In the order in which they were written.
    pub(super) entries: Vec<Entry>,
    /// None: no fence was ever shown.
    pub(super) floor: Option<u64>,
}

impl Page {
    /// The balance, if no entry of the books were lost.
    pub(super) fn should_be(&self) -> i64 {
        self.entries.iter().fold(START, |sum, entry| sum.saturating_add(entry.amount))
    }
}

impl Books {
    /// A new file.
    pub(super) fn create(path: &Path) -> Result<Books> {
        let books = Books::open(path)?;
        books.0.execute_batch(sql::SQLITE_TABLES)?;
        books.0.execute_batch(TABLES)?;
        books.0.execute("INSERT INTO account (balance) VALUES (?1)", [START])?;
        Ok(books)
    }

    /// One that is there.
    pub(super) fn open(path: &Path) -> Result<Books> {
        let db = Connection::open(path)?;
        db.busy_timeout(BUSY)?;
        db.pragma_update(None, "synchronous", "full")?;
        Ok(Books(db))
    }

    pub(super) fn balance(&self) -> Result<i64> {
        self.0.query_row("SELECT balance FROM account", [], |row| row.get(0))
    }

    /// Writes the balance and the entry that explains it, in one transaction; with the fence, if it is to be
    /// checked.
    pub(super) fn write(
        &mut self,
        fence: &Fence,
        checked: bool,
        worker: &str,
        (read, amount): (i64, i64),
    ) -> Result<Verdict> {
        let (epoch, barrier) = sql::numbers(fence);
        let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if checked && tx.execute(sql::SQLITE_ADMIT, params![fence.key().as_str(), barrier, epoch])? == 0 {
            let floor = floor(&tx, fence.key().as_str())?.unwrap_or(0);
            return Ok(Verdict::Refused { floor });
        }
        tx.execute("UPDATE account SET balance = ?1", [read.saturating_add(amount)])?;
        let entry = "INSERT INTO entry (worker, epoch, amount) VALUES (?1, ?2, ?3)";
        tx.execute(entry, params![worker, epoch, amount])?;
        tx.commit()?;
        Ok(Verdict::Written)
    }

    /// Reads everything; the floor is that of this key.
    pub(super) fn page(&self, key: &str) -> Result<Page> {
        let mut entries = self.0.prepare("SELECT worker, epoch, amount FROM entry ORDER BY number")?;
        let entries = entries.query_map([], |row| {
            Ok(Entry {
                worker: row.get(0)?,
                epoch: row.get::<_, i64>(1)?.cast_unsigned(),
                amount: row.get(2)?,
            })
        })?;
        Ok(Page {
            balance: self.balance()?,
            entries: entries.collect::<Result<_>>()?,
            floor: floor(&self.0, key)?,
        })
    }
}

fn floor(db: &Connection, key: &str) -> Result<Option<u64>> {
    let floor = "SELECT floor FROM palisade_floor WHERE key = ?1";
    let floor: Option<i64> = db.query_row(floor, [key], |row| row.get(0)).optional()?;
    Ok(floor.map(i64::cast_unsigned))
}

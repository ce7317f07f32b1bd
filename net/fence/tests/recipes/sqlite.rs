//! The recipe for SQLite: `net/fence/recipes/sqlite.md`.

use std::time::Duration;

use palisade_fence::{Fence, OperationId, sql};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::{Answer, KEY, holds, is_found};

/// Which of the recipes.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// The floor in a table of its own, in the transaction of the write.
    Table,
    /// The floor in the row that is written: one statement.
    Row,
    /// A bug: the fence is checked in one transaction, and the write done in another.
    ChecksBefore,
}

pub(crate) struct Resource {
    db: Connection,
    how: How,
}

const RESOURCE: &str = "daily";

impl Resource {
    pub(crate) fn open(address: &str, how: How) -> Resource {
        let db = Connection::open(address).unwrap();
        db.busy_timeout(Duration::from_secs(30)).unwrap();
        db.pragma_update(None, "synchronous", "full").unwrap();
        db.execute_batch(sql::SQLITE_TABLES).unwrap();
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS report (name TEXT PRIMARY KEY, body TEXT, floor INTEGER NOT NULL DEFAULT 0);
             INSERT INTO report (name, body) VALUES ('daily', '') ON CONFLICT DO NOTHING;",
        )
        .unwrap();
        Resource { db, how }
    }

    fn floor(db: &Connection) -> u64 {
        let floor = "SELECT floor FROM palisade_floor WHERE key = ?1";
        let floor: Option<i64> = db.query_row(floor, [KEY], |row| row.get(0)).optional().unwrap();
        floor.unwrap_or(0).cast_unsigned()
    }

    /// One statement: the row carries the floor of the key that protects it.
    fn write_row(&mut self, fence: &Fence, text: &str) -> Answer {
        let update = "UPDATE report SET body = ?1, floor = max(floor, ?2) WHERE name = ?3 AND floor <= ?4";
        let (epoch, barrier) = sql::numbers(fence);
        if self.db.execute(update, params![text, barrier, RESOURCE, epoch]).unwrap() == 1 {
            return Answer::Written;
        }
        let floor = "SELECT floor FROM report WHERE name = ?1";
        let floor: i64 = self.db.query_row(floor, [RESOURCE], |row| row.get(0)).unwrap();
        Answer::Refused { floor: floor.cast_unsigned() }
    }
}

fn admit(tx: &Transaction<'_>, fence: &Fence) -> bool {
    let (epoch, barrier) = sql::numbers(fence);
    tx.execute(sql::SQLITE_ADMIT, params![fence.key().as_str(), barrier, epoch]).unwrap() == 1
}

fn set(db: &Connection, text: &str) {
    db.execute("UPDATE report SET body = ?1 WHERE name = ?2", [text, RESOURCE]).unwrap();
}

impl crate::Resource for Resource {
    fn write(&mut self, fence: &Fence, text: &str, between: &mut dyn FnMut()) -> Answer {
        if matches!(self.how, How::Row) {
            between();
            return self.write_row(fence, text);
        }
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        if !admit(&tx, fence) {
            return Answer::Refused { floor: Resource::floor(&tx) };
        }
        if matches!(self.how, How::ChecksBefore) {
            tx.commit().unwrap();
            between();
            set(&self.db, text);
            return Answer::Written;
        }
        between();
        set(&tx, text);
        tx.commit().unwrap();
        Answer::Written
    }

    fn once(&mut self, fence: &Fence, operation: &OperationId, text: &str) -> Answer {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        if !admit(&tx, fence) {
            return Answer::Refused { floor: Resource::floor(&tx) };
        }
        let (epoch, _) = sql::numbers(fence);
        if tx.execute(sql::SQLITE_BEGIN, params![RESOURCE, operation.as_str(), epoch]).unwrap() == 0 {
            let epoch = "SELECT epoch FROM palisade_operation WHERE resource = ?1 AND id = ?2";
            let at = [RESOURCE, operation.as_str()];
            let epoch: i64 = tx.query_row(epoch, at, |row| row.get(0)).unwrap();
            // The raised floor counts all the same.
            tx.commit().unwrap();
            return Answer::Before { epoch: epoch.cast_unsigned() };
        }
        set(&tx, text);
        tx.commit().unwrap();
        Answer::Written
    }

    fn read(&mut self) -> String {
        self.db.query_row("SELECT body FROM report WHERE name = ?1", [RESOURCE], |row| row.get(0)).unwrap()
    }
}

fn with_file(run: impl FnOnce(&str)) {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path().join("reports.db").to_str().unwrap());
}

#[test]
fn sqlite_refuses_a_zombie_by_a_table_of_floors() {
    with_file(|db| holds("sqlite", db));
}

#[test]
fn sqlite_refuses_a_zombie_by_a_floor_in_the_row() {
    with_file(|db| holds("sqlite-row", db));
}

#[test]
fn sqlite_with_the_fence_checked_before_instead_of_with_the_write_is_found() {
    with_file(|db| is_found("sqlite-checks-before", db));
}

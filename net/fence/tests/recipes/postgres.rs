//! The recipe for PostgreSQL: `net/fence/recipes/postgres.md`.

use palisade_fence::{Fence, OperationId, sql};
use postgres::{Client, NoTls, Transaction};

use crate::servers::Postgres;
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
    db: Client,
    how: How,
}

const RESOURCE: &str = "daily";

impl Resource {
    pub(crate) fn open(address: &str, how: How) -> Resource {
        let mut db = Client::connect(address, NoTls).unwrap();
        // Two writers that come first at once would both make the tables.
        db.batch_execute(&format!(
            "BEGIN; SELECT pg_advisory_xact_lock(1); {}
             CREATE TABLE IF NOT EXISTS report (name text PRIMARY KEY, body text, floor bigint NOT NULL DEFAULT 0);
             INSERT INTO report (name, body) VALUES ('daily', '') ON CONFLICT DO NOTHING; COMMIT",
            sql::POSTGRES_TABLES
        ))
        .unwrap();
        Resource { db, how }
    }

    /// One statement: the row carries the floor of the key that protects it.
    fn write_row(&mut self, fence: &Fence, text: &str) -> Answer {
        let update =
            "UPDATE report SET body = $1, floor = greatest(floor, $2) WHERE name = $3 AND floor <= $4";
        let (epoch, barrier) = sql::numbers(fence);
        if self.db.execute(update, &[&text, &barrier, &RESOURCE, &epoch]).unwrap() == 1 {
            return Answer::Written;
        }
        let row = self.db.query_one("SELECT floor FROM report WHERE name = $1", &[&RESOURCE]).unwrap();
        Answer::Refused { floor: row.get::<_, i64>(0).cast_unsigned() }
    }
}

fn admit(tx: &mut Transaction<'_>, fence: &Fence) -> bool {
    let (epoch, barrier) = sql::numbers(fence);
    tx.execute(sql::POSTGRES_ADMIT, &[&fence.key().as_str(), &barrier, &epoch]).unwrap() == 1
}

fn refused(tx: &mut Transaction<'_>) -> Answer {
    let row = tx.query_one("SELECT floor FROM palisade_floor WHERE key = $1", &[&KEY]).unwrap();
    Answer::Refused { floor: row.get::<_, i64>(0).cast_unsigned() }
}

const SET: &str = "UPDATE report SET body = $1 WHERE name = $2";

impl crate::Resource for Resource {
    fn write(&mut self, fence: &Fence, text: &str, between: &mut dyn FnMut()) -> Answer {
        if matches!(self.how, How::Row) {
            between();
            return self.write_row(fence, text);
        }
        let mut tx = self.db.transaction().unwrap();
        if !admit(&mut tx, fence) {
            return refused(&mut tx);
        }
        if matches!(self.how, How::ChecksBefore) {
            tx.commit().unwrap();
            between();
            self.db.execute(SET, &[&text, &RESOURCE]).unwrap();
            return Answer::Written;
        }
        between();
        tx.execute(SET, &[&text, &RESOURCE]).unwrap();
        tx.commit().unwrap();
        Answer::Written
    }

    fn once(&mut self, fence: &Fence, operation: &OperationId, text: &str) -> Answer {
        let mut tx = self.db.transaction().unwrap();
        if !admit(&mut tx, fence) {
            return refused(&mut tx);
        }
        let (epoch, _) = sql::numbers(fence);
        if tx.execute(sql::POSTGRES_BEGIN, &[&RESOURCE, &operation.as_str(), &epoch]).unwrap() == 0 {
            let epoch = "SELECT epoch FROM palisade_operation WHERE resource = $1 AND id = $2";
            let row = tx.query_one(epoch, &[&RESOURCE, &operation.as_str()]).unwrap();
            // The raised floor counts all the same.
            tx.commit().unwrap();
            return Answer::Before { epoch: row.get::<_, i64>(0).cast_unsigned() };
        }
        tx.execute(SET, &[&text, &RESOURCE]).unwrap();
        tx.commit().unwrap();
        Answer::Written
    }

    fn read(&mut self) -> String {
        self.db.query_one("SELECT body FROM report WHERE name = $1", &[&RESOURCE]).unwrap().get(0)
    }
}

#[test]
fn postgres_refuses_a_zombie_by_a_table_of_floors() {
    let Some(server) = Postgres::start() else { return };
    holds("postgres", &server.address());
}

#[test]
fn postgres_refuses_a_zombie_by_a_floor_in_the_row() {
    let Some(server) = Postgres::start() else { return };
    holds("postgres-row", &server.address());
}

#[test]
fn postgres_with_the_fence_checked_before_instead_of_with_the_write_is_found() {
    let Some(server) = Postgres::start() else { return };
    is_found("postgres-checks-before", &server.address());
}

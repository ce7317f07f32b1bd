//! The statements of the recipes for SQL databases, tested against the real ones (`net/fence/recipes`).
//!
//! [`POSTGRES_ADMIT`] and [`SQLITE_ADMIT`] belong into the transaction of the write: one row affected means admitted; none,
//! that the fence is superseded, and the transaction is rolled back. They take the key, the barrier and the epoch, in
//! this order. The row stays locked until the transaction ends, so no other write under this key comes between.
//! [`POSTGRES_BEGIN`] and [`SQLITE_BEGIN`] take the resource, the operation id and the epoch: no row affected means that the
//! operation was done before.

use palisade_types::Fence;

/// Epoch and barrier as SQL knows numbers: they are below 2^63.
pub fn numbers(fence: &Fence) -> (i64, i64) {
    (fence.epoch().0.cast_signed(), fence.barrier().0.cast_signed())
}

/// The two tables.
pub const POSTGRES_TABLES: &str = "
CREATE TABLE IF NOT EXISTS palisade_floor (key text PRIMARY KEY, floor bigint NOT NULL);
CREATE TABLE IF NOT EXISTS palisade_operation (
    resource text, id text, epoch bigint NOT NULL, done_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (resource, id));";

/// The rule of the fence.
pub const POSTGRES_ADMIT: &str = "
INSERT INTO palisade_floor AS f (key, floor) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET floor = greatest(f.floor, excluded.floor) WHERE f.floor <= $3";

/// Puts an operation on record, once.
pub const POSTGRES_BEGIN: &str = "
INSERT INTO palisade_operation (resource, id, epoch) VALUES ($1, $2, $3)
ON CONFLICT (resource, id) DO NOTHING";

/// The two tables.
pub const SQLITE_TABLES: &str = "
CREATE TABLE IF NOT EXISTS palisade_floor (key TEXT PRIMARY KEY, floor INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS palisade_operation (
    resource TEXT, id TEXT, epoch INTEGER NOT NULL, done_at TEXT NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (resource, id)) STRICT;";

/// The rule of the fence.
pub const SQLITE_ADMIT: &str = "
INSERT INTO palisade_floor (key, floor) VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET floor = max(floor, excluded.floor) WHERE floor <= ?3";

/// Puts an operation on record, once.
pub const SQLITE_BEGIN: &str = "
INSERT INTO palisade_operation (resource, id, epoch) VALUES (?1, ?2, ?3)
ON CONFLICT (resource, id) DO NOTHING";

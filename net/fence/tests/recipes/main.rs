//! The recipes of `net/fence/recipes` against the real thing. In each a writer, a process of its own, is stopped by
//! SIGSTOP, superseded, continued, and refused; and each must be found wanting when it checks the fence before
//! instead of with the write.
//!
//! A database or object store that is not installed is SKIPPED, by name.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod file;
mod message;
mod object;
mod postgres;
mod servers;
mod sqlite;
mod zombie;

use palisade_fence::{Epoch, Fence, Key, OperationId};

/// The key that protects the resource of a recipe.
const KEY: &str = "reports/daily";

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Written,
    Refused { floor: u64 },
    Before { epoch: u64 },
}

/// One text that is protected by a fence, as a writer's process sees it.
trait Resource {
    /// Replaces the text. `between` runs at the moment at which a stop is worst: after the fence was checked, if there is such a
    /// moment in the writer's process.
    fn write(&mut self, fence: &Fence, text: &str, between: &mut dyn FnMut()) -> Answer;

    /// Replaces the text, if this operation was not done before.
    fn once(&mut self, fence: &Fence, operation: &OperationId, text: &str) -> Answer;

    /// The text.
    fn read(&mut self) -> String;
}

/// The resource of this kind at this address: of what a writer's process is told.
fn open(kind: &str, address: &str) -> Box<dyn Resource> {
    match kind {
        "file" => Box::new(file::Resource::open(address)),
        "sqlite" => Box::new(sqlite::Resource::open(address, sqlite::How::Table)),
        "sqlite-row" => Box::new(sqlite::Resource::open(address, sqlite::How::Row)),
        "sqlite-checks-before" => Box::new(sqlite::Resource::open(address, sqlite::How::ChecksBefore)),
        "postgres" => Box::new(postgres::Resource::open(address, postgres::How::Table)),
        "postgres-row" => Box::new(postgres::Resource::open(address, postgres::How::Row)),
        "postgres-checks-before" => Box::new(postgres::Resource::open(address, postgres::How::ChecksBefore)),
        "object" => Box::new(object::Resource::open(address, object::How::Conditional)),
        "object-checks-before" => Box::new(object::Resource::open(address, object::How::ChecksBefore)),
        other => panic!("no recipe {other}"),
    }
}

fn fence(epoch: u64) -> Fence {
    Fence::new(Key::new(KEY).unwrap(), Epoch(epoch), Epoch(epoch)).unwrap()
}

/// All that holds for a recipe.
fn holds(kind: &str, address: &str) {
    let mut resource = open(kind, address);
    zombie::stopped_before_its_write(kind, address, &mut *resource);
    assert_eq!(zombie::stopped_in_its_write(kind, address, &mut *resource), Ok(()), "{kind}");
    zombie::retried_by_a_successor(kind, address, &mut *resource);
}

/// A recipe with the classic bug: the test must see it.
fn is_found(kind: &str, address: &str) {
    let mut resource = open(kind, address);
    assert!(zombie::stopped_in_its_write(kind, address, &mut *resource).is_err(), "{kind} was not found");
}

//! Reads that wait for their answers, of the same three strengths.

use palisade_types::{
    Description, LockRow, LogIndex, OperatorRow, ResourceRow, SessionId, SessionRow, ValueRow,
};
use tokio::runtime::Handle;

use super::Client;
use crate::error::CallError;
use crate::{Answer, Leader, Page};

/// The reads that the client and every reader have.
macro_rules! reads {
    ($name:ident) => {
        impl $name {
            /// See [`crate::Client::describe`].
            ///
            /// # Errors
            /// As there.
            pub fn describe(&self, key: &str) -> Result<Answer<Description>, CallError> {
                self.thread.block_on(self.inner.describe(key))
            }

            /// See [`crate::Client::locks`].
            ///
            /// # Errors
            /// As there.
            pub fn locks(&self, after: Option<&str>, rows: u32) -> Result<Page<LockRow>, CallError> {
                self.thread.block_on(self.inner.locks(after, rows))
            }

            /// See [`crate::Client::sessions`].
            ///
            /// # Errors
            /// As there.
            pub fn sessions(
                &self,
                after: Option<SessionId>,
                rows: u32,
            ) -> Result<Page<SessionRow>, CallError> {
                self.thread.block_on(self.inner.sessions(after, rows))
            }

            /// See [`crate::Client::resources`].
            ///
            /// # Errors
            /// As there.
            pub fn resources(
                &self,
                conflicts: bool,
                after: Option<&str>,
                rows: u32,
            ) -> Result<Page<ResourceRow>, CallError> {
                self.thread.block_on(self.inner.resources(conflicts, after, rows))
            }

            /// See [`crate::Client::operator_acts`].
            ///
            /// # Errors
            /// As there.
            pub fn operator_acts(&self, after: LogIndex, rows: u32) -> Result<Page<OperatorRow>, CallError> {
                self.thread.block_on(self.inner.operator_acts(after, rows))
            }

            /// See [`crate::Client::get`].
            ///
            /// # Errors
            /// As there.
            pub fn get(&self, key: &str) -> Result<Answer<Option<ValueRow>>, CallError> {
                self.thread.block_on(self.inner.get(key))
            }

            /// See [`crate::Client::values`].
            ///
            /// # Errors
            /// As there.
            pub fn values(
                &self,
                prefix: &str,
                after: Option<&str>,
                rows: u32,
            ) -> Result<Page<ValueRow>, CallError> {
                self.thread.block_on(self.inner.values(prefix, after, rows))
            }

            /// See [`crate::Client::leader`].
            ///
            /// # Errors
            /// As there.
            pub fn leader(&self, election: &str) -> Result<Answer<Option<Leader>>, CallError> {
                self.thread.block_on(self.inner.leader(election))
            }
        }
    };
}

macro_rules! reader {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            inner: crate::$name,
            thread: Handle,
        }

        reads!($name);
    };
}

reads!(Client);

reader! {
    /// Linearizable reads: made by [`Client::read`] and [`Client::read_anywhere`]. See [`crate::Reader`].
    Reader
}

reader! {
    /// Reads that the leader may answer by its lease: made by [`Client::read_by_lease`]. See
    /// [`crate::LeaseReader`].
    LeaseReader
}

reader! {
    /// Reads of the past: made by [`Client::read_stale`]. See [`crate::StaleReader`].
    StaleReader
}

impl Client {
    /// Linearizable reads from the leader, as [`Client::describe`] and its like: see [`crate::Client::read`].
    pub fn read(&self) -> Reader {
        Reader { inner: self.inner.read(), thread: self.thread.clone() }
    }

    /// Linearizable reads from whichever node answers: see [`crate::Client::read_anywhere`].
    pub fn read_anywhere(&self) -> Reader {
        Reader { inner: self.inner.read_anywhere(), thread: self.thread.clone() }
    }

    /// Reads that the leader may answer by its lease: see [`crate::Client::read_by_lease`].
    pub fn read_by_lease(&self) -> LeaseReader {
        LeaseReader { inner: self.inner.read_by_lease(), thread: self.thread.clone() }
    }

    /// Reads of what whichever node answers has applied: see [`crate::Client::read_stale`].
    ///
    /// ```no_run
    /// # fn example(client: palisade_client::blocking::Client) -> Result<(), palisade_client::CallError> {
    /// let answer = client.read_stale().describe("invoices/run")?;
    /// println!("at revision {}: {:?}", answer.read.revision, answer.value.holders);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_stale(&self) -> StaleReader {
        StaleReader { inner: self.inner.read_stale(), thread: self.thread.clone() }
    }
}

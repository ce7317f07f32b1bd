//! Reads: three types for what a reader is ready to trust, one for each kind of answer, so that nobody
//! reads the past by a flag left on.

use palisade_client_core::{CallRequest, Query, ReadFrom};
use palisade_types::{
    Description, LockRow, LogIndex, OperatorRow, Reply, ResourceRow, SessionId, SessionRow, ValueRow,
};

use crate::client::{Answer, Client, Page, unexpected};
use crate::election::{Leader, leader_of};
use crate::error::{CallError, name};

/// What is asked, before it is said of whom and how new it must be.
type Ask = fn(Query) -> CallRequest;

macro_rules! reader {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            client: Client,
            ask: Ask,
        }

        impl $name {
            /// See [`Client::describe`].
            ///
            /// # Errors
            /// As there.
            pub async fn describe(&self, key: &str) -> Result<Answer<Description>, CallError> {
                let query = Query::Describe { key: name("key", key)? };
                match self.client.call((self.ask)(query)).await? {
                    Reply::Described { read, description } => Ok(Answer { value: *description, read }),
                    other => Err(unexpected(&other)),
                }
            }

            /// See [`Client::locks`].
            ///
            /// # Errors
            /// As [`Client::describe`].
            pub async fn locks(&self, after: Option<&str>, rows: u32) -> Result<Page<LockRow>, CallError> {
                let after = after.map(|key| name("key", key)).transpose()?;
                match self.client.call((self.ask)(Query::ListLocks { after, rows })).await? {
                    Reply::Locks { read, rows, more } => Ok(Page { rows, more, read }),
                    other => Err(unexpected(&other)),
                }
            }

            /// See [`Client::sessions`].
            ///
            /// # Errors
            /// As [`Client::describe`].
            pub async fn sessions(
                &self,
                after: Option<SessionId>,
                rows: u32,
            ) -> Result<Page<SessionRow>, CallError> {
                match self.client.call((self.ask)(Query::ListSessions { after, rows })).await? {
                    Reply::Sessions { read, rows, more } => Ok(Page { rows, more, read }),
                    other => Err(unexpected(&other)),
                }
            }

            /// See [`Client::operator_acts`].
            ///
            /// # Errors
            /// As [`Client::describe`].
            pub async fn operator_acts(
                &self,
                after: LogIndex,
                rows: u32,
            ) -> Result<Page<OperatorRow>, CallError> {
                match self.client.call((self.ask)(Query::ListOperatorActs { after, rows })).await? {
                    Reply::OperatorActs { read, rows, more } => Ok(Page { rows, more, read }),
                    other => Err(unexpected(&other)),
                }
            }

            /// See [`Client::resources`].
            ///
            /// # Errors
            /// As [`Client::describe`].
            pub async fn resources(
                &self,
                conflicts: bool,
                after: Option<&str>,
                rows: u32,
            ) -> Result<Page<ResourceRow>, CallError> {
                let after = after.map(|resource| name("resource", resource)).transpose()?;
                match self.client.call((self.ask)(Query::ListResources { conflicts, after, rows })).await? {
                    Reply::Resources { read, rows, more } => Ok(Page { rows, more, read }),
                    other => Err(unexpected(&other)),
                }
            }

            /// See [`Client::get`].
            ///
            /// # Errors
            /// As [`Client::describe`].
            pub async fn get(&self, key: &str) -> Result<Answer<Option<ValueRow>>, CallError> {
                match self.client.call((self.ask)(Query::Get { key: name("key", key)? })).await? {
                    Reply::Value { read, row } => Ok(Answer { value: row.map(|row| *row), read }),
                    other => Err(unexpected(&other)),
                }
            }

            /// See [`Client::values`].
            ///
            /// # Errors
            /// As [`Client::describe`].
            pub async fn values(
                &self,
                prefix: &str,
                after: Option<&str>,
                rows: u32,
            ) -> Result<Page<ValueRow>, CallError> {
                let prefix = Some(prefix).filter(|text| !text.is_empty());
                let prefix = prefix.map(|text| name("prefix", text)).transpose()?;
                let after = after.map(|key| name("key", key)).transpose()?;
                match self.client.call((self.ask)(Query::ListValues { prefix, after, rows })).await? {
                    Reply::Values { read, rows, more } => Ok(Page { rows, more, read }),
                    other => Err(unexpected(&other)),
                }
            }

            /// See [`Client::leader`].
            ///
            /// # Errors
            /// As there.
            pub async fn leader(&self, election: &str) -> Result<Answer<Option<Leader>>, CallError> {
                let Answer { read, value } = self.describe(election).await?;
                Ok(Answer { read, value: leader_of(value)? })
            }
        }
    };
}

reader! {
    /// Reads that hold everything acknowledged to anybody before they were asked. Made by
    /// [`Client::read`] and [`Client::read_anywhere`].
    ///
    /// ```no_run
    /// # async fn example(client: palisade_client::Client) -> Result<(), palisade_client::CallError> {
    /// let reader = client.read_anywhere();
    /// if let Some(leader) = reader.leader("scheduler").await?.value {
    ///     println!("{} leads under {}", String::from_utf8_lossy(&leader.value), leader.fence);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    Reader
}

reader! {
    /// Reads that the leader may answer by its lease: made by [`Client::read_by_lease`]. Each answer
    /// says whether it did ([`crate::Consistency::Lease`]) or confirmed its leadership first.
    ///
    /// ```no_run
    /// # async fn example(client: palisade_client::Client) -> Result<(), palisade_client::CallError> {
    /// let answer = client.read_by_lease().get("services/web/3").await?;
    /// println!("{:?}, {}", answer.value, answer.read.consistency);
    /// # Ok(())
    /// # }
    /// ```
    LeaseReader
}

reader! {
    /// Reads of the past: made by [`Client::read_stale`]. Each answer says which revision it shows and
    /// nothing of what has happened since.
    StaleReader
}

impl Client {
    /// Linearizable reads from the leader: what [`Client::describe`] and its like do.
    pub fn read(&self) -> Reader {
        let ask = |query| CallRequest::Read { query, from: ReadFrom::Leader };
        Reader { client: self.clone(), ask }
    }

    /// Linearizable reads from whichever node this client is connected to. A follower asks the leader
    /// how new its answer must be and looks it up itself: work taken off the leader, for a little more
    /// time. A client with a session is connected to the leader, and so are its reads.
    pub fn read_anywhere(&self) -> Reader {
        let ask = |query| CallRequest::Read { query, from: ReadFrom::Any };
        Reader { client: self.clone(), ask }
    }

    /// Reads that the leader answers at once while its lease lasts, if its configuration allows that
    /// (`lease_reads`); otherwise they are linearizable, at the price of a round among the nodes. They
    /// are as good as the clocks: a pause that a hypervisor hides from the leader's clock can make one
    /// show the past.
    pub fn read_by_lease(&self) -> LeaseReader {
        LeaseReader { client: self.clone(), ask: |query| CallRequest::ReadByLease { query } }
    }

    /// Reads of what whichever node answers has applied. They need neither a leader nor a quorum, and
    /// promise nothing but that what they show was true once. A node that has just started and found no
    /// leader knows nothing yet: it answers with revision 0. To ask a certain node, give a client that
    /// endpoint alone.
    ///
    /// ```no_run
    /// # async fn example(client: palisade_client::Client) -> Result<(), palisade_client::CallError> {
    /// let answer = client.read_stale().describe("invoices/run").await?;
    /// println!("at revision {}: {:?}", answer.read.revision, answer.value.holders);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_stale(&self) -> StaleReader {
        StaleReader { client: self.clone(), ask: |query| CallRequest::ReadStale { query } }
    }
}

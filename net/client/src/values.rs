//! Ephemeral keys: values that are there as long as the session that put them. For announcing oneself:
//! addresses of instances, presence of members, configuration of a running process.

use palisade_client_core::WriteSpec;
use palisade_types::limits::{PAGE_ROWS_MAX, VALUE_BYTES_MAX};
use palisade_types::{Refusal, Value, ValueRow};
use tokio::sync::oneshot;

use crate::client::{Answer, Client, Page, Shared};
use crate::command::{Command, Tag};
use crate::error::{CallError, name};
use crate::session::Session;

impl Session {
    /// Gives an ephemeral key a value of at most 16 KiB, or another one. The key is there from then on
    /// until it is deleted or this session ends, however it ends. Keys have nothing to do with locks of
    /// the same name. Of puts of one key, make the next when the one before is answered.
    ///
    /// A put that fails as unavailable, or whose future is dropped, may have taken effect or not, and does
    /// not take effect any more once a later one has.
    ///
    /// ```no_run
    /// # async fn example(client: palisade_client::Client) -> Result<(), palisade_client::CallError> {
    /// let session = client.session().owner("web-3").open().await?;
    /// session.put("services/web/3", "10.0.0.7:8080").await?;
    /// for instance in client.list("services/web/").await? {
    ///     println!("{} at {}", instance.key, String::from_utf8_lossy(&instance.value));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CallError::Refused`] with `OwnedByOther` when another session has the key, `SessionFull` when
    /// this one has as many keys as it may, `QuotaExceeded`, or `BadRequest` when the value is too long;
    /// [`CallError::SessionLost`], [`CallError::Unavailable`], [`CallError::Name`].
    pub async fn put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), CallError> {
        let (key, value) = (name("key", key)?, self::value(value.as_ref()).map_err(CallError::Refused)?);
        self.write(WriteSpec::Put { key, value }).await
    }

    /// Removes an ephemeral key of this session; one that is not there is as good as removed.
    ///
    /// # Errors
    /// [`CallError::Refused`] with `OwnedByOther`; otherwise as [`Session::put`].
    pub async fn delete(&self, key: &str) -> Result<(), CallError> {
        self.write(WriteSpec::Delete { key: name("key", key)? }).await
    }

    async fn write(&self, spec: WriteSpec) -> Result<(), CallError> {
        let shared = &self.handle.shared;
        let (reply, answer) = oneshot::channel();
        let tag = shared.next_tag();
        shared.send(Command::Write { session: self.handle.tag, tag, spec, reply })?;
        let _asked = Asked { shared, tag };
        match (shared.answer(answer).await, self.handle.lost_now()) {
            // The driver keeps no memory of sessions that are over; their handles do.
            (Err(CallError::SessionLost(_)), Some(reason)) => Err(CallError::SessionLost(reason)),
            (result, _) => result,
        }
    }
}

/// The value that a caller gives.
pub(crate) fn value(bytes: &[u8]) -> Result<Value, Refusal> {
    if bytes.len() <= VALUE_BYTES_MAX {
        return Ok(bytes.into());
    }
    let reason = format!("a value has at most {VALUE_BYTES_MAX} bytes, this one has {}", bytes.len());
    Err(Refusal::BadRequest { reason })
}

/// A put, delete or proclamation that somebody waits for.
pub(crate) struct Asked<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) tag: Tag,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let _ = self.shared.send(Command::DropWrite { tag: self.tag });
    }
}

impl Client {
    /// An ephemeral key and its value, if there is such a key. Linearizable. A key whose session has ended
    /// may be there for a moment still: it then says `ending`.
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn get(&self, key: &str) -> Result<Answer<Option<ValueRow>>, CallError> {
        self.read().get(key).await
    }

    /// A page of the ephemeral keys that begin with `prefix` (empty: all), in order, behind `after`. A page
    /// also ends where its values grow large. Otherwise as [`Client::locks`].
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        rows: u32,
    ) -> Result<Page<ValueRow>, CallError> {
        self.read().values(prefix, after, rows).await
    }

    /// All ephemeral keys that begin with `prefix`, in order, page by page: where one page does not do,
    /// what changes meanwhile may be seen or not.
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<ValueRow>, CallError> {
        let mut all: Vec<ValueRow> = Vec::new();
        loop {
            let after = all.last().map(|row| row.key.clone());
            let page = self.values(prefix, after.as_deref(), PAGE_ROWS_MAX).await?;
            let is_last = !page.more || page.rows.is_empty();
            all.extend(page.rows);
            if is_last {
                return Ok(all);
            }
        }
    }
}

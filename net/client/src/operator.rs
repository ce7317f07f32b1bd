//! What an operator, or an orchestrator, does to sessions and locks of others.

use palisade_client_core::CallRequest;
use palisade_types::{Epoch, LogIndex, Name, OperatorAct, Refusal, Reply, SessionId, SessionRow};
use tokio::task::JoinSet;

use crate::client::{Client, unexpected};
use crate::error::{CallError, name};

/// Rows of a page of the sessions that a report looks through.
const PAGE_ROWS: u32 = 1_000;
/// Reports under way at once.
const REPORTS_AT_ONCE: usize = 64;

/// Acts on other people's sessions and locks; made by [`Client::operator`]. Everything done is kept on
/// record with who did it and why ([`Client::operator_acts`]). All but [`Operator::retire`] name a session,
/// or a grant by its epoch, and so never meet a successor when they are repeated.
///
/// ```no_run
/// # async fn example(client: palisade_client::Client) -> Result<(), palisade_client::CallError> {
/// let operator = client.operator("node-controller")?;
/// let report = operator.report_owner_dead("worker-3", Some("pod-7f"), None, "the pod is gone").await?;
/// println!("{} sessions ended", report.ended.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Operator {
    client: Client,
    by: Name,
}

/// What became of a report about an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReport {
    /// Only sessions opened up to this revision were meant. Give it again when repeating the report.
    pub as_of: LogIndex,
    /// The sessions that the report ended. Those that ended otherwise meanwhile are not among them.
    pub ended: Vec<SessionId>,
}

impl Client {
    /// An operator's hands; `by` says whose, and is kept on record.
    ///
    /// # Errors
    /// [`CallError::Name`] when `by` is no name.
    pub fn operator(&self, by: &str) -> Result<Operator, CallError> {
        Ok(Operator { client: self.clone(), by: name("by", by)? })
    }
}

impl Operator {
    /// Reports that the owner of a session is dead, as somebody who knows for certain: the session
    /// ends at once, instead of after its TTL. A wrong report is a premature end, which fences make
    /// harmless and nothing else does. Returns the revision of the action on record.
    ///
    /// # Errors
    /// [`CallError::Refused`] with `SessionEnded` when it ended otherwise; as [`Client::describe`].
    pub async fn report_dead(&self, session: SessionId, evidence: &str) -> Result<LogIndex, CallError> {
        self.act(OperatorAct::ReportDead { session }, evidence).await
    }

    /// Reports an owner dead: every session with this owner tag, and this incarnation where one is
    /// given, that was opened up to `as_of`. Without one, the revision of the first look is taken, so
    /// that a successor that opens its session meanwhile is spared. An error does not tell that revision:
    /// whoever may have to repeat the report gives one the first time.
    ///
    /// # Errors
    /// As [`Client::describe`]. Some of the sessions may have been ended.
    pub async fn report_owner_dead(
        &self,
        owner: &str,
        incarnation: Option<&str>,
        as_of: Option<LogIndex>,
        evidence: &str,
    ) -> Result<OwnerReport, CallError> {
        name("owner", owner)?;
        incarnation.map(|text| name("incarnation", text)).transpose()?;
        name("evidence", evidence)?;
        let is_meant = |row: &SessionRow| {
            row.owner.as_deref() == Some(owner)
                && incarnation.is_none_or(|text| row.incarnation.as_deref() == Some(text))
        };
        let (mut as_of, mut after, mut meant) = (as_of, None, Vec::new());
        loop {
            let page = self.client.sessions(after, PAGE_ROWS).await?;
            let limit = *as_of.get_or_insert(page.read.revision);
            let rows = page.rows.iter().filter(|row| row.session.opened <= limit && is_meant(row));
            meant.extend(rows.map(|row| row.session));
            after = page.rows.last().map(|row| row.session);
            // Sessions stand in the order of their opening: behind the limit nobody is meant.
            let beyond = after.is_none_or(|last| last.opened > limit);
            if beyond || !page.more {
                return Ok(OwnerReport { as_of: limit, ended: self.report_all(meant, evidence).await? });
            }
        }
    }

    async fn report_all(
        &self,
        sessions: Vec<SessionId>,
        evidence: &str,
    ) -> Result<Vec<SessionId>, CallError> {
        let (mut reports, mut ended, mut failed) = (JoinSet::new(), Vec::new(), None);
        let mut left = sessions.into_iter();
        loop {
            for session in left.by_ref().take(REPORTS_AT_ONCE.saturating_sub(reports.len())) {
                let (operator, evidence) = (self.clone(), evidence.to_owned());
                reports.spawn(async move { (session, operator.report_dead(session, &evidence).await) });
            }
            let Some(done) = reports.join_next().await else { break };
            let Ok((session, result)) = done else {
                failed.get_or_insert(CallError::Stopped);
                continue;
            };
            match result {
                Ok(_) => ended.push(session),
                Err(CallError::Refused(Refusal::SessionEnded { .. })) => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        ended.sort_unstable();
        failed.map_or(Ok(ended), Err)
    }

    /// Ends a session whose owner may well be alive: it learns so, and loses all it holds. Returns the
    /// revision of the action on record.
    ///
    /// # Errors
    /// As [`Operator::report_dead`].
    pub async fn evict(&self, session: SessionId, reason: &str) -> Result<LogIndex, CallError> {
        self.act(OperatorAct::Evict { session }, reason).await
    }

    /// Takes a key from the grant with this epoch, and from no other; the session lives on. Safe
    /// *because of fencing*: what the lock protects refuses the old holder once the next one has acted.
    /// An advisory lock's work may then run twice. Returns the revision of the action on record.
    ///
    /// # Errors
    /// [`CallError::Refused`] with `NotHeld` when that grant does not hold the key; as [`Client::describe`].
    pub async fn force_release(&self, key: &str, epoch: Epoch, reason: &str) -> Result<LogIndex, CallError> {
        self.act(OperatorAct::ForceRelease { key: name("key", key)?, epoch }, reason).await
    }

    /// Forgets the record of a key that nobody holds or awaits, and with it the key's class; its next
    /// grant has a higher epoch all the same. Repeated late, it forgets the record of whoever came since, if
    /// that is idle, too. Returns the revision of the action on record.
    ///
    /// # Errors
    /// [`CallError::Refused`] with `InUse`; as [`Client::describe`].
    pub async fn retire(&self, key: &str, reason: &str) -> Result<LogIndex, CallError> {
        self.act(OperatorAct::Retire { key: name("key", key)? }, reason).await
    }

    async fn act(&self, act: OperatorAct, reason: &str) -> Result<LogIndex, CallError> {
        let request = CallRequest::Operate { by: self.by.clone(), reason: name("reason", reason)?, act };
        match self.client.call(request).await? {
            Reply::OperatorDone { action } => Ok(action),
            other => Err(unexpected(&other)),
        }
    }
}

//! What an operator, or an orchestrator, does to sessions and locks of others.

use palisade_client_core::CallRequest;
use palisade_types::{
    Epoch, LogIndex, Name, NodeId, OperatorAct, Refusal, Reply, SessionId, SessionRow, Term,
};
use tokio::task::JoinSet;

use crate::client::{Client, unexpected};
use crate::error::{CallError, ReportError, name};

/// Rows of a page of the sessions that a report looks through.
const PAGE_ROWS: u32 = 1_000;
/// How many terms an order to hand over goes after.
const TERMS_TRIED: u32 = 3;
/// Reports under way at once.
const REPORTS_AT_ONCE: usize = 64;

/// Acts on other people's sessions and locks; made by [`Client::operator`]. Everything done is kept on
/// record with who did it and why ([`Client::operator_acts`]). Each names a session, or a grant by its
/// epoch, and so never meets a successor when it is repeated.
///
/// ```no_run
/// # async fn example(client: palisade_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let operator = client.operator("node-controller")?;
/// let as_of = operator.as_of().await?;
/// // Keep `as_of` where a crash does not reach it, and the report can be repeated until it succeeds.
/// let report = operator.report_owner_dead("worker-3", Some("pod-7f"), as_of, "the pod is gone").await?;
/// println!("{} sessions ended", report.ended.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Operator {
    client: Client,
    by: Name,
}

/// What became of an order to hand leadership over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// Who leads now; none, should that have changed again and be open.
    pub leader: Option<NodeId>,
    /// In this term.
    pub term: Term,
    /// The revision of the order on record; none where nothing was to be done.
    pub action: Option<LogIndex>,
}

/// What became of a report about an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReport {
    /// Only sessions opened up to this revision were meant.
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
    /// [`CallError::Refused`] with `SessionEnded` when it ended otherwise, with `QuotaExceeded` when the
    /// log is full and no such session lives; as [`Client::describe`].
    pub async fn report_dead(&self, session: SessionId, evidence: &str) -> Result<LogIndex, CallError> {
        self.act(OperatorAct::ReportDead { session }, evidence).await
    }

    /// Fixes which sessions of an owner a report is about: those opened up to now. To be taken when the
    /// owner's death is known and before the first try of [`Operator::report_owner_dead`]; every repeat
    /// gives the same again, so that none meets a successor.
    ///
    /// # Errors
    /// As [`Client::describe`].
    pub async fn as_of(&self) -> Result<LogIndex, CallError> {
        Ok(self.client.sessions(None, 1).await?.read.revision)
    }

    /// Reports an owner dead: every session with this owner tag, and this incarnation where one is
    /// given, that was opened up to `as_of`, which [`Operator::as_of`] fixes.
    ///
    /// # Errors
    /// [`ReportError`]: what went wrong, and which sessions were ended before; with
    /// [`CallError::Beyond`] when `as_of` is beyond the end of the log, and none were. Repeating the
    /// report with its `as_of` is harmless.
    pub async fn report_owner_dead(
        &self,
        owner: &str,
        incarnation: Option<&str>,
        as_of: LogIndex,
        evidence: &str,
    ) -> Result<OwnerReport, ReportError> {
        let (mut ended, meant) = (Vec::new(), self.sessions_of(owner, incarnation, as_of, evidence).await);
        let done = match meant {
            Ok(meant) => self.report_all(meant, evidence, &mut ended).await,
            Err(error) => Err(error),
        };
        ended.sort_unstable();
        match done {
            Ok(()) => Ok(OwnerReport { as_of, ended }),
            Err(error) => Err(ReportError { as_of, ended, error }),
        }
    }

    /// The sessions that a report is about.
    async fn sessions_of(
        &self,
        owner: &str,
        incarnation: Option<&str>,
        as_of: LogIndex,
        evidence: &str,
    ) -> Result<Vec<SessionId>, CallError> {
        name("owner", owner)?;
        incarnation.map(|text| name("incarnation", text)).transpose()?;
        name("evidence", evidence)?;
        let is_meant = |row: &&SessionRow| {
            row.session.opened <= as_of
                && row.owner.as_deref() == Some(owner)
                && incarnation.is_none_or(|text| row.incarnation.as_deref() == Some(text))
        };
        let (mut after, mut meant) = (None, Vec::new());
        loop {
            let page = self.client.sessions(after, PAGE_ROWS).await?;
            if as_of > page.read.revision {
                return Err(CallError::Beyond { asked: as_of, end: page.read.revision });
            }
            meant.extend(page.rows.iter().filter(is_meant).map(|row| row.session));
            after = page.rows.last().map(|row| row.session);
            // Sessions stand in the order of their opening: behind the limit nobody is meant.
            if !page.more || after.is_none_or(|last| last.opened > as_of) {
                return Ok(meant);
            }
        }
    }

    /// Reports these sessions dead and notes those it has ended. After a failure no further one is begun.
    async fn report_all(
        &self,
        sessions: Vec<SessionId>,
        evidence: &str,
        ended: &mut Vec<SessionId>,
    ) -> Result<(), CallError> {
        let (mut reports, mut failed) = (JoinSet::new(), None);
        let mut left = sessions.into_iter();
        loop {
            let room = if failed.is_none() { REPORTS_AT_ONCE.saturating_sub(reports.len()) } else { 0 };
            for session in left.by_ref().take(room) {
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
        failed.map_or(Ok(()), Err)
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

    /// Forgets the record of a key that nobody holds or awaits, and with it the key's class, if its last
    /// grant has this epoch, which [`Client::describe`] shows; its next grant has a higher one all the
    /// same. Returns the revision of the action on record.
    ///
    /// # Errors
    /// [`CallError::Refused`] with `InUse`, or with `NotAtEpoch` when there is no record or a later one,
    /// and it was not this action that forgot it; as [`Client::describe`].
    pub async fn retire(&self, key: &str, epoch: Epoch, reason: &str) -> Result<LogIndex, CallError> {
        self.act(OperatorAct::Retire { key: name("key", key)?, epoch }, reason).await
    }

    /// Hands leadership over: to a node, or to whichever is able. Returns once somebody else leads, or at
    /// once if that node leads already. Nothing that was acknowledged is lost, and clients go on at the new
    /// leader. Bound to the term that is found at first, so that a repeat moves nothing a second time.
    ///
    /// # Errors
    /// [`CallError::Refused`] with `NotAVoter`, with `NotHandedOver` when nobody took it within one
    /// election timeout, with `OtherTerm` when leadership went elsewhere; as [`Client::describe`].
    pub async fn transfer(&self, to: Option<NodeId>, reason: &str) -> Result<HandedOver, CallError> {
        let mut seen = self.client.status().await?;
        let mut tries = 1;
        loop {
            let act = OperatorAct::Transfer { term: seen.term, to };
            match self.act(act, reason).await {
                Ok(action) => {
                    let now = self.client.status().await?;
                    return Ok(HandedOver { leader: now.leader, term: now.term, action: Some(action) });
                }
                Err(CallError::Refused(Refusal::OtherTerm { leader, term, .. })) => {
                    // It is where it was to go, or gone from where it was.
                    let arrived = to.map_or(seen.leader.is_some_and(|old| old != leader), |to| to == leader);
                    if arrived {
                        return Ok(HandedOver { leader: Some(leader), term, action: None });
                    }
                    if tries == TERMS_TRIED {
                        return Err(CallError::Refused(Refusal::OtherTerm {
                            asked: seen.term,
                            term,
                            leader,
                        }));
                    }
                    // The node that was asked for its term is behind.
                    (seen.term, seen.leader) = (term, Some(leader));
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn act(&self, act: OperatorAct, reason: &str) -> Result<LogIndex, CallError> {
        let request = CallRequest::Operate { by: self.by.clone(), reason: name("reason", reason)?, act };
        match self.client.call(request).await? {
            Reply::OperatorDone { action } => Ok(action),
            other => Err(unexpected(&other)),
        }
    }
}

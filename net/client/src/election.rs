//! Elections: an exclusive claim with a value. Whoever leads shows its value to observers, with the fence
//! of its leadership, by which they can tell a stale announcement from the present one.

use std::ops::Deref;
use std::time::Duration;

pub use palisade_client_core::Leader;
use palisade_types::{Class, Description, Fence, Refusal};
use palisade_wire::Wait;
use tokio::sync::oneshot;

use crate::client::{Answer, Client};
use crate::command::Command;
use crate::error::{AcquireError, CallError, LostReason};
use crate::lock::{Guard, Queued, Request, waiting_methods};
use crate::session::Session;
use crate::values::{Asked, value};

/// A campaign, not yet begun. Made by [`Session::campaign`].
///
/// ```no_run
/// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn work() {}
/// let leadership = session.campaign("scheduler", "10.0.0.7:9000").lead().await?;
/// leadership.proclaim("10.0.0.7:9000 ready").await?;
/// tokio::select! {
///     reason = leadership.lost() => eprintln!("no longer the leader: {reason}"),
///     () = work() => leadership.resign().await?,
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is asked before `lead` is awaited"]
pub struct CampaignRequest(Request);

impl Session {
    /// A campaign to lead an election, with a value of at most 16 KiB for observers. Elections share their
    /// names with locks: a key is one or the other while it is in use.
    pub fn campaign(&self, election: impl Into<String>, value: impl Into<Vec<u8>>) -> CampaignRequest {
        CampaignRequest(Request::campaign(self.handle.clone(), election.into(), value.into()))
    }
}

waiting_methods!(CampaignRequest, "the candidate");

impl CampaignRequest {
    /// Campaigns until it leads. Dropping the future withdraws the candidacy, and resigns a leadership
    /// that came meanwhile.
    ///
    /// # Errors
    /// As an acquire; [`CallError::Refused`] when the value is too long.
    pub async fn lead(self) -> Result<Leadership, AcquireError> {
        Ok(Leadership { guard: self.0.acquire().await? })
    }
}

/// A leadership: a guard that resigns when it is dropped, wherever that is.
///
/// ```no_run
/// # async fn example(session: palisade_client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// let leadership = session.campaign("scheduler", "10.0.0.7:9000").lead().await?;
/// println!("leading under {}", leadership.fence());
/// let reason = leadership.lost().await;
/// println!("no longer: {reason}; whoever wants to lead again campaigns in a new session");
/// # Ok(())
/// # }
/// ```
///
/// What it cannot do, and why it has a fence, is
/// said at [`Guard`], whose methods it has.
#[must_use = "a leadership is resigned when it is dropped"]
#[derive(Debug)]
pub struct Leadership {
    guard: Guard,
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl Leadership {
    /// Changes the value that observers are shown. Of several, make the next when the one before is
    /// answered. Dropping the future leaves it open whether it took effect.
    ///
    /// # Errors
    /// [`CallError::SessionLost`] when the leadership is over; [`CallError::Refused`] when the value is
    /// too long; [`CallError::Unavailable`].
    pub async fn proclaim(&self, said: impl AsRef<[u8]>) -> Result<(), CallError> {
        let value = value(said.as_ref()).map_err(CallError::Refused)?;
        let shared = &self.guard.handle().shared;
        let (reply, answer) = oneshot::channel();
        let tag = shared.next_tag();
        shared.send(Command::Proclaim { claim: self.guard.tag(), tag, value, reply })?;
        let _asked = Asked { shared, tag };
        match shared.answer(answer).await {
            Err(CallError::SessionLost(reason)) => Err(CallError::SessionLost(self.guard.why(reason))),
            Err(CallError::Refused(Refusal::TicketFinished { outcome, .. })) => {
                Err(CallError::SessionLost(LostReason::Finished(outcome)))
            }
            result => result,
        }
    }

    /// Resigns and waits for the cluster to confirm it: the next candidate leads. Whoever campaigns again
    /// goes to the end of the queue.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<(), CallError> {
        self.guard.release().await
    }
}

impl Client {
    /// Who leads an election at this moment, if anybody does. To follow it: [`Client::observe`].
    ///
    /// # Errors
    /// As any read; [`CallError::Refused`] with `ClassMismatch` when the key is a lock.
    pub async fn leader(&self, election: &str) -> Result<Answer<Option<Leader>>, CallError> {
        self.read().leader(election).await
    }
}

/// Who leads the election that this describes.
pub(crate) fn leader_of(seen: Description) -> Result<Option<Leader>, CallError> {
    match seen.class {
        Some(Class::Election) | None => {}
        Some(has) => return Err(CallError::Refused(Refusal::ClassMismatch { has })),
    }
    let Some((holder, value)) = seen.holders.into_iter().next().zip(seen.value) else { return Ok(None) };
    let Ok(fence) = Fence::new(seen.key, holder.epoch, holder.epoch) else { return Ok(None) };
    Ok(Some(Leader { value, session: holder.session, owner: holder.owner, fence }))
}

//! S1, S2, S6 and S9 as clients see them: no two clients believe at once that they hold a key unless both
//! share it, epochs rise with every grant and belong to one claim each, whoever tells of it and whenever.

use std::collections::BTreeMap;

use palisade_types::{Epoch, Fence, Key, Mode, SessionId, Ticket};

use super::{Checked, demand};

/// All grants any client was told of.
#[derive(Debug, Default)]
pub struct LocksCheck {
    grants: BTreeMap<Key, BTreeMap<Epoch, (SessionId, Ticket)>>,
    claims: BTreeMap<(SessionId, Ticket), Fence>,
    /// How many different grants.
    pub granted: u64,
}

/// A client that believes it holds a key.
#[derive(Clone, Debug)]
pub struct Believer {
    /// Which client.
    pub client: usize,
    /// Under which grant.
    pub fence: Fence,
    /// Alone, or with others.
    pub mode: Mode,
}

impl LocksCheck {
    /// A node told a client of a grant.
    ///
    /// # Errors
    /// S2 when the epoch was given to another claim, or the claim was given another epoch.
    pub fn on_granted(&mut self, session: SessionId, ticket: Ticket, fence: &Fence) -> Checked {
        let of_key = self.grants.entry(fence.key().clone()).or_default();
        let known = of_key.entry(fence.epoch()).or_insert((session, ticket));
        demand(*known == (session, ticket), "S2", || {
            format!("{fence} was granted to {}/{}, now to {session}/{ticket}", known.0, known.1)
        })?;
        self.granted += u64::from(!self.claims.contains_key(&(session, ticket)));
        let told = self.claims.entry((session, ticket)).or_insert_with(|| fence.clone());
        demand(told == fence, "S8", || format!("claim {session}/{ticket} was told {told}, now {fence}"))
    }

    /// A client learned that it holds a key, while these others believe to hold it.
    ///
    /// # Errors
    /// S1, and S9 when it `leads` an election; S2 when who holds exclusively has a barrier below its epoch.
    pub fn on_holding(
        &self,
        client: usize,
        fence: &Fence,
        mode: Mode,
        leads: bool,
        others: &[Believer],
    ) -> Checked {
        let rule = if leads { "S9" } else { "S1" };
        demand(mode == Mode::Shared || fence.epoch() == fence.barrier(), "S2", || {
            format!("an exclusive grant has the fence {fence}")
        })?;
        match others.iter().find(|other| (mode, other.mode) != (Mode::Shared, Mode::Shared)) {
            None => Ok(()),
            Some(other) => demand(false, rule, || {
                format!("client {client} holds {fence} while client {} holds {}", other.client, other.fence)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::LogIndex;

    fn fence(epoch: u64) -> Fence {
        Fence::new(Key::new("k").unwrap(), Epoch(epoch), Epoch(epoch)).unwrap()
    }

    fn session(n: u64) -> SessionId {
        SessionId { opened: LogIndex(n), ..SessionId::default() }
    }

    #[test]
    fn one_epoch_for_two_claims_and_two_epochs_for_one_claim_are_seen() {
        let mut c = LocksCheck::default();
        assert_eq!(c.on_granted(session(1), Ticket(1), &fence(1)), Ok(()));
        assert_eq!(c.on_granted(session(1), Ticket(1), &fence(1)), Ok(()), "a repeat");
        assert_eq!(c.on_granted(session(2), Ticket(1), &fence(1)).unwrap_err().rule, "S2");
        assert_eq!(c.on_granted(session(1), Ticket(1), &fence(2)).unwrap_err().rule, "S8");
    }

    #[test]
    fn two_believers_are_seen() {
        let c = LocksCheck::default();
        assert_eq!(c.on_holding(1, &fence(2), Mode::Exclusive, false, &[]), Ok(()));
        let other = |mode| [Believer { client: 0, fence: fence(1), mode }];
        let (alone, shared) = (Mode::Exclusive, Mode::Shared);
        assert_eq!(c.on_holding(1, &fence(2), shared, false, &other(shared)), Ok(()));
        for (mine, others) in [(alone, alone), (alone, shared), (shared, alone)] {
            for (leads, rule) in [(false, "S1"), (true, "S9")] {
                assert_eq!(c.on_holding(1, &fence(2), mine, leads, &other(others)).unwrap_err().rule, rule);
            }
        }
    }
}

//! One deadline for each session, claim, read, write and claim to a resource, in order.

use alloc::collections::BTreeSet;
use palisade_types::Time;

use crate::api::{CallId, ClaimId, SessionHandle, WriteId};
use crate::resources::PostId;

/// Whose deadline it is, and who wants to send something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Session(SessionHandle),
    Claim(ClaimId),
    Call(CallId),
    Write(WriteId),
    Post(PostId),
}

/// Deadlines by time. The owner of a deadline remembers it (`slot`), so that it can be moved.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Time, Item)>);

impl Timers {
    /// Moves the deadline of an item; [`Time::FAR`] removes it.
    pub(crate) fn set(&mut self, item: Item, slot: &mut Time, at: Time) {
        if *slot == at {
            return;
        }
        if *slot != Time::FAR {
            self.0.remove(&(*slot, item));
        }
        if at != Time::FAR {
            self.0.insert((at, item));
        }
        *slot = at;
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Time {
        self.0.first().map_or(Time::FAR, |(at, _)| *at)
    }

    /// The earliest deadline's owner if it is due. The deadline stays until its owner moves it.
    pub(crate) fn due(&self, now: Time) -> Option<Item> {
        self.0.first().filter(|(at, _)| *at <= now).map(|(_, item)| *item)
    }
}

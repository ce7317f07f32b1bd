//! Outgoing messages, those that may leave and those that wait for the ledger.

use alloc::vec::Vec;
use core::mem::{discriminant, take};

use palisade_types::NodeId;

use crate::ledger::{HardVersion, Ledger};
use crate::message::Message;

#[derive(Debug)]
struct Held {
    version: HardVersion,
    to: NodeId,
    message: Message,
}

#[derive(Debug, Default)]
pub(crate) struct Mail {
    out: Vec<(NodeId, Message)>,
    held: Vec<Held>,
    /// Mutant B3: answers to votes do not wait.
    hasty_votes: bool,
}

impl Mail {
    pub(crate) fn new(hasty_votes: bool) -> Mail {
        Mail { out: Vec::new(), held: Vec::new(), hasty_votes }
    }

    /// Sends a message once the hard state in memory is durable. A pre-vote depends on none.
    pub(crate) fn post(&mut self, ledger: &Ledger, to: NodeId, message: Message) {
        let version = ledger.hard();
        let free = match message {
            Message::PreVote(_) => true,
            Message::VoteReply(_) => self.hasty_votes,
            _ => false,
        };
        if free || ledger.is_hard_durable(version) {
            self.out.push((to, message));
            return;
        }
        // What waits is superseded by the next of its kind, as if it had been lost: so no more
        // waits than one of each kind for each peer, however long the disk takes.
        self.held.retain(|h| h.to != to || discriminant(&h.message) != discriminant(&message));
        self.held.push(Held { version, to, message });
    }

    /// Lets go what the ledger now covers.
    pub(crate) fn release(&mut self, ledger: &Ledger) {
        if self.held.is_empty() {
            return;
        }
        for held in take(&mut self.held) {
            if ledger.is_hard_durable(held.version) {
                self.out.push((held.to, held.message));
            } else {
                self.held.push(held);
            }
        }
    }

    /// A new term began: what waits would speak of the old one.
    pub(crate) fn drop_held(&mut self) {
        self.held.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<(NodeId, Message)> {
        take(&mut self.out)
    }

    /// Asserts that nothing waits for what has happened.
    pub(crate) fn check(&self, ledger: &Ledger) {
        assert!(self.held.iter().all(|h| !ledger.is_hard_durable(h.version)), "a message waits in vain");
    }
}

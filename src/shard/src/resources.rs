//! Claims of keys to resources (DESIGN section 1, "one lock per resource").
//!
//! A claim is admitted as an open is, from any connection that has greeted, and needs no session: it gives
//! nothing to whoever makes it, making it again is harmless, and how many there are is bounded by limits that
//! are replicated. Where there are several shards, the one that keeps a resource does not know the sessions
//! of the others.
//!
//! Every client claims what it acquires, so mostly a claim is on record. Such a one need not grow the log:
//! if it was made again lately enough it is answered as a read is, from the applied state under a
//! confirmation round that began after it arrived. All that is lost by that is its becoming the newest, and
//! the state machine says for how long that does not matter
//! ([`fresh_claim`](palisade_machine::Machine::fresh_claim)). Any other claim is a command, and its answer
//! comes from apply. What is looked at on arrival only chooses between the two: the answer does not rest on
//! it.

use palisade_machine::Command;
use palisade_types::{ConnId, Key, Name, Refusal, Reply, RequestId};

use crate::action::Actions;
use crate::pending::Origin;
use crate::request::Room;
use crate::rounds::Item;
use crate::shard::Shard;

impl Shard {
    pub(crate) fn take_claim(
        &mut self,
        conn: ConnId,
        id: RequestId,
        resource: Name,
        key: Key,
    ) -> Result<(), Refusal> {
        match self.machine.fresh_claim(&resource, &key) {
            Some(_) => self.join(Item::Claim { conn, id, resource, key }),
            None => self.propose_claim(conn, id, resource, key),
        }
    }

    /// The leadership was confirmed after the claim arrived.
    pub(crate) fn serve_claim(
        &mut self,
        conn: ConnId,
        id: RequestId,
        resource: Name,
        key: Key,
        out: &mut Actions,
    ) {
        if let Some(reply) = self.machine.fresh_claim(&resource, &key) {
            out.replies.push((conn, id, reply));
            return;
        }
        // Withdrawn or grown old since it arrived.
        if let Err(refusal) = self.propose_claim(conn, id, resource, key) {
            out.replies.push((conn, id, Reply::Refused(refusal)));
        }
    }

    fn propose_claim(
        &mut self,
        conn: ConnId,
        id: RequestId,
        resource: Name,
        key: Key,
    ) -> Result<(), Refusal> {
        let origin = Origin::Client { conn, id, wait_until: None };
        self.submit(Command::ClaimResource { resource, key }, origin, Room::Grows)
    }
}

//! Reading ahead: what the next commands of a block will work on is fetched into the caches together.
//!
//! Each command looks a session and a key up, and every step of that waits for memory before the next
//! can begin. Across commands the steps do not depend on each other, so a pass over several commands
//! that takes one step of each at a time waits once where applying them would wait for each.

use core::hint::black_box;

use palisade_types::Ticket;

use crate::command::CommandRef;
use crate::machine::Machine;
use crate::slab::{NONE, Slot};

/// How many commands are looked at together: enough to wait in common, and what they fetch stays in the
/// first cache until it is used.
const AHEAD: usize = 16;

/// What is known of a command so far. Found by hash are guesses: that it fits is all that is looked at.
#[derive(Clone, Copy)]
struct Look {
    session: Slot,
    /// Of a release.
    ticket: Ticket,
    claim: Slot,
    lock: Slot,
}

impl Machine {
    /// Fetches what the next few commands will work on into the caches, and returns how many commands
    /// it has looked at: come back when they have been applied. Changes nothing and decides nothing; a
    /// wrong guess costs time.
    pub fn warm<'a>(&self, commands: &mut impl Iterator<Item = &'a [u8]>) -> usize {
        let mut looks = [Look { session: NONE, ticket: Ticket(0), claim: NONE, lock: NONE }; AHEAD];
        let mut count = 0;
        for (look, command) in looks.iter_mut().zip(commands) {
            self.look(look, command);
            count += 1;
        }
        let looks = &mut looks[..count];
        let mut sum = 0;
        for look in looks.iter_mut() {
            if let Some(session) = self.sessions.records.get(look.session) {
                // What watchers are told of it stands in its second line.
                sum ^= session.opened.0 ^ session.owner.as_ref().map_or(0, |owner| owner.len() as u64);
                look.claim = session.open.find(look.ticket).unwrap_or(NONE);
            }
            if let Some(lock) = self.locks.records.get(look.lock) {
                sum ^= lock.epoch.0;
            }
        }
        for look in looks.iter_mut() {
            if let Some(claim) = self.claims.records.get(look.claim) {
                look.lock = claim.lock;
            } else if let Some(lock) = self.locks.records.get(look.lock) {
                sum ^= lock.key.as_bytes().first().map_or(0, |&byte| u64::from(byte));
                sum ^= self.locks.look_idle(lock);
            }
        }
        for look in looks.iter().filter(|look| look.claim != NONE) {
            if let Some(lock) = self.locks.records.get(look.lock) {
                sum ^= self.locks.history(look.lock).tenure(lock.epoch).map_or(0, |t| t.session.0);
            }
        }
        black_box(sum);
        count
    }

    fn look(&self, look: &mut Look, command: &[u8]) {
        match CommandRef::decode(command) {
            Ok(CommandRef::Acquire { session, key, .. }) => {
                look.session = self.sessions.guess(session.opened);
                look.lock = self.locks.guess(key);
            }
            Ok(CommandRef::Release { session, ticket }) => {
                look.session = self.sessions.guess(session.opened);
                look.ticket = ticket;
            }
            _ => {}
        }
    }
}

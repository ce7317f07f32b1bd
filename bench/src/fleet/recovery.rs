//! What becomes of the sessions when the leader or a connection is lost.

use super::session::State;
use super::{Fleet, Phase, SILENCE};
use crate::error::BenchError;
use crate::poller::Outbox;
use crate::work::Mix;

impl Fleet {
    /// Whether the run goes on after a loss.
    pub(crate) fn survives(&self) -> bool {
        self.settings.survive
    }

    /// Everything is connected anew, to the leader of the day: every session shows itself, and then
    /// repeats what was unanswered.
    pub(crate) fn reconnected(&mut self, now: u64, out: &mut Outbox) {
        self.recoveries += 1;
        self.heard = now;
        self.unattached = 0;
        // Requests that had been put off are repeated below; locks are held on.
        let sessions = &self.sessions;
        self.timers.retain(|entry| sessions[entry.0.1 as usize].state == State::Holding);
        for n in 0..self.next_open {
            self.sessions[n as usize].attached = None;
            let idle = self.settings.mix == Mix::Session && self.state_is(n, State::Idle);
            if idle || self.state_is(n, State::Over) {
                continue;
            }
            if !self.state_is(n, State::Opening) {
                self.unattached += 1;
            }
            self.send(n, out);
        }
    }

    fn state_is(&self, n: u32, state: State) -> bool {
        self.sessions[n as usize].state == state
    }

    /// The connection knows the session: what was unanswered is asked again.
    pub(super) fn attached(&mut self, n: u32, now: u64, out: &mut Outbox) {
        if self.sessions[n as usize].attached.is_none() {
            self.sessions[n as usize].attached = Some(now);
            self.one_less_unattached(now);
            self.send(n, out);
        }
    }

    /// A new leader counts every session's time anew, and is to hear of all of them at once.
    fn one_less_unattached(&mut self, now: u64) {
        if self.unattached > 0 {
            self.unattached -= 1;
            if self.unattached == 0 {
                self.renewals.all_due(now);
            }
        }
    }

    /// The connection does not know the session after all.
    pub(super) fn detached(&mut self, n: u32, out: &mut Outbox) {
        // Answers to several of its requests may say so: one repeats them all.
        if self.sessions[n as usize].attached.take().is_some() {
            self.unattached += 1;
            self.send(n, out);
        }
    }

    /// The session is gone, and what it held with it; another takes its place.
    pub(super) fn ended(&mut self, n: u32, now: u64, out: &mut Outbox) {
        let session = &self.sessions[n as usize];
        if matches!(session.state, State::Opening | State::Over) {
            return;
        }
        self.by_id.remove(&session.id);
        self.ledger.let_go(session.key, n);
        let unattached = session.attached.is_none();
        if self.settings.mix == Mix::Session {
            self.idle(n, now, out);
        } else {
            if let Phase::Opening { .. } = self.phase
                && session.state == State::Idle
            {
                self.unready += 1;
            }
            self.open_session(n, now, out);
        }
        if unattached {
            self.one_less_unattached(now);
        }
    }

    /// A server that owes answers and says nothing is as good as lost. Says when to look again.
    pub(super) fn refuse_silence(&self, now: u64) -> Result<u64, BenchError> {
        if !self.settings.survive {
            return Ok(u64::MAX);
        }
        let patience = self.heard + SILENCE + self.settings.hold;
        if now < patience {
            return Ok(patience);
        }
        let known = &self.sessions[..self.next_open as usize];
        let at_rest = |state| matches!(state, State::Idle | State::Holding | State::Over);
        if self.unattached > 0 || known.iter().any(|s| !at_rest(s.state)) {
            return Err(BenchError::Lost("the server fell silent".to_owned()));
        }
        Ok(now + SILENCE)
    }
}

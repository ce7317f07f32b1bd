//! Renewals of all sessions in the background: in parts, spread over the time between two renewals
//! of a session, so that no renewal of many holds up the load.

use palisade_wire::RENEW_SESSIONS_MAX;

/// Some sessions of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The connection.
    pub(super) link: usize,
    /// The sessions' numbers.
    pub(super) sessions: Vec<u32>,
    /// When the last renewal of them was sent.
    pub(super) sent: u64,
}

/// Which part is renewed when.
pub(super) struct Renewals {
    parts: Vec<Part>,
    every: u64,
    next: usize,
    next_at: u64,
}

impl Renewals {
    /// Renews sessions 0 to `sessions`, the nth of which lives on connection n mod `links`, every so
    /// many nanoseconds.
    pub(super) fn new(sessions: u32, links: u32, every: u64, now: u64) -> Renewals {
        let mut parts = Vec::new();
        for link in 0..links {
            let own: Vec<u32> = (link..sessions).step_by(links as usize).collect();
            parts.extend(own.chunks(RENEW_SESSIONS_MAX).map(|chunk| Part {
                link: link as usize,
                sessions: chunk.to_vec(),
                sent: 0,
            }));
        }
        let mut renewals = Renewals { parts, every, next: 0, next_at: 0 };
        renewals.next_at = now + renewals.step();
        renewals
    }

    fn step(&self) -> u64 {
        self.every / self.parts.len().max(1) as u64
    }

    /// The next part that is due, and its number.
    pub(super) fn take_due(&mut self, now: u64) -> Option<(u32, &Part)> {
        if now < self.next_at || self.parts.is_empty() {
            return None;
        }
        let number = self.next;
        self.next = (self.next + 1) % self.parts.len();
        self.next_at += self.step();
        self.parts[number].sent = now;
        Some((number as u32, &self.parts[number]))
    }

    /// Everything is due at once: the leader has changed.
    pub(super) fn all_due(&mut self, now: u64) {
        self.next_at = now.saturating_sub(self.step() * self.parts.len().saturating_sub(1) as u64);
    }

    /// A part, by its number.
    pub(super) fn part(&self, number: u32) -> Option<&Part> {
        self.parts.get(number as usize)
    }

    /// When the next part is due.
    pub(super) fn wake_at(&self) -> u64 {
        self.next_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_session_is_renewed_once_a_period_and_never_too_many_at_once() {
        let mut renewals = Renewals::new(5_001, 2, 1_200, 0);
        let mut seen = vec![0; 5_001];
        let mut at = Vec::new();
        for time in 0..=1_200 {
            while let Some((_, part)) = renewals.take_due(time) {
                assert!(part.sessions.len() <= RENEW_SESSIONS_MAX);
                for session in &part.sessions {
                    assert_eq!(*session as usize % 2, part.link);
                    seen[*session as usize] += 1;
                }
                at.push(time);
            }
        }
        assert!(seen.iter().all(|&n| n == 1));
        // Three parts a connection, evenly spread.
        assert_eq!(at, [200, 400, 600, 800, 1000, 1200]);
    }

    #[test]
    fn after_a_change_of_leader_all_are_renewed_at_once() {
        let mut renewals = Renewals::new(3_000, 1, 3_000, 10_000);
        renewals.all_due(10_500);
        let numbers: Vec<u32> =
            std::iter::from_fn(|| renewals.take_due(10_500).map(|(number, _)| number)).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(renewals.wake_at(), 11_500);
    }
}

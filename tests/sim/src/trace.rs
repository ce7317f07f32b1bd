//! The trace of a run: a hash over every event, which two runs of one seed must share, and, when
//! asked for, a compact story for people.

use std::collections::VecDeque;

use palisade_types::Time;
use palisade_types::hash::Xxh3;

/// How many lines of the story are kept.
const LINES_KEPT: usize = 4000;

/// The hash over all events so far, and the last lines of the story if one is told.
pub struct Trace {
    hash: Xxh3,
    events: u64,
    lines: Option<VecDeque<String>>,
    now: Time,
    live: bool,
}

/// Whether to tell the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Story {
    /// Only the hash: fast.
    #[default]
    No,
    /// Keep the last lines, for a failure's report.
    Keep,
    /// Print each line as it happens.
    Print,
}

impl Trace {
    /// An empty trace.
    pub fn new(story: Story) -> Trace {
        Trace {
            hash: Xxh3::new(),
            events: 0,
            lines: (story != Story::No).then(VecDeque::new),
            now: Time::ZERO,
            live: story == Story::Print,
        }
    }

    /// Takes an event into the hash: its kind, and the numbers that describe it.
    pub fn event(&mut self, now: Time, kind: u8, numbers: &[u64]) {
        self.now = now;
        self.events += 1;
        self.hash.update(&[kind]);
        self.hash.update(&now.0.to_le_bytes());
        for n in numbers {
            self.hash.update(&n.to_le_bytes());
        }
    }

    /// Takes bytes that moved into the hash.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Adds a line to the story, made only if one is told.
    pub fn line(&mut self, line: impl FnOnce() -> String) {
        let Some(lines) = &mut self.lines else { return };
        let text = format!("{} {}", self.now, line());
        if self.live {
            println!("{text}");
        }
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(text);
    }

    /// Whether a story is told.
    pub fn is_told(&self) -> bool {
        self.lines.is_some()
    }

    /// Sets the time that the next lines bear.
    pub fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// The hash so far.
    pub fn hash(&self) -> u128 {
        self.hash.digest128()
    }

    /// How many events were taken in.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last lines of the story, oldest first.
    pub fn story(&self) -> Vec<String> {
        self.lines.iter().flatten().cloned().collect()
    }
}

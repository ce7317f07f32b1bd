//! One thing looked at, and what to make of it.

use serde::Serialize;

use crate::root::Unread;

/// What to make of what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Means nothing on this host, or was not asked for.
    NotApplicable,
    /// Works, can be better; also what could not be read.
    Advice,
    /// Do not run like this.
    Bad,
}

impl Verdict {
    /// The word of the verdict in a report.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::NotApplicable => "n/a",
            Verdict::Advice => "ADVICE",
            Verdict::Bad => "BAD",
        }
    }
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// What to make of it.
    pub verdict: Verdict,
    /// Why it matters.
    pub why: String,
    /// What to do about it: a command where there is one.
    pub remedy: Option<String>,
    /// How to take the remedy back.
    pub undo: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, found: impl Into<String>, why: impl Into<String>) -> Check {
        Check { name, found: found.into(), verdict, why: why.into(), remedy: None, undo: None }
    }

    /// As it should be.
    pub(crate) fn good(name: &'static str, found: impl Into<String>, why: impl Into<String>) -> Check {
        Check::new(name, Verdict::Good, found, why)
    }

    /// Means nothing here.
    pub(crate) fn not_applicable(
        name: &'static str,
        found: impl Into<String>,
        why: impl Into<String>,
    ) -> Check {
        Check::new(name, Verdict::NotApplicable, found, why)
    }

    /// Works, can be better.
    pub(crate) fn advice(name: &'static str, found: impl Into<String>, why: impl Into<String>) -> Check {
        Check::new(name, Verdict::Advice, found, why)
    }

    /// Do not run like this.
    pub(crate) fn bad(name: &'static str, found: impl Into<String>, why: impl Into<String>) -> Check {
        Check::new(name, Verdict::Bad, found, why)
    }

    /// What could not be read is said, never passed over.
    pub(crate) fn unread(name: &'static str, what: &Unread, why: impl Into<String>) -> Check {
        Check::advice(name, what.to_string(), why).remedy("look at it by hand, or as root", "nothing to undo")
    }

    /// What to do, and how to take it back.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>, undo: impl Into<String>) -> Check {
        self.remedy = Some(remedy.into());
        self.undo = Some(undo.into());
        self
    }
}

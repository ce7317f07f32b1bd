//! The checkers: what must hold, looked at from outside. Each rule has its number from
//! `tests/SIMULATION.md`.

use core::fmt;

pub mod durability;
pub mod liveness;
pub mod locks;
pub mod observers;
pub mod outcomes;
pub mod raft;
pub mod reads;
pub mod replay;
pub mod sessions;
pub mod values;
pub mod view;
pub mod watches;
pub mod witness;

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in `tests/SIMULATION.md`, such as "R1".
    pub rule: &'static str,
    /// What was seen.
    pub text: String,
}

impl Violation {
    /// A violation of this rule.
    pub fn new(rule: &'static str, text: impl Into<String>) -> Violation {
        Violation { rule, text: text.into() }
    }

    /// Whether it is one of progress rather than of safety.
    pub fn is_liveness(&self) -> bool {
        self.rule.starts_with('L')
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// The outcome of a check.
pub type Checked = Result<(), Violation>;

/// Demands a condition; otherwise the rule is violated, with a text made only then.
///
/// # Errors
/// The violation.
pub fn demand(holds: bool, rule: &'static str, text: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(Violation::new(rule, text())),
    }
}

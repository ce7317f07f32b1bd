//! All checks together, for a terminal, for programs and for one line.

use std::fmt::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::check::{Check, Verdict};
use crate::checks::names;

/// Where the text of a check begins.
const INDENT: usize = 8;
/// How wide explanations are set.
const WIDTH: usize = 100;

/// What an examination found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order of a report.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether nothing is bad.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.count(Verdict::Bad) == 0
    }

    /// How many checks have a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|c| c.verdict == verdict).count()
    }

    /// The report for programs: `fit`, `bad`, `advice`, and the `checks` with all they say.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "fit": self.is_fit(),
            "bad": self.count(Verdict::Bad),
            "advice": self.count(Verdict::Advice),
            "checks": self.checks.iter().map(|c| json!({
                "name": c.name,
                "found": c.found,
                "verdict": c.verdict,
                "why": c.why,
                "remedy": c.remedy,
                "undo": c.undo,
            })).collect::<Vec<_>>(),
        })
    }

    /// The host in one line, to stand beside figures measured on it.
    #[must_use]
    pub fn short(&self) -> String {
        let found =
            |name| self.checks.iter().find(|c| c.name == name).map_or("not examined", |c| c.found.as_str());
        format!(
            "kernel {}; {}; {}; fdatasync {}; clock {}; governor {}; load {}; {} bad, {} advice",
            found(names::KERNEL),
            found(names::CPUS),
            found(names::FILE_SYSTEM),
            found(names::FDATASYNC),
            found(names::CLOCK),
            found(names::GOVERNOR),
            found(names::LOAD),
            self.count(Verdict::Bad),
            self.count(Verdict::Advice)
        )
    }
}

/// For a terminal: a line for each check, with what to do below those that are not as they should be.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
        for check in &self.checks {
            writeln!(f, "{:<INDENT$}{:<width$}  {}", check.verdict.word(), check.name, check.found)?;
            if matches!(check.verdict, Verdict::Advice | Verdict::Bad) {
                f.write_str(&set("why", &check.why))?;
                // Commands stay on one line, to be copied.
                for (label, text) in [("do", &check.remedy), ("undo", &check.undo)] {
                    if let Some(text) = text {
                        writeln!(f, "{:INDENT$}{label:<5} {text}", "")?;
                    }
                }
            }
        }
        let verdict = if self.is_fit() { "fit" } else { "not fit" };
        let [bad, advice, good, none] =
            [Verdict::Bad, Verdict::Advice, Verdict::Good, Verdict::NotApplicable].map(|v| self.count(v));
        writeln!(f, "{verdict}: {bad} bad, {advice} advice, {good} good, {none} not applicable")
    }
}

/// A text broken into lines behind a label.
fn set(label: &str, text: &str) -> String {
    let mut out = String::new();
    let mut line = format!("{:INDENT$}{label:<5}", "");
    let margin = line.len();
    for word in text.split_whitespace() {
        if line.chars().count() > margin && line.chars().count() + 1 + word.chars().count() > WIDTH {
            // A string takes all that is written to it.
            let _ = writeln!(out, "{line}");
            line = " ".repeat(margin);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            checks: vec![
                Check::good(names::KERNEL, "6.18", "because"),
                Check::advice(names::CLOCK, "xen", "a long reason ".repeat(12)).remedy("do this", "do that"),
                Check::not_applicable(names::GOVERNOR, "none", "because"),
            ],
        }
    }

    #[test]
    fn advice_leaves_a_host_fit_and_one_bad_thing_does_not() {
        let mut report = report();
        assert!(report.is_fit());
        report.checks.push(Check::bad(names::IO_URING, "refused", "because"));
        assert!(!report.is_fit());
        assert_eq!(report.to_json()["fit"], false);
        assert!(report.to_string().ends_with("not fit: 1 bad, 1 advice, 1 good, 1 not applicable\n"));
    }

    #[test]
    fn a_terminal_gets_aligned_lines_and_remedies_only_where_needed() {
        let text = report().to_string();
        let column = |what: &str| text.lines().find_map(|l| l.find(what)).expect("the line is there");
        assert_eq!(column("6.18"), column("xen"));
        assert!(text.contains("        do    do this\n        undo  do that\n"), "{text}");
        assert_eq!(text.matches("why").count(), 1);
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn programs_get_everything() {
        let json = report().to_json();
        assert_eq!(json["checks"][1]["verdict"], "advice");
        assert_eq!(json["checks"][1]["undo"], "do that");
        assert_eq!(json["checks"][2]["verdict"], "not_applicable");
        assert_eq!(json["checks"][0]["remedy"], Value::Null);
    }

    #[test]
    fn one_line_says_what_is_there_and_what_was_not_looked_at() {
        let short = report().short();
        assert!(short.starts_with("kernel 6.18; not examined;"), "{short}");
        assert!(short.ends_with("clock xen; governor none; load not examined; 0 bad, 1 advice"), "{short}");
        assert!(!short.contains('\n'));
    }
}

//! How the demo tells its story: lines that fit a terminal of 80 columns, or JSON, one object a line.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use palisade::clock;
use palisade_types::Time;
use serde_json::{Value, json};

use super::super::exit::Failure;
use super::super::output::Output;

/// No line is longer, in characters.
const COLUMNS: usize = 80;
/// Where the text of a step begins: behind time and worker.
const INDENT: usize = 12;

/// How a step is to look where colours are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Heading,
    Good,
    Bad,
}

impl Tone {
    /// The sequence that begins it; none for what looks like all the rest.
    fn begin(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Heading => Some("\x1b[1m"),
            Tone::Good => Some("\x1b[1;32m"),
            Tone::Bad => Some("\x1b[1;31m"),
        }
    }
}

/// Tells what happens, as it happens.
pub(super) struct Teller {
    out: Output,
    began: Time,
    json: bool,
    colours: bool,
    part: Option<&'static str>,
}

impl Teller {
    pub(super) fn new(json: bool) -> Teller {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let colours = !json && !unwanted && std::io::stdout().is_terminal();
        Teller { out: Output::new(json), began: clock::now(), json, colours, part: None }
    }

    /// What is told from now on belongs to this part.
    pub(super) fn part(&mut self, part: Option<&'static str>) {
        self.part = part;
    }

    fn at(&self) -> Duration {
        clock::now().since(self.began)
    }

    /// Something that is said and does not happen.
    pub(super) fn say(&mut self, tone: Tone, text: &str) -> Result<(), Failure> {
        if self.json {
            return if text.is_empty() {
                Ok(())
            } else {
                self.object(json!({ "event": "said", "text": text }))
            };
        }
        self.block(tone, "", text)
    }

    /// A statement as it is given to the database.
    pub(super) fn statement(&mut self, text: &str) -> Result<(), Failure> {
        if self.json {
            return self.object(json!({ "event": "statement", "text": text }));
        }
        for line in text.lines() {
            self.block(Tone::Plain, &" ".repeat(INDENT), line)?;
        }
        Ok(())
    }

    /// Something that has just happened: whose doing it is, and in JSON its name and its figures.
    pub(super) fn step(
        &mut self,
        who: &str,
        (event, facts): (&str, Value),
        tone: Tone,
        text: &str,
    ) -> Result<(), Failure> {
        if self.json {
            let mut object = json!({ "event": event, "who": who, "text": text });
            if let (Value::Object(all), Value::Object(facts)) = (&mut object, facts) {
                all.extend(facts);
            }
            return self.object(object);
        }
        let head = format!("{:>6.1} s  {who:<2} ", self.at().as_secs_f64());
        self.block(tone, &head, text)
    }

    fn object(&mut self, mut object: Value) -> Result<(), Failure> {
        let at = u64::try_from(self.at().as_millis()).unwrap_or(u64::MAX);
        if let Value::Object(all) = &mut object {
            all.insert("at_ms".to_owned(), at.into());
            all.insert("part".to_owned(), self.part.into());
        }
        self.out.line(|| object, String::new)?;
        self.out.flush()
    }

    /// Prints a text behind its head, further lines below its beginning.
    fn block(&mut self, tone: Tone, head: &str, text: &str) -> Result<(), Failure> {
        let width = head.chars().count();
        let mut block = String::new();
        for (n, line) in wrap(text, COLUMNS - width).into_iter().enumerate() {
            let head = if n == 0 { head.to_owned() } else { " ".repeat(width) };
            let separator = if n == 0 { "" } else { "\n" };
            let _ = match tone.begin().filter(|_| self.colours) {
                Some(begin) => write!(block, "{separator}{head}{begin}{line}\x1b[0m"),
                None => write!(block, "{separator}{}", format!("{head}{line}").trim_end()),
            };
        }
        self.out.line(|| Value::Null, || block)?;
        self.out.flush()
    }
}

/// Breaks a text into lines of so many characters at most, between words where there are any. At least one line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(width) {
            if used > 0 && used + 1 + piece.len() > width {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                if used > 0 {
                    line.push(' ');
                    used += 1;
                }
                line.extend(piece);
                used += piece.len();
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words_and_a_word_only_where_it_must() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), [""]);
        assert_eq!(wrap("/a/path/that/is/long x", 8), ["/a/path/", "that/is/", "long x"]);
        assert_eq!(wrap("ééé ééé", 7), ["ééé ééé"], "letters are counted, not bytes");
        for line in wrap(&"some words of a story ".repeat(20), 31) {
            assert!(line.chars().count() <= 31 && !line.ends_with(' '), "{line:?}");
        }
    }
}

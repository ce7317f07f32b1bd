//! The bytes of every message, as committed in `tests/golden/messages.txt`. A changed byte is a
//! decision: `UPDATE=1 cargo test -p palisade-wire` rewrites the file.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod samples;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use palisade_wire::{HEADER_BYTES, Kind};
use samples::{Message, all, only_frame};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/messages.txt");
const ABOUT: &str = "\
# Test vectors of the protocol in net/PROTOCOL.md: the name of a message, then its frame in
# hexadecimal: header and body, 32 bytes a line.
";

fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    let lines = std::iter::once(&bytes[..HEADER_BYTES]).chain(bytes[HEADER_BYTES..].chunks(32));
    for line in lines {
        out.push_str("   ");
        for four in line.chunks(4) {
            out.push(' ');
            four.iter().for_each(|byte| write!(out, "{byte:02x}").unwrap());
        }
        out.push('\n');
    }
    out
}

fn parse(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let Some(hex) = line.strip_prefix(' ') else {
            found.push((line.to_string(), Vec::new()));
            continue;
        };
        let digits: String = hex.split_whitespace().collect();
        let bytes =
            (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        found.last_mut().unwrap().1.extend(bytes);
    }
    found
}

#[test]
fn every_message_has_the_bytes_of_the_golden_file_and_reads_back() {
    let mut wanted = ABOUT.to_string();
    for (name, message) in all() {
        write!(wanted, "\n{name}\n{}", text(&message.encode())).unwrap();
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(FILE, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(found == wanted, "tests/golden/messages.txt differs; UPDATE=1 rewrites it");
    let parsed = parse(&found);
    assert_eq!(parsed.len(), all().len());
    for ((name, message), (golden_name, bytes)) in all().into_iter().zip(parsed) {
        assert_eq!(name, golden_name);
        assert_eq!(Message::decode(&only_frame(&bytes)).unwrap(), message, "{name}");
    }
}

#[test]
fn the_samples_cover_every_kind() {
    let kinds: BTreeSet<Kind> = all().iter().map(|(_, m)| only_frame(&m.encode()).kind).collect();
    assert_eq!(kinds, Kind::ALL.iter().copied().collect());
}

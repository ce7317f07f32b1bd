//! `net/PROTOCOL.md` names what the code knows.

use palisade_wire::{FRAME_BYTES_MAX, Kind, REQUEST_BODY_BYTES_MAX};

const TEXT: &str = include_str!("../../PROTOCOL.md");

#[test]
fn the_document_lists_every_kind_under_its_number_and_no_other() {
    for kind in Kind::ALL {
        let number = format!("`{:#06x}`", kind.number());
        let name = format!("{kind:?}");
        let listed = TEXT.lines().any(|line| {
            (line.starts_with("| ") || line.starts_with("**"))
                && line.contains(&number)
                && line.contains(&name)
        });
        assert!(listed, "{number} {name} is missing");
    }
    let mut numbers: Vec<&str> =
        TEXT.split("`0x").skip(1).filter_map(|rest| rest.split('`').next()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), Kind::ALL.len());
}

#[test]
fn the_document_gives_the_limits_of_the_code() {
    assert!(TEXT.contains("| frame | 1,048,576 bytes") && FRAME_BYTES_MAX == 1_048_576);
    assert!(TEXT.contains("push frame | 20,480 bytes") && REQUEST_BODY_BYTES_MAX == 20_480);
}

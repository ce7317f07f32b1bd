//! `sim`: runs seeds, replays one with its story, hunts a mutant.
fn main() {}

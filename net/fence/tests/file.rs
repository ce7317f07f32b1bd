//! A fenced file: who may write it, and what a crash at each step leaves.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::Path;

use palisade_fence::{Epoch, Failed, Fence, FencedFile, FileError, Key, OperationId, Written};

fn key() -> Key {
    Key::new("reports/daily").unwrap()
}

fn fence(epoch: u64, barrier: u64) -> Fence {
    Fence::new(key(), Epoch(epoch), Epoch(barrier)).unwrap()
}

fn operation(text: &str) -> OperationId {
    OperationId::new(text).unwrap()
}

fn content(file: &FencedFile) -> String {
    String::from_utf8(file.read().unwrap().unwrap_or_default()).unwrap()
}

/// The names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_zombie_is_refused_once_its_successor_has_written_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("data"), key());
    assert_eq!(file.read().unwrap(), None);
    file.write(&fence(7, 7), b"by 7").unwrap();
    file.write(&fence(7, 7), b"by 7 again").unwrap();
    file.write(&fence(8, 8), b"by 8").unwrap();
    let refused = file.write(&fence(7, 7), b"by the zombie").unwrap_err();
    assert!(refused.is_final(), "{refused}");
    assert!(matches!(&refused, Failed::Refused(r) if r.epoch == Epoch(7) && r.floor == 8), "{refused}");
    // Another handle, as after a restart.
    let file = FencedFile::new(dir.path().join("data"), key());
    assert!(file.write(&fence(7, 7), b"by the zombie").is_err());
    assert_eq!(content(&file), "by 8");
    assert_eq!(names(dir.path()), ["data", "data.fence", "data.lock"]);
}

#[test]
fn shared_holders_do_not_shut_each_other_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("data"), key());
    file.write(&fence(9, 8), b"by 9, which joined 8").unwrap();
    file.write(&fence(8, 8), b"by 8").unwrap();
    assert!(matches!(file.write(&fence(7, 7), b"before them"), Err(Failed::Refused(_))));
}

#[test]
fn a_fence_of_another_key_opens_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("data"), key());
    let other = Fence::new(Key::new("another").unwrap(), Epoch(99), Epoch(99)).unwrap();
    assert!(matches!(file.write(&other, b"x"), Err(Failed::WrongKey { .. })));
    file.write(&fence(1, 1), b"x").unwrap();
    // Nor does a handle that takes the file to be another's.
    let mistaken = FencedFile::new(dir.path().join("data"), Key::new("another").unwrap());
    assert!(matches!(mistaken.write(&other, b"y"), Err(Failed::Ledger(FileError::Damaged { .. }))));
    assert_eq!(content(&file), "x");
}

#[test]
fn an_operation_happens_once_also_when_a_successor_retries_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("data"), key()).keep_operations(2);
    let of_monday = operation("report of monday");
    assert_eq!(file.write_once(&fence(3, 3), &of_monday, b"monday by 3").unwrap(), Written::Now);
    let before = Written::Before { epoch: Epoch(3) };
    assert_eq!(file.write_once(&fence(3, 3), &of_monday, b"monday again").unwrap(), before);
    assert_eq!(file.write_once(&fence(4, 4), &of_monday, b"monday by 4").unwrap(), before);
    assert_eq!(content(&file), "monday by 3");
    // Who was told that it was done may rely on what it reads: its predecessor is out.
    assert!(matches!(file.write(&fence(3, 3), b"late"), Err(Failed::Refused(_))));
    assert_eq!(content(&file), "monday by 3");
    file.write_once(&fence(4, 4), &operation("tuesday"), b"tuesday").unwrap();
    assert!(matches!(file.write_once(&fence(3, 3), &of_monday, b"late"), Err(Failed::Refused(_))));
    file.write_once(&fence(4, 4), &operation("wednesday"), b"wednesday").unwrap();
    assert_eq!(file.write_once(&fence(4, 4), &of_monday, b"forgotten").unwrap(), Written::Now);
}

#[test]
fn a_crash_at_any_step_leaves_the_write_done_or_not_done_as_a_whole() {
    // The steps of the second of two writes, as names of files that are as after it; all others as before it.
    let steps: [(&[&str], bool); 5] = [
        (&[], false),
        (&["data.next-2"], false),
        (&["data.next-2", "data.fence-next"], false),
        (&["data.next-2", "data.fence"], true),
        (&["data", "data.fence"], true),
    ];
    for torn in [false, true] {
        for (changed, counts) in steps {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let file = FencedFile::new(at("data"), key());
            file.write_once(&fence(1, 1), &operation("first"), b"first").unwrap();
            let fence_before = fs::read(at("data.fence")).unwrap();
            file.write_once(&fence(2, 2), &operation("second"), b"second").unwrap();
            let fence_after = fs::read(at("data.fence")).unwrap();
            fs::write(at("data"), "first").unwrap();
            fs::write(at("data.fence"), &fence_before).unwrap();
            for &name in changed {
                let mut bytes: &[u8] = if name.starts_with("data.fence") { &fence_after } else { b"second" };
                // What does not count yet may be torn.
                if torn && !counts {
                    bytes = &bytes[..bytes.len() / 2];
                }
                fs::write(at(name), bytes).unwrap();
            }
            let file = FencedFile::new(at("data"), key());
            let shown = content(&file);
            assert_eq!(shown, if counts { "second" } else { "first" }, "{changed:?}");
            assert_eq!(file.write(&fence(1, 1), b"zombie").is_err(), counts, "{changed:?}");
            let retried = file.write_once(&fence(2, 2), &operation("second"), b"second").unwrap();
            assert_eq!(retried == Written::Now, !counts, "{changed:?}");
            assert_eq!(content(&file), "second", "{changed:?}");
        }
    }
}

#[test]
fn nothing_is_written_past_a_damaged_state() {
    let dir = tempfile::tempdir().unwrap();
    let file = FencedFile::new(dir.path().join("data"), key());
    file.write(&fence(5, 5), b"by 5").unwrap();
    let state = dir.path().join("data.fence");
    let text = fs::read_to_string(&state).unwrap().replace("floor 5", "floor 4");
    fs::write(&state, text).unwrap();
    let refused = file.write(&fence(4, 4), b"by 4").unwrap_err();
    assert!(!refused.is_final() && refused.to_string().contains("checksum"), "{refused}");
    assert_eq!(fs::read(dir.path().join("data")).unwrap(), b"by 5");
}

#[test]
fn writers_side_by_side_take_turns_and_none_older_writes_after_a_newer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::thread::scope(|scope| {
        for epoch in 1..=8 {
            let file = FencedFile::new(&path, key());
            scope.spawn(move || {
                for _ in 0..5 {
                    match file.write(&fence(epoch, epoch), epoch.to_string().as_bytes()) {
                        Ok(()) => {}
                        Err(Failed::Refused(refused)) => assert!(refused.floor > epoch),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    assert_eq!(content(&FencedFile::new(&path, key())), "8");
}

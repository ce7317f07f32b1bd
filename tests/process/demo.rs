//! `palisade demo`: the story is told to its end, fits a terminal, and leaves nothing behind.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Process, finish, marked, one_cluster, palisade, until};

const MARK: &str = "TEST_DEMO_MARK";

/// The demo with a directory of its own for what is temporary, and a mark that all its processes bear.
fn demo(dir: &Path, mark: &str) -> Command {
    let mut command = palisade();
    command.arg("demo").env("TMPDIR", dir).env(MARK, mark);
    command
}

fn nothing_is_left(dir: &Path, mark: &str) {
    assert_eq!(marked(MARK, mark), [], "no process is left");
    let left: Vec<_> = std::fs::read_dir(dir).expect("a directory").flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "no file is left: {left:?}");
}

fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[test]
fn the_late_write_is_refused_with_the_fence_and_taken_without_it() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().expect("a directory for temporary files");
    let mark = unique("story");
    let began = Instant::now();
    let end = finish(&mut demo(dir.path(), &mark));
    println!("the demo took {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(end.code, Some(0), "{}\n{}", end.stdout, end.stderr);
    nothing_is_left(dir.path(), &mark);
    for line in end.stdout.lines() {
        assert!(line.chars().count() <= 80, "too long: {line}");
        assert!(!line.contains(['\x1b', '\r', '\t']), "no colours and no tricks on a pipe: {line:?}");
    }
    // What is told does not depend on where lines are broken.
    let told = end.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = &told[..];
    for part in [
        "three nodes",
        "WITH THE FENCE",
        "ON CONFLICT (key) DO UPDATE SET floor = max(floor, excluded.floor) WHERE floor <= ?3",
        "A is granted the lock. Its fence: accounts/7@1/1",
        "A reads 100, and asks whether its lock is valid: it is.",
        "A is PAUSED",
        "B waits for the lock: worker A has it",
        "B is granted the lock. Its fence: accounts/7@2/2",
        "B writes 70, showing accounts/7@2/2: written.",
        "A is CONTINUED",
        "A writes 150, showing accounts/7@1/1: REFUSED. The floor is 2, and its epoch 1",
        "Its fence: accounts/7@3/3",
        "A writes 120, showing accounts/7@3/3: written.",
        "In the file: 120. By its entries 100 -30 +50 = 120: CORRECT.",
        "WITHOUT THE FENCE",
        "A is PAUSED",
        "B writes 70, and its fence accounts/7@5/5 is shown to nobody: written.",
        "A is CONTINUED",
        "A writes 150, and its fence accounts/7@4/4 is shown to nobody: written.",
        "In the file: 150. By its entries 100 -30 +50 = 120: CORRUPTED.",
        "WHAT YOU SAW",
        "net/fence/FENCING.md",
        "README.md",
    ] {
        let Some(at) = rest.find(part) else { panic!("{part:?} is not there, or not here: {told}") };
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn the_story_is_told_in_json_too() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().expect("a directory for temporary files");
    let mark = unique("json");
    let end = finish(demo(dir.path(), &mark).arg("--json"));
    assert_eq!(end.code, Some(0), "{}\n{}", end.stdout, end.stderr);
    let lines: Vec<Value> =
        end.stdout.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    let times: Vec<u64> = lines.iter().filter_map(|line| line["at_ms"].as_u64()).collect();
    assert!(times.len() == lines.len() && times.is_sorted());
    assert!(lines.iter().all(|line| line["text"] != ""), "an object says something");
    let of = |part: &str, event: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["part"] == part && line["event"] == event).collect()
    };
    let refused = of("with the fence", "refused");
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (&refused[0]["who"], &refused[0]["epoch"], &refused[0]["floor"]),
        (&"A".into(), &1.into(), &2.into())
    );
    let right = of("with the fence", "found");
    assert_eq!((&right[0]["balance"], &right[0]["correct"]), (&120.into(), &true.into()));
    assert!(of("without the fence", "refused").is_empty());
    let wrong = of("without the fence", "found");
    assert_eq!(
        (&wrong[0]["balance"], &wrong[0]["should_be"], &wrong[0]["correct"]),
        (&150.into(), &120.into(), &false.into())
    );
    let epochs: Vec<&Value> =
        wrong[0]["entries"].as_array().expect("entries").iter().map(|entry| &entry["epoch"]).collect();
    assert_eq!(epochs, [5, 4], "the older wrote last");
    nothing_is_left(dir.path(), &mark);
}

#[test]
fn a_demo_that_is_interrupted_or_read_by_nobody_leaves_nothing_behind() {
    let _one = one_cluster();
    let dir = tempfile::tempdir().expect("a directory for temporary files");
    let mark = unique("interrupted");
    let mut process = Process::start(&mut demo(dir.path(), &mark));
    while !process.line().contains("PAUSED") {}
    until("demo, nodes and both workers run", || (marked(MARK, &mark).len() == 6).then_some(()));
    process.signal(Signal::INT);
    assert_eq!(process.wait().code(), Some(128 + 2));
    nothing_is_left(dir.path(), &mark);

    // Whoever reads it has seen enough.
    let mark = unique("unread");
    let mut command = Command::new("sh");
    command.args(["-c", "{ \"$0\" demo; echo $? > \"$1\"; } | head -n 1"]);
    let status = dir.path().join("status");
    command.arg(palisade().get_program()).arg(&status).env("TMPDIR", dir.path()).env(MARK, &mark);
    let end = finish(&mut command);
    assert!(end.stdout.contains("A lock alone"), "{}\n{}", end.stdout, end.stderr);
    assert_eq!(
        std::fs::read_to_string(&status).expect("its status").trim(),
        "141",
        "as SIGPIPE ends a command"
    );
    std::fs::remove_file(&status).expect("a file");
    nothing_is_left(dir.path(), &mark);
}

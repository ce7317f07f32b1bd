//! `palisade doctor`: its exit status is its verdict, and it leaves nothing behind.

use crate::support::{finish, palisade};

#[test]
fn doctor_says_what_it_found_and_its_status_is_the_verdict() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let end = finish(palisade().args(["doctor", "--quick", "--json"]).arg(dir.path()));
    let found: serde_json::Value = serde_json::from_str(&end.stdout).expect("one JSON object");
    let checks = found["checks"].as_array().expect("checks");
    assert!(checks.len() >= 10, "{found}");
    let bad: Vec<_> = checks.iter().filter(|c| c["verdict"] == "bad").collect();
    assert_eq!(end.code, Some(if bad.is_empty() { 0 } else { 1 }), "{bad:?}");
    assert!(bad.iter().all(|c| c["remedy"].is_string()), "what is bad says what to change: {bad:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays behind");
}

//! What the command line says to somebody who meets it for the first time: every error has a next step.

use serde_json::Value;

use crate::support::{Cluster, Process, finish, one_cluster};

/// Runs a command that must end with this status, and say all these words on stderr.
fn says(cluster: &Cluster, arguments: &[&str], code: i32, words: &[&str]) {
    let end = finish(&mut cluster.command(arguments));
    assert_eq!(end.code, Some(code), "{arguments:?}: {}", end.stderr);
    for word in words {
        assert!(end.stderr.contains(word), "{arguments:?}: {word:?} is not in: {}", end.stderr);
    }
}

#[test]
fn every_refusal_says_what_to_do_next() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    for verb in ["locks", "sessions", "resources", "acts"] {
        says(&cluster, &[verb], 0, &["none"]);
        let json = finish(&mut cluster.command(["--json", verb]));
        assert_eq!((json.stdout.as_str(), json.stderr.as_str()), ("", ""));
    }
    says(
        &cluster,
        &["force-release", "nosuch", "--epoch", "1", "--reason", "x"],
        1,
        &["no such key", "locks"],
    );
    says(&cluster, &["retire", "nosuch"], 1, &["no such key"]);
    says(&cluster, &["retire", "nosuch", "--epoch", "1"], 1, &["no such key"]);
    let forgotten = ["not or no longer remembered", "palisade sessions"];
    says(&cluster, &["evict", "0-999999", "--reason", "x"], 1, &forgotten);
    says(&cluster, &["report-dead", "--session", "0-999999", "--evidence", "x"], 1, &forgotten);
    says(&cluster, &["evict", "0-+1", "--reason", "x"], 64, &["0-17"]);
    let disguised = "a \u{202e}desrever";
    says(&cluster, &["evict", "0-1", "--reason", disguised], 64, &["reason", "U+202E"]);
    says(&cluster, &["evict", "0-1", "--reason", "x", "--by", "a\u{2028}b"], 64, &["by", "U+2028"]);

    let hold = ["lock", "--owner", "first comer", "--advisory", "--hold", "k"];
    let mut holder = Process::start(&mut cluster.command(hold));
    let line: Value = serde_json::from_str(&holder.line()).expect("one line of JSON");
    let session = line["session"].as_str().expect("a session");
    let whose = ["first comer", session, "epoch 1", "for "];
    says(&cluster, &["lock", "-n", "--advisory", "k", "--", "true"], 1, &whose);
    says(&cluster, &["lock", "-w", "200ms", "-E", "7", "--advisory", "k", "--", "true"], 7, &whose);
    let mismatch = ["lock", "-n", "--resource", "db", "k", "--", "true"];
    says(&cluster, &mismatch, 64, &["advisory", "--advisory", "--resource", "palisade retire"]);
    says(&cluster, &["retire", "k"], 1, &["in use", "palisade describe"]);
}

#[test]
fn without_a_cluster_a_command_says_how_to_get_one() {
    let mut nobody = crate::support::palisade();
    let nobody = nobody.args(["--endpoints", "127.0.0.1:1", "--timeout", "300ms"]);
    let end = finish(nobody.args(["describe", "k"]));
    assert_eq!(end.code, Some(69), "{}", end.stderr);
    for word in ["no usable cluster", "palisade dev", "PALISADE_ENDPOINTS"] {
        assert!(end.stderr.contains(word), "{word:?} is not in: {}", end.stderr);
    }
    let mut usage = crate::support::palisade();
    let usage = finish(usage.env("PALISADE_ENDPOINTS", "127.0.0.1:1").arg("retire"));
    assert_eq!(usage.code, Some(64));
    assert!(!usage.stderr.contains("--endpoints"), "{}", usage.stderr);
}

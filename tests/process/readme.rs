//! The README's commands, read out of the README and run: what it tells a newcomer to type works.

use std::path::Path;
use std::process::Command;

use crate::support::{Process, finish, free_ports, one_cluster, palisade};

const CARGO_RUN: &str = "cargo run --release -- ";

/// The commands of the README's `sh` blocks, continued lines joined.
fn commands() -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"))
        .expect("the README lies beside the manifest");
    let mut commands = Vec::new();
    let mut within = false;
    let mut command = String::new();
    for line in readme.lines() {
        match line {
            "```sh" => within = true,
            "```" => within = false,
            _ if within => {
                let (part, goes_on) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
                command.push_str(part.trim());
                command.push(' ');
                if !goes_on {
                    commands.push(std::mem::take(&mut command).trim().to_owned());
                }
            }
            _ => {}
        }
    }
    commands
}

/// A command line of the README with the binary of this build in its place.
fn shell(line: &str, arguments: &str) -> Command {
    let mut command = Command::new("sh");
    let binary = palisade().get_program().to_owned();
    command.arg("-c").arg(format!("exec \"$BINARY\" {arguments}")).env("BINARY", binary);
    assert!(!arguments.is_empty(), "{line}");
    command
}

#[test]
fn the_commands_of_the_readme_work() {
    let _one = one_cluster();
    let all = commands();
    assert!(all.iter().any(|c| c == "cargo test --workspace"), "the command that passes the tests: {all:?}");
    let mut ours = all.iter().filter_map(|c| c.strip_prefix(CARGO_RUN));
    assert_eq!(ours.next(), Some("dev"), "the first command runs the main job");

    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let mut dev =
        Process::start(palisade().args(["dev", "--port", &base.to_string(), "--dir"]).arg(dir.path()));
    let endpoints: Vec<String> = (1..=3).map(|n| format!("127.0.0.1:{}", base + n)).collect();
    let endpoints = endpoints.join(",");
    assert_eq!(dev.line(), format!("ready: {endpoints}"));

    let mut epochs = Vec::new();
    let mut count = 0;
    for line in ours {
        let end = finish(shell(line, line).env("PALISADE_ENDPOINTS", &endpoints));
        assert_eq!(end.code, Some(0), "{line}\n{}", end.stderr);
        if line.contains("PALISADE_EPOCH") {
            epochs.push(end.stdout);
        }
        count += 1;
    }
    assert_eq!(epochs, ["1"], "the first lock has epoch 1");
    assert!(count >= 5, "the tour has become short: {count} commands");
}

#[test]
fn the_readmes_cluster_by_hand_is_formatted() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("node").to_string_lossy().into_owned();
    let all = commands();
    let line =
        all.iter().find_map(|c| c.strip_prefix("palisade format ")).expect("the README formats a node");
    let line = format!("format {}", line.replace("/var/lib/palisade", &target));
    let end = finish(&mut shell(&line, &line));
    assert_eq!(end.code, Some(0), "{line}\n{}", end.stderr);
    assert!(dir.path().join("node/IDENTITY").exists() && dir.path().join("node/palisade.toml").exists());
}

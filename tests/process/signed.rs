//! Signed fences with a real cluster and a real gate: an invented epoch raises no floor, and the key is replaced while all run.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::gate::{Resource, answer, send_with, start_with};
use super::support::{Cluster, PATIENCE, Process, finish, format, free_ports, one_cluster, palisade, until};

/// Two private keys as `openssl genpkey -algorithm ed25519` writes them, and what `openssl pkey -pubout` makes of them.
const OLD: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n",
];
const NEW: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n-----END PRIVATE KEY-----\n",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n-----END PUBLIC KEY-----\n",
];

fn write(path: &Path, text: &str) {
    let mut file =
        std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// What a holder shows.
#[derive(Debug)]
struct Shown {
    fence: String,
    signature: String,
}

impl Shown {
    fn headers(&self) -> String {
        format!("Palisade-Fence: {}\r\nPalisade-Signature: {}\r\n", self.fence, self.signature)
    }
}

fn lock(cluster: &Cluster, key: &str) -> Shown {
    let script = "printf '%s\\n%s\\n' \"$PALISADE_FENCE\" \"$PALISADE_SIGNATURE\"";
    let end = finish(&mut cluster.command(["lock", "--resource", "r", key, "--", "sh", "-c", script]));
    assert_eq!(end.code, Some(0), "{}{}", end.stderr, cluster.logs());
    let (fence, signature) = end.stdout.split_once('\n').unwrap();
    Shown { fence: fence.to_owned(), signature: signature.to_owned() }
}

fn identity(cluster: &Cluster) -> String {
    let all = until("all nodes say which cluster they are of", || {
        let end = finish(&mut cluster.command(["--json", "status"]));
        let said = end.stdout.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["cluster"].as_str().map(str::to_owned)
        });
        said.collect::<Option<Vec<String>>>().filter(|all| all.len() == 3)
    });
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all[0].clone()
}

/// A gate before a resource that answers at once.
struct Guarded<'a> {
    dir: &'a Path,
    port: u16,
    resource: Resource,
    process: Option<Process>,
}

impl Guarded<'_> {
    fn restart(&mut self, more: &[&str]) {
        self.stop();
        self.process = Some(start_with(self.dir, self.port, self.resource.port, "60s", more));
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::TERM);
            assert!(process.wait().success());
        }
    }

    fn put(&self, headers: &str) -> String {
        let sent = send_with(self.port, headers, "x");
        // It waits for this before it answers; a request that is refused leaves it for the next.
        self.resource.go.send(()).unwrap();
        answer(sent)
    }

    fn status(&self, shown: &Shown) -> u16 {
        let text = self.put(&shown.headers());
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

#[test]
fn a_gate_that_wants_signatures_refuses_an_invented_epoch_and_follows_when_the_key_is_replaced() {
    let _alone = one_cluster();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { dir.path().join(name) };
    let (private, old, new) = (file("fence.pem"), file("old.pub"), file("new.pub"));
    write(&private, OLD[0]);
    write(&old, OLD[1]);
    write(&new, NEW[1]);
    let mut cluster = Cluster::start_with(&format!("fence_signing_key = \"{}\"", private.display()));
    let first = lock(&cluster, "k");
    assert_eq!((first.fence.as_str(), first.signature.len()), ("k@1/1", 128));
    let kept = lock(&cluster, "kept");
    let cluster_id = identity(&cluster);
    let [old, new] = [&old, &new].map(|path| path.to_str().unwrap());
    let mut gate =
        Guarded { dir: &file("gate"), port: free_ports(), resource: Resource::start(), process: None };
    gate.restart(&["--cluster", &cluster_id, "--require-signed", old]);

    // Invented epochs, with the signature of a grant and without any.
    let invented = Shown { fence: format!("k@{0}/{0}", u64::MAX / 2), signature: first.signature.clone() };
    let refused = gate.put(&invented.headers());
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains(&cluster_id), "{refused}");
    let refused = gate.put(&format!("Palisade-Fence: {}\r\n", invented.fence));
    assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("PALISADE_SIGNATURE"), "{refused}");
    assert!(gate.resource.came.try_recv().is_err(), "something was forwarded");
    // The floor has not moved: what was granted passes.
    assert_eq!(gate.status(&first), 200);
    assert_eq!(gate.resource.came.recv_timeout(PATIENCE).unwrap(), "x");
    let second = lock(&cluster, "k");
    assert_eq!((second.fence.as_str(), gate.status(&second), gate.status(&first)), ("k@2/2", 200, 412));

    // The new key: first every resource accepts it, then the nodes sign with it, one after the other, then the old one goes.
    gate.restart(&["--cluster", &cluster_id, "--require-signed", old, "--require-signed", new]);
    write(&private, NEW[0]);
    for node in 1..=3 {
        cluster.kill_and_restart(node);
        let between = lock(&cluster, "k");
        assert_eq!(gate.status(&between), 200, "{between:?}");
    }
    let third = lock(&cluster, "k");
    assert_eq!((gate.status(&third), gate.status(&kept)), (200, 200));
    gate.restart(&["--cluster", &cluster_id, "--require-signed", new]);
    assert_eq!((gate.status(&third), gate.status(&kept)), (200, 403));
    // As if it were another cluster, or this one after a restore.
    gate.restart(&["--cluster", "00000000deadbeef", "--require-signed", new]);
    assert_eq!(gate.status(&third), 403);
    assert_eq!(identity(&cluster), cluster_id);
}

#[test]
fn leaders_and_holders_get_a_signature_and_nobody_that_of_a_grant_around_theirs() {
    let _alone = one_cluster();
    let dir = tempfile::tempdir().unwrap();
    let private = dir.path().join("fence.pem");
    write(&private, OLD[0]);
    let cluster = Cluster::start_with(&format!("fence_signing_key = \"{}\"", private.display()));
    let script = "echo ${#PALISADE_SIGNATURE}";
    let elected = finish(&mut cluster.command(["elect", "e", "--value", "v", "--", "sh", "-c", script]));
    assert_eq!((elected.code, elected.stdout.as_str()), (Some(0), "128"), "{}", elected.stderr);
    let mut advisory = cluster.command(["lock", "--advisory", "a", "--", "sh", "-c", script]);
    let advisory = finish(advisory.env("PALISADE_SIGNATURE", "of something else"));
    assert_eq!((advisory.code, advisory.stdout.as_str()), (Some(0), "0"), "{}", advisory.stderr);
    for (arguments, signed) in [(["--resource", "r", "h"], true), (["--advisory", "--hold", "g"], false)] {
        let mut holder = Process::start(
            cluster
                .command(["lock", "--hold"])
                .args(arguments.iter().filter(|argument| **argument != "--hold")),
        );
        let line: serde_json::Value = serde_json::from_str(&holder.line()).unwrap();
        let signature = line["signature"].as_str();
        assert_eq!(signature.map(str::len), signed.then_some(128), "{line}");
        holder.signal(Signal::TERM);
        assert!(holder.wait().success());
    }
}

#[test]
fn a_node_whose_signing_key_others_may_read_does_not_start_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("node");
    assert_eq!(finish(&mut format(&node, free_ports(), 1)).code, Some(0));
    let config = node.join("palisade.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("fence_signing_key = \"fence.pem\"\n{text}")).unwrap();
    let missing = finish(palisade().arg("serve").arg(&node));
    assert_eq!(missing.code, Some(78), "{}", missing.stderr);
    assert!(missing.stderr.contains("fence.pem"), "{}", missing.stderr);
    write(&node.join("fence.pem"), OLD[0]);
    std::fs::set_permissions(node.join("fence.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let exposed = finish(palisade().arg("serve").arg(&node));
    assert_eq!(exposed.code, Some(78), "{}", exposed.stderr);
    assert!(exposed.stderr.contains("0644") && exposed.stderr.contains("chmod 600"), "{}", exposed.stderr);
}

#[test]
fn a_floor_that_an_invented_epoch_has_raised_is_lowered_by_hand_while_the_gate_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut gate =
        Guarded { dir: dir.path(), port: free_ports(), resource: Resource::start(), process: None };
    gate.restart(&[]);
    let invented = format!("Palisade-Fence: k@{0}/{0}\r\n", u64::MAX / 2);
    assert!(gate.put(&invented).starts_with("HTTP/1.1 200"));
    let granted = "Palisade-Fence: k@7/7\r\n";
    assert!(gate.put(granted).starts_with("HTTP/1.1 412"));
    let lower = |to: &str| {
        let mut command = palisade();
        command.args(["gate", "--lower-floor", "k", "--to", to, "--dir"]).arg(dir.path());
        finish(&mut command)
    };
    let running = lower("7");
    assert_eq!(running.code, Some(78), "{}", running.stderr);
    gate.stop();
    let lowered = lower("7");
    let said = format!("the floor of k was {} and is 7", u64::MAX / 2);
    assert_eq!((lowered.code, lowered.stdout), (Some(0), said), "{}", lowered.stderr);
    let again = lower("7");
    assert_eq!(again.code, Some(1), "{}", again.stderr);
    gate.restart(&[]);
    assert!(gate.put(granted).starts_with("HTTP/1.1 200"));
    assert!(gate.put("Palisade-Fence: k@6/6\r\n").starts_with("HTTP/1.1 412"));
    let mut nowhere = palisade();
    let empty = tempfile::tempdir().unwrap();
    let end = finish(nowhere.args(["gate", "--lower-floor", "k", "--to", "7", "--dir"]).arg(empty.path()));
    assert_eq!(end.code, Some(78), "{}", end.stderr);
}

#[test]
fn a_gate_that_wants_signatures_says_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("private.pem"), OLD[0]);
    let private = dir.path().join("private.pem");
    let start = |more: &[&str]| {
        let mut command = palisade();
        command.args(["gate", "--upstream", "http://127.0.0.1:9", "--dir"]).arg(dir.path().join("gate"));
        finish(command.args(more))
    };
    let alone = start(&["--require-signed", private.to_str().unwrap()]);
    assert!(alone.code == Some(64) && alone.stderr.contains("--cluster"), "{}", alone.stderr);
    let none = start(&["--cluster", "00000000deadbeef"]);
    assert!(none.code == Some(64) && none.stderr.contains("--require-signed"), "{}", none.stderr);
    let wrong = start(&["--cluster", "00000000deadbeef", "--require-signed", private.to_str().unwrap()]);
    assert!(wrong.code == Some(78) && wrong.stderr.contains("-pubout"), "{}", wrong.stderr);
    let bad = start(&["--cluster", "prod", "--require-signed", private.to_str().unwrap()]);
    assert!(bad.code == Some(64) && bad.stderr.contains("palisade status"), "{}", bad.stderr);
}

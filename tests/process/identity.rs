//! Directories that are not what they were: old copies, second copies, formatted anew, another's. Each is refused
//! with what to do, the rest of the cluster goes on.

use std::path::Path;
use std::process::Command;

use crate::support::{Cluster, Finished, Process, finish, format, one_cluster, palisade, until};

fn copy(from: &Path, to: &Path) {
    let end = finish(Command::new("cp").arg("-a").arg(from).arg(to));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
}

fn serve(dir: &Path) -> Process {
    Process::start(palisade().arg("serve").arg(dir))
}

/// It ends by itself, with the status of a directory that is not what it should be.
fn ends_with(mut process: Process, says: &str) {
    let status = process.wait();
    let Finished { code, stderr, .. } = process.finished(status);
    assert_eq!(code, Some(78), "{stderr}");
    assert!(stderr.contains(says), "{says:?} is not in: {stderr}");
}

/// All of these nodes have applied what a quorum has now committed.
fn serves(cluster: &Cluster, nodes: &[u16]) {
    let endpoints: Vec<String> = nodes.iter().map(|n| cluster.endpoint(*n)).collect();
    let mut command = cluster.command(["lock", "--advisory", "k", "--", "true"]);
    let lock = command.env("PALISADE_ENDPOINTS", endpoints.join(",")).status();
    assert!(lock.expect("it runs").success(), "{}", cluster.logs());
    let commit = |node: &u16| cluster.metric(*node, "palisade_applied_index");
    let most = nodes.iter().map(commit).max().expect("some nodes");
    until("all have applied it", || nodes.iter().all(|n| commit(n) >= most).then_some(()));
}

#[test]
fn an_old_copy_of_a_directory_is_refused_by_all_and_ends() {
    let _alone = one_cluster();
    let mut cluster = Cluster::start();
    serves(&cluster, &[1, 2, 3]);
    let (dir, old) = (cluster.node_dir(3), cluster.path("backup"));
    cluster.kill_node(3);
    copy(&dir, &old);
    cluster.start_node(3);
    serves(&cluster, &[1, 2, 3]);
    cluster.kill_node(3);
    std::fs::rename(&dir, cluster.path("newest")).unwrap();
    copy(&old, &dir);
    // Also when it is tried again, and when the others have been started since.
    ends_with(serve(&dir), "replace the node under a new number");
    cluster.kill_and_restart(1);
    cluster.kill_and_restart(2);
    serves(&cluster, &[1, 2]);
    ends_with(serve(&dir), "replace the node under a new number");
    // What was not copied is as good as before.
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(cluster.path("newest"), &dir).unwrap();
    cluster.start_node(3);
    serves(&cluster, &[1, 2, 3]);
}

#[test]
fn a_copy_of_a_directory_is_not_let_in_beside_the_original() {
    let _alone = one_cluster();
    let mut cluster = Cluster::start();
    serves(&cluster, &[1, 2, 3]);
    let clone = cluster.path("clone");
    copy(&cluster.node_dir(3), &clone);
    let file = clone.join("palisade.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = |n: u16| format!("listen = \"127.0.0.1:{}\"", cluster.base() + n);
    assert!(text.contains(&listen(3)), "{text}");
    std::fs::write(&file, text.replace(&listen(3), &listen(4))).unwrap();
    let second = serve(&clone);
    until("the copy is told", || second.stderr().contains("node 3 has another process").then_some(()));
    until("and the others say so", || cluster.log_of(1).contains("node 3 has another process").then_some(()));
    serves(&cluster, &[1, 2, 3]);
    // Once the original has gone the copy is a restart like any other, and then the original is the old one.
    cluster.kill_node(3);
    until("the copy is let in", || second.stderr().contains("linked to a peer").then_some(()));
    ends_with(serve(&cluster.node_dir(3)), "replace the node under a new number");
    serves(&cluster, &[1, 2]);
}

#[test]
fn a_directory_formatted_anew_ends_where_the_cluster_is_formed() {
    let _alone = one_cluster();
    let mut cluster = Cluster::start();
    serves(&cluster, &[1, 2, 3]);
    cluster.kill_node(2);
    let dir = cluster.node_dir(2);
    std::fs::remove_dir_all(&dir).unwrap();
    ends_with(serve(&dir), "palisade format");
    assert_eq!(finish(&mut format(&dir, cluster.base(), 2)).code, Some(0));
    ends_with(serve(&dir), "replace");
    serves(&cluster, &[1, 3]);
}

#[test]
fn a_node_of_another_cluster_is_refused_and_the_cluster_goes_on() {
    let _alone = one_cluster();
    let mut cluster = Cluster::start();
    serves(&cluster, &[1, 2, 3]);
    cluster.kill_node(3);
    let foreign = cluster.path("foreign");
    let peers: Vec<String> = (1..=3).map(|n| format!("{n}=127.0.0.1:{}", cluster.base() + n)).collect();
    let mut other = palisade();
    other.args(["format", "--cluster", "other", "--node", "3", "--peers", &peers.join(",")]).arg(&foreign);
    assert_eq!(finish(&mut other).code, Some(0));
    let process = serve(&foreign);
    until("it is told", || process.stderr().contains("belongs to cluster").then_some(()));
    serves(&cluster, &[1, 2]);
}

#[test]
fn two_directories_that_were_swapped_are_refused() {
    let _alone = one_cluster();
    let mut cluster = Cluster::start();
    serves(&cluster, &[1, 2, 3]);
    for node in [2, 3] {
        cluster.kill_node(node);
    }
    // The configuration stays with the host, all else is the other's.
    let (two, three) = (cluster.node_dir(2), cluster.node_dir(3));
    let file = |dir: &Path| dir.join("palisade.toml");
    let (of_two, of_three) = (std::fs::read(file(&two)).unwrap(), std::fs::read(file(&three)).unwrap());
    std::fs::write(file(&two), of_three).unwrap();
    std::fs::write(file(&three), of_two).unwrap();
    for dir in [&two, &three] {
        ends_with(serve(dir), "swapped");
    }
}

#[test]
fn a_second_process_is_refused_also_when_the_lock_file_was_deleted() {
    let _alone = one_cluster();
    let cluster = Cluster::start();
    serves(&cluster, &[1, 2, 3]);
    ends_with(serve(&cluster.node_dir(1)), "in use");
    std::fs::remove_file(cluster.node_dir(1).join("LOCK")).unwrap();
    ends_with(serve(&cluster.node_dir(1)), "in use");
    serves(&cluster, &[1, 2, 3]);
}

//! The servers of a peer: three nodes on loopback (Redis: one) with their syncs on.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::install::Program;
use super::{PeerError, etcd, etcd_watch, redis, zookeeper};
use crate::error::BenchError;
use crate::told::{Told, Watching};
use crate::work::{Measured, Work};
use crate::{cluster, sys};

/// How long a cluster may take until each of its nodes takes a write.
const START: Duration = Duration::from_secs(60);
/// Between two attempts at a cluster that is starting.
const RETRY: Duration = Duration::from_millis(100);
/// Ports are searched from here, below those the kernel gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How much of a log a failure shows.
const LOG_LINES: usize = 10;

/// A running cluster of a peer. Dropping it stops the servers; their data stays.
pub(crate) struct Servers {
    program: Program,
    nodes: Vec<Child>,
    endpoints: Vec<String>,
    dir: PathBuf,
}

impl Servers {
    /// Starts a cluster in a directory that is not there yet, and waits until each node has taken a
    /// write. Call from the main thread: the servers end with the thread that started them.
    pub(crate) async fn start(program: Program, dir: PathBuf) -> Result<Servers, PeerError> {
        fs::create_dir_all(&dir).map_err(|e| BenchError::io(dir.display(), e))?;
        let mut servers = Servers { program, nodes: Vec::new(), endpoints: Vec::new(), dir };
        cluster::refuse_memory(&servers.dir)?;
        let commands = match &servers.program {
            Program::Etcd(path) => etcd_nodes(path, &servers.dir)?,
            Program::ZooKeeper(java, jars) => zookeeper_nodes(java, jars, &servers.dir)?,
            Program::Redis(path) => redis_nodes(path, &servers.dir)?,
        };
        for (n, (mut command, port)) in commands.into_iter().enumerate() {
            let log = servers.log(n);
            let file = File::create(&log).map_err(|e| BenchError::io(log.display(), e))?;
            let also = file.try_clone().map_err(|e| BenchError::io(log.display(), e))?;
            command.stdin(Stdio::null()).stdout(file).stderr(also);
            sys::stop_with_parent(&mut command);
            let child = command.spawn();
            servers.nodes.push(child.map_err(|e| BenchError::io(command.get_program().display(), e))?);
            servers.endpoints.push(format!("127.0.0.1:{port}"));
        }
        servers.wait().await?;
        Ok(servers)
    }

    /// The nodes' processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Child::id).collect()
    }

    /// All nodes, by their client endpoints.
    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// The node that leads.
    pub(crate) async fn leader(&self) -> Result<String, PeerError> {
        match self.program {
            Program::Etcd(_) => etcd::leader(&self.endpoints).await,
            Program::ZooKeeper(..) => zookeeper::leader(&self.endpoints).await,
            Program::Redis(_) => Ok(self.endpoints[0].clone()),
        }
    }

    /// Does the work at these endpoints; `edge` is called as the window begins and as it ends.
    pub(crate) async fn run(
        &self,
        work: &Work,
        endpoints: &[String],
        edge: &mut dyn FnMut(),
    ) -> Result<Measured, PeerError> {
        match self.program {
            Program::Etcd(_) => etcd::run(work, endpoints, edge).await,
            Program::ZooKeeper(..) => zookeeper::run(work, endpoints, edge).await,
            Program::Redis(_) => redis::run(work, endpoints, edge).await,
        }
    }

    /// Has a key watched at these endpoints and changed; `edge` is called as what counts begins, and when everybody
    /// has been told of its last change.
    pub(crate) async fn watch(
        &self,
        watching: &Watching,
        endpoints: &[String],
        edge: &mut dyn FnMut(),
    ) -> Result<Told, PeerError> {
        match self.program {
            Program::Etcd(_) => {
                let leader = self.leader().await?;
                etcd_watch::run(watching, &leader, endpoints, edge).await
            }
            Program::ZooKeeper(..) => Err(PeerError::NoSuchWork("ZooKeeper")),
            Program::Redis(_) => Err(PeerError::NoSuchWork("Redis")),
        }
    }

    async fn wait(&mut self) -> Result<(), PeerError> {
        let deadline = Instant::now() + START;
        loop {
            let left = deadline.duration_since(Instant::now());
            let mut last = match tokio::time::timeout(left, self.probe()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            let mut dead = false;
            for (n, node) in self.nodes.iter_mut().enumerate() {
                if let Ok(Some(status)) = node.try_wait() {
                    (dead, last) = (true, format!("node {} ended: {status}", n + 1));
                }
            }
            if dead || Instant::now() > deadline {
                return Err(PeerError::NotReady { seconds: START.as_secs(), last, log: self.log_end() });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// There is a leader, and every node takes a write.
    async fn probe(&self) -> Result<(), PeerError> {
        self.leader().await?;
        for endpoint in &self.endpoints {
            match self.program {
                Program::Etcd(_) => etcd::probe(endpoint).await?,
                Program::ZooKeeper(..) => zookeeper::probe(endpoint).await?,
                Program::Redis(_) => redis::probe(endpoint).await?,
            }
        }
        Ok(())
    }

    fn log(&self, n: usize) -> PathBuf {
        self.dir.join(format!("{}.log", n + 1))
    }

    fn log_end(&self) -> String {
        let text = fs::read(self.log(0)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Servers {
    /// Nobody wants the data of a comparison, so nothing is lost by a kill.
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // An error means that it has ended already.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Ports nobody listens on. All are bound at once, so that they differ, and then let go.
fn free_ports(count: usize) -> Result<Vec<u16>, PeerError> {
    // Two processes that compare at the same time start their search in different places.
    let span = u32::from(PORTS.end - PORTS.start);
    let start = std::process::id() * 64 % span;
    let ports = (0..span).map(|k| PORTS.start + ((start + k) % span) as u16);
    let held: Vec<_> = ports.filter_map(|p| TcpListener::bind(("127.0.0.1", p)).ok()).take(count).collect();
    held.iter().map(|l| Ok(l.local_addr()?.port())).collect()
}

/// A server's command line and the port its clients use.
type Node = (Command, u16);

fn etcd_nodes(program: &Path, dir: &Path) -> Result<Vec<Node>, PeerError> {
    let ports = free_ports(6)?;
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (clients, peers) = ports.split_at(3);
    let cluster: Vec<_> = peers.iter().enumerate().map(|(n, p)| format!("n{n}={}", url(*p))).collect();
    let node = |n: usize| {
        let mut command = Command::new(program);
        command.args(["--name", &format!("n{n}"), "--log-level", "warn"]);
        command.arg("--data-dir").arg(dir.join(format!("n{n}")));
        for name in ["--listen-client-urls", "--advertise-client-urls"] {
            command.args([name, &url(clients[n])]);
        }
        for name in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            command.args([name, &url(peers[n])]);
        }
        command.args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"]);
        (command, clients[n])
    };
    Ok((0..3).map(node).collect())
}

fn zookeeper_nodes(java: &Path, jars: &str, dir: &Path) -> Result<Vec<Node>, PeerError> {
    let ports = free_ports(9)?;
    let mut ensemble = String::new();
    for (n, pair) in ports[3..].chunks(2).enumerate() {
        ensemble.push_str(&format!("server.{}=127.0.0.1:{}:{}\n", n + 1, pair[0], pair[1]));
    }
    let mut nodes = Vec::new();
    for (n, port) in (1..).zip(&ports[..3]) {
        let data = dir.join(format!("n{n}"));
        fs::create_dir(&data).map_err(|e| BenchError::io(data.display(), e))?;
        let settings = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\n\
             clientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n\
             admin.enableServer=false\n4lw.commands.whitelist=srvr\n{ensemble}",
            data.display()
        );
        let path = dir.join(format!("n{n}.cfg"));
        for (path, text) in [(&data.join("myid"), format!("{n}\n")), (&path, settings)] {
            fs::write(path, text).map_err(|e| BenchError::io(path.display(), e))?;
        }
        let mut command = Command::new(java);
        command.args(["-Xms512m", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jars]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(path);
        nodes.push((command, *port));
    }
    Ok(nodes)
}

fn redis_nodes(program: &Path, dir: &Path) -> Result<Vec<Node>, PeerError> {
    let port = free_ports(1)?[0];
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no", "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(dir);
    Ok(vec![(command, port)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let mut ports = free_ports(9).unwrap();
        assert_eq!(ports.len(), 9);
        ports.dedup();
        assert_eq!(ports.len(), 9);
    }
}

//! ZooKeeper: a session is a connection, always; a lock is an ephemeral node.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use super::window::{Tally, Window, gather, in_batches};
use super::{PeerError, fresh_name};
use crate::work::{Measured, Mix, Work};

/// The client renews by itself, well before this.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
/// What a node may take to answer a four-letter word or to close a session.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does the work: sessions go to the endpoints in turn. `work.connections` is not looked at.
pub(crate) async fn run(
    work: &Work,
    endpoints: &[String],
    edge: &mut dyn FnMut(),
) -> Result<Measured, PeerError> {
    if work.mix == Mix::Renew {
        return Err(PeerError::NoSuchWork("ZooKeeper"));
    }
    let root = format!("/{}", fresh_name()?);
    let first = connect(&endpoints[0]).await?;
    first.create(&root, b"", &options(CreateMode::Persistent)).await?;
    let open = |n| Session::open(endpoints.to_vec(), root.clone(), n);
    let sessions = in_batches((0..work.sessions).map(open)).await?;
    if work.mix == Mix::Read {
        in_batches(sessions.iter().cloned().map(Session::put)).await?;
    }
    let window = Window::of(work);
    let mut tasks = JoinSet::new();
    for session in sessions.iter().cloned() {
        let tally = Tally::new(window);
        match work.mix {
            Mix::Cycle => tasks.spawn(session.cycle(tally)),
            Mix::Contend => tasks.spawn(session.contend(tally)),
            Mix::Read => tasks.spawn(session.read(tally)),
            Mix::Renew | Mix::Session => tasks.spawn(session.open_and_close(tally)),
        };
    }
    let measured = gather(work, window, tasks, edge).await?;
    in_batches(sessions.into_iter().map(|s| close(s.client))).await?;
    Ok(measured)
}

/// The node that leads, by its client endpoint; an error while there is none, or one is not serving.
pub(crate) async fn leader(endpoints: &[String]) -> Result<String, PeerError> {
    let mut found = None;
    for endpoint in endpoints {
        match mode(endpoint).await?.as_str() {
            "leader" => found = Some(endpoint.clone()),
            "follower" => {}
            other => return Err(PeerError::Answer(format!("{endpoint} is {other:?}"))),
        }
    }
    found.ok_or_else(|| PeerError::Answer("no node leads".to_owned()))
}

/// A session with one write, through one node.
pub(crate) async fn probe(endpoint: &str) -> Result<(), PeerError> {
    let client = connect(endpoint).await?;
    client.create(&format!("/{}", fresh_name()?), b"", &options(CreateMode::Ephemeral)).await?;
    close(client).await
}

/// What a node says it is, from the four-letter word `srvr`.
async fn mode(endpoint: &str) -> Result<String, PeerError> {
    let ask = async {
        let mut stream = TcpStream::connect(endpoint).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, PeerError>(answer)
    };
    let late = |_| PeerError::Answer(format!("{endpoint} does not answer"));
    let answer = tokio::time::timeout(PATIENCE, ask).await.map_err(late)??;
    let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
    Ok(mode.unwrap_or("not serving").to_owned())
}

fn options(mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(Acls::anyone_all())
}

async fn connect(endpoint: &str) -> Result<Client, PeerError> {
    Ok(Client::connector().with_session_timeout(SESSION_TIMEOUT).connect(endpoint).await?)
}

/// Drops the last handle of a session and waits until it is closed.
async fn close(client: Client) -> Result<(), PeerError> {
    let mut state = client.state_watcher();
    drop(client);
    let closed = async { while state.changed().await != SessionState::Closed {} };
    let late = |_| PeerError::Answer("a session does not close".to_owned());
    tokio::time::timeout(PATIENCE, closed).await.map_err(late)
}

#[derive(Clone)]
struct Session {
    client: Client,
    endpoint: String,
    root: String,
    key: String,
}

impl Session {
    async fn open(endpoints: Vec<String>, root: String, n: u32) -> Result<Session, PeerError> {
        let endpoint = endpoints[n as usize % endpoints.len()].clone();
        let client = connect(&endpoint).await?;
        // The node may be behind the one where the root was created.
        client.sync("/").await?;
        Ok(Session { client, endpoint, key: format!("{root}/{n}"), root })
    }

    async fn put(self) -> Result<(), PeerError> {
        self.client.create(&self.key, b"holder", &options(CreateMode::Ephemeral)).await?;
        Ok(())
    }

    async fn cycle(self, mut tally: Tally) -> Result<Tally, PeerError> {
        let ephemeral = options(CreateMode::Ephemeral);
        while tally.is_open() {
            let asked = Instant::now();
            self.client.create(&self.key, b"holder", &ephemeral).await?;
            tally.note(asked);
            self.client.delete(&self.key, None).await?;
        }
        Ok(tally)
    }

    /// The recipe of ZooKeeper's manual: a numbered node each, and a watch on the one before.
    async fn contend(self, mut tally: Tally) -> Result<Tally, PeerError> {
        let prefix = format!("{}/line-", self.root);
        let numbered = options(CreateMode::EphemeralSequential);
        while tally.is_open() {
            let asked = Instant::now();
            let (_, number) = self.client.create(&prefix, b"holder", &numbered).await?;
            let name = format!("line-{number}");
            while let Some(before) = self.before(&name).await? {
                let (there, watcher) = self.client.check_and_watch_stat(&before).await?;
                if there.is_some() {
                    watcher.changed().await;
                }
            }
            tally.note(asked);
            self.client.delete(&format!("{}/{name}", self.root), None).await?;
        }
        Ok(tally)
    }

    /// The path of the node before `name` in the line, if there is one.
    async fn before(&self, name: &str) -> Result<Option<String>, PeerError> {
        let line = self.client.list_children(&self.root).await?;
        if !line.iter().any(|other| other == name) {
            return Err(PeerError::ZooKeeper(Error::NoNode));
        }
        let before = line.iter().filter(|other| other.as_str() < name).max();
        Ok(before.map(|other| format!("{}/{other}", self.root)))
    }

    /// The sync and the read leave together: a session's requests are served in order.
    async fn read(self, mut tally: Tally) -> Result<Tally, PeerError> {
        while tally.is_open() {
            let asked = Instant::now();
            let (synced, read) = tokio::join!(self.client.sync(&self.key), self.client.get_data(&self.key));
            synced?;
            read?;
            tally.note(asked);
        }
        Ok(tally)
    }

    async fn open_and_close(self, mut tally: Tally) -> Result<Tally, PeerError> {
        while tally.is_open() {
            let asked = Instant::now();
            let client = connect(&self.endpoint).await?;
            tally.note(asked);
            close(client).await?;
        }
        Ok(tally)
    }
}

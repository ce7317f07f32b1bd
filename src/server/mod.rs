//! The node: from a formatted directory to a process that serves.
//!
//! Start: lock the directory, read its configuration and identity, check the host, bind the ports,
//! raise the boot counter durably, recover the log; then one executor per core, the administration
//! thread and the watchdog. The main thread waits for SIGTERM or SIGINT, upon which a
//! leader hands over before it stops. An impossible state or a
//! failed write or sync ends the process at once, without a goodbye: peers and clients notice, and
//! what is on the disk is what was acknowledged.

mod act;
mod admin;
mod conn;
mod core;
pub mod directory;
mod disk;
pub mod echo;
mod frames;
mod host;
mod inbox;
mod log;
mod mark;
mod members;
mod metrics;
mod peers;
mod signing;
mod sockets;
mod stages;
mod stopping;
mod sys;
#[cfg(test)]
mod tests;
mod watchdog;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};
use palisade_shard::{Machine, ShardConfig, read_state};
use palisade_types::{Block, NodeId, ShardId};
use palisade_wal::{Identity, Recovered, WalConfig, recover_shard};
use palisade_wire::Member;

use crate::clock;
use crate::config::{ADMIN_PORT_OFFSET, Config, ConfigError};
use crate::format::read_random;

use self::admin::CoreView;
use self::core::{Core, CoreParts, Settings};
use self::directory::{DirectoryError, DirectorySource};
use self::inbox::Outside;
use self::members::Members;
use self::signing::SigningKeyError;
use self::sockets::SocketLimits;
use self::watchdog::Watchdog;

pub use self::core::CoreError;

/// Bytes of buffers glommio registers with each of an executor's three rings: they are locked.
const IO_MEMORY: usize = 1 << 20;
/// The most bytes of blocks in one message to a peer: with the largest block it still fits a frame.
const APPEND_BYTES_MAX: usize = 256 << 10;
/// How long the executors may take to end after a signal, beside handing over.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// The exit status of a node whose disk failed or whose state is impossible.
const EXIT_FATAL: i32 = 74;
/// The exit status of a node whose directory is an old copy, or was formatted anew: as for any directory that is not
/// what it should be.
const EXIT_OUTDATED: i32 = 78;

/// How to serve, beyond what the configuration says.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// What is logged, in place of the configuration's `log`.
    pub log: Option<String>,
}

/// Why a node did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration does not fit the identity.
    #[error("{file}: `peers` names nodes {found:?}, the cluster was formatted with {expected:?}")]
    Members {
        /// The file.
        file: String,
        /// The nodes it names.
        found: Vec<NodeId>,
        /// The nodes of the identity.
        expected: Vec<NodeId>,
    },
    /// The key that fences are signed with cannot be used.
    #[error(transparent)]
    SigningKey(#[from] SigningKeyError),
    /// The configuration listens where another member is reached.
    #[error(
        "{file}: listens at {address}, which is the address of node {other}, and this is the directory of node {node}: two \
         directories may have been swapped; put each back in its place"
    )]
    AnothersAddress {
        /// The file.
        file: String,
        /// Where it listens.
        address: SocketAddr,
        /// Whose directory it is.
        node: NodeId,
        /// Whose address it is.
        other: NodeId,
    },
    /// The kernel refuses io_uring.
    #[error(
        "io_uring is not available ({0}): a kernel of 5.8 or later is needed, with kernel.io_uring_disabled = 0 and no \
         seccomp filter against it (in containers: allow io_uring_setup, io_uring_enter, io_uring_register)"
    )]
    IoUring(io::Error),
    /// Too little memory may be locked.
    #[error(
        "only {bytes} bytes of memory may be locked, {needed} are needed: raise it (ulimit -l, LimitMEMLOCK=64M)"
    )]
    LockedMemory {
        /// The limit.
        bytes: u64,
        /// The least that will do.
        needed: u64,
    },
    /// Too few files may be open.
    #[error("only {limit} files may be open: raise it (ulimit -n, LimitNOFILE=)")]
    Files {
        /// The limit.
        limit: u64,
    },
    /// A port is taken.
    #[error("{address}: the port is taken by another process")]
    PortTaken {
        /// The address.
        address: SocketAddr,
    },
    /// An address cannot be listened on.
    #[error("{address}: cannot listen: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
    /// The system refused something else.
    #[error("{what}: {error}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// The executor could not be had.
    #[error("the executor does not start: {0}")]
    Executor(String),
    /// A core ended by an error.
    #[error(transparent)]
    Core(#[from] CoreError),
}

impl ServeError {
    /// The exit status after sysexits(3): 78 for what is configured wrong, 71 for what the system
    /// refuses.
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::Directory(DirectoryError::Io { .. }) => 71,
            ServeError::Directory(_)
            | ServeError::Config(_)
            | ServeError::Members { .. }
            | ServeError::SigningKey(_)
            | ServeError::AnothersAddress { .. } => 78,
            _ => 71,
        }
    }
}

/// Logs why this node cannot go on, and ends the process.
pub(crate) fn fatal(why: &str) -> ! {
    tracing::error!(why, "this node ends now");
    std::process::exit(EXIT_FATAL)
}

/// Ends the process of a node whose directory must not be used again: nothing that it does counts with its peers.
pub(crate) fn outdated(why: &str) -> ! {
    tracing::error!(why, "this node must not go on with this directory, and ends now");
    std::process::exit(EXIT_OUTDATED)
}

/// Runs the node of a directory until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start; see [`ServeError`]. A failure after the start ends the process.
pub fn serve(dir: &Path, options: &ServeOptions) -> Result<(), ServeError> {
    let lock = directory::lock(dir)?;
    let config = Config::read(dir)?;
    log::start(options.log.as_deref().unwrap_or(&config.log));
    let identity = directory::identity(dir)?;
    check_members(dir, &config, &identity)?;
    host::check(dir)?;
    let connections = host::connections(config.connections_max)?;
    let listener = listen(config.listen)?;
    let mut admin_address = config.listen;
    admin_address.set_port(config.listen.port() + ADMIN_PORT_OFFSET);
    let admin_listener = listen(admin_address)?;

    let (parts, view) = prepare(dir, &config, identity, connections, listener)?;
    // A list of cores, of one; pinned if the configuration names its CPU.
    let result =
        run_cores(vec![(parts, view, config.cores.first().copied())], admin_listener, config.election_min);
    drop(lock);
    result
}

/// Counts the boot, recovers the log, and puts together what a core is built from.
fn prepare(
    dir: &Path,
    config: &Config,
    identity: Identity,
    connections: usize,
    listener: TcpListener,
) -> Result<(CoreParts, CoreView), ServeError> {
    let signing_key =
        config.fence_signing_key.as_ref().map(|path| signing::read_key(dir, path)).transpose()?;
    let boot = directory::raise_boot(dir, &identity)?;
    let recovered = recover(dir, &identity)?;
    let last = recovered.blocks.last().map_or(recovered.base.index, Block::last);
    tracing::info!(
        node = %identity.node,
        cluster = %identity.cluster_name,
        cluster_id = %identity.cluster,
        boot = boot.value().starts.number,
        listen = %config.listen,
        last = last.0,
        snapshot = recovered.snapshot.map_or(0, |id| id.last.0),
        "starting"
    );
    let members = Members::new(identity, boot);
    let shard = shard_config(config, &members)?;
    let state = restore(dir, members.identity(), &shard, &recovered)?;
    let (sender, receiver) = async_channel::bounded(256);
    let view = CoreView { outside: sender.clone(), metrics: Arc::default(), heartbeat: Arc::default() };
    let parts = CoreParts {
        // glommio opens directories by absolute names only.
        dir: dir.canonicalize().map_err(directory::failed(dir, "resolve"))?,
        shard,
        seed: random_u64()?,
        recovered,
        state,
        settings: settings(config),
        signing_key,
        peers: others(config, members.identity().node),
        members,
        listener,
        limits: SocketLimits {
            connections,
            in_flight: config.inflight_max,
            hello: config.hello_timeout,
            per_turn: config.clients_per_turn,
        },
        metrics: Arc::clone(&view.metrics),
        heartbeat: Arc::clone(&view.heartbeat),
        outside: (sender, receiver),
    };
    Ok((parts, view))
}

fn check_members(dir: &Path, config: &Config, identity: &Identity) -> Result<(), ServeError> {
    let found: Vec<NodeId> = config.peers.keys().copied().collect();
    let file = dir.join(crate::config::FILE).display().to_string();
    if found == identity.voters {
        let node = identity.node;
        let at = |address: &String| address.parse() == Ok(config.listen);
        return match config.peers.iter().find(|(other, address)| **other != node && at(address)) {
            None => Ok(()),
            Some((other, _)) => {
                Err(ServeError::AnothersAddress { file, address: config.listen, node, other: *other })
            }
        };
    }
    Err(ServeError::Members { file, found, expected: identity.voters.clone() })
}

fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    sockets::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ServeError::PortTaken { address },
        _ => ServeError::Listen { address, error },
    })
}

fn recover(dir: &Path, identity: &Identity) -> Result<Recovered, ServeError> {
    let recovered = recover_shard(&DirectorySource(dir), identity, ShardId(0))
        .map_err(|error| DirectoryError::Recover { dir: dir.to_owned(), error })?;
    for note in &recovered.notes {
        tracing::warn!(%note, "recovery");
    }
    Ok(recovered)
}

/// The state that the newest snapshot holds, if there is one.
fn restore(
    dir: &Path,
    identity: &Identity,
    shard: &ShardConfig,
    recovered: &Recovered,
) -> Result<Option<Machine>, ServeError> {
    let Some(id) = recovered.snapshot else { return Ok(None) };
    let began = clock::now();
    let state = read_state(&DirectorySource(dir), identity, shard, id)
        .map_err(|error| DirectoryError::State { dir: dir.to_owned(), error })?;
    let took_ms = clock::now().since(began).as_millis() as u64;
    tracing::info!(snapshot = id.last.0, bytes = id.bytes, took_ms, "the state of the snapshot is restored");
    Ok(Some(state))
}

fn random_u64() -> Result<u64, ServeError> {
    let mut bytes = [0; 8];
    read_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Room for an event, on average: names may have 512 bytes, but hardly all of them.
const WATCH_EVENT_BYTES: usize = 640;

fn shard_config(config: &Config, members: &Members) -> Result<ShardConfig, ServeError> {
    let identity = members.identity();
    let mut raft = palisade_raft::Config::new(identity.node, ShardId(0), identity.voters.clone());
    raft.boot = members.boot();
    raft.heartbeat = config.heartbeat;
    raft.election_min = config.election_min;
    raft.election_max = config.election_max;
    raft.leases = config.lease_reads;
    raft.append_bytes_max = APPEND_BYTES_MAX;
    raft.disk_stall = config.election_max;
    // So much of the log stays in memory behind a snapshot, for nodes that are a little behind.
    raft.log_keep_bytes = config.snapshot_bytes / 4;
    let mut wal = WalConfig::new(identity, ShardId(0), random_u64()?);
    wal.segment_bytes = config.segment_bytes;
    wal.batch_bytes_max =
        wal.batch_bytes_max.min(usize::try_from(config.segment_bytes / 4).unwrap_or(usize::MAX));
    let mut shard = ShardConfig::new(identity.node, raft, wal, identity.limits);
    shard.hash_seed = random_u64()?;
    shard.boot = members.boot();
    shard.log_bytes_max = config.log_bytes_max;
    shard.snapshot_bytes = config.snapshot_bytes;
    shard.lease_reads = config.lease_reads;
    shard.block_gap = config.batch_gap;
    shard.block_commands = config.batch_commands;
    shard.watch.per_node = config.watches_max;
    shard.watch.per_connection = config.watches_per_connection;
    shard.watch.history_events = config.watch_history;
    shard.watch.history_bytes = config.watch_history.saturating_mul(WATCH_EVENT_BYTES);
    Ok(shard)
}

fn settings(config: &Config) -> Settings {
    let members =
        config.peers.iter().map(|(node, address)| Member { node: *node, address: address.clone() }).collect();
    Settings {
        members,
        in_flight: u32::try_from(config.inflight_max).unwrap_or(u32::MAX),
        election_min_ms: u32::try_from(config.election_min.as_millis()).unwrap_or(u32::MAX),
    }
}

fn others(config: &Config, own: NodeId) -> BTreeMap<NodeId, String> {
    config.peers.iter().filter(|(node, _)| **node != own).map(|(n, a)| (*n, a.clone())).collect()
}

/// Starts an executor per core and waits for the signal to stop.
fn run_cores(
    cores: Vec<(CoreParts, CoreView, Option<usize>)>,
    admin_listener: TcpListener,
    election_min: Duration,
) -> Result<(), ServeError> {
    let host = |what| move |error| ServeError::Host { what, error };
    let views: Vec<CoreView> = cores.iter().map(|(_, view, _)| view.clone()).collect();
    let _watchdog = Watchdog::start(views.iter().map(|v| Arc::clone(&v.heartbeat)).collect())
        .map_err(host("starting the watchdog"))?;
    let signals = signal_hook::iterator::Signals::new([libc::SIGTERM, libc::SIGINT])
        .map_err(host("waiting for signals"))?;
    let mut executors = Vec::new();
    for (index, (parts, view, cpu)) in cores.into_iter().enumerate() {
        executors.push(spawn(index, parts, view, cpu)?);
    }
    admin::start(admin_listener, views.clone()).map_err(host("starting the administration thread"))?;
    wait_for_signal(signals, &views, election_min + STOP_WITHIN)?;
    for executor in executors {
        match executor.join() {
            Ok(result) => result?,
            Err(error) => return Err(ServeError::Executor(error.to_string())),
        }
    }
    tracing::info!("stopped");
    Ok(())
}

type Executor = glommio::ExecutorJoinHandle<Result<(), CoreError>>;

fn spawn(index: usize, parts: CoreParts, view: CoreView, cpu: Option<usize>) -> Result<Executor, ServeError> {
    let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
    let run = move || async move {
        view.heartbeat.start();
        let result = match Core::new(parts).await {
            Ok(core) => core.run().await,
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            // The main thread waits for a signal; nobody would hear it otherwise.
            fatal(&error.to_string());
        }
        result
    };
    LocalExecutorBuilder::new(placement)
        .name(&format!("core-{index}"))
        .io_memory(IO_MEMORY)
        .spawn(run)
        .map_err(|e| ServeError::Executor(e.to_string()))
}

/// Waits for SIGTERM or SIGINT and passes it on; a second one, or patience running out, ends the
/// process.
fn wait_for_signal(
    mut signals: signal_hook::iterator::Signals,
    cores: &[CoreView],
    patience: Duration,
) -> Result<(), ServeError> {
    let Some(signal) = signals.forever().next() else { return Ok(()) };
    tracing::info!(signal, "asked to stop");
    for core in cores {
        // A core that has ended needs no telling.
        let _ = core.outside.send_blocking(Outside::Stop);
    }
    let impatient = move || {
        std::thread::spawn(move || {
            signals.forever().next();
            std::process::exit(EXIT_FATAL)
        });
        std::thread::sleep(patience);
        tracing::error!("the executors do not end");
        std::process::exit(EXIT_FATAL)
    };
    let spawned = std::thread::Builder::new().name("stop".into()).spawn(impatient);
    spawned.map(drop).map_err(|error| ServeError::Host { what: "starting a thread", error })
}

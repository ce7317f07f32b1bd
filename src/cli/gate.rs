//! `palisade gate`: the only writer of a resource that cannot check a fence.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use palisade_fence::{ClusterIdentity, Epoch, Key, NotLowered, PublicKey, RedbLedger, Verifier};
use palisade_gate::{Config, Gate, GateError, Route, Upstream};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::args::duration;
use super::exit::{self, Failure};

#[derive(Args, Debug)]
pub(crate) struct GateArgs {
    /// The resource, as http://HOST:PORT or with a path. Nobody else may be able to write to it.
    #[arg(long, value_name = "URL", env = "PALISADE_GATE_UPSTREAM", required_unless_present = "lower_floor")]
    upstream: Option<Upstream>,
    /// Where to listen.
    #[arg(long, value_name = "IP:PORT", env = "PALISADE_GATE_LISTEN", default_value = "127.0.0.1:7600")]
    listen: SocketAddr,
    /// Where to serve /metrics and /healthz [default: the port plus 100, on loopback].
    #[arg(long, value_name = "IP:PORT", env = "PALISADE_GATE_ADMIN")]
    admin: Option<SocketAddr>,
    /// The directory of its ledger. Losing it lets replaced holders in.
    #[arg(long, value_name = "DIR", env = "PALISADE_GATE_DIR")]
    dir: PathBuf,
    /// Paths that begin so are protected by this key, and no others can be written. Repeat it for more.
    /// Without it each request may show a fence of whatever key.
    #[arg(long, value_name = "/PATH=KEY")]
    protect: Vec<Route>,
    /// Take only fences that the cluster has signed: a public key in PEM, the one that belongs to fence_signing_key.
    /// Repeat it while the key is replaced, so that both are accepted.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    require_signed: Vec<PathBuf>,
    /// The cluster whose signatures are taken, as `palisade status` shows it.
    #[arg(long, value_name = "IDENTITY", env = "PALISADE_GATE_CLUSTER", requires = "require_signed")]
    cluster: Option<ClusterIdentity>,
    /// Want a fence also for GET, HEAD and OPTIONS.
    #[arg(long)]
    fence_reads: bool,
    /// How long to wait for the beginning of the resource's answer; beyond it the outcome is unknown.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    answer_within: Duration,
    /// How long the resource may still act on a request that the gate has lost sight of: for so long no
    /// higher epoch passes.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    upstream_max: Duration,
    /// How many requests of one key may wait for their turn.
    #[arg(long, value_name = "N", default_value_t = 100)]
    queue: usize,
    /// For how long they wait.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    queue_within: Duration,
    /// The longest body of a request, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    body_max: usize,
    /// The most requests under way at once.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    requests_max: usize,
    /// Do not serve: lower the floor of this key in the ledger, which an invented epoch has raised. For people, while
    /// nobody writes and the gate does not run.
    #[arg(long, value_name = "KEY", requires = "to")]
    lower_floor: Option<String>,
    /// What to lower it to: the last epoch that was granted, as `palisade describe KEY` shows it.
    #[arg(long, value_name = "EPOCH", requires = "lower_floor")]
    to: Option<u64>,
    /// Allow listening beyond loopback: there are no credentials yet.
    #[arg(long)]
    insecure: bool,
}

/// Serves until SIGTERM or SIGINT, then finishes what is under way.
pub(crate) async fn run(args: GateArgs) -> Result<u8, Failure> {
    if let (Some(key), Some(to)) = (&args.lower_floor, args.to) {
        let key = Key::new(key).map_err(|e| Failure::usage(format!("--lower-floor: {e}")))?;
        return lower_floor(&args.dir, &key, Epoch(to));
    }
    let Some(upstream) = args.upstream else { return Err(Failure::usage("give --upstream")) };
    let require_signed = verifier(&args.require_signed, args.cluster)?;
    let admin = match args.admin {
        Some(admin) => admin,
        None => {
            let port = args.listen.port().checked_add(100);
            let port = port.ok_or_else(|| Failure::usage("the port plus 100 is no port: give --admin"))?;
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        }
    };
    for address in [args.listen, admin] {
        if !address.ip().is_loopback() && !args.insecure {
            let why = format!(
                "{address} is not loopback, and whoever reaches the gate may write: give --insecure if that is wanted"
            );
            return Err(Failure::new(exit::CONFIG, why));
        }
    }
    if args.upstream_max < args.answer_within {
        return Err(Failure::usage("--upstream-max is at least --answer-within"));
    }
    std::fs::create_dir_all(&args.dir)
        .map_err(|e| Failure::new(exit::CONFIG, format!("cannot make {}: {e}", args.dir.display())))?;
    let (listener, admin) = (listen(args.listen).await?, listen(admin).await?);
    let stop = stopped()?;
    let config = Config {
        upstream,
        ledger: args.dir.join(LEDGER),
        routes: args.protect,
        require_signed,
        fence_reads: args.fence_reads,
        answer_within: args.answer_within,
        upstream_max: args.upstream_max,
        queue: args.queue,
        queue_within: args.queue_within,
        body_max: args.body_max,
        requests_max: args.requests_max,
    };
    let gate = Gate::open(config).map_err(|e| failure(&e))?;
    let mut out = std::io::stdout();
    // Nobody may be there to read it.
    let _ = writeln!(out, "ready: {}", args.listen).and_then(|()| out.flush());
    gate.serve(listener, admin, stop).await.map_err(|e| failure(&e))?;
    Ok(0)
}

/// The ledger's file in its directory.
const LEDGER: &str = "ledger.redb";

/// Reads the public keys, if signatures are wanted.
fn verifier(files: &[PathBuf], cluster: Option<ClusterIdentity>) -> Result<Option<Verifier>, Failure> {
    let Some(cluster) = cluster else { return Ok(None) };
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).map_err(|e| e.to_string());
        let key = text.and_then(|text| PublicKey::from_pem(&text).map_err(|e| e.to_string()));
        key.map_err(|why| Failure::new(exit::CONFIG, format!("--require-signed: {}: {why}", file.display())))
    };
    let keys = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Verifier::new(cluster, keys).map(Some).map_err(|e| Failure::usage(format!("--require-signed: {e}")))
}

/// Mends a floor that is too high.
fn lower_floor(dir: &Path, key: &Key, to: Epoch) -> Result<u8, Failure> {
    let path = dir.join(LEDGER);
    if !path.is_file() {
        return Err(Failure::new(exit::CONFIG, format!("{}: there is no ledger", path.display())));
    }
    let ledger = RedbLedger::open(&path).map_err(|e| failure(&GateError::Ledger(e)))?;
    match ledger.lower_floor(key, to) {
        Ok(before) => {
            // Nobody may be there to read it.
            let _ = writeln!(std::io::stdout(), "the floor of {key} was {before} and is {to}");
            Ok(0)
        }
        Err(e @ NotLowered::NotAbove { .. }) => Err(Failure::new(exit::REFUSED, e.to_string())),
        Err(NotLowered::Ledger(e)) => Err(failure(&GateError::Ledger(e))),
    }
}

fn failure(error: &GateError) -> Failure {
    let code = match error {
        GateError::Ledger(_) => exit::CONFIG,
        GateError::Io(_) => exit::OS,
    };
    Failure::new(code, error.to_string())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .await
        .map_err(|e| Failure::new(exit::CONFIG, format!("cannot listen on {address}: {e}")))
}

fn stopped() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let watch = |kind| signal(kind).map_err(|e| Failure::new(exit::OS, format!("cannot watch signals: {e}")));
    let (mut term, mut int) = (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

//! A node's configuration: `palisade.toml` in its directory. What all nodes must agree on (limits,
//! members, shards) is not here but in the directory's identity; see [`crate::format`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use palisade_types::NodeId;
use serde::Deserialize;

/// The name of the file.
pub const FILE: &str = "palisade.toml";
/// The administration port is the client port plus this.
pub const ADMIN_PORT_OFFSET: u16 = 100;

const KEYS: [&str; 22] = [
    "listen",
    "peers",
    "cores",
    "insecure",
    "log",
    "log_bytes_max",
    "segment_bytes",
    "snapshot_bytes",
    "heartbeat_ms",
    "election_min_ms",
    "election_max_ms",
    "lease_reads",
    "connections_max",
    "inflight_max",
    "hello_timeout_ms",
    "clients_per_turn",
    "batch_gap_us",
    "batch_commands",
    "watches_max",
    "watches_per_connection",
    "watch_history",
    "fence_signing_key",
];

/// Why a configuration is refused. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {error}")]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no TOML, or a value has the wrong type.
    #[error("{file}: {message}")]
    Syntax {
        /// Which.
        file: PathBuf,
        /// What, where.
        message: String,
    },
    /// A key nobody knows.
    #[error("{file}: unknown key `{key}`{}", Suggest(key))]
    UnknownKey {
        /// Which.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// A value makes no sense.
    #[error("{file}: `{key}` {why}")]
    Value {
        /// Which.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The node would be reachable from elsewhere, and nothing says that this is wanted.
    #[error(
        "{file}: `listen` is {listen}, which is reachable from other hosts, and there are no credentials: \
         set `insecure = true` if that is what you want"
    )]
    Exposed {
        /// Which.
        file: PathBuf,
        /// The address.
        listen: SocketAddr,
    },
}

struct Suggest<'a>(&'a str);

impl std::fmt::Display for Suggest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "; known keys: {}", KEYS.join(", "))?;
        match KEYS.iter().find(|k| k.eq_ignore_ascii_case(&self.0.replace('-', "_"))) {
            Some(near) => write!(f, " (did you mean `{near}`?)"),
            None => Ok(()),
        }
    }
}

/// The configuration of a node, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where clients and peers connect.
    pub listen: SocketAddr,
    /// Where each member is reached, this node included: `host:port`.
    pub peers: BTreeMap<NodeId, String>,
    /// CPUs to pin the executors to; empty means one executor that the kernel places.
    pub cores: Vec<usize>,
    /// Allows listening beyond loopback without credentials.
    pub insecure: bool,
    /// What is logged, as a filter of `tracing` (`info`, `palisade=debug`); RUST_LOG wins.
    pub log: String,
    /// Beyond so many bytes of log new proposals are refused with `QuotaExceeded`.
    pub log_bytes_max: u64,
    /// The size of a segment of the log, in bytes; a multiple of 1 MiB.
    pub segment_bytes: u64,
    /// A snapshot is taken whenever so many bytes of log have been applied since the last one, and the log is cut behind the
    /// one before it. Should be equal on all nodes: then they take theirs at the same places.
    pub snapshot_bytes: u64,
    /// How often a leader is heard.
    pub heartbeat: Duration,
    /// The shortest silence of a leader before an election.
    pub election_min: Duration,
    /// The longest.
    pub election_max: Duration,
    /// Whether a leader may answer reads that ask for it by its lease: at once, without asking the others.
    /// They are then as good as the hosts' clocks (rates within a tenth of each other while an election
    /// timeout lasts, and no pause that a hypervisor hides from the clock). Must be equal on all nodes,
    /// as the election timeouts must be: with it, a node that starts grants no vote for `election_min`.
    pub lease_reads: bool,
    /// Connections of clients served at once; more are closed as they come.
    pub connections_max: usize,
    /// Requests in flight per connection; beyond them the server stops reading.
    pub inflight_max: usize,
    /// How long a new connection may take to introduce itself.
    pub hello_timeout: Duration,
    /// Sockets served in one turn of the loop: the knob between latency of the log and throughput.
    pub clients_per_turn: usize,
    /// Under load a batch is sealed so long after the one before (up to twice as long where the disk
    /// is slow), or …
    pub batch_gap: Duration,
    /// … once it holds so many commands, whichever comes first. At light load it is sealed at once.
    pub batch_commands: u32,
    /// Watches served at once; more are refused with `QuotaExceeded`.
    pub watches_max: usize,
    /// Watches of one connection.
    pub watches_per_connection: usize,
    /// Events kept for watches that come back.
    pub watch_history: usize,
    /// The private key that fences are signed with, if they are: a file as `openssl genpkey -algorithm ed25519` makes it, whose
    /// path starts at the node's directory unless it is absolute. All nodes of a cluster have the same key.
    pub fence_signing_key: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    listen: String,
    peers: BTreeMap<String, String>,
    cores: Vec<usize>,
    insecure: bool,
    log: String,
    log_bytes_max: u64,
    segment_bytes: u64,
    snapshot_bytes: u64,
    heartbeat_ms: u64,
    election_min_ms: u64,
    election_max_ms: u64,
    lease_reads: bool,
    connections_max: usize,
    inflight_max: usize,
    hello_timeout_ms: u64,
    clients_per_turn: usize,
    batch_gap_us: u64,
    batch_commands: usize,
    watches_max: usize,
    watches_per_connection: usize,
    watch_history: usize,
    fence_signing_key: String,
}

impl Default for Raw {
    fn default() -> Raw {
        Raw {
            listen: String::new(),
            peers: BTreeMap::new(),
            cores: Vec::new(),
            insecure: false,
            log: "info".to_owned(),
            log_bytes_max: 8 << 30,
            segment_bytes: 32 << 20,
            snapshot_bytes: 64 << 20,
            heartbeat_ms: 100,
            election_min_ms: 1_000,
            election_max_ms: 2_000,
            lease_reads: false,
            connections_max: 100_000,
            inflight_max: 1_024,
            hello_timeout_ms: 5_000,
            clients_per_turn: 48,
            batch_gap_us: 2_500,
            batch_commands: 512,
            watches_max: 200_000,
            watches_per_connection: 1_000,
            watch_history: 100_000,
            fence_signing_key: String::new(),
        }
    }
}

impl Config {
    /// Reads and checks `DIR/palisade.toml`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(dir: &Path) -> Result<Config, ConfigError> {
        let file = dir.join(FILE);
        match std::fs::read_to_string(&file) {
            Ok(text) => Config::parse(&file, &text),
            Err(error) => Err(ConfigError::Read { file, error }),
        }
    }

    /// Checks the text of a configuration; `file` is for the messages.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
        let syntax = |e: toml::de::Error| ConfigError::Syntax {
            file: file.to_owned(),
            message: e.to_string().trim_end().to_owned(),
        };
        let table: toml::Table = toml::from_str(text).map_err(syntax)?;
        if let Some(key) = table.keys().find(|k| !KEYS.contains(&k.as_str())) {
            return Err(ConfigError::UnknownKey { file: file.to_owned(), key: key.clone() });
        }
        // From the text again, so that a wrong type is reported with its line.
        let raw: Raw = toml::from_str(text).map_err(syntax)?;
        raw.check(file)
    }
}

impl Raw {
    /// Sizes of the log and of what goes with it.
    fn check_sizes(&self) -> Result<(), (&'static str, String)> {
        if self.segment_bytes < 1 << 20
            || self.segment_bytes > 1 << 30
            || !self.segment_bytes.is_multiple_of(1 << 20)
        {
            let why =
                format!("is {}: it must be a multiple of 1 MiB, from 1 MiB to 1 GiB", self.segment_bytes);
            return Err(("segment_bytes", why));
        }
        if !(64 << 10..=1 << 40).contains(&self.snapshot_bytes) {
            let why = format!("is {}: it must lie in 64 KiB to 1 TiB", self.snapshot_bytes);
            return Err(("snapshot_bytes", why));
        }
        if self.log_bytes_max < 4 * self.segment_bytes {
            return Err(("log_bytes_max", "must be at least four segments".into()));
        }
        Ok(())
    }

    fn check(self, file: &Path) -> Result<Config, ConfigError> {
        let value = |key: &'static str, why: String| ConfigError::Value { file: file.to_owned(), key, why };
        if self.listen.is_empty() {
            return Err(value(
                "listen",
                "is missing: an address and a port, such as \"127.0.0.1:7401\"".into(),
            ));
        }
        let listen: SocketAddr = self.listen.parse().map_err(|_| {
            value("listen", format!("is \"{}\": it must be an IP address and a port", self.listen))
        })?;
        if listen.port() == 0 || listen.port().checked_add(ADMIN_PORT_OFFSET).is_none() {
            let why = format!(
                "has port {}: it must lie in 1 to 65435, the administration port is 100 above",
                listen.port()
            );
            return Err(value("listen", why));
        }
        if !listen.ip().is_loopback() && !self.insecure {
            return Err(ConfigError::Exposed { file: file.to_owned(), listen });
        }
        self.check_sizes().map_err(|(key, why)| value(key, why))?;
        let mut peers = BTreeMap::new();
        for (id, address) in self.peers {
            let number = id.parse::<u32>().ok().filter(|n| *n > 0);
            let node = number
                .ok_or_else(|| value("peers", format!("has the key `{id}`: node ids are numbers from 1")))?;
            check_address(&address)
                .map_err(|why| value("peers", format!("has \"{address}\" for node {id}: {why}")))?;
            peers.insert(NodeId(node), address);
        }
        if peers.is_empty() {
            return Err(value("peers", "is missing: the address of every member".into()));
        }
        if self.cores.len() > 1 {
            return Err(value("cores", "names several CPUs: this version runs one core a node".into()));
        }
        if self.heartbeat_ms < 10 || self.election_min_ms < 5 * self.heartbeat_ms {
            let why = "must be at least five heartbeats, and a heartbeat at least 10 ms".into();
            return Err(value("election_min_ms", why));
        }
        if self.election_max_ms < self.election_min_ms + self.heartbeat_ms || self.election_max_ms > 600_000 {
            let why = "must be a heartbeat above `election_min_ms` or more, and at most 600000".into();
            return Err(value("election_max_ms", why));
        }
        for (key, n, max) in [
            ("connections_max", self.connections_max, 1_000_000),
            ("inflight_max", self.inflight_max, 65_536),
            ("clients_per_turn", self.clients_per_turn, 1_024),
            ("batch_commands", self.batch_commands, palisade_types::block::COMMANDS_MAX),
            ("watches_max", self.watches_max, 10_000_000),
            ("watches_per_connection", self.watches_per_connection, 1_000_000),
            ("watch_history", self.watch_history, 100_000_000),
        ] {
            if n == 0 || n > max {
                return Err(value(key, format!("is {n}: it must lie in 1 to {max}")));
            }
        }
        if !(10..=600_000).contains(&self.hello_timeout_ms) {
            return Err(value("hello_timeout_ms", "must lie in 10 to 600000".into()));
        }
        if self.batch_gap_us > 100_000 {
            return Err(value("batch_gap_us", "must lie in 0 to 100000".into()));
        }
        Ok(Config {
            listen,
            peers,
            cores: self.cores,
            insecure: self.insecure,
            log: self.log,
            log_bytes_max: self.log_bytes_max,
            segment_bytes: self.segment_bytes,
            snapshot_bytes: self.snapshot_bytes,
            heartbeat: Duration::from_millis(self.heartbeat_ms),
            election_min: Duration::from_millis(self.election_min_ms),
            election_max: Duration::from_millis(self.election_max_ms),
            lease_reads: self.lease_reads,
            connections_max: self.connections_max,
            inflight_max: self.inflight_max,
            hello_timeout: Duration::from_millis(self.hello_timeout_ms),
            clients_per_turn: self.clients_per_turn,
            batch_gap: Duration::from_micros(self.batch_gap_us),
            // Bounded above.
            batch_commands: self.batch_commands as u32,
            watches_max: self.watches_max,
            watches_per_connection: self.watches_per_connection,
            watch_history: self.watch_history,
            fence_signing_key: Some(PathBuf::from(self.fence_signing_key))
                .filter(|p| !p.as_os_str().is_empty()),
        })
    }
}

/// Checks the form of `host:port`.
///
/// # Errors
/// Says what is wrong.
pub fn check_address(address: &str) -> Result<(), String> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err("it must be host:port".into());
    };
    if host.is_empty() || host.contains(char::is_whitespace) || host.contains(char::is_control) {
        return Err("the host is missing or malformed".into());
    }
    match port.parse::<u16>() {
        Ok(n) if n > 0 => Ok(()),
        _ => Err("the port must lie in 1 to 65535".into()),
    }
}

/// The file `format` writes: what must be there, and every default as a comment.
pub fn template(listen: SocketAddr, insecure: bool, peers: &BTreeMap<NodeId, String>) -> String {
    let d = Raw::default();
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = out.write_fmt(text);
        out.push('\n');
    };
    line(format_args!("# One node of a Palisade cluster. Unknown keys are refused."));
    line(format_args!(
        "# Clients and peers connect here; the administration port is {ADMIN_PORT_OFFSET} above."
    ));
    line(format_args!("listen = \"{listen}\""));
    line(format_args!("# Must be true to listen beyond loopback: there are no credentials yet."));
    line(format_args!("insecure = {insecure}"));
    line(format_args!(""));
    line(format_args!("# The CPU to pin the executor to; none: the kernel places it."));
    line(format_args!("# cores = []"));
    line(format_args!("# What is logged to stderr, as a tracing filter; RUST_LOG wins."));
    line(format_args!("# log = \"{}\"", d.log));
    line(format_args!("# Beyond so many bytes of log new proposals are refused."));
    line(format_args!("# log_bytes_max = {}", d.log_bytes_max));
    line(format_args!("# segment_bytes = {}", d.segment_bytes));
    line(format_args!("# A snapshot of the state is taken after so many bytes of log: equal on all nodes."));
    line(format_args!("# snapshot_bytes = {}", d.snapshot_bytes));
    line(format_args!(
        "# These four must be equal on all nodes. With lease_reads a leader answers reads that ask for it"
    ));
    line(format_args!("# without asking the others: as right as the hosts' clocks are."));
    line(format_args!("# heartbeat_ms = {}", d.heartbeat_ms));
    line(format_args!("# election_min_ms = {}", d.election_min_ms));
    line(format_args!("# election_max_ms = {}", d.election_max_ms));
    line(format_args!("# lease_reads = {}", d.lease_reads));
    line(format_args!("# connections_max = {}", d.connections_max));
    line(format_args!("# inflight_max = {}", d.inflight_max));
    line(format_args!("# hello_timeout_ms = {}", d.hello_timeout_ms));
    line(format_args!("# clients_per_turn = {}", d.clients_per_turn));
    line(format_args!(
        "# Under load a batch of the log closes after so long (on a slow disk up to four times) or with so many"
    ));
    line(format_args!("# commands: latency against CPU."));
    line(format_args!("# batch_gap_us = {}", d.batch_gap_us));
    line(format_args!("# batch_commands = {}", d.batch_commands));
    line(format_args!("# watches_max = {}", d.watches_max));
    line(format_args!("# watches_per_connection = {}", d.watches_per_connection));
    line(format_args!("# Events kept for watches that come back, about 80 bytes each."));
    line(format_args!("# watch_history = {}", d.watch_history));
    line(format_args!(
        "# The private key that fences are signed with, the same on all nodes, for their owner's eyes only (mode"
    ));
    line(format_args!(
        "# 0600): `openssl genpkey -algorithm ed25519 -out FILE`. Without one they are not signed."
    ));
    line(format_args!("# fence_signing_key = \"{}\"", d.fence_signing_key));
    line(format_args!(""));
    line(format_args!("# Where each member is reached, this node included."));
    line(format_args!("[peers]"));
    for (id, address) in peers {
        line(format_args!("{id} = \"{address}\""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "listen = \"127.0.0.1:7401\"\n[peers]\n1 = \"127.0.0.1:7401\"\n2 = \"db2.example:7401\"\n";

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("palisade.toml"), text)
    }

    #[test]
    fn the_template_parses_to_the_defaults() {
        let peers =
            BTreeMap::from([(NodeId(1), "127.0.0.1:7401".to_owned()), (NodeId(2), "h:7402".to_owned())]);
        let config = parse(&template("127.0.0.1:7401".parse().unwrap(), false, &peers)).unwrap();
        assert_eq!(config.peers, peers);
        assert_eq!(config.log_bytes_max, 8 << 30);
        assert_eq!((config.heartbeat, config.cores.len()), (Duration::from_millis(100), 0));
    }

    #[test]
    fn every_default_in_the_template_is_the_default() {
        let peers = BTreeMap::from([(NodeId(1), "127.0.0.1:7401".to_owned())]);
        let text = template("127.0.0.1:7401".parse().unwrap(), false, &peers);
        let spelled: String = text
            .lines()
            .map(|l| l.strip_prefix("# ").filter(|r| r.contains(" = ")).unwrap_or(l))
            .map(|l| format!("{l}\n"))
            .collect();
        assert_ne!(text, spelled);
        assert_eq!(parse(&text).unwrap(), parse(&spelled).unwrap());
        for key in KEYS {
            assert!(
                spelled.contains(&format!("\n{key} = ")) || key == "peers",
                "{key} is not in the template"
            );
        }
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let error = parse(&format!("listten = 1\n{GOOD}")).unwrap_err();
        assert!(matches!(&error, ConfigError::UnknownKey { key, .. } if key == "listten"), "{error}");
        assert!(
            parse(&format!("segment-bytes = 1\n{GOOD}"))
                .unwrap_err()
                .to_string()
                .contains("`segment_bytes`?")
        );
    }

    #[test]
    fn a_wrong_type_is_reported_with_its_line() {
        let error = parse(&format!("insecure = 3\n{GOOD}")).unwrap_err();
        assert!(matches!(error, ConfigError::Syntax { .. }));
        assert!(error.to_string().contains("line 1"), "{error}");
        assert!(matches!(parse("listen = ").unwrap_err(), ConfigError::Syntax { .. }));
    }

    #[test]
    fn nothing_listens_beyond_loopback_unless_the_configuration_says_insecure() {
        for exposed in ["0.0.0.0:7401", "192.0.2.1:7401", "[::]:7401"] {
            let text = GOOD.replace("listen = \"127.0.0.1:7401\"", &format!("listen = \"{exposed}\""));
            assert!(matches!(parse(&text).unwrap_err(), ConfigError::Exposed { .. }), "{exposed}");
            assert!(parse(&format!("insecure = true\n{text}")).unwrap().insecure);
        }
        assert!(parse(&GOOD.replace("listen = \"127.0.0.1:7401\"", "listen = \"[::1]:7401\"")).is_ok());
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_their_key() {
        for (extra, expected) in [
            ("cores = [0, 1]", "cores"),
            ("segment_bytes = 1000", "segment_bytes"),
            ("log_bytes_max = 1048576", "log_bytes_max"),
            ("election_min_ms = 100", "election_min_ms"),
            ("election_max_ms = 1000", "election_max_ms"),
            ("inflight_max = 0", "inflight_max"),
            ("connections_max = 0", "connections_max"),
            ("clients_per_turn = 5000", "clients_per_turn"),
            ("hello_timeout_ms = 1", "hello_timeout_ms"),
        ] {
            match parse(&format!("{extra}\n{GOOD}")).unwrap_err() {
                ConfigError::Value { key, .. } => assert_eq!(key, expected),
                other => panic!("{extra}: {other}"),
            }
        }
        for bad in [
            "",
            "listen = \"localhost:7401\"",
            "listen = \"127.0.0.1:65500\"",
            "listen = \"127.0.0.1:7401\"",
            "listen = \"127.0.0.1:7401\"\n[peers]\nx = \"a:1\"",
            "listen = \"127.0.0.1:7401\"\n[peers]\n0 = \"a:1\"",
            "listen = \"127.0.0.1:7401\"\n[peers]\n1 = \"a\"",
            "listen = \"127.0.0.1:7401\"\n[peers]\n1 = \"a:0\"",
        ] {
            assert!(matches!(parse(bad).unwrap_err(), ConfigError::Value { .. }), "{bad}");
        }
    }
}

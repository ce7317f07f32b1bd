//! The argument tree. Every global flag has an environment variable.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};
use palisade_types::limits::PAGE_ROWS_MAX;

/// Locks that carry a fence: a durable, replicated lock service.
#[derive(Parser, Debug)]
#[command(name = "palisade", version, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb understands.
#[derive(Args, Debug, Clone)]
pub(crate) struct Global {
    /// The nodes of the cluster, HOST:PORT with commas between.
    #[arg(
        long,
        global = true,
        env = "PALISADE_ENDPOINTS",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403"
    )]
    pub(crate) endpoints: Vec<String>,
    /// Print JSON, one object a line.
    #[arg(long, global = true, env = "PALISADE_JSON", value_parser = clap::builder::BoolishValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub(crate) json: bool,
    /// How long to wait for a usable cluster before giving up with status 69.
    #[arg(long, global = true, env = "PALISADE_TIMEOUT", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// What to log on stderr: error, warn, info, debug, or a filter such as palisade_client=debug
    /// [default: error; for `serve` what its configuration says].
    #[arg(long, global = true, env = "PALISADE_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// See in half a minute what a lock cannot do and a fence can: a paused worker, its late write, and a file.
    Demo,
    #[command(name = super::demo::WORKER, hide = true)]
    DemoWorker(super::demo::worker::WorkerArgs),
    /// Run a durable cluster on this machine: processes on loopback, supervised.
    Dev(DevArgs),
    /// Make the directory of one node.
    Format(FormatArgs),
    /// Run one node; its configuration is DIR/palisade.toml.
    Serve(ServeArgs),
    /// Hold a lock while a command runs.
    Lock(LockArgs),
    /// Campaign in an election, and lead while this process, or a command, runs.
    Elect(ElectArgs),
    /// Inside a command that `lock`, `elect` or `put` runs: status 0 while it still holds what it was given.
    Check(CheckArgs),
    /// Give an ephemeral key a value, for as long as this process, or a command, runs.
    Put(PutArgs),
    /// Print the value of an ephemeral key; status 1 when there is none.
    Get(GetArgs),
    /// List the ephemeral keys with a prefix.
    Ls(LsArgs),
    /// Tell all about one key.
    Describe(DescribeArgs),
    /// List the keys that have a record.
    Locks(LocksArgs),
    /// List the live sessions.
    Sessions(SessionsArgs),
    /// List the resources that locks protect, each with its keys: more than one are a conflict.
    Resources(ResourcesArgs),
    /// Print what changes, until signalled: first the present state, then every grant and release.
    Watch(WatchArgs),
    /// Print who leads an election and what the leader says, at first and whenever it changes, until
    /// signalled.
    Observe(ObserveArgs),
    /// Ask each endpoint what it says of itself.
    Status,
    /// End the sessions of an owner that is dead for certain, without waiting for their TTL.
    ReportDead(ReportDeadArgs),
    /// End a session whose owner may be alive.
    Evict(EvictArgs),
    /// Take a key from its holder, if the grant with this epoch still holds it.
    ForceRelease(ForceReleaseArgs),
    /// Forget the record of a key that nobody holds or awaits, and with it the key's class and its claims to
    /// resources.
    Retire(RetireArgs),
    /// Hand leadership to another node: before the leader's host is restarted, say. A leader that is
    /// stopped by SIGTERM does so by itself.
    Transfer(TransferArgs),
    /// List what operators did, and why: the last 1,000 actions, oldest first.
    Acts(ActsArgs),
    /// Stand before an HTTP resource that cannot check a fence, as its only writer.
    Gate(super::gate::GateArgs),
    /// Examine this host before a node runs on it: status 1, and what to change, when it should not.
    Doctor(DoctorArgs),
    /// Look at the log and the snapshots of a node that is stopped.
    Log(LogArgs),
}

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// Keys that begin so; all keys if it is empty.
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Only the key of exactly this name.
    #[arg(long, conflicts_with = "sessions")]
    pub(crate) key: bool,
    /// Sessions instead of keys.
    #[arg(long, conflicts_with = "prefix")]
    pub(crate) sessions: bool,
    /// Go on behind this cursor, instead of beginning with the present state.
    #[arg(long, value_name = "CURSOR", conflicts_with = "now")]
    pub(crate) from: Option<String>,
    /// Leave the present state out.
    #[arg(long)]
    pub(crate) now: bool,
    /// Print also how far has been seen while nothing changes.
    #[arg(long)]
    pub(crate) progress: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ObserveArgs {
    /// The name of the election.
    pub(crate) name: String,
    /// Go on behind this cursor, instead of beginning with the present state.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) from: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Where a node's data lies or will lie [default: where `dev` keeps its nodes].
    pub(crate) dir: Option<PathBuf>,
    /// Leave out the measurement of the disk.
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DevArgs {
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub(crate) nodes: u32,
    /// Where the nodes keep their directories [default: palisade/dev in the user's state directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Node i listens on this port plus i.
    #[arg(long, value_name = "PORT", default_value_t = 7400, value_parser = clap::value_parser!(u16).range(1..=65400))]
    pub(crate) port: u16,
    /// Wipe the nodes' directories first: only what bears the identity of a Palisade node.
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FormatArgs {
    /// The name of the cluster: part of its identity.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: String,
    /// This node's number, one of those in --peers.
    #[arg(long, value_name = "ID")]
    pub(crate) node: u32,
    /// All initial members with their addresses, this one included: 1=HOST:PORT,2=HOST:PORT,…
    #[arg(long, value_name = "LIST")]
    pub(crate) peers: String,
    /// How many shards the cluster has, for ever.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) shards: u32,
    /// Where this node listens [default: its address in --peers].
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Allow listening beyond loopback: there are no credentials yet.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The directory: missing or empty.
    pub(crate) dir: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    pub(crate) verb: LogVerb,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LogVerb {
    /// Show what the directory holds, and what a start would make of it. Status 78 if it would be refused.
    Inspect(ServeArgs),
    /// Read and check everything. Status 0: a start finds nothing to repair. 1: a start would mend it, or
    /// something not needed now is damaged. 78: a start is refused.
    Verify(ServeArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The node's directory, made by `palisade format`.
    pub(crate) dir: PathBuf,
}

/// The session that keeps what a command is given.
#[derive(Args, Debug)]
pub(crate) struct SessionArgs {
    /// The session's time to live: 500ms to 1h. So long, and a little more, a killed process leaves behind what it had.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Who we are, for others to read [default: HOST:PID].
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// After a loss the command gets SIGTERM, and SIGKILL so much later, or sooner where the lease ends sooner.
    /// When it has ended, what it left behind may run on for so long. A signal that is handed on is no loss.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) kill_after: Duration,
}

/// What to do while somebody else has it. The letters are those of flock(1).
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("waiting").args(["no_wait", "wait"]))]
pub(crate) struct WaitArgs {
    /// Do not wait: fail at once when somebody else has it.
    #[arg(short = 'n', long = "no-wait", visible_alias = "nonblock")]
    pub(crate) no_wait: bool,
    /// Wait at most so long (seconds, or with a unit as in 500ms).
    #[arg(short = 'w', long = "wait", value_name = "SECS", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// The exit status when somebody else kept it.
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE", default_value_t = 1)]
    pub(crate) conflict_code: u8,
}

impl WaitArgs {
    /// How long to wait; none: for as long as it takes.
    pub(crate) fn time(&self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }
}

#[derive(Args, Debug)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// An exclusive lock: the default.
    #[arg(short = 'x', short_alias = 'e', long)]
    pub(crate) exclusive: bool,
    /// A shared lock: it excludes only those who want the key alone.
    #[arg(short = 's', long, conflicts_with = "exclusive")]
    pub(crate) shared: bool,
    /// Should we fall silent, keep the key closed until our death is reported or the grant is released by force.
    #[arg(long)]
    pub(crate) quarantine: bool,
    /// The resource this lock protects: show it PALISADE_FENCE with every write.
    #[arg(long, value_name = "NAME", conflicts_with = "advisory")]
    pub(crate) resource: Option<String>,
    /// Running twice is waste and no damage: no resource checks the fence.
    #[arg(long)]
    pub(crate) advisory: bool,
    /// Run no command: print one line of JSON and hold until signalled.
    #[arg(long)]
    pub(crate) hold: bool,
    /// The key.
    pub(crate) key: String,
    /// The command with its arguments, run directly and without a shell.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// What observers are shown while we lead: at most 16 KiB.
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: OsString,
    /// The election.
    pub(crate) name: String,
    /// A command to run while we lead, with its arguments; without one, until signalled.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Print how long it may still be relied upon if nothing is renewed any more, in seconds as `12.345s`.
    #[arg(long)]
    pub(crate) remaining: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The key.
    pub(crate) key: String,
    /// The value: at most 16 KiB.
    pub(crate) value: OsString,
    /// A command to run while the key is there, with its arguments; without one, until signalled.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) how: How,
    /// The key.
    pub(crate) key: String,
}

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// What the keys begin with; without it all are listed.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Start behind this key.
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) paging: Paging,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    pub(crate) how: How,
    /// The key.
    pub(crate) key: String,
}

/// How new an answer must be, and who gives it. Without any of these it is linearizable, from the leader.
#[derive(Args, Debug, Clone, Copy)]
#[command(group = clap::ArgGroup::new("how").args(["stale", "by_lease", "any_node"]))]
pub(crate) struct How {
    /// What the first endpoint that answers has applied, however old: needs no leader and no quorum. The
    /// answer says which revision it shows.
    #[arg(long)]
    pub(crate) stale: bool,
    /// What the leader says by its lease, without asking the others first, where the nodes' configuration
    /// allows that: as right as the hosts' clocks.
    #[arg(long)]
    pub(crate) by_lease: bool,
    /// As new as without it, but from whichever node answers: it asks the leader how new its answer must be.
    #[arg(long)]
    pub(crate) any_node: bool,
}

/// Where a listing starts and ends.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Paging {
    /// Stop after so many rows and say where to go on; without it everything is listed.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Rows asked for at a time.
    #[arg(long, value_name = "ROWS", default_value_t = PAGE_ROWS_MAX, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_ROWS_MAX)))]
    pub(crate) page: u32,
}

#[derive(Args, Debug)]
pub(crate) struct LocksArgs {
    /// Start behind this key.
    #[arg(long, value_name = "KEY")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) paging: Paging,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Args, Debug)]
pub(crate) struct ResourcesArgs {
    /// Only resources with more than one key: locks that do not exclude each other.
    #[arg(long)]
    pub(crate) conflicts: bool,
    /// Start behind this resource.
    #[arg(long, value_name = "RESOURCE")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) paging: Paging,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Who acts.
#[derive(Args, Debug)]
pub(crate) struct By {
    /// Who does it, for the record [default: USER@HOST].
    #[arg(long, env = "PALISADE_BY", value_name = "TEXT")]
    pub(crate) by: Option<String>,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["session", "owner"]))]
pub(crate) struct ReportDeadArgs {
    /// The session that is dead.
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// The owner that is dead: all sessions with this tag.
    #[arg(long, value_name = "TAG")]
    pub(crate) owner: Option<String>,
    /// Only this incarnation of it.
    #[arg(long, value_name = "TAG", conflicts_with = "session")]
    pub(crate) incarnation: Option<String>,
    /// Only sessions opened up to this revision, as an interrupted report has printed it [default: the
    /// present one, which is printed before anything is done].
    #[arg(long, value_name = "REVISION", conflicts_with = "session")]
    pub(crate) as_of: Option<u64>,
    /// How it is known, for the record.
    #[arg(long, value_name = "TEXT")]
    pub(crate) evidence: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Args, Debug)]
pub(crate) struct EvictArgs {
    /// The session.
    pub(crate) session: String,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Args, Debug)]
pub(crate) struct ForceReleaseArgs {
    /// The key.
    pub(crate) key: String,
    /// The epoch that `describe` shows: a later grant is spared.
    #[arg(long, value_name = "N")]
    pub(crate) epoch: u64,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Args, Debug)]
pub(crate) struct RetireArgs {
    /// The key.
    pub(crate) key: String,
    /// The last epoch that `describe` shows: a record with a later one is spared [default: the one it
    /// has now].
    #[arg(long, value_name = "N")]
    pub(crate) epoch: Option<u64>,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "none given")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Args, Debug)]
pub(crate) struct TransferArgs {
    /// The node that is to lead [default: any that is able].
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) to: Option<u32>,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "none given")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) by: By,
}

#[derive(Args, Debug)]
pub(crate) struct ActsArgs {
    /// Start behind this revision.
    #[arg(long, value_name = "REVISION", default_value_t = 0)]
    pub(crate) after: u64,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Args, Debug)]
pub(crate) struct SessionsArgs {
    /// Start behind this session.
    #[arg(long, value_name = "SESSION")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) paging: Paging,
    #[command(flatten)]
    pub(crate) how: How,
}

/// The error with the usage of its verb as `--help` shows it. As it comes, it lists what was given, also by
/// the environment, as if it were required.
pub(crate) fn with_plain_usage(
    mut error: clap::Error,
    arguments: impl IntoIterator<Item = OsString>,
) -> clap::Error {
    if error.get(ContextKind::Usage).is_none() {
        return error;
    }
    let mut tree = Cli::command();
    tree.build();
    let named = arguments.into_iter().skip(1).find(|argument| tree.find_subcommand(argument).is_some());
    let verb = named.and_then(|name| tree.find_subcommand_mut(name));
    if let Some(verb) = verb {
        let usage = verb.render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// Reads `30s`, `500ms`, `2m`, `1h`, or plain seconds with an optional fraction.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let value: f64 = number.parse().map_err(|_| "a time looks like 30s, 500ms, 2m, 1h or 1.5".to_owned())?;
    let seconds = match unit {
        "ms" => value / 1e3,
        "" | "s" => value,
        "m" => value * 60.0,
        "h" => value * 3600.0,
        _ => return Err(format!("{unit:?} is no unit of time: use ms, s, m or h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| "that is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(args: &[&str]) -> Result<LockArgs, clap::Error> {
        let all = ["palisade", "lock"].iter().chain(args);
        match Cli::try_parse_from(all)?.verb {
            Verb::Lock(l) => Ok(l),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_tree_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_global_flag_has_an_environment_variable() {
        for arg in Cli::command().get_arguments().filter(|a| a.is_global_set()) {
            assert!(arg.get_env().is_some_and(|e| e.to_string_lossy().starts_with("PALISADE_")), "{arg}");
        }
    }

    #[test]
    fn a_usage_error_shows_only_what_the_verb_needs() {
        let given = ["palisade", "--json", "--endpoints", "h:1", "retire", "--by", "me"].map(OsString::from);
        let error = Cli::try_parse_from(&given).unwrap_err();
        let text = with_plain_usage(error, given).to_string();
        assert!(text.contains("Usage: palisade retire [OPTIONS] <KEY>\n"), "{text}");
    }

    #[test]
    fn times_read_with_and_without_a_unit() {
        let ms = |text: &str| duration(text).map(|d| d.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("1.5"), Ok(1500));
        assert_eq!(ms("2m"), Ok(120_000));
        assert_eq!(ms("1h"), Ok(3_600_000));
        for bad in ["", "s", "1 s", "-1", "1d", "1.2.3", "99999999999999999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_death_report_is_about_one_session_or_one_owner() {
        let report = |args: &[&str]| {
            let all = ["palisade", "report-dead", "--evidence", "seen"].iter().chain(args);
            Cli::try_parse_from(all).is_ok()
        };
        assert!(
            report(&["--session", "0-7"]) && report(&["--owner", "x", "--incarnation", "y", "--as-of", "9"])
        );
        for bad in [
            &[][..],
            &["--session", "0-7", "--owner", "x"],
            &["--session", "0-7", "--as-of", "9"],
            &["--session", "0-7", "--incarnation", "y"],
            &["--incarnation", "y"],
        ] {
            assert!(!report(bad), "{bad:?}");
        }
    }

    #[test]
    fn lock_follows_the_letters_of_flock() {
        let l = lock(&["-xn", "-E", "7", "--advisory", "demo", "--", "sh", "-c", "exit 3"]).unwrap();
        assert!(l.exclusive && l.wait.no_wait && l.advisory);
        assert_eq!((l.wait.conflict_code, l.key.as_str(), l.command.len()), (7, "demo", 3));
        assert_eq!(
            lock(&["-w", "2.5", "k", "--", "true"]).unwrap().wait.wait,
            Some(Duration::from_millis(2500))
        );
        assert!(
            lock(&["-n", "-w", "1", "k", "--", "true"]).is_err(),
            "no wait and a wait exclude each other"
        );
        assert!(lock(&["--resource", "r", "--advisory", "k", "--", "true"]).is_err());
        let shared = lock(&["-s", "--quarantine", "--advisory", "k", "--", "true"]).unwrap();
        assert!(shared.shared && shared.quarantine && !shared.exclusive);
        assert!(lock(&["-s", "-x", "k", "--", "true"]).is_err(), "one or the other");
        let elect = ["palisade", "elect", "--value", "v", "-n", "-w", "1", "e"];
        assert!(Cli::try_parse_from(elect).is_err(), "as for a lock");
    }
}

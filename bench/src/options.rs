//! What `load` is asked to do.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use palisade_types::limits::{TTL_MAX, TTL_MIN};

use crate::error::BenchError;
use crate::work::{Mix, Work};

/// What `load` does.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadOptions {
    /// What the sessions do.
    #[arg(long, value_enum, default_value = "cycle")]
    pub(crate) mix: Mix,
    /// Sessions, spread over the connections; each has one operation under way.
    #[arg(long, default_value_t = 1000)]
    pub(crate) sessions: u32,
    /// Connections to the leader.
    #[arg(long, default_value_t = 4)]
    pub(crate) connections: u32,
    /// Different keys, all sessions together [default: 8 a session; 1 with `contend`].
    #[arg(long)]
    pub(crate) keys: Option<u32>,
    /// Picks among a session's keys with this exponent of Zipf's law; 0, all alike.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) zipf: f64,
    /// The length of a key's name.
    #[arg(long, default_value_t = 24)]
    pub(crate) key_bytes: usize,
    /// Operations a second, all sessions together, begun when they are due whether or not others are
    /// done [default: each session begins the next when the last is done].
    #[arg(long)]
    pub(crate) rate: Option<u64>,
    /// Microseconds between looks at what is due, with --rate.
    #[arg(long, default_value_t = 200)]
    pub(crate) tick_us: u64,
    /// Milliseconds a lock is held.
    #[arg(long, default_value_t = 0)]
    pub(crate) hold_ms: u64,
    /// Seconds before anything is counted.
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub(crate) warmup: Duration,
    /// Seconds that are counted.
    #[arg(long, default_value = "10", value_parser = seconds)]
    pub(crate) duration: Duration,
    /// Seconds a session outlives its last renewal.
    #[arg(long, default_value = "30", value_parser = seconds)]
    pub(crate) ttl: Duration,
    /// Seconds between renewals of a session, in the background of any work [default: a third of --ttl].
    #[arg(long, value_parser = seconds)]
    pub(crate) renew_every: Option<Duration>,
    /// Goes on when the leader changes or connections break, and judges all grants at the end.
    #[arg(long)]
    pub(crate) survive: bool,
    #[command(flatten)]
    pub(crate) target: Target,
    /// Prints one line of JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes the distribution of latencies to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) histogram: Option<PathBuf>,
    /// Says every second how it goes, also where stderr is no terminal.
    #[arg(long)]
    pub(crate) progress: bool,
}

/// The cluster that is put under load.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// Nodes of a running cluster to ask for the leader, separated by commas.
    #[arg(
        long,
        env = "PALISADE_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403"
    )]
    pub(crate) endpoints: Vec<String>,
    /// The processes of its nodes, where they run on this machine: accounts for their CPU time.
    #[arg(long, value_delimiter = ',')]
    pub(crate) pids: Vec<u32>,
    /// Starts a cluster of so many nodes for the run instead.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub(crate) nodes: Option<u32>,
    /// The server's executable, with --nodes [default: palisade beside this one].
    #[arg(long, value_name = "PATH")]
    pub(crate) palisade: Option<PathBuf>,
    /// Where that cluster keeps its data: on a disk [default: in the user's cache, removed at the end].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Its node i listens on this port plus i.
    #[arg(long, default_value_t = 7900)]
    pub(crate) port: u16,
}

/// Reads a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

/// The shortest name of a key: `bench-`, the run, the key's number.
pub(crate) const KEY_BYTES_MIN: usize = 23;
/// How many keys a session goes through unless the run says otherwise.
const KEYS_PER_SESSION: u32 = 8;

#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    options: LoadOptions,
}

impl LoadOptions {
    /// This work, against a running cluster whose nodes are these processes; all else as by default.
    pub(crate) fn of(work: &Work, endpoints: &[String], pids: &[u32]) -> LoadOptions {
        let mut options = Defaults::parse_from(["load"]).options;
        options.mix = work.mix;
        options.sessions = work.sessions;
        options.connections = work.connections;
        options.warmup = work.warmup;
        options.duration = work.duration;
        options.target.endpoints = endpoints.to_vec();
        options.target.pids = pids.to_vec();
        options
    }

    /// The work.
    pub(crate) fn work(&self) -> Work {
        Work {
            mix: self.mix,
            sessions: self.sessions,
            connections: self.connections,
            warmup: self.warmup,
            duration: self.duration,
        }
    }

    /// How many different keys there are.
    pub(crate) fn keys(&self) -> u32 {
        let default = match self.mix {
            Mix::Cycle => self.sessions.saturating_mul(KEYS_PER_SESSION),
            Mix::Contend => 1,
            Mix::Read | Mix::Renew | Mix::Session => self.sessions,
        };
        self.keys.unwrap_or(default)
    }

    /// How often a session is renewed.
    pub(crate) fn renew_every(&self) -> Duration {
        self.renew_every.unwrap_or(self.ttl / 3)
    }

    /// Says what is wrong with the options together.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let own_keys = matches!(self.mix, Mix::Cycle | Mix::Read);
        let wrong = if self.sessions == 0 || self.connections == 0 {
            "there must be sessions and connections"
        } else if self.sessions < self.connections {
            "there are more connections than sessions"
        } else if self.keys() == 0 || (own_keys && self.keys() < self.sessions) {
            "every session needs a key of its own: raise --keys"
        } else if !(KEY_BYTES_MIN..=palisade_types::name::NAME_BYTES_MAX).contains(&self.key_bytes) {
            "a key has 23 to 512 bytes here"
        } else if self.rate == Some(0) || self.tick_us == 0 {
            "the rate and the tick must be above 0"
        } else if !(TTL_MIN..=TTL_MAX).contains(&self.ttl) {
            "a TTL lies between 0.5 s and an hour"
        } else if self.renew_every().is_zero() || self.renew_every() >= self.ttl {
            "sessions must be renewed more often than they expire"
        } else if self.duration.is_zero() {
            "nothing is counted in no time: raise --duration"
        } else if !(self.zipf.is_finite() && self.zipf >= 0.0) {
            "the exponent of Zipf's law is 0 or more"
        } else {
            return Ok(());
        };
        Err(BenchError::Usage(wrong.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> LoadOptions {
        Defaults::parse_from(std::iter::once(&"load").chain(words)).options
    }

    #[test]
    fn the_defaults_are_sound_for_every_mix() {
        for mix in ["cycle", "contend", "read", "renew", "session"] {
            parse(&["--mix", mix]).check().unwrap();
        }
    }

    #[test]
    fn keys_are_per_session_unless_they_are_contended_for() {
        assert_eq!(parse(&["--sessions", "10"]).keys(), 80);
        assert_eq!(parse(&["--sessions", "10", "--mix", "contend"]).keys(), 1);
        assert_eq!(parse(&["--sessions", "10", "--mix", "contend", "--keys", "3"]).keys(), 3);
        assert_eq!(parse(&["--sessions", "10", "--mix", "read"]).keys(), 10);
    }

    #[test]
    fn options_that_make_no_sense_together_are_refused() {
        for words in [
            &["--sessions", "3", "--connections", "4"][..],
            &["--sessions", "10", "--keys", "9"],
            &["--key-bytes", "22"],
            &["--rate", "0"],
            &["--ttl", "0.1"],
            &["--ttl", "10", "--renew-every", "10"],
            &["--duration", "0"],
            &["--zipf=-1"],
        ] {
            assert!(matches!(parse(words).check(), Err(BenchError::Usage(_))), "{words:?}");
        }
    }

    #[test]
    fn another_program_part_can_ask_for_a_work() {
        let work = parse(&["--mix", "read", "--sessions", "7", "--connections", "2"]).work();
        let options = LoadOptions::of(&work, &["127.0.0.1:1".to_owned()], &[42]);
        assert_eq!((options.mix, options.sessions, options.connections), (Mix::Read, 7, 2));
        assert_eq!((options.target.pids.as_slice(), options.target.endpoints.len()), (&[42][..], 1));
        options.check().unwrap();
    }
}

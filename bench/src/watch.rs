//! `watch`: many watchers of a running cluster, beside whatever changes it (`load`, say): how many events
//! they are told, and how far apart: a delay is the time from the first watcher that hears of a
//! revision to each of the others.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use palisade_types::{RequestId, Selector};
use palisade_wire::{Frame, Kind, Push, Request, decode_reply};

use crate::changes;
use crate::error::BenchError;
use crate::hello;
use crate::pace::Clock;
use crate::poller::{Actor, Outbox, Poller, Turn};

/// Revisions whose first hearing is remembered; older ones are forgotten together.
const REVISIONS_MAX: usize = 1 << 16;
/// The longest delay that is told apart from longer ones, in nanoseconds.
const DELAY_MAX: u64 = 600_000_000_000;

/// What to watch, and how often.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatchOptions {
    /// The nodes; watchers are spread over them.
    #[arg(
        long,
        env = "PALISADE_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403"
    )]
    pub(crate) endpoints: Vec<String>,
    /// Watchers.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) watchers: u32,
    /// Connections they share, at most 1,000 watchers each.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) connections: u32,
    /// One key to watch, or with `--prefix` all keys that begin so [default: all keys].
    #[arg(long, default_value = "")]
    pub(crate) key: String,
    /// Take the key as the beginning of keys.
    #[arg(long)]
    prefix: bool,
    /// Seconds to watch for.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Changes the watched key so often a second, by acquires and releases in turn, and counts delays from
    /// when each was due [default: whatever else changes it]. Without `--key`, a key of its own.
    #[arg(long, conflicts_with = "prefix", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    changes: Option<u64>,
    /// Acquires and releases of other keys so often a second, first without the watchers and then beside
    /// them; both times say how long acquires took.
    #[arg(long, requires = "changes", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) acquires: Option<u64>,
    /// The processes of the nodes, where they run on this machine: accounts for their CPU time.
    #[arg(long, value_delimiter = ',', requires = "changes")]
    pub(crate) pids: Vec<u32>,
}

/// Watches, and says what was told.
pub(crate) fn run(options: &WatchOptions) -> Result<String, BenchError> {
    if let Some(changes) = options.changes {
        return changes::run(options, changes);
    }
    let usage = |error: palisade_types::NameError| BenchError::Usage(format!("--key: {error}"));
    let selector = match options.prefix || options.key.is_empty() {
        true => Selector::prefix(&options.key).map_err(usage)?,
        false => Selector::key(&options.key).map_err(usage)?,
    };
    let clock = Clock::start();
    let mut poller = Poller::new(clock)?;
    for n in 0..options.connections as usize {
        let (stream, rest) = hello::greeted(&options.endpoints[n % options.endpoints.len()])?;
        poller.add(stream, rest)?;
    }
    for watch in 0..u64::from(options.watchers) {
        let request = Request::Watch { watch, selector: selector.clone(), present: false, cursor: None };
        let link = (watch % u64::from(options.connections)) as usize;
        request.encode(RequestId(watch), poller.out.to(link));
    }
    let end = clock.now() + Duration::from_secs(options.seconds).as_nanos() as u64;
    let mut watchers = Watchers::new(end)?;
    poller.drive(&mut watchers)?;
    Ok(watchers.text(options))
}

struct Watchers {
    end: u64,
    standing: u32,
    events: u64,
    pushes: u64,
    coalesced: u64,
    ended: u64,
    first_heard: HashMap<u64, u64>,
    delays: Histogram<u64>,
}

impl Watchers {
    fn new(end: u64) -> Result<Watchers, BenchError> {
        let delays = Histogram::new_with_bounds(1, DELAY_MAX, 3);
        let delays = delays.map_err(|e| BenchError::Usage(e.to_string()))?;
        let first_heard = HashMap::new();
        Ok(Watchers { end, standing: 0, events: 0, pushes: 0, coalesced: 0, ended: 0, first_heard, delays })
    }

    fn heard(&mut self, push: &Push, now: u64) -> Result<(), BenchError> {
        match push {
            Push::Events { events, coalesced, .. } => {
                self.pushes += 1;
                self.coalesced += u64::from(*coalesced);
                self.events += u64::from(events.count());
                let events = events.decode().map_err(|e| BenchError::Protocol(e.to_string()))?;
                for event in events {
                    if self.first_heard.len() >= REVISIONS_MAX {
                        self.first_heard.clear();
                    }
                    let first = *self.first_heard.entry(event.revision.0).or_insert(now);
                    self.delays.saturating_record((now - first).max(1));
                }
            }
            Push::WatchEnded { .. } => self.ended += 1,
            _ => {}
        }
        Ok(())
    }

    fn text(&self, options: &WatchOptions) -> String {
        let per_second = self.events / options.seconds.max(1);
        let mut text = format!(
            "{} watchers on {} connections: {} events in {} pushes ({per_second} events/s), {} pushes coalesced, \
             {} watches ended\nafter the first watcher: ",
            self.standing, options.connections, self.events, self.pushes, self.coalesced, self.ended
        );
        for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
            let ms = self.delays.value_at_quantile(quantile) as f64 / 1e6;
            // Writing to a String cannot fail.
            let _ = write!(text, "{name} {ms:.3} ms  ");
        }
        text.trim_end().to_owned()
    }
}

impl Actor for Watchers {
    fn on_frame(
        &mut self,
        _link: usize,
        frame: &Frame<'_>,
        now: u64,
        _out: &mut Outbox,
    ) -> Result<(), BenchError> {
        let bad = |e: palisade_wire::MessageError| BenchError::Protocol(e.to_string());
        match frame.kind {
            Kind::Watching => self.standing += 1,
            Kind::Refused => match decode_reply(frame).map_err(bad)? {
                palisade_types::Reply::Refused(refusal) => return Err(refusal.into()),
                other => return Err(BenchError::Protocol(format!("{other:?}"))),
            },
            _ => self.heard(&Push::decode(frame).map_err(bad)?, now)?,
        }
        Ok(())
    }

    fn on_turn(&mut self, now: u64, _out: &mut Outbox) -> Result<Turn, BenchError> {
        Ok(if now >= self.end { Turn::Done } else { Turn::Until(self.end) })
    }
}

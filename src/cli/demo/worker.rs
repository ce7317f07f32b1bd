//! A worker of the demo, in a process of its own: told on stdin what to do next, and saying on stdout what came
//! of it. What it does is what a worker does anyway, but for the waiting in between.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use palisade_client::ClientConfig;
use palisade_client::blocking::{Client, Guard, Session};
use palisade_fence::Fence;
use serde::{Deserialize, Serialize};

use super::super::args::Global;
use super::super::exit::{self, Failure};
use super::books::{Books, Verdict};

/// What the lock protects, and its key.
pub(super) const KEY: &str = "accounts/7";
const RESOURCE: &str = "demo-accounts.db";
/// How long a paused worker keeps its lock, and a little more.
pub(super) const TTL: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// What it is called.
    #[arg(long)]
    name: String,
    /// By how much it changes the balance.
    #[arg(long, allow_negative_numbers = true)]
    amount: i64,
    /// Show the fence with the write.
    #[arg(long)]
    fenced: bool,
    /// The file.
    #[arg(long)]
    books: PathBuf,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Take the lock.
    Lock,
    /// Look into the books.
    Read,
    /// Write, from what was read, with the fence of the lock.
    Write,
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Said {
    /// It stands in the queue.
    Queued { holder: String },
    /// It has the lock.
    Granted { fence: String },
    /// What it read, and whether its guard was valid then.
    Read { balance: i64, valid: bool },
    /// Its write was taken.
    Written,
    /// Its write was refused, for the floor is this.
    Refused { floor: u64 },
}

/// Follows orders until there are no more.
pub(crate) fn run(global: &Global, args: &WorkerArgs) -> Result<u8, Failure> {
    let failed =
        |e: &dyn std::fmt::Display| Failure::new(exit::SOFTWARE, format!("worker {}: {e}", args.name));
    let mut config = ClientConfig::new(&global.endpoints);
    config.call_timeout = global.timeout;
    let client = Client::connect(config).map_err(|e| failed(&e))?;
    let mut books = Books::open(&args.books).map_err(|e| failed(&e))?;
    let mut held: Option<(Guard, Session)> = None;
    let mut read = 0;
    for order in std::io::stdin().lock().lines() {
        let order = order.map_err(|e| failed(&e))?;
        let order: Order = serde_json::from_str(&order).map_err(|e| failed(&e))?;
        let said = match (order, &held) {
            (Order::Lock, _) => {
                // What it had before, it has lost.
                drop(held.take());
                let session = client.session().ttl(TTL).owner(format!("worker {}", args.name)).open();
                let session = session.map_err(|e| failed(&e))?;
                let queued = |now: palisade_client::Queued| {
                    let holder = now.holder.owner.as_deref().unwrap_or_default().to_owned();
                    // Where nobody listens the next answer finds out.
                    let _ = say(&Said::Queued { holder });
                };
                let guard = session.fenced(KEY, RESOURCE).on_queued(queued).acquire();
                let guard = guard.map_err(|e| failed(&e))?;
                let fence = guard.fence().to_string();
                held = Some((guard, session));
                Said::Granted { fence }
            }
            (Order::Read, Some((guard, _))) => {
                read = books.balance().map_err(|e| failed(&e))?;
                Said::Read { balance: read, valid: guard.is_valid() }
            }
            (Order::Write, Some((guard, _))) => {
                let fence: &Fence = guard.fence();
                let written = books.write(fence, args.fenced, &args.name, (read, args.amount));
                match written.map_err(|e| failed(&e))? {
                    Verdict::Written => Said::Written,
                    Verdict::Refused { floor } => Said::Refused { floor },
                }
            }
            (Order::Read | Order::Write, None) => return Err(failed(&"it has no lock")),
        };
        say(&said).map_err(|e| failed(&e))?;
    }
    if let Some((guard, session)) = held {
        // Of a lock that is lost there is nothing to give back.
        let _ = guard.release();
        let _ = session.close();
    }
    Ok(0)
}

fn say(said: &Said) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, said)?;
    writeln!(out)?;
    out.flush()
}

//! `palisade-bench`: load against a running cluster.
//!
//! One thread a connection, blocking sockets: a thread reads whatever has arrived, answers all of it
//! with the next requests, and writes them in one call, so that the generator costs little of the
//! machine it shares with the servers.

mod connection;
mod cycle;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Load against a Palisade cluster.
#[derive(Parser)]
#[command(name = "palisade-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Acquire and release distinct keys, as fast as the answers come.
    Load(Load),
}

/// What `load` does.
#[derive(Args, Clone)]
pub(crate) struct Load {
    /// Nodes to ask for the leader, separated by commas.
    #[arg(
        long,
        env = "PALISADE_ENDPOINTS",
        value_delimiter = ',',
        default_value = "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403"
    )]
    pub(crate) endpoints: Vec<String>,
    /// Sessions, spread over the connections; each has one request under way.
    #[arg(long, default_value_t = 1000)]
    pub(crate) sessions: u32,
    /// Connections to the leader.
    #[arg(long, default_value_t = 4)]
    pub(crate) connections: u32,
    /// Different keys each session goes through.
    #[arg(long, default_value_t = 8)]
    pub(crate) keys: u32,
    /// Seconds before anything is counted.
    #[arg(long, default_value_t = 2)]
    pub(crate) warmup: u64,
    /// Seconds that are counted.
    #[arg(long, default_value_t = 10)]
    pub(crate) duration: u64,
    /// Prints one line of JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Load {
    pub(crate) fn warmup(&self) -> Duration {
        Duration::from_secs(self.warmup)
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.duration)
    }
}

fn main() -> ExitCode {
    let Command::Load(load) = Cli::parse().command;
    match cycle::run(&load) {
        Ok(report) => {
            println!("{}", if load.json { report.json() } else { report.table() });
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("palisade-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

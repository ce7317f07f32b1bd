//! `palisade-bench`: load against a Palisade cluster, and what the machine can do at most.
//!
//! The generator is one thread around one epoll set: it reads all that has arrived on a connection,
//! answers it with the next requests, and writes those in one call, so that it costs little of the
//! machine it shares with the servers.

mod changes;
mod choice;
mod cluster;
mod compare;
mod crowd;
mod echo;
mod error;
mod fleet;
mod forms;
mod glance;
mod hello;
mod history;
mod host;
mod ledger;
mod load;
mod observer;
mod options;
mod pace;
#[cfg(feature = "peers")]
mod peers;
mod poller;
mod report;
mod scrape;
mod sys;
mod told;
mod watch;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use compare::CompareOptions;
use crowd::{DeathsOptions, IdleOptions};
use echo::EchoOptions;
use error::BenchError;
use history::RecordOptions;
use options::LoadOptions;
use watch::WatchOptions;

/// Load against a Palisade cluster.
#[derive(Parser)]
#[command(name = "palisade-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Puts a cluster under load and says what it did.
    Load(LoadOptions),
    /// Measures Palisade and its peers beside each other on this machine.
    Compare(CompareOptions),
    /// Measures the standard works and adds a line to the history of this repository.
    Record(RecordOptions),
    /// Watches a running cluster many times over and says what was told, and how far apart.
    Watch(WatchOptions),
    /// Reports thousands of sessions dead at once, and says how others fare meanwhile.
    Deaths(DeathsOptions),
    /// Opens sessions that only renew, and says by how much the log grew meanwhile.
    Idle(IdleOptions),
    /// Puts a server under load that does nothing but answer.
    Echo(EchoOptions),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Load(options) => load(&options),
        Command::Compare(options) => compare::run(&options),
        Command::Record(options) => history::run(&options),
        Command::Watch(options) => watch::run(&options).map(|text| println!("{text}")),
        Command::Deaths(options) => crowd::deaths(&options).map(|text| println!("{text}")),
        Command::Idle(options) => crowd::idle(&options).map(|text| println!("{text}")),
        Command::Echo(options) => echo(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("palisade-bench: {error}");
            error.exit_code()
        }
    }
}

fn load(options: &LoadOptions) -> Result<(), BenchError> {
    let report = load::run(options)?;
    if let Some(path) = &options.histogram {
        report.write_histogram(path)?;
    }
    println!("{}", if options.json { report.json() } else { report.table() });
    if options.survive {
        // Not on stdout: with --json that is one line, whatever the options.
        eprintln!("ledger clean: {} grants", report.grants_judged);
    }
    Ok(())
}

fn echo(options: &EchoOptions) -> Result<(), BenchError> {
    if let Some(report) = echo::run(options)? {
        println!("{}", report.text());
    }
    Ok(())
}

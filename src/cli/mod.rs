//! The command line (DESIGN section 17): arguments, exit codes, and one module for each verb.

mod advice;
mod answers;
mod args;
mod check;
mod child;
mod connect;
mod demo;
mod dev;
mod dev_dir;
mod doctor;
mod elect;
mod exit;
mod gate;
mod keep;
mod lock;
mod log;
mod node;
mod nodes;
mod observe;
mod operator;
mod output;
mod put;
mod reads;
mod run;
mod signals;
mod supervisor;
mod sys;
mod terminal;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Verb};
use exit::Failure;

/// Parses the arguments, runs the verb, and turns its end into an exit status.
pub(crate) fn main() -> ExitCode {
    if let Some(code) = supervisor::run(std::env::args_os().skip(1)) {
        return ExitCode::from(code);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let e = args::with_plain_usage(e, std::env::args_os());
            // Where not even the help can be printed there is nobody to tell.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "palisade: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn run(cli: Cli) -> Result<u8, Failure> {
    let global = cli.global;
    match cli.verb {
        // The server brings its own executor and its own log set-up.
        Verb::Serve(args) => node::serve(&global, &args),
        Verb::Format(args) => node::format(&global, &args),
        Verb::Doctor(args) => doctor::run(&global, &args),
        Verb::Log(args) => log::run(&global, &args),
        // Its client has a thread and a runtime of its own.
        Verb::DemoWorker(args) => demo::worker::run(&global, &args),
        verb => {
            connect::start_log(&global);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| Failure::new(exit::OS, format!("cannot start the runtime: {e}")))?;
            // Everything runs on this, the main thread: children of `dev` are bound to its life.
            let end = runtime.block_on(async {
                match verb {
                    Verb::Demo => demo::run(&global).await,
                    Verb::Dev(args) => dev::run(args).await,
                    Verb::Lock(args) => lock::run(&global, args).await,
                    Verb::Elect(args) => elect::run(&global, args).await,
                    Verb::Check(args) => check::run(&global, &args).await,
                    Verb::Put(args) => put::run(&global, args).await,
                    Verb::Get(args) => reads::get(&global, &args).await,
                    Verb::Ls(args) => reads::ls(&global, &args).await,
                    Verb::Describe(args) => reads::describe(&global, &args).await,
                    Verb::Locks(args) => reads::locks(&global, &args).await,
                    Verb::Sessions(args) => reads::sessions(&global, &args).await,
                    Verb::Resources(args) => reads::resources(&global, &args).await,
                    Verb::Watch(args) => watch::run(&global, &args).await,
                    Verb::Observe(args) => observe::run(&global, &args).await,
                    Verb::Status => reads::status(&global).await,
                    Verb::ReportDead(args) => operator::report_dead(&global, &args).await,
                    Verb::Evict(args) => operator::evict(&global, &args).await,
                    Verb::ForceRelease(args) => operator::force_release(&global, &args).await,
                    Verb::Retire(args) => operator::retire(&global, &args).await,
                    Verb::Transfer(args) => operator::transfer(&global, &args).await,
                    Verb::Acts(args) => operator::acts(&global, &args).await,
                    Verb::Gate(args) => gate::run(args).await,
                    Verb::Serve(_)
                    | Verb::Format(_)
                    | Verb::Doctor(_)
                    | Verb::Log(_)
                    | Verb::DemoWorker(_) => {
                        unreachable!("answered above")
                    }
                }
            });
            // A name look-up may still sit in a thread of the runtime; nobody waits for it.
            runtime.shutdown_background();
            end
        }
    }
}

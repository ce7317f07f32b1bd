//! `sim`: runs seeds of the simulator, replays one with its story, hunts a bug.
//!
//! ```text
//! sim --seed N [--profile P] [--raft] [--mutant Bx] [--trace]
//! sim --seeds A..B [--profile P] [--raft] [--mutant Bx] [--threads T] [--outcomes]
//! ```
//! Exit code: 0 no rule broken, 64 usage, 127 something panicked, 128 no progress, 129 a wrong result.

use std::process::ExitCode;

use palisade_sim::options::Profile;
use palisade_sim::report::Report;
use palisade_sim::runner::{Job, Scope, run, run_all};
use palisade_sim::trace::Story;
use palisade_types::Mutant;

const USAGE: &str = "usage: sim (--seed N | --seeds A..B) [--profile swarm|slow-disk|elections|pauses|replays|leases|watches|rough] \
                     [--raft] [--mutant B1] [--trace] [--threads N] [--outcomes]";

struct Args {
    from: u64,
    to: u64,
    profile: Profile,
    scope: Scope,
    mutant: Option<Mutant>,
    trace: bool,
    threads: usize,
    /// Show how often each command and request got each answer.
    outcomes: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Args> {
    let mut args = Args {
        from: 0,
        to: 0,
        profile: Profile::Swarm,
        scope: Scope::Cluster,
        mutant: None,
        trace: false,
        threads: 2,
        outcomes: false,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => {
                args.from = words.next()?.parse().ok()?;
                args.to = args.from + 1;
            }
            "--seeds" => {
                let range = words.next()?;
                let (from, to) = range.split_once("..")?;
                (args.from, args.to) = (from.parse().ok()?, to.parse().ok()?);
            }
            "--profile" => args.profile = Profile::parse(&words.next()?)?,
            "--mutant" => {
                let name = words.next()?;
                args.mutant = Some(Mutant::ALL.into_iter().find(|m| format!("{m:?}") == name)?);
            }
            "--threads" => args.threads = words.next()?.parse().ok()?,
            "--raft" => args.scope = Scope::Raft,
            "--trace" => args.trace = true,
            "--outcomes" => args.outcomes = true,
            _ => return None,
        }
    }
    (args.from < args.to).then_some(args)
}

fn main() -> ExitCode {
    let Some(args) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    };
    let job = |seed| Job { scope: args.scope, profile: args.profile, seed, mutant: args.mutant };
    if args.to - args.from == 1 {
        let job = job(args.from);
        if args.trace {
            println!("{}", job.options());
        }
        let outcome = run(job, if args.trace { Story::Print } else { Story::No });
        return tell(&[(job, outcome)]);
    }
    let jobs: Vec<Job> = (args.from..args.to).map(job).collect();
    let ended = run_all(&jobs, args.threads);
    if args.outcomes {
        let (outcomes, served) =
            Report::counts(ended.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()));
        for ((what, answer), times) in outcomes.into_iter().chain(served) {
            println!("{times:>9}  {what}: {answer}");
        }
    }
    tell(&ended)
}

fn tell(ended: &[palisade_sim::runner::Ended]) -> ExitCode {
    let mut code = 0;
    for (job, outcome) in ended {
        match outcome {
            Ok(report) => println!("{report}"),
            Err(failure) => {
                println!("seed {} FAILED: {failure}\n  replay: {job}", job.seed);
                code = failure.exit_code();
            }
        }
    }
    ExitCode::from(code)
}

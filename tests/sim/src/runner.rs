//! Runs seeds, one or many, and says how each ended. A panic anywhere in the code under test is an
//! outcome like any other.

use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use palisade_types::{Mutant, Mutants};

use crate::check::Violation;
use crate::options::{Options, Profile};
use crate::raft_cluster::RaftCluster;
use crate::report::Report;
use crate::trace::Story;
use crate::world::World;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Whole nodes and clients.
    Cluster,
    /// Raft alone.
    Raft,
}

/// A run to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// What is simulated.
    pub scope: Scope,
    /// The kind of draw.
    pub profile: Profile,
    /// The seed.
    pub seed: u64,
    /// A bug to be switched on.
    pub mutant: Option<Mutant>,
}

impl Job {
    /// A run of whole nodes without a bug.
    pub const fn new(profile: Profile, seed: u64) -> Job {
        Job { scope: Scope::Cluster, profile, seed, mutant: None }
    }

    /// The same of Raft alone.
    pub fn raft(profile: Profile, seed: u64) -> Job {
        Job { scope: Scope::Raft, ..Job::new(profile, seed) }
    }

    /// The same with a bug.
    pub fn with(self, mutant: Mutant) -> Job {
        Job { mutant: Some(mutant), ..self }
    }

    /// What is drawn from the seed.
    pub fn options(&self) -> Options {
        let mut options = Options::draw(self.seed, self.profile);
        options.mutants = self.mutant.map_or(Mutants::NONE, Mutants::only);
        options
    }
}

impl fmt::Display for Job {
    /// The command that replays it with its story.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cargo run -p palisade-sim --bin sim -- --profile {} --seed {}",
            self.profile.name(),
            self.seed
        )?;
        if self.scope == Scope::Raft {
            write!(f, " --raft")?;
        }
        if let Some(mutant) = self.mutant {
            write!(f, " --mutant {mutant:?}")?;
        }
        write!(f, " --trace")
    }
}

/// Why a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// A rule was broken, or something panicked with this text.
    pub cause: Result<Violation, String>,
    /// The last lines of the story, if one was kept.
    pub story: Vec<String>,
}

impl Failure {
    /// The exit code for it: 127 a crash, 128 no progress, 129 a wrong result.
    pub fn exit_code(&self) -> u8 {
        match &self.cause {
            Err(_) => 127,
            Ok(violation) if violation.is_liveness() => 128,
            Ok(_) => 129,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Ok(violation) => write!(f, "{violation}"),
            Err(text) => write!(f, "panic: {text}"),
        }
    }
}

/// Makes a run.
///
/// # Errors
/// How it failed.
pub fn run(job: Job, story: Story) -> Result<Report, Box<Failure>> {
    let options = job.options();
    let ended = catch_unwind(AssertUnwindSafe(|| match job.scope {
        Scope::Cluster => World::run(options, story),
        Scope::Raft => RaftCluster::run(options, story),
    }));
    match ended {
        Ok(Ok(report)) => Ok(report),
        Ok(Err((violation, story))) => Err(Box::new(Failure { cause: Ok(violation), story })),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_else(|| String::from("of an unknown kind"));
            Err(Box::new(Failure { cause: Err(text), story: Vec::new() }))
        }
    }
}

/// A run and how it ended.
pub type Ended = (Job, Result<Report, Box<Failure>>);

/// Makes many runs on so many threads. The outcomes come in the order of the jobs. After a few
/// failures the rest is not tried.
pub fn run_all(jobs: &[Job], threads: usize) -> Vec<Ended> {
    const FAILURES_MAX: usize = 5;
    let next = AtomicUsize::new(0);
    let failures = AtomicUsize::new(0);
    let ended: Mutex<Vec<(usize, Ended)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while failures.load(Ordering::Relaxed) < FAILURES_MAX {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&job) = jobs.get(at) else { return };
                    let outcome = run(job, Story::No);
                    failures.fetch_add(usize::from(outcome.is_err()), Ordering::Relaxed);
                    ended.lock().expect("no run panics outside its net").push((at, (job, outcome)));
                }
            });
        }
    });
    let mut ended = ended.into_inner().expect("no run panics outside its net");
    ended.sort_by_key(|(at, _)| *at);
    ended.into_iter().map(|(_, e)| e).collect()
}

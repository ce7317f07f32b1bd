//! Running a command no longer than what it was given is kept. The supervisor runs it and holds the deadline;
//! here its renewals are passed on, and what the supervisor reports becomes an exit status.

use std::ffi::OsString;
use std::time::Duration;

use palisade::clock;
use palisade_client::{LeaseTimes, LostReason};
use palisade_types::Time;

use super::answers::{self, Answers};
use super::child::Job;
use super::exit::{self, Failure};
use super::keep::Kept;
use super::signals::{Caught, Signals};
use super::supervisor::protocol::{Order, Reach, Report};

/// How it came to an end.
enum Over {
    /// The command ended with this status, and nothing of it is left.
    Ended(u8),
    /// Nothing of it is left, and the supervisor has ended it: it had heard of no renewal in time.
    Overdue,
    /// It cannot be run, for this reason of the system's.
    CannotRun(i32),
    /// What it was given is lost.
    Lost(LostReason),
    /// The supervisor is gone, and did not say that nothing is left.
    Unsupervised,
}

/// Runs a command to its end, or to the loss of what is kept; nothing of it is left then. `job`: its words,
/// its environment, and how long after SIGTERM a SIGKILL follows.
pub(super) async fn run_command(
    kept: &impl Kept,
    job: (&[OsString], &[(&str, String)], Duration),
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let (words, environment, kill_after) = job;
    let Some(times) = kept.renewals().now().filter(|_| kept.is_valid()) else {
        // We were stopped right after the grant: the command must not even start.
        return Err(kept.failure(LostReason::DeadlinePassed));
    };
    let answers = Answers::open()?;
    let asked_at = [(answers::VARIABLE, answers.name().to_owned())];
    let mut job = Job::start(words, &[environment, &asked_at].concat(), reach(kept, times), kill_after)?;
    let over = follow(kept, &mut job, &answers, signals).await;
    // Nobody answers any more, whatever the end.
    drop(answers);
    let all_gone = match &over {
        Over::Ended(code) if kept.is_valid() => return Ok(*code),
        Over::CannotRun(error) => return Err(job.cannot_run(*error)),
        Over::Ended(_) | Over::Overdue => true,
        Over::Lost(_) => job.end(kill_at(kept, kill_after)).await,
        Over::Unsupervised => job.end_alone(kill_at(kept, kill_after)).await,
    };
    if !all_gone {
        eprintln!("palisade: not all processes of the command could be ended");
    }
    Err(match over {
        Over::Lost(reason) => kept.failure(reason),
        Over::Unsupervised => {
            Failure::new(exit::OS, "the command's supervisor was killed, so the command was ended as well")
        }
        // The clock knows before the client's task does.
        _ => kept.failure(LostReason::DeadlinePassed),
    })
}

/// Passes on what there is to pass on, until it is over.
async fn follow(kept: &impl Kept, job: &mut Job, answers: &Answers, signals: &mut Signals) -> Over {
    let mut renewals = kept.renewals();
    let (mut code, mut overdue, mut stuck) = (None, false, false);
    loop {
        tokio::select! {
            biased;
            reason = kept.lost() => return Over::Lost(reason),
            times = renewals.next() => job.order(Order::Renewed(reach(kept, times))),
            report = job.next() => match report {
                Some(Report::Started(_)) => (),
                Some(Report::Failed(error)) => return Over::CannotRun(error),
                Some(Report::Stopped) => job.stop_with_it(),
                Some(Report::Ended(status)) => code = Some(status),
                Some(Report::LeftBehind) => {
                    eprintln!("palisade: the command has ended; what it left behind is ended as well");
                }
                // It is being ended, whatever has been renewed since.
                Some(Report::Overdue) => overdue = true,
                Some(Report::Stuck) => {
                    eprintln!("palisade: some processes of the command cannot be ended; waiting for them");
                    stuck = true;
                }
                Some(Report::Gone) => return code.filter(|_| !overdue).map_or(Over::Overdue, Over::Ended),
                None => return Over::Unsupervised,
            },
            caught = signals.next() => match caught {
                Caught::Child => (),
                Caught::Stop => job.order(Order::Signal(libc::SIGTSTP)),
                Caught::Continue => job.order(Order::Signal(libc::SIGCONT)),
                Caught::Other(n) => {
                    // Whoever insists need not wait for what nobody can end.
                    if let (true, Some(code)) = (stuck, code) {
                        return Over::Ended(code);
                    }
                    job.order(Order::Signal(n.0));
                }
            },
            never = answers.serve(|| kept.remaining()) => match never {},
        }
    }
}

/// How far the lease reaches, as the supervisor wants it.
fn reach(kept: &impl Kept, times: LeaseTimes) -> Reach {
    let end = if kept.grace() == Duration::MAX { Time::FAR } else { times.end };
    Reach { deadline: times.deadline, end }
}

/// When SIGKILL is due after a loss: so much later as was asked, and in any case while a quarter of the time
/// is left in which nobody else can have it. At once when the cluster has ended the session, or when we were
/// stopped past the end of the lease.
fn kill_at(kept: &impl Kept, kill_after: Duration) -> Time {
    let grace = kept.grace();
    clock::lease_now() + kill_after.min(grace - grace / 4)
}

//! `palisade lock`: holds a lock while a command runs, and ends the command if the lock is lost.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palisade::clock;
use palisade_client::{AcquireError, CallError, Client, Guard, HolderInfo, LostReason, Queued, Session};
use palisade_types::limits::{TTL_MAX, TTL_MIN};
use palisade_types::{Time, name};
use rustix::process::Signal;
use serde_json::json;

use super::advice;
use super::args::{Global, LockArgs};
use super::child::{Change, Job};
use super::connect;
use super::exit::{self, Failure};
use super::output::holder_text;
use super::signals::{Caught, SignalNumber, Signals};

/// How long release and close may take at the end; what they do not reach ends with the session.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often the group is looked at while it is being ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long the kernel may take to end a killed group before we report anyway.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// Acquires, runs, releases.
pub(crate) async fn run(global: &Global, args: LockArgs) -> Result<u8, Failure> {
    check(&args)?;
    let mut signals = Signals::listen()?;
    let client = connect::client(global)?;
    let owner = args.owner.clone().unwrap_or_else(default_owner);
    let began = clock::now();

    let opening = client.session().ttl(args.ttl).owner(owner).open();
    let session = match unless_ended(opening, &mut signals).await? {
        Ok(opened) => opened.map_err(|e| connect::failure(&e))?,
        Err(code) => return Ok(code),
    };
    let queued = LastHolder::default();
    let acquiring = acquire(&session, &args, global.timeout, began, &queued);
    let acquired = unless_ended(acquiring, &mut signals).await?;
    let end = match acquired {
        Err(code) => Ok(code),
        Ok(Err(NotHeld::Conflict(why))) => {
            let holder = who_holds(global, &client, &args.key, &why, &queued).await;
            Err(Failure::new(args.conflict_code, format!("{}: {why}{holder}", args.key)))
        }
        // Out of reach: nobody would confirm the close either. The session expires.
        Ok(Err(NotHeld::Failed(failure))) if failure.code == exit::UNAVAILABLE => return Err(failure),
        Ok(Err(NotHeld::Failed(failure))) => Err(failure),
        Ok(Ok(guard)) => {
            let end = match args.hold {
                true => hold(&guard, &mut signals).await,
                false => run_command(&guard, &args, &mut signals).await,
            };
            farewell(global, "release the lock", guard.release()).await;
            end
        }
    };
    farewell(global, "close the session", session.close()).await;
    end
}

/// What clap cannot check.
fn check(args: &LockArgs) -> Result<(), Failure> {
    if args.resource.is_none() && !args.advisory {
        return Err(Failure::usage(
            "say what the lock protects with --resource NAME, or that running twice is harmless with --advisory",
        ));
    }
    if args.hold != args.command.is_empty() {
        return Err(Failure::usage("give a command after --, or --hold to run none"));
    }
    let names =
        [("KEY", Some(&args.key)), ("--resource", args.resource.as_ref()), ("--owner", args.owner.as_ref())];
    for (what, text) in names {
        text.map_or(Ok(()), |t| name::check(t)).map_err(|e| Failure::usage(format!("{what}: {e}")))?;
    }
    if !(TTL_MIN..=TTL_MAX).contains(&args.ttl) {
        return Err(Failure::usage("--ttl: a session lives for 500ms to 1h"));
    }
    Ok(())
}

fn default_owner() -> String {
    format!("{}:{}", connect::host(), std::process::id())
}

/// Awaits something, unless a signal ends us first: then the exit status. Dropping what was awaited
/// takes it back.
async fn unless_ended<T>(
    work: impl Future<Output = T>,
    signals: &mut Signals,
) -> Result<Result<T, u8>, Failure> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(Ok(done)),
            caught = signals.next() => match caught {
                Caught::Stop => stop_here(),
                Caught::Child | Caught::Continue | Caught::Other(SignalNumber::WINDOW) => (),
                Caught::Other(n) => return Ok(Err(exit::of_signal(n.0))),
            },
        }
    }
}

/// Ctrl-Z before there is a command: stop, as without a handler.
fn stop_here() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Why the lock is not held.
enum NotHeld {
    /// Somebody else holds it: the status of `-E`.
    Conflict(AcquireError),
    Failed(Failure),
}

/// Who was last said to hold the key that we stand in the queue for.
#[derive(Clone, Default)]
struct LastHolder(Arc<Mutex<Option<HolderInfo>>>);

impl LastHolder {
    fn note(&self, queued: Queued) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(queued.holder);
    }

    fn get(&self) -> Option<HolderInfo> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Who has what we did not get, where the refusal does not say: asked for within a bounded time, or else
/// as it was when we joined the queue.
async fn who_holds(
    global: &Global,
    client: &Client,
    key: &str,
    why: &AcquireError,
    queued: &LastHolder,
) -> String {
    if !matches!(why, AcquireError::TimedOut | AcquireError::Held { holder: None, .. }) {
        return String::new();
    }
    let asked = tokio::time::timeout(GOODBYE.min(global.timeout), client.describe(key)).await;
    if let Ok(Ok(answer)) = asked
        && let Some(holder) = &answer.value.holder
    {
        return format!("; held by {}", holder_text(holder));
    }
    match queued.get() {
        Some(holder) => format!("; it was held by {} when the wait began", holder_text(&holder)),
        None => String::new(),
    }
}

/// Acquires. The first answer must come within `usable` of the beginning; a wait in the queue is as
/// long as was asked.
async fn acquire(
    session: &Session,
    args: &LockArgs,
    usable: Duration,
    began: Time,
    queued: &LastHolder,
) -> Result<Guard, NotHeld> {
    let note = queued.clone();
    let on_queued = move |now| note.note(now);
    let wait = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
    let acquiring = async {
        match &args.resource {
            Some(resource) => {
                let request = session.fenced(&args.key, resource).on_queued(on_queued);
                match wait {
                    Some(time) => request.wait(time).acquire().await,
                    None => request.acquire().await,
                }
            }
            None => {
                let request = session.advisory(&args.key).on_queued(on_queued);
                match wait {
                    Some(time) => request.wait(time).acquire().await,
                    None => request.acquire().await,
                }
            }
        }
    };
    let mut acquiring = std::pin::pin!(acquiring);
    let end =
        match tokio::time::timeout(usable.saturating_sub(clock::now().since(began)), &mut acquiring).await {
            Ok(end) => end,
            Err(_) if queued.get().is_some() => acquiring.await,
            Err(_) => {
                let seconds = usable.as_secs_f64();
                let message = format!("no usable cluster within {seconds} s; {}", advice::NO_CLUSTER);
                return Err(NotHeld::Failed(Failure::new(exit::UNAVAILABLE, message)));
            }
        };
    end.map_err(|e| match e {
        AcquireError::Call(e) => NotHeld::Failed(connect::failure(&e)),
        conflict => NotHeld::Conflict(conflict),
    })
}

/// Releases or closes within a bounded time; trouble is worth a line and no status.
async fn farewell(global: &Global, what: &str, work: impl Future<Output = Result<(), CallError>>) {
    match tokio::time::timeout(GOODBYE.min(global.timeout), work).await {
        Ok(Ok(()) | Err(CallError::SessionLost(_))) => (),
        Ok(Err(e)) => eprintln!("palisade: could not {what}: {e}; it ends with the session"),
        Err(_) => eprintln!("palisade: could not {what} in time; it ends with the session"),
    }
}

/// `--hold`: says what is held and waits for a signal.
async fn hold(guard: &Guard, signals: &mut Signals) -> Result<u8, Failure> {
    let fence = guard.fence();
    let line = json!({
        "key": fence.key().as_str(),
        "class": guard.class().to_string(),
        "epoch": fence.epoch().0,
        "barrier": fence.barrier().0,
        "fence": fence.to_string(),
        "session": guard.session().to_string(),
    });
    let mut out = std::io::stdout();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Failure::new(exit::OS, format!("cannot write to stdout: {e}")))?;
    loop {
        tokio::select! {
            biased;
            reason = guard.lost() => return Err(lost(guard, reason)),
            caught = signals.next() => match caught {
                Caught::Stop => stop_here(),
                Caught::Child | Caught::Continue | Caught::Other(SignalNumber::WINDOW) => (),
                Caught::Other(_) => return Ok(0),
            },
        }
    }
}

/// Runs the command to its end, or to the loss of the lock.
async fn run_command(guard: &Guard, args: &LockArgs, signals: &mut Signals) -> Result<u8, Failure> {
    let fence = guard.fence();
    let environment = [
        ("PALISADE_KEY", fence.key().to_string()),
        ("PALISADE_EPOCH", fence.epoch().to_string()),
        ("PALISADE_BARRIER", fence.barrier().to_string()),
        ("PALISADE_FENCE", fence.to_string()),
        ("PALISADE_SESSION", guard.session().to_string()),
    ];
    if !guard.is_valid() {
        // We were stopped right after the grant: the command must not even start.
        return Err(lost(guard, LostReason::DeadlinePassed));
    }
    let mut job = Job::spawn(&args.command, &environment)?;
    loop {
        tokio::select! {
            biased;
            reason = guard.lost() => {
                end_group(guard, &mut job, args.kill_after).await;
                return Err(lost(guard, reason));
            }
            caught = signals.next() => match caught {
                Caught::Child => match job.change() {
                    // The lease may have run out while we were stopped and the command ended: the
                    // clock knows before the client's task does.
                    Some(Change::Ended(_)) if !guard.is_valid() => {
                        end_group(guard, &mut job, args.kill_after).await;
                        return Err(lost(guard, LostReason::DeadlinePassed));
                    }
                    Some(Change::Ended(code)) => return Ok(code),
                    Some(Change::Stopped) => job.stop_with_it(),
                    None => (),
                },
                Caught::Stop => job.signal(Signal::TSTP),
                Caught::Continue => job.signal(Signal::CONT),
                Caught::Other(n) => if let Some(signal) = Signal::from_named_raw(n.0) { job.signal(signal) },
            },
        }
    }
}

fn lost(guard: &Guard, reason: LostReason) -> Failure {
    Failure::new(exit::LOST, format!("lost the lock {}: {reason}", guard.fence()))
}

/// Ends the whole group: SIGTERM, then SIGKILL after `kill_after`, and in any case while a quarter of
/// the time is left in which nobody else can be granted the lock. No time is left once the cluster
/// has ended the session, or when we were stopped past the end of the lease.
async fn end_group(guard: &Guard, job: &mut Job, kill_after: Duration) {
    let reserve = guard.grace() / 4;
    job.signal(Signal::TERM);
    // A stopped process acts on SIGTERM only once it goes on.
    job.signal(Signal::CONT);
    let began = clock::now();
    while job.group_runs() && clock::now().since(began) < kill_after && guard.grace() > reserve {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    job.signal(Signal::KILL);
    let killed = clock::now();
    while job.group_runs() && clock::now().since(killed) < AFTER_KILL {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

//! Keeping something while a command runs, or until a signal comes: a lock, a leadership, an ephemeral key.
//! The command ends with what was kept.

use std::ffi::OsString;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use palisade::clock;
use palisade_client::{
    AcquireError, CallError, Client, Conflict, Guard, HolderInfo, LostReason, Queued, Renewals, Session,
};
use palisade_types::limits::{TTL_MAX, TTL_MIN};
use palisade_types::{Time, name};
use rustix::process::Signal;
use serde_json::json;

use super::advice;
use super::args::{Global, SessionArgs, WaitArgs};
use super::connect;
use super::exit::{self, Failure};
use super::output::holder_text;
use super::run::run_command;
use super::signals::{Caught, SignalNumber, Signals};

/// How long release and close may take at the end; what they do not reach ends with the session.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long after the release a warning may still come.
const LAST_WORD: Duration = Duration::from_millis(100);

/// What is kept while a command runs.
pub(super) trait Kept {
    /// Completes when it is lost.
    async fn lost(&self) -> LostReason;
    /// Whether it may be relied upon at this moment.
    fn is_valid(&self) -> bool;
    /// How long it may be relied upon without another renewal.
    fn remaining(&self) -> Duration;
    /// How long nobody else can have it, however long we are silent.
    fn grace(&self) -> Duration;
    /// The renewals as they are acknowledged.
    fn renewals(&self) -> Renewals;
    /// Says that it is lost.
    fn failure(&self, reason: LostReason) -> Failure;
}

/// Something kept that only one, or only those who share it, can have.
pub(super) trait Granted: Kept {
    /// Giving it up, in words.
    const GIVE_UP: &str;
    /// What the grant is.
    fn guard(&self) -> &Guard;
    /// Gives it up.
    async fn give_up(self) -> Result<(), CallError>;
}

/// What is to be had, and for which command.
pub(super) struct Wanted<'a> {
    pub(super) key: &'a str,
    pub(super) session: &'a SessionArgs,
    pub(super) wait: &'a WaitArgs,
    /// None: until signalled.
    pub(super) command: &'a [OsString],
}

/// Opens a session, gets what is wanted, keeps it while the command runs, and gives it up. `get` asks for
/// it, and tells the last argument who has it while it waits.
pub(super) async fn get_and_keep<G: Granted>(
    global: &Global,
    wanted: Wanted<'_>,
    get: impl AsyncFnOnce(&Session, LastHolder) -> Result<G, AcquireError>,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let client = connect::client(global)?;
    let began = clock::now();
    let opening = client.session().ttl(wanted.session.ttl).owner(wanted.session.owner()).open();
    let session = match unless_ended(opening, &mut signals).await? {
        Ok(opened) => opened.map_err(|e| connect::failure(&e))?,
        Err(code) => return Ok(code),
    };
    let queued = LastHolder::default();
    let getting = patient(get(&session, queued.clone()), global.timeout, began, &queued);
    let end = match unless_ended(getting, &mut signals).await? {
        Err(code) => Ok(code),
        Ok(Err(NotHeld::Conflict(why))) => {
            let holder = who_holds(global, &client, wanted.key, &why, &queued).await;
            Err(Failure::new(wanted.wait.conflict_code, format!("{}: {why}{holder}", wanted.key)))
        }
        // Out of reach: nobody would confirm the close either. The session expires.
        Ok(Err(NotHeld::Failed(failure))) if failure.code == exit::UNAVAILABLE => return Err(failure),
        Ok(Err(NotHeld::Failed(failure))) => Err(failure),
        Ok(Ok(kept)) => {
            let told = tokio::spawn(say_conflict(wanted.key.to_owned(), kept.guard().conflicted()));
            let end = match wanted.command.is_empty() {
                true => hold(&kept, &grant_json(kept.guard()), &mut signals).await,
                false => {
                    let environment = environment(global, kept.guard());
                    let job = (wanted.command, &environment[..], wanted.session.kill_after);
                    run_command(&kept, job, &mut signals).await
                }
            };
            farewell(global, G::GIVE_UP, kept.give_up()).await;
            // It ends with the lock, which is over by now; where the cluster is out of reach it may not be.
            let _ = tokio::time::timeout(LAST_WORD, told).await;
            end
        }
    };
    farewell(global, "close the session", session.close()).await;
    end
}

/// Says once that another key protects the same resource, if the registry of resources says so while the
/// lock is held.
async fn say_conflict(key: String, conflict: impl Future<Output = Option<Conflict>>) {
    if let Some(Conflict { resource, other, keys }) = conflict.await {
        let more = if keys > 2 { format!(" ({keys} keys in all)") } else { String::new() };
        eprintln!(
            "palisade: warning: {resource} is also protected by the key {other}{more}, whose lock does not exclude \
             that of {key}; see `palisade resources --conflicts`, and `palisade retire` for a key that is out of use"
        );
    }
}

impl SessionArgs {
    /// What clap cannot check. `what`: how the name of what is kept is called.
    pub(super) fn check(&self, what: &str, key: &str) -> Result<(), Failure> {
        check_name(what, key)?;
        self.owner.as_deref().map_or(Ok(()), |owner| check_name("--owner", owner))?;
        if !(TTL_MIN..=TTL_MAX).contains(&self.ttl) {
            return Err(Failure::usage("--ttl: a session lives for 500ms to 1h"));
        }
        Ok(())
    }

    /// The tag of the session.
    pub(super) fn owner(&self) -> String {
        let default = || format!("{}:{}", connect::host(), std::process::id());
        self.owner.clone().unwrap_or_else(default)
    }
}

pub(super) fn check_name(what: &str, text: &str) -> Result<(), Failure> {
    name::check(text).map_err(|e| Failure::usage(format!("{what}: {e}")))
}

/// Awaits something, unless a signal ends us first: then the exit status. Dropping what was awaited
/// takes it back.
pub(super) async fn unless_ended<T>(
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

/// Why nothing is kept.
enum NotHeld {
    /// Somebody else holds it: the status of `-E`.
    Conflict(AcquireError),
    Failed(Failure),
}

/// Who was last said to hold the key that we stand in the queue for.
#[derive(Clone, Default)]
pub(super) struct LastHolder(Arc<Mutex<Option<HolderInfo>>>);

impl LastHolder {
    pub(super) fn note(&self, queued: Queued) {
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
        && let Some(holder) = answer.value.holders.first()
    {
        return format!("; held by {}", holder_text(holder));
    }
    match queued.get() {
        Some(holder) => format!("; it was held by {} when the wait began", holder_text(&holder)),
        None => String::new(),
    }
}

/// Awaits an acquire or a campaign: its first answer must come within `usable` of the beginning.
async fn patient<T>(
    acquiring: impl Future<Output = Result<T, AcquireError>>,
    usable: Duration,
    began: Time,
    queued: &LastHolder,
) -> Result<T, NotHeld> {
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
pub(super) async fn farewell(global: &Global, what: &str, work: impl Future<Output = Result<(), CallError>>) {
    match tokio::time::timeout(GOODBYE.min(global.timeout), work).await {
        Ok(Ok(()) | Err(CallError::SessionLost(_))) => (),
        Ok(Err(e)) => eprintln!("palisade: could not {what}: {e}; it ends with the session"),
        Err(_) => eprintln!("palisade: could not {what} in time; it ends with the session"),
    }
}

/// What `--hold` says.
fn grant_json(guard: &Guard) -> String {
    let fence = guard.fence();
    let mut line = json!({
        "key": fence.key().as_str(),
        "class": guard.class().to_string(),
        "mode": guard.mode().to_string(),
        "epoch": fence.epoch().0,
        "barrier": fence.barrier().0,
        "fence": fence.to_string(),
        "session": guard.session().to_string(),
    });
    if let (Some(line), Some(signature)) = (line.as_object_mut(), guard.signature()) {
        line.insert("signature".to_owned(), signature.to_string().into());
    }
    line.to_string()
}

/// Says what is kept and waits for a signal.
pub(super) async fn hold(kept: &impl Kept, line: &str, signals: &mut Signals) -> Result<u8, Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Failure::new(exit::OS, format!("cannot write to stdout: {e}")))?;
    loop {
        tokio::select! {
            biased;
            reason = kept.lost() => return Err(kept.failure(reason)),
            caught = signals.next() => match caught {
                Caught::Stop => stop_here(),
                Caught::Child | Caught::Continue | Caught::Other(SignalNumber::WINDOW) => (),
                Caught::Other(_) => return Ok(0),
            },
        }
    }
}

/// What a command under a lock finds in its environment.
fn environment(global: &Global, guard: &Guard) -> Vec<(&'static str, String)> {
    let fence = guard.fence();
    let signature = guard.signature().map(|signature| ("PALISADE_SIGNATURE", signature.to_string()));
    let always = [
        ("PALISADE_KEY", fence.key().to_string()),
        ("PALISADE_EPOCH", fence.epoch().to_string()),
        ("PALISADE_BARRIER", fence.barrier().to_string()),
        ("PALISADE_FENCE", fence.to_string()),
        ("PALISADE_SESSION", guard.session().to_string()),
        ("PALISADE_ENDPOINTS", global.endpoints.join(",")),
    ];
    always.into_iter().chain(signature).collect()
}

//! `palisade elect`: campaigns, and leads while this process or a command runs.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use palisade::clock;
use palisade_client::{Leadership, LostReason};
use palisade_types::limits::{TTL_MAX, TTL_MIN, VALUE_BYTES_MAX};
use palisade_types::name;

use super::args::{ElectArgs, Global};
use super::connect;
use super::exit::{self, Failure};
use super::lock::{
    Kept, LastHolder, NotHeld, default_owner, environment, farewell, grant_json, hold, patient, run_command,
    unless_ended, who_holds,
};
use super::signals::Signals;

impl Kept for Leadership {
    async fn lost(&self) -> LostReason {
        (**self).lost().await
    }

    fn is_valid(&self) -> bool {
        (**self).is_valid()
    }

    fn grace(&self) -> Duration {
        (**self).grace()
    }

    fn failure(&self, reason: LostReason) -> Failure {
        Failure::new(exit::LOST, format!("no longer the leader under {}: {reason}", self.fence()))
    }
}

/// Campaigns, leads, resigns.
pub(crate) async fn run(global: &Global, args: ElectArgs) -> Result<u8, Failure> {
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
    let note = queued.clone();
    let mut request =
        session.campaign(&args.name, args.value.as_bytes()).on_queued(move |now| note.note(now));
    if let Some(time) = if args.no_wait { Some(Duration::ZERO) } else { args.wait } {
        request = request.wait(time);
    }
    let campaign = patient(request.lead(), global.timeout, began, &queued);
    let end = match unless_ended(campaign, &mut signals).await? {
        Err(code) => Ok(code),
        Ok(Err(NotHeld::Conflict(why))) => {
            let leader = who_holds(global, &client, &args.name, &why, &queued).await;
            Err(Failure::new(args.conflict_code, format!("{}: {why}{leader}", args.name)))
        }
        Ok(Err(NotHeld::Failed(failure))) if failure.code == exit::UNAVAILABLE => return Err(failure),
        Ok(Err(NotHeld::Failed(failure))) => Err(failure),
        Ok(Ok(leadership)) => {
            let end = match args.command.is_empty() {
                true => hold(&leadership, &grant_json(&leadership), &mut signals).await,
                false => {
                    let job = (&args.command[..], &environment(&leadership)[..], args.kill_after);
                    run_command(&leadership, job, &mut signals).await
                }
            };
            farewell(global, "resign", leadership.resign()).await;
            end
        }
    };
    farewell(global, "close the session", session.close()).await;
    end
}

/// What clap cannot check.
fn check(args: &ElectArgs) -> Result<(), Failure> {
    for (what, text) in [("NAME", Some(&args.name)), ("--owner", args.owner.as_ref())] {
        text.map_or(Ok(()), |t| name::check(t)).map_err(|e| Failure::usage(format!("{what}: {e}")))?;
    }
    if args.value.len() > VALUE_BYTES_MAX {
        return Err(Failure::usage(format!("--value: at most {VALUE_BYTES_MAX} bytes")));
    }
    if !(TTL_MIN..=TTL_MAX).contains(&args.ttl) {
        return Err(Failure::usage("--ttl: a session lives for 500ms to 1h"));
    }
    Ok(())
}

//! `palisade lock`: holds a lock while a command runs, and ends the command if the lock is lost.

use std::time::Duration;

use palisade_client::{AcquireError, CallError, Guard, LostReason, Renewals, Session};

use super::args::{Global, LockArgs};
use super::exit::{self, Failure};
use super::keep::{Granted, Kept, LastHolder, Wanted, check_name, get_and_keep};

/// Acquires, runs, releases.
pub(crate) async fn run(global: &Global, args: LockArgs) -> Result<u8, Failure> {
    check(&args)?;
    let (key, session, wait, command) = (&*args.key, &args.session, &args.wait, &*args.command);
    let get = async |session: &Session, queued| acquire(session, &args, queued).await;
    get_and_keep(global, Wanted { key, session, wait, command }, get).await
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
    args.resource.as_deref().map_or(Ok(()), |resource| check_name("--resource", resource))?;
    args.session.check("KEY", &args.key)
}

impl Kept for Guard {
    async fn lost(&self) -> LostReason {
        Guard::lost(self).await
    }

    fn is_valid(&self) -> bool {
        Guard::is_valid(self)
    }

    fn remaining(&self) -> Duration {
        Guard::remaining(self)
    }

    fn grace(&self) -> Duration {
        Guard::grace(self)
    }

    fn renewals(&self) -> Renewals {
        Guard::renewals(self)
    }

    fn failure(&self, reason: LostReason) -> Failure {
        Failure::new(exit::LOST, format!("lost the lock {}: {reason}", self.fence()))
    }
}

impl Granted for Guard {
    const GIVE_UP: &str = "release the lock";

    fn guard(&self) -> &Guard {
        self
    }

    async fn give_up(self) -> Result<(), CallError> {
        self.release().await
    }
}

/// Acquires; a wait in the queue is as long as was asked.
async fn acquire(session: &Session, args: &LockArgs, queued: LastHolder) -> Result<Guard, AcquireError> {
    let on_queued = move |now| queued.note(now);
    // Two types by design: what is given to one must be given to the other.
    macro_rules! asked {
        ($request:expr) => {{
            let mut request = $request.on_queued(on_queued);
            if args.shared {
                request = request.shared();
            }
            if args.quarantine {
                request = request.quarantine();
            }
            match args.wait.time() {
                Some(time) => request.wait(time).acquire().await,
                None => request.acquire().await,
            }
        }};
    }
    match &args.resource {
        Some(resource) => asked!(session.fenced(&args.key, resource)),
        None => asked!(session.advisory(&args.key)),
    }
}

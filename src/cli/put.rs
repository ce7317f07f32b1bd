//! `palisade put`: an ephemeral key that is there while this process, or a command, runs.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use palisade_client::{LostReason, Renewals, Session};
use palisade_types::limits::VALUE_BYTES_MAX;
use serde_json::json;

use super::args::{Global, PutArgs};
use super::connect;
use super::exit::{self, Failure};
use super::keep::{Kept, farewell, hold, unless_ended};
use super::run::run_command;
use super::signals::Signals;

/// A key that was put, with the session it lives with.
struct Present {
    key: String,
    session: Session,
}

impl Kept for Present {
    async fn lost(&self) -> LostReason {
        self.session.lost().await
    }

    fn is_valid(&self) -> bool {
        self.session.is_valid()
    }

    fn remaining(&self) -> Duration {
        self.session.remaining()
    }

    /// Nothing breaks if the command outlives the key for a moment: it gets all the time it was given.
    fn grace(&self) -> Duration {
        Duration::MAX
    }

    fn renewals(&self) -> Renewals {
        self.session.renewals()
    }

    fn failure(&self, reason: LostReason) -> Failure {
        Failure::new(exit::LOST, format!("lost the key {}: {reason}", self.key))
    }
}

/// Puts, runs or waits, and takes the key away by closing its session.
pub(crate) async fn run(global: &Global, args: PutArgs) -> Result<u8, Failure> {
    args.session.check("KEY", &args.key)?;
    if args.value.len() > VALUE_BYTES_MAX {
        return Err(Failure::usage(format!("VALUE: at most {VALUE_BYTES_MAX} bytes")));
    }
    let mut signals = Signals::listen()?;
    let client = connect::client(global)?;
    let value = args.value.as_bytes();
    let putting = async {
        let session = client.session().ttl(args.session.ttl).owner(args.session.owner()).open().await?;
        match session.put(&args.key, value).await {
            Ok(()) => Ok((session, Ok(()))),
            Err(error) => Ok((session, Err(error))),
        }
    };
    let (session, put) = match unless_ended(putting, &mut signals).await? {
        Ok(put) => put.map_err(|e| connect::failure(&e))?,
        Err(code) => return Ok(code),
    };
    let present = Present { key: args.key.clone(), session };
    let end = match put {
        Ok(()) => keep(global, &present, &args, &mut signals).await,
        Err(error) => Err(connect::failure(&error)),
    };
    farewell(global, "close the session", present.session.close()).await;
    end
}

async fn keep(
    global: &Global,
    present: &Present,
    args: &PutArgs,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let session = present.session.id().to_string();
    if args.command.is_empty() {
        let line = match global.json {
            true => json!({ "key": present.key, "session": session }).to_string(),
            false => format!("{} is there, session {session}", present.key),
        };
        return hold(present, &line, signals).await;
    }
    let environment = [
        ("PALISADE_KEY", present.key.clone()),
        ("PALISADE_SESSION", session),
        ("PALISADE_ENDPOINTS", global.endpoints.join(",")),
    ];
    run_command(present, (&args.command[..], &environment[..], args.session.kill_after), signals).await
}

//! `palisade elect`: campaigns, and leads while this process or a command runs.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use palisade_client::{CallError, Guard, Leadership, LostReason, Renewals, Session};
use palisade_types::limits::VALUE_BYTES_MAX;

use super::args::{ElectArgs, Global};
use super::exit::{self, Failure};
use super::keep::{Granted, Kept, LastHolder, Wanted, get_and_keep};

/// Campaigns, leads, resigns.
pub(crate) async fn run(global: &Global, args: ElectArgs) -> Result<u8, Failure> {
    args.session.check("NAME", &args.name)?;
    if args.value.len() > VALUE_BYTES_MAX {
        return Err(Failure::usage(format!("--value: at most {VALUE_BYTES_MAX} bytes")));
    }
    let (key, session, wait, command) = (&*args.name, &args.session, &args.wait, &*args.command);
    let get = async |session: &Session, queued: LastHolder| {
        let request = session.campaign(key, args.value.as_bytes()).on_queued(move |now| queued.note(now));
        match wait.time() {
            Some(time) => request.wait(time).lead().await,
            None => request.lead().await,
        }
    };
    get_and_keep(global, Wanted { key, session, wait, command }, get).await
}

impl Kept for Leadership {
    async fn lost(&self) -> LostReason {
        (**self).lost().await
    }

    fn is_valid(&self) -> bool {
        (**self).is_valid()
    }

    fn remaining(&self) -> Duration {
        (**self).remaining()
    }

    fn grace(&self) -> Duration {
        (**self).grace()
    }

    fn renewals(&self) -> Renewals {
        (**self).renewals()
    }

    fn failure(&self, reason: LostReason) -> Failure {
        Failure::new(exit::LOST, format!("no longer the leader under {}: {reason}", self.fence()))
    }
}

impl Granted for Leadership {
    const GIVE_UP: &str = "resign";

    fn guard(&self) -> &Guard {
        self
    }

    async fn give_up(self) -> Result<(), CallError> {
        self.resign().await
    }
}

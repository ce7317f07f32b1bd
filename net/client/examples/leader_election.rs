//! Several workers of which one at a time leads. It leads until it is told to stop or loses the leadership;
//! then the next one follows, at once where it resigned, within the TTL where it died.
//!
//!     cargo run --example leader_election -p palisade-client -- scheduler 10.0.0.7:9000
//!
//! Run it in two terminals, and stop the one that leads with Ctrl-C.

use std::time::Duration;

use palisade_client::{
    AcquireError, CallError, Client, ClientConfig, Leadership, LostReason, Session, Termination,
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long a leader may take to stop when this process is told to end.
const STOP_WITHIN: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some(election), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: leader_election ELECTION ADDRESS".into());
    };
    let endpoints = std::env::var("PALISADE_ENDPOINTS")
        .unwrap_or_else(|_| "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403".to_owned());
    let client = Client::connect(ClientConfig::new(endpoints.split(',')))?;
    run(&client, &election, &address, Duration::from_secs(10), |said| println!("{said}")).await
}

/// Campaigns and leads, over and over, until this process gets SIGTERM or SIGINT.
pub(crate) async fn run(
    client: &Client,
    election: &str,
    address: &str,
    ttl: Duration,
    say: impl Fn(String),
) -> Result<(), Error> {
    let mut end = Termination::listen()?;
    loop {
        let opening = client.session().ttl(ttl).owner(address).open();
        let session = tokio::select! {
            opened = opening => match opened {
                Ok(session) => session,
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => {
                    say(format!("an outage: {error}"));
                    continue;
                }
            },
            () = end.received() => return Ok(()),
        };
        let mut leading = std::pin::pin!(campaign(&session, election, address, &say));
        tokio::select! {
            // What is lost is lost for good: whoever wants to lead again campaigns in a new session.
            reason = &mut leading => say(format!("no longer the leader: {}", reason?)),
            () = end.received() => {
                // In order: the work is told and stops, then we resign, then the session is closed.
                let (closed, led) = tokio::join!(session.shut_down(STOP_WITHIN), leading);
                say(format!("stopped: {}", led?));
                return Ok(closed?);
            }
        }
    }
}

/// Leads once; why no longer.
async fn campaign(
    session: &Session,
    election: &str,
    address: &str,
    say: &impl Fn(String),
) -> Result<LostReason, Error> {
    match session.campaign(election, address).lead().await {
        Ok(leadership) => Ok(lead(leadership, say).await),
        Err(AcquireError::Call(CallError::SessionLost(reason))) => Ok(reason),
        Err(error) => Err(error.into()),
    }
}

/// Leads until it is lost. The leadership is dropped, and with that resigned, when the work has stopped.
async fn lead(leadership: Leadership, say: &impl Fn(String)) -> LostReason {
    say(format!("leading under {}", leadership.fence()));
    let lost = leadership.lost();
    tokio::select! {
        reason = lost => reason,
        () = work(&leadership) => unreachable!("the work has no end of its own"),
    }
}

/// What a leader does. Whatever it writes elsewhere carries the fence, for only that keeps a leader that was
/// paused from overwriting what its successor wrote: see the example `protected_writer`.
async fn work(leadership: &Leadership) {
    loop {
        assert!(leadership.fence().epoch().0 > 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

//! `palisade check`: inside a command that `lock`, `elect` or `put` runs, whether it still holds what it was
//! given. Two must say so: the process that renews the session, which alone knows how much of the lease is
//! left, and the cluster, in a linearizable read.

use std::time::Duration;

use palisade::clock;
use palisade_client::{Client, Epoch, LogIndex, SessionId, Standing};
use serde_json::json;

use super::answers::{self, Told};
use super::args::{CheckArgs, Global};
use super::connect;
use super::exit::{self, Failure};
use super::output::Output;

/// What the environment says that this process was given.
struct Given {
    key: String,
    session: SessionId,
    /// None: an ephemeral key.
    epoch: Option<Epoch>,
    /// Where the process that keeps it answers.
    socket: String,
}

/// Checks: 0, or 84 when it is lost.
pub(crate) async fn run(global: &Global, args: &CheckArgs) -> Result<u8, Failure> {
    let given = Given::of_environment(|name| std::env::var(name).ok())?;
    let client = connect::client(global)?;
    // Whoever renews it knows of a loss first, also when no cluster can be reached.
    if let Err(failure) = given.left(global).await {
        // One that is stopped says nothing, but the cluster may know by now.
        if failure.code == exit::UNAVAILABLE && matches!(given.is_held(&client).await, Ok(false)) {
            return Err(given.lost("the cluster says that it is not held any more"));
        }
        return Err(failure);
    }
    if !given.is_held(&client).await? {
        return Err(given.lost("the cluster says that it is not held any more"));
    }
    let left = given.left(global).await?;
    let mut out = Output::new(global.json);
    if global.json || args.remaining {
        out.line(|| given.json(left), || seconds(left))?;
    }
    out.flush()?;
    Ok(0)
}

impl Given {
    fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Given, Failure> {
        let given = |name: &str| {
            variable(name).ok_or_else(|| {
                Failure::usage(format!(
                    "{name} is not set: check is for commands that `palisade lock`, `elect` or `put` runs"
                ))
            })
        };
        let session = given("PALISADE_SESSION")?.parse();
        let epoch = variable("PALISADE_EPOCH").map(|text| text.parse().map(Epoch)).transpose();
        Ok(Given {
            key: given("PALISADE_KEY")?,
            session: session.map_err(|e| Failure::usage(format!("PALISADE_SESSION: {e}")))?,
            epoch: epoch.map_err(|e| Failure::usage(format!("PALISADE_EPOCH: {e}")))?,
            socket: given(answers::VARIABLE)?,
        })
    }

    fn lost(&self, why: &str) -> Failure {
        let epoch = self.epoch.map(|epoch| format!(" under epoch {epoch}")).unwrap_or_default();
        Failure::new(exit::LOST, format!("lost {}{epoch}: {why}", self.key))
    }

    /// What is left of the lease, at least.
    async fn left(&self, global: &Global) -> Result<Duration, Failure> {
        let asked = clock::lease_now();
        let told = answers::ask(&self.socket, global.timeout).await;
        let told = told.map_err(|e| Failure::new(exit::OS, format!("{}: {e}", answers::VARIABLE)))?;
        match told {
            Told::Left(left) => match left.saturating_sub(clock::lease_now().since(asked)) {
                Duration::ZERO => Err(self.lost("nothing is left of its lease")),
                left => Ok(left),
            },
            Told::Gone => Err(self.lost("the process that kept it is gone, or has given it up")),
            Told::Silent => Err(Failure::new(
                exit::UNAVAILABLE,
                format!("the process that keeps {} does not answer: is it stopped?", self.key),
            )),
        }
    }

    /// What the cluster says.
    async fn is_held(&self, client: &Client) -> Result<bool, Failure> {
        let Some(epoch) = self.epoch else {
            let seen = client.get(&self.key).await.map_err(|e| connect::failure(&e))?.value;
            return Ok(seen.is_some_and(|row| row.session == self.session && !row.ending));
        };
        let seen = client.describe(&self.key).await.map_err(|e| connect::failure(&e))?.value;
        let ours = seen.holders.iter().find(|h| h.session == self.session && h.epoch == epoch);
        match ours {
            Some(holder) => Ok(holder.standing == Standing::Live),
            // So many share the lock that not all are listed.
            None if seen.holding > u32::try_from(seen.holders.len()).unwrap_or(u32::MAX) => {
                self.lives(client).await
            }
            None => Ok(false),
        }
    }

    /// Whether the session lives.
    async fn lives(&self, client: &Client) -> Result<bool, Failure> {
        let before = SessionId { opened: LogIndex(self.session.opened.0.saturating_sub(1)), ..self.session };
        let page = client.sessions(Some(before), 1).await.map_err(|e| connect::failure(&e))?;
        Ok(page.rows.first().is_some_and(|row| row.session == self.session))
    }

    fn json(&self, left: Duration) -> serde_json::Value {
        json!({
            "held": true,
            "key": self.key,
            "epoch": self.epoch.map(|epoch| epoch.0),
            "session": self.session.to_string(),
            "remaining_ms": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

/// As timeout(1) and our own flags read it; what is less than a millisecond is left out.
fn seconds(left: Duration) -> String {
    format!("{}.{:03}s", left.as_secs(), left.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_command_and_with_nonsense_in_the_environment_it_is_a_usage_error() {
        let all = [
            ("PALISADE_KEY", "k"),
            ("PALISADE_SESSION", "0-7"),
            ("PALISADE_EPOCH", "5"),
            ("PALISADE_CHECK", "palisade-check-0"),
        ];
        let without = |left_out: &str| {
            let look = |name: &str| {
                all.iter().find(|(n, _)| *n == name && *n != left_out).map(|(_, value)| (*value).to_owned())
            };
            Given::of_environment(look)
        };
        assert!(without("").is_ok_and(|given| given.epoch == Some(Epoch(5))));
        assert!(without("PALISADE_EPOCH").is_ok_and(|given| given.epoch.is_none()), "an ephemeral key");
        for name in ["PALISADE_KEY", "PALISADE_SESSION", "PALISADE_CHECK"] {
            let failure = without(name).err().unwrap();
            assert_eq!(failure.code, exit::USAGE);
            assert!(failure.to_string().starts_with(name), "{failure}");
        }
        let nonsense = |name: &str| Some(if name == "PALISADE_SESSION" { "0-7" } else { "x" }.to_owned());
        assert_eq!(Given::of_environment(nonsense).err().map(|f| f.code), Some(exit::USAGE), "an epoch");
        assert_eq!(Given::of_environment(|_| Some("x".to_owned())).err().map(|f| f.code), Some(exit::USAGE));
    }

    #[test]
    fn what_is_left_is_said_as_our_flags_read_it() {
        let left = Duration::from_micros(12_345_999);
        assert_eq!(seconds(left), "12.345s");
        assert_eq!(super::super::args::duration(&seconds(left)), Ok(Duration::from_millis(12_345)));
        assert_eq!(seconds(Duration::from_millis(7)), "0.007s");
    }
}

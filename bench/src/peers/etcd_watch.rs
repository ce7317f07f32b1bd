//! Watchers of one key at etcd: a connection has one stream, which carries all of its watches.

use std::sync::Arc;

use etcd_client::{Client, Compare, CompareOp, PutOptions, ResponseHeader, Txn, TxnOp, WatchStream};
use tokio::task::JoinSet;

use super::audience::{Audience, Changer};
use super::etcd::{at, connect};
use super::window::in_batches;
use super::{PeerError, fresh_name};
use crate::told::{Told, Watching};

/// A lease outlives the run by this many seconds.
const SPARE_SECONDS: u64 = 120;

/// Has a key watched over connections to the endpoints in turn, and changed through the leader.
pub(crate) async fn run(
    watching: &Watching,
    leader: &str,
    endpoints: &[String],
    edge: &mut dyn FnMut(),
) -> Result<Told, PeerError> {
    let key = fresh_name()?;
    let mut client = connect(leader.to_owned()).await?;
    let ttl = (watching.warmup + watching.duration).as_secs() + SPARE_SECONDS;
    let lease = client.lease_grant(ttl as i64, None).await?.id();
    // The revision before the first change: nobody else writes to this cluster.
    let base = revision(client.put(format!("{key}-base"), "", None).await?.header())?;
    let streams = (0..watching.connections).map(|n| {
        let watches = watches_on(watching, n);
        stream(at(endpoints, n), key.clone(), watches)
    });
    let audience = Audience::new(watching.watchers);
    let mut hearers = JoinSet::new();
    for (client, stream) in in_batches(streams).await? {
        hearers.spawn(hear(client, stream, base, audience.clone()));
    }
    let mut holder = Holder { client, lease, key, base };
    let told = audience.watch(watching, &mut holder, &mut hearers, edge).await?;
    holder.client.lease_revoke(lease).await?;
    Ok(told)
}

/// Watchers go to the connections in turn.
fn watches_on(watching: &Watching, connection: u32) -> u32 {
    let Watching { watchers, connections, .. } = *watching;
    watchers / connections + u32::from(connection < watchers % connections)
}

fn revision(header: Option<&ResponseHeader>) -> Result<i64, PeerError> {
    header.map(ResponseHeader::revision).ok_or_else(|| PeerError::Answer("no header".to_owned()))
}

/// A connection with so many watches of the key, all of which stand.
async fn stream(endpoint: String, key: String, watches: u32) -> Result<(Client, WatchStream), PeerError> {
    let mut client = connect(endpoint).await?;
    let mut stream = client.watch(key.clone(), None).await?;
    for n in 0..watches {
        if n > 0 {
            stream.watch(key.clone(), None).await?;
        }
        let answer = stream.message().await?;
        if !answer.is_some_and(|a| a.created() && !a.canceled()) {
            return Err(PeerError::Answer("a watch was not created".to_owned()));
        }
    }
    Ok((client, stream))
}

/// Hears for all watchers of a connection, which is kept until then.
async fn hear(
    _client: Client,
    mut stream: WatchStream,
    base: i64,
    audience: Arc<Audience>,
) -> Result<(), PeerError> {
    while let Some(answer) = stream.message().await? {
        if answer.canceled() {
            return Err(PeerError::Answer(format!("a watch was cancelled: {}", answer.cancel_reason())));
        }
        for event in answer.events() {
            if let Some(number) = event.kv().and_then(|kv| number(kv.mod_revision(), base)) {
                audience.heard(number);
            }
        }
    }
    Ok(())
}

/// Which change this revision is of.
fn number(revision: i64, base: i64) -> Option<u64> {
    u64::try_from(revision.checked_sub(base)?.checked_sub(1)?).ok()
}

/// Takes the key and leaves it, as in the work `cycle`.
struct Holder {
    client: Client,
    lease: i64,
    key: String,
    base: i64,
}

impl Changer for Holder {
    async fn change(&mut self, change: u64) -> Result<(), PeerError> {
        let made = if change.is_multiple_of(2) {
            let free = Compare::create_revision(self.key.clone(), CompareOp::Equal, 0);
            let options = PutOptions::new().with_lease(self.lease);
            let take = TxnOp::put(self.key.clone(), "holder", Some(options));
            revision(self.client.txn(Txn::new().when([free]).and_then([take])).await?.header())?
        } else {
            revision(self.client.delete(self.key.clone(), None).await?.header())?
        };
        if number(made, self.base) != Some(change) {
            return Err(PeerError::Answer(format!("revision {made} is not of change {change}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn revisions_after_the_base_are_changes() {
        assert_eq!((number(8, 7), number(10, 7)), (Some(0), Some(2)));
        assert_eq!((number(7, 7), number(i64::MIN, 7)), (None, None));
    }

    #[test]
    fn every_watcher_is_on_a_connection() {
        let second = Duration::from_secs(1);
        let watching =
            Watching { watchers: 11, connections: 4, per_second: 1, warmup: second, duration: second };
        let on: Vec<u32> = (0..4).map(|n| watches_on(&watching, n)).collect();
        assert_eq!(on, [3, 3, 3, 2]);
    }
}

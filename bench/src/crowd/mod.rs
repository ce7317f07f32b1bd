//! Crowds of sessions that live and die: `deaths`, thousands of them at once beside others at work,
//! and `idle`, thousands that only renew.

mod deaths;
mod idle;

pub(crate) use deaths::{DeathsOptions, run as deaths};
pub(crate) use idle::{IdleOptions, run as idle};

use std::time::Duration;

use palisade_types::{Name, RequestId, SessionToken};
use palisade_wire::Request;

use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::options::Target;
use crate::poller::Outbox;
use crate::scrape;

/// How long the leader is looked for.
const FIND_TIME: Duration = Duration::from_secs(10);
/// Requests under way on a connection, of which a server takes 1,024.
const WINDOW: u32 = 512;
const SECOND: u64 = 1_000_000_000;

/// What a request was, and of which session: in its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Open(u32),
    Acquire(u32),
    Release(u32),
    Report(u32),
    Renew(u32),
}

impl Asked {
    fn id(self) -> RequestId {
        let (kind, n) = match self {
            Asked::Open(n) => (1, n),
            Asked::Acquire(n) => (2, n),
            Asked::Release(n) => (3, n),
            Asked::Report(n) => (4, n),
            Asked::Renew(n) => (5, n),
        };
        RequestId(kind << 32 | u64::from(n))
    }

    fn of(id: RequestId) -> Result<Asked, BenchError> {
        let n = id.0 as u32;
        Ok(match id.0 >> 32 {
            1 => Asked::Open(n),
            2 => Asked::Acquire(n),
            3 => Asked::Release(n),
            4 => Asked::Report(n),
            5 => Asked::Renew(n),
            _ => return Err(BenchError::Protocol(format!("an answer to {id}, which nobody asked"))),
        })
    }
}

/// The cluster of a run: its own, or one that runs already.
fn cluster_of(target: &Target) -> Result<(Option<Cluster>, Vec<String>), BenchError> {
    let Some(nodes) = target.nodes else { return Ok((None, target.endpoints.clone())) };
    let palisade = cluster::palisade_path(target.palisade.as_deref())?;
    let cluster = match &target.dir {
        Some(dir) => Cluster::start(nodes, dir, target.port, &palisade)?,
        None => Cluster::start_in_scratch(nodes, target.port, &palisade)?,
    };
    let endpoints = cluster.endpoints.clone();
    Ok((Some(cluster), endpoints))
}

/// Opens the nth session of a run.
fn open(n: u32, token: u128, ttl: Duration, owner: &Name, link: usize, out: &mut Outbox) {
    let ttl_ms = u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX);
    let (token, owner) = (SessionToken(token), Some(owner.clone()));
    Request::OpenSession { token, ttl_ms, owner, incarnation: None }
        .encode(Asked::Open(n).id(), out.to(link));
}

fn name(text: &str) -> Result<Name, BenchError> {
    Name::new(text).map_err(|e| BenchError::Usage(e.to_string()))
}

/// Random bits, for tokens and names that no other run has.
fn random() -> Result<u128, BenchError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| BenchError::Protocol(e.to_string()))?;
    Ok(u128::from_le_bytes(bytes))
}

/// A gauge of one node.
fn gauge(address: &str, of: &str) -> Result<u64, BenchError> {
    scrape::gauge(address, of).ok_or_else(|| BenchError::Protocol(format!("{address} does not tell {of}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_was_asked() {
        for asked in
            [Asked::Open(0), Asked::Acquire(7), Asked::Release(u32::MAX), Asked::Report(3), Asked::Renew(1)]
        {
            assert_eq!(Asked::of(asked.id()).unwrap(), asked);
        }
        assert!(Asked::of(RequestId(9 << 32)).is_err());
    }
}

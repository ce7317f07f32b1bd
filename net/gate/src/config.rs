//! What can be set, checked.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use palisade_fence::{Key, NameError, Verifier};

/// What a gate is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The resource.
    pub upstream: Upstream,
    /// The file of the ledger: floors and what is on its way. A gate that loses it lets zombies in.
    pub ledger: PathBuf,
    /// Which key protects which paths. Without any, each request may show a fence of whatever key.
    pub routes: Vec<Route>,
    /// Takes only fences that the cluster has signed, by this verifier. Without it nothing is verified, and a signature is passed on
    /// unseen.
    pub require_signed: Option<Verifier>,
    /// Whether GET, HEAD and OPTIONS must show a fence as well.
    pub fence_reads: bool,
    /// How long to wait for the head of the resource's answer. Beyond it the outcome is unknown.
    pub answer_within: Duration,
    /// How long the resource may still act on a request after the gate has lost sight of it. At least [`Config::answer_within`].
    pub upstream_max: Duration,
    /// How many requests of one key wait for their turn; more are told to come again.
    pub queue: usize,
    /// For how long they wait.
    pub queue_within: Duration,
    /// The longest body of a request, in bytes.
    pub body_max: usize,
    /// The most requests under way at once, over all keys.
    pub requests_max: usize,
}

/// The root of the resource: `http://HOST:PORT`, perhaps with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    authority: Authority,
    prefix: String,
}

/// Why a text is no [`Upstream`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the resource is given as http://HOST:PORT or http://HOST:PORT/PATH, without query")]
pub struct UpstreamError;

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Upstream, UpstreamError> {
        let uri: Uri = text.parse().map_err(|_| UpstreamError)?;
        let (scheme, authority) = (uri.scheme(), uri.authority());
        match (scheme, authority, uri.query()) {
            (Some(scheme), Some(authority), None) if *scheme == Scheme::HTTP => Ok(Upstream {
                authority: authority.clone(),
                prefix: uri.path().trim_end_matches('/').to_owned(),
            }),
            _ => Err(UpstreamError),
        }
    }
}

impl Upstream {
    /// Host and port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where a request for this path goes. `None` if that makes no address.
    pub(crate) fn at(&self, asked: &Uri) -> Option<Uri> {
        let path = asked.path_and_query().map_or("/", PathAndQuery::as_str);
        Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(format!("{}{path}", self.prefix))
            .build()
            .ok()
    }
}

/// The key that protects all paths that begin so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The beginning of the paths.
    pub prefix: String,
    /// The key.
    pub key: Key,
}

/// Why a text is no [`Route`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// It does not read `/PATH=KEY`.
    #[error("a protected path is given as /PATH=KEY")]
    Syntax,
    /// The key is no name.
    #[error("the key of a protected path is no name: {0}")]
    Key(#[from] NameError),
}

impl FromStr for Route {
    type Err = RouteError;

    fn from_str(text: &str) -> Result<Route, RouteError> {
        let (prefix, key) = text.split_once('=').ok_or(RouteError::Syntax)?;
        if !prefix.starts_with('/') {
            return Err(RouteError::Syntax);
        }
        Ok(Route { prefix: prefix.to_owned(), key: Key::new(key)? })
    }
}

impl Config {
    /// The key that protects a path: that of the longest beginning. `Ok(None)` if none is asked for.
    ///
    /// # Errors
    /// When there are routes and none of them covers the path: then nobody may write there.
    pub(crate) fn protector(&self, path: &str) -> Result<Option<&Key>, ()> {
        if self.routes.is_empty() {
            return Ok(None);
        }
        let covers = |route: &&Route| {
            path.strip_prefix(&route.prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || route.prefix.ends_with('/'))
        };
        let longest = self.routes.iter().filter(covers).max_by_key(|route| route.prefix.len());
        longest.map(|route| Some(&route.key)).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_request_goes() {
        let at = |upstream: &str, asked: &str| {
            let upstream: Upstream = upstream.parse().unwrap();
            upstream.at(&asked.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(at("http://h:1", "/a?b=c"), "http://h:1/a?b=c");
        assert_eq!(at("http://h:1/root/", "/a"), "http://h:1/root/a");
        for bad in ["h:1", "https://h:1", "http://h:1/?q", "", "/x"] {
            assert!(bad.parse::<Upstream>().is_err(), "{bad}");
        }
    }
}

//! What a client needs to know before it starts.

use std::time::Duration;

use palisade_client_core::CoreConfig;
use palisade_types::ClusterId;

/// How to reach a cluster. Start from [`ClientConfig::new`] and change what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Nodes, as `HOST:PORT`. One is enough to find the others; all are better, since any may be
    /// down. Ports are the nodes' own, not those of their administration.
    pub endpoints: Vec<String>,
    /// Refuse any other cluster. `None` takes the cluster that answers.
    pub cluster: Option<ClusterId>,
    /// How long opening a session, reading, releasing and closing wait for a usable cluster before
    /// they fail as unavailable. 10 s by default. A failover takes about 3 s: a shorter time makes
    /// every change of leader visible.
    pub call_timeout: Duration,
    /// How long to wait for a TCP connection before the next node is tried. 1 s by default.
    pub dial_timeout: Duration,
    /// A node that is silent for so long while something is asked of it is left for another. 2 s by
    /// default. Shorter finds a hung node sooner, and leaves a slow one needlessly.
    pub silence_timeout: Duration,
    /// The shortest pause between two tries. 25 ms by default; doubled up to
    /// [`ClientConfig::backoff_max`], with jitter.
    pub backoff_min: Duration,
    /// The longest pause between two tries. 1 s by default.
    pub backoff_max: Duration,
}

impl ClientConfig {
    /// A configuration with the usual values, for these nodes.
    pub fn new<I>(endpoints: I) -> ClientConfig
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        ClientConfig {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            cluster: None,
            call_timeout: Duration::from_secs(10),
            dial_timeout: Duration::from_secs(1),
            silence_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(25),
            backoff_max: Duration::from_secs(1),
        }
    }

    /// What of it concerns connections.
    pub(crate) fn for_core(&self) -> CoreConfig {
        CoreConfig {
            endpoints: self.endpoints.clone(),
            cluster: self.cluster,
            dial_timeout: self.dial_timeout,
            silence_timeout: self.silence_timeout,
            backoff_min: self.backoff_min,
            backoff_max: self.backoff_max,
        }
    }

    /// The first fault of the configuration, if there is one.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.endpoints.is_empty() {
            return Some("no endpoint is given".to_owned());
        }
        for endpoint in &self.endpoints {
            let port = endpoint.rsplit_once(':').and_then(|(host, port)| {
                (!host.is_empty()).then(|| port.parse::<u16>().ok().filter(|p| *p != 0))?
            });
            if port.is_none() || endpoint.contains(char::is_whitespace) {
                return Some(format!("{endpoint:?} is no HOST:PORT"));
            }
        }
        if self.backoff_min.is_zero() || self.backoff_min > self.backoff_max {
            return Some(
                "the pauses between tries must be above zero, the longest not below the shortest".to_owned(),
            );
        }
        let zero = [self.call_timeout, self.dial_timeout, self.silence_timeout].iter().any(Duration::is_zero);
        zero.then(|| "a timeout is zero".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_must_have_host_and_port() {
        assert_eq!(ClientConfig::new(["a:1", "[::1]:7401"]).fault(), None);
        for bad in ["a", ":1", "a:", "a:0", "a:70000", "a:b"] {
            assert!(ClientConfig::new([bad]).fault().is_some(), "{bad}");
        }
        assert!(ClientConfig::new(Vec::<String>::new()).fault().is_some());
    }
}

//! Hosts of their own on this machine: three network namespaces, one with the nodes of a cluster and two for
//! their clients, each client joined to the nodes by a wire that can be cut. Gone when dropped.

use std::process::Command;

use crate::support::{finish, note};

/// Where the nodes listen, whatever becomes of the wires.
pub(crate) const NODES: &str = "10.77.0.1";

/// A network namespace: what runs in it sees its own links and addresses, and no others.
pub(crate) struct Host(String);

impl Host {
    fn make(name: &str) -> Result<Host, String> {
        let name = format!("palisade-{}-{name}", std::process::id());
        ip(&["netns", "add", &name])?;
        let host = Host(name);
        host.ip("link set lo up")?;
        Ok(host)
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// The command, to be run here.
    pub(crate) fn runs(&self, command: &Command) -> Command {
        run_at(&self.0, command)
    }

    fn ip(&self, words: &str) -> Result<(), String> {
        let words: Vec<&str> = ["-n", &self.0].into_iter().chain(words.split(' ')).collect();
        ip(&words)
    }
}

/// The command, to be run at a host. The process that is started becomes the command.
pub(crate) fn run_at(host: &str, command: &Command) -> Command {
    let mut there = Command::new("ip");
    there.args(["netns", "exec", host]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => there.env(name, value),
            None => there.env_remove(name),
        };
    }
    there
}

impl Drop for Host {
    fn drop(&mut self) {
        // Its links go with it.
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let end = Command::new("ip")
        .args(words)
        .output()
        .map_err(|e| format!("ip (the Debian package iproute2): {e}"))?;
    match end.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&end.stderr).trim())),
    }
}

/// Where a wire is cut. Neither end hears of it: nothing is refused, it is silence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// The client's host takes its own link down.
    Near,
    /// The link at the nodes goes down.
    Far,
}

/// The three hosts.
pub(crate) struct Network {
    pub(crate) nodes: Host,
    pub(crate) first: Host,
    pub(crate) second: Host,
}

impl Network {
    /// Makes them; where that is not possible, says what is SKIPPED and why.
    pub(crate) fn make() -> Option<Network> {
        let make = || {
            let network = Network {
                nodes: Host::make("nodes")?,
                first: Host::make("first")?,
                second: Host::make("second")?,
            };
            network.nodes.ip(&format!("addr add {NODES}/32 dev lo"))?;
            for (number, client) in [(1, &network.first), (2, &network.second)] {
                ip(&[
                    "link",
                    "add",
                    "wire",
                    "netns",
                    &client.0,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    &format!("wire{number}"),
                    "netns",
                    &network.nodes.0,
                ])?;
                client.ip(&format!("addr add 10.77.{number}.2/24 dev wire"))?;
                network.nodes.ip(&format!("addr add 10.77.{number}.1/24 dev wire{number}"))?;
                network.join(number, client)?;
            }
            Ok(network)
        };
        make().map_err(|why: String| note(&format!("SKIPPED: no network namespaces: {why}"))).ok()
    }

    fn join(&self, number: u8, client: &Host) -> Result<(), String> {
        self.nodes.ip(&format!("link set wire{number} up"))?;
        client.ip("link set wire up")?;
        client.ip(&format!("route replace {NODES} via 10.77.{number}.1"))
    }

    /// Cuts the wire of the first client.
    pub(crate) fn cut(&self, place: Cut) {
        let cut = match place {
            Cut::Near => self.first.ip("link set wire down"),
            Cut::Far => self.nodes.ip("link set wire1 down"),
        };
        cut.expect("a wire that was up");
    }

    /// Mends it.
    pub(crate) fn mend(&self) {
        self.join(1, &self.first).expect("a wire as it was");
    }

    /// Runs a command to its end among the nodes.
    pub(crate) fn asked(&self, command: &Command) -> String {
        finish(&mut self.nodes.runs(command)).stdout
    }
}

//! A worker as the demo sees it: a process that takes orders, and that can be paused.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use palisade::clock;
use palisade_types::Time;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

use super::super::exit::{self, Failure};
use super::super::nodes::own_program;
use super::super::sys;
use super::worker::{Order, Said};

/// How long anything in the demo may take; nothing takes so long unless it is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How often a process that is being stopped is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A worker's process: killed when this is dropped.
pub(super) struct Actor {
    pub(super) name: &'static str,
    process: Child,
    orders: Option<ChildStdin>,
    said: Lines<BufReader<pipe::Receiver>>,
}

/// What a worker is started with.
pub(super) struct Role<'a> {
    pub(super) name: &'static str,
    pub(super) amount: i64,
    pub(super) fenced: bool,
    pub(super) books: &'a Path,
    pub(super) endpoints: &'a [String],
}

impl Actor {
    /// Starts its process. To be called on the main thread.
    pub(super) fn start(role: &Role<'_>) -> Result<Actor, Failure> {
        let trouble = |e: std::io::Error| Failure::new(exit::OS, format!("worker {}: {e}", role.name));
        let mut command = Command::new(own_program());
        command.arg0("palisade").arg(super::WORKER).args(["--endpoints", &role.endpoints.join(",")]);
        command.args(["--name", role.name, "--amount", &role.amount.to_string(), "--books"]).arg(role.books);
        if role.fenced {
            command.arg("--fenced");
        }
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::die_with_parent(&mut command);
        let mut process = command.spawn().map_err(trouble)?;
        let orders = process.stdin.take();
        let said = process.stdout.take().ok_or_else(|| trouble(std::io::ErrorKind::BrokenPipe.into()))?;
        let said = pipe::Receiver::from_owned_fd(said.into()).map_err(trouble)?;
        Ok(Actor { name: role.name, process, orders, said: BufReader::new(said).lines() })
    }

    /// Gives an order; a worker that is paused finds it when it wakes up.
    pub(super) fn order(&mut self, order: Order) -> Result<(), Failure> {
        let line = serde_json::to_string(&order).map_err(|e| self.broken(&e))?;
        let given = self.orders.as_mut().map(|orders| writeln!(orders, "{line}"));
        given.unwrap_or(Ok(())).map_err(|e| self.broken(&e))
    }

    /// The next thing it says.
    pub(super) async fn says(&mut self) -> Result<Said, Failure> {
        let line = tokio::time::timeout(PATIENCE, self.said.next_line()).await;
        match line {
            Ok(Ok(Some(line))) => serde_json::from_str(&line).map_err(|e| self.broken(&e)),
            Ok(Ok(None)) => Err(self.broken(&"it has ended")),
            Ok(Err(e)) => Err(self.broken(&e)),
            Err(_) => Err(self.broken(&format!("it has said nothing for {} s", PATIENCE.as_secs()))),
        }
    }

    /// Gives an order, and waits for what comes of it.
    pub(super) async fn does(&mut self, order: Order) -> Result<Said, Failure> {
        self.order(order)?;
        self.says().await
    }

    /// Pauses it, and returns once the kernel shows it stopped.
    pub(super) async fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)?;
        let stat = format!("/proc/{}/stat", self.process.id());
        let until: Time = clock::now() + PATIENCE;
        // Behind the name of the program, in parentheses, stands its state.
        while !std::fs::read_to_string(&stat).map_err(|e| self.broken(&e))?.contains(") T ") {
            if clock::now() > until {
                return Err(self.broken(&"SIGSTOP does not stop it"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Lets it go on.
    pub(super) fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        rustix::process::kill_process(Pid::from_child(&self.process), signal).map_err(|e| self.broken(&e))
    }

    /// Has no more orders for it, and returns when it has given up its lock.
    pub(super) async fn dismiss(mut self) -> Result<(), Failure> {
        self.orders = None;
        match tokio::time::timeout(PATIENCE, self.said.next_line()).await {
            Ok(Ok(None)) => Ok(()),
            _ => Err(self.broken(&"it does not end")),
        }
    }

    /// It said something that has no place in the story.
    pub(super) fn broken(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::new(exit::SOFTWARE, format!("the demo did not get through: worker {}: {why}", self.name))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

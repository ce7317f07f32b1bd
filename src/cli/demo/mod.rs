//! `palisade demo`: why a lock needs a fence, seen in half a minute. A cluster as `dev` runs it, two worker
//! processes, and a SQLite file in which a worker that was paused past its lease writes: refused with the
//! fence, and data lost without it.

mod actor;
mod books;
mod judge;
mod story;
mod tell;
pub(crate) mod worker;

use std::net::TcpListener;

use serde_json::json;
use tempfile::TempDir;

use super::args::Global;
use super::dev_dir::{self, Layout};
use super::exit::{self, Failure};
use super::nodes::Nodes;
use super::signals::Ends;
use actor::PATIENCE;
use story::Part;
use tell::{Teller, Tone};

/// The verb of a worker's process. Not for people.
pub(crate) const WORKER: &str = "__demo-worker";
/// How many nodes.
const NODES: u32 = 3;
/// Where free ports are looked for, below those that the kernel gives to whoever asks for any.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// From one try to the next: more than the ports of a cluster span.
const STRIDE: u16 = 200;

/// Tells the story. Whatever ends it, no process and no file are left.
pub(crate) async fn run(global: &Global) -> Result<u8, Failure> {
    let mut ends = Ends::listen()?;
    let dir = tempfile::Builder::new().prefix("palisade-demo-").tempdir();
    let dir = dir.map_err(|e| {
        Failure::new(exit::OS, format!("no temporary directory in {}: {e}", std::env::temp_dir().display()))
    })?;
    let layout = Layout { dir: dir.path().to_owned(), nodes: NODES, port: free_port()? };
    dev_dir::prepare(&layout)?;
    let mut teller = Teller::new(global.json);
    begin(&mut teller, &dir)?;
    let mut nodes = Nodes::start("palisade demo", &layout, Some("error"));
    let end = tokio::select! {
        end = tell(&mut teller, &dir, &layout, &mut nodes) => end,
        signal = ends.next() => Ok(exit::of_signal(signal)),
    };
    // The workers have ended with the story.
    nodes.stop().await;
    let path = dir.path().to_owned();
    dir.close().map_err(|e| Failure::new(exit::OS, format!("{}: cannot be removed: {e}", path.display())))?;
    end
}

fn begin(teller: &mut Teller, dir: &TempDir) -> Result<(), Failure> {
    let text = "A lock alone cannot make a write safe: its holder may be paused, lose the lock, and write all the \
                same when it wakes up. See it happen, with a cluster of three nodes, two worker processes and a \
                SQLite file, in about ten seconds.";
    teller.say(Tone::Plain, text)?;
    teller.say(Tone::Plain, "")?;
    let facts = json!({ "dir": dir.path().to_string_lossy() });
    let text = format!("Starting three nodes, in {} ...", dir.path().display());
    teller.step("", ("starting", facts), Tone::Plain, &text)
}

async fn tell(teller: &mut Teller, dir: &TempDir, layout: &Layout, nodes: &mut Nodes) -> Result<u8, Failure> {
    match tokio::time::timeout(PATIENCE, nodes.ready(layout)).await {
        Ok(ready) => ready?,
        Err(_) => {
            let message = format!("the demo's cluster was not usable within {} s", PATIENCE.as_secs());
            return Err(Failure::new(exit::UNAVAILABLE, message));
        }
    }
    let endpoints = layout.endpoints();
    let facts = json!({ "endpoints": endpoints });
    teller.step("", ("ready", facts), Tone::Plain, &format!("Ready: {}", endpoints.join(", ")))?;
    let told = async {
        let fenced = story::tell(teller, Part::WithFence, dir.path(), &endpoints).await?;
        let bare = story::tell(teller, Part::WithoutFence, dir.path(), &endpoints).await?;
        Ok((fenced, bare))
    };
    let (fenced, bare) = tokio::select! {
        told = told => told?,
        // Of nodes that end and are started again stderr tells.
        never = nodes.watch() => match never {},
    };
    let verdicts =
        [(Part::WithFence, judge::with_fence(&fenced)), (Part::WithoutFence, judge::without_fence(&bare))];
    verdict(&verdicts)?;
    finish(teller)?;
    Ok(0)
}

/// Fails with a sentence for each part that did not end as it should.
fn verdict(verdicts: &[(Part, Result<(), String>)]) -> Result<(), Failure> {
    let wrong = verdicts.iter().filter_map(|(part, verdict)| {
        let why = verdict.as_ref().err()?;
        Some(format!("the part {} did not end as it should: {why}", part.name()))
    });
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(Failure::new(exit::SOFTWARE, wrong.join("; "))) }
}

fn finish(teller: &mut Teller) -> Result<(), Failure> {
    teller.say(Tone::Plain, "")?;
    teller.say(Tone::Heading, "WHAT YOU SAW")?;
    for text in [
        "With the fence the late write of a paused holder was refused, by one statement in the transaction of the \
         write. Without it the same write was taken, and an update was lost. The lock was the same both times: no \
         lock, and no time-out, can stop a process that is paused between its check and its write.",
        "",
        "Read on: net/fence/FENCING.md has the rule, and recipes for PostgreSQL, SQLite, files and object stores; \
         README.md goes on with a cluster of your own: `palisade dev`.",
    ] {
        teller.say(Tone::Plain, text)?;
    }
    Ok(())
}

/// A port such that those of a cluster above it are free.
fn free_port() -> Result<u16, Failure> {
    let tries = (PORTS.end - PORTS.start) / STRIDE;
    // Two demos that start together begin to look at different places.
    let first = u16::try_from(std::process::id() % u32::from(tries)).unwrap_or_default();
    let ports = (0..tries).map(|n| PORTS.start + (first + n) % tries * STRIDE);
    let free = |port: &u16| {
        let layout = Layout { dir: std::path::PathBuf::new(), nodes: NODES, port: *port };
        layout.addresses().all(|address| TcpListener::bind(address).is_ok())
    };
    let found = ports.into_iter().find(free);
    found.ok_or_else(|| Failure::new(exit::OS, "no free ports on loopback for three nodes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_did_not_end_as_it_should_fails_the_demo_and_is_named() {
        let right = [(Part::WithFence, Ok(())), (Part::WithoutFence, Ok(()))];
        assert!(verdict(&right).is_ok());
        let broken = [(Part::WithFence, Err("it was taken".to_owned())), (Part::WithoutFence, Ok(()))];
        let failure = verdict(&broken).unwrap_err();
        assert_ne!(failure.code, 0);
        assert_eq!(failure.to_string(), "the part with the fence did not end as it should: it was taken");
        let both = broken.map(|(part, _)| (part, Err("x".to_owned())));
        assert!(verdict(&both).unwrap_err().to_string().contains("without the fence"));
    }
}

//! The peers as systems of a comparison.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::systems::{Running, System, SystemError, name};
use super::works::{Arrangement, Peer};
use crate::error::BenchError;
use crate::host::{Sample, Sampler, Usage};
use crate::peers::install::Program;
use crate::peers::servers::Servers;
use crate::peers::{PeerError, jit};
use crate::told::{Told, Watching};
use crate::work::{Measured, Mix, Work};

/// Threads of the driver: with servers on the same machine, more would only take turns.
const THREADS: usize = 2;
/// ZooKeeper is warm when its virtual machines' compilers have gone idle: when they use less than this
/// share of the servers' CPU time.
const COMPILERS_SHARE: f64 = 0.05;
/// The compilers are looked at after each stretch; but never less than 15 seconds, or more than two minutes.
const WARM_UP_STRETCH: Duration = Duration::from_secs(5);
const WARM_UP_STRETCHES: RangeInclusive<u32> = 3..=24;
/// Enough to keep all of its threads busy.
const WARM_UP_SESSIONS: u32 = 256;

pub(super) fn find(peer: Peer, peers_dir: Option<&Path>) -> Result<Box<dyn System>, String> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let program = Program::find(peer, peers_dir, &search).map_err(|e| e.to_string())?;
    let version = program.version();
    Ok(Box::new(Installed { peer, program, version }))
}

/// A peer that can be started.
struct Installed {
    peer: Peer,
    program: Program,
    version: String,
}

impl System for Installed {
    fn name(&self) -> &'static str {
        name(self.peer)
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn peer(&self) -> Option<Peer> {
        Some(self.peer)
    }

    fn start(&self, dir: PathBuf) -> Result<Box<dyn Running>, SystemError> {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.map_err(PeerError::Socket)?;
        let servers = runtime.block_on(Servers::start(self.program.clone(), dir))?;
        let mut driven = Driven { servers, runtime };
        if self.peer == Peer::Zookeeper {
            driven.warm_up()?;
        }
        Ok(Box::new(driven))
    }
}

/// Running servers and the runtime of their driver.
struct Driven {
    servers: Servers,
    runtime: Runtime,
}

impl Driven {
    fn endpoints(&self, at: Arrangement) -> Result<Vec<String>, SystemError> {
        Ok(match at {
            Arrangement::Leader => vec![self.runtime.block_on(self.servers.leader())?],
            Arrangement::All => self.servers.endpoints().to_vec(),
        })
    }

    fn warm_up(&mut self) -> Result<(), SystemError> {
        let work = Work {
            mix: Mix::Cycle,
            sessions: WARM_UP_SESSIONS,
            connections: WARM_UP_SESSIONS,
            warmup: Duration::ZERO,
            duration: WARM_UP_STRETCH,
        };
        let pids = self.servers.pids();
        let mut before = jit::compiled_seconds(&pids);
        for stretch in 1..=*WARM_UP_STRETCHES.end() {
            let (_, usage) = self.measure(&work, Arrangement::All)?;
            let now = jit::compiled_seconds(&pids);
            let is_idle = now - before < usage.servers.unwrap_or_default() * COMPILERS_SHARE;
            if is_idle && WARM_UP_STRETCHES.contains(&stretch) {
                return Ok(());
            }
            before = now;
        }
        println!("  not warm after two minutes: the virtual machines still compile");
        Ok(())
    }
}

impl Running for Driven {
    fn measure(&mut self, work: &Work, at: Arrangement) -> Result<(Measured, Usage), SystemError> {
        let endpoints = self.endpoints(at)?;
        let sampler = Sampler::new(&self.servers.pids());
        let mut samples = Vec::with_capacity(2);
        let mut edge = || samples.push(sampler.sample());
        let measured = self.runtime.block_on(self.servers.run(work, &endpoints, &mut edge))?;
        Ok((measured, usage(samples)?))
    }

    fn watch(&mut self, watching: &Watching, at: Arrangement) -> Result<(Told, Usage), SystemError> {
        let endpoints = self.endpoints(at)?;
        let sampler = Sampler::new(&self.servers.pids());
        let mut samples = Vec::with_capacity(2);
        let mut edge = || samples.push(sampler.sample());
        let told = self.runtime.block_on(self.servers.watch(watching, &endpoints, &mut edge))?;
        Ok((told, usage(samples)?))
    }
}

/// What was used between the two samples.
fn usage(samples: Vec<Result<Sample, BenchError>>) -> Result<Usage, SystemError> {
    let mut samples = samples.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
    match (samples.next(), samples.next()) {
        (Some(begin), Some(end)) => Ok(begin.until(&end)),
        _ => Err(PeerError::Task.into()),
    }
}

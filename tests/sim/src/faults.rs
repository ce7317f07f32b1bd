//! The storm: which fault strikes when, and when each one passes. What a fault does is the
//! cluster's business; this file only draws.

use core::time::Duration;

use palisade_types::{Rng, Time};

use crate::network::Shape;
use crate::options::{FaultOptions, Rate};

/// A class of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// See [`FaultOptions`] for each.
    Cut,
    /// One node.
    Crash,
    /// All nodes.
    KillAll,
    /// One node stands still.
    Pause,
    /// One slow disk.
    SlowDisk,
    /// A failing write.
    DiskError,
    /// One slow direction.
    SlowLink,
    /// A client dies.
    ClientCrash,
    /// A client stands still.
    ClientPause,
    /// A node reads nothing of its clients.
    Deaf,
    /// No fault: a node hands over as if it were about to stop.
    HandOver,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 11] = [
        Class::Cut,
        Class::Crash,
        Class::KillAll,
        Class::Pause,
        Class::SlowDisk,
        Class::DiskError,
        Class::SlowLink,
        Class::ClientCrash,
        Class::ClientPause,
        Class::Deaf,
        Class::HandOver,
    ];
}

/// Draws strikes.
pub struct Storm {
    options: FaultOptions,
    rng: Rng,
    until: Time,
    /// How often each class has struck.
    pub strikes: [u64; Class::ALL.len()],
}

impl Storm {
    /// A storm until this time.
    pub fn new(options: FaultOptions, rng: Rng, until: Time) -> Storm {
        Storm { options, rng, until, strikes: [0; Class::ALL.len()] }
    }

    fn rate(&self, class: Class) -> Option<Rate> {
        let o = &self.options;
        match class {
            Class::Cut => o.cuts,
            Class::Crash => o.crashes,
            Class::KillAll => o.kill_all,
            Class::Pause => o.pauses,
            Class::SlowDisk => o.slow_disk,
            Class::DiskError => o.disk_errors,
            Class::SlowLink => o.slow_links,
            Class::ClientCrash => o.client_crashes,
            Class::ClientPause => o.client_pauses,
            Class::Deaf => o.deaf,
            Class::HandOver => o.hand_overs,
        }
    }

    /// When this class strikes next, if it does before the storm is over.
    pub fn next(&mut self, now: Time, class: Class) -> Option<Time> {
        let rate = self.rate(class)?;
        let at = now + rate.next_gap(&mut self.rng);
        (at < self.until).then_some(at)
    }

    /// How long the strike that happens now lasts. Counts it.
    pub fn strike(&mut self, class: Class) -> Duration {
        self.strikes[class as usize] += 1;
        match self.rate(class) {
            Some(rate) => rate.next_length(&mut self.rng),
            None => Duration::from_millis(100),
        }
    }

    /// Which node it hits: often the leader.
    pub fn victim(&mut self, nodes: usize, leader: Option<usize>) -> usize {
        match leader {
            Some(leader) if self.rng.per_mille(self.options.leader_per_mille) => leader,
            _ => self.rng.below(nodes as u64) as usize,
        }
    }

    /// The shape of a cut.
    pub fn shape(&mut self) -> Shape {
        self.options.shapes[self.rng.below(self.options.shapes.len() as u64) as usize]
    }

    /// A draw for details.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// How many kinds of fault struck.
    pub fn kinds(&self) -> usize {
        self.strikes.iter().filter(|n| **n > 0).count()
    }
}

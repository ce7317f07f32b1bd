//! The network between nodes, and between clients and nodes: directed links with delay, loss,
//! duplication (also very late), reordering and cuts of every shape.
//!
//! Peer messages travel as datagrams, harsher than the real thing, or in order per link as over
//! TCP, as the options say. Client links are always streams: in order, whole or broken.

use core::time::Duration;

use palisade_types::{Rng, Time};

use crate::options::NetworkOptions;

/// An end of a link: nodes first, then clients.
pub type End = usize;

/// All links.
pub struct Network {
    options: NetworkOptions,
    rng: Rng,
    ends: usize,
    nodes: usize,
    /// `cut[from * ends + to]` counts the cuts that cover this direction.
    cut: Vec<u16>,
    /// When the last message of a direction arrives, for links that keep the order.
    last: Vec<Time>,
    /// Directions that are slow, by how much.
    slow: Vec<Duration>,
    /// What happened so far.
    pub counts: Counts,
}

/// What the network did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Messages that arrived or will.
    pub carried: u64,
    /// Lost at random.
    pub lost: u64,
    /// Lost to a cut.
    pub cut: u64,
    /// Duplicated.
    pub duplicated: u64,
}

/// Directions cut together; kept so that healing undoes exactly this.
#[derive(Clone, Debug)]
pub struct Cut {
    directions: Vec<(End, End)>,
    /// For the story.
    pub name: String,
}

/// The shapes of cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Two groups that do not hear each other, clients on either side.
    Split,
    /// One node alone.
    Isolate,
    /// One node is not heard by the other nodes.
    Mute,
    /// One node does not hear the other nodes.
    Deaf,
    /// One direction between two nodes.
    OneWay,
    /// Two groups that meet in one node only.
    Bridge,
    /// Some clients lose all nodes.
    Clients,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Shape; 7] = [
        Shape::Split,
        Shape::Isolate,
        Shape::Mute,
        Shape::Deaf,
        Shape::OneWay,
        Shape::Bridge,
        Shape::Clients,
    ];
}

impl Network {
    /// A whole network between so many nodes and clients.
    pub fn new(options: NetworkOptions, rng: Rng, nodes: usize, clients: usize) -> Network {
        let ends = nodes + clients;
        Network {
            options,
            rng,
            ends,
            nodes,
            cut: vec![0; ends * ends],
            last: vec![Time::ZERO; ends * ends],
            slow: vec![Duration::ZERO; ends * ends],
            counts: Counts::default(),
        }
    }

    fn at(&self, from: End, to: End) -> usize {
        from * self.ends + to
    }

    /// Whether messages pass in this direction.
    pub fn is_open(&self, from: End, to: End) -> bool {
        self.cut[self.at(from, to)] == 0
    }

    /// One delay: a floor plus an exponential tail, in integers.
    fn delay(&mut self, link: usize) -> Duration {
        let o = &self.options;
        let mut tail = 0;
        // A sum of halvings: the number of leading zeros is geometric, which approximates the
        // logarithm of an exponential draw; the fraction is filled in evenly.
        let draw = self.rng.next_u64();
        let halvings = u64::from(draw.leading_zeros().min(12));
        tail += o.tail.as_nanos() as u64 * halvings;
        tail += self.rng.below(o.tail.as_nanos() as u64 + 1);
        o.floor + Duration::from_nanos(tail) + self.slow[link]
    }

    /// When a peer message sent now arrives: never, once, or more than once.
    pub fn datagram(&mut self, now: Time, from: End, to: End) -> Vec<Time> {
        let link = self.at(from, to);
        if self.cut[link] > 0 {
            self.counts.cut += 1;
            return Vec::new();
        }
        if self.rng.per_mille(self.options.loss_per_mille) {
            self.counts.lost += 1;
            return Vec::new();
        }
        self.counts.carried += 1;
        let mut at = now + self.delay(link);
        if self.options.ordered {
            at = at.max(self.last[link]);
            self.last[link] = at;
            return vec![at];
        }
        let mut all = vec![at];
        while all.len() < 3 && self.rng.per_mille(self.options.duplicate_per_mille) {
            self.counts.duplicated += 1;
            let again = match self.rng.per_mille(self.options.late_per_mille) {
                true => Duration::from_millis(self.rng.between(1_000, 25_000)),
                false => self.delay(link),
            };
            all.push(now + again);
        }
        all
    }

    /// When bytes sent now on a stream arrive, in order; `None` when the direction is cut, which
    /// breaks the stream.
    pub fn stream(&mut self, now: Time, from: End, to: End) -> Option<Time> {
        let link = self.at(from, to);
        if self.cut[link] > 0 {
            self.counts.cut += 1;
            return None;
        }
        self.counts.carried += 1;
        let at = (now + self.delay(link)).max(self.last[link]);
        self.last[link] = at;
        Some(at)
    }

    /// Makes one direction slow, or normal again with zero.
    pub fn set_slow(&mut self, from: End, to: End, by: Duration) {
        let link = self.at(from, to);
        self.slow[link] = by;
    }

    /// Cuts these directions.
    pub fn cut(&mut self, name: String, directions: Vec<(End, End)>) -> Cut {
        for &(from, to) in &directions {
            let link = self.at(from, to);
            self.cut[link] += 1;
        }
        Cut { directions, name }
    }

    /// Undoes a cut.
    pub fn heal(&mut self, cut: &Cut) {
        for &(from, to) in &cut.directions {
            let link = self.at(from, to);
            self.cut[link] -= 1;
        }
    }

    /// Draws a cut of this shape and makes it. `around` is the node it is about, if it matters.
    pub fn draw_cut(&mut self, shape: Shape, around: Option<usize>) -> Cut {
        let n = self.nodes;
        let node = around.unwrap_or_else(|| self.rng.below(n as u64) as usize);
        let mut directions = Vec::new();
        match shape {
            Shape::Split | Shape::Bridge => {
                let bridge = (shape == Shape::Bridge).then_some(node);
                let side: Vec<bool> = (0..self.ends).map(|_| self.rng.per_mille(500)).collect();
                for (from, to) in self.pairs() {
                    if side[from] != side[to] && Some(from) != bridge && Some(to) != bridge {
                        directions.push((from, to));
                    }
                }
            }
            Shape::Isolate => directions.extend(self.pairs().filter(|&(f, t)| f == node || t == node)),
            Shape::Mute => directions.extend(self.pairs().filter(|&(f, t)| f == node && t < n)),
            Shape::Deaf => directions.extend(self.pairs().filter(|&(f, t)| t == node && f < n)),
            Shape::OneWay => {
                let other = (node + 1 + self.rng.below(n.max(2) as u64 - 1) as usize) % n;
                if other != node {
                    directions.push((node, other));
                }
            }
            Shape::Clients => {
                let away: Vec<bool> = (0..self.ends).map(|e| e >= n && self.rng.per_mille(500)).collect();
                directions.extend(self.pairs().filter(|&(f, t)| away[f] || away[t]));
            }
        }
        self.cut(format!("{shape:?} around node {}", node + 1), directions)
    }

    /// No more loss, duplicates or slow directions. Cuts are healed one by one.
    pub fn set_calm(&mut self) {
        self.options.loss_per_mille = 0;
        self.options.duplicate_per_mille = 0;
        self.slow.fill(Duration::ZERO);
    }

    fn pairs(&self) -> impl Iterator<Item = (End, End)> + use<> {
        let ends = self.ends;
        (0..ends * ends).map(move |i| (i / ends, i % ends)).filter(|(f, t)| f != t)
    }
}

//! What a run consists of, all drawn from its seed: swarm testing (Groce et al., 2012). First each
//! class of fault is switched on or off with even odds, then its rate is drawn, so that some runs
//! are all crashes, some all partitions, and few are everything at once.

use core::fmt;
use core::time::Duration;

use palisade_types::{Mutants, Rng};

use crate::network::Shape;

/// Makes the draw of some kinds of run likelier. `Swarm` is what the bulk of seeds uses; the others
/// aim at corners that a swarm reaches rarely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Everything drawn.
    Swarm,
    /// Slow disks and power failures, little else.
    SlowDisk,
    /// Elections all the time: the leader of the moment is cut off or crashed again and again.
    Elections,
    /// Paused nodes and clients, short leases.
    Pauses,
    /// Late and repeated messages.
    Replays,
    /// Reads by lease at leaders that are paused, muted, or answered late.
    Leases,
    /// Watchers, of histories long and short; all else as in a swarm.
    Watches,
    /// Clients that keep no rule of the protocol: every answer there is is given.
    Rough,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 8] = [
        Profile::Swarm,
        Profile::SlowDisk,
        Profile::Elections,
        Profile::Pauses,
        Profile::Replays,
        Profile::Leases,
        Profile::Watches,
        Profile::Rough,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Swarm => "swarm",
            Profile::SlowDisk => "slow-disk",
            Profile::Elections => "elections",
            Profile::Pauses => "pauses",
            Profile::Replays => "replays",
            Profile::Leases => "leases",
            Profile::Watches => "watches",
            Profile::Rough => "rough",
        }
    }

    /// The profile of that name.
    pub fn parse(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// How links behave.
#[derive(Clone, Copy, Debug)]
pub struct NetworkOptions {
    /// The least delay.
    pub floor: Duration,
    /// The scale of the exponential tail.
    pub tail: Duration,
    /// Peer messages lost, in a thousand.
    pub loss_per_mille: u64,
    /// Peer messages duplicated, in a thousand.
    pub duplicate_per_mille: u64,
    /// Of the duplicates, so many in a thousand come more than a second late.
    pub late_per_mille: u64,
    /// Peer messages of one direction keep their order and are neither lost nor doubled.
    pub ordered: bool,
}

/// A fault that strikes again and again.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The mean time between two strikes.
    pub gap: Duration,
    /// How long one lasts at least.
    pub low: Duration,
    /// How long one lasts at most.
    pub high: Duration,
}

impl Rate {
    fn draw(rng: &mut Rng, gap_ms: (u64, u64), low_ms: u64, high_ms: u64) -> Rate {
        Rate {
            gap: Duration::from_millis(rng.between(gap_ms.0, gap_ms.1)),
            low: Duration::from_millis(low_ms),
            high: Duration::from_millis(rng.between(low_ms, high_ms)),
        }
    }

    /// The time until the next strike.
    pub fn next_gap(&self, rng: &mut Rng) -> Duration {
        Duration::from_nanos(rng.between(1, 2 * self.gap.as_nanos() as u64))
    }

    /// How long this strike lasts: mostly short, at times the full length.
    pub fn next_length(&self, rng: &mut Rng) -> Duration {
        let (low, high) = (self.low.as_nanos() as u64, self.high.as_nanos() as u64);
        let high = if rng.per_mille(600) { low + (high - low) / 4 } else { high };
        Duration::from_nanos(rng.between(low, high))
    }
}

/// Which faults strike, and how often. `None`: never in this run.
#[derive(Clone, Debug, Default)]
pub struct FaultOptions {
    /// Cuts in the network, of these shapes.
    pub cuts: Option<Rate>,
    /// The shapes that occur.
    pub shapes: Vec<Shape>,
    /// One node crashes and comes back.
    pub crashes: Option<Rate>,
    /// All nodes crash and come back.
    pub kill_all: Option<Rate>,
    /// One node's process stands still while its clock runs.
    pub pauses: Option<Rate>,
    /// One node's disk is slow.
    pub slow_disk: Option<Rate>,
    /// A write fails: the node must stop, and comes back.
    pub disk_errors: Option<Rate>,
    /// One direction between two nodes is slow, by up to a second and a half; or with `slow_answers` all
    /// that one node hears of the others, by no more than a fifth of a second.
    pub slow_links: Option<Rate>,
    /// See `slow_links`.
    pub slow_answers: bool,
    /// A client dies and another takes its place.
    pub client_crashes: Option<Rate>,
    /// A client's process stands still while its clock runs.
    pub client_pauses: Option<Rate>,
    /// One node's sockets are read by nobody while its shard goes on, as when another core owns them.
    pub deaf: Option<Rate>,
    /// A node hands its leadership over, if it has one.
    pub hand_overs: Option<Rate>,
    /// In a thousand: a fault on a node strikes the leader of the moment rather than any.
    pub leader_per_mille: u64,
}

impl FaultOptions {
    /// Whether nothing strikes by itself.
    pub fn is_none(&self) -> bool {
        let rates = [
            self.cuts,
            self.crashes,
            self.kill_all,
            self.pauses,
            self.slow_disk,
            self.disk_errors,
            self.slow_links,
            self.client_crashes,
            self.client_pauses,
            self.deaf,
            self.hand_overs,
        ];
        rates.iter().all(Option::is_none)
    }

    /// How many kinds of fault can strike, the network's own included.
    pub fn kinds(&self, network: &NetworkOptions, clocks_ppm: u64) -> usize {
        [
            self.cuts.is_some(),
            self.crashes.is_some(),
            self.kill_all.is_some(),
            self.pauses.is_some(),
            self.slow_disk.is_some(),
            self.disk_errors.is_some(),
            self.slow_links.is_some(),
            self.client_crashes.is_some(),
            self.client_pauses.is_some(),
            self.deaf.is_some(),
            network.loss_per_mille > 0 && !network.ordered,
            network.duplicate_per_mille > 0 && !network.ordered,
            clocks_ppm > 0,
        ]
        .into_iter()
        .filter(|on| *on)
        .count()
    }
}

/// What Raft is configured with.
#[derive(Clone, Copy, Debug)]
pub struct RaftOptions {
    /// See `palisade_raft::Config`.
    pub heartbeat: Duration,
    /// The shortest election timeout.
    pub election_min: Duration,
    /// The longest.
    pub election_max: Duration,
    /// Appends in flight to one follower.
    pub inflight_messages_max: usize,
    /// Bytes in flight to one follower.
    pub inflight_bytes_max: usize,
    /// Bytes of blocks in one append.
    pub append_bytes_max: usize,
    /// Blocks handed to apply at a time.
    pub committed_blocks_max: usize,
    /// When a leader gives up on its disk.
    pub disk_stall: Duration,
}

/// What the disks of a run are like.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// The least time of a write with its sync.
    pub floor: Duration,
    /// Time on top of that, evenly drawn.
    pub spread: Duration,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
}

/// What the shards are configured with.
#[derive(Clone, Copy, Debug)]
pub struct ShardOptions {
    /// See `palisade_shard::ShardConfig`.
    pub expiry_slack: Duration,
    /// Releases of ended sessions a second.
    pub releases_per_second: u64,
    /// Commands in hand before new ones are refused.
    pub in_hand_max: usize,
    /// Bytes of log beyond which it takes only what frees something.
    pub log_bytes_max: u64,
    /// Commands that seal a block under load.
    pub block_commands: u32,
    /// Fewer commands than this are light load.
    pub light_commands: u32,
    /// Commands after which no further block is applied in a turn.
    pub commands_per_turn: u32,
    /// Events kept for watches.
    pub watch_history: usize,
    /// Events behind which a watcher is told only the newest.
    pub watch_behind: usize,
    /// Deliveries to watchers in a turn.
    pub watch_deliveries: usize,
}

/// What is snapshot when.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOptions {
    /// The bytes of blocks from one snapshot to the next.
    pub every_bytes: u64,
    /// Bytes of blocks kept behind a snapshot for followers that are a little behind.
    pub keep_bytes: u64,
    /// Chunks under way to a follower.
    pub window: u32,
}

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadOptions {
    /// Client processes with sessions.
    pub clients: usize,
    /// Client processes without: they read from whichever node they are connected to.
    pub readers: usize,
    /// So many of them read by lease, and so from the leader.
    pub lease_readers: usize,
    /// Sessions each opens.
    pub sessions: usize,
    /// Keys many want.
    pub hot_keys: u64,
    /// Keys few want.
    pub cold_keys: u64,
    /// Of a thousand acquires, how many are shared.
    pub shared: u64,
    /// Watchers.
    pub watchers: usize,
    /// Clients that speak the bare protocol and keep no rule of it.
    pub roughs: usize,
    /// The mean time between two steps of a client.
    pub gap: Duration,
    /// The longest time a lock is kept.
    pub hold: Duration,
    /// The shortest TTL.
    pub ttl_min: Duration,
    /// The longest TTL.
    pub ttl_max: Duration,
}

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed all is drawn from.
    pub seed: u64,
    /// The kind of draw.
    pub profile: Profile,
    /// Voting nodes.
    pub nodes: usize,
    /// How long the faults last.
    pub storm: Duration,
    /// How far the clocks' rates are off, in parts per million.
    pub clocks_ppm: u64,
    /// How long a node gathers what arrives before it takes a turn.
    pub turn: Duration,
    /// Leaders may answer reads by lease.
    pub leases: bool,
    /// After the storm only a quorum is healed at first.
    pub heal_quorum_first: bool,
    /// The network.
    pub network: NetworkOptions,
    /// The faults.
    pub faults: FaultOptions,
    /// Raft.
    pub raft: RaftOptions,
    /// The shards.
    pub shard: ShardOptions,
    /// The disks.
    pub disk: DiskOptions,
    /// Snapshots.
    pub snapshots: SnapshotOptions,
    /// The clients.
    pub workload: WorkloadOptions,
    /// Bugs switched on.
    pub mutants: Mutants,
}

impl Options {
    /// Draws a run.
    pub fn draw(seed: u64, profile: Profile) -> Options {
        let mut rng = Rng::new(seed ^ 0x05ee_d0fa_5701);
        let nodes = match rng.below(20) {
            0 => 1,
            1..=3 => 5,
            4 => 2,
            _ => 3,
        };
        let mut options = Options {
            seed,
            profile,
            nodes,
            storm: Duration::from_millis(rng.between(36_000, 42_000)),
            clocks_ppm: if rng.per_mille(500) { rng.between(100, 5_000) } else { 0 },
            turn: Duration::from_micros(if rng.per_mille(300) { rng.between(100, 3_000) } else { 0 }),
            leases: false,
            heal_quorum_first: rng.per_mille(500),
            network: draw_network(&mut rng),
            faults: draw_faults(&mut rng),
            raft: draw_raft(&mut rng),
            shard: draw_shard(&mut rng),
            disk: DiskOptions {
                floor: Duration::from_micros(rng.between(50, 2_000)),
                spread: Duration::from_micros(rng.between(100, 20_000)),
                segment_bytes: 4096 * rng.between(16, 128),
            },
            snapshots: SnapshotOptions { every_bytes: 0, keep_bytes: 0, window: 1 },
            workload: draw_workload(&mut rng),
            mutants: Mutants::NONE,
        };
        options.aim(&mut rng);
        // Drawn apart, so that the rest of a seed's draw stays what it was.
        let mut apart = Rng::new(seed ^ 0x4ead_5eed);
        options.workload.readers = apart.between(1, 2) as usize;
        options.leases = apart.per_mille(500);
        let deaf = on(&mut apart, |r| Rate::draw(r, (3_000, 15_000), 50, 4_000));
        options.faults.deaf = options.faults.deaf.or(deaf);
        options.snapshots = draw_snapshots(&mut Rng::new(seed ^ 0x5a9_0d1e));
        if matches!(profile, Profile::Watches | Profile::Rough) && seed.is_multiple_of(2) {
            // A watch goes on anywhere while no node begins behind a snapshot.
            options.snapshots.every_bytes = 0;
        }
        // Of these there is no harm; so they come often.
        options.faults.hand_overs = on(&mut apart, |r| Rate::draw(r, (700, 6_000), 1, 1));
        if profile == Profile::Leases {
            options.leases = true;
            options.faults.hand_overs = Some(Rate::draw(&mut apart, (700, 3_000), 1, 1));
            options.workload.lease_readers = 3;
            options.workload.readers += 3;
        }
        // A network or a disk that is as slow as an election timeout is long proves nothing about
        // progress; slow links and disks are faults of their own.
        let timeout = options.raft.election_min;
        options.network.floor = options.network.floor.min(timeout / 30);
        options.network.tail = options.network.tail.min(timeout / 40);
        if profile != Profile::SlowDisk {
            options.disk.spread = options.disk.spread.min(timeout / 4);
        }
        options
    }

    /// Bends the draw towards its profile.
    fn aim(&mut self, rng: &mut Rng) {
        if self.profile != Profile::Swarm {
            // So much goes wrong in these that clients must try more to get as much done.
            self.workload.gap = self.workload.gap * 3 / 5;
        }
        let faults = &mut self.faults;
        match self.profile {
            Profile::Swarm => {
                if faults.kinds(&self.network, self.clocks_ppm) < 3 {
                    faults.crashes.get_or_insert(Rate::draw(rng, (5_000, 15_000), 50, 5_000));
                    faults.cuts.get_or_insert(Rate::draw(rng, (4_000, 10_000), 500, 8_000));
                }
            }
            Profile::SlowDisk => {
                self.nodes = 3;
                faults.slow_disk = Some(Rate::draw(rng, (500, 2_000), 500, 5_000));
                faults.crashes = Some(Rate::draw(rng, (1_500, 4_000), 50, 1_500));
                faults.kill_all = Some(Rate::draw(rng, (10_000, 25_000), 50, 500));
                // Leaders that are not heard gather blocks that are cut off later, while the disk
                // still writes them.
                faults.cuts = Some(Rate::draw(rng, (1_500, 4_000), 1_500, 4_000));
                faults.shapes = vec![Shape::Mute, Shape::Isolate, Shape::Split];
                faults.leader_per_mille = 600;
                self.workload.gap = self.workload.gap * 2 / 3;
                self.disk.spread = Duration::from_millis(rng.between(20, 200));
                self.raft.disk_stall = Duration::from_secs(20);
            }
            Profile::Elections => {
                self.nodes = if rng.per_mille(300) { 5 } else { 3 };
                faults.cuts = Some(Rate::draw(rng, (800, 2_000), 300, 3_000));
                faults.crashes = Some(Rate::draw(rng, (1_500, 4_000), 20, 1_000));
                faults.shapes =
                    vec![Shape::Mute, Shape::Mute, Shape::Deaf, Shape::OneWay, Shape::Split, Shape::Bridge];
                faults.leader_per_mille = 900;
                self.disk.spread = Duration::from_millis(rng.between(1, 120));
                self.raft.heartbeat = Duration::from_millis(50);
                self.raft.election_min = Duration::from_millis(250);
                self.raft.election_max = Duration::from_millis(rng.between(300, 500));
            }
            Profile::Pauses => {
                faults.pauses = Some(Rate::draw(rng, (2_000, 5_000), 500, 12_000));
                faults.client_pauses = Some(Rate::draw(rng, (1_000, 4_000), 1_000, 15_000));
                faults.client_crashes = Some(Rate::draw(rng, (4_000, 8_000), 50, 3_000));
                faults.deaf = Some(Rate::draw(rng, (2_000, 5_000), 500, 6_000));
                faults.leader_per_mille = 800;
                self.workload.ttl_min = Duration::from_secs(1);
                self.workload.ttl_max = Duration::from_secs(3);
                self.clocks_ppm = 5_000;
            }
            Profile::Watches => {
                self.workload.watchers = rng.between(1, 4) as usize;
                if rng.per_mille(700) {
                    self.shard.watch_history = rng.between(16, 400) as usize;
                }
                if rng.per_mille(500) {
                    self.shard.watch_behind = rng.between(4, 100) as usize;
                }
                if rng.per_mille(500) {
                    self.shard.watch_deliveries = rng.between(1, 3) as usize;
                }
                faults.crashes.get_or_insert(Rate::draw(rng, (3_000, 10_000), 50, 5_000));
                faults.cuts.get_or_insert(Rate::draw(rng, (3_000, 10_000), 500, 8_000));
            }
            Profile::Rough => {
                self.workload.roughs = rng.between(1, 3) as usize;
                self.workload.watchers = 1;
                if rng.per_mille(500) {
                    self.shard.watch_history = rng.between(16, 400) as usize;
                }
                if rng.per_mille(300) {
                    self.shard.log_bytes_max = rng.between(1 << 20, 6 << 20);
                }
                faults.crashes.get_or_insert(Rate::draw(rng, (5_000, 15_000), 50, 5_000));
                faults.cuts.get_or_insert(Rate::draw(rng, (5_000, 15_000), 500, 8_000));
            }
            Profile::Replays => {
                self.nodes = if rng.per_mille(300) { 5 } else { 3 };
                self.network.ordered = false;
                self.network.duplicate_per_mille = rng.between(200, 500);
                self.network.late_per_mille = rng.between(50, 300);
                self.network.tail = Duration::from_millis(rng.between(2, 30));
                faults.crashes = Some(Rate::draw(rng, (1_500, 5_000), 20, 800));
                faults.kill_all = Some(Rate::draw(rng, (5_000, 15_000), 50, 500));
                faults.cuts = Some(Rate::draw(rng, (1_500, 5_000), 300, 3_000));
                self.raft.heartbeat = Duration::from_millis(50);
                self.raft.election_min = Duration::from_millis(300);
                self.raft.election_max = Duration::from_millis(600);
            }
            Profile::Leases => {
                self.nodes = 3;
                faults.pauses = Some(Rate::draw(rng, (1_000, 3_000), 250, 1_200));
                faults.cuts = Some(Rate::draw(rng, (800, 2_000), 300, 1_500));
                faults.shapes = vec![Shape::Mute, Shape::Mute, Shape::Deaf, Shape::Bridge];
                faults.slow_links = Some(Rate::draw(rng, (500, 1_500), 500, 3_000));
                faults.slow_answers = true;
                faults.leader_per_mille = 950;
                self.disk.spread = Duration::from_millis(rng.between(1, 10));
                self.raft.heartbeat = Duration::from_millis(50);
                self.raft.election_min = Duration::from_millis(250);
                self.raft.election_max = Duration::from_millis(rng.between(280, 500));
                self.clocks_ppm = 5_000;
            }
        }
    }

    /// How many nodes are a quorum.
    pub fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#?}")
    }
}

fn on<T>(rng: &mut Rng, draw: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    let mut own = rng.fork();
    rng.per_mille(500).then(|| draw(&mut own))
}

fn draw_network(rng: &mut Rng) -> NetworkOptions {
    let slow = rng.per_mille(250);
    NetworkOptions {
        floor: Duration::from_micros(if slow { rng.between(500, 20_000) } else { rng.between(30, 500) }),
        tail: Duration::from_micros(if slow { rng.between(1_000, 30_000) } else { rng.between(50, 2_000) }),
        loss_per_mille: on(rng, |r| if r.per_mille(300) { r.between(50, 300) } else { r.between(1, 50) })
            .unwrap_or(0),
        duplicate_per_mille: on(rng, |r| r.between(5, 300)).unwrap_or(0),
        late_per_mille: on(rng, |r| r.between(10, 200)).unwrap_or(0),
        ordered: rng.per_mille(250),
    }
}

fn draw_faults(rng: &mut Rng) -> FaultOptions {
    let mut shapes: Vec<Shape> = Shape::ALL.into_iter().filter(|_| rng.per_mille(500)).collect();
    if shapes.is_empty() {
        shapes = Shape::ALL.to_vec();
    }
    FaultOptions {
        cuts: on(rng, |r| Rate::draw(r, (2_000, 15_000), 200, 12_000)),
        shapes,
        crashes: on(rng, |r| Rate::draw(r, (2_000, 20_000), 10, 10_000)),
        kill_all: on(rng, |r| Rate::draw(r, (10_000, 40_000), 10, 3_000)),
        pauses: on(rng, |r| Rate::draw(r, (3_000, 15_000), 10, 10_000)),
        slow_disk: on(rng, |r| Rate::draw(r, (3_000, 15_000), 100, 8_000)),
        disk_errors: on(rng, |r| Rate::draw(r, (8_000, 30_000), 10, 3_000)),
        slow_links: on(rng, |r| Rate::draw(r, (3_000, 15_000), 500, 8_000)),
        slow_answers: false,
        client_crashes: on(rng, |r| Rate::draw(r, (4_000, 20_000), 50, 5_000)),
        client_pauses: on(rng, |r| Rate::draw(r, (3_000, 15_000), 100, 12_000)),
        // Drawn apart, see `Options::draw`.
        deaf: None,
        hand_overs: None,
        leader_per_mille: rng.between(200, 800),
    }
}

fn draw_raft(rng: &mut Rng) -> RaftOptions {
    let (heartbeat, min, max) = match rng.below(4) {
        0 => (50, 300, 600),
        1 => (100, 500, 1_000),
        _ => (100, 1_000, 2_000),
    };
    RaftOptions {
        heartbeat: Duration::from_millis(heartbeat),
        election_min: Duration::from_millis(min),
        election_max: Duration::from_millis(max),
        inflight_messages_max: if rng.per_mille(400) { rng.between(1, 4) as usize } else { 64 },
        inflight_bytes_max: if rng.per_mille(300) { rng.between(600, 8_192) as usize } else { 8 << 20 },
        append_bytes_max: if rng.per_mille(400) { rng.between(200, 4_096) as usize } else { 512 << 10 },
        committed_blocks_max: if rng.per_mille(300) { rng.between(1, 3) as usize } else { 64 },
        disk_stall: Duration::from_millis(rng.between(2_000, 10_000)),
    }
}

fn draw_workload(rng: &mut Rng) -> WorkloadOptions {
    // However many clients, together they do about as much: enough to matter, little enough for
    // hundreds of seeds in a minute.
    let clients = rng.between(2, 6);
    WorkloadOptions {
        clients: clients as usize,
        readers: 0,
        lease_readers: 0,
        watchers: 0,
        roughs: 0,
        sessions: rng.between(1, 2) as usize,
        hot_keys: rng.between(1, 4),
        cold_keys: rng.between(1, 60),
        shared: [0, 300, 700][rng.below(3) as usize],
        gap: Duration::from_millis(clients * rng.between(35, 80)),
        hold: Duration::from_millis(rng.between(100, 4_000)),
        ttl_min: Duration::from_millis(1_000),
        ttl_max: Duration::from_millis(rng.between(1_500, 10_000)),
    }
}

fn draw_snapshots(rng: &mut Rng) -> SnapshotOptions {
    SnapshotOptions {
        every_bytes: if rng.per_mille(600) { rng.between(600, 5_000) } else { rng.between(2_000, 40_000) },
        keep_bytes: if rng.per_mille(600) { 0 } else { rng.between(100, 20_000) },
        window: rng.between(1, 8) as u32,
    }
}

fn draw_shard(rng: &mut Rng) -> ShardOptions {
    ShardOptions {
        expiry_slack: Duration::from_millis(if rng.per_mille(500) { 1_000 } else { rng.between(20, 300) }),
        releases_per_second: if rng.per_mille(300) { rng.between(50, 500) } else { 20_000 },
        in_hand_max: if rng.per_mille(200) { rng.between(2, 20) as usize } else { 50_000 },
        block_commands: rng.between(1, 64) as u32,
        light_commands: rng.between(1, 16) as u32,
        commands_per_turn: if rng.per_mille(300) { rng.between(1, 3) as u32 } else { 1_024 },
        log_bytes_max: 8 << 30,
        watch_history: 100_000,
        watch_behind: 20_000,
        watch_deliveries: 1_000,
    }
}

//! The load that the benches of the parts share: what `palisade-bench cycle` makes a leader propose.

use std::time::Duration;

use criterion::Criterion;
use palisade_machine::Command;
use palisade_types::block::Seal;
use palisade_types::{
    Block, BlockBuilder, Class, ClusterId, ClusterLimits, Incarnation, Key, LogIndex, Mode, Name, NodeId,
    OnDeath, Rng, SessionId, SessionToken, ShardId, Term, Ticket,
};
use palisade_wal::{Identity, SimDisk, hard_state_file, initial_hard_state};
use palisade_wire::{Request, Wait};

/// The shard of all benches.
pub(crate) const SHARD: ShardId = ShardId(0);
/// Commands in a block: what a leader gathers between two syncs under load.
pub(crate) const BLOCK_COMMANDS: u64 = 256;

/// A cluster of one node, and its disk before it first starts.
pub(crate) fn formatted() -> (Identity, SimDisk) {
    let identity = Identity {
        cluster: ClusterId(7),
        cluster_name: Name::new("bench").expect("a name"),
        node: NodeId(1),
        incarnation: Incarnation(9),
        shards: 1,
        voters: vec![NodeId(1)],
        limits: ClusterLimits::default(),
    };
    let mut disk = SimDisk::new();
    disk.put(&hard_state_file(SHARD), &initial_hard_state(&identity, SHARD));
    (identity, disk)
}

/// Sessions that acquire and release the keys of their own in turn, one command under way each, in an
/// order that changes with every round: no cache or prefetcher sees a pattern that clients lack.
pub(crate) struct Cycle {
    sessions: Vec<SessionId>,
    keys: Vec<Vec<Key>>,
    order: Vec<usize>,
    /// The next place in the order.
    at: usize,
    /// Whole rounds so far: the even ones acquire, the odd ones release what the one before acquired.
    round: u64,
    rng: Rng,
    next: LogIndex,
    chain: u128,
}

impl Cycle {
    /// So many sessions, which [`Cycle::opens`] opens, of so many keys each.
    pub(crate) fn new(sessions: u64, keys: usize) -> Cycle {
        let session = |n| SessionId { shard: SHARD, opened: LogIndex(n) };
        Cycle::of((1..=sessions).map(session).collect(), keys)
    }

    /// These sessions, of so many keys each; nothing is held yet.
    pub(crate) fn of(sessions: Vec<SessionId>, keys: usize) -> Cycle {
        let key = |s: usize, k: usize| Key::new(&format!("bench-0123abcd-0-{s}-{k}")).expect("a name");
        Cycle {
            keys: (0..sessions.len()).map(|s| (0..keys).map(|k| key(s, k)).collect()).collect(),
            order: (0..sessions.len()).collect(),
            sessions,
            at: 0,
            round: 0,
            rng: Rng::new(1),
            next: LogIndex(1),
            chain: 0,
        }
    }

    /// The blocks that open the sessions: the first blocks of all.
    pub(crate) fn opens(&mut self) -> Vec<Block> {
        let open = |n| {
            let token = SessionToken(n as u128);
            Command::OpenSession { token, ttl_ms: 30_000, owner: None, incarnation: None }
        };
        let commands: Vec<Command> = (0..self.sessions.len()).map(open).collect();
        commands.chunks(BLOCK_COMMANDS as usize).map(|chunk| self.seal(chunk.iter())).collect()
    }

    /// The next commands, as many as a block has.
    pub(crate) fn commands(&mut self) -> Vec<Command> {
        (0..BLOCK_COMMANDS).map(|_| self.command()).collect()
    }

    /// The next block of acquires and releases.
    pub(crate) fn block(&mut self) -> Block {
        let commands = self.commands();
        self.seal(commands.iter())
    }

    /// The blocks of a full turn over all keys of all sessions, after which every record exists.
    pub(crate) fn lap(&mut self) -> Vec<Block> {
        let commands = 2 * self.keys.len() * self.keys[0].len();
        (0..commands.div_ceil(BLOCK_COMMANDS as usize)).map(|_| self.block()).collect()
    }

    /// The next command of whichever session is next.
    fn command(&mut self) -> Command {
        if self.at == self.order.len() {
            self.at = 0;
            self.round += 1;
            for n in (1..self.order.len()).rev() {
                self.order.swap(n, self.rng.below(n as u64 + 1) as usize);
            }
        }
        let n = self.order[self.at];
        self.at += 1;
        let session = self.sessions[n];
        let ticket = Ticket(self.round / 2 + 1);
        if self.round % 2 == 1 {
            return Command::Release { session, ticket };
        }
        let keys = &self.keys[n];
        let key = keys[(self.round / 2) as usize % keys.len()].clone();
        Command::Acquire {
            session,
            ticket,
            key,
            class: Class::Advisory,
            resource: None,
            mode: Mode::Exclusive,
            wait: false,
            on_death: OnDeath::Release,
        }
    }

    fn seal<'a>(&mut self, commands: impl Iterator<Item = &'a Command>) -> Block {
        let block = gather(commands).seal(Seal {
            shard: SHARD,
            term: Term(1),
            first: self.next,
            clock_ms: self.next.0 / 200,
            prev_chain: self.chain,
        });
        self.next = block.last().next();
        self.chain = block.chain();
        block
    }
}

/// Commands gathered into a block that is not sealed yet.
pub(crate) fn gather<'a>(commands: impl Iterator<Item = &'a Command>) -> BlockBuilder {
    let mut builder = BlockBuilder::new();
    for command in commands {
        builder.push(|out| command.encode(out));
    }
    builder
}

/// The request that becomes this command.
pub(crate) fn request(command: Command) -> Request {
    match command {
        Command::Acquire { session, ticket, key, class, resource, .. } => Request::Acquire {
            session,
            ticket,
            key,
            class,
            resource,
            mode: Mode::Exclusive,
            wait: Wait::No,
            on_death: OnDeath::Release,
        },
        Command::Release { session, ticket } => Request::Release { session, ticket },
        other => unreachable!("a cycle has no {other:?}"),
    }
}

/// Runs benches as long as their figures need and no longer.
pub(crate) fn run(benches: &[fn(&mut Criterion)]) {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    for bench in benches {
        bench(&mut criterion);
    }
    criterion.final_summary();
}

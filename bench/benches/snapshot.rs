//! What a snapshot costs: the freeze, the longest call for a chunk, all of them, the way back, and commands
//! meanwhile. Two states: locks and sessions; and with them ended sessions, ephemeral keys and claims to
//! resources. Prints one line each; no statistics, as the longest call is what matters.

use std::time::{Duration, Instant};

use palisade_machine::{Applied, Command, Machine, Restore};
use palisade_types::{
    Cause, Class, ClusterLimits, LogIndex, Mode, Mutants, Name, OnDeath, SessionId, SessionToken, ShardId,
    Ticket,
};

const SHARD: ShardId = ShardId(0);

struct World {
    machine: Machine,
    index: u64,
    bytes: Vec<u8>,
}

impl World {
    fn apply(&mut self, command: &Command) {
        self.bytes.clear();
        command.encode(&mut self.bytes);
        self.index += 1;
        let at = Applied { index: LogIndex(self.index), clock_ms: self.index };
        self.machine.apply(at, &self.bytes, &mut Vec::new()).expect("a command");
    }

    fn open(&mut self) -> SessionId {
        let token = SessionToken(u128::from(self.index) << 64 | 1);
        self.apply(&Command::OpenSession { token, ttl_ms: 0, owner: None, incarnation: None });
        SessionId { shard: SHARD, opened: LogIndex(self.index) }
    }

    fn acquire(&mut self, session: SessionId, ticket: u64, key: &str) {
        self.apply(&Command::Acquire {
            session,
            ticket: Ticket(ticket),
            key: name(key),
            class: Class::Advisory,
            resource: None,
            mode: Mode::Exclusive,
            wait: true,
            on_death: OnDeath::Release,
        });
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn world(is_large: bool) -> (World, Vec<SessionId>) {
    let machine = Machine::new(ClusterLimits::default(), SHARD, 1, Mutants::NONE);
    let mut world = World { machine, index: 0, bytes: Vec::new() };
    if is_large {
        for _ in 0..100_000 {
            let session = world.open();
            world.apply(&Command::EndSession { session, cause: Cause::Closed, release_now: 50 });
        }
        for n in 0..200_000 {
            let (resource, key) = (name(&format!("bucket/{}", n % 150_000)), name(&format!("job/{n}")));
            world.apply(&Command::ClaimResource { resource, key });
        }
    }
    let sessions: Vec<SessionId> = (0..10_000).map(|_| world.open()).collect();
    for n in 0..100_000_u64 {
        let session = sessions[n as usize % sessions.len()];
        let (ticket, key) = (n / 10_000 * 2 + 1, format!("jobs/nightly/{n}"));
        world.acquire(session, ticket, &key);
        if is_large {
            let (ticket, key) = (Ticket(ticket + 1), name(&format!("nodes/{n}")));
            world.apply(&Command::Put { session, ticket, key, value: b"10.0.0.1:4711"[..].into() });
        }
    }
    (world, sessions)
}

/// Releases and takes again; the time of one command.
fn cycle(world: &mut World, sessions: &[SessionId], round: u64) -> Duration {
    let begin = Instant::now();
    for (n, &session) in sessions.iter().enumerate() {
        let ticket = 1_000 + 2 * round;
        world.acquire(session, ticket, &format!("other/{n}"));
        world.apply(&Command::Release { session, ticket: Ticket(ticket) });
    }
    begin.elapsed() / (2 * sessions.len() as u32)
}

fn main() {
    for (what, is_large) in [("100k locks, 10k sessions", false), ("with all else", true)] {
        let (mut world, sessions) = world(is_large);
        let begin = Instant::now();
        world.machine.freeze();
        let freeze = begin.elapsed();
        let (mut chunks, mut longest, mut total) = (Vec::new(), Duration::ZERO, Duration::ZERO);
        loop {
            let begin = Instant::now();
            let chunk = world.machine.next_chunk();
            let spent = begin.elapsed();
            longest = longest.max(spent);
            total += spent;
            let Some(chunk) = chunk else { break };
            chunks.push(chunk);
        }
        let bytes: usize = chunks.iter().map(Vec::len).sum();
        println!(
            "{what}: freeze {freeze:?}, {} chunks, {bytes} bytes in {total:?}, longest {longest:?}",
            chunks.len()
        );
        let begin = Instant::now();
        let mut restore = Restore::new(ClusterLimits::default(), SHARD, 2, Mutants::NONE);
        for chunk in &chunks {
            restore.push(chunk).expect("a chunk");
        }
        let pushed = begin.elapsed();
        let machine = restore.finish().expect("a machine");
        println!("{what}: restore {:?}, of it {pushed:?} for the chunks", begin.elapsed());
        assert_eq!(machine.digest(), world.machine.digest());
        for round in 0..3 {
            let plain = cycle(&mut world, &sessions, 2 * round);
            world.machine.freeze();
            let frozen = cycle(&mut world, &sessions, 2 * round + 1);
            world.machine.thaw();
            println!("{what}: a command {plain:?}, during a freeze {frozen:?}");
        }
    }
}
